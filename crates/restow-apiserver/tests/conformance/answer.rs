//! Responses, with short ways to state expectations.

use std::ops::Index;

use http::response::Parts;
use serde_json::Value;

/// A complete response.
#[derive(Debug)]
pub(crate) struct Answer {
    asked: String,
    head: Parts,
    /// The body: a string if it is not JSON.
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) fn new(asked: String, head: Parts, bytes: &[u8]) -> Self {
        let text = || String::from_utf8_lossy(bytes).into_owned().into();
        let body = serde_json::from_slice(bytes).unwrap_or_else(|_| text());
        Self { asked, head, body }
    }

    pub(crate) fn code(&self) -> u16 {
        self.head.status.as_u16()
    }

    /// A header; empty if it is missing.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.head.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The response to a request that must succeed.
    pub(crate) fn ok(self) -> Self {
        assert!(self.head.status.is_success(), "{}: {}", self.asked, self.line());
        self
    }

    /// The code, and the reason and message of an error: `404 NotFound: pods "a" not found`.
    pub(crate) fn line(&self) -> String {
        let (code, body) = (self.code(), &self.body);
        match (body["kind"].as_str(), body["status"].as_str()) {
            (Some("Status"), Some("Failure")) => {
                let (reason, message) = (body["reason"].as_str(), body["message"].as_str());
                format!("{code} {}: {}", reason.unwrap_or("-"), message.unwrap_or("-"))
            }
            _ if code >= 300 => format!("{code} {}", body.as_str().unwrap_or("?").trim()),
            _ => code.to_string(),
        }
    }

    /// The code and reason, where no client relies on the message.
    pub(crate) fn reason(&self) -> String {
        format!("{} {}", self.code(), self.body["reason"].as_str().unwrap_or("-"))
    }

    pub(crate) fn resource_version(&self) -> String {
        self["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()
    }

    /// The resourceVersion as a number.
    pub(crate) fn revision(&self) -> u64 {
        revision(&self.resource_version())
    }

    pub(crate) fn uid(&self) -> String {
        self["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn generation(&self) -> Option<u64> {
        self["metadata"]["generation"].as_u64()
    }

    /// The names of a list's items, in order.
    pub(crate) fn names(&self) -> String {
        let items = self["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        let names: Vec<&str> = items.iter().filter_map(|item| item["metadata"]["name"].as_str()).collect();
        names.join(" ")
    }
}

/// A resourceVersion as a number.
pub(crate) fn revision(resource_version: &str) -> u64 {
    resource_version.parse().unwrap()
}

impl Index<&str> for Answer {
    type Output = Value;

    fn index(&self, key: &str) -> &Value {
        &self.body[key]
    }
}
