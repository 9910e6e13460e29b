//! A file that is only read: what the database writes to it, to repair it after a crash, stays in memory.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    sync::{Mutex, MutexGuard, PoisonError},
};

use redb::StorageBackend;

const BLOCK: usize = 4096;

/// A file and what was written over it.
#[derive(Debug)]
pub(super) struct Overlay {
    file: File,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// How much of the file still counts.
    file_len: u64,
    len: u64,
    blocks: BTreeMap<u64, Box<[u8; BLOCK]>>,
}

impl Overlay {
    pub(super) fn new(file: File) -> io::Result<Self> {
        let len = file.metadata()?.len();
        Ok(Self { file, state: Mutex::new(State { file_len: len, len, blocks: BTreeMap::new() }) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what the file itself has; the rest is zero.
    fn read_file(&self, state: &State, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let there = state.file_len.saturating_sub(offset).min(out.len() as u64);
        let (from_file, beyond) = out.split_at_mut(usize::try_from(there).unwrap_or_default());
        beyond.fill(0);
        self.file.read_exact_at(from_file, offset)
    }
}

/// The parts of a range, by block: the number of the block, the range within it, and the range within the whole.
fn parts(
    offset: u64,
    length: usize,
) -> impl Iterator<Item = (u64, std::ops::Range<usize>, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = usize::try_from(at % BLOCK as u64).unwrap_or_default();
        let some = (BLOCK - within).min(length - done);
        let part = (at / BLOCK as u64, within..within + some, done..done + some);
        done += some;
        (some > 0).then_some(part)
    })
}

impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state();
        if offset.saturating_add(out.len() as u64) > state.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.read_file(&state, offset, out)?;
        if !state.blocks.is_empty() {
            for (block, within, range) in parts(offset, out.len()) {
                if let Some(block) = state.blocks.get(&block) {
                    out[range].copy_from_slice(&block[within]);
                }
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state();
        state.file_len = state.file_len.min(len);
        state.len = len;
        state.blocks.retain(|block, _| block * (BLOCK as u64) < len);
        // What is added again later is zero.
        let within = usize::try_from(len % BLOCK as u64).unwrap_or_default();
        if let Some(last) = state.blocks.get_mut(&(len / BLOCK as u64)) {
            last[within..].fill(0);
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        for (block, within, range) in parts(offset, data.len()) {
            if !state.blocks.contains_key(&block) {
                let mut bytes = Box::new([0; BLOCK]);
                self.read_file(&state, block * BLOCK as u64, &mut bytes[..])?;
                state.blocks.insert(block, bytes);
            }
            if let Some(bytes) = state.blocks.get_mut(&block) {
                bytes[within].copy_from_slice(&data[range]);
            }
        }
        state.len = state.len.max(offset + data.len() as u64);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use redb::StorageBackend as _;

    use super::{BLOCK, Overlay};

    #[test]
    fn writes_are_read_back_and_never_reach_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let before: Vec<u8> = (0..3 * BLOCK).map(|index| index as u8).collect();
        std::fs::write(&path, &before).unwrap();
        let overlay = Overlay::new(std::fs::File::open(&path).unwrap()).unwrap();
        let mut expected = before.clone();
        overlay.write(BLOCK as u64 - 2, &[9; 5]).unwrap();
        expected[BLOCK - 2..BLOCK + 3].fill(9);
        overlay.set_len(4 * BLOCK as u64).unwrap();
        expected.resize(4 * BLOCK, 0);
        overlay.write(3 * BLOCK as u64 + 7, &[5]).unwrap();
        expected[3 * BLOCK + 7] = 5;
        let mut found = vec![0; 4 * BLOCK];
        overlay.read(0, &mut found).unwrap();
        assert!(found == expected);
        assert!(overlay.read(1, &mut found).is_err(), "beyond the end");
        overlay.set_len(10).unwrap();
        overlay.set_len(20).unwrap();
        let mut found = vec![1; 20];
        overlay.read(0, &mut found).unwrap();
        assert_eq!(found, [&before[..10], &[0; 10]].concat());
        assert!(std::fs::read(&path).unwrap() == before);
    }
}
