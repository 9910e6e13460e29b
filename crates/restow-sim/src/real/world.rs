//! One run of a plan on a real control plane.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use futures::StreamExt as _;
use restow_clock::Instant;
use restow_lab::{Cluster, Encryption, Part, Recorder};
use restow_store::Store as _;
use restow_store::etcd::{EtcdStore, Settings};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;

use super::process::drive;
use super::proxy::{Proxy, Shared};
use super::{LONGEST, PATIENCE, configuration, key};
use crate::oracle::{Oracle, hash_of};
use crate::plan::{Deed, Event, MISPLACED, Plan, QUIET, Scene, name};
use crate::run::{DEFINITIONS, FOLLOWED, Report, broken, definition};
use crate::trace::Trace;
use crate::users::{act, object, path, send};

/// How long something is waited for that the control plane does by itself.
const SOON: Duration = Duration::from_secs(60);
/// How long a server may take to read its encryption configuration anew.
const RELOAD: Duration = Duration::from_secs(240);
/// How long handlers may follow a definition after discovery.
const LAG: Duration = Duration::from_secs(4);

/// Everything there is in a run.
pub(super) struct World<'a> {
    pub(super) plan: &'a Plan,
    pub(super) restow: &'a Path,
    pub(super) group: String,
    pub(super) trace: Trace,
    pub(super) oracle: Oracle,
    pub(super) shared: Arc<Shared>,
    pub(super) recorders: Vec<Recorder>,
    /// Where restow keeps its progress.
    pub(super) state: TempDir,
    cluster: &'a Cluster,
    clients: Vec<kube::Client>,
    store: EtcdStore,
    /// The revision up to which the oracle has read.
    read: watch::Receiver<u64>,
    began: Instant,
    round: usize,
    rotated: Mutex<usize>,
    restarting: Vec<tokio::sync::Mutex<()>>,
    /// When the storage version or a key was changed.
    moved: Mutex<Vec<Instant>>,
    /// How many deeds are over.
    over: watch::Sender<usize>,
}

/// Runs a plan on a control plane, in the round of its keys.
pub(super) fn run(plan: &Plan, cluster: &Cluster, restow: &Path, round: usize) -> Report {
    fastrand::seed(plan.seed);
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return broken(format!("no runtime: {error}")),
    };
    runtime.block_on(async {
        let trace = Trace::begin();
        let played = async {
            let world = World::furnish(plan, cluster, restow, round, &trace).await?;
            world.play().await;
            world.clear().await
        };
        if let Err(error) = played.await {
            trace.violate("setup", format!("{error:#}"));
        }
        let seconds = trace.elapsed();
        let (steps, digest, violation) = trace.end();
        Report { violation, steps, digest, seconds }
    })
}

