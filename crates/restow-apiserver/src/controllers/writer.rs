//! Writes of controllers, each on condition of what was read.

use http::{Request, header};
use kube::Client;
use serde_json::{Value, json};

use crate::object::patch::MERGE;

/// What became of a write.
#[derive(Debug, PartialEq)]
pub(super) enum Wrote {
    /// It is done; this was answered.
    Done(Value),
    /// There is no such object.
    Gone,
    /// The object is another one than was read: whoever hears of that decides anew.
    Changed,
}

/// Writes by the server's own client.
#[derive(Clone)]
pub(super) struct Writer(Client);

impl Writer {
    pub(super) fn new(client: Client) -> Self {
        Self(client)
    }

    /// Creates an object; the answer is `Changed` if it exists already.
    pub(super) async fn create(&self, path: &str, object: &Value) -> kube::Result<Wrote> {
        self.send("POST", path, "application/json", object).await
    }

    /// Deletes an object as it was read.
    pub(super) async fn delete(&self, path: &str, metadata: &Value, policy: &str) -> kube::Result<Wrote> {
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy,
            "preconditions": { "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"] },
        });
        self.send("DELETE", path, "application/json", &options).await
    }

    /// Changes the metadata of an object as it was read.
    pub(super) async fn patch(&self, path: &str, metadata: &Value, mut change: Value) -> kube::Result<Wrote> {
        for field in ["uid", "resourceVersion"] {
            change[field] = metadata[field].clone();
        }
        self.send("PATCH", path, MERGE, &json!({ "metadata": change })).await
    }

    /// Replaces an object.
    pub(super) async fn replace(&self, path: &str, object: &Value) -> kube::Result<Wrote> {
        self.send("PUT", path, "application/json", object).await
    }

    async fn send(&self, method: &str, path: &str, kind: &str, body: &Value) -> kube::Result<Wrote> {
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, kind);
        let request = request.body(body.to_string().into_bytes()).map_err(kube::Error::HttpError)?;
        match self.0.request::<Value>(request).await {
            Ok(answer) => Ok(Wrote::Done(answer)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Wrote::Gone),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(Wrote::Changed),
            Err(error) => Err(error),
        }
    }
}
