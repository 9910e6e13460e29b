//! In which form objects are shown: whole, or just their metadata.

use http::{HeaderMap, header};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::ship::{KIND, Ship, Version};
use crate::ships::Page;

/// A form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As they are, in this version.
    Whole(Version),
    /// As PartialObjectMetadata.
    Metadata,
}

impl Form {
    /// The first form the sender would take that this server knows.
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
        // Whoever takes none of them gets JSON, and may make of it what it likes.
        accepted.split(',').find_map(form).unwrap_or(Self::Whole(version))
    }

    /// One object.
    pub fn object(self, ship: &Ship) -> Result<Value, Failure> {
        match self {
            Self::Whole(version) => ship.encode(version).map_err(Failure::internal),
            Self::Metadata => Ok(json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": ship.metadata,
            })),
        }
    }

    /// A page of objects.
    pub fn page(self, page: &Page) -> Result<Value, Failure> {
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
    fn the_first_form_that_is_known() {
        let whole = Form::Whole(Version::V1);
        for (accept, expected) in [
            ("", whole),
            ("application/json", whole),
            ("*/*", whole),
            ("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", Form::Metadata),
            ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", Form::Metadata),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", whole),
            ("application/vnd.kubernetes.protobuf;as=PartialObjectMetadata,application/json", whole),
            ("application/vnd.kubernetes.protobuf", whole),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            assert_eq!(Form::of(&headers, Version::V1), expected, "{accept}");
        }
        assert_eq!(Form::of(&HeaderMap::new(), Version::V1), whole);
    }
}
