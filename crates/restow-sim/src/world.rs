//! A simulated cluster: its API servers, their store, and what judges them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use restow_apiserver::{Server, ServerSettings};
use restow_clock::Instant;
use restow_core::rewrite::progress::Progress;
use restow_store::{Store as _, Write};
use serde_json::{Value, json};

use crate::connection::Connection;
use crate::keys::{key_name, key_of, transformers};
use crate::layer::Layer;
use crate::ledger::Ledger;
use crate::objects::{DEFINITIONS, definition, object, path, send};
use crate::oracle::{Oracle, hash_of};
use crate::plan::{GROUP, MISPLACED, Plan, Scene, name};
use crate::process::Control;
use crate::trace::Trace;

/// The lag of the handlers in the lagging scene; shorter than restow waits for a CRD to settle.
pub(crate) const LAG: Duration = Duration::from_secs(4);
/// How long a server may take to follow a change, even if it is frozen or restarted.
pub(crate) const FOLLOW_TIMEOUT: Duration = Duration::from_secs(90);
/// Everything in a run.
pub(crate) struct World {
    pub(crate) trace: Trace,
    pub(crate) layer: Layer,
    pub(crate) oracle: Oracle,
    pub(crate) scene: Scene,
    /// Judges the controllers, if they run.
    pub(crate) ledger: Option<Ledger>,
    /// The replicas of the controllers.
    pub(crate) replicas: Vec<Control>,
    pub(crate) connections: Vec<Connection>,
    pub(crate) servers: Mutex<Vec<Option<Server>>>,
    pub(crate) began: Instant,
    /// The servers that encrypt with the second key.
    pub(crate) rotated: Mutex<BTreeSet<usize>>,
    /// The store's revision when the current pass started.
    pub(crate) pass_began: Mutex<u64>,
    /// When the storage version or a key changed.
    pub(crate) moved: Mutex<Vec<Instant>>,
}

