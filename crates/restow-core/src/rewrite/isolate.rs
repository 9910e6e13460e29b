//! Finds the key of a stored object that makes a list fail.
//!
//! A page that starts at key `x` fails if the next stored key is the bad one. So after the last readable key, a page of one
//! object fails for every `x` up to the bad key and succeeds beyond it. The bad key is the greatest `x` that fails, and a
//! binary search finds it character by character.
//!
//! This holds if no other bad key follows. If one does, the search may find a later one and skip good objects in between.
//! The server's count of remaining objects shows that, and pages that start to the left of the found key show such an
//! object; the search then starts again below it.

use std::time::Duration;

use crate::rewrite::outcome::{OUTAGE_TIMEOUT, REFUSAL_TIMEOUT};

/// How long a list must have failed at a key before the object is quarantined.
///
/// A KMS plugin or conversion webhook may be unavailable for a moment, for all objects or for some. If no object can be
/// read, that is far more likely than that all objects are corrupt.
pub fn blame_after(others_readable: bool) -> Duration {
    if others_readable { REFUSAL_TIMEOUT } else { OUTAGE_TIMEOUT }
}

/// What a page of one object that starts at a probe shows.
#[derive(Clone, Copy, Debug)]
pub enum ProbeResult<'a> {
    /// The page failed.
    Nothing,
    /// This object.
    Object {
        /// The key of the object.
        key: &'a str,
        /// How many objects are stored from it on, if the server reports that.
        from: Option<u64>,
    },
    /// There is no further object.
    End,
}

/// The bad key that a search found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadKey {
    /// The key of the object that cannot be read.
    pub key: String,
    /// How many more objects are stored between the last readable one and it, if that is known.
    pub others: Option<u64>,
}

impl BadKey {
    /// Whether it is certainly the only bad key before the next readable object or the end.
    pub fn is_alone(&self) -> bool {
        self.others == Some(0)
    }
}

/// The search for the first bad key after a readable one. Request pages of one object until [`end`](Self::end).
#[derive(Clone, Debug)]
pub struct BadKeySearch {
    floor: String,
    behind: Option<u64>,
    lowest_good: Option<String>,
    stage: Stage,
}

#[derive(Clone, Debug)]
enum Stage {
    Searching(KeySearch),
    /// Which object follows the bad key?
    Counting(String),
    /// Is there a readable object before it?
    Looking {
        bad: BadKey,
        left: std::vec::IntoIter<String>,
        probe: String,
    },
    Ended(Option<BadKey>),
}

impl BadKeySearch {
    /// Searches from the key `floor` on, where a page has failed; `behind` objects are stored from there, if that is known.
    pub fn from(floor: &str, behind: Option<u64>) -> Self {
        let stage = Stage::Searching(KeySearch::between(floor, None));
        Self { floor: floor.to_owned(), behind, lowest_good: None, stage }
    }

    /// The key to start the next page of one object at; `None` when the search has ended.
    pub fn probe(&self) -> Option<String> {
        match &self.stage {
            Stage::Searching(search) => search.probe(),
            Stage::Counting(key) => Some(format!("{key}\0")),
            Stage::Looking { probe, .. } => Some(probe.clone()),
            Stage::Ended(_) => None,
        }
    }

    /// Whether there may be more than one bad key.
    pub fn sees_several(&self) -> bool {
        matches!(self.stage, Stage::Looking { .. })
    }

    /// The bad key; `None` while the search continues, or if it found nothing.
    pub fn end(&self) -> Option<&BadKey> {
        match &self.stage {
            Stage::Ended(bad) => bad.as_ref(),
            _ => None,
        }
    }

    /// Adds what the page at the probe showed.
    pub fn learn(&mut self, shown: ProbeResult<'_>) {
        let stage = std::mem::replace(&mut self.stage, Stage::Ended(None));
        self.stage = match stage {
            Stage::Searching(mut search) => {
                if let ProbeResult::Object { key, .. } = shown
                    && self.lowest_good.as_deref().is_none_or(|lowest| key < lowest)
                {
                    self.lowest_good = Some(key.to_owned());
                }
                search.learn(matches!(shown, ProbeResult::Nothing));
                self.searched(search)
            }
            Stage::Counting(key) => match shown {
                ProbeResult::Nothing => Stage::Ended(None),
                ProbeResult::Object { from, .. } => self.counted(key, self.behind.zip(from)),
                ProbeResult::End => self.counted(key, self.behind.map(|behind| (behind, 0))),
            },
            Stage::Looking { bad, left, .. } => match shown {
                ProbeResult::Object { key, .. } if key < bad.key.as_str() && key >= self.floor.as_str() => {
                    self.search_below(key.to_owned())
                }
                _ => Self::look(bad, left),
            },
            ended @ Stage::Ended(_) => ended,
        };
    }

