//! Visits all entries of a bucket from the last key to the first, and checks that they can be all of them.

use super::{
    database::{Bucket, Database},
    error::BoltError,
    page::{Kind, Page},
};

/// The deepest tree. Each level multiplies the number of keys by at least two.
const MAX_DEPTH: usize = 32;

/// An entry of a bucket.
pub(crate) struct Entry<'b> {
    pub(crate) key: &'b [u8],
    pub(crate) value: &'b [u8],
    /// Whether the value is a bucket itself.
    pub(crate) is_bucket: bool,
}

/// One walk through a bucket.
pub(crate) struct Walk<'d> {
    database: &'d Database<'d>,
    /// A bit for each page that was visited.
    seen: Vec<u64>,
    /// All keys that follow must be smaller.
    last: Option<Vec<u8>>,
    /// One for each level, so that memory is used again.
    buffers: Vec<Vec<u8>>,
}

/// Called for each entry; an error ends the walk.
type Visit<'v, E> = &'v mut dyn FnMut(Entry<'_>) -> Result<(), E>;

impl<'d> Walk<'d> {
    pub(crate) fn new(database: &'d Database<'d>) -> Self {
        let words = usize::try_from(database.pages / 64 + 1).unwrap_or_default();
        Self { database, seen: vec![0; words], last: None, buffers: vec![Vec::new(); MAX_DEPTH] }
    }

    /// Visits the entries of a bucket, from the last key to the first.
    pub(crate) fn back<E: From<BoltError>>(mut self, bucket: &Bucket, visit: Visit<'_, E>) -> Result<(), E> {
        match bucket {
            Bucket::Tree(root) => self.page(*root, &[], 0, visit),
            Bucket::Inline(bytes) => {
                let damaged = |problem| BoltError::Page { page: 0, problem };
                let page = Page::parse(bytes).map_err(damaged)?;
                if page.kind != Kind::Leaf || page.used != bytes.len() {
                    return Err(damaged("it is not a page of a small bucket").into());
                }
                self.leaf(0, &page, &[], visit)
            }
        }
    }

    fn page<E: From<BoltError>>(
        &mut self,
        id: u64,
        lowest: &[u8],
        depth: usize,
        visit: Visit<'_, E>,
    ) -> Result<(), E> {
        let damaged = |problem| BoltError::Page { page: id, problem };
        let buffer = self.buffers.get_mut(depth).ok_or_else(|| damaged("the tree is too deep"))?;
        let mut buffer = std::mem::take(buffer);
        let run = self.database.read(id, &mut buffer)?;
        for page in id..id + run {
            self.visit_once(page)?;
        }
        let page = self.database.parse(id, &buffer)?;
        if page.count == 0 && (depth > 0 || page.kind == Kind::Branch) {
            return Err(damaged("it is empty").into());
        }
        match page.kind {
            Kind::Leaf => self.leaf(id, &page, lowest, visit)?,
            Kind::Branch => {
                for index in (0..page.count).rev() {
                    let key = page.key(index);
                    if index == 0 && key < lowest || index > 0 && page.key(index - 1) >= key {
                        return Err(damaged("its keys are out of order").into());
                    }
                    self.page(page.child(index), key, depth + 1, visit)?;
                    self.set_last(key);
                }
            }
        }
        self.buffers[depth] = buffer;
        Ok(())
    }

    fn leaf<E: From<BoltError>>(
        &mut self,
        id: u64,
        page: &Page<'_>,
        lowest: &[u8],
        visit: Visit<'_, E>,
    ) -> Result<(), E> {
        for index in (0..page.count).rev() {
            let key = page.key(index);
            if key < lowest || self.last.as_deref().is_some_and(|last| key >= last) {
                return Err(BoltError::Page { page: id, problem: "its keys are out of order" }.into());
            }
            visit(Entry { key, value: page.value(index), is_bucket: page.is_bucket(index) })?;
            self.set_last(key);
        }
        Ok(())
    }

    fn set_last(&mut self, key: &[u8]) {
        let last = self.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
    }

    /// Refuses a page that was visited before: a loop would never end, and entries would be counted twice.
    fn visit_once(&mut self, page: u64) -> Result<(), BoltError> {
        let word = usize::try_from(page / 64).ok().and_then(|word| self.seen.get_mut(word));
        let word = word.ok_or(BoltError::Page { page, problem: "there is no such page" })?;
        let bit = 1 << (page % 64);
        if *word & bit != 0 {
            return Err(BoltError::Page { page, problem: "it is used twice" });
        }
        *word |= bit;
        Ok(())
    }
}
