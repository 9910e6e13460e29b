//! The two API servers of the demo on one store, and what they store.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use restow_apiserver::{Credentials, Network, Server, ServerSettings, StartError};
use restow_clock::Instant;
use restow_core::resource::name::GroupVersion;
use restow_store::file::{self, FileStore};
use restow_store::{Range, Store};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::commands::demo::boats;
use crate::commands::demo::held::{Held, Holds};
use crate::error::{CliError, chain};

/// How many objects are read at a time.
const PAGE: usize = 1000;
/// The names of the servers.
const IDS: [&str; 2] = ["api-1", "api-2"];

/// A server, for display.
pub(crate) struct Shown {
    pub(crate) id: &'static str,
    pub(crate) url: String,
    pub(crate) ready_after: Duration,
}

/// The servers, their store and their folder.
pub(crate) struct Stage {
    dir: PathBuf,
    temporary: Option<TempDir>,
    store: Arc<dyn Store>,
    holds: Holds,
    servers: Vec<Server>,
    shown: Vec<Shown>,
    clients: Vec<Client>,
}

impl Stage {
    /// Starts both servers, in a folder of the user's or one of their own.
    pub(crate) async fn set(dir: Option<&Path>) -> Result<Self, CliError> {
        let temporary = match dir {
            Some(_) => None,
            None => {
                Some(tempfile::Builder::new().prefix("restow-demo-").tempdir().map_err(CliError::failed)?)
            }
        };
        let dir = dir.or(temporary.as_ref().map(TempDir::path)).unwrap_or(Path::new(".")).to_owned();
        let store = FileStore::open(&dir, file::FileSettings::default())
            .map_err(|error| CliError::failed(chain(&error)))?;
        let mut stage = Self {
            dir,
            temporary,
            store: Arc::new(store),
            holds: Holds::default(),
            servers: Vec::new(),
            shown: Vec::new(),
            clients: Vec::new(),
        };
        for id in IDS {
            stage.start(id).await?;
        }
        if !stage.stored().await?.is_empty() {
            return Err(CliError::usage(format!("{} already contains boats", stage.dir.display()))
                .hint("use an empty or a new folder"));
        }
        Ok(stage)
    }

    async fn start(&mut self, id: &'static str) -> Result<(), CliError> {
        let began = Instant::now();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = self
            .begin(id, address)?
            .await
            .map_err(CliError::failed)?
            .map_err(|error| CliError::failed(chain(&error)))?;
        let connection =
            server.connection_info().ok_or_else(|| CliError::failed("the server has no address"))?;
        // Users must see that they are refused.
        let mut config = connection.config().map_err(CliError::failed)?;
        config.default_retry = false;
        let client = Client::try_from(config).map_err(CliError::failed)?;
        if self.servers.is_empty() {
            std::fs::write(self.kubeconfig(), connection.kubeconfig()).map_err(CliError::failed)?;
        }
        self.shown.push(Shown { id, url: connection.url(), ready_after: began.elapsed() });
        self.clients.push(client);
        self.servers.push(server);
        Ok(())
    }

    /// Begins to start a server; it can be reached before it is ready.
    fn begin(
        &self,
        id: &'static str,
        address: SocketAddr,
    ) -> Result<JoinHandle<Result<Server, StartError>>, CliError> {
        let credentials = Credentials::open(&self.dir, restow_clock::now())
            .map_err(|error| CliError::failed(chain(&error)))?;
        // Only the second one is ever delayed.
        let store: Arc<dyn Store> = if id == IDS[1] {
            Arc::new(Held { inner: Arc::clone(&self.store), holds: self.holds.clone() })
        } else {
            Arc::clone(&self.store)
        };
        Ok(tokio::spawn(async move {
            let listener = TcpListener::bind(address).await.map_err(restow_apiserver::NetworkError::from)?;
            let network = Network::new(listener, credentials);
            let settings = ServerSettings {
                server_id: id.to_owned(),
                network: Some(network),
                ..ServerSettings::new(store)
            };
            Server::start(settings).await
        }))
    }

