//! Create, read, update and delete.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, ResourceExt as _};
use restow_apiserver::{Server, ServerSettings};
use restow_store::file::{self, FileStore};
use serde_json::{Value, json};

use crate::definitions::until;
use crate::memory::Memory;

/// A server for a test.
pub(crate) async fn server() -> Server {
    Server::start(ServerSettings::new(Memory::new())).await.unwrap()
}

/// The status code of a refused request.
pub(crate) fn code<T: std::fmt::Debug>(result: kube::Result<T>) -> u16 {
    match result {
        Err(kube::Error::Api(status)) => status.code,
        other => panic!("{other:?}"),
    }
}

/// Gets a path as JSON.
pub(crate) async fn read(server: &Server, path: &str) -> Value {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    server.client().request(request).await.unwrap()
}

pub(crate) fn config_map(name: &str, key: &str, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some([(key.to_owned(), value.to_owned())].into()),
        ..ConfigMap::default()
    }
}

#[tokio::test]
async fn a_started_server_is_ready_and_has_the_default_objects() {
    let server = server().await;
    assert_eq!(
        server.client().request_text(http::Request::get("/readyz").body(vec![]).unwrap()).await.unwrap(),
        "ok"
    );
    let namespaces = Api::<Namespace>::all(server.client()).list(&ListParams::default()).await.unwrap();
    let names: Vec<String> = namespaces.iter().map(|namespace| namespace.name_any()).collect();
    assert_eq!(names, ["default", "kube-node-lease", "kube-public", "kube-system"]);
    server.stop().await;
}

#[tokio::test]
async fn an_object_is_created_read_updated_and_deleted() {
    let server = server().await;
    let maps = Api::<ConfigMap>::namespaced(server.client(), "default");
    let post = PostParams::default();
    let made = maps.create(&post, &config_map("a", "k", "v")).await.unwrap();
    assert!(made.metadata.uid.is_some() && made.metadata.creation_timestamp.is_some());
    assert_eq!(maps.get("a").await.unwrap(), made);
    assert_eq!(code(maps.create(&post, &config_map("a", "k", "v")).await), 409);

    let mut changed = made.clone();
    changed.data = Some([("k".to_owned(), "w".to_owned())].into());
    let changed = maps.replace("a", &post, &changed).await.unwrap();
    assert_ne!(changed.metadata.resource_version, made.metadata.resource_version);
    assert_eq!(code(maps.replace("a", &post, &made).await), 409);

    let patch = Patch::Merge(json!({"data": {"x": "y", "k": null}}));
    let patched = maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(patched.data, Some([("x".to_owned(), "y".to_owned())].into()));

    let wrong = Preconditions { uid: Some("other".to_owned()), resource_version: None };
    let params = DeleteParams { preconditions: Some(wrong), ..DeleteParams::default() };
    assert_eq!(code(maps.delete("a", &params).await), 409);
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    assert_eq!(code(maps.get("a").await), 404);
    assert_eq!(code(maps.delete("a", &DeleteParams::default()).await), 404);
    server.stop().await;
}

#[tokio::test]
async fn a_patch_that_changes_nothing_writes_nothing() {
    let server = server().await;
    let maps = Api::<ConfigMap>::namespaced(server.client(), "default");
    let made = maps.create(&PostParams::default(), &config_map("a", "k", "v")).await.unwrap();
    let version = made.metadata.resource_version.clone();
    let same = json!({"metadata": {"uid": made.metadata.uid, "resourceVersion": version}});
    let patched = maps.patch("a", &PatchParams::default(), &Patch::Merge(same)).await.unwrap();
    assert_eq!(patched.metadata.resource_version, version);
    let stale = json!({"metadata": {"resourceVersion": "1"}});
    assert_eq!(code(maps.patch("a", &PatchParams::default(), &Patch::Merge(stale)).await), 409);
    server.stop().await;
}

#[tokio::test]
async fn dry_runs_store_nothing() {
    let server = server().await;
    let maps = Api::<ConfigMap>::namespaced(server.client(), "default");
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let made = maps.create(&dry, &config_map("a", "k", "v")).await.unwrap();
    assert!(made.metadata.uid.is_some());
    assert_eq!(code(maps.get("a").await), 404);
    server.stop().await;
}

