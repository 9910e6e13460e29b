//! Whether something is told once more: nothing is repeated soon, and no object is talked about all the time.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// For how long the same is not told again.
pub const SILENCE: Duration = Duration::from_secs(600);
/// How much is told about one object in a minute.
pub const OF_ONE_OBJECT: usize = 10;
/// How much is told about all objects in a time of [`SILENCE`]; also all that is remembered.
pub const IN_ALL: usize = 1024;

const MINUTE: Duration = Duration::from_secs(60);

/// What was told of late, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Flood {
    told: VecDeque<Told>,
}

/// Hashes in place of texts, so that a memory has a size.
#[derive(Clone, Copy, Debug)]
struct Told {
    object: u64,
    what: u64,
    at: Duration,
}

impl Flood {
    /// Decides whether to tell this about an object `now`, and remembers it if so.
    ///
    /// `now` is the time of a clock that only goes forward.
    pub fn admit(&mut self, object: &str, reason: &str, message: &str, now: Duration) -> bool {
        while self.told.front().is_some_and(|oldest| now.saturating_sub(oldest.at) >= SILENCE) {
            self.told.pop_front();
        }
        let (object, what) = (hash(&object), hash(&(reason, message)));
        let about = || self.told.iter().filter(|told| told.object == object);
        let repeated = about().any(|told| told.what == what);
        let lately = about().filter(|told| now.saturating_sub(told.at) < MINUTE).count();
        let admitted = !repeated && lately < OF_ONE_OBJECT && self.told.len() < IN_ALL;
        if admitted {
            self.told.push_back(Told { object, what, at: now });
        }
        admitted
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of these (second, object, reason, message) are told.
    fn told(all: &[(u64, &str, &str, &str)]) -> Vec<bool> {
        let mut flood = Flood::default();
        let mut admit = |&(second, object, reason, message): &(u64, &str, &str, &str)| {
            flood.admit(object, reason, message, Duration::from_secs(second))
        };
        all.iter().map(&mut admit).collect()
    }

    #[test]
    fn the_same_is_not_told_again_soon() {
        for (all, expected) in [
            (vec![(0, "a", "R", "m"), (0, "a", "R", "m")], vec![true, false]),
            (vec![(0, "a", "R", "m"), (599, "a", "R", "m")], vec![true, false]),
            (vec![(0, "a", "R", "m"), (600, "a", "R", "m")], vec![true, true]),
            // What was kept back does not prolong the silence.
            (vec![(0, "a", "R", "m"), (599, "a", "R", "m"), (600, "a", "R", "m")], vec![true, false, true]),
            (vec![(0, "a", "R", "m"), (0, "b", "R", "m")], vec![true, true]),
            (vec![(0, "a", "R", "m"), (0, "a", "S", "m")], vec![true, true]),
            (vec![(0, "a", "R", "m"), (0, "a", "R", "n")], vec![true, true]),
            (vec![(0, "a", "Rm", ""), (0, "a", "R", "m")], vec![true, true]),
        ] {
            assert_eq!(told(&all), expected, "{all:?}");
        }
    }

    #[test]
    fn an_object_is_not_talked_about_all_the_time() {
        let mut flood = Flood::default();
        let mut in_second = |second: u64, object: &str| {
            let each = |number: usize| {
                let now = Duration::from_secs(second);
                flood.admit(object, "R", &format!("{second} {number}"), now)
            };
            (0..100).map(each).filter(|told| *told).count()
        };
        for (second, object, expected) in
            [(0, "a", OF_ONE_OBJECT), (0, "b", OF_ONE_OBJECT), (59, "a", 0), (60, "a", OF_ONE_OBJECT)]
        {
            assert_eq!(in_second(second, object), expected, "{object} at {second}");
        }
    }

    #[test]
    fn memory_and_the_sum_are_bounded() {
        let mut flood = Flood::default();
        let mut admit = |object: usize, second: u64| {
            flood.admit(&object.to_string(), "R", "m", Duration::from_secs(second))
        };
        let told = (0..2 * IN_ALL).filter(|object| admit(*object, 0)).count();
        assert_eq!(told, IN_ALL);
        assert!(!admit(3 * IN_ALL, 599));
        assert!(admit(3 * IN_ALL, 600));
        assert_eq!(flood.told.len(), 1);
    }
}
