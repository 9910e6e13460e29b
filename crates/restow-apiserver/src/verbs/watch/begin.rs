//! What a watch begins with.

use crate::http::options::{Match, Options};
use crate::http::status::{Cause, Failure};
use crate::verbs::list::{refuse, revision};

/// What a watch begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// The changes after a revision.
    After(u64),
    /// Whatever changes from now on.
    Now,
    /// All that is there.
    WithAll {
        /// What is shown must not be older than this.
        at_least: u64,
        /// Whether a bookmark says where that ends.
        marked: bool,
    },
}

/// Reads it from the options.
pub(super) fn begin(options: &Options) -> Result<Begin, Failure> {
    valid(options)?;
    let asked = revision(&options.resource_version)?;
    Ok(match options.send_initial_events {
        Some(true) => Begin::WithAll { at_least: asked, marked: true },
        Some(false) if asked == 0 => Begin::Now,
        None if asked == 0 => Begin::WithAll { at_least: 0, marked: false },
        Some(false) | None => Begin::After(asked),
    })
}

fn valid(options: &Options) -> Result<(), Failure> {
    let mut causes = Vec::new();
    let mut forbid = |field: &str, why: &str| causes.push(Cause::forbidden(field, why));
    let matched = options.resource_version_match;
    if options.send_initial_events.is_some() && matched != Some(Match::NotOlderThan) {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        forbid("resourceVersionMatch", why);
    }
    if matched.is_some() {
        if options.send_initial_events.is_none() {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            forbid("resourceVersionMatch", why);
        }
        if !options.next.is_empty() {
            let why = "resourceVersionMatch is forbidden when continue is provided";
            forbid("resourceVersionMatch", why);
        }
    }
    refuse(causes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::options::options;

    #[test]
    fn begins() {
        let all = |at_least, marked| Ok(Begin::WithAll { at_least, marked });
        for (query, expected) in [
            ("", all(0, false)),
            ("resourceVersion=0", all(0, false)),
            ("resourceVersion=7", Ok(Begin::After(7))),
            ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", all(0, true)),
            ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=7", all(7, true)),
            ("sendInitialEvents=false&resourceVersionMatch=NotOlderThan", Ok(Begin::Now)),
            (
                "sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=7",
                Ok(Begin::After(7)),
            ),
            ("sendInitialEvents=true", Err(422)),
            ("resourceVersionMatch=NotOlderThan&resourceVersion=7", Err(422)),
            ("resourceVersion=x", Err(400)),
        ] {
            let found = begin(&options(query).unwrap_or_default()).map_err(|failure| failure.code());
            assert_eq!(found, expected, "{query}");
        }
    }
}
