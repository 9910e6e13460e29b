//! Releases that store another version replace each other, under reads and writes in every version.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use crate::pages::{check, create, get, load, name, page, path, send};
use crate::program::{CRD, Pool, Program};
use crate::servers::{Bench, wait};

const PAGES: usize = 6;

#[tokio::test(flavor = "multi_thread")]
async fn pages_go_through_all_versions_and_back_on_a_real_control_plane() {
    if let Some(bench) = Bench::real("operator::pages_go_through_all_versions_and_back").await {
        through_all_versions_and_back(bench).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_replica_finishes_what_a_killed_leader_began() {
    if let Some(bench) = Bench::real("operator::another_replica_finishes_what_a_killed_leader_began").await {
        killed_leader(bench).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_go_through_all_versions_and_back_on_the_embedded_server() {
    through_all_versions_and_back(Bench::embedded().await).await;
}

/// Waits until a release has migrated everything: storedVersions has only its version.
async fn migrated(bench: &Bench, version: &str) {
    wait(&format!("storedVersions to be {version}"), || async {
        bench.crd().await["status"]["storedVersions"] == json!([version])
    })
    .await;
}

/// Starts the first release on an empty cluster, with just its permissions.
async fn first_release(bench: &Bench, pool: &Pool, storage: &str) -> Program {
    bench.permit().await;
    let program = Program::start(bench, pool, &["--storage-version", storage]).await;
    program.says("all objects are stored in the storage version").await;
    let crd = bench.crd().await;
    let config = &crd["spec"]["conversion"]["webhook"]["clientConfig"];
    assert_eq!(config["url"], format!("{}/convert/example.com/Page", pool.url()));
    assert!(config["caBundle"].is_string(), "{crd}");
    program
}

async fn through_all_versions_and_back(bench: Bench) {
    let (client, pool) = (bench.client(), Pool::start().await);
    let mut program = first_release(&bench, &pool, "v1alpha1").await;
    create(&client, 0..PAGES).await;
    assert_eq!(bench.stored_as().await, BTreeMap::from([("v1alpha1".to_owned(), PAGES)]));
    // The controller works on v1, whatever is stored.
    wait("the address to be in the status", || async {
        let page = get(&client, &path("v1alpha1", &name(0))).await;
        page["status"]["url"] == "http://www-0.example.com:8080/"
    })
    .await;
    let map = get(&client, &format!("/api/v1/namespaces/default/configmaps/page-{}", name(1))).await;
    assert!(map["data"]["index.html"].as_str().unwrap().contains("lang=\"de\""), "{map}");
    // The embedded server calls no admission webhooks.
    if let Bench::Real(_) = &bench {
        refuses_a_page_without_a_title(&bench).await;
    }
    // Somebody else's label on the CRD.
    let label = json!({"metadata": {"labels": {"team": "web"}}});
    send(&client, "PATCH", CRD, Some(&label)).await.unwrap();

    let (done, mut rounds) = (AtomicBool::new(false), vec![0; PAGES]);
    let releases = async {
        for version in ["v1beta1", "v1", "v1beta1", "v1alpha1"] {
            let next = Program::start(&bench, &pool, &["--storage-version", version, "--pace", "fast"]).await;
            program.end(&pool).await;
            migrated(&bench, version).await;
            program = next;
        }
        done.store(true, Ordering::SeqCst);
        program
    };
    let ((), program) = futures::join!(load(&client, &mut rounds, &done), releases);
    assert!(rounds.iter().all(|written| *written > 4), "{rounds:?}");
    check(&client, &bench.stored().await, "v1alpha1", &rounds).await;
    assert_eq!(bench.crd().await["metadata"]["labels"]["team"], "web", "the label is kept");
    program.says("migrated and verified").await;
    let metrics = program.metrics(&bench).await;
    for expected in [
        "restow_remaining_objects{resource=\"pages.example.com\"} 0",
        "restow_migrations_total{resource=\"pages.example.com\",result=\"succeeded\"} 1",
        "restow_webhook_objects_total{group=\"example.com\",kind=\"Page\"",
    ] {
        assert!(metrics.contains(expected), "{expected}: {metrics}");
    }
    program.end(&pool).await;
    let leases = get(&client, "/apis/coordination.k8s.io/v1/namespaces/default/leases").await;
    let held = leases["items"].as_array().unwrap().iter().filter(|lease| {
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        !holder.is_empty() && lease["metadata"]["name"].as_str().unwrap().starts_with("page-operator")
    });
    assert_eq!(held.count(), 0, "{leases}");
}

async fn refuses_a_page_without_a_title(bench: &Bench) {
    let client = bench.client();
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/page-operator";
    wait("the admission handler to be registered", || async {
        send(&client, "GET", path, None).await.is_ok()
    })
    .await;
    let (_, mut page) = page(0);
    page["metadata"]["name"] = json!("untitled");
    page["spec"]["heading"] = json!("");
    // API servers follow the configurations, so it takes a moment.
    wait("an untitled page to be refused", || async {
        let made = send(&client, "POST", &crate::pages::path("v1alpha1", ""), Some(&page)).await;
        if made.is_ok() {
            send(&client, "DELETE", &crate::pages::path("v1", "untitled"), None).await.unwrap();
        }
        made.is_err_and(|error| error.to_string().contains("a page needs a title"))
    })
    .await;
}

async fn killed_leader(bench: Bench) {
    const MANY: usize = 120;
    let (client, pool) = (bench.client(), Pool::start().await);
    let first = first_release(&bench, &pool, "v1beta1").await;
    create(&client, 0..MANY).await;
    // Slow, so that it is killed in the middle.
    let gentle = ["--storage-version", "v1", "--pace", "gentle"];
    let leader = Program::start(&bench, &pool, &gentle).await;
    first.end(&pool).await;
    leader.says("page_operator: leading").await;
    let other = Program::start(&bench, &pool, &["--storage-version", "v1", "--pace", "fast"]).await;
    let (done, mut rounds) = (AtomicBool::new(false), vec![0; PAGES]);
    let releases = async {
        wait("some pages to be rewritten", || async {
            bench.stored_as().await.get("v1").is_some_and(|rewritten| *rewritten > PAGES + 20)
        })
        .await;
        assert!(!other.has_logged("rewriting"), "{}", other.log());
        let left = bench.stored_as().await["v1beta1"];
        assert!(left > 0, "the leader had finished");
        leader.kill(&pool).await;
        migrated(&bench, "v1").await;
        done.store(true, Ordering::SeqCst);
        other
    };
    let ((), other) = futures::join!(load(&client, &mut rounds, &done), releases);
    other.says("migrated and verified").await;
    rounds.resize(MANY, 0);
    check(&client, &bench.stored().await, "v1", &rounds).await;
    let metrics = other.metrics(&bench).await;
    for expected in [
        "restow_remaining_objects{resource=\"pages.example.com\"} 0",
        "restow_migrations_total{resource=\"pages.example.com\",result=\"succeeded\"} 1",
        "restow_webhook_objects_total{group=\"example.com\",kind=\"Page\"",
    ] {
        assert!(metrics.contains(expected), "{expected}: {metrics}");
    }
    other.end(&pool).await;
}
