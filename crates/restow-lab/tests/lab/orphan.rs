//! A cluster whose process is killed leaves nothing behind.

use std::{
    env,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use restow_lab::{Cluster, ClusterSpec, assets};

const TEST: &str = "orphan::a_cluster_dies_with_its_process";
const INNER: &str = "RESTOW_LAB_TEST_ORPHAN";

/// The process to be killed: this test again, told to start a cluster, name its parts and wait.
async fn inner() {
    let cluster = Cluster::start(&assets::or_skip(TEST).unwrap(), ClusterSpec::new()).await.unwrap();
    for part in cluster.parts() {
        println!("pid={}", cluster.pid(part).unwrap());
    }
    println!("dir={}", cluster.dir().display());
    tokio::time::sleep(Duration::from_secs(300)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_dies_with_its_process() {
    if env::var_os(INNER).is_some() {
        return inner().await;
    }
    if assets::or_skip(TEST).is_none() {
        return;
    }
    let mut child = Command::new(env::current_exe().unwrap())
        .args([TEST, "--exact", "--nocapture"])
        .env(INNER, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut left = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if let Some((_, pid)) = line.split_once("pid=") {
            left.push(Path::new("/proc").join(pid).join("exe"));
        } else if let Some((_, dir)) = line.split_once("dir=") {
            left.push(PathBuf::from(dir));
            break;
        }
    }
    assert_eq!(left.len(), 3, "{left:?}");
    assert!(left.iter().all(|path| path.exists()), "{left:?}");

    child.kill().unwrap();
    child.wait().unwrap();
    for _ in 0..100 {
        left.retain(|path| path.exists());
        if left.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{left:?} is left");
}
