//! The second version of the API: `heading` is called `title`, and nothing blinks any more.

use std::convert::Infallible;

use kube_derive::CustomResource;
use restow_convert::SimpleConverter;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::status::PageStatus;
use crate::v1alpha1;

/// A small web page.
#[derive(CustomResource, Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(
    group = "example.com",
    version = "v1beta1",
    kind = "Page",
    namespaced,
    status = "PageStatus",
    crates(kube_core = "::kube_core")
)]
#[serde(rename_all = "camelCase")]
pub struct PageSpec {
    /// The first line.
    pub title: String,
    /// The text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Where it is served: a host, and a port if it is not 80, such as www.example.com:8080.
    pub address: String,
}

impl SimpleConverter for Page {
    type Older = v1alpha1::Page;
    type Error = Infallible;

    fn upgrade_from(older: v1alpha1::Page) -> Result<Self, Infallible> {
        // `blink` is not mentioned: the chain keeps what this version cannot express.
        let v1alpha1::PageSpec { heading, body, address, blink: _ } = older.spec;
        Ok(Self {
            metadata: older.metadata,
            spec: PageSpec { title: heading, body, address },
            status: older.status,
        })
    }

    fn downgrade(self) -> Result<v1alpha1::Page, Infallible> {
        let PageSpec { title, body, address } = self.spec;
        Ok(v1alpha1::Page {
            metadata: self.metadata,
            spec: v1alpha1::PageSpec { heading: title, body, address, blink: None },
            status: self.status,
        })
    }
}
