//! The rules for creating, updating and deleting objects, as pure functions.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use crate::error::ApiError;
use crate::ship::Ship;

/// The preconditions of a delete or an update.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// The uid that the stored object must have.
    pub uid: Option<String>,
    /// The resourceVersion that the stored object must have.
    pub resource_version: Option<String>,
}

impl Preconditions {
    fn of(metadata: &ObjectMeta) -> Self {
        Self { uid: metadata.uid.clone(), resource_version: metadata.resource_version.clone() }
    }

    /// Returns a conflict unless the object has this uid and resourceVersion.
    fn check(&self, current: &Ship) -> Result<(), ApiError> {
        let name = current.metadata.name.as_deref().unwrap_or_default();
        let differs = |wanted: &Option<String>, is: &Option<String>| {
            wanted.as_ref().is_some_and(|wanted| !wanted.is_empty() && Some(wanted) != is.as_ref())
        };
        if differs(&self.uid, &current.metadata.uid) {
            return Err(ApiError::conflict(name, "another object with this name exists, with another uid"));
        }
        if differs(&self.resource_version, &current.metadata.resource_version) {
            return Err(ApiError::conflict(name, "the object has been modified"));
        }
        Ok(())
    }
}

/// Prepares a new object for the store.
pub fn created(mut ship: Ship, namespace: &str, random: u128, now: Timestamp) -> Result<Ship, ApiError> {
    let metadata = &mut ship.metadata;
    if metadata.resource_version.as_ref().is_some_and(|version| !version.is_empty()) {
        return Err(ApiError::bad_request("resourceVersion should not be set on objects to be created"));
    }
    if metadata.namespace.as_ref().is_some_and(|given| !given.is_empty() && given != namespace) {
        return Err(ApiError::bad_request("the namespace of the object does not match that of the request"));
    }
    if let (None | Some(""), Some(prefix)) = (metadata.name.as_deref(), &metadata.generate_name) {
        metadata.name = Some(format!("{prefix}{:05x}", random & 0xf_ffff));
    }
    let name = metadata.name.as_deref().unwrap_or_default();
    if !is_name(name) {
        return Err(ApiError::invalid(format!(
            "metadata.name: {name:?} is not a lowercase RFC 1123 subdomain"
        )));
    }
    metadata.namespace = Some(namespace.to_owned());
    metadata.uid = Some(uid(random));
    metadata.creation_timestamp = Some(seconds(now));
    metadata.generation = Some(1);
    metadata.resource_version = None;
    metadata.deletion_timestamp = None;
    metadata.deletion_grace_period_seconds = None;
    Ok(ship)
}

/// Prepares an updated object for the store.
pub fn updated(current: &Ship, mut wanted: Ship) -> Result<Ship, ApiError> {
    Preconditions::of(&wanted.metadata).check(current)?;
    let (is, metadata) = (&current.metadata, &mut wanted.metadata);
    if metadata.name != is.name
        || metadata.namespace.as_ref().is_some_and(|given| Some(given) != is.namespace.as_ref())
    {
        return Err(ApiError::bad_request("the name of the object does not match that of the request"));
    }
    metadata.namespace.clone_from(&is.namespace);
    metadata.uid.clone_from(&is.uid);
    metadata.creation_timestamp.clone_from(&is.creation_timestamp);
    metadata.deletion_timestamp.clone_from(&is.deletion_timestamp);
    metadata.deletion_grace_period_seconds = is.deletion_grace_period_seconds;
    metadata.resource_version = None;
    metadata.generation =
        if wanted.spec == current.spec { is.generation } else { is.generation.map(|one| one + 1) };
    Ok(wanted)
}

/// The object with a deletion timestamp if it has finalizers; `None` if it can be removed now.
pub fn deleted(
    current: &Ship,
    preconditions: &Preconditions,
    now: Timestamp,
) -> Result<Option<Ship>, ApiError> {
    preconditions.check(current)?;
    if has_no_finalizers(current) {
        return Ok(None);
    }
    let mut ship = current.clone();
    ship.metadata.resource_version = None;
    if ship.metadata.deletion_timestamp.is_none() {
        ship.metadata.deletion_timestamp = Some(seconds(now));
        ship.metadata.deletion_grace_period_seconds = Some(0);
        ship.metadata.generation = ship.metadata.generation.map(|one| one + 1);
    }
    Ok(Some(ship))
}

