//! The state of a run on a real control plane.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use futures::StreamExt as _;
use restow_clock::Instant;
use restow_lab::{Cluster, Encryption, Recorder};
use restow_store::Store as _;
use restow_store::etcd::{EtcdSettings, EtcdStore};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;

use super::encryption::{configuration, key};
use super::proxy::{Proxy, Shared};
use crate::objects::{DEFINITIONS, definition, object, path, send};
use crate::oracle::{Oracle, hash_of};
use crate::plan::{Event, MISPLACED, Plan, Scene, name};
use crate::trace::Trace;
use crate::world::FOLLOW_TIMEOUT;

/// How long to wait for the control plane.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a server may take to reload its encryption configuration.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(240);
/// How long handlers may lag behind discovery.
const LAG: Duration = Duration::from_secs(4);

/// Everything in a run.
pub(super) struct World<'a> {
    pub(super) plan: &'a Plan,
    pub(super) restow: &'a Path,
    pub(super) group: String,
    pub(super) trace: Trace,
    pub(super) oracle: Oracle,
    pub(super) shared: Arc<Shared>,
    pub(super) recorders: Vec<Recorder>,
    /// The state directory of restow.
    pub(super) state: TempDir,
    pub(super) cluster: &'a Cluster,
    pub(super) clients: Vec<kube::Client>,
    store: EtcdStore,
    /// The revision up to which the oracle has read.
    read: watch::Receiver<u64>,
    pub(super) began: Instant,
    pub(super) round: usize,
    pub(super) rotated: Mutex<usize>,
    pub(super) restarting: Vec<tokio::sync::Mutex<()>>,
    /// When the storage version or a key changed.
    pub(super) moved: Mutex<Vec<Instant>>,
    /// How many actions are over.
    pub(super) over: watch::Sender<usize>,
}

impl<'a> World<'a> {
    /// Creates the objects before anything goes wrong.
    pub(super) async fn prepare(
        plan: &'a Plan,
        cluster: &'a Cluster,
        restow: &'a Path,
        round: usize,
        trace: &Trace,
    ) -> anyhow::Result<Self> {
        let group = format!("{}-{}.sim.example", plan.scene, plan.seed);
        let servers = 0..cluster.servers();
        let clients = servers.clone().map(|at| cluster.client(at)).collect::<anyhow::Result<Vec<_>>>()?;
        if plan.scene == Scene::Keys {
            // A failed plan may have left the servers with different keys.
            cluster.set_encryption_all(&configuration(round))?;
            for server in servers.clone() {
                wait_for_encryption(cluster, server, &configuration(round)).await?;
            }
        }
        let store = EtcdStore::new(&EtcdSettings::new([cluster.etcd().url()]))?;
        let oracle = Oracle::new(plan.scene, &group, trace);
        let read = follow(&store, &oracle, trace).await?;
        let shared = Shared::new(plan, trace, &oracle);
        let mut recorders = Vec::new();
        for server in servers.clone() {
            let proxy = Proxy { server, shared: Arc::clone(&shared) };
            recorders.push(Recorder::start(cluster, server, "admin", Arc::new(proxy)).await?);
        }
        let world = Self {
            plan,
            restow,
            group,
            trace: trace.clone(),
            oracle,
            shared,
            recorders,
            state: tempfile::tempdir()?,
            cluster,
            clients,
            store,
            read,
            began: Instant::now(),
            round,
            rotated: Mutex::default(),
            restarting: servers.map(|_| tokio::sync::Mutex::default()).collect(),
            moved: Mutex::default(),
            over: watch::channel(0).0,
        };
        world.populate().await?;
        Ok(Self { began: Instant::now(), ..world })
    }

    async fn populate(&self) -> anyhow::Result<()> {
        let (scene, group, client) = (self.plan.scene, &self.group, &self.clients[0]);
        if scene != Scene::Keys {
            send(client, "POST", DEFINITIONS, &definition(group, "v1", false)).await?;
            for client in &self.clients {
                self.until_stored(client, "v1").await?;
            }
        }
        for at in 0..self.plan.objects {
            let version = if fastrand::bool() { "v1" } else { "v2" };
            let body = object(scene, group, version, &name(at), at as u64);
            let place = path(scene, group, version);
            // Discovery shows a CRD before its handlers work.
            wait_until("an object to be made", async || send(client, "POST", &place, &body).await.is_ok())
                .await?;
            if self.plan.retired && at % 2 == 0 {
                // Now one manager has entries of two versions.
                let other = path(scene, group, if version == "v1" { "v2" } else { "v1" });
                let patch = json!({"spec": {"n": 100 + at}});
                send(client, "PATCH", &format!("{other}/{}", name(at)), &patch).await?;
            }
        }
        if self.plan.misplaced {
            self.misplace().await?;
        }
        if scene != Scene::Keys {
            self.define("v2").await?;
            self.until_stored(client, "v2").await?;
        }
        Ok(())
    }

