//! What the controller costs an idle cluster, and what it reports about itself.
//!
//! Only on a real kube-apiserver: it needs the more than 40 built-in resources of kube-apiserver.

use std::time::Duration;

use restow_lab::{Action, ClusterSpec};

use crate::controller::{Controller, MIGRATIONS, STATES, define, is};
use crate::support::{Restow, cluster, lab, send, wait};
use crate::traffic::Traffic;

/// How long nothing happens.
const QUIET: Duration = Duration::from_secs(20);

#[tokio::test]
async fn an_idle_cluster_receives_few_requests() {
    let assets = lab!();
    let cluster = cluster(&assets, ClusterSpec::new()).await;
    let client = cluster.client(0).unwrap();
    let (recorder, traffic) = Traffic::record(&cluster, |_, _| Action::Forward).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let args = ["--leader-elect", "--leader-election-namespace", "default", "--concurrent-migrations", "4"];
    let controller = Controller::start(&restow, &args).await;
    // Before there is anything to work on.
    wait("the controller to say what it waits for", || async {
        controller.get("/readyz").await.contains("migration.k8s.io is not served")
    })
    .await;
    define(&client).await;
    // In steps: each has its time, however busy the machine is.
    for count in [10, 20, 30, 40] {
        wait(&format!("{count} migrations to succeed"), || async {
            let all = send(&client, "GET", MIGRATIONS, None).await;
            let all = all["items"].as_array().unwrap();
            all.iter().filter(|migration| is(migration, "Succeeded")).count() >= count
        })
        .await;
    }
    wait("every resource to be migrated once", || async {
        let (states, all) =
            (send(&client, "GET", STATES, None).await, send(&client, "GET", MIGRATIONS, None).await);
        let settled = states["items"].as_array().unwrap().iter().filter(|state| {
            let status = &state["status"];
            status["persistedStorageVersionHashes"]
                == serde_json::json!([status["currentStorageVersionHash"]])
        });
        let done =
            all["items"].as_array().unwrap().iter().filter(|migration| is(migration, "Succeeded")).count();
        done >= 40 && done == all["items"].as_array().unwrap().len() && settled.count() == done
    })
    .await;
    assert!(controller.get("/readyz").await.starts_with("HTTP/1.1 200"));
    assert!(controller.get("/healthz").await.starts_with("HTTP/1.1 200"));
    let metrics = controller.get("/metrics").await;
    for line in [
        "restow_leader 1",
        "restow_storage_states_unsettled 0",
        "storage_migrator_core_migrator_migrations{resource=\"secrets\",status=\"Succeeded\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }

    // The last migration is taken in by one more look.
    wait("that look to be over", || async {
        let before = traffic.requests().len();
        tokio::time::sleep(Duration::from_secs(2)).await;
        traffic.requests().len() - before <= 2
    })
    .await;
    let before = traffic.requests().len();
    tokio::time::sleep(QUIET).await;
    let sent: Vec<String> = traffic.requests()[before..].iter().map(|request| request.path.clone()).collect();
    assert!((sent.len() as u64) < QUIET.as_secs(), "{} requests in {QUIET:?}: {sent:#?}", sent.len());
    // Without the pages of the program itself, which are most of it in a build for tests. 15 MiB are usual, and more when
    // four migrations and a look come together on a busy machine.
    let held = peak(controller.pid()) - kibibytes(controller.pid(), "RssFile");
    assert!(held < 24 * 1024, "{held} KiB");
    assert!(controller.stop().await);
}

/// The most memory a process has held, in KiB.
pub(crate) fn peak(pid: u32) -> u64 {
    kibibytes(pid, "VmHWM")
}

fn kibibytes(pid: u32, what: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(what)).unwrap();
    eprintln!("{line}");
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
