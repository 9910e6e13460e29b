//! One run of a plan.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use restow_apiserver::{Server, ServerSettings};
use restow_clock::{Instant, Simulation};
use restow_core::rewrite::progress::Progress;
use restow_store::encryption::Transformers;
use restow_store::{Store as _, Write};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::controllers::{control, steer};
use crate::driver::drive;
use crate::layer::Layer;
use crate::ledger::Ledger;
use crate::oracle::{Oracle, hash_of};
use crate::plan::{Deed, Event, GROUP, MISPLACED, PATIENCE, Plan, Scene, name};
use crate::process::{Clocks, Control};
use crate::store::{Door, Memory};
use crate::trace::{Trace, Violation};
use crate::users::{act, object, path, send};

/// How late the handlers of a lagging server are: less than restow lets a definition settle.
const LAG: Duration = Duration::from_secs(4);
/// How long a server may take to follow a change, frozen or restarted.
pub(crate) const FOLLOWED: Duration = Duration::from_secs(90);
/// The stack of the thread of one run.
const STACK: usize = 64 << 20;
/// The path of all definitions.
pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const KEYS: [(&str, &str); 2] = [
    ("key1", "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="),
    ("key2", "MTEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="),
];

/// What became of a run.
#[derive(Debug)]
pub struct Report {
    /// The first invariant that did not hold.
    pub violation: Option<Violation>,
    /// What happened.
    pub steps: Vec<String>,
    /// Stands for all steps.
    pub digest: u64,
    /// How much time was simulated.
    pub seconds: f64,
}

/// Everything there is in a run.
pub(crate) struct World {
    pub(crate) trace: Trace,
    pub(crate) layer: Layer,
    pub(crate) oracle: Oracle,
    scene: Scene,
    /// Judges the controllers, where they run.
    pub(crate) ledger: Option<Ledger>,
    /// The replicas of the controllers.
    pub(crate) replicas: Vec<Control>,
    doors: Vec<Door>,
    servers: Mutex<Vec<Option<Server>>>,
    pub(crate) began: Instant,
    /// The servers that encrypt with the second key.
    rotated: Mutex<BTreeSet<usize>>,
    /// The store's revision when the pass under way began.
    pass_began: Mutex<u64>,
    /// When the storage version or a key was changed.
    moved: Mutex<Vec<Instant>>,
}

/// Runs a plan.
pub fn run(plan: &Plan) -> Report {
    // The futures of whole clusters are too large for the stack of a test.
    let played = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, || played(plan));
        thread.map(std::thread::ScopedJoinHandle::join)
    });
    match played {
        Ok(Ok(report)) => report,
        Ok(Err(panic)) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            broken(text.unwrap_or_default())
        }
        Err(error) => broken(format!("no thread: {error}")),
    }
}

fn played(plan: &Plan) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return broken(format!("no runtime: {error}")),
    };
    runtime.block_on(async {
        let simulation = restow_clock::simulate(epoch(), plan.seed);
        let trace = Trace::begin();
        if let Err(error) = play(plan, &trace, &simulation).await {
            trace.violate("setup", format!("{error:#}"));
        }
        let seconds = trace.elapsed();
        let (steps, digest, violation) = trace.end();
        Report { violation, steps, digest, seconds }
    })
}

/// The report of a run that did not come about.
pub(crate) fn broken(what: String) -> Report {
    let violation = Some(Violation { invariant: "panic", what });
    Report { violation, steps: Vec::new(), digest: 0, seconds: 0.0 }
}

fn epoch() -> Timestamp {
    // 2026-01-01
    Timestamp::from_second(1_767_225_600).unwrap_or(Timestamp::UNIX_EPOCH)
}