/// Whether the object has no finalizers.
pub fn has_no_finalizers(ship: &Ship) -> bool {
    ship.metadata.finalizers.as_ref().is_none_or(Vec::is_empty)
}

/// Whether this is a valid name of an object or a namespace.
pub fn is_name(name: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let label = |label: &str| {
        let ends = [label.bytes().next(), label.bytes().last()];
        ends.iter().all(|end| end.is_some_and(alphanumeric))
            && label.bytes().all(|byte| alphanumeric(byte) || byte == b'-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

/// A random UUID.
fn uid(random: u128) -> String {
    let bits = random & !(0xf << 76) & !(0x3 << 62) | (4 << 76) | (2 << 62);
    let hex = format!("{bits:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

fn seconds(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ship::Spec;

    fn now() -> Timestamp {
        Timestamp::from_millisecond(1_700_000_000_500).unwrap()
    }

    fn named(name: &str) -> Ship {
        Ship {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            ..Ship::default()
        }
    }

    /// An object as it is read from the store.
    fn stored() -> Ship {
        let mut ship = created(named("a"), "x", 7, now()).unwrap();
        ship.metadata.resource_version = Some("5".to_owned());
        ship
    }

    #[test]
    fn the_server_sets_uid_namespace_generation_and_creation_time() {
        let ship = created(named("a"), "x", u128::MAX, now()).unwrap();
        assert_eq!(ship.metadata.uid.as_deref(), Some("ffffffff-ffff-4fff-bfff-ffffffffffff"));
        assert_eq!((ship.metadata.namespace.as_deref(), ship.metadata.generation), (Some("x"), Some(1)));
        assert_eq!(serde_json::json!(ship.metadata.creation_timestamp), "2023-11-14T22:13:20Z");
        let mut anonymous = Ship::default();
        anonymous.metadata.generate_name = Some("a-".to_owned());
        assert_eq!(
            created(anonymous, "x", 0xabcde, now()).unwrap().metadata.name.as_deref(),
            Some("a-abcde")
        );
    }

    #[test]
    fn names_are_validated() {
        for (name, expected) in [
            ("a", true),
            ("a-1.b", true),
            ("", false),
            ("A", false),
            ("-a", false),
            ("a-", false),
            ("a..b", false),
            ("a/b", false),
            ("a%2e", false),
        ] {
            assert_eq!(is_name(name), expected, "{name}");
            assert_eq!(created(named(name), "x", 0, now()).is_ok(), expected, "{name}");
        }
    }

    #[test]
    fn an_update_checks_the_uid_and_resource_version_that_it_has() {
        let current = stored();
        let uid = current.metadata.uid.as_deref();
        for (uid, version, expected) in [
            (None, None, true),
            (uid, Some("5"), true),
            (uid, None, true),
            (None, Some(""), true),
            (uid, Some("4"), false),
            (Some("other"), Some("5"), false),
        ] {
            let mut wanted = named("a");
            wanted.metadata.uid = uid.map(str::to_owned);
            wanted.metadata.resource_version = version.map(str::to_owned);
            assert_eq!(updated(&current, wanted).is_ok(), expected, "{uid:?} {version:?}");
        }
    }

    #[test]
    fn the_generation_counts_changes_of_the_spec() {
        let current = stored();
        let mut wanted = current.clone();
        wanted.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
        assert_eq!(updated(&current, wanted.clone()).unwrap().metadata.generation, Some(1));
        wanted.spec = Spec { tons: 1, ..Spec::default() };
        assert_eq!(updated(&current, wanted).unwrap().metadata.generation, Some(2));
    }

    #[test]
    fn an_object_with_finalizers_is_marked_and_kept() {
        let mut current = stored();
        let free = Preconditions::default();
        assert_eq!(deleted(&current, &free, now()).unwrap(), None);
        let stale = Preconditions { resource_version: Some("4".to_owned()), ..free.clone() };
        assert!(deleted(&current, &stale, now()).is_err());
        current.metadata.finalizers = Some(vec!["harbour".to_owned()]);
        let kept = deleted(&current, &free, now()).unwrap().unwrap();
        assert!(kept.metadata.deletion_timestamp.is_some());
        assert_eq!(deleted(&kept, &free, now()).unwrap().unwrap().metadata, kept.metadata);
        // The mark cannot be removed.
        let mut wanted = kept.clone();
        wanted.metadata.deletion_timestamp = None;
        assert!(updated(&kept, wanted).unwrap().metadata.deletion_timestamp.is_some());
    }
}
