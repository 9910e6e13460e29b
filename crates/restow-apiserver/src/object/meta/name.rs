//! Rules for names of objects, labels and finalizers.

/// The rule for names of a resource's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// A DNS subdomain.
    Subdomain,
    /// A DNS label.
    Label,
    /// Any path segment.
    PathSegment,
}

const LABEL_FORMAT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const LABEL_RULE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and \
     must start and end with an alphanumeric character";
const SUBDOMAIN_FORMAT: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' \
     or '.', and must start and end with an alphanumeric character";
const DNS_1035_FORMAT: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const DNS_1035_RULE: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with \
     an alphabetic character, and end with an alphanumeric character";
const KEY_FORMAT: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const KEY_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
     alphanumeric character";
const VALUE_FORMAT: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
     '.', and must start and end with an alphanumeric character";

impl NameRule {
    /// The errors of a name, or with the beginning of one that will be completed.
    pub(crate) fn errors(self, name: &str, prefix: bool) -> Vec<String> {
        match self {
            Self::PathSegment => path_segment(name, prefix),
            Self::Subdomain => subdomain(&masked(name, prefix), "characters"),
            Self::Label => label(&masked(name, prefix)),
        }
    }
}

/// Masks a trailing dash of a prefix, because more characters follow it.
fn masked(name: &str, prefix: bool) -> String {
    match name.strip_suffix('-').and_then(|rest| rest.char_indices().next_back()) {
        Some((last, _)) if prefix => format!("{}a", &name[..last]),
        _ => name.to_owned(),
    }
}

/// The errors of a DNS label (RFC 1123).
pub(crate) fn label(name: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if name.len() > 63 {
        errors.push(too_long(63, "characters"));
    }
    if !is_label(name) {
        errors.push(if is_subdomain(name) {
            "must not contain dots".to_owned()
        } else {
            pattern(LABEL_RULE, LABEL_FORMAT, &["my-name", "123-abc"])
        });
    }
    errors
}

/// The errors of a DNS label that begins with a letter (RFC 1035).
pub(crate) fn dns_1035_label(name: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if name.len() > 63 {
        errors.push(too_long(63, "characters"));
    }
    if !is_label(name) || !name.starts_with(|first: char| first.is_ascii_lowercase()) {
        errors.push(pattern(DNS_1035_RULE, DNS_1035_FORMAT, &["my-name", "abc-123"]));
    }
    errors
}

/// The errors of a DNS subdomain (RFC 1123); `unit` is the unit of length in the message.
pub(crate) fn subdomain(name: &str, unit: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if name.len() > 253 {
        errors.push(too_long(253, unit));
    }
    if !is_subdomain(name) {
        errors.push(pattern(SUBDOMAIN_RULE, SUBDOMAIN_FORMAT, &["example.com"]));
    }
    errors
}

/// The errors of a name that stands in a path.
pub(crate) fn path_segment(name: &str, prefix: bool) -> Vec<String> {
    if !prefix && (name == "." || name == "..") {
        return vec![format!("may not be '{name}'")];
    }
    let found = ["/", "%"].into_iter().filter(|part| name.contains(part));
    found.map(|part| format!("may not contain '{part}'")).collect()
}

/// The errors of the key of a label, or with the name of a finalizer.
pub(crate) fn label_key(key: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let parts: Vec<_> = key.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                errors.extend(subdomain(prefix, "bytes").iter().map(|error| format!("prefix part {error}")));
            }
            *name
        }
        _ => {
            let rule = pattern(KEY_RULE, KEY_FORMAT, &["MyName", "my.name", "123-abc"]);
            return vec![format!(
                "a valid label key {rule} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        errors.push(format!("name part {}", too_long(63, "bytes")));
    }
    if !is_key(name) {
        errors
            .push(format!("name part {}", pattern(KEY_RULE, KEY_FORMAT, &["MyName", "my.name", "123-abc"])));
    }
    errors
}

/// The errors of the value of a label.
pub(crate) fn label_value(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > 63 {
        errors.push(too_long(63, "bytes"));
    }
    if !value.is_empty() && !is_key(value) {
        errors.push(pattern(VALUE_RULE, VALUE_FORMAT, &["MyValue", "my_value", "12345"]));
    }
    errors
}

fn is_label(name: &str) -> bool {
    let inner = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'-';
    !name.is_empty() && name.bytes().all(inner) && !name.starts_with('-') && !name.ends_with('-')
}

fn is_subdomain(name: &str) -> bool {
    name.split('.').all(is_label)
}

fn is_key(name: &str) -> bool {
    let (Some(first), Some(last)) = (name.bytes().next(), name.bytes().next_back()) else { return false };
    let inner = |letter: u8| letter.is_ascii_alphanumeric() || matches!(letter, b'-' | b'_' | b'.');
    first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() && name.bytes().all(inner)
}

fn too_long(length: usize, unit: &str) -> String {
    format!("must be no more than {length} {unit}")
}

/// The text of a rule, with examples and its pattern.
pub(crate) fn pattern(rule: &str, format: &str, examples: &[&str]) -> String {
    let examples: Vec<_> = examples.iter().map(|example| format!("'{example}', ")).collect();
    if examples.is_empty() {
        return format!("{rule} (regex used for validation is '{format}')");
    }
    format!("{rule} (e.g. {}regex used for validation is '{format}')", examples.join(" or "))
}
