//! The demo, as somebody without a cluster runs it.

use crate::support::Restow;

#[tokio::test]
async fn it_tells_the_whole_story_by_itself() {
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
async fn a_folder_that_is_in_use_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("store.redb"), "a diary").unwrap();
    let told = Restow::with_kubeconfig("/dev/null".into())
        .run(&["demo", "--data-dir", dir.path().to_str().unwrap()])
        .await
        .expect(1);
    assert!(told.stderr.contains("is not a store or is damaged"), "{told:#?}");
    assert_eq!(std::fs::read_to_string(dir.path().join("store.redb")).unwrap(), "a diary");
}