    /// Stops the second server and begins to start it again, at the same address; it is not ready yet.
    pub(crate) async fn restart_second(
        &mut self,
    ) -> Result<JoinHandle<Result<Server, StartError>>, CliError> {
        let server = self.servers.pop().ok_or_else(|| CliError::failed("there is no second server"))?;
        let address = server.connection_info().map(|connection| connection.address());
        let address = address.ok_or_else(|| CliError::failed("the server has no address"))?;
        server.stop().await;
        self.begin(IDS[1], address)
    }

    /// Uses the second server again, once it is ready.
    pub(crate) async fn restarted(
        &mut self,
        starting: JoinHandle<Result<Server, StartError>>,
    ) -> Result<(), CliError> {
        self.servers.push(
            starting.await.map_err(CliError::failed)?.map_err(|error| CliError::failed(chain(&error)))?,
        );
        Ok(())
    }

    /// What can be delayed at the second server.
    pub(crate) fn holds(&self) -> &Holds {
        &self.holds
    }

    /// The servers, for a person.
    pub(crate) fn servers(&self) -> &[Shown] {
        &self.shown
    }

    /// A client of each server.
    pub(crate) fn clients(&self) -> Vec<Client> {
        self.clients.clone()
    }

    /// Their folder.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The kubeconfig of the first server.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    /// Whether a server says that it is ready.
    pub(crate) async fn is_ready(&self, server: usize) -> bool {
        let Ok(request) = http::Request::get("/readyz").body(Vec::new()) else { return false };
        self.clients[server].request_text(request).await.is_ok()
    }

    /// The version each server has registered for boats, in the servers' order.
    pub(crate) async fn encodings(&self) -> Result<Vec<(String, String)>, CliError> {
        let path = format!("/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/{}.boats", boats::GROUP);
        let object = request(&self.clients[0], "GET", &path, &Value::Null).await?;
        let entries = object["status"]["storageVersions"].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut entries: Vec<(String, String)> = entries
            .iter()
            .map(|entry| {
                (text(&entry["apiServerID"]), GroupVersion::parse(&text(&entry["encodingVersion"])).version)
            })
            .collect();
        entries.sort();
        Ok(entries)
    }

    /// How many boats are stored in each version, by their bytes.
    pub(crate) async fn stored(&self) -> Result<BTreeMap<String, u64>, CliError> {
        let mut census = BTreeMap::new();
        let mut range = Range { prefix: boats::STORED.to_owned(), start: None, limit: PAGE, revision: None };
        loop {
            let listed = self.store.list(range.clone()).await.map_err(CliError::failed)?;
            for entry in &listed.entries {
                let object: Value = serde_json::from_slice(&entry.value).unwrap_or_default();
                let version = object["apiVersion"].as_str().unwrap_or("unreadable");
                *census.entry(GroupVersion::parse(version).version).or_default() += 1;
            }
            range.start = listed.entries.last().map(|entry| format!("{}\0", entry.key));
            range.revision = Some(listed.revision);
            if listed.remaining == 0 {
                return Ok(census);
            }
        }
    }

    /// `storedVersions` of the CRD.
    pub(crate) async fn stored_versions(&self) -> Result<Vec<String>, CliError> {
        let path = format!("{}/{}", boats::DEFINITIONS, boats::NAME);
        let definition = request(&self.clients[0], "GET", &path, &Value::Null).await?;
        let stored = definition["status"]["storedVersions"].as_array().cloned().unwrap_or_default();
        Ok(stored.iter().filter_map(Value::as_str).map(str::to_owned).collect())
    }

    /// Stops the servers; a folder of their own is removed.
    pub(crate) async fn clear(self) {
        for server in self.servers {
            server.stop().await;
        }
        drop((self.store, self.temporary));
    }
}

/// Sends a request that must succeed.
pub(crate) async fn request(
    client: &Client,
    method: &str,
    path: &str,
    body: &Value,
) -> Result<Value, CliError> {
    let content_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request =
        http::Request::builder().method(method).uri(path).header("Content-Type", content_type).body(body);
    let answer = client.request(request.map_err(CliError::failed)?).await;
    answer.map_err(|error| CliError::failed(format!("{method} {path}: {error}")))
}