    fn searched(&self, search: KeySearch) -> Stage {
        match (search.probe(), search.found()) {
            (Some(_), _) => Stage::Searching(search),
            (None, Some(found)) => match &self.lowest_good {
                Some(good) if good.as_str() < found => {
                    Stage::Searching(KeySearch::between(&self.floor, Some(good)))
                }
                _ => Stage::Counting(found.to_owned()),
            },
            (None, None) => Stage::Ended(None),
        }
    }

    fn search_below(&mut self, good: String) -> Stage {
        let search = KeySearch::between(&self.floor, Some(&good));
        self.lowest_good = Some(good);
        self.searched(search)
    }

    fn counted(&self, key: String, counts: Option<(u64, u64)>) -> Stage {
        // Counts that are inconsistent were taken at different times.
        let others = counts.and_then(|(behind, from)| behind.checked_sub(from)?.checked_sub(1));
        let left = between(&self.floor, &key);
        let bad = BadKey { key, others };
        if bad.is_alone() { Stage::Ended(Some(bad)) } else { Self::look(bad, left.into_iter()) }
    }

    fn look(bad: BadKey, mut left: std::vec::IntoIter<String>) -> Stage {
        match left.next() {
            Some(probe) => Stage::Looking { bad, left, probe },
            None => Stage::Ended(Some(bad)),
        }
    }
}

/// The characters of names.
const NAME: &[u8] = b"-.0123456789:abcdefghijklmnopqrstuvwxyz";

/// Keys at which other objects between `floor` and `key` may start, in ascending order: the branches to the right of
/// `floor` and to the left of `key`.
fn between(floor: &str, key: &str) -> Vec<String> {
    let branch = |of: &str, place: usize, c: u8| tidy(format!("{}{}", &of[..place], char::from(c)));
    let right = (0..floor.len()).rev().flat_map(|place| {
        let higher = NAME.iter().filter(move |c| **c > floor.as_bytes()[place]);
        higher.map(move |c| branch(floor, place, *c))
    });
    let left = (0..key.len()).flat_map(|place| {
        let lower = NAME.iter().filter(move |c| **c < key.as_bytes()[place]);
        lower.map(move |c| branch(key, place, *c))
    });
    right.chain(left).filter(|probe| probe.as_str() > floor && probe.as_str() < key).collect()
}

/// The longest key: the longest namespace and name.
const LONGEST: usize = 63 + 1 + 253;

/// The range of characters in a key, for the binary search of one position.
const LOWEST: u8 = 0x21;
const HIGHEST: u8 = 0x7e;

/// Searches one bad key between `floor` and `ceiling`, character by character.
#[derive(Clone, Debug)]
struct KeySearch {
    floor: String,
    ceiling: Option<String>,
    known: String,
    phase: Phase,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Is the known part the whole key?
    Whole,
    /// The next character lies in `low..=high`, and `low` is known to fail.
    Next {
        low: u8,
        high: u8,
    },
    Found,
    Lost,
}

impl KeySearch {
    fn between(floor: &str, ceiling: Option<&str>) -> Self {
        let phase = Phase::Next { low: LOWEST, high: HIGHEST };
        let (floor, ceiling) = (floor.to_owned(), ceiling.map(str::to_owned));
        let mut search = Self { floor, ceiling, known: String::new(), phase };
        search.skip();
        search
    }

    /// The key to start the next probing page at; `None` when the search has ended.
    fn probe(&self) -> Option<String> {
        match self.phase {
            Phase::Whole => Some(format!("{}\0", self.known)),
            Phase::Next { low, high } => {
                Some(tidy(format!("{}{}", self.known, char::from(middle(low, high)))))
            }
            Phase::Found | Phase::Lost => None,
        }
    }

    /// Adds whether the page that starts at the probe failed.
    fn learn(&mut self, failed: bool) {
        self.take(failed);
        self.skip();
    }

