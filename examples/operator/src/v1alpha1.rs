//! The first version of the API.

use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::status::PageStatus;

/// A small web page.
#[derive(CustomResource, Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(
    group = "example.com",
    version = "v1alpha1",
    kind = "Page",
    namespaced,
    status = "PageStatus",
    crates(kube_core = "::kube_core")
)]
#[serde(rename_all = "camelCase")]
pub struct PageSpec {
    /// The first line.
    pub heading: String,
    /// The text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Where it is served: a host, and a port if it is not 80, such as www.example.com:8080.
    pub address: String,
    /// Whether the heading blinks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blink: Option<bool>,
}
