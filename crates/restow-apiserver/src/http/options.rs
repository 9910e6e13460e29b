//! The options that a request has in its query.

/// How a resourceVersion is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Match {
    /// Just this one.
    Exact,
    /// This or a later one.
    NotOlderThan,
}

/// What becomes of fields that nobody knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    /// They are dropped.
    Ignore,
    /// They are dropped, and the answer warns.
    #[default]
    Warn,
    /// They are refused.
    Strict,
}

/// The options of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Whether a list goes on as a watch.
    pub watch: bool,
    /// At most so many; 0 for all.
    pub limit: usize,
    /// The token of the next page.
    pub next: String,
    /// The resourceVersion, as it was sent.
    pub resource_version: String,
    /// How it is meant.
    pub resource_version_match: Option<Match>,
    /// Whether a watch begins with what is there.
    pub send_initial_events: Option<bool>,
    /// Whether a watch may tell how far it is.
    pub bookmarks: bool,
    /// After how many seconds a watch ends.
    pub timeout_seconds: Option<u64>,
    /// Which labels.
    pub label_selector: String,
    /// Which fields.
    pub field_selector: String,
    /// Whether nothing is to be stored.
    pub dry_run: bool,
    /// Who writes.
    pub field_manager: String,
    /// What becomes of unknown fields.
    pub field_validation: FieldValidation,
    /// How many seconds a deleted object has left.
    pub grace_period_seconds: Option<i64>,
    /// What becomes of dependents.
    pub propagation_policy: Option<String>,
    /// The same, in an old way.
    pub orphan_dependents: Option<bool>,
    /// How much of objects goes along with the rows of a table.
    pub include_object: Include,
    /// Whether the answer is for a person.
    pub pretty: bool,
}

/// An option that cannot be what it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidOption {
    /// Not of its form.
    #[error("{name}: {value:?} is not what it can be")]
    Form {
        /// The option.
        name: &'static str,
        /// What was sent.
        value: String,
    },
    /// Of its form, and nothing that is known.
    #[error("{name}: {value:?} is not one of {known:?}")]
    Unsupported {
        /// The option.
        name: &'static str,
        /// What was sent.
        value: String,
        /// What can be sent.
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
        "fieldValidation" => options.field_validation = validation(value)?,
        "gracePeriodSeconds" => options.grace_period_seconds = number("gracePeriodSeconds", &value)?,
        "propagationPolicy" => options.propagation_policy = Some(value).filter(|policy| !policy.is_empty()),
        "orphanDependents" => options.orphan_dependents = Some(flag(&value)),
        "includeObject" => {
            let form = || InvalidOption::Form { name: "includeObject", value: value.clone() };
            options.include_object = Include::parse(&value).ok_or_else(form)?;
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

fn matched(value: String) -> Result<Option<Match>, InvalidOption> {
    match value.as_str() {
        "" => Ok(None),
        "Exact" => Ok(Some(Match::Exact)),
        "NotOlderThan" => Ok(Some(Match::NotOlderThan)),
        _ => Err(InvalidOption::Unsupported {
            name: "resourceVersionMatch",
            value,
            known: &["Exact", "NotOlderThan"],
        }),
    }
}

/// `All` is the only dry run there is.
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

/// How much of each object goes along with its row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Include {
    /// Nothing.
    None,
    /// Its metadata.
    #[default]
    Metadata,
    /// All of it.
    Object,
}

impl Include {
    /// Reads the query's value; empty is the default.
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
            resource_version_match: Some(Match::Exact),
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