    /// Skips probes outside `floor` and `ceiling`: their results are known.
    fn skip(&mut self) {
        while let Some(probe) = self.probe() {
            if probe < self.floor {
                self.take(true);
            } else if self.ceiling.as_ref().is_some_and(|ceiling| probe >= *ceiling) {
                self.take(false);
            } else {
                return;
            }
        }
    }

    fn take(&mut self, failed: bool) {
        self.phase = match self.phase {
            Phase::Whole if !failed => Phase::Found,
            Phase::Whole if self.known.len() >= LONGEST => Phase::Lost,
            Phase::Whole => Phase::Next { low: LOWEST, high: HIGHEST },
            Phase::Next { low, high } => {
                let middle = middle(low, high);
                let (low, high) = if failed { (middle, high) } else { (low, middle - 1) };
                if low < high {
                    Phase::Next { low, high }
                } else {
                    self.known.push(char::from(low));
                    Phase::Whole
                }
            }
            ended => ended,
        };
    }

    /// The key, once the search has found it.
    fn found(&self) -> Option<&str> {
        matches!(self.phase, Phase::Found).then_some(&self.known)
    }
}

/// A server refuses keys that are not clean paths. No stored key is such a key, so the next greater clean key is used.
fn tidy(mut key: String) -> String {
    let before = key.strip_suffix('/');
    if before.is_some_and(|before| before.is_empty() || before.contains('/')) {
        key.pop();
        key.push('0');
    }
    if matches!(key.rsplit('/').next(), Some("" | "." | "..")) {
        key.push('\0');
    }
    key
}

