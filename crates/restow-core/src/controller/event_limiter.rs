//! Which Events are sent: none is repeated soon, and their number is limited for each object and in total.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// How long the same Event about the same object is not repeated.
pub const REPEAT_INTERVAL: Duration = Duration::from_secs(600);
/// The most Events about one object in a minute.
pub const MAX_PER_OBJECT: usize = 10;
/// The most Events about all objects within [`REPEAT_INTERVAL`], and the most that are remembered.
pub const MAX_IN_TOTAL: usize = 1024;

const MINUTE: Duration = Duration::from_secs(60);

/// The Events sent within [`REPEAT_INTERVAL`], oldest first.
#[derive(Clone, Debug, Default)]
pub struct EventLimiter {
    told: VecDeque<SentEvent>,
}

/// One Event. It keeps hashes instead of texts, which bounds the memory.
#[derive(Clone, Copy, Debug)]
struct SentEvent {
    object: u64,
    what: u64,
    at: Duration,
}

impl EventLimiter {
    /// Decides whether to send an Event about an object at `now`, which is monotonic, and remembers the Event if so.
    pub fn admit(&mut self, object: &str, reason: &str, message: &str, now: Duration) -> bool {
        while self.told.front().is_some_and(|oldest| now.saturating_sub(oldest.at) >= REPEAT_INTERVAL) {
            self.told.pop_front();
        }
        let (object, what) = (hash(&object), hash(&(reason, message)));
        let about = || self.told.iter().filter(|told| told.object == object);
        let repeated = about().any(|told| told.what == what);
        let lately = about().filter(|told| now.saturating_sub(told.at) < MINUTE).count();
        let admitted = !repeated && lately < MAX_PER_OBJECT && self.told.len() < MAX_IN_TOTAL;
        if admitted {
            self.told.push_back(SentEvent { object, what, at: now });
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
        let mut event_limiter = EventLimiter::default();
        let mut admit = |&(second, object, reason, message): &(u64, &str, &str, &str)| {
            event_limiter.admit(object, reason, message, Duration::from_secs(second))
        };
        all.iter().map(&mut admit).collect()
    }

    #[test]
    fn the_same_event_is_not_repeated_soon() {
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
    fn the_events_of_one_object_are_limited() {
        let mut event_limiter = EventLimiter::default();
        let mut in_second = |second: u64, object: &str| {
            let each = |number: usize| {
                let now = Duration::from_secs(second);
                event_limiter.admit(object, "R", &format!("{second} {number}"), now)
            };
            (0..100).map(each).filter(|told| *told).count()
        };
        for (second, object, expected) in
            [(0, "a", MAX_PER_OBJECT), (0, "b", MAX_PER_OBJECT), (59, "a", 0), (60, "a", MAX_PER_OBJECT)]
        {
            assert_eq!(in_second(second, object), expected, "{object} at {second}");
        }
    }

    #[test]
    fn the_number_of_events_is_limited_in_total() {
        let mut event_limiter = EventLimiter::default();
        let mut admit = |object: usize, second: u64| {
            event_limiter.admit(&object.to_string(), "R", "m", Duration::from_secs(second))
        };
        let told = (0..2 * MAX_IN_TOTAL).filter(|object| admit(*object, 0)).count();
        assert_eq!(told, MAX_IN_TOTAL);
        assert!(!admit(3 * MAX_IN_TOTAL, 599));
        assert!(admit(3 * MAX_IN_TOTAL, 600));
        assert_eq!(event_limiter.told.len(), 1);
    }
}
