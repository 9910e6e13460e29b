//! restow's own engine against the server, over the network.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use restow_apiserver::{Network, Server, Settings};
use restow_core::agreement::encryption::Demand;
use restow_core::resource::inventory::find;
use restow_core::rewrite::outcome::Outcome;
use restow_core::rewrite::pace::Preset;
use restow_core::rewrite::progress::{Phase, Progress, Quarantined};
use restow_lease::Stop;
use restow_migrate::cluster::{Cluster, Trust};
use restow_migrate::migration::{self, Journal, ListMode, Migration, Observer};
use restow_migrate::pages::Waiting;
use restow_migrate::rewrite::Manner;
use restow_migrate::throttle::Throttle;
use restow_store::Store as _;
use restow_store::file::{FileStore, Settings as FileSettings};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::basics::read;
use crate::definitions::{defined, definition, send, until};

struct Silent;

impl Waiting for Silent {
    fn waiting(&self, _: &str, _: Duration) {}
}

impl Observer for Silent {
    fn settling(&self, _: Duration) {}
    fn pass(&self, _: &Progress) {}
    fn decided(&self, _: &Outcome) {}
    fn page(&self, _: &Progress) {}
}

impl Journal for Silent {
    async fn save(&mut self, _: &Progress, left: &[Quarantined]) -> io::Result<()> {
        assert!(left.is_empty(), "{left:?}");
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_storage_version_is_migrated_and_verified() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(FileStore::open(dir.path(), FileSettings::default()).unwrap());
    let network = Some(Network::ephemeral().await.unwrap());
    let server = Server::start(Settings { network, ..Settings::new(store.clone()) }).await.unwrap();
    defined(&server, "v1").await;
    for at in 0..25 {
        let widget = json!({
            "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": format!("w-{at}")},
        });
        send(&server, "POST", "/apis/example.com/v1/namespaces/default/widgets", &widget).await.unwrap();
    }
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com";
    let flip = json!({"spec": {"versions": definition("v2")["spec"]["versions"]}});
    send(&server, "PATCH", path, &flip).await.unwrap();
    until("the new hash", || async {
        read(&server, "/apis/example.com/v1").await["resources"][0]["storageVersionHash"] != "gIwvi5rymmg="
    })
    .await;

    let config = server.reach().unwrap().config().unwrap();
    let cluster = Cluster::connect(config, Trust::Members).unwrap();
    let inventory = cluster.inventory(false).await.unwrap();
    let resource = find(&inventory.resources, "widgets.example.com").unwrap();
    let settings = migration::Settings {
        page_size: 10,
        list: ListMode::Chunked,
        verify: true,
        manner: Manner::default(),
        encrypted: Demand::default(),
    };
    let throttle = Throttle::new(Preset::Fast.bounds());
    let stop = Stop::from(CancellationToken::new());
    let migration = Migration {
        cluster: &cluster,
        resource,
        settings,
        throttle: &throttle,
        observer: &Silent,
        stop: &stop,
    };
    let mut progress = migration.begin().await.unwrap();
    migration.run(&mut progress, &mut Silent).await.unwrap();
    assert_eq!((progress.phase, progress.verified, progress.counts.rewritten), (Phase::Done, true, 25));

    let prefix = "/registry/example.com/widgets/".to_owned();
    let range = restow_store::Range { prefix, start: None, limit: 0, revision: None };
    for entry in store.list(range).await.unwrap().entries {
        let object: Value = serde_json::from_slice(&entry.value).unwrap();
        assert_eq!(object["apiVersion"], "example.com/v2", "{}", entry.key);
    }
    server.stop().await;
}
