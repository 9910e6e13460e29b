//! Patterns in the syntax of Go, matched by the regex crate.

use regex::Regex;

/// A pattern and its compiled form.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    /// The pattern as it was written.
    pub text: String,
    matcher: Result<Regex, String>,
}

impl Pattern {
    /// Compiles a pattern.
    pub(crate) fn new(text: &str) -> Self {
        let matcher = Regex::new(&translated(text)).map_err(|error| error.to_string());
        Self { text: text.to_owned(), matcher }
    }

    /// Whether the pattern matches a string, or why it cannot be compiled.
    pub(crate) fn is_in(&self, text: &str) -> Result<bool, &str> {
        self.matcher.as_ref().map(|matcher| matcher.is_match(text)).map_err(String::as_str)
    }
}

/// Translates a pattern for the regex crate: classes such as `\d` are ASCII in Go, and brackets do not nest.
fn translated(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    let mut in_class = false;
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some(escaped) => result.push_str(&escape(escaped, in_class)),
                None => result.push('\\'),
            },
            '[' if in_class && letters.peek() != Some(&':') => result.push_str("\\["),
            '[' => {
                result.push('[');
                if in_class {
                    continue;
                }
                in_class = true;
                // A bracket at the start of a class is a literal.
                if letters.next_if_eq(&'^').is_some() {
                    result.push('^');
                }
                if letters.next_if_eq(&']').is_some() {
                    result.push_str("\\]");
                }
            }
            ']' if in_class && result.ends_with(':') => result.push(']'),
            ']' => {
                in_class = false;
                result.push(']');
            }
            '&' | '~' if in_class => {
                result.push('\\');
                result.push(letter);
            }
            _ => result.push(letter),
        }
    }
    result
}

fn escape(letter: char, in_class: bool) -> String {
    match (letter, in_class) {
        ('d', false) => "[0-9]".to_owned(),
        ('d', true) => "0-9".to_owned(),
        ('w', false) => "[0-9A-Za-z_]".to_owned(),
        ('w', true) => "0-9A-Za-z_".to_owned(),
        ('s', false) => r"[\t\n\f\r ]".to_owned(),
        ('s', true) => r"\t\n\f\r ".to_owned(),
        ('D', _) => "[^0-9]".to_owned(),
        ('W', _) => "[^0-9A-Za-z_]".to_owned(),
        ('S', _) => r"[^\t\n\f\r ]".to_owned(),
        ('b', false) => r"(?-u:\b)".to_owned(),
        ('B', false) => r"(?-u:\B)".to_owned(),
        _ => format!("\\{letter}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_match_as_in_go() {
        let cases = [
            ("^a.c$", "abc", true),
            ("b", "abc", true),
            (r"^\d+$", "12", true),
            (r"^\d+$", "١", false),
            (r"^[\w-]+$", "a_b-c", true),
            (r"^[^\s]+$", "a b", false),
            (r"^[[a]+$", "[a", true),
            (r"^[]a]+$", "]a", true),
            (r"^[[:alpha:]]+$", "ab", true),
            (r"^[a&&b]+$", "a&b", true),
            (r"^\bé", "é", false),
            ("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "a-b", true),
        ];
        for (pattern, text, found) in cases {
            assert_eq!(Pattern::new(pattern).is_in(text), Ok(found), "{pattern}");
        }
        assert!(Pattern::new("(").is_in("a").is_err());
    }

    proptest! {
        #[test]
        fn no_pattern_panics(pattern in any::<String>(), text in any::<String>()) {
            let _ = Pattern::new(&pattern).is_in(&text);
        }

        #[test]
        fn no_bracket_panics(pattern in r"[\[\]^:\\dwsDa&~-]{0,12}") {
            let _ = Pattern::new(&pattern).is_in("a");
        }
    }
}
