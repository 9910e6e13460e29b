//! Where a list starts, and at which revision.

use restow_core::rewrite::token::{NEWEST, Token};

use crate::http::options::{Options, ResourceVersionMatch};
use crate::http::status::golang::quote;
use crate::http::status::{Cause, GroupKind, StatusError};

/// Where a list starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListStart {
    /// The revision of the list; none for the newest.
    pub revision: Option<u64>,
    /// The first key, below the prefix.
    pub key: Option<String>,
    /// The oldest acceptable revision.
    pub at_least: u64,
    /// Whether it continues a previous page.
    pub continued: bool,
}

/// Takes the start of a list from its options.
pub(crate) fn start(options: &Options) -> Result<ListStart, StatusError> {
    valid(options)?;
    if !options.next.is_empty() {
        return continued(options);
    }
    let asked = revision(&options.resource_version)?;
    let exact = match options.resource_version_match {
        Some(ResourceVersionMatch::Exact) => true,
        Some(ResourceVersionMatch::NotOlderThan) => false,
        // A legacy rule: pages start at exactly the given resourceVersion.
        None => options.limit > 0 && asked > 0,
    };
    Ok(ListStart {
        revision: exact.then_some(asked),
        at_least: if exact { 0 } else { asked },
        ..ListStart::default()
    })
}

/// The revision of a resourceVersion; 0 for none.
pub(crate) fn revision(text: &str) -> Result<u64, StatusError> {
    if text.is_empty() {
        return Ok(0);
    }
    let invalid = |_| StatusError::bad_request(format!("invalid resource version {}", quote(text)));
    text.parse().map_err(invalid)
}

fn continued(options: &Options) -> Result<ListStart, StatusError> {
    if !matches!(options.resource_version.as_str(), "" | "0") {
        return Err(StatusError::bad_request(
            "specifying resource version is not allowed when using continue",
        ));
    }
    let token = Token::decode(&options.next).filter(|token| token.resource_version != 0);
    let token = token.ok_or_else(|| StatusError::bad_request("continue key is not valid"))?;
    let revision = match token.resource_version {
        NEWEST => None,
        revision => {
            Some(u64::try_from(revision).map_err(|_| StatusError::bad_request("continue key is not valid"))?)
        }
    };
    Ok(ListStart { revision, key: Some(token.start), at_least: 0, continued: true })
}

fn valid(options: &Options) -> Result<(), StatusError> {
    let mut causes = Vec::new();
    let mut forbid = |field: &str, why: &str| causes.push(Cause::forbidden(field, why));
    if let Some(matched) = options.resource_version_match {
        if options.resource_version.is_empty() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            forbid("resourceVersionMatch", why);
        }
        if !options.next.is_empty() {
            let why = "resourceVersionMatch is forbidden when continue is provided";
            forbid("resourceVersionMatch", why);
        }
        if matched == ResourceVersionMatch::Exact && options.resource_version == "0" {
            let why = r#"resourceVersionMatch "exact" is forbidden for resourceVersion "0""#;
            forbid("resourceVersionMatch", why);
        }
    }
    if options.send_initial_events.is_some() {
        forbid("sendInitialEvents", "sendInitialEvents is forbidden for list");
    }
    refuse(causes)
}

/// Refuses options if there are causes.
pub(crate) fn refuse(causes: Vec<Cause>) -> Result<(), StatusError> {
    if causes.is_empty() {
        return Ok(());
    }
    Err(StatusError::invalid(&GroupKind::new("meta.k8s.io", "ListOptions"), "", causes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::options::options;
    use crate::http::query::pairs;

    fn begins(query: &str) -> Result<ListStart, u16> {
        let options = options(&pairs(query)).map_err(|_| 0_u16)?;
        start(&options).map_err(|failure| failure.code())
    }

    #[test]
    fn a_list_starts_at_the_requested_revision() {
        let at = |revision, at_least| Ok(ListStart { revision, at_least, ..ListStart::default() });
        for (query, expected) in [
            ("", at(None, 0)),
            ("limit=5", at(None, 0)),
            ("resourceVersion=0", at(None, 0)),
            ("resourceVersion=0&limit=5", at(None, 0)),
            ("resourceVersion=9", at(None, 9)),
            ("resourceVersion=9&limit=5", at(Some(9), 0)),
            ("resourceVersion=9&limit=5&resourceVersionMatch=NotOlderThan", at(None, 9)),
            ("resourceVersion=9&resourceVersionMatch=Exact", at(Some(9), 0)),
            ("resourceVersion=0&resourceVersionMatch=Exact", Err(422)),
            ("resourceVersionMatch=Exact", Err(422)),
            ("sendInitialEvents=true", Err(422)),
            ("resourceVersion=x", Err(400)),
            ("continue=x", Err(400)),
        ] {
            assert_eq!(begins(query), expected, "{query}");
        }
    }

    #[test]
    fn continue_tokens_continue_a_list() {
        let token = |revision| Token { resource_version: revision, start: "a/b\0".to_owned() }.encode();
        let on = |revision| {
            Ok(ListStart { revision, key: Some("a/b\0".to_owned()), at_least: 0, continued: true })
        };
        for (query, expected) in [
            (format!("continue={}", token(7)), on(Some(7))),
            (format!("continue={}", token(NEWEST)), on(None)),
            (format!("continue={}", token(0)), Err(400)),
            (format!("continue={}", token(-7)), Err(400)),
            (format!("continue={}&resourceVersion=7", token(7)), Err(400)),
            (format!("continue={}&resourceVersion=0", token(7)), on(Some(7))),
        ] {
            assert_eq!(begins(&query), expected, "{query}");
        }
    }
}
