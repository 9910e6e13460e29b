//! Random uids.

/// A random uid: a UUID of version 4. Its bits come from `fastrand`, so that a simulation can repeat them.
pub(crate) fn uid() -> String {
    uuid::Builder::from_random_bytes(fastrand::u128(..).to_be_bytes()).into_uuid().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_are_random_uuids_of_version_4() {
        assert_ne!(uid(), uid());
        for _ in 0..100 {
            let uid = uid();
            assert_eq!(uid.len(), 36);
            assert_eq!(&uid[14..15], "4");
            assert!(matches!(&uid[19..20], "8" | "9" | "a" | "b"), "{uid}");
        }
    }
}
