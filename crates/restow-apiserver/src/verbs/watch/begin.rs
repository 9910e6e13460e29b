//! Where a watch starts.

use crate::http::options::{Options, ResourceVersionMatch};
use crate::http::status::{Cause, StatusError};
use crate::verbs::list::{refuse, revision};

/// Where a watch starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchStart {
    /// After a revision.
    After(u64),
    Now,
    /// With all existing objects.
    WithAll {
        /// The oldest acceptable revision.
        at_least: u64,
        /// Whether a bookmark marks their end.
        marked: bool,
    },
}

/// Takes the start of a watch from its options.
pub(super) fn begin(options: &Options) -> Result<WatchStart, StatusError> {
    valid(options)?;
    let asked = revision(&options.resource_version)?;
    Ok(match options.send_initial_events {
        Some(true) => WatchStart::WithAll { at_least: asked, marked: true },
        Some(false) if asked == 0 => WatchStart::Now,
        None if asked == 0 => WatchStart::WithAll { at_least: 0, marked: false },
        Some(false) | None => WatchStart::After(asked),
    })
}

fn valid(options: &Options) -> Result<(), StatusError> {
    let mut causes = Vec::new();
    let mut forbid = |field: &str, why: &str| causes.push(Cause::forbidden(field, why));
    let matched = options.resource_version_match;
    if options.send_initial_events.is_some() && matched != Some(ResourceVersionMatch::NotOlderThan) {
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
    use crate::http::query::pairs;

    #[test]
    fn a_watch_starts_where_its_options_say() {
        let all = |at_least, marked| Ok(WatchStart::WithAll { at_least, marked });
        for (query, expected) in [
            ("", all(0, false)),
            ("resourceVersion=0", all(0, false)),
            ("resourceVersion=7", Ok(WatchStart::After(7))),
            ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", all(0, true)),
            ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=7", all(7, true)),
            ("sendInitialEvents=false&resourceVersionMatch=NotOlderThan", Ok(WatchStart::Now)),
            (
                "sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=7",
                Ok(WatchStart::After(7)),
            ),
            ("sendInitialEvents=true", Err(422)),
            ("resourceVersionMatch=NotOlderThan&resourceVersion=7", Err(422)),
            ("resourceVersion=x", Err(400)),
        ] {
            let found = begin(&options(&pairs(query)).unwrap_or_default()).map_err(|failure| failure.code());
            assert_eq!(found, expected, "{query}");
        }
    }
}
