//! Users write during a migration: none of their writes is lost, changed or undone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use restow_lab::Action;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::support::{Lab, Restow, Widgets, contents, name, patch, send, try_send, wait};
use crate::traffic::{Traffic, ended, number};

scenarios! {
    no_write_of_a_user_is_lost_or_undone,
    a_write_between_list_and_patch_is_kept,
}

const OBJECTS: usize = 2_000;
/// Objects from here on are left alone by the storm.
const QUIET: usize = 1_500;
const USERS: usize = 4;
const SEED: u64 = 0x5708;

/// What must be there in the end: each object as its last write left it, or that it was deleted.
type Model = BTreeMap<String, Option<Value>>;

/// One of the users; no two of them write the same object, so that each knows what must become of its own.
struct User {
    client: kube::Client,
    widgets: &'static Widgets,
    manager: String,
    rng: fastrand::Rng,
    model: Model,
    made: usize,
    shared: Arc<Storm>,
}

/// What the users and the test tell each other.
#[derive(Default)]
struct Storm {
    over: AtomicBool,
    writes: AtomicUsize,
    deleted: AtomicUsize,
    recreated: AtomicUsize,
}

/// An object without what differs by the version it is read through, or by a rewrite.
fn essence(mut object: Value) -> Value {
    object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    object.as_object_mut().unwrap().remove("apiVersion");
    object
}

impl User {
    async fn work(mut self) -> Model {
        let names: Vec<String> = self.model.keys().cloned().collect();
        while !self.shared.over.load(Ordering::SeqCst) {
            if self.rng.u8(0..8) == 0 {
                self.create().await;
            } else {
                let name = self.rng.choice(&names).unwrap().clone();
                self.visit(&name).await;
            }
            self.shared.writes.fetch_add(1, Ordering::SeqCst);
            // A user, not a benchmark: restow is to get some of the two cores too.
            tokio::time::sleep(Duration::from_millis(self.rng.u64(5..30))).await;
        }
        self.model
    }

    /// Does one of the things that can be done to an object.
    async fn visit(&mut self, name: &str) {
        match self.model[name].clone() {
            None => {
                self.post(name).await;
                self.shared.recreated.fetch_add(1, Ordering::SeqCst);
            }
            Some(object) if object["metadata"]["deletionTimestamp"].is_string() => self.release(name).await,
            Some(_) if self.rng.u8(0..4) == 0 => self.delete(name).await,
            Some(object) if object["metadata"]["finalizers"].is_array() => self.delete(name).await,
            Some(object) => match self.rng.u8(0..8) {
                0 => self.hold(name, object).await,
                1..4 => self.replace(name, object).await,
                _ => self.patch(name, object).await,
            },
        }
    }

    fn path(&mut self, name: &str) -> String {
        let version = if self.rng.bool() { "v1" } else { "v2" };
        let path = self.widgets.path(version, name);
        format!("{path}?fieldManager={}", self.manager)
    }

    /// A value no other write has.
    fn token(&mut self) -> String {
        format!("{}-{}", self.manager, self.rng.u64(..))
    }

    /// A new object, before or behind all that is there, so that restow comes upon it or not.
    async fn create(&mut self) {
        self.made += 1;
        let side = if self.rng.bool() { 'a' } else { 'x' };
        self.post(&format!("{side}-{}-{}", self.manager, self.made)).await;
    }

    async fn post(&mut self, name: &str) {
        let path = self.path("");
        let version = path.split('/').nth(3).unwrap();
        let body = json!({
            "apiVersion": format!("{}/{version}", self.widgets.group()), "kind": "Widget",
            "metadata": {"name": name}, "spec": {"token": self.token()},
        });
        let made = send(&self.client, "POST", &path, Some(&body)).await;
        assert_eq!(made["metadata"]["generation"], 1);
        self.model.insert(name.to_owned(), Some(essence(made)));
    }

    /// Changes one field, whatever the resourceVersion.
    async fn patch(&mut self, name: &str, before: Value) {
        let token = self.token();
        let path = self.path(name);
        let after = patch(&self.client, &path, &json!({"spec": {"token": token}})).await;
        self.wrote(name, before, after, &token);
    }

