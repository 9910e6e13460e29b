//! Expiry of Events.

use restow_apiserver::{Server, ServerSettings};
use restow_store::Store as _;
use serde_json::json;

use crate::basics::read;
use crate::definitions::{send, until};
use crate::memory::Memory;

const OLD: &str = r#"{"apiVersion":"v1","involvedObject":{},"kind":"Event","metadata":{
    "creationTimestamp":"2020-01-01T00:00:00Z","name":"old","namespace":"default","uid":"u"}}"#;

#[tokio::test]
async fn events_expire() {
    let store = Memory::new();
    store.put("/registry/events/default/old", OLD).await;
    let server = Server::start(ServerSettings::new(store.clone())).await.unwrap();
    let events = "/api/v1/namespaces/default/events";
    let new = json!({"metadata": {"name": "new"}, "involvedObject": {"namespace": "default"}});
    send(&server, "POST", events, &new).await.unwrap();
    until("the old one is gone", || async {
        store.get("/registry/events/default/old").await.unwrap().entry.is_none()
    })
    .await;
    read(&server, &format!("{events}/new")).await;
    server.stop().await;
}
