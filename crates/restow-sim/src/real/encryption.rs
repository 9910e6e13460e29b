//! The encryption configurations of real control planes.

use restow_lab::Encryption;

/// The encryption configuration of a round. Each plan that rotates keys starts with the configuration of the last one. All
/// servers always know both keys, as in every correct rotation.
pub(super) fn configuration(round: usize) -> Encryption {
    Encryption::aescbc(&[&key(round), &key(round + 1)])
}

/// The key that encrypts in a round.
pub(super) fn key(round: usize) -> String {
    format!("key{}", round % 2)
}