async fn play(plan: &Plan, trace: &Trace, simulation: &Simulation) -> anyhow::Result<()> {
    let store = Memory::new();
    let oracle = Oracle::new(plan.scene, GROUP, trace);
    let witness = oracle.clone();
    store.tell(Box::new(move |change| witness.judge(change)));
    let clocks = Clocks { simulation, skew: Cell::default() };
    let ledger = plan.setup.map(|_| Ledger::watch(plan, trace, &store));
    let skews = plan.setup.into_iter().flat_map(|setup| setup.skews);
    let mut world = World {
        trace: trace.clone(),
        layer: Layer::new(plan, trace, &store, ledger.clone()),
        oracle,
        ledger,
        replicas: skews.map(Control::skewed).collect(),
        scene: plan.scene,
        doors: (0..plan.servers())
            .map(|at| {
                let lags = plan.scene == Scene::Lagging && at == 1;
                Door::new(Arc::clone(&store), if lags { LAG } else { Duration::ZERO })
            })
            .collect(),
        servers: Mutex::default(),
        began: Instant::now(),
        rotated: Mutex::default(),
        pass_began: Mutex::default(),
        moved: Mutex::default(),
    };
    for at in 0..plan.servers() {
        lock(&world.servers).push(None);
        world.start(plan, at).await;
    }
    world.furnish(plan).await?;
    world.began = Instant::now();
    let (kill, kills) = watch::channel(0);
    let driven = async {
        match plan.setup {
            Some(setup) => control(&world, plan, setup, &clocks).await,
            None => drive(&world, plan, kills).await,
        }
    };
    let driven = tokio::time::timeout(plan.quiet() + PATIENCE, driven);
    let beside = async {
        let deeds = plan.events.iter().filter_map(|event| match event {
            Event::At(at, deed) => Some(world.deed(plan, Duration::from_millis(*at), *deed, &clocks, &kill)),
            Event::Fault(_) => None,
        });
        futures::join!(
            futures::future::join_all(deeds),
            act(plan, GROUP, trace, |server| world.layer.direct(server))
        );
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = trace.violated() => {}
        done = driven => if done.is_err() {
            trace.violate("L1", format!("not done {} s after the last fault", PATIENCE.as_secs()));
        },
        () = beside => {}
    }
    Ok(())
}

