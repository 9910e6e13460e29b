//! Which keys have been seen, and what is expected of their older writes, in little memory.

use std::hash::{BuildHasher as _, RandomState};

/// How many keys are remembered at a time: 18 to 25 bytes each, 33 MiB together at most.
pub(super) const MAX_KEYS: usize = 1_400_000;
/// The table is divided, so that growing one part needs little memory besides it.
const PARTS: usize = 64;

/// The hash of a key. 96 bits under a random secret: nobody can make two keys with one hash, and among a billion keys that
/// happens by chance once in 10^10 runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyHash {
    /// Decides in which pass a key is handled.
    pub(super) place: u64,
    check: u32,
}

/// Makes hashes under one secret.
#[derive(Debug, Default)]
pub(super) struct KeyHasher {
    first: RandomState,
    second: RandomState,
}

/// Hashes of keys, each with a number that the caller uses.
#[derive(Debug)]
pub(super) struct Seen {
    parts: Vec<Part>,
    count: usize,
}

/// Slots with linear probing.
#[derive(Debug, Default)]
struct Part {
    /// The place and the check of each hash, and its number; all zero if empty.
    slots: Vec<[u32; 4]>,
    count: usize,
}

impl KeyHasher {
    pub(super) fn hash(&self, key: &[u8]) -> KeyHash {
        // Never zero, which means an empty slot.
        KeyHash { place: self.first.hash_one(key), check: (self.second.hash_one(key) >> 32) as u32 | 1 }
    }
}

impl Seen {
    pub(super) fn new() -> Self {
        Self { parts: (0..PARTS).map(|_| Part::default()).collect(), count: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Adds a hash. Returns whether it is new, and its number, which is 0 then.
    pub(super) fn insert(&mut self, hash: KeyHash) -> (bool, &mut u32) {
        let part = usize::try_from(hash.place % PARTS as u64).unwrap_or_default();
        let (is_new, number) = self.parts[part].insert(hash);
        self.count += usize::from(is_new);
        (is_new, number)
    }

    /// The numbers of all hashes.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.parts.iter().flat_map(Part::hashes).map(|(_, number)| number)
    }

    /// Forgets all hashes with a higher place.
    pub(super) fn keep_until(&mut self, place: u64) {
        for part in &mut self.parts {
            let kept: Vec<_> = part.hashes().filter(|(hash, _)| hash.place <= place).collect();
            self.count -= part.count - kept.len();
            *part = Part::default();
            for (hash, number) in kept {
                *part.insert(hash).1 = number;
            }
        }
    }
}

impl Part {
    fn insert(&mut self, hash: KeyHash) -> (bool, &mut u32) {
        // At most seven of eight slots are used.
        if (self.count + 1) * 8 > self.slots.len() * 7 {
            let size = (self.slots.len() * 4 / 3).max(64);
            let old = std::mem::replace(&mut self.slots, vec![[0; 4]; size]);
            for slot in old.iter().filter(|slot| slot[2] != 0) {
                let at = self.find(unpack(slot));
                self.slots[at] = *slot;
            }
        }
        let at = self.find(hash);
        let is_new = self.slots[at][2] == 0;
        if is_new {
            self.slots[at] = [(hash.place >> 32) as u32, hash.place as u32, hash.check, 0];
            self.count += 1;
        }
        (is_new, &mut self.slots[at][3])
    }

    /// The slot of a hash, or the empty one for it.
    fn find(&self, hash: KeyHash) -> usize {
        let size = self.slots.len();
        // The low bits have chosen the part.
        let start = (u128::from(hash.place) * size as u128) >> 64;
        let mut at = usize::try_from(start).unwrap_or_default();
        while self.slots[at][2] != 0 && unpack(&self.slots[at]) != hash {
            at = if at + 1 == size { 0 } else { at + 1 };
        }
        at
    }

    fn hashes(&self) -> impl Iterator<Item = (KeyHash, u32)> {
        self.slots.iter().filter(|slot| slot[2] != 0).map(|slot| (unpack(slot), slot[3]))
    }
}

fn unpack(slot: &[u32; 4]) -> KeyHash {
    KeyHash { place: u64::from(slot[0]) << 32 | u64::from(slot[1]), check: slot[2] }
}

#[cfg(test)]
mod tests {
    use super::{KeyHasher, Seen};

    #[test]
    fn each_key_is_new_once() {
        let (hasher, mut seen) = (KeyHasher::default(), Seen::new());
        let hash = |index: u32| hasher.hash(format!("/registry/a/{index}").as_bytes());
        for index in 0..20_000 {
            let (is_new, number) = seen.insert(hash(index));
            assert!(is_new && *number == 0, "{index}");
            *number = index;
        }
        assert!((0..20_000).all(|index| seen.insert(hash(index)) == (false, &mut index.clone())));
        assert_eq!(seen.len(), 20_000);
        let lower = (0..20_000).filter(|&index| hash(index).place <= u64::MAX / 2).count();
        seen.keep_until(u64::MAX / 2);
        assert_eq!(seen.len(), lower);
        for index in 0..20_000 {
            let is_upper = hash(index).place > u64::MAX / 2;
            assert_eq!(seen.insert(hash(index)), (is_upper, &mut if is_upper { 0 } else { index }));
        }
    }
}
