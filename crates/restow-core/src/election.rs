//! Who leads: decisions on one Lease, with times observed here and never compared with another machine's.

use std::time::Duration;

/// A Lease as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its holder; empty when it was given back.
    pub holder: String,
    /// How long its holder may be silent.
    pub duration: Duration,
    /// How often it has changed hands.
    pub transitions: i32,
    /// Its resourceVersion: what any write of it is conditioned on.
    pub resource_version: String,
}

/// What to do about the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move {
    /// Make it.
    Create,
    /// Write it under one's own name, on condition of its resourceVersion.
    Take {
        /// The count of changes of hands to write.
        transitions: i32,
    },
    /// Another one holds it.
    Stand,
}

/// Decides by the Lease and by how long it has not changed, by this machine's own clock.
pub fn decide(lease: Option<&Held>, me: &str, unchanged_for: Duration) -> Move {
    match lease {
        None => Move::Create,
        Some(held) if held.holder == me => Move::Take { transitions: held.transitions },
        Some(held) if held.holder.is_empty() || unchanged_for > held.duration => {
            Move::Take { transitions: held.transitions + 1 }
        }
        Some(_) => Move::Stand,
    }
}

/// Until when one leads who sent the last successful write of the Lease at `sent`: the time it was sent counts, not
/// the time the answer came, and a share is kept back, so that one stops before another may begin.
pub fn leads_until(sent: Duration, duration: Duration) -> Duration {
    sent + duration * 2 / 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_take_the_lease() {
        let held = |holder: &str| Held {
            holder: holder.to_owned(),
            duration: Duration::from_secs(15),
            transitions: 3,
            resource_version: "7".to_owned(),
        };
        for (lease, unchanged, expected) in [
            (None, 0, Move::Create),
            (Some(held("me")), 100, Move::Take { transitions: 3 }),
            (Some(held("other")), 0, Move::Stand),
            (Some(held("other")), 15, Move::Stand),
            (Some(held("other")), 16, Move::Take { transitions: 4 }),
            (Some(held("")), 0, Move::Take { transitions: 4 }),
        ] {
            assert_eq!(decide(lease.as_ref(), "me", Duration::from_secs(unchanged)), expected, "{lease:?}");
        }
    }

    #[test]
    fn one_stops_before_another_may_begin() {
        let duration = Duration::from_secs(15);
        // The other saw the write at the earliest when it was sent.
        assert!(leads_until(Duration::ZERO, duration) < duration);
    }
}
