//! How objects are represented in answers: whole, or only their metadata.

use http::{HeaderMap, header};
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::ship::{KIND, Ship, Version};
use crate::ships::Page;

/// How an object is represented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Representation {
    /// The whole object, in this version.
    Whole(Version),
    /// As PartialObjectMetadata.
    Metadata,
}

impl Representation {
    /// The first representation in the Accept header that this server supports.
    pub fn of(headers: &HeaderMap, version: Version) -> Self {
        let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("*/*");
        let form = |clause: &str| {
            let mut parts = clause.split(';').map(str::trim);
            let json = matches!(parts.next(), Some("application/json" | "application/*" | "*/*"));
            match parts.find_map(|part| part.strip_prefix("as=")) {
                None if json => Some(Self::Whole(version)),
                Some("PartialObjectMetadata" | "PartialObjectMetadataList") if json => Some(Self::Metadata),
                _ => None,
            }
        };
        // JSON is the default.
        accepted.split(',').find_map(form).unwrap_or(Self::Whole(version))
    }

    /// Renders one ship.
    pub fn object(self, ship: &Ship) -> Result<Value, ApiError> {
        match self {
            Self::Whole(version) => ship.encode(version).map_err(ApiError::internal),
            Self::Metadata => Ok(json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": ship.metadata,
            })),
        }
    }

    /// A page of objects.
    pub fn page(self, page: &Page) -> Result<Value, ApiError> {
        let (kind, version) = match self {
            Self::Whole(version) => (format!("{KIND}List"), version.group_version().to_string()),
            Self::Metadata => ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned()),
        };
        let items: Vec<Value> = page.ships.iter().map(|ship| self.object(ship)).collect::<Result<_, _>>()?;
        let mut metadata = json!({"resourceVersion": page.revision.to_string()});
        if let Some(next) = &page.next {
            metadata["continue"] = json!(next);
            metadata["remainingItemCount"] = json!(page.remaining);
        }
        Ok(json!({"kind": kind, "apiVersion": version, "metadata": metadata, "items": items}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_supported_media_type_is_used() {
        let whole = Representation::Whole(Version::V1);
        for (accept, expected) in [
            ("", whole),
            ("application/json", whole),
            ("*/*", whole),
            ("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", Representation::Metadata),
            ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", Representation::Metadata),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", whole),
            ("application/vnd.kubernetes.protobuf;as=PartialObjectMetadata,application/json", whole),
            ("application/vnd.kubernetes.protobuf", whole),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            assert_eq!(Representation::of(&headers, Version::V1), expected, "{accept}");
        }
        assert_eq!(Representation::of(&HeaderMap::new(), Version::V1), whole);
    }
}
