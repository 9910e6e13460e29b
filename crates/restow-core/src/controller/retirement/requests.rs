//! Whether clients request a version, by the metrics of the API servers.

use std::collections::BTreeMap;
use std::fmt;

use crate::agreement::metric::label;

/// Requests that have ended, as counters since the server started.
const ENDED: &str = "apiserver_request_total";
/// Watches that are open now.
const OPEN: &str = "apiserver_longrunning_requests";

/// What is known about requests for a version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Requests {
    /// They were not counted yet.
    #[default]
    Unobserved,
    /// They could not be counted, for this reason.
    Unknown(String),
    /// There were none.
    None,
    /// There were some: how many by verb.
    Some(BTreeMap<String, u64>),
}

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unobserved => f.write_str("requests were not counted yet"),
            Self::Unknown(why) => write!(f, "it is not known whether clients request it: {why}"),
            Self::None => f.write_str("no client requested it"),
            Self::Some(verbs) => {
                let each = verbs.iter().map(|(verb, count)| format!("{count} {verb}"));
                write!(f, "clients request it: {}", each.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// The counters of one API server for one version of a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Ended requests by verb, since the server started.
    pub ended: BTreeMap<String, u64>,
    /// Open watches and other long requests by verb.
    pub open: BTreeMap<String, u64>,
    /// Whether these are the metrics of an API server that counts requests.
    pub complete: bool,
}

impl RequestCounts {
    /// Reads one line of metrics.
    pub fn read(&mut self, line: &str, group: &str, version: &str, resource: &str) {
        let (name, rest) = line.split_at(line.find('{').unwrap_or(line.len()));
        let counts = match name {
            ENDED => &mut self.ended,
            OPEN => &mut self.open,
            _ => return,
        };
        self.complete |= name == ENDED;
        let wanted = [("group", group), ("version", version), ("resource", resource)];
        if wanted.iter().any(|(name, value)| label(rest, name) != Some(value)) {
            return;
        }
        let value = rest.rsplit_once(' ').and_then(|(_, value)| value.trim().parse::<f64>().ok());
        // A counter that cannot be read counts as one request, never as none.
        let count = value.map_or(1, |value| value as u64);
        *counts.entry(label(rest, "verb").unwrap_or("unknown").to_owned()).or_default() += count;
    }
}

/// Compares the counters of all API servers before and after a while.
pub fn requests_between(
    before: &BTreeMap<String, RequestCounts>,
    after: &BTreeMap<String, RequestCounts>,
) -> Requests {
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    if before.is_empty() || before.keys().ne(after.keys()) {
        return Requests::Unknown("API servers came or went in the meantime".to_owned());
    }
    for (server, after) in after {
        let Some(before) = before.get(server).filter(|before| before.complete && after.complete) else {
            return Requests::Unknown(format!("{server} does not count requests in its metrics"));
        };
        for (verb, count) in &after.ended {
            let earlier = before.ended.get(verb).copied().unwrap_or_default();
            match count.checked_sub(earlier) {
                Some(0) => {}
                Some(more) => *found.entry(verb.clone()).or_default() += more,
                None => return Requests::Unknown(format!("{server} has restarted in the meantime")),
            }
        }
        if before.ended.keys().any(|verb| !after.ended.contains_key(verb)) {
            return Requests::Unknown(format!("{server} has restarted in the meantime"));
        }
        for (verb, count) in after.open.iter().filter(|(_, count)| **count > 0) {
            *found.entry(format!("open {verb}")).or_default() += count;
        }
    }
    if found.is_empty() { Requests::None } else { Requests::Some(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: &str =
        r#"apiserver_request_total{code="200",group="",resource="pods",verb="LIST",version="v1"} 3"#;

    fn line(name: &str, version: &str, verb: &str, count: u64) -> String {
        format!(
            r#"{name}{{code="200",group="example.com",resource="widgets",verb="{verb}",version="{version}"}} {count}"#
        )
    }

    fn counts(lines: &[String]) -> RequestCounts {
        let mut counts = RequestCounts::default();
        lines.iter().for_each(|line| counts.read(line, "example.com", "v1beta1", "widgets"));
        counts
    }

    fn of(servers: &[(&str, &[String])]) -> BTreeMap<String, RequestCounts> {
        servers.iter().map(|(name, lines)| ((*name).to_owned(), counts(lines))).collect()
    }

    #[test]
    fn only_requests_for_this_version_of_this_resource_are_counted() {
        let counts = counts(&[
            OTHER.to_owned(),
            line(ENDED, "v1", "GET", 9),
            line(ENDED, "v1beta1", "GET", 2),
            line(ENDED, "v1beta1", "GET", 1),
            line(OPEN, "v1beta1", "WATCH", 4),
        ]);
        assert_eq!(counts.ended, BTreeMap::from([("GET".to_owned(), 3)]));
        assert_eq!(counts.open, BTreeMap::from([("WATCH".to_owned(), 4)]));
        assert!(counts.complete);
    }

    #[test]
    fn nobody_is_said_only_if_every_server_has_counted() {
        let none = [OTHER.to_owned()];
        let two = [OTHER.to_owned(), line(ENDED, "v1beta1", "GET", 2)];
        let five = [OTHER.to_owned(), line(ENDED, "v1beta1", "GET", 5)];
        let watch = [OTHER.to_owned(), line(OPEN, "v1beta1", "WATCH", 1)];
        let ended = [OTHER.to_owned(), line(OPEN, "v1beta1", "WATCH", 0)];
        let some = |verb: &str, count| Requests::Some(BTreeMap::from([(verb.to_owned(), count)]));
        for (before, after, expected) in [
            (of(&[("a", &none)]), of(&[("a", &none)]), Requests::None),
            (of(&[("a", &two)]), of(&[("a", &two)]), Requests::None),
            (of(&[("a", &two)]), of(&[("a", &five)]), some("GET", 3)),
            (of(&[("a", &none)]), of(&[("a", &two)]), some("GET", 2)),
            (of(&[("a", &none), ("b", &two)]), of(&[("a", &none), ("b", &five)]), some("GET", 3)),
            (of(&[("a", &none)]), of(&[("a", &watch)]), some("open WATCH", 1)),
            (of(&[("a", &watch)]), of(&[("a", &ended)]), Requests::None),
        ] {
            assert_eq!(requests_between(&before, &after), expected, "{before:?} {after:?}");
        }
        for (before, after) in [
            (of(&[]), of(&[])),
            (of(&[("a", &five)]), of(&[("a", &two)])),
            (of(&[("a", &five)]), of(&[("a", &none)])),
            (of(&[("a", &none)]), of(&[("b", &none)])),
            (of(&[("a", &[])]), of(&[("a", &none)])),
            (of(&[("a", &none)]), of(&[("a", &[])])),
        ] {
            let between = requests_between(&before, &after);
            assert!(matches!(between, Requests::Unknown(_)), "{before:?} {after:?}: {between:?}");
        }
    }
}