    /// Reads, changes and replaces; restow may come between, and then it is done once more.
    async fn replace(&mut self, name: &str, before: Value) {
        let token = self.token();
        loop {
            let path = self.path(name);
            let mut object = send(&self.client, "GET", &path, None).await;
            let seen = essence(object.clone());
            assert_eq!(seen, before, "somebody else changed {name}");
            object["spec"]["token"] = token.clone().into();
            match try_send(&self.client, "PUT", &path, Some(&object)).await {
                Ok(after) => return self.wrote(name, before, after, &token),
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => panic!("replacing {name}: {error}"),
            }
        }
    }

    /// Takes in a write of the spec: it changed just that, and counted as one generation.
    fn wrote(&mut self, name: &str, before: Value, after: Value, token: &str) {
        let generation = |object: &Value| object["metadata"]["generation"].as_u64().unwrap();
        assert_eq!(generation(&after), generation(&before) + 1, "somebody else wrote {name}");
        let mut spec = before["spec"].clone();
        spec["token"] = token.into();
        assert_eq!(after["spec"], spec, "{name}");
        assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"], "{name}");
        self.model.insert(name.to_owned(), Some(essence(after)));
    }

    /// Adds a finalizer, so that the object outlives its deletion.
    async fn hold(&mut self, name: &str, before: Value) {
        let path = self.path(name);
        let after =
            patch(&self.client, &path, &json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
        assert_eq!(after["spec"], before["spec"], "{name}");
        self.model.insert(name.to_owned(), Some(essence(after)));
    }

    async fn delete(&mut self, name: &str) {
        let path = self.path(name);
        let answer = send(&self.client, "DELETE", &path, None).await;
        self.shared.deleted.fetch_add(1, Ordering::SeqCst);
        let lives = answer["metadata"]["deletionTimestamp"].is_string();
        self.model.insert(name.to_owned(), lives.then(|| essence(answer)));
    }

    /// Takes the finalizer of a deleted object away: now it goes.
    async fn release(&mut self, name: &str) {
        let path = self.path(name);
        patch(&self.client, &path, &json!({"metadata": {"finalizers": null}})).await;
        self.model.insert(name.to_owned(), None);
    }
}

async fn more_writes(storm: &Storm, writes: usize) {
    let enough = storm.writes.load(Ordering::SeqCst) + writes;
    wait("the storm", || async { storm.writes.load(Ordering::SeqCst) >= enough }).await;
}

async fn no_write_of_a_user_is_lost_or_undone(lab: Lab) {
    static WIDGETS: Widgets = Widgets { plural: "storms" };
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    WIDGETS.define(&client).await;
    WIDGETS.create(&client, OBJECTS).await;
    let mut models: Vec<Model> = vec![Model::new(); USERS];
    let mut expected = Model::new();
    for (index, (_, object)) in contents(&client, &WIDGETS.path("v1", "")).await.into_values().enumerate() {
        let mut object = object;
        object.as_object_mut().unwrap().remove("apiVersion");
        let owner = if index < QUIET { &mut models[index % USERS] } else { &mut expected };
        owner.insert(object["metadata"]["name"].as_str().unwrap().to_owned(), Some(object));
    }

    let storm = Arc::new(Storm::default());
    let mut seeds = fastrand::Rng::with_seed(SEED);
    let mut users = tokio::task::JoinSet::new();
    for (number, model) in models.into_iter().enumerate() {
        let user = User {
            client: cluster.client(0).unwrap(),
            widgets: &WIDGETS,
            manager: format!("user-{number}"),
            rng: seeds.fork(),
            model,
            made: 0,
            shared: Arc::clone(&storm),
        };
        users.spawn(user.work());
    }
    more_writes(&storm, 100).await;
    WIDGETS.store_as(&client, "v2").await;
    let before = storm.writes.load(Ordering::SeqCst);
    let restow = Restow::new(cluster);
    let report = restow.migrate(&WIDGETS.name(), &["--pace", "fast"]).await.expect(0).resource();
    let during = storm.writes.load(Ordering::SeqCst) - before;
    more_writes(&storm, 100).await;
    storm.over.store(true, Ordering::SeqCst);
    while let Some(user) = users.join_next().await {
        expected.append(&mut user.unwrap());
    }

    // It was a storm, and restow was in it.
    assert!(during > 300, "{during} writes");
    assert!(storm.deleted.load(Ordering::SeqCst) > 50 && storm.recreated.load(Ordering::SeqCst) > 5);
    assert!(report["conflicted"].as_u64().unwrap() > 0 && report["gone"].as_u64().unwrap() > 0, "{report}");
    assert_eq!((&report["verified"], &report["quarantined"]), (&json!(true), &json!([])));

    let found: Model = contents(&client, &WIDGETS.path("v2", ""))
        .await
        .into_iter()
        .map(|(name, (_, mut object))| {
            object.as_object_mut().unwrap().remove("apiVersion");
            (name, Some(object))
        })
        .collect();
    let alive = found.len();
    for (name, object) in &expected {
        let found = found.get(name).cloned().flatten();
        assert_eq!(found, *object, "{name} is not as its user left it");
    }
    let known = found.keys().all(|name| expected.contains_key(name));
    assert!(known, "there are objects that nobody made");
    for (name, object) in &found {
        let fields = object.as_ref().unwrap()["metadata"]["managedFields"].as_array().unwrap();
        let restow = fields.iter().any(|entry| entry["manager"].as_str().unwrap().contains("restow"));
        assert!(!restow && !fields.is_empty(), "restow owns fields of {name}");
    }
    let stored = WIDGETS.stored_as(cluster).await;
    assert_eq!(stored, BTreeMap::from([(format!("{}/v2", WIDGETS.group()), alive)]));
}

/// The moment between the list and the write is held open while a user deletes, recreates and changes objects.
async fn a_write_between_list_and_patch_is_kept(lab: Lab) {
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural: "windows" };
    widgets.define(&client).await;
    widgets.create(&client, 50).await;
    widgets.store_as(&client, "v2").await;
    let (open, opened) = watch::channel(false);
    let (recorder, traffic) = Traffic::record(cluster, move |seen, before| match number(seen) {
        Some(0..3) if before == 0 => {
            let mut opened = opened.clone();
            Action::Wait(Box::pin(async move { drop(opened.wait_for(|open| *open).await) }))
        }
        _ => Action::Forward,
    })
    .await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let child = restow.start(&widgets.name(), &["--pace", "fast", "-o", "json"]);
    wait("three writes to be under way", || async {
        (0..3).all(|index| traffic.patches_of(&name(index)).len() == 1)
    })
    .await;

