//! The status of a page, which is the same in all versions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the operator says about a page.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PageStatus {
    /// Where the page is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}