impl<'a> World<'a> {
    /// Makes what is there before anything goes wrong.
    async fn furnish(
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
            // A plan that failed may have left the servers with different keys.
            cluster.set_encryption_all(&configuration(round))?;
            for server in servers.clone() {
                taken_up(cluster, server, &configuration(round)).await?;
            }
        }
        let store = EtcdStore::new(&Settings::new([cluster.etcd().url()]))?;
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
            // Discovery shows a definition before its handlers answer.
            soon("an object to be made", async || send(client, "POST", &place, &body).await.is_ok()).await?;
            if self.plan.retired && at % 2 == 0 {
                // One manager has entries of two versions then.
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

    async fn define(&self, stored: &str) -> kube::Result<Value> {
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
        soon("discovery to show the storage version", shown).await
    }

    async fn play(&self) {
        let (kill, kills) = watch::channel(0);
        let driven = tokio::time::timeout(QUIET + PATIENCE, drive(self, kills));
        let beside = async {
            let deeds = self.plan.events.iter().filter_map(|event| match event {
                Event::At(at, deed) => Some(self.deed(Duration::from_millis(*at), *deed, &kill)),
                Event::Fault(_) => None,
            });
            let direct = |server: usize| self.clients.get(server.min(self.clients.len() - 1)).cloned();
            let users = act(self.plan, &self.group, &self.trace, direct);
            futures::join!(futures::future::join_all(deeds), users);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = self.trace.violated() => {}
            done = driven => if done.is_err() {
                let what = format!("not done {} s after the last fault", PATIENCE.as_secs());
                self.trace.violate("L1", what);
            },
            () = beside => {}
        }
    }

    async fn deed(&self, at: Duration, deed: Deed, kill: &watch::Sender<u32>) {
        tokio::time::sleep_until(self.began + at).await;
        self.trace.step(&format!("{deed:?}"));
        let moves = matches!(deed, Deed::Store(_) | Deed::Rotate(_));
        lock(&self.moved).extend(moves.then(Instant::now));
        match self.carry_out(deed, kill).await {
            Ok(()) => self.trace.step(&format!("{deed:?} is over")),
            Err(error) => self.trace.violate("setup", format!("{deed:?}: {error:#}")),
        }
        lock(&self.moved).extend(moves.then(Instant::now));
        self.over.send_modify(|over| *over += 1);
    }

    async fn carry_out(&self, deed: Deed, kill: &watch::Sender<u32>) -> anyhow::Result<()> {
        let part = |server: usize| Part::ApiServer(server.min(self.clients.len() - 1));
        match deed {
            Deed::Kill => kill.send_modify(|kills| *kills += 1),
            Deed::Skew(_) => {}
            Deed::Freeze(server, millis) => {
                self.cluster.pause(part(server))?;
                tokio::time::sleep(Duration::from_millis(millis).min(LONGEST)).await;
                self.cluster.unpause(part(server))?;
            }
            Deed::Restart(server, millis) => {
                // Another restart may be under way.
                if let Ok(_alone) = self.restarting[server].try_lock() {
                    self.cluster.kill(part(server))?;
                    tokio::time::sleep(Duration::from_millis(millis)).await;
                    self.cluster.restart(part(server)).await?;
                }
            }
            Deed::Store(version) => {
                // Whoever wants that tries until it is done.
                soon("the definition to be changed", async || self.define(version).await.is_ok()).await?;
            }
            Deed::Rotate(server) => {
                let next = configuration(self.round + 1);
                self.cluster.set_encryption(server, &next)?;
                if !self.plan.seed.is_multiple_of(2) {
                    let _alone = self.restarting[server].lock().await;
                    self.cluster.restart(part(server)).await?;
                }
                taken_up(self.cluster, server, &next).await?;
                *lock(&self.rotated) += 1;
            }
            // The controllers do not run on real control planes.
            Deed::RotateBack(_)
            | Deed::Down(..)
            | Deed::Pause(..)
            | Deed::Migrate
            | Deed::Abort
            | Deed::Suspend(_) => {}
        }
        Ok(())
    }

    /// Whether a storage version or a key changed since then, or so shortly before that a server may not have followed.
    pub(super) fn has_moved_since(&self, then: Instant) -> bool {
        lock(&self.moved).iter().any(|moved| *moved + FOLLOWED > then)
    }

    /// Waits until the last deed is long over.
    pub(super) async fn at_rest(&self) {
        let deeds = self.plan.events.iter().filter(|event| matches!(event, Event::At(..))).count();
        // The sender is this run's own.
        let _ = self.over.subscribe().wait_for(|over| *over == deeds).await;
        tokio::time::sleep(LAG).await;
    }

    /// How objects are to be kept now.
    pub(super) fn wanted(&self) -> String {
        match self.plan.scene {
            Scene::Keys => key(self.round + usize::from(*lock(&self.rotated) == 2)),
            _ => self.oracle.stored_version().unwrap_or_default(),
        }
    }

    /// What the key is called that a configuration of this hash writes with; none for one that is not known.
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

    /// Leaves the control plane as the next plan needs it.
    async fn clear(&self) -> anyhow::Result<()> {
        let gone = match self.plan.scene {
            Scene::Keys => path(Scene::Keys, &self.group, "v1"),
            _ => format!("{DEFINITIONS}/boats.{}", self.group),
        };
        let deleted = async || send(&self.clients[0], "DELETE", &gone, &json!({})).await.is_ok();
        soon("what a plan has made to be deleted", deleted).await
    }
}

/// Has an oracle read every write from now on; tells the revision up to which it has.
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

/// Waits until a server says that it encrypts as it should; it may be frozen or starting meanwhile.
async fn taken_up(cluster: &Cluster, server: usize, encryption: &Encryption) -> anyhow::Result<()> {
    let taken = async {
        while cluster.wait_for_encryption(server, encryption).await.is_err() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(RELOAD, taken)
        .await
        .context("a server does not take up its encryption configuration")
}

async fn soon(what: &str, is_true: impl AsyncFn() -> bool) -> anyhow::Result<()> {
    let waited = async {
        while !is_true().await {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(SOON, waited).await.with_context(|| format!("waited in vain for {what}"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
