//! A name for whoever holds the lock of a file.

use std::{fs::Metadata, os::unix::fs::MetadataExt as _};

use sha2::{Digest as _, Sha256};

/// Where Linux names the time since the machine was started.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// A name that only one process at a time can have: the one that has locked this file.
///
/// It is made of the file itself and of the boot of the machine, and kept nowhere: a copy of the file, or a clone of
/// the disk, has another one. None where the boot has no name.
pub fn instance(locked: &Metadata) -> Option<String> {
    let boot = std::fs::read_to_string(BOOT).ok()?;
    let hash = Sha256::digest(format!("{} {} {}", boot.trim(), locked.dev(), locked.ino()));
    Some(hash[..8].iter().map(|byte| format!("{byte:02x}")).collect())
}
