//! The options that a request has in its query.

/// The parameter `resourceVersionMatch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResourceVersionMatch {
    /// Exactly this version.
    Exact,
    /// This version or a later one.
    NotOlderThan,
}

/// The parameter `fieldValidation`: what happens to unknown fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    /// They are dropped.
    Ignore,
    /// They are dropped with a warning.
    #[default]
    Warn,
    /// They are refused.
    Strict,
}

/// The options of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Whether a list is a watch.
    pub watch: bool,
    /// The size of a page; 0 for all objects.
    pub limit: usize,
    /// The continue token.
    pub next: String,
    /// The resourceVersion, as it was sent.
    pub resource_version: String,
    /// How the resourceVersion is matched.
    pub resource_version_match: Option<ResourceVersionMatch>,
    /// Whether a watch starts with the existing objects.
    pub send_initial_events: Option<bool>,
    /// Whether a watch may send bookmarks.
    pub bookmarks: bool,
    /// The timeout of a watch.
    pub timeout_seconds: Option<u64>,
    /// The label selector, as it was sent.
    pub label_selector: String,
    /// The field selector, as it was sent.
    pub field_selector: String,
    /// Whether nothing is stored.
    pub dry_run: bool,
    pub field_manager: String,
    /// Whether an apply takes over fields of other managers.
    pub force: Option<bool>,
    /// What happens to unknown fields.
    pub field_validation: FieldValidation,
    /// The grace period of a delete.
    pub grace_period_seconds: Option<i64>,
    /// What happens to dependents of a deleted object.
    pub propagation_policy: Option<String>,
    /// The deprecated form of the propagation policy.
    pub orphan_dependents: Option<bool>,
    /// How much of its object each row of a Table includes.
    pub include_object: IncludeObject,
    /// Whether the response is indented.
    pub pretty: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidOption {
    /// A malformed value.
    #[error("invalid value for {name}: {value:?}")]
    Form {
        /// The option.
        name: &'static str,
        /// What was sent.
        value: String,
    },
    /// An unsupported value.
    #[error("unsupported value for {name}: {value:?}, must be one of {known:?}")]
    Unsupported {
        /// The option.
        name: &'static str,
        /// What was sent.
        value: String,
        /// The supported values.
        known: &'static [&'static str],
    },
}

/// Parses the options among the pairs of a query.
pub(crate) fn options(query: &[(String, String)]) -> Result<Options, InvalidOption> {
    let mut options = Options::default();
    for (key, value) in query {
        set(&mut options, key, value.clone())?;
    }
    Ok(options)
}

fn set(options: &mut Options, key: &str, value: String) -> Result<(), InvalidOption> {
    match key {
        "watch" => options.watch = flag(&value),
        "limit" => {
            options.limit =
                number("limit", &value)?.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(0)
        }
        "continue" => options.next = value,
        "resourceVersion" => options.resource_version = value,
        "resourceVersionMatch" => options.resource_version_match = matched(value)?,
        "sendInitialEvents" => options.send_initial_events = Some(flag(&value)),
        "allowWatchBookmarks" => options.bookmarks = flag(&value),
        "timeoutSeconds" => {
            options.timeout_seconds =
                number("timeoutSeconds", &value)?.and_then(|seconds| u64::try_from(seconds).ok());
        }
        "labelSelector" => options.label_selector = value,
        "fieldSelector" => options.field_selector = value,
        "dryRun" => options.dry_run = dry_run(value)?,
        "fieldManager" => options.field_manager = value,
        "force" => options.force = Some(flag(&value)),
        "fieldValidation" => options.field_validation = validation(value)?,
        "gracePeriodSeconds" => options.grace_period_seconds = number("gracePeriodSeconds", &value)?,
        "propagationPolicy" => options.propagation_policy = Some(value).filter(|policy| !policy.is_empty()),
        "orphanDependents" => options.orphan_dependents = Some(flag(&value)),
        "includeObject" => {
            let form = || InvalidOption::Form { name: "includeObject", value: value.clone() };
            options.include_object = IncludeObject::parse(&value).ok_or_else(form)?;
        }
        "pretty" => options.pretty = flag(&value),
        _ => {}
    }
    Ok(())
}

fn flag(value: &str) -> bool {
    !matches!(value, "0" | "f" | "F" | "false" | "FALSE" | "False")
}

fn number(name: &'static str, value: &str) -> Result<Option<i64>, InvalidOption> {
    match value {
        "" => Ok(None),
        digits => digits.parse().map(Some).map_err(|_| InvalidOption::Form { name, value: value.to_owned() }),
    }
}

fn matched(value: String) -> Result<Option<ResourceVersionMatch>, InvalidOption> {
    match value.as_str() {
        "" => Ok(None),
        "Exact" => Ok(Some(ResourceVersionMatch::Exact)),
        "NotOlderThan" => Ok(Some(ResourceVersionMatch::NotOlderThan)),
        _ => Err(InvalidOption::Unsupported {
            name: "resourceVersionMatch",
            value,
            known: &["Exact", "NotOlderThan"],
        }),
    }
}

/// Parses `dryRun`: `All` is the only supported value.
pub(crate) fn dry_run(value: String) -> Result<bool, InvalidOption> {
    match value.as_str() {
        "All" => Ok(true),
        _ => Err(InvalidOption::Unsupported { name: "dryRun", value, known: &["All"] }),
    }
}

fn validation(value: String) -> Result<FieldValidation, InvalidOption> {
    match value.as_str() {
        "" | "Warn" => Ok(FieldValidation::Warn),
        "Ignore" => Ok(FieldValidation::Ignore),
        "Strict" => Ok(FieldValidation::Strict),
        _ => {
            let known = &["Ignore", "Strict", "Warn"];
            Err(InvalidOption::Unsupported { name: "fieldValidation", value, known })
        }
    }
}

/// The parameter `includeObject`: how much of its object each row of a Table includes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum IncludeObject {
    /// Nothing.
    None,
    #[default]
    Metadata,
    /// All of it.
    Object,
}

impl IncludeObject {
    /// Parses the parameter; empty means the default.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "None" => Some(Self::None),
            "" | "Metadata" => Some(Self::Metadata),
            "Object" => Some(Self::Object),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::query::pairs;

    fn parse(query: &str) -> Result<Options, InvalidOption> {
        options(&pairs(query))
    }

    #[test]
    fn options_are_parsed_from_the_query() {
        let read = parse("limit=5&continue=abc&resourceVersionMatch=Exact&watch=1&dryRun=All&pretty=false");
        let expected = Options {
            limit: 5,
            next: "abc".to_owned(),
            resource_version_match: Some(ResourceVersionMatch::Exact),
            watch: true,
            dry_run: true,
            ..Options::default()
        };
        assert_eq!(read, Ok(expected));
    }

    #[test]
    fn invalid_options_are_refused() {
        for text in ["limit=x", "dryRun=Some", "resourceVersionMatch=exact", "fieldValidation=Loud"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse("limit=&unknown=1&limit=-1").is_ok());
    }
}
