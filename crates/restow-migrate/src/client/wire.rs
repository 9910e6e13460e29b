//! The parts of Kubernetes' answers that restow reads; everything else is skipped while parsing.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

/// A page of PartialObjectMetadata. A document that lacks one of these fields is not a list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct List<'a> {
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    pub(crate) metadata: ListMeta,
    /// Servers write `null` for none; a function of its own makes the field required.
    #[serde(borrow, deserialize_with = "present")]
    pub(crate) items: Option<Vec<Object<'a>>>,
}

fn present<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::deserialize(deserializer)
}

/// A document that is not a list: the fields that can be shown without showing an object's content.
#[derive(Default, Deserialize)]
struct Other {
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    error: Option<serde_json::Value>,
}

impl<'a> List<'a> {
    /// Reads a list, or returns what the document is instead.
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, String> {
        match serde_json::from_slice::<Self>(body) {
            Ok(list) if !list.api_version.is_empty() && list.kind.ends_with("List") => Ok(list),
            Ok(list) => Err(format!("the server's answer is not a list, but of kind {:?}", list.kind)),
            Err(error) if error.is_eof() => Err(format!("the server's answer is cut short: {error}")),
            Err(error) => Err(format!("the server's answer is not a list: {}", instead(body, &error))),
        }
    }
}

fn instead(body: &[u8], error: &serde_json::Error) -> String {
    match serde_json::from_slice::<Other>(body) {
        Ok(Other { kind: Some(kind), message: Some(message), .. }) => format!("{kind}: {message}"),
        Ok(Other { message: Some(message), .. }) => message,
        Ok(Other { error: Some(error), .. }) => error.to_string(),
        Ok(Other { kind: Some(kind), .. }) => format!("{kind}: {error}"),
        Ok(_) => error.to_string(),
        // JSON may hold an object's content.
        Err(_) if matches!(body.first(), Some(b'{' | b'[')) => error.to_string(),
        Err(_) => Status::read(body).message,
    }
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
    /// Empty in lists.
    #[serde(borrow, default)]
    pub(crate) kind: Cow<'a, str>,
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
    pub(crate) deletion_timestamp: Option<Cow<'a, str>>,
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

#[derive(Default, Deserialize)]
pub(crate) struct Status {
    #[serde(default)]
    pub(crate) kind: String,
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

/// The object of a bookmark.
#[derive(Deserialize)]
pub(crate) struct Bookmark {
    pub(crate) metadata: BookmarkMeta,
}

/// The metadata of a bookmark.
#[derive(Deserialize)]
pub(crate) struct BookmarkMeta {
    #[serde(default)]
    pub(crate) annotations: BTreeMap<String, String>,
}

impl Status {
    /// Reads a Status. A body that is not a Status becomes its message.
    pub(crate) fn read(body: &[u8]) -> Self {
        serde_json::from_slice(body).unwrap_or_else(|_| Self {
            message: String::from_utf8_lossy(&body[..body.len().min(300)]).trim().to_owned(),
            ..Self::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::List;

    #[test]
    fn a_document_that_is_not_a_list_is_rejected() {
        let whole = r#"{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a"}}]}"#;
        for (what, body, expected) in [
            ("a page", whole.to_owned(), Ok(1)),
            ("an empty page", whole.replace(r#"[{"metadata":{"name":"a"}}]"#, "[]"), Ok(0)),
            ("a page without objects", whole.replace(r#"[{"metadata":{"name":"a"}}]"#, "null"), Ok(0)),
            ("a list of whole objects", whole.replace("PartialObjectMetadata", "Widget"), Ok(1)),
            (
                "no items",
                whole.replace(r#","items":[{"metadata":{"name":"a"}}]"#, ""),
                Err("missing field `items`"),
            ),
            (
                "no metadata",
                whole.replace(r#""metadata":{"resourceVersion":"7"},"#, ""),
                Err("missing field `metadata`"),
            ),
            (
                "no kind",
                whole.replace(r#""kind":"PartialObjectMetadataList","#, ""),
                Err("missing field `kind`"),
            ),
            ("no apiVersion", whole.replace("meta.k8s.io/v1", ""), Err("not a list")),
            ("one object", whole.replace("MetadataList", "Metadata"), Err("PartialObjectMetadata")),
            ("an empty object", "{}".to_owned(), Err("not a list")),
            ("nothing", String::new(), Err("cut short")),
            ("null", "null".to_owned(), Err("not a list")),
            (
                "a Status",
                r#"{"kind":"Status","apiVersion":"v1","metadata":{},"message":"no"}"#.to_owned(),
                Err("Status: no"),
            ),
            ("an error", r#"{"error":"gateway timeout"}"#.to_owned(), Err("gateway timeout")),
            ("HTML", "<html>log in</html>".to_owned(), Err("log in")),
            ("half a page", whole[..whole.len() / 2].to_owned(), Err("cut short")),
        ] {
            let read = List::read(body.as_bytes()).map(|list| list.items.unwrap_or_default().len());
            match (read, expected) {
                (Ok(read), Ok(expected)) => assert_eq!(read, expected, "{what}"),
                (Err(read), Err(expected)) => assert!(read.contains(expected), "{what}: {read}"),
                (read, expected) => panic!("{what}: {read:?} and not {expected:?}"),
            }
        }
    }

    /// The write refuses such an object later.
    #[test]
    fn an_object_without_all_metadata_stays_in_the_list() {
        let body = br#"{"kind":"WidgetList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"a"}},{"metadata":{}}]}"#;
        let names = List::read(body).map(|list| list.items.unwrap_or_default().len());
        assert_eq!(names, Ok(2));
    }
}
