//! Finds the live value of each key among all writes.

use super::{
    chain,
    error::FileError,
    record::Record,
    revision::Revision,
    seen::{KeyHasher, Seen},
};
use crate::{
    bolt::{Bucket, Database, Entry, Walk},
    meter::Meter,
};

/// Keys of the bucket `meta`: up to which revision etcd removes superseded writes, or has removed them.
const COMPACTIONS: [&[u8]; 2] = [b"scheduledCompactRev", b"finishedCompactRev"];

/// Reads the live values of all keys.
pub(super) struct Latest<'d> {
    pub(super) database: &'d Database<'d>,
    /// The bucket of all writes.
    pub(super) keys: &'d Bucket,
    /// Writes up to this revision may have been removed.
    pub(super) compacted: u64,
    /// How many keys are remembered in one pass.
    pub(super) max_keys: usize,
    pub(super) meter: &'d Meter,
}

/// One pass over all writes, from the last to the first.
///
/// If there are more keys than can be remembered, a pass leaves the upper half of its hashes to another one. That pass visits
/// only what comes before the revision at which they were left.
#[derive(Clone, Copy, Debug)]
struct Pass {
    /// The lowest and the highest place of hashes.
    places: (u64, u64),
    /// Live values from this revision on were visited by an earlier pass.
    below: Revision,
}

/// Follows the revisions of one pass.
#[derive(Debug, Default)]
struct Sequence {
    /// The revision that was read last, which is higher than those that follow.
    last: Option<Revision>,
}

impl Latest<'_> {
    /// Visits the live value of each key, and returns the revision of the store.
    pub(super) fn read(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64, FileError> {
        let hasher = KeyHasher::default();
        let mut left = vec![Pass { places: (0, u64::MAX), below: Revision::MAX }];
        let mut newest = self.compacted;
        while let Some(pass) = left.pop() {
            newest = newest.max(self.pass(pass, &hasher, &mut left, visit)?);
        }
        Ok(newest)
    }

    fn pass(
        &self,
        pass: Pass,
        hasher: &KeyHasher,
        left: &mut Vec<Pass>,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<u64, FileError> {
        let (lowest, mut highest) = pass.places;
        let (mut seen, mut sequence, mut newest) = (Seen::new(), Sequence::default(), 0);
        Walk::new(self.database).back(self.keys, &mut |entry: Entry<'_>| -> Result<(), FileError> {
            let (at, record) = parse(&entry)?;
            if pass.below == Revision::MAX {
                self.meter.add((entry.key.len() + entry.value.len()) as u64);
            }
            newest = newest.max(at.main);
            sequence.check(at, self.compacted)?;
            let (key, value) = match record {
                Record::Put { key, value, .. } => (key, Some(value)),
                Record::Deletion { key } => (key, None),
                Record::Bump => return Ok(()),
            };
            let hash = hasher.hash(key);
            if !(lowest..=highest).contains(&hash.place) {
                return Ok(());
            }
            let (is_live, number) = seen.insert(hash);
            let damaged = |problem| FileError::Revision { main: at.main, sub: at.sub, problem };
            *number = chain::next(*number, record, at.main <= self.compacted).map_err(damaged)?;
            if let (true, Some(value)) = (is_live && at < pass.below, value) {
                visit(key, value);
            }
            if seen.len() > self.max_keys && highest > lowest {
                let middle = lowest + (highest - lowest) / 2;
                left.push(Pass { places: (middle + 1, highest), below: at.min(pass.below) });
                highest = middle;
                seen.keep_until(highest);
            }
            Ok(())
        })?;
        sequence.end(self.compacted)?;
        if seen.numbers().any(chain::is_open) {
            return Err(FileError::Damaged("an earlier write of a key is missing"));
        }
        Ok(newest)
    }
}

fn parse<'e>(entry: &Entry<'e>) -> Result<(Revision, Record<'e>), FileError> {
    let (at, is_deletion) = Revision::parse(entry.key)
        .filter(|_| !entry.is_bucket)
        .ok_or(FileError::Damaged("something else than a revision is among the revisions"))?;
    let damaged = |problem| FileError::Revision { main: at.main, sub: at.sub, problem };
    Ok((at, Record::parse(entry.value, at, is_deletion).map_err(damaged)?))
}

impl Sequence {
    /// Checks that no write is missing between this one and the one before: those after the last compaction are all kept.
    fn check(&mut self, at: Revision, compacted: u64) -> Result<(), FileError> {
        let Some(last) = self.last.replace(at).filter(|last| last.main > compacted) else { return Ok(()) };
        let follows = match at.main == last.main {
            true => at.sub + 1 == last.sub,
            // A transaction begins with its write 0. A compacted one need not be there.
            false => last.sub == 0 && (at.main.max(compacted) + 1 == last.main),
        };
        match follows {
            true => Ok(()),
            false => Err(FileError::Gap { missing: last.main - u64::from(last.sub == 0), compacted }),
        }
    }

    /// Checks that the first write that is kept is the first one after the last compaction.
    fn end(&self, compacted: u64) -> Result<(), FileError> {
        match self.last {
            // The first revision of an etcd is 2.
            Some(first) if first.main > compacted.max(1) + 1 || first.main > compacted && first.sub > 0 => {
                Err(FileError::Gap { missing: first.main - u64::from(first.sub == 0), compacted })
            }
            _ => Ok(()),
        }
    }
}

/// The revision up to which superseded writes may have been removed.
pub(super) fn compacted(database: &Database<'_>, meta: &Bucket) -> Result<u64, FileError> {
    let mut compacted = 0;
    Walk::new(database).back(meta, &mut |entry: Entry<'_>| -> Result<(), FileError> {
        if COMPACTIONS.contains(&entry.key) {
            let revision = Revision::parse(entry.value).filter(|(_, is_deletion)| !is_deletion);
            let (revision, _) = revision.ok_or(FileError::Damaged("the revision of its compaction"))?;
            compacted = compacted.max(revision.main);
        }
        Ok(())
    })?;
    Ok(compacted)
}