impl World {
    async fn start(&self, plan: &Plan, at: usize) {
        let rotated = lock(&self.rotated).contains(&at);
        let encryption = (plan.scene.encrypts()).then(|| transformers(rotated)).flatten();
        loop {
            let settings = ServerSettings {
                server_id: format!("apiserver-{}", ["a", "b"][at.min(1)]),
                // A server that is stopped here is no more, and its next life need not wait for its Lease.
                instance: Some("simulated".to_owned()),
                encryption: encryption.clone(),
                ..ServerSettings::new(Arc::new(self.doors[at].clone()))
            };
            match Server::start(settings).await {
                Ok(server) => {
                    self.layer.set(at, Some(server.client()));
                    lock(&self.servers)[at] = Some(server);
                    // The key may have been changed while it started. It is taken up once more in any case, so that the
                    // server shows when: a key that a restart replaces by the former one stays unseen (ARCHITECTURE.md).
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

    /// Makes what is there before anything goes wrong.
    async fn furnish(&self, plan: &Plan) -> anyhow::Result<()> {
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
                // One manager has entries of two versions then.
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
        self.doors[0].write(Write { key, value, expected: 0 }).await?;
        Ok(())
    }

    async fn define(&self, plan: &Plan, client: &kube::Client, stored: &str) -> anyhow::Result<()> {
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

    async fn deed(
        &self,
        plan: &Plan,
        at: Duration,
        deed: Deed,
        clocks: &Clocks<'_>,
        kill: &watch::Sender<u32>,
    ) {
        tokio::time::sleep_until(self.began + at).await;
        self.trace.step(&format!("{deed:?}"));
        let moves = matches!(deed, Deed::Store(_) | Deed::Rotate(_));
        lock(&self.moved).extend(moves.then(Instant::now));
        match deed {
            Deed::Kill => kill.send_modify(|kills| *kills += 1),
            Deed::Skew(seconds) => clocks.skew(SignedDuration::from_secs(seconds)),
            Deed::Freeze(server, millis) => {
                self.doors[server].shut(true);
                tokio::time::sleep(Duration::from_millis(millis)).await;
                self.doors[server].shut(false);
            }
            Deed::Restart(server, millis) => {
                let running = lock(&self.servers)[server].take();
                // Another restart may be under way.
                if let Some(running) = running {
                    self.layer.set(server, None);
                    drop(running);
                    if let Some(ledger) = &self.ledger {
                        ledger.encrypts(server, None);
                    }
                    tokio::time::sleep(Duration::from_millis(millis)).await;
                    self.start(plan, server).await;
                }
            }
            Deed::Store(version) => {
                // Whoever wants that tries until it is done.
                for _ in 0..100 {
                    if let Some(client) = self.layer.direct(0)
                        && self.define(plan, &client, version).await.is_ok()
                    {
                        break;
                    }
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
            Deed::Rotate(server) => {
                lock(&self.rotated).insert(server);
                self.encrypt(server, true);
            }
            Deed::RotateBack(server) => {
                lock(&self.rotated).remove(&server);
                self.encrypt(server, false);
            }
            Deed::Down(replica, millis) => {
                self.replicas[replica].down(true);
                tokio::time::sleep(Duration::from_millis(millis)).await;
                self.replicas[replica].down(false);
            }
            Deed::Pause(replica, millis) => {
                self.replicas[replica].pause(true);
                tokio::time::sleep(Duration::from_millis(millis)).await;
                self.replicas[replica].pause(false);
            }
            Deed::Migrate | Deed::Abort | Deed::Suspend(_) => steer(self, plan, deed).await,
        }
        lock(&self.moved).extend(moves.then(Instant::now));
        self.trace.step(&format!("{deed:?} is over"));
    }

    /// Whether a storage version or a key changed since then, or so shortly before that a server may not have followed.
    pub(crate) fn has_moved_since(&self, then: Instant) -> bool {
        lock(&self.moved).iter().any(|moved| *moved + FOLLOWED > then)
    }

    fn encrypt(&self, server: usize, rotated: bool) {
        if let (Some(running), Some(transformers)) = (&lock(&self.servers)[server], transformers(rotated)) {
            running.set_encryption(transformers);
            if let Some(ledger) = &self.ledger {
                ledger.encrypts(server, Some(key_name(rotated)));
            }
        }
    }

    /// Waits until the last deed is long over.
    pub(crate) async fn at_rest(&self, plan: &Plan) {
        tokio::time::sleep_until(self.began + plan.ends() + LAG * 3).await;
    }

    /// How objects are to be kept now.
    pub(crate) fn wanted(&self, plan: &Plan) -> String {
        if plan.scene.encrypts() {
            return if lock(&self.rotated).len() == plan.servers() { "key2" } else { "key1" }.to_owned();
        }
        self.oracle.stored_version().unwrap_or_default()
    }

    /// A pass begins, or goes on after a kill.
    pub(crate) fn pass(&self, progress: &Progress) {
        if progress.pass().listed == 0 {
            *lock(&self.pass_began) = self.oracle.revision();
        }
    }

    /// Judges a run that says that it is verified.
    pub(crate) fn verified(&self, progress: &Progress) {
        self.oracle.proven_by_a_pass(*lock(&self.pass_began));
        let (looked, measured) = {
            let notes = self.layer.notes();
            (notes.looked, notes.measured)
        };
        match self.scene {
            Scene::Keys => {
                let key = progress.encryption.as_deref().and_then(key_of);
                // No server goes back to the first key.
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

/// What the key is called that a configuration of this hash writes with; none for one that is not known.
pub(crate) fn key_of(hash: &str) -> Option<&'static str> {
    let is = |rotated| transformers(rotated).is_some_and(|transformers| hash == transformers.hash());
    if is(true) { Some("key2") } else { is(false).then_some("key1") }
}

fn key_name(rotated: bool) -> &'static str {
    KEYS[usize::from(rotated)].0
}

fn transformers(rotated: bool) -> Option<Arc<Transformers>> {
    let order = if rotated { [1, 0] } else { [0, 1] };
    let keys: Vec<_> = order.iter().map(|at| json!({"name": KEYS[*at].0, "secret": KEYS[*at].1})).collect();
    let file = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
        "resources": [{"resources": ["secrets"], "providers": [{"secretbox": {"keys": keys}}, {"identity": {}}]}],
    });
    Transformers::parse(file.to_string().as_bytes()).ok().map(Arc::new)
}

pub(crate) fn definition(group: &str, stored: &str, retired: bool) -> Value {
    let version = |name: &str| {
        json!({
            "name": name, "served": name != "v1" || !retired, "storage": name == stored,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("boats.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"plural": "boats", "kind": "Boat"},
            "versions": [version("v1"), version("v2")],
        },
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