    /// Stores a copy of an object under a key that is not its name.
    async fn misplace(&self) -> anyhow::Result<()> {
        let (scene, group) = (self.plan.scene, &self.group);
        let path = format!("{}/{}", path(scene, group, "v1"), name(0));
        let mut object = send(&self.clients[0], "GET", &path, &Value::Null).await?;
        object["metadata"]["name"] = json!(MISPLACED);
        object["metadata"]["uid"] = json!("00000000-0000-4000-8000-000000000000");
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
        }
        let key = format!("{}default/a-00", scene.prefix(group));
        self.cluster.etcd().put(&key, object.to_string().as_bytes()).await
    }

    /// Sets the storage version of the CRD.
    pub(super) async fn define(&self, stored: &str) -> kube::Result<Value> {
        let versions = &definition(&self.group, stored, self.plan.retired)["spec"]["versions"];
        let patch = json!({"spec": {"versions": versions}});
        send(&self.clients[0], "PATCH", &format!("{DEFINITIONS}/boats.{}", self.group), &patch).await
    }

    async fn until_stored(&self, client: &kube::Client, version: &str) -> anyhow::Result<()> {
        let (hash, path) = (hash_of(&self.group, version), format!("/apis/{}/v2", self.group));
        let shown = async || {
            let found = send(client, "GET", &path, &Value::Null).await;
            found.is_ok_and(|found| found["resources"][0]["storageVersionHash"] == hash)
        };
        wait_until("discovery to show the storage version", shown).await
    }

    /// Whether the storage version or a key changed after this time, or so shortly before that a server may not have followed.
    pub(super) fn has_moved_since(&self, then: Instant) -> bool {
        lock(&self.moved).iter().any(|moved| *moved + FOLLOW_TIMEOUT > then)
    }

    /// Waits until the last action is long over.
    pub(super) async fn at_rest(&self) {
        let actions = self.plan.events.iter().filter(|event| matches!(event, Event::At(..))).count();
        // This run has the sender, so it is not closed.
        let _ = self.over.subscribe().wait_for(|over| *over == actions).await;
        tokio::time::sleep(LAG).await;
    }

    /// The storage version or key that objects should have now.
    pub(super) fn wanted(&self) -> String {
        match self.plan.scene {
            Scene::Keys => key(self.round + usize::from(*lock(&self.rotated) == 2)),
            _ => self.oracle.stored_version().unwrap_or_default(),
        }
    }

    /// The name of the key with which the configuration of this hash encrypts; `None` if the hash is unknown.
    pub(super) fn key_of(&self, hash: &str) -> Option<String> {
        let rounds = [self.round, self.round + 1];
        rounds.into_iter().find(|round| configuration(*round).hash() == hash).map(key)
    }

    /// Waits until the oracle has read everything that is stored now.
    pub(super) async fn caught_up(&self) -> anyhow::Result<()> {
        let newest = self.store.revision().await.context("reading etcd")?;
        let mut read = self.read.clone();
        read.wait_for(|read| *read >= newest).await.context("the watch on etcd has ended")?;
        Ok(())
    }

    /// Cleans up for the next plan.
    pub(super) async fn clear(&self) -> anyhow::Result<()> {
        let gone = match self.plan.scene {
            Scene::Keys => path(Scene::Keys, &self.group, "v1"),
            _ => format!("{DEFINITIONS}/boats.{}", self.group),
        };
        let deleted = async || send(&self.clients[0], "DELETE", &gone, &json!({})).await.is_ok();
        wait_until("what a plan has made to be deleted", deleted).await
    }
}

/// Lets an oracle read every write from now on; the channel has the revision that it has read.
async fn follow(store: &EtcdStore, oracle: &Oracle, trace: &Trace) -> anyhow::Result<watch::Receiver<u64>> {
    let now = store.revision().await?;
    let mut changes = store.watch("/registry/", now).await?;
    let (read, revision) = watch::channel(now);
    let (oracle, trace) = (oracle.clone(), trace.clone());
    tokio::spawn(async move {
        while let Some(told) = changes.next().await {
            match told {
                Ok(told) => {
                    told.changes.iter().for_each(|change| oracle.judge(change));
                    read.send_replace(told.revision);
                }
                Err(error) => return trace.violate("setup", format!("the watch on etcd: {error}")),
            }
        }
    });
    Ok(revision)
}

/// Waits until a server reports this encryption configuration. It may be frozen or starting meanwhile.
pub(super) async fn wait_for_encryption(
    cluster: &Cluster,
    server: usize,
    encryption: &Encryption,
) -> anyhow::Result<()> {
    let taken = async {
        while cluster.wait_for_encryption(server, encryption).await.is_err() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(RELOAD_TIMEOUT, taken)
        .await
        .context("a server does not load its encryption configuration")
}

/// Waits until something is true, for a bounded time.
pub(super) async fn wait_until(what: &str, is_true: impl AsyncFn() -> bool) -> anyhow::Result<()> {
    let waited = async {
        while !is_true().await {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, waited).await.with_context(|| format!("timed out waiting for {what}"))
}

/// Locks a mutex, poisoned or not.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
