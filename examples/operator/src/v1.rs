//! The newest version of the API: `address` is `host` and `port`, and a page has a language.

use kube_derive::CustomResource;
use restow_convert::SimpleConverter;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::status::PageStatus;
use crate::v1beta1;

/// A small web page.
#[derive(CustomResource, Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Page",
    namespaced,
    status = "PageStatus",
    printcolumn = r#"{"name": "URL", "type": "string", "jsonPath": ".status.url"}"#,
    crates(kube_core = "::kube_core")
)]
#[serde(rename_all = "camelCase")]
pub struct PageSpec {
    /// The first line.
    pub title: String,
    /// The text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The host that serves it.
    pub host: String,
    /// The port; 80 if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The language of the text.
    #[serde(default = "english")]
    pub language: String,
}

fn english() -> String {
    "en".to_owned()
}

/// The address of an older version cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("spec.address: {0:?} has no port behind the colon")]
pub struct InvalidAddress(String);

impl SimpleConverter for Page {
    type Older = v1beta1::Page;
    type Error = InvalidAddress;

    fn upgrade_from(older: v1beta1::Page) -> Result<Self, InvalidAddress> {
        let v1beta1::PageSpec { title, body, address } = older.spec;
        let (host, port) = match address.split_once(':') {
            None => (address, None),
            Some((host, port)) => match port.parse() {
                Ok(port) => (host.to_owned(), Some(port)),
                Err(_) => return Err(InvalidAddress(address)),
            },
        };
        let spec = PageSpec { title, body, host, port, language: english() };
        Ok(Self { metadata: older.metadata, spec, status: older.status })
    }

    fn downgrade(self) -> Result<v1beta1::Page, InvalidAddress> {
        let PageSpec { title, body, host, port, language: _ } = self.spec;
        let address = port.map_or_else(|| host.clone(), |port| format!("{host}:{port}"));
        let spec = v1beta1::PageSpec { title, body, address };
        Ok(v1beta1::Page { metadata: self.metadata, spec, status: self.status })
    }
}
