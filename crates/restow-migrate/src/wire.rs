//! The parts of Kubernetes' answers that restow reads; everything else is skipped while parsing.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// A page of PartialObjectMetadata.
#[derive(Default, Deserialize)]
pub(crate) struct List<'a> {
    #[serde(default)]
    pub(crate) metadata: ListMeta,
    /// Servers write `null` for none.
    #[serde(borrow, default)]
    pub(crate) items: Option<Vec<Object<'a>>>,
}

/// The metadata of a list.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListMeta {
    #[serde(rename = "continue")]
    pub(crate) next: Option<String>,
    pub(crate) resource_version: Option<String>,
    pub(crate) remaining_item_count: Option<u64>,
}

/// One PartialObjectMetadata.
#[derive(Deserialize)]
pub(crate) struct Object<'a> {
    #[serde(borrow)]
    pub(crate) metadata: ObjectMeta<'a>,
}

/// The metadata of an object.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ObjectMeta<'a> {
    #[serde(borrow, default)]
    pub(crate) namespace: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) name: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) uid: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) resource_version: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) managed_fields: Option<&'a RawValue>,
}

/// The version an entry of managedFields was made through.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ManagedFieldsEntry<'a> {
    #[serde(borrow, default)]
    pub(crate) api_version: Cow<'a, str>,
}

/// A Status.
#[derive(Default, Deserialize)]
pub(crate) struct Status {
    #[serde(default)]
    pub(crate) reason: String,
    #[serde(default)]
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) metadata: ListMeta,
    #[serde(default)]
    pub(crate) details: Option<Details>,
}

/// The details of a Status.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Details {
    pub(crate) retry_after_seconds: Option<u64>,
    #[serde(default)]
    pub(crate) causes: Vec<Cause>,
}

/// One cause of a Status.
#[derive(Deserialize)]
pub(crate) struct Cause {
    #[serde(default)]
    pub(crate) reason: String,
}

/// One event of a watch.
#[derive(Deserialize)]
pub(crate) struct Event<'a> {
    #[serde(rename = "type")]
    pub(crate) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) object: &'a RawValue,
}

impl Status {
    /// Reads a Status, or takes a body that is none for its message.
    pub(crate) fn read(body: &[u8]) -> Self {
        serde_json::from_slice(body).unwrap_or_else(|_| Self {
            message: String::from_utf8_lossy(&body[..body.len().min(300)]).trim().to_owned(),
            ..Self::default()
        })
    }
}
