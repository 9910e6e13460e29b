//! CustomResourceDefinitions: defaults, validation, and what a server serves for them.

pub(crate) mod conditions;
mod conversion;
mod defaults;
mod fields;
mod standard;
mod structural;
pub(crate) mod validate;
mod warnings;

use serde_json::Value;

use crate::object::schema::Schema;
use crate::object::table::column::Column;
pub(crate) use defaults::{prepare_create, prepare_update, set_defaults};
use fields::{flag, list, text, texts};
pub(crate) use warnings::warnings;

/// The names of a custom resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the API")]
pub(crate) struct Names {
    pub plural: String,
    pub singular: String,
    pub kind: String,
    pub list_kind: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
}

/// A parsed definition.
#[derive(Clone, Debug)]
pub(crate) struct Definition {
    /// The API group.
    pub group: String,
    /// Whether the objects are in namespaces.
    pub namespaced: bool,
    /// All versions, in the order of the definition.
    pub versions: Vec<Version>,
    /// How objects are converted between versions.
    pub conversion: Conversion,
    /// Whether unknown fields of all objects are kept (`preserveUnknownFields`).
    pub preserve_unknown: bool,
}

/// One version of a custom resource.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    /// The name, such as `v1beta1`.
    pub name: String,
    /// Whether it is served.
    pub served: bool,
    /// Whether objects are stored in it.
    pub storage: bool,
    /// The warning to clients that use the version.
    pub deprecation_warning: Option<String>,
    /// The schema of its objects.
    pub schema: Schema,
    /// The same, for field managers.
    pub apply: restow_apply::Schema,
    /// Whether it has a status subresource.
    pub status: bool,
    /// The columns of a table, beside the name.
    pub columns: Vec<Column>,
    /// The JSON paths by which objects can be selected.
    pub selectable_fields: Vec<String>,
}

/// How objects are converted between versions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Conversion {
    /// Only their apiVersion changes.
    None,
    /// A webhook converts them.
    Webhook {
        /// The `url` or `service`, and the `caBundle`.
        client_config: Value,
        /// The supported versions of ConversionReview.
        review_versions: Vec<String>,
    },
}

impl Definition {
    /// Parses a valid definition. Malformed parts are skipped.
    pub(crate) fn parse(definition: &Value) -> Self {
        let empty = Value::Null;
        let spec = definition.get("spec").unwrap_or(&empty);
        let group = text(spec, "group");
        let names = Names::parse(spec.get("names").unwrap_or(&empty));
        let preserve_unknown = flag(spec, "preserveUnknownFields");
        let versions = list(spec, "versions")
            .iter()
            .map(|version| Version::parse(version, &group, &names.kind, preserve_unknown));
        Self {
            namespaced: text(spec, "scope") == "Namespaced",
            versions: versions.collect(),
            conversion: Conversion::parse(spec.get("conversion").unwrap_or(&empty)),
            preserve_unknown,
            group,
        }
    }

    /// The version objects are stored in.
    pub(crate) fn storage_version(&self) -> Option<&Version> {
        self.versions.iter().find(|version| version.storage)
    }

    /// The versions that are served.
    pub(crate) fn served(&self) -> impl Iterator<Item = &Version> {
        self.versions.iter().filter(|version| version.served)
    }
}

impl Names {
    /// Parses `spec.names` or `status.acceptedNames`.
    pub(crate) fn parse(names: &Value) -> Self {
        Self {
            plural: text(names, "plural"),
            singular: text(names, "singular"),
            kind: text(names, "kind"),
            list_kind: text(names, "listKind"),
            short_names: texts(names, "shortNames"),
            categories: texts(names, "categories"),
        }
    }
}

impl Version {
    fn parse(version: &Value, group: &str, kind: &str, preserve_unknown: bool) -> Self {
        let empty = Value::Null;
        let name = text(version, "name");
        let warning = flag(version, "deprecated").then(|| match text(version, "deprecationWarning") {
            warning if warning.is_empty() => format!("{group}/{name} {kind} is deprecated"),
            warning => warning,
        });
        let subresources = version.get("subresources").unwrap_or(&empty);
        let schema = version.get("schema").and_then(|schema| schema.get("openAPIV3Schema"));
        Self {
            served: flag(version, "served"),
            storage: flag(version, "storage"),
            deprecation_warning: warning,
            schema: Schema::parse(schema.unwrap_or(&empty)),
            apply: restow_apply::Schema::of_custom_resource(schema.unwrap_or(&empty), preserve_unknown),
            status: subresources.get("status").is_some_and(|status| !status.is_null()),
            columns: list(version, "additionalPrinterColumns").iter().map(Column::parse).collect(),
            selectable_fields: list(version, "selectableFields")
                .iter()
                .map(|one| text(one, "jsonPath"))
                .collect(),
            name,
        }
    }
}

impl Conversion {
    fn parse(conversion: &Value) -> Self {
        if text(conversion, "strategy") != "Webhook" {
            return Self::None;
        }
        let webhook = conversion.get("webhook");
        let part = |key| webhook.and_then(|webhook| webhook.get(key));
        Self::Webhook {
            client_config: part("clientConfig").cloned().unwrap_or_default(),
            review_versions: webhook
                .map(|webhook| texts(webhook, "conversionReviewVersions"))
                .unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests;
