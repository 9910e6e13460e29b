//! The resource `ships` and its versions.
//!
//! In memory there is one type. v1 calls the home port `port`, v2 calls it `homePort`; the conversion loses nothing.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use restow_core::resource::name::{GroupResource, GroupVersion};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The API group.
pub const GROUP: &str = "fleet.example.com";
/// The resource's name in paths.
pub const RESOURCE: &str = "ships";
/// The kind of its objects.
pub const KIND: &str = "Ship";

/// A version of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Version {
    /// The old one.
    V1,
    /// The new one.
    V2,
}

impl Version {
    /// All of them, the preferred one first.
    pub const ALL: [Self; 2] = [Self::V2, Self::V1];

    /// The name of the version.
    pub fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        }
    }

    /// The version with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.name() == name)
    }

    /// The version with its group.
    pub fn group_version(self) -> GroupVersion {
        GroupVersion::new(GROUP, self.name())
    }
}

/// The resource without a version.
pub fn resource() -> GroupResource {
    GroupResource::new(GROUP, RESOURCE)
}

/// A ship, independent of its version.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ship {
    /// The object's metadata.
    pub metadata: ObjectMeta,
    /// The specification.
    pub spec: Spec,
}

/// The specification of a ship, as in v2.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Spec {
    /// Where the ship is registered.
    #[serde(default)]
    pub home_port: String,
    /// The capacity in tons.
    #[serde(default)]
    pub tons: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SpecV1 {
    #[serde(default)]
    port: String,
    #[serde(default)]
    tons: u64,
}

impl From<SpecV1> for Spec {
    fn from(v1: SpecV1) -> Self {
        Self { home_port: v1.port, tons: v1.tons }
    }
}

impl From<&Spec> for SpecV1 {
    fn from(spec: &Spec) -> Self {
        Self { port: spec.home_port.clone(), tons: spec.tons }
    }
}

/// An object whose specification is not parsed yet.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    api_version: String,
    kind: String,
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Value,
}

/// Why an object is not a ship.
#[derive(Debug, thiserror::Error)]
pub enum Undecodable {
    /// It is malformed.
    #[error("cannot parse the object: {0}")]
    Malformed(serde_json::Error),
    /// It is of another kind or version.
    #[error("{api_version}, Kind={kind} is not served")]
    Unknown {
        /// As the body states it.
        api_version: String,
        /// As the body states it.
        kind: String,
    },
}

impl Ship {
    /// Decodes an object of any version, and returns the version.
    pub fn decode(object: Value) -> Result<(Version, Self), Undecodable> {
        let wire: Wire = serde_json::from_value(object).map_err(Undecodable::Malformed)?;
        let version =
            Version::ALL.into_iter().find(|known| known.group_version().to_string() == wire.api_version);
        let Some(version) = version.filter(|_| wire.kind == KIND) else {
            return Err(Undecodable::Unknown { api_version: wire.api_version, kind: wire.kind });
        };
        let given = if wire.spec.is_null() { Value::Object(serde_json::Map::new()) } else { wire.spec };
        let spec = match version {
            Version::V1 => serde_json::from_value::<SpecV1>(given).map(Spec::from),
            Version::V2 => serde_json::from_value(given),
        };
        Ok((version, Self { metadata: wire.metadata, spec: spec.map_err(Undecodable::Malformed)? }))
    }

    /// Encodes the object in a version.
    pub fn encode(&self, version: Version) -> Result<Value, serde_json::Error> {
        let spec = match version {
            Version::V1 => serde_json::to_value(SpecV1::from(&self.spec)),
            Version::V2 => serde_json::to_value(&self.spec),
        };
        serde_json::to_value(Wire {
            api_version: version.group_version().to_string(),
            kind: KIND.to_owned(),
            metadata: self.metadata.clone(),
            spec: spec?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ship(version: &str, spec: Value) -> Value {
        json!({
            "apiVersion": format!("{GROUP}/{version}"), "kind": KIND, "metadata": {"name": "a"}, "spec": spec,
        })
    }

    #[test]
    fn each_version_has_its_own_name_for_the_port() {
        let v1 = ship("v1", json!({"port": "Kiel", "tons": 7}));
        let v2 = ship("v2", json!({"homePort": "Kiel", "tons": 7}));
        for (written, version) in [(&v1, Version::V1), (&v2, Version::V2)] {
            let (read_as, read) = Ship::decode(written.clone()).unwrap();
            assert_eq!(read_as, version);
            assert_eq!(read.encode(Version::V1).unwrap(), v1);
            assert_eq!(read.encode(Version::V2).unwrap(), v2);
        }
    }

    #[test]
    fn objects_that_are_not_ships_are_rejected() {
        for object in [
            json!(null),
            json!([]),
            json!({"kind": KIND}),
            json!({"apiVersion": "fleet.example.com/v3", "kind": KIND}),
            json!({"apiVersion": "fleet.example.com/v1", "kind": "Boat"}),
            ship("v1", json!({"homePort": "Kiel"})),
            ship("v2", json!({"port": "Kiel"})),
            ship("v2", json!({"tons": -1})),
            ship("v2", json!("Kiel")),
        ] {
            assert!(Ship::decode(object.clone()).is_err(), "{object}");
        }
        assert_eq!(Ship::decode(ship("v1", Value::Null)).unwrap().1.spec, Spec::default());
    }
}
