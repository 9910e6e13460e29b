//! CRDs from YAML, for operators that keep their definitions in files.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Deserialize as _;
use serde_json::Value;

/// Why a YAML text has no CRDs.
#[derive(Debug, thiserror::Error)]
pub enum DefinitionsError {
    /// It is not YAML.
    #[error("the definitions are not YAML")]
    Yaml(#[from] serde_saphyr::Error),
    /// A document is something else.
    #[error("document {number} is {found}, not a CustomResourceDefinition of apiextensions.k8s.io/v1")]
    Kind {
        /// Which one, beginning with 1.
        number: usize,
        /// Its apiVersion and kind.
        found: String,
    },
    /// A CRD cannot be read.
    #[error("document {0} cannot be read")]
    Crd(usize, #[source] serde_json::Error),
}

/// Reads the CRDs of a YAML text, which may have several documents, such as a file that `include_str!` reads.
///
/// # Errors
/// When a document is no CRD.
pub fn definitions_from_yaml(text: &str) -> Result<Vec<CustomResourceDefinition>, DefinitionsError> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
    let filled = documents.into_iter().enumerate().filter(|(_, document)| !document.is_null());
    let read = |(index, document): (usize, Value)| {
        let field = |name: &str| document[name].as_str().unwrap_or("without a kind").to_owned();
        let found = format!("{} {}", field("apiVersion"), field("kind"));
        if found != "apiextensions.k8s.io/v1 CustomResourceDefinition" {
            return Err(DefinitionsError::Kind { number: index + 1, found });
        }
        CustomResourceDefinition::deserialize(document)
            .map_err(|error| DefinitionsError::Crd(index + 1, error))
    };
    filled.map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: pages.example.com}\n\
        spec:\n  group: example.com\n  scope: Namespaced\n  names: {kind: Page, plural: pages}\n  versions: []\n";

    #[test]
    fn every_document_is_a_crd() {
        let two = format!("{PAGE}---\n{PAGE}");
        assert_eq!(definitions_from_yaml(&two).unwrap().len(), 2);
        let wrong = format!("{PAGE}---\napiVersion: v1\nkind: Secret\n");
        let error = definitions_from_yaml(&wrong).unwrap_err().to_string();
        assert_eq!(
            error,
            "document 2 is v1 Secret, not a CustomResourceDefinition of apiextensions.k8s.io/v1"
        );
        assert!(definitions_from_yaml("a: [").is_err());
    }
}
