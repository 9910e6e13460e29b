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

/// What one candidate has seen of the Lease, and since when that has not changed.
#[derive(Clone, Debug, Default)]
pub struct Sight {
    /// The Lease as it was when it was last there.
    last: Option<Held>,
    /// Whether it has been deleted since.
    deleted: bool,
    since: Duration,
    is_new: bool,
}

impl Sight {
    /// Whether the last look has shown something new.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Takes in the Lease as it is `now`, and decides.
    ///
    /// A Lease that was deleted under another holder still binds for its duration, because that holder leads on until
    /// it looks again. One who has never seen it cannot know.
    pub fn look(&mut self, lease: Option<Held>, me: &str, now: Duration) -> Move {
        let version = |held: &Held| held.resource_version.clone();
        let changed = match &lease {
            Some(held) => self.deleted || self.last.as_ref().map(version) != Some(version(held)),
            None => self.last.is_some() && !self.deleted,
        };
        if changed {
            self.since = now;
        }
        self.is_new = changed;
        self.deleted = lease.is_none() && self.last.is_some();
        self.last = lease.or_else(|| self.last.take());
        match decide(self.last.as_ref(), me, now.saturating_sub(self.since)) {
            Move::Take { .. } if self.deleted => Move::Create,
            decided => decided,
        }
    }
}

/// How long one leads after the last successful write of the Lease was sent: the time it was sent counts, not the time
/// the answer came, and a share is kept back, so that one stops before another may begin.
pub fn leads_for(duration: Duration) -> Duration {
    duration * 2 / 3
}

/// How long an API server writes after the last renewal of its identity Lease was sent, if it may be silent for
/// `silence`: never longer than others are sure to count it among the living.
pub fn writes_for(silence: Duration, duration: Duration) -> Duration {
    silence.min(leads_for(duration))
}

/// How long an identity Lease has to stay as it is before another process takes it over under the same id: longer than
/// its holder writes, by the time that a write which was sent at the last moment may take.
pub fn taken_over_after(silence: Duration) -> Duration {
    silence * 4 / 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_taken_over_after_its_holder_has_ceased_to_write() {
        let seconds = Duration::from_secs;
        for (silence, duration, writes, taken) in
            [(30, 3600, 30, 40), (30, 15, 10, 40), (3600, 3600, 2400, 4800)]
        {
            assert_eq!(writes_for(seconds(silence), seconds(duration)), seconds(writes));
            assert_eq!(taken_over_after(seconds(silence)), seconds(taken));
            assert!(writes < duration && writes < taken);
        }
    }

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
    fn a_lease_binds_from_when_it_was_last_seen_to_change() {
        let held = |holder: &str, version: &str| {
            Some(Held {
                holder: holder.to_owned(),
                duration: Duration::from_secs(15),
                transitions: 3,
                resource_version: version.to_owned(),
            })
        };
        let take = Move::Take { transitions: 4 };
        let renew = Move::Take { transitions: 3 };
        // What is read at which second, and what follows.
        type Look = (u64, Option<Held>, Move);
        let table: &[&[Look]] = &[
            &[(0, None, Move::Create), (1, None, Move::Create)],
            &[(9, held("other", "1"), Move::Stand), (24, held("other", "1"), Move::Stand)],
            &[(9, held("other", "1"), Move::Stand), (25, held("other", "1"), take.clone())],
            // A change starts it anew.
            &[(0, held("other", "1"), Move::Stand), (16, held("other", "2"), Move::Stand)],
            &[(0, held("other", "1"), Move::Stand), (5, held("", "2"), take)],
            // Deleted under another, and under oneself.
            &[(0, held("other", "1"), Move::Stand), (16, None, Move::Stand), (31, None, Move::Stand)],
            &[(0, held("other", "1"), Move::Stand), (16, None, Move::Stand), (32, None, Move::Create)],
            &[
                (0, held("other", "1"), Move::Stand),
                (5, None, Move::Stand),
                (6, held("other", "2"), Move::Stand),
            ],
            &[(0, held("me", "1"), renew.clone()), (5, None, Move::Create)],
            &[(0, held("", "1"), Move::Take { transitions: 4 }), (5, None, Move::Create)],
            // Back again under another.
            &[(0, held("me", "1"), renew), (5, None, Move::Create), (30, held("other", "2"), Move::Stand)],
        ];
        for looks in table {
            let mut sight = Sight::default();
            for (second, lease, expected) in *looks {
                let decided = sight.look(lease.clone(), "me", Duration::from_secs(*second));
                assert_eq!(decided, *expected, "at {second} of {looks:?}");
            }
        }
    }

    #[test]
    fn one_stops_before_another_may_begin() {
        let duration = Duration::from_secs(15);
        // The other saw the write at the earliest when it was sent.
        assert!(leads_for(duration) < duration);
    }
}