#[tokio::test]
async fn finalizers_delay_deletion() {
    let server = server().await;
    let maps = Api::<ConfigMap>::namespaced(server.client(), "default");
    let mut held = config_map("a", "k", "v");
    held.metadata.finalizers = Some(vec!["example.com/hold".to_owned()]);
    maps.create(&PostParams::default(), &held).await.unwrap();
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(maps.get("a").await.unwrap().metadata.deletion_timestamp.is_some());
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    maps.patch("a", &PatchParams::default(), &free).await.unwrap();
    assert_eq!(code(maps.get("a").await), 404);
    server.stop().await;
}

#[tokio::test]
async fn objects_need_an_existing_namespace() {
    let server = server().await;
    let maps = Api::<ConfigMap>::namespaced(server.client(), "nowhere");
    assert_eq!(code(maps.create(&PostParams::default(), &config_map("a", "k", "v")).await), 404);
    let namespaces = Api::<Namespace>::all(server.client());
    assert_eq!(code(namespaces.delete("default", &DeleteParams::default()).await), 403);
    server.stop().await;
}

#[tokio::test]
async fn string_data_of_secrets_is_encoded() {
    let server = server().await;
    let secrets = Api::<Secret>::namespaced(server.client(), "default");
    let secret = Secret {
        metadata: ObjectMeta { generate_name: Some("s-".to_owned()), ..ObjectMeta::default() },
        string_data: Some([("a".to_owned(), "b".to_owned())].into()),
        ..Secret::default()
    };
    let made = secrets.create(&PostParams::default(), &secret).await.unwrap();
    assert!(made.name_any().starts_with("s-") && made.name_any().len() == 7);
    assert_eq!(made.type_.as_deref(), Some("Opaque"));
    assert_eq!(made.data.unwrap()["a"].0, b"b");
    server.stop().await;
}

#[tokio::test]
async fn unserved_paths_are_not_found() {
    let server = server().await;
    for path in [
        "/api/v1/nothing",
        "/apis/nothing.example/v1",
        "/api/v2",
        "/nothing",
        "/api/v1/namespaces/x/pods/a/exec",
    ] {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        assert_eq!(code(server.client().request::<Value>(request).await), 404, "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn discovery_lists_what_is_served() {
    let server = server().await;
    let core = read(&server, "/api/v1").await;
    let find = |name: &str| {
        let mut all = core["resources"].as_array().unwrap().iter();
        all.find(|resource| resource["name"] == name).cloned().unwrap()
    };
    assert_eq!(find("events")["storageVersionHash"], "r2yiGXH7wu8=");
    assert_eq!(find("configmaps")["shortNames"], json!(["cm"]));
    assert_eq!(find("pods/status")["verbs"], json!(["get", "patch", "update"]));
    let groups = read(&server, "/apis").await;
    let names = groups["groups"].as_array().unwrap().iter().map(|group| group["name"].as_str().unwrap());
    assert!(
        names.clone().any(|name| name == "apps") && names.clone().any(|name| name == "authorization.k8s.io")
    );
    assert_eq!(read(&server, "/version").await["minor"], "36");
    server.stop().await;
}

#[tokio::test]
async fn strategic_patches_merge_lists_by_their_keys() {
    let server = server().await;
    let deployments = Api::<Deployment>::namespaced(server.client(), "default");
    let container = json!({"name": "c", "image": "one", "ports": [{"containerPort": 80}]});
    let deployment = serde_json::from_value(json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]},
        }},
    }));
    deployments.create(&PostParams::default(), &deployment.unwrap()).await.unwrap();
    let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "two"}]}}}});
    let params = PatchParams { field_manager: Some("patcher".to_owned()), ..PatchParams::default() };
    let patched = deployments.patch("d", &params, &Patch::Strategic(patch)).await.unwrap();
    assert_eq!(patched.metadata.generation, Some(2));
    let managers = patched.metadata.managed_fields.unwrap_or_default();
    assert!(managers.iter().any(|entry| entry.manager.as_deref() == Some("patcher")), "{managers:?}");
    let container = &patched.spec.template.spec.unwrap().containers[0];
    assert_eq!((container.image.as_deref(), container.ports.as_ref().map(Vec::len)), (Some("two"), Some(1)));
    server.stop().await;
}

/// A dropped server releases its store for the next one.
#[tokio::test]
async fn a_dropped_server_stops() {
    let dir = tempfile::tempdir().unwrap();
    let open = || FileStore::open(dir.path(), file::FileSettings::default());
    let server = Server::start(ServerSettings::new(Arc::new(open().unwrap()))).await.unwrap();
    assert!(open().is_err(), "its store is its own");
    drop(server);
    until("its store to be closed", || async { open().is_ok() }).await;
}
