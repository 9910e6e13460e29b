//! The two meta pages, from which everything in a file is reached.

use super::{
    error::BoltError,
    page::{HEADER, number},
};

const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;
const META_FLAG: u16 = 0x04;
/// The bytes of a meta before its checksum.
const CHECKED: usize = 56;
/// The bytes of a meta page that are read.
pub(super) const META: usize = HEADER + CHECKED + size_of::<u64>();

/// What a meta page says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) page_size: u32,
    /// The page of the bucket of buckets.
    pub(super) root: u64,
    /// The number of pages, used or free.
    pub(super) pages: u64,
    /// The transaction that wrote it.
    pub(super) transaction: u64,
}

/// Reads a meta page.
pub(super) fn parse(bytes: &[u8; META], page: u64) -> Result<Meta, BoltError> {
    let damaged = |problem| BoltError::Meta { page, problem };
    let (header, meta) = bytes.split_at(HEADER);
    let u32_at = |at: usize| number::<4>(meta, at).map(u32::from_le_bytes);
    let u64_at = |at: usize| number::<8>(meta, at).map(u64::from_le_bytes);
    let short = || damaged("it is cut short");
    if u32_at(0) != Some(MAGIC) {
        return Err(if page == 0 { BoltError::Foreign } else { damaged("it is not a meta page") });
    }
    if u32_at(4) != Some(VERSION) {
        return Err(damaged("it has another version of the format"));
    }
    if u64_at(CHECKED) != Some(fnv1a(&meta[..CHECKED])) {
        return Err(damaged("its checksum does not match"));
    }
    let id = number::<8>(header, 0).map(u64::from_le_bytes);
    let flags = number::<2>(header, 8).map(u16::from_le_bytes);
    if (id, flags) != (Some(page), Some(META_FLAG)) {
        return Err(damaged("it has the header of another page"));
    }
    let page_size = u32_at(8).ok_or_else(short)?;
    if !page_size.is_power_of_two() || !(1024..=1 << 20).contains(&page_size) {
        return Err(damaged("its page size is not possible"));
    }
    Ok(Meta {
        page_size,
        root: u64_at(16).ok_or_else(short)?,
        pages: u64_at(40).ok_or_else(short)?,
        transaction: u64_at(48).ok_or_else(short)?,
    })
}

/// The 64-bit FNV-1a hash, bbolt's checksum.
fn fnv1a(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::fnv1a;

    #[test]
    fn the_checksum_is_fnv_1a() {
        for (text, expected) in
            [("", 0xcbf2_9ce4_8422_2325), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8)]
        {
            assert_eq!(fnv1a(text.as_bytes()), expected, "{text}");
        }
    }
}
