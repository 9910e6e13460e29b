//! Finds a bucket by its name.

use super::{
    database::{Bucket, Database},
    error::BoltError,
    page::{HEADER, number},
    walk::Walk,
};

/// The bytes of a bucket before its own page, if it has one.
const BUCKET: usize = 16;

/// Finds a bucket; `None` if there is no such name.
pub(crate) fn find(database: &Database<'_>, name: &str) -> Result<Option<Bucket>, BoltError> {
    let mut found = None;
    Walk::new(database).back(&Bucket::Tree(database.root), &mut |entry| -> Result<(), BoltError> {
        if entry.key == name.as_bytes() {
            let damaged = |problem| BoltError::Bucket { bucket: name.to_owned(), problem };
            if !entry.is_bucket {
                return Err(damaged("it is not a bucket"));
            }
            let root = number(entry.value, 0).map(u64::from_le_bytes);
            found = match (root, entry.value.get(BUCKET..)) {
                (Some(0), Some(page)) if page.len() >= HEADER => Some(Bucket::Inline(page.to_vec())),
                (Some(root), Some([])) if root != 0 => Some(Bucket::Tree(root)),
                _ => return Err(damaged("its root is cut short or too long")),
            };
        }
        Ok(())
    })?;
    Ok(found)
}
