//! Which migrations run now: those under way first, no two of one resource, no more than a number at once.

use jiff::Timestamp;

/// One migration, as far as its turn is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// What it migrates.
    pub resource: String,
    /// When it was made.
    pub created: Timestamp,
    /// Whether a controller has begun it, and was perhaps killed.
    pub begun: bool,
    /// Whether it has ended and nobody asked for another try.
    pub finished: bool,
    /// Whether it is to stand still.
    pub suspended: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether it was tried, and is left alone for a while yet.
    pub resting: bool,
    /// Whether this controller is at it now.
    pub running: bool,
}

/// The turns of all migrations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// To be started now.
    pub start: Vec<String>,
    /// To be stopped now.
    pub stop: Vec<String>,
    /// To wait, and what for.
    pub queued: Vec<(String, Queued)>,
}

/// What a migration waits for before it can begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Queued {
    /// The migration of this name, which is of the same resource.
    SameResource(String),
    /// Its turn: as many migrations run as may run at once.
    Turn(usize),
}

impl Queued {
    /// Says it for a person, in words that stay true until it changes.
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

/// Decides whose turn it is.
pub fn turns(entries: &[Entry], at_once: usize) -> Turns {
    let unwanted = |entry: &Entry| entry.suspended || entry.deleting || entry.finished;
    let mut turns = Turns {
        stop: entries.iter().filter(|e| e.running && unwanted(e)).map(|e| e.name.clone()).collect(),
        ..Turns::default()
    };
    // One that is told to stop holds its place until it has stopped.
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
            Some(queued) => turns.queued.push((entry.name.clone(), queued)),
            None => {
                turns.start.push(entry.name.clone());
                busy.push(entry);
            }
        }
    }
    turns
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
    fn whose_turn_it_is() {
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
            let turns = turns(&entries, *at_once);
            assert_eq!(turns.start.join(" "), *start, "{entries:#?}");
            assert_eq!(turns.stop.join(" "), *stop, "{entries:#?}");
            let waiting = |(name, queued): &(String, Queued)| match queued {
                Queued::SameResource(other) => format!("{name}<{other}"),
                Queued::Turn(_) => name.clone(),
            };
            let names: Vec<String> = turns.queued.iter().map(waiting).collect();
            assert_eq!(names.join(" "), *queued, "{entries:#?}");
        }
    }
}
