//! Writes database files as etcd does, for tests.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};

pub(super) const PAGE: usize = 4096;
const HEADER: usize = 16;

/// One write: its revision, key, and value; no value deletes the key.
pub(super) type Write<'w> = (u64, u64, &'w str, Option<Vec<u8>>);

/// A file under construction.
pub(super) struct Builder {
    bytes: Vec<u8>,
}

/// An element of a page: flags, key, value, and the page below in a branch.
type Element = (u32, Vec<u8>, Vec<u8>, u64);

impl Builder {
    fn new() -> Self {
        Self { bytes: vec![0; 2 * PAGE] }
    }

    fn pages(&self) -> u64 {
        (self.bytes.len() / PAGE) as u64
    }

    fn add(&mut self, flags: u16, elements: &[Element]) -> u64 {
        let id = self.pages();
        let mut page = page(id, flags, elements);
        let run = page.len().div_ceil(PAGE);
        page[12..16].copy_from_slice(&(run as u32 - 1).to_le_bytes());
        page.resize(run * PAGE, 0);
        self.bytes.extend(page);
        id
    }

    /// A tree of these elements; returns its root.
    fn tree(&mut self, elements: &[Element]) -> u64 {
        let (mut flags, mut level) = (2, elements.to_vec());
        loop {
            let mut above = Vec::new();
            let mut rest = level.as_slice();
            while !rest.is_empty() || above.is_empty() {
                let mut size = HEADER;
                let fits = |(_, key, value, _): &&Element| {
                    size += 16 + key.len() + value.len();
                    size <= PAGE * 3 / 4
                };
                let some = rest.iter().take_while(fits).count().max(1).min(rest.len());
                let (now, later) = rest.split_at(some);
                let first = now.first().map(|element| element.1.clone()).unwrap_or_default();
                let id = self.add(flags, now);
                above.push((0, first, Vec::new(), id));
                rest = later;
            }
            if above.len() == 1 {
                return above[0].3;
            }
            (flags, level) = (1, above);
        }
    }

    fn finish(mut self, root: u64) -> Vec<u8> {
        let pages = self.pages();
        for (id, transaction) in [(0, 8), (1, 9)] {
            let mut meta = Vec::new();
            meta.extend(0xED0C_DAEDu32.to_le_bytes());
            meta.extend(2u32.to_le_bytes());
            meta.extend((PAGE as u32).to_le_bytes());
            meta.extend(0u32.to_le_bytes());
            for number in [root, 0, u64::MAX, pages, transaction] {
                meta.extend(number.to_le_bytes());
            }
            let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            let checksum = meta.iter().fold(0xcbf2_9ce4_8422_2325, step);
            meta.extend(checksum.to_le_bytes());
            let at = id as usize * PAGE;
            self.bytes[at..at + 8].copy_from_slice(&(id as u64).to_le_bytes());
            self.bytes[at + 8..at + 10].copy_from_slice(&4u16.to_le_bytes());
            self.bytes[at + HEADER..at + HEADER + meta.len()].copy_from_slice(&meta);
        }
        self.bytes
    }
}

fn page(id: u64, flags: u16, elements: &[Element]) -> Vec<u8> {
    let mut page = Vec::new();
    page.extend(id.to_le_bytes());
    page.extend(flags.to_le_bytes());
    page.extend((elements.len() as u16).to_le_bytes());
    page.extend(0u32.to_le_bytes());
    let mut at = HEADER + 16 * elements.len();
    for (index, (bucket, key, value, child)) in elements.iter().enumerate() {
        let position = (at - HEADER - 16 * index) as u32;
        match flags {
            1 => {
                page.extend(position.to_le_bytes());
                page.extend((key.len() as u32).to_le_bytes());
                page.extend(child.to_le_bytes());
            }
            _ => {
                for number in [*bucket, position, key.len() as u32, value.len() as u32] {
                    page.extend(number.to_le_bytes());
                }
            }
        }
        at += key.len() + value.len();
    }
    for (_, key, value, _) in elements {
        page.extend(key);
        page.extend(value);
    }
    page
}

pub(super) fn revision(main: u64, sub: u64) -> Vec<u8> {
    [&main.to_be_bytes()[..], b"_", &sub.to_be_bytes()].concat()
}

fn varint(mut number: u64, into: &mut Vec<u8>) {
    while number > 0x7f {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

fn record(numbers: [u64; 3], key: &str, value: Option<&[u8]>) -> Vec<u8> {
    let mut bytes = vec![0x0a];
    varint(key.len() as u64, &mut bytes);
    bytes.extend(key.as_bytes());
    if let Some(value) = value {
        for (tag, number) in [0x10, 0x18, 0x20].into_iter().zip(numbers) {
            bytes.push(tag);
            varint(number, &mut bytes);
        }
        if !value.is_empty() {
            bytes.push(0x2a);
            varint(value.len() as u64, &mut bytes);
            bytes.extend(value);
        }
    }
    bytes
}

/// A database with these writes, in the order of their revisions.
pub(super) fn database<'w>(writes: &[Write<'w>], compacted: u64) -> Vec<u8> {
    let mut builder = Builder::new();
    let mut live: HashMap<&str, (u64, u64)> = HashMap::new();
    let element = |(main, sub, key, value): &Write<'w>| {
        let mut at = revision(*main, *sub);
        at.extend(value.is_none().then_some(b't'));
        let (created, version) =
            live.get(key).map_or((*main, 1), |(created, version)| (*created, version + 1));
        match value {
            Some(_) => live.insert(key, (created, version)),
            None => live.remove(key),
        };
        (0, at, record([created, *main, version], key, value.as_deref()), 0)
    };
    let keys = builder.tree(&writes.iter().map(element).collect::<Vec<_>>());
    let mut meta = vec![(0, b"consistent_index".to_vec(), vec![0; 8], 0)];
    if compacted > 0 {
        meta.push((0, b"finishedCompactRev".to_vec(), revision(compacted, 0), 0));
    }
    let inline = [&[0; 16][..], &page(0, 2, &meta)].concat();
    let bucket = |root: u64| [root.to_le_bytes(), [0; 8]].concat();
    let root = builder.tree(&[(1, b"key".to_vec(), bucket(keys), 0), (1, b"meta".to_vec(), inline, 0)]);
    builder.finish(root)
}

/// A snapshot: the database and its hash.
pub(super) fn snapshot(mut database: Vec<u8>) -> Vec<u8> {
    let hash = Sha256::digest(&database);
    database.extend(hash);
    database
}