/// Rounds up, so that a search among two characters tries the greater.
fn middle(low: u8, high: u8) -> u8 {
    low + (high - low).div_ceil(2)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Plays the server: which keys are stored, and which of them are bad.
    fn hunt(floor: &str, counts: bool, stored: &[(&str, bool)]) -> (Option<BadKey>, usize) {
        let behind = stored.iter().filter(|(key, _)| *key >= floor).count() as u64;
        let mut hunt = BadKeySearch::from(floor, counts.then_some(behind));
        let mut probes = 0;
        while let Some(start) = hunt.probe() {
            probes += 1;
            assert!(probes < 20_000, "the hunt does not end");
            let clean = start.split('/').all(|part| !["", ".", ".."].contains(&part));
            assert!(clean, "a server refuses {start:?}");
            let next = stored.iter().position(|(key, _)| *key >= start.as_str());
            hunt.learn(match next.map(|index| (index, stored[index])) {
                Some((_, (_, true))) => ProbeResult::Nothing,
                Some((index, (key, false))) => {
                    ProbeResult::Object { key, from: counts.then_some((stored.len() - index) as u64) }
                }
                None => ProbeResult::End,
            });
        }
        (hunt.end().cloned(), probes)
    }

    fn bad(key: &str, others: u64) -> Option<BadKey> {
        Some(BadKey { key: key.to_owned(), others: Some(others) })
    }

    /// Found without the server's counts.
    fn uncounted(key: &str) -> Option<BadKey> {
        Some(BadKey { key: key.to_owned(), others: None })
    }

    #[test]
    fn no_object_is_blamed_for_a_short_outage() {
        assert!(blame_after(true) > Duration::from_secs(10));
        assert!(blame_after(false) >= OUTAGE_TIMEOUT);
    }

    #[test]
    fn the_search_finds_the_bad_key() {
        let (found, probes) = hunt("", true, &[("default/w-15", true), ("default/w-16", false)]);
        assert_eq!(found, bad("default/w-15", 0));
        assert!(probes < 120, "{probes}");
        // The last key of all, a name that is the start of another, a cluster-wide name.
        assert_eq!(hunt("", true, &[("z/z", true)]).0, bad("z/z", 0));
        assert_eq!(hunt("", true, &[("a/b", true), ("a/b-c", false)]).0, bad("a/b", 0));
        assert_eq!(hunt("", true, &[("system:node", true)]).0, bad("system:node", 0));
    }

    /// Pages that begin before the last good key succeed, however near the bad one is.
    #[test]
    fn readable_objects_before_the_bad_key_do_not_mislead_the_search() {
        let stored = [
            ("a/x", false),
            ("default/w-13", false),
            ("default/w-14", false),
            ("default/w-15", true),
            ("default/w-16", false),
        ];
        let (found, probes) = hunt("default/w-14\0", true, &stored);
        assert_eq!(found, bad("default/w-15", 0));
        assert!(probes < 60, "{probes}");
        assert_eq!(hunt("", true, &[("a", true), ("b", false)]).0, bad("a", 0));
        assert_eq!(
            hunt("default/w\0", true, &[("default/w", false), ("default/w-1", true)]).0,
            bad("default/w-1", 0)
        );
        assert_eq!(hunt("b/z\0", true, &[("b/z", false), ("c/a", true)]).0, bad("c/a", 0));
    }

    #[test]
    fn of_several_bad_keys_in_a_row_the_last_is_found_and_the_others_counted() {
        assert_eq!(hunt("", true, &[("a/1", true), ("a/2", true), ("a/3", false)]).0, bad("a/2", 1));
    }

    /// With a webhook down, nothing that is left can be read: that must not look like one bad object.
    #[test]
    fn without_a_readable_object_no_bad_key_is_alone() {
        let keys: Vec<String> = (0..300).map(|index| format!("default/w-{index:05}")).collect();
        let from = |first_bad: usize| -> Vec<(&str, bool)> {
            keys.iter().enumerate().map(|(index, key)| (key.as_str(), index >= first_bad)).collect()
        };
        // What the server counts is known behind a page, and not at the beginning.
        for (first_bad, floor, counts, alone) in [
            (0, "", false, false),
            (100, "default/w-00099\0", true, false),
            (100, "default/w-00099\0", false, false),
            (298, "default/w-00297\0", true, false),
            (299, "default/w-00298\0", true, true),
            (299, "default/w-00298\0", false, false),
        ] {
            let (found, _) = hunt(floor, counts, &from(first_bad));
            let found = found.expect("the last of all");
            assert_eq!(
                (found.key.as_str(), found.is_alone()),
                ("default/w-00299", alone),
                "{first_bad} {counts}"
            );
        }
    }

    /// Good objects between two bad ones must not be passed over.
    #[test]
    fn the_first_of_several_separate_bad_keys_is_found() {
        let keys: Vec<String> = (0..300).map(|index| format!("default/w-{index:05}")).collect();
        let stored: Vec<(&str, bool)> = keys
            .iter()
            .enumerate()
            .map(|(index, key)| (key.as_str(), [123, 200, 201, 299].contains(&index)))
            .collect();
        for counts in [true, false] {
            let find = |floor: &str| hunt(floor, counts, &stored).0;
            let bad = |key, others| if counts { bad(key, others) } else { uncounted(key) };
            assert_eq!(find("default/w-00122\0"), bad("default/w-00123", 0));
            assert_eq!(find("default/w-00199\0"), bad("default/w-00201", 1));
            assert_eq!(find("default/w-00298\0"), bad("default/w-00299", 0));
        }
    }

    proptest! {
        #[test]
        fn the_search_finds_any_bad_key(
            keys in proptest::collection::btree_set("[a-z0-9]([-a-z0-9]{0,10}/[.a-z0-9][a-z0-9:-][a-z0-9.:-]{0,30})?", 1..8),
            pick in any::<proptest::sample::Index>(),
            counts: bool,
        ) {
            let keys: Vec<&String> = keys.iter().collect();
            let index = pick.index(keys.len());
            let stored: Vec<(&str, bool)> =
                keys.iter().enumerate().map(|(at, key)| (key.as_str(), at == index)).collect();
            let floor = if index == 0 { String::new() } else { format!("{}\0", keys[index - 1]) };
            let expected = if counts { bad(keys[index], 0) } else { uncounted(keys[index]) };
            prop_assert_eq!(hunt(&floor, counts, &stored).0, expected);
        }

        /// With the server's counts, no object is passed over without being counted.
        #[test]
        fn the_search_skips_no_object_without_counting_it(
            keys in proptest::collection::btree_map("[a-c]{1,3}/[a-d0-3]{1,4}", any::<bool>(), 1..20),
        ) {
            let stored: Vec<(&str, bool)> = keys.iter().map(|(key, bad)| (key.as_str(), *bad)).collect();
            prop_assume!(stored[0].1);
            let Some(found) = hunt("", true, &stored).0 else { return Err(TestCaseError::fail("nothing found")) };
            let at = stored.iter().position(|(key, _)| *key == found.key);
            prop_assert_eq!(at.map(|at| at as u64), found.others);
            prop_assert!(at.is_some_and(|at| stored[at].1));
        }
    }
}
