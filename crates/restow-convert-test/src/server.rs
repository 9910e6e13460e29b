//! Takes the steps of a version test on an API server: it stores the object in the version of each step.

mod endpoint;
mod requests;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use restow_apiserver::ServerSettings;
use restow_convert::Converter;
use restow_store::Store as _;
use restow_store::memory::MemoryStore;
use serde_json::{Value, json};

use crate::compare::difference;
use crate::object::{meaning, version_of};
use crate::versions::{Converted, Steps, StepsError};
use endpoint::Endpoint;
use requests::Requests;

/// How long a step may take: API servers notice a change of a CRD after a moment.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);
const ASK_EVERY: Duration = Duration::from_millis(100);

type Bytes = Pin<Box<dyn Future<Output = Result<Option<Vec<u8>>, StepsError>> + Send>>;
/// Reads what is stored under a key such as `/registry/example.com/pages/default/pets`.
type Stored = Box<dyn Fn(String) -> Bytes + Send>;

/// Takes the steps on an API server, which calls the converter through a webhook: each step sets the storage version of
/// the CRD and rewrites the object.
///
/// The CRD is created with the conversion webhook, and deleted by [`end`](Self::end).
pub struct OnServer {
    requests: Requests,
    definition: Value,
    stored: Option<Stored>,
    object: Option<Place>,
    _endpoint: Endpoint,
    server: Option<restow_apiserver::Server>,
}

/// The one object of the test.
#[derive(Clone)]
struct Place {
    name: String,
    uid: String,
    resource_version: String,
}

impl OnServer {
    /// Starts an API server inside this process. What it stores is read and compared.
    ///
    /// # Errors
    /// When the server or the webhook cannot be started.
    pub async fn embedded(
        definition: &CustomResourceDefinition,
        converter: impl Into<Converter>,
    ) -> Result<Self, StepsError> {
        let store = Arc::new(MemoryStore::default());
        let server = restow_apiserver::Server::start(ServerSettings::new(store.clone())).await?;
        let steps = Self::on(server.client(), definition, converter).await?;
        let steps = steps.stored(move |key| {
            let store = store.clone();
            async move { Ok(store.get(&key).await?.entry.map(|entry| entry.value.to_vec())) }
        });
        Ok(Self { server: Some(server), ..steps })
    }

    /// Uses an API server that runs already. It must be able to connect to this machine's loopback address, where the webhook
    /// is served, and must not have the CRD.
    ///
    /// # Errors
    /// When the webhook cannot be started.
    pub async fn on(
        client: kube::Client,
        definition: &CustomResourceDefinition,
        converter: impl Into<Converter>,
    ) -> Result<Self, StepsError> {
        let endpoint = Endpoint::start(converter.into()).await?;
        let mut definition = serde_json::to_value(definition)?;
        definition["apiVersion"] = json!("apiextensions.k8s.io/v1");
        definition["kind"] = json!("CustomResourceDefinition");
        definition["spec"]["conversion"] = endpoint.stanza();
        let requests = Requests::new(client, &definition);
        Ok(Self { requests, definition, stored: None, object: None, _endpoint: endpoint, server: None })
    }

    /// Reads what is stored in this way, such as from etcd. Without it, only what the server says is compared.
    #[must_use]
    pub fn stored<F>(mut self, read: impl Fn(String) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Result<Option<Vec<u8>>, StepsError>> + Send + 'static,
    {
        self.stored = Some(Box::new(move |key| Box::pin(read(key))));
        self
    }

    /// A client of the API server, for your test.
    pub fn client(&self) -> kube::Client {
        self.requests.client()
    }

    /// Deletes the CRD, and with it the object.
    ///
    /// # Errors
    /// When the API server does not delete it.
    pub async fn end(self) -> Result<(), StepsError> {
        self.requests.delete_definition().await?;
        if let Some(server) = self.server {
            server.stop().await;
        }
        Ok(())
    }

    async fn read(&self, version: &str) -> Result<Converted, StepsError> {
        let place = self.place()?;
        let object = self.requests.get(version, &place.name).await?;
        let stored = match &self.stored {
            None => None,
            Some(read) => {
                let key = self.requests.key(&place.name);
                let bytes = read(key.clone()).await?.ok_or_else(|| format!("nothing is stored at {key}"))?;
                Some(serde_json::from_slice(&bytes)?)
            }
        };
        Ok(Converted { version: version.to_owned(), object, stored })
    }

    fn place(&self) -> Result<Place, StepsError> {
        self.object.clone().ok_or_else(|| "the test has not begun".into())
    }

    /// The versions of the CRD, with this one as the storage version.
    fn versions(&self, storage: &str) -> Value {
        let mut versions = self.definition["spec"]["versions"].clone();
        for version in versions.as_array_mut().into_iter().flatten() {
            let is_storage = version["name"] == storage;
            version["served"] = json!(true);
            version["storage"] = json!(is_storage);
        }
        versions
    }
}

impl Steps for OnServer {
    async fn begin(&mut self, seed: Value) -> Result<Converted, StepsError> {
        let version = version_of(&seed).ok_or("the seed object has no apiVersion")?.to_owned();
        let mut definition = self.definition.clone();
        definition["spec"]["versions"] = self.versions(&version);
        self.requests.create_definition(&definition).await?;
        let created = within("the CRD is not served", async || self.requests.create(&version, &seed).await);
        self.object = Some(place_of(&created.await?)?);
        self.read(&version).await
    }

    async fn convert(&mut self, version: &str) -> Result<Converted, StepsError> {
        self.requests.set_versions(self.versions(version)).await?;
        let place = self.place()?;
        // A patch that changes nothing is stored as soon as the server encodes the object in another version than before.
        let rewritten = within("the API server does not store the object in the new version", async || {
            let touched = self.requests.touch(version, &place.name, &place.uid, &place.resource_version);
            let patched = place_of(&touched.await?)?;
            Ok((patched.resource_version != place.resource_version).then_some(patched))
        });
        self.object = Some(rewritten.await?);
        self.read(version).await
    }

    fn lost(&self, before: &Value, after: &Value) -> Option<String> {
        difference(&meaning(before), &meaning(after))
    }
}

fn place_of(object: &Value) -> Result<Place, StepsError> {
    let text = |field: &str| {
        let value = object["metadata"][field].as_str().map(str::to_owned);
        value.ok_or_else(|| format!("the API server's answer has no metadata.{field}: {object}"))
    };
    Ok(Place { name: text("name")?, uid: text("uid")?, resource_version: text("resourceVersion")? })
}

/// Asks until there is an answer, for a while.
async fn within<T>(
    problem: &str,
    ask: impl AsyncFn() -> Result<Option<T>, StepsError>,
) -> Result<T, StepsError> {
    let asking = async {
        loop {
            if let Some(found) = ask().await? {
                return Ok(found);
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    };
    let asked = tokio::time::timeout(STEP_TIMEOUT, asking).await;
    asked.unwrap_or_else(|_| Err(format!("{problem} within {STEP_TIMEOUT:?}").into()))
}
