//! Names of objects that restow creates: valid, of bounded length, and unique for their occasion.

use sha2::{Digest as _, Sha256};

/// The longest name of an object that an API server accepts.
pub const MAX_NAME_LENGTH: usize = 253;

/// A name that begins with `stem` and ends with a digest of `occasion`; a stem that is too long is cut.
pub fn unique(stem: &str, occasion: &str) -> String {
    with_suffix(stem, '-', &digest(occasion))
}

/// The same, at most `most` bytes long.
pub fn unique_within(stem: &str, occasion: &str, most: usize) -> String {
    cut(stem, '-', &digest(occasion), most)
}

/// The name itself if it is short enough, else its beginning and a digest of the whole.
pub fn bounded(name: &str) -> String {
    within(name, MAX_NAME_LENGTH)
}

/// The name itself if it is at most `most` bytes long, else its beginning and a digest of the whole.
pub fn within(name: &str, most: usize) -> String {
    if name.len() <= most { name.to_owned() } else { cut(name, '-', &digest(name), most) }
}

/// A name that begins with `stem` and ends with `suffix`.
pub(crate) fn with_suffix(stem: &str, separator: char, suffix: &str) -> String {
    cut(stem, separator, suffix, MAX_NAME_LENGTH)
}

fn cut(stem: &str, separator: char, suffix: &str, most: usize) -> String {
    let room = most.saturating_sub(suffix.len() + 1);
    let end = (0..=room.min(stem.len())).rev().find(|end| stem.is_char_boundary(*end)).unwrap_or_default();
    // Each part of a name between dots begins and ends with a letter or digit.
    let stem = stem[..end].trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    format!("{stem}{separator}{suffix}")
}

/// The name of an Event about an object of this name; the number makes it unique.
pub fn of_event(object: &str, number: u128) -> String {
    with_suffix(object, '.', &format!("{number:x}"))
}

fn digest(text: &str) -> String {
    Sha256::digest(text)[..4].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the API server checks it: parts between dots, each of lower-case letters, digits and inner dashes.
    fn is_valid(name: &str) -> bool {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let part = |part: &str| {
            !part.is_empty() && !part.starts_with('-') && !part.ends_with('-') && part.chars().all(inner)
        };
        name.len() <= MAX_NAME_LENGTH && name.split('.').all(part)
    }

    #[test]
    fn an_object_name_is_valid_and_starts_with_its_resource() {
        let dotted = "a.".repeat(130);
        let dashed = format!("{}--{}", "a".repeat(242), "b".repeat(40));
        for stem in ["secrets", "widgets.example.com", &"w".repeat(249), &dotted, &dashed, &"x".repeat(1000)]
        {
            let (one, other) = (unique(stem, "one"), unique(stem, "other"));
            assert!(is_valid(&one), "{one}");
            assert_ne!(one, other);
            assert_eq!(one, unique(stem, "one"));
            assert!(one.starts_with(&stem[..7.min(stem.len())]), "{one}");
            assert!(is_valid(&bounded(stem.trim_end_matches('.'))), "{stem}");
            assert!(is_valid(&of_event(stem, u128::from(u64::MAX))), "{stem}");
            assert_ne!(of_event(stem, 1), of_event(stem, 2));
        }
        assert_eq!(unique("secrets", "one").len(), "secrets-12345678".len());
        assert_eq!(bounded(&"a".repeat(MAX_NAME_LENGTH)), "a".repeat(MAX_NAME_LENGTH), "it fits as it is");
    }
}
