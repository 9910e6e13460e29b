//! What new connections to the address of a load balancer have shown.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use restow_clock::Instant;
use restow_core::agreement::version::{DiscoveryAnswers, ServerAnswer};
use restow_core::resource::inventory::{Resource, Served};
use restow_core::resource::name::GroupVersion;

/// The discovery documents of one server, each with the reason if it could not be read.
pub(crate) type Documents = HashMap<GroupVersion, Result<Vec<Served>, String>>;

/// How long a period of sampling is valid, as a multiple of its length.
const VALID_PERIODS: u32 = 10;

/// What a server answered for one version of a group: the hash of each resource, or an error.
type Answer = Result<BTreeMap<String, Option<String>>, String>;

/// What a whole period has shown.
#[derive(Clone, Debug)]
pub(crate) struct Samples {
    /// The holders of live Leases, both at the start and at the end.
    holders: Vec<String>,
    ended: Instant,
    shown: BTreeMap<GroupVersion, BTreeSet<Answer>>,
}

/// What is known about every resource after one period.
#[derive(Clone, Debug, Default)]
pub(crate) struct Round {
    shown: BTreeMap<GroupVersion, BTreeSet<Answer>>,
    steady: bool,
}

fn answers(documents: Documents) -> impl Iterator<Item = (GroupVersion, Answer)> {
    documents.into_iter().map(|(version, document)| {
        let hash = |served: Served| (served.name, served.hash);
        (version, document.map(|served| served.into_iter().map(hash).collect()))
    })
}

impl Samples {
    pub(crate) fn new(holders: Vec<String>) -> Self {
        Self { holders, ended: Instant::now(), shown: BTreeMap::new() }
    }

    /// Adds what one connection shows.
    pub(crate) fn add(&mut self, documents: Documents) {
        self.ended = Instant::now();
        for (version, answer) in answers(documents) {
            self.shown.entry(version).or_default().insert(answer);
        }
    }

    /// Whether the period is still valid: the servers are the same, and the new connection shows exactly what all
    /// connections of the period did.
    pub(crate) fn still_hold(&self, holders: &[String], now: &Documents, period: Duration) -> bool {
        let same = |(version, answer): (GroupVersion, Answer)| {
            answer.is_ok() && self.shown.get(&version).is_some_and(|shown| *shown == BTreeSet::from([answer]))
        };
        self.holders == holders
            && self.ended.elapsed() < period * VALID_PERIODS
            && answers(now.clone()).all(same)
    }

    /// Combines the period with the newest connection.
    pub(crate) fn round(&self, now: Documents, steady: bool) -> Round {
        let mut shown = self.shown.clone();
        for (version, answer) in answers(now) {
            shown.entry(version).or_default().insert(answer);
        }
        Round { shown, steady }
    }
}

impl Round {
    /// What was shown for one resource.
    pub(crate) fn of(&self, resource: &Resource) -> DiscoveryAnswers {
        let Some(version) = resource.endpoint() else {
            return DiscoveryAnswers::Samples { answers: Vec::new(), steady: self.steady };
        };
        let each = |(number, answer): (usize, &Answer)| {
            let hash = match answer {
                Ok(hashes) => match hashes.get(&resource.name.resource) {
                    Some(Some(hash)) if !hash.is_empty() => Ok(hash.clone()),
                    Some(_) => Err("it publishes no storage version".to_owned()),
                    None => Ok(format!("not served in {version}")),
                },
                Err(why) => Err(why.clone()),
            };
            ServerAnswer { server: format!("sample {}", number + 1), hash }
        };
        let answers = self.shown.get(version).into_iter().flatten().enumerate().map(each).collect();
        DiscoveryAnswers::Samples { answers, steady: self.steady }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(60);

    fn documents(hash: &str) -> Documents {
        let served = Served { name: "widgets".to_owned(), hash: Some(hash.to_owned()), ..Served::default() };
        Documents::from([(GroupVersion::parse("example.com/v1"), Ok(vec![served]))])
    }

    fn holders(names: &str) -> Vec<String> {
        names.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_period_is_valid_until_a_server_restarts_or_shows_something_else() {
        let other = Documents::from([(GroupVersion::parse("other.com/v1"), Ok(Vec::new()))]);
        let failed = Documents::from([(GroupVersion::parse("example.com/v1"), Err("down".to_owned()))]);
        for (sampled, alive, now, expected) in [
            (vec!["x", "x"], "a_1 b_1", documents("x"), true),
            (vec!["x", "x"], "a_1 b_2", documents("x"), false),
            (vec!["x", "x"], "a_1", documents("x"), false),
            (vec!["x", "x"], "a_1 b_1", documents("y"), false),
            (vec!["x", "y"], "a_1 b_1", documents("x"), false),
            // A resource that the period was not for.
            (vec!["x", "x"], "a_1 b_1", other, false),
            (vec!["x", "x"], "a_1 b_1", failed, false),
        ] {
            let mut samples = Samples::new(holders("a_1 b_1"));
            sampled.iter().for_each(|hash| samples.add(documents(hash)));
            assert_eq!(samples.still_hold(&holders(alive), &now, PERIOD), expected, "{sampled:?} {alive}");
        }
        let samples = Samples::new(holders("a_1 b_1"));
        assert!(!samples.still_hold(&holders("a_1 b_1"), &Documents::new(), Duration::ZERO), "long ago");
    }
}
