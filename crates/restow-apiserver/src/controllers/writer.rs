//! Writes of controllers, each conditioned on what was read.

use http::{Request, header};
use kube::Client;
use serde_json::{Value, json};

use crate::object::patch::MERGE;

#[derive(Debug, PartialEq)]
pub(super) enum WriteResult {
    /// It succeeded, with this response.
    Done(Value),
    /// The object does not exist.
    Gone,
    /// The object has changed since it was read: the caller decides again.
    Changed,
}

/// Writes with the server's own client.
#[derive(Clone)]
pub(super) struct Writer(Client);

impl Writer {
    pub(super) fn new(client: Client) -> Self {
        Self(client)
    }

    /// Creates an object; the result is `Changed` if it exists.
    pub(super) async fn create(&self, path: &str, object: &Value) -> kube::Result<WriteResult> {
        self.send("POST", path, "application/json", object).await
    }

    /// Deletes an object, if it is unchanged since it was read.
    pub(super) async fn delete(
        &self,
        path: &str,
        metadata: &Value,
        policy: &str,
    ) -> kube::Result<WriteResult> {
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy,
            "preconditions": { "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"] },
        });
        self.send("DELETE", path, "application/json", &options).await
    }

    /// Changes the metadata of an object, if it is unchanged since it was read.
    pub(super) async fn patch(
        &self,
        path: &str,
        metadata: &Value,
        mut change: Value,
    ) -> kube::Result<WriteResult> {
        for field in ["uid", "resourceVersion"] {
            change[field] = metadata[field].clone();
        }
        self.send("PATCH", path, MERGE, &json!({ "metadata": change })).await
    }

    /// Replaces an object.
    pub(super) async fn replace(&self, path: &str, object: &Value) -> kube::Result<WriteResult> {
        self.send("PUT", path, "application/json", object).await
    }

    async fn send(&self, method: &str, path: &str, kind: &str, body: &Value) -> kube::Result<WriteResult> {
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, kind);
        let request = request.body(body.to_string().into_bytes()).map_err(kube::Error::HttpError)?;
        match self.0.request::<Value>(request).await {
            Ok(answer) => Ok(WriteResult::Done(answer)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(WriteResult::Gone),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(WriteResult::Changed),
            Err(error) => Err(error),
        }
    }
}
