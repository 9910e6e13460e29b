//! The few requests of a version test.

use http::{Method, Request};
use serde_json::{Value, json};

use crate::versions::StepsError;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Requests for one kind and its CRD.
pub(super) struct Requests {
    client: kube::Client,
    group: String,
    plural: String,
    definition: String,
    /// Where the object is: in the namespace default, or in the cluster.
    namespace: Option<&'static str>,
}

impl Requests {
    pub(super) fn new(client: kube::Client, definition: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let spec = &definition["spec"];
        Self {
            client,
            group: text(&spec["group"]),
            plural: text(&spec["names"]["plural"]),
            definition: text(&definition["metadata"]["name"]),
            namespace: (spec["scope"] == "Namespaced").then_some("default"),
        }
    }

    pub(super) fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// The key under which kube-apiserver stores an object.
    pub(super) fn key(&self, name: &str) -> String {
        let namespace = self.namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
        format!("/registry/{}/{}/{namespace}{name}", self.group, self.plural)
    }

    fn path(&self, version: &str) -> String {
        let namespace =
            self.namespace.map(|namespace| format!("namespaces/{namespace}/")).unwrap_or_default();
        format!("/apis/{}/{version}/{namespace}{}", self.group, self.plural)
    }

    pub(super) async fn create_definition(&self, definition: &Value) -> Result<(), StepsError> {
        self.send(Method::POST, DEFINITIONS, Some(definition)).await?;
        Ok(())
    }

    pub(super) async fn delete_definition(&self) -> Result<(), StepsError> {
        self.send(Method::DELETE, &format!("{DEFINITIONS}/{}", self.definition), None).await?;
        Ok(())
    }

    pub(super) async fn set_versions(&self, versions: Value) -> Result<(), StepsError> {
        let path = format!("{DEFINITIONS}/{}", self.definition);
        self.send(Method::PATCH, &path, Some(&json!({"spec": {"versions": versions}}))).await?;
        Ok(())
    }

    /// Creates the object; none while the CRD is not served yet.
    pub(super) async fn create(&self, version: &str, object: &Value) -> Result<Option<Value>, StepsError> {
        match self.send(Method::POST, &self.path(version), Some(object)).await {
            Ok(created) => Ok(Some(created)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn get(&self, version: &str, name: &str) -> Result<Value, StepsError> {
        Ok(self.send(Method::GET, &format!("{}/{name}", self.path(version)), None).await?)
    }

    /// Sends a patch that changes nothing.
    pub(super) async fn touch(
        &self,
        version: &str,
        name: &str,
        uid: &str,
        resource_version: &str,
    ) -> Result<Value, StepsError> {
        let patch = json!({"metadata": {"uid": uid, "resourceVersion": resource_version}});
        Ok(self.send(Method::PATCH, &format!("{}/{name}", self.path(version)), Some(&patch)).await?)
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, kube::Error> {
        let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = Request::builder().method(method).uri(path).header("content-type", kind).body(body);
        self.client.request(request.map_err(kube::Error::HttpError)?).await
    }
}
