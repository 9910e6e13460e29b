//! Opens a file and reads its pages.

use super::{
    bytes::ReadAt,
    error::BoltError,
    meta::{self, META, Meta},
    page::{Header, Page},
};

/// The largest page with all pages that belong to it. etcd limits a request to 1.5 MiB unless told otherwise.
const MAX_RUN: u64 = 32 << 20;
/// The first two pages are meta pages.
const METAS: u64 = 2;

/// A bbolt database as of its last transaction.
pub(crate) struct Database<'f> {
    file: &'f dyn ReadAt,
    page_size: u64,
    /// The number of pages, used or free.
    pub(super) pages: u64,
    /// The page of the bucket of buckets.
    pub(super) root: u64,
}

/// Where the keys of a bucket are.
pub(crate) enum Bucket {
    /// In the tree below this page.
    Tree(u64),
    /// In one small page that is a value itself.
    Inline(Vec<u8>),
}

impl<'f> Database<'f> {
    /// Opens the database in the first `size` bytes of a file.
    ///
    /// Both meta pages must be intact. bbolt itself falls back to the older one, which may lack the last transaction: then the
    /// counts would be those of an earlier time.
    pub(crate) fn open(file: &'f dyn ReadAt, size: u64) -> Result<Self, BoltError> {
        let first = read_meta(file, size, 0, 0)?;
        let page_size = u64::from(first.page_size);
        let second = read_meta(file, size, 1, page_size)?;
        if second.page_size != first.page_size {
            return Err(BoltError::Meta { page: 1, problem: "it has another page size" });
        }
        let Meta { pages, root, .. } = if second.transaction > first.transaction { second } else { first };
        let needs = pages.saturating_mul(page_size);
        if needs > size || !size.is_multiple_of(page_size) {
            return Err(BoltError::Short { has: size, needs });
        }
        Ok(Self { file, page_size, pages, root })
    }

    /// Reads a page and all that belongs to it. Returns how many pages these are.
    pub(super) fn read(&self, id: u64, buffer: &mut Vec<u8>) -> Result<u64, BoltError> {
        let damaged = |problem| BoltError::Page { page: id, problem };
        if id < METAS || id >= self.pages {
            return Err(damaged("there is no such page for data"));
        }
        let one = usize::try_from(self.page_size).map_err(|_| damaged("it is too large"))?;
        buffer.resize(one, 0);
        self.file.read_exact_at(buffer, id * self.page_size)?;
        let header = Header::parse(buffer).ok_or_else(|| damaged("it is cut short"))?;
        if header.id != id {
            return Err(damaged("it has the number of another page"));
        }
        let run = u64::from(header.overflow) + 1;
        if id + run > self.pages {
            return Err(damaged("it continues after the end of the database"));
        }
        if header.overflow > 0 {
            if run * self.page_size > MAX_RUN {
                return Err(damaged("it is too large"));
            }
            let all = usize::try_from(run * self.page_size).map_err(|_| damaged("it is too large"))?;
            buffer.resize(all, 0);
            self.file.read_exact_at(&mut buffer[one..], (id + 1) * self.page_size)?;
        }
        Ok(run)
    }

    /// Checks a page that was read.
    pub(super) fn parse<'b>(&self, id: u64, bytes: &'b [u8]) -> Result<Page<'b>, BoltError> {
        let damaged = |problem| BoltError::Page { page: id, problem };
        let page = Page::parse(bytes).map_err(damaged)?;
        // Older writers of bbolt take one page more if the last one is full.
        if bytes.len() as u64 > page.used as u64 / self.page_size * self.page_size + self.page_size {
            return Err(damaged("it has more pages than it needs"));
        }
        Ok(page)
    }
}

fn read_meta(file: &dyn ReadAt, size: u64, page: u64, at: u64) -> Result<Meta, BoltError> {
    let mut bytes = [0; META];
    if at + META as u64 > size {
        return Err(if page == 0 {
            BoltError::Foreign
        } else {
            BoltError::Short { has: size, needs: at * 2 }
        });
    }
    file.read_exact_at(&mut bytes, at)?;
    meta::parse(&bytes, page)
}
