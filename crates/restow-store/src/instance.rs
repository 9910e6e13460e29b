//! A name for the process that holds the lock of a file.

use std::{fs::Metadata, os::unix::fs::MetadataExt as _};

use sha2::{Digest as _, Sha256};

/// The id of the current boot on Linux.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// A name that only one process at a time can have: the one that has locked this file.
///
/// It is computed from the file's device and inode and from the boot id, and not stored, so a copy of the file or of the
/// disk has another name. `None` without a boot id.
pub fn instance(locked: &Metadata) -> Option<String> {
    let boot = std::fs::read_to_string(BOOT).ok()?;
    let hash = Sha256::digest(format!("{} {} {}", boot.trim(), locked.dev(), locked.ino()));
    Some(hash[..8].iter().map(|byte| format!("{byte:02x}")).collect())
}
