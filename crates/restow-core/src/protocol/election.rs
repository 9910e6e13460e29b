//! Leader election on one Lease. Times are measured locally and never compared with another machine's clock.

use std::time::Duration;

/// A Lease as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRecord {
    /// The holder; empty when the Lease was released.
    pub holder: String,
    /// How long the holder may go without renewing it.
    pub duration: Duration,
    /// How often the holder has changed.
    pub transitions: i32,
    /// The resourceVersion, which every write requires to be unchanged.
    pub resource_version: String,
}

/// What to do about the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseAction {
    /// Create it.
    Create,
    /// Acquire or renew it, if its resourceVersion is unchanged.
    Take {
        /// The number of holder changes to write.
        transitions: i32,
    },
    /// Another candidate holds it.
    Wait,
}

/// Decides by the Lease and by how long it has been unchanged on this machine's clock.
pub fn decide(lease: Option<&LeaseRecord>, me: &str, unchanged_for: Duration) -> LeaseAction {
    match lease {
        None => LeaseAction::Create,
        Some(held) if held.holder == me => LeaseAction::Take { transitions: held.transitions },
        Some(held) if held.holder.is_empty() || unchanged_for > held.duration => {
            LeaseAction::Take { transitions: held.transitions + 1 }
        }
        Some(_) => LeaseAction::Wait,
    }
}

/// What one candidate has observed of the Lease, and since when it is unchanged.
#[derive(Clone, Debug, Default)]
pub struct LeaseObserver {
    /// The Lease when it last existed.
    last: Option<LeaseRecord>,
    /// Whether it has been deleted since.
    deleted: bool,
    since: Duration,
    is_new: bool,
}

impl LeaseObserver {
    /// Whether the last observation showed a change.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Observes the Lease `now`, and decides.
    ///
    /// A Lease that was deleted while another candidate held it still counts for its duration, because that candidate
    /// leads until its next observation. A candidate that has never seen the Lease cannot know that.
    pub fn observe(&mut self, lease: Option<LeaseRecord>, me: &str, now: Duration) -> LeaseAction {
        let version = |held: &LeaseRecord| held.resource_version.clone();
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
            LeaseAction::Take { .. } if self.deleted => LeaseAction::Create,
            decided => decided,
        }
    }
}

/// How long a leader leads after it sent its last successful write of the Lease.
///
/// The time of sending counts, not the time of the answer, and a margin is left, so that a leader stops before another
/// candidate may start.
pub fn leads_for(duration: Duration) -> Duration {
    duration * 2 / 3
}

/// How long an API server accepts writes after it sent the last renewal of its identity Lease, if it may be silent for
/// `silence`. Other servers count it as alive for at least that long.
pub fn writes_for(silence: Duration, duration: Duration) -> Duration {
    silence.min(leads_for(duration))
}

/// How long an identity Lease has to be unchanged before another process with the same id takes it over.
///
/// This is longer than its holder accepts writes, so that a write sent at the last moment can finish.
pub fn taken_over_after(silence: Duration) -> Duration {
    silence * 4 / 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_taken_over_after_its_holder_stopped_writing() {
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
    fn the_lease_is_taken_only_if_free_expired_or_own() {
        let held = |holder: &str| LeaseRecord {
            holder: holder.to_owned(),
            duration: Duration::from_secs(15),
            transitions: 3,
            resource_version: "7".to_owned(),
        };
        for (lease, unchanged, expected) in [
            (None, 0, LeaseAction::Create),
            (Some(held("me")), 100, LeaseAction::Take { transitions: 3 }),
            (Some(held("other")), 0, LeaseAction::Wait),
            (Some(held("other")), 15, LeaseAction::Wait),
            (Some(held("other")), 16, LeaseAction::Take { transitions: 4 }),
            (Some(held("")), 0, LeaseAction::Take { transitions: 4 }),
        ] {
            assert_eq!(decide(lease.as_ref(), "me", Duration::from_secs(unchanged)), expected, "{lease:?}");
        }
    }

    #[test]
    fn a_lease_counts_from_its_last_observed_change() {
        let held = |holder: &str, version: &str| {
            Some(LeaseRecord {
                holder: holder.to_owned(),
                duration: Duration::from_secs(15),
                transitions: 3,
                resource_version: version.to_owned(),
            })
        };
        let take = LeaseAction::Take { transitions: 4 };
        let renew = LeaseAction::Take { transitions: 3 };
        // What is read at which second, and what follows.
        type Observed = (u64, Option<LeaseRecord>, LeaseAction);
        let table: &[&[Observed]] = &[
            &[(0, None, LeaseAction::Create), (1, None, LeaseAction::Create)],
            &[(9, held("other", "1"), LeaseAction::Wait), (24, held("other", "1"), LeaseAction::Wait)],
            &[(9, held("other", "1"), LeaseAction::Wait), (25, held("other", "1"), take.clone())],
            // A change starts it anew.
            &[(0, held("other", "1"), LeaseAction::Wait), (16, held("other", "2"), LeaseAction::Wait)],
            &[(0, held("other", "1"), LeaseAction::Wait), (5, held("", "2"), take)],
            // Deleted under another, and under oneself.
            &[
                (0, held("other", "1"), LeaseAction::Wait),
                (16, None, LeaseAction::Wait),
                (31, None, LeaseAction::Wait),
            ],
            &[
                (0, held("other", "1"), LeaseAction::Wait),
                (16, None, LeaseAction::Wait),
                (32, None, LeaseAction::Create),
            ],
            &[
                (0, held("other", "1"), LeaseAction::Wait),
                (5, None, LeaseAction::Wait),
                (6, held("other", "2"), LeaseAction::Wait),
            ],
            &[(0, held("me", "1"), renew.clone()), (5, None, LeaseAction::Create)],
            &[(0, held("", "1"), LeaseAction::Take { transitions: 4 }), (5, None, LeaseAction::Create)],
            // Back again under another.
            &[
                (0, held("me", "1"), renew),
                (5, None, LeaseAction::Create),
                (30, held("other", "2"), LeaseAction::Wait),
            ],
        ];
        for looks in table {
            let mut sight = LeaseObserver::default();
            for (second, lease, expected) in *looks {
                let decided = sight.observe(lease.clone(), "me", Duration::from_secs(*second));
                assert_eq!(decided, *expected, "at {second} of {looks:?}");
            }
        }
    }

    #[test]
    fn a_leader_stops_before_another_candidate_starts() {
        let duration = Duration::from_secs(15);
        // The other saw the write at the earliest when it was sent.
        assert!(leads_for(duration) < duration);
    }
}