    let [recreated, deleted, changed] = [0, 1, 2].map(|index| widgets.path("v2", &name(index)));
    let first = send(&client, "DELETE", &recreated, None).await["details"]["uid"].clone();
    let body = json!({
        "apiVersion": format!("{}/v2", widgets.group()), "kind": "Widget",
        "metadata": {"name": name(0)}, "spec": {"life": "second"},
    });
    let second = send(&client, "POST", &widgets.path("v2", ""), Some(&body)).await;
    assert!(second["metadata"]["uid"].is_string() && second["metadata"]["uid"] != first);
    send(&client, "DELETE", &deleted, None).await;
    let newer = patch(&client, &changed, &json!({"spec": {"size": 42}})).await;
    open.send(true).unwrap();

    let report = ended(child).await.expect(0).resource();
    // The second life of an object is another object: the one that was listed is gone.
    assert_eq!((&report["conflicted"], &report["gone"]), (&json!(1), &json!(2)), "{report}");
    assert_eq!((&report["rewritten"], &report["verified"]), (&json!(47), &json!(true)), "{report}");
    // The first answer is to the write that was held, the second to the pass that verifies.
    assert_eq!(traffic.answers_to(&name(0)), [409, 200]);
    assert_eq!(traffic.answers_to(&name(1)), [404]);
    assert_eq!(traffic.answers_to(&name(2)), [409, 200]);
    assert_eq!(send(&client, "GET", &recreated, None).await, second, "restow touched the second life");
    assert_eq!(send(&client, "GET", &changed, None).await, newer, "restow touched what a user wrote");
    let gone = try_send(&client, "GET", &deleted, None).await.unwrap_err();
    assert!(matches!(&gone, kube::Error::Api(status) if status.code == 404), "{gone}");
    assert_eq!(widgets.stored_as(cluster).await, BTreeMap::from([(format!("{}/v2", widgets.group()), 49)]));
}
