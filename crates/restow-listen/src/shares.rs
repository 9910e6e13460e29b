//! Limits how much of a shared resource each user takes.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts what each user takes. Clones share the counts.
#[derive(Clone, Debug)]
pub struct Shares<K> {
    most: usize,
    taken: Arc<Mutex<HashMap<K, usize>>>,
}

/// What one user takes, released when it is dropped.
#[derive(Debug)]
pub struct Share<K: Eq + Hash> {
    shares: Shares<K>,
    whose: K,
    size: usize,
}

impl<K: Clone + Eq + Hash> Shares<K> {
    /// Limits each user to `most`.
    pub fn new(most: usize) -> Self {
        Self { most, taken: Arc::default() }
    }

    /// An empty share of a user.
    pub fn of(&self, whose: K) -> Share<K> {
        Share { shares: self.clone(), whose, size: 0 }
    }
}

impl<K> Shares<K> {
    fn taken(&self) -> MutexGuard<'_, HashMap<K, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody takes anything.
    pub fn is_unused(&self) -> bool {
        self.taken().is_empty()
    }
}

impl<K: Clone + Eq + Hash> Share<K> {
    /// Takes more; false if that exceeds the limit.
    pub fn grow(&mut self, size: usize) -> bool {
        let mut all = self.shares.taken();
        let taken = all.get(&self.whose).copied().unwrap_or_default() + size;
        if taken > self.shares.most {
            return false;
        }
        if size > 0 {
            all.insert(self.whose.clone(), taken);
            self.size += size;
        }
        true
    }
}

impl<K: Eq + Hash> Drop for Share<K> {
    fn drop(&mut self) {
        let mut all = self.shares.taken();
        if let Some(taken) = all.get_mut(&self.whose) {
            *taken -= self.size;
            if *taken == 0 {
                all.remove(&self.whose);
            }
        }
    }
}