impl World {
    /// Starts an API server; tries until it has started.
    pub(crate) async fn start(&self, plan: &Plan, at: usize) {
        let rotated = lock(&self.rotated).contains(&at);
        let encryption = (plan.scene.encrypts()).then(|| transformers(rotated)).flatten();
        loop {
            let settings = ServerSettings {
                server_id: format!("apiserver-{}", ["a", "b"][at.min(1)]),
                // The former process is gone, so the next one need not wait for its Lease.
                instance: Some("simulated".to_owned()),
                encryption: encryption.clone(),
                ..ServerSettings::new(Arc::new(self.connections[at].clone()))
            };
            match Server::start(settings).await {
                Ok(server) => {
                    self.layer.set(at, Some(server.client()));
                    lock(&self.servers)[at] = Some(server);
                    // The key may have changed while it started. It is loaded again in any case, so that the server reports
                    // when: a key that a restart replaces by the former one is not noticed (ARCHITECTURE.md).
                    let now = lock(&self.rotated).contains(&at);
                    if plan.scene.encrypts() {
                        self.encrypt(at, now);
                    }
                    if let Some(ledger) = &self.ledger {
                        ledger.encrypts(at, Some(key_name(now)));
                    }
                    return;
                }
                Err(error) => {
                    self.trace.step(&format!("server {at} does not start: {error}"));
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }

    /// Creates the objects before anything goes wrong.
    pub(crate) async fn prepare(&self, plan: &Plan) -> anyhow::Result<()> {
        let Some(client) = self.layer.direct(0) else { anyhow::bail!("no server") };
        if !plan.scene.encrypts() {
            send(&client, "POST", DEFINITIONS, &definition(GROUP, "v1", false)).await?;
            for server in 0..plan.servers() {
                self.until_stored(server, "v1").await?;
            }
        }
        if plan.setup.is_some() {
            for definition in restow_api::crds() {
                send(&client, "POST", DEFINITIONS, &serde_json::to_value(definition)?).await?;
            }
        }
        for at in 0..plan.objects {
            let version = if fastrand::bool() { "v1" } else { "v2" };
            let (path, name) = (path(plan.scene, GROUP, version), name(at));
            send(&client, "POST", &path, &object(plan.scene, GROUP, version, &name, at as u64)).await?;
            if plan.retired && at % 2 == 0 {
                // Now one manager has entries of two versions.
                let other = self::path(plan.scene, GROUP, if version == "v1" { "v2" } else { "v1" });
                send(&client, "PATCH", &format!("{other}/{name}"), &json!({"spec": {"n": 100 + at}})).await?;
            }
        }
        if plan.misplaced {
            self.misplace(plan, &client).await?;
        }
        if !plan.scene.encrypts() {
            self.define(plan, &client, "v2").await?;
            self.until_stored(0, "v2").await?;
        }
        Ok(())
    }

    /// Stores a copy of an object under a key that is not its name.
    async fn misplace(&self, plan: &Plan, client: &kube::Client) -> anyhow::Result<()> {
        let path = format!("{}/{}", path(plan.scene, GROUP, "v1"), name(0));
        let mut object = send(client, "GET", &path, &Value::Null).await?;
        object["metadata"]["name"] = json!(MISPLACED);
        object["metadata"]["uid"] = json!("00000000-0000-4000-8000-000000000000");
        object["metadata"]["resourceVersion"] = Value::Null;
        let key = format!("{}default/a-00", plan.scene.prefix(GROUP));
        let value = Some(object.to_string().into_bytes().into());
        self.connections[0].write(Write { key, value, expected: 0 }).await?;
        Ok(())
    }

    /// Sets the storage version of the CRD.
    pub(crate) async fn define(
        &self,
        plan: &Plan,
        client: &kube::Client,
        stored: &str,
    ) -> anyhow::Result<()> {
        let versions = &definition(GROUP, stored, plan.retired)["spec"]["versions"];
        let patch = json!({"spec": {"versions": versions}});
        send(client, "PATCH", &format!("{DEFINITIONS}/boats.sim.example"), &patch).await?;
        Ok(())
    }

    async fn until_stored(&self, server: usize, version: &str) -> anyhow::Result<()> {
        let hash = hash_of(GROUP, version);
        for _ in 0..600 {
            let client = self.layer.direct(server);
            if let Some(client) = client {
                let found = send(&client, "GET", "/apis/sim.example/v2", &Value::Null).await;
                if found.is_ok_and(|found| found["resources"][0]["storageVersionHash"] == hash) {
                    return Ok(());
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        anyhow::bail!("{version} is not stored")
    }

    /// Whether the storage version or a key changed after this time, or so shortly before that a server may not have followed.
    pub(crate) fn has_moved_since(&self, then: Instant) -> bool {
        lock(&self.moved).iter().any(|moved| *moved + FOLLOW_TIMEOUT > then)
    }

    /// Sets the key that an API server encrypts with.
    pub(crate) fn encrypt(&self, server: usize, rotated: bool) {
        if let (Some(running), Some(transformers)) = (&lock(&self.servers)[server], transformers(rotated)) {
            running.set_encryption(transformers);
            if let Some(ledger) = &self.ledger {
                ledger.encrypts(server, Some(key_name(rotated)));
            }
        }
    }

    /// Waits until all actions are over.
    pub(crate) async fn at_rest(&self, plan: &Plan) {
        tokio::time::sleep_until(self.began + plan.ends() + LAG * 3).await;
    }

    /// The storage version or key that objects should have now.
    pub(crate) fn wanted(&self, plan: &Plan) -> String {
        if plan.scene.encrypts() {
            return if lock(&self.rotated).len() == plan.servers() { "key2" } else { "key1" }.to_owned();
        }
        self.oracle.stored_version().unwrap_or_default()
    }

    /// A pass starts, or resumes after a kill.
    pub(crate) fn pass(&self, progress: &Progress) {
        if progress.pass().listed == 0 {
            *lock(&self.pass_began) = self.oracle.revision();
        }
    }

    /// Judges a run that reports that it is verified.
    pub(crate) fn verified(&self, progress: &Progress) {
        self.oracle.proven_by_a_pass(*lock(&self.pass_began));
        let (looked, measured) = {
            let request_log = self.layer.request_log();
            (request_log.looked, request_log.measured)
        };
        match self.scene {
            Scene::Keys => {
                let key = progress.encryption.as_deref().and_then(key_of);
                // No server reverts to the first key.
                if key == Some("key2") && lock(&self.rotated).len() < 2 {
                    self.trace
                        .violate("S6", "verified for key2 while a server encrypts with key1".to_owned());
                }
                self.oracle.verified(key, measured);
            }
            _ => self.oracle.verified(Some(&progress.storage_version), looked),
        }
    }
}

/// Locks a mutex, poisoned or not.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
