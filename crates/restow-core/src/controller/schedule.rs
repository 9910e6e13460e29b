//! Which migrations run now: those that have begun first, one for each resource, and a limited number at a time.

use jiff::Timestamp;

/// A migration, as far as it matters for scheduling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// `metadata.name`.
    pub name: String,
    /// The resource that it migrates.
    pub resource: String,
    /// `metadata.creationTimestamp`.
    pub created: Timestamp,
    /// Whether a controller has begun it, perhaps one that crashed.
    pub begun: bool,
    /// Whether it has finished and no retry was requested.
    pub finished: bool,
    /// Whether a user has suspended it.
    pub suspended: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether it is requeued and not due yet.
    pub resting: bool,
    /// Whether this controller is running it.
    pub running: bool,
}

/// What to do about all migrations now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Migrations to start.
    pub start: Vec<String>,
    /// Migrations to stop.
    pub stop: Vec<String>,
    /// Migrations that wait, and what for.
    pub queued: Vec<(String, Queued)>,
}

/// What a migration waits for before it can begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Queued {
    /// The migration of this name, which is of the same resource.
    SameResource(String),
    /// Its turn: this many migrations run at a time.
    Turn(usize),
}

impl Queued {
    /// A message for the status, which stays true until the reason changes.
    pub fn explain(&self) -> String {
        match self {
            Self::SameResource(other) => {
                format!("waits for {other}, which migrates the same resource")
            }
            Self::Turn(1) => "waits for its turn: 1 migration runs at a time".to_owned(),
            Self::Turn(many) => format!("waits for its turn: {many} migrations run at a time"),
        }
    }
}

/// Decides which migrations start, stop and wait.
pub fn schedule(entries: &[Entry], at_once: usize) -> Schedule {
    let unwanted = |entry: &Entry| entry.suspended || entry.deleting || entry.finished;
    let mut schedule = Schedule {
        stop: entries.iter().filter(|e| e.running && unwanted(e)).map(|e| e.name.clone()).collect(),
        ..Schedule::default()
    };
    // A migration that is stopping keeps its place until it has stopped.
    let mut busy: Vec<&Entry> = entries.iter().filter(|entry| entry.running).collect();
    let mut waiting: Vec<&Entry> =
        entries.iter().filter(|entry| !entry.running && !entry.resting && !unwanted(entry)).collect();
    waiting.sort_by(|a, b| (!a.begun, a.created, &a.name).cmp(&(!b.begun, b.created, &b.name)));
    for entry in waiting {
        let rival = busy.iter().find(|other| other.resource == entry.resource);
        let queued = match rival {
            Some(other) => Some(Queued::SameResource(other.name.clone())),
            None => (busy.len() >= at_once).then_some(Queued::Turn(at_once)),
        };
        match queued {
            Some(queued) => schedule.queued.push((entry.name.clone(), queued)),
            None => {
                schedule.start.push(entry.name.clone());
                busy.push(entry);
            }
        }
    }
    schedule
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, resource: &str, flags: &str) -> Entry {
        let has = |flag| flags.split(' ').any(|other| other == flag);
        let created: i64 = name.trim_start_matches(char::is_alphabetic).parse().unwrap_or_default();
        Entry {
            name: name.to_owned(),
            resource: resource.to_owned(),
            created: Timestamp::from_second(created).unwrap(),
            begun: has("begun"),
            finished: has("finished"),
            suspended: has("suspended"),
            deleting: has("deleting"),
            resting: has("resting"),
            running: has("running"),
        }
    }

    #[test]
    fn migrations_are_scheduled_by_resource_and_age() {
        /// Name, resource and flags of each; how many at once; which start, stop and wait (`m2<m1`: for one of its resource).
        type Row<'a> = (&'a [(&'a str, &'a str, &'a str)], usize, &'a str, &'a str, &'a str);
        let table: &[Row<'_>] = &[
            (&[], 1, "", "", ""),
            (&[("m2", "a", ""), ("m1", "b", "")], 1, "m1", "", "m2"),
            (&[("m2", "a", "begun"), ("m1", "b", "")], 1, "m2", "", "m1"),
            (&[("m1", "a", ""), ("m2", "b", ""), ("m3", "c", "")], 2, "m1 m2", "", "m3"),
            (&[("m1", "a", ""), ("m2", "a", ""), ("m3", "c", "")], 2, "m1 m3", "", "m2<m1"),
            (&[("m1", "a", "running"), ("m2", "b", "")], 1, "", "", "m2"),
            (&[("m1", "a", "running"), ("m2", "a", "")], 1, "", "", "m2<m1"),
            (&[("m1", "a", "running suspended"), ("m2", "b", "")], 1, "", "m1", "m2"),
            (&[("m1", "a", "running deleting"), ("m2", "b", "")], 2, "m2", "m1", ""),
            (&[("m1", "a", "suspended begun"), ("m2", "b", "")], 1, "m2", "", ""),
            (&[("m1", "a", "finished"), ("m2", "b", "finished begun")], 1, "", "", ""),
            (&[("m1", "a", "resting begun"), ("m2", "b", "")], 1, "m2", "", ""),
        ];
        for (entries, at_once, start, stop, queued) in table {
            let entries: Vec<Entry> = entries.iter().map(|(n, r, f)| entry(n, r, f)).collect();
            let schedule = schedule(&entries, *at_once);
            assert_eq!(schedule.start.join(" "), *start, "{entries:#?}");
            assert_eq!(schedule.stop.join(" "), *stop, "{entries:#?}");
            let waiting = |(name, queued): &(String, Queued)| match queued {
                Queued::SameResource(other) => format!("{name}<{other}"),
                Queued::Turn(_) => name.clone(),
            };
            let names: Vec<String> = schedule.queued.iter().map(waiting).collect();
            assert_eq!(names.join(" "), *queued, "{entries:#?}");
        }
    }
}
