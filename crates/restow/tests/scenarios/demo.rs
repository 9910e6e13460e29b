//! `restow demo`, which needs no cluster.

use crate::support::Restow;

#[tokio::test]
async fn the_demo_runs_from_start_to_end_without_input() {
    let told =
        Restow::with_kubeconfig("/dev/null".into()).run(&["demo", "--objects", "1000"]).await.expect(0);
    let told = told.stdout + &told.stderr;
    for words in [
        "writes were refused (503, Retry-After)",
        "registered: api-1 writes v2, api-2 writes v1",
        "Exit code 4",
        "registered: api-1 writes v2, api-2 writes v2",
        "kill -9",
        "objects already done",
        "storedVersions: v1, v2 -> v2",
        "status.storedVersions of the CRD: v2",
        ", 0 are lost.",
    ] {
        assert!(told.contains(words), "{words:?} is not in\n{told}");
    }
}

#[tokio::test]
async fn the_demo_does_not_touch_a_folder_in_use() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("store.redb"), "a diary").unwrap();
    let told = Restow::with_kubeconfig("/dev/null".into())
        .run(&["demo", "--data-dir", dir.path().to_str().unwrap()])
        .await
        .expect(1);
    assert!(told.stderr.contains("is not a store or is damaged"), "{told:#?}");
    assert_eq!(std::fs::read_to_string(dir.path().join("store.redb")).unwrap(), "a diary");
}
