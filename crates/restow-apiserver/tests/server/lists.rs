//! Lists: pages, revisions and selectors.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, PostParams};
use restow_apiserver::{Server, ServerSettings};
use restow_core::rewrite::token::Token;
use restow_store::Store as _;
use serde_json::Value;

use crate::basics::{code, config_map, read};
use crate::memory::Memory;

async fn filled(count: usize) -> (Arc<Memory>, Server, Api<ConfigMap>) {
    let store = Memory::new();
    let server = Server::start(ServerSettings::new(store.clone())).await.unwrap();
    let maps = Api::<ConfigMap>::namespaced(server.client(), "default");
    for at in 0..count {
        let mut map = config_map(&format!("m-{at:03}"), "at", &at.to_string());
        let parity = if at % 2 == 0 { "even" } else { "odd" };
        map.metadata.labels = Some([("parity".to_owned(), parity.to_owned())].into());
        maps.create(&PostParams::default(), &map).await.unwrap();
    }
    (store, server, maps)
}

#[tokio::test]
async fn all_pages_of_a_list_show_one_revision() {
    let (_, server, maps) = filled(10).await;
    let first = maps.list(&ListParams::default().limit(4)).await.unwrap();
    assert_eq!((first.items.len(), first.metadata.remaining_item_count), (4, Some(6)));
    maps.delete("m-005", &Default::default()).await.unwrap();
    let token = first.metadata.continue_.clone().unwrap();
    assert_eq!(Token::decode(&token).unwrap().start, "m-003\0");
    let rest = maps.list(&ListParams::default().limit(9).continue_token(&token)).await.unwrap();
    assert_eq!(rest.items.len(), 6);
    assert_eq!(rest.metadata.resource_version, first.metadata.resource_version);
    assert!(rest.metadata.continue_.is_none_or(|token| token.is_empty()));
    server.stop().await;
}

#[tokio::test]
async fn an_expired_continue_token_comes_with_a_new_one() {
    let (store, server, maps) = filled(6).await;
    let first = maps.list(&ListParams::default().limit(2)).await.unwrap();
    let token = first.metadata.continue_.unwrap();
    maps.delete("m-005", &Default::default()).await.unwrap();
    store.compact(store.revision().await.unwrap()).await.unwrap();
    let path = format!("/api/v1/namespaces/default/configmaps?limit=9&continue={token}");
    let request = http::Request::get(&path).body(Vec::new()).unwrap();
    let Err(kube::Error::Api(status)) = server.client().request::<Value>(request).await else {
        panic!("it is still there")
    };
    assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
    let newest = Token { resource_version: -1, start: "m-001\0".to_owned() }.encode();
    let rest = maps.list(&ListParams::default().limit(9).continue_token(&newest)).await.unwrap();
    assert_eq!(rest.items.len(), 3);
    server.stop().await;
}

#[tokio::test]
async fn lists_are_filtered_by_selectors() {
    let (_, server, maps) = filled(9).await;
    let odd = ListParams::default().labels("parity=odd").limit(3);
    let first = maps.list(&odd).await.unwrap();
    assert_eq!((first.items.len(), first.metadata.remaining_item_count), (3, None));
    let token = first.metadata.continue_.unwrap();
    assert_eq!(maps.list(&odd.continue_token(&token)).await.unwrap().items.len(), 1);
    let one = maps.list(&ListParams::default().fields("metadata.name=m-001")).await.unwrap();
    assert_eq!(one.items.len(), 1);
    assert_eq!(code(maps.list(&ListParams::default().fields("data.at=1")).await), 400);
    server.stop().await;
}

#[tokio::test]
async fn long_lists_are_complete() {
    let (_, server, maps) = filled(1203).await;
    let all = maps.list(&ListParams::default()).await.unwrap();
    assert_eq!(all.items.len(), 1203);
    let most = maps.list(&ListParams::default().limit(1100)).await.unwrap();
    assert_eq!((most.items.len(), most.metadata.remaining_item_count), (1100, Some(103)));
    server.stop().await;
}

#[tokio::test]
async fn lists_of_partial_object_metadata_have_no_spec() {
    let (_, server, maps) = filled(2).await;
    let list = maps.list_metadata(&ListParams::default()).await.unwrap();
    assert_eq!(list.items.len(), 2);
    assert_eq!(list.types.kind, "PartialObjectMetadataList");
    let one = maps.get_metadata("m-000").await.unwrap();
    assert_eq!(one.types.unwrap().kind, "PartialObjectMetadata");
    server.stop().await;
}

#[tokio::test]
async fn a_list_names_the_object_that_cannot_be_decoded() {
    let (store, server, maps) = filled(3).await;
    store.put("/registry/configmaps/default/m-001", "{\"metadata\":").await;
    assert_eq!(code(maps.get("m-001").await), 500);
    assert_eq!(code(maps.list(&ListParams::default()).await), 500);
    let first = maps.list(&ListParams::default().limit(1)).await.unwrap();
    assert_eq!(first.items.len(), 1);
    let request = http::Request::get("/api/v1/configmaps?limit=2").body(Vec::new()).unwrap();
    let Err(kube::Error::Api(status)) = server.client().request::<Value>(request).await else {
        panic!("it was read")
    };
    assert!(status.message.contains("/registry/configmaps/default/m-001"), "{}", status.message);
    server.stop().await;
}

#[tokio::test]
async fn a_list_shows_the_requested_revision() {
    let (_, server, _maps) = filled(1).await;
    let path = "/api/v1/configmaps";
    let now = read(&server, path).await["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    for (query, expected) in [
        (format!("resourceVersion={now}"), 200),
        ("resourceVersion=0".to_owned(), 200),
        ("resourceVersion=999999".to_owned(), 504),
        (format!("resourceVersion={now}&resourceVersionMatch=Exact"), 200),
        ("resourceVersionMatch=Exact".to_owned(), 422),
        ("continue=nonsense".to_owned(), 400),
    ] {
        let request = http::Request::get(format!("{path}?{query}")).body(Vec::new()).unwrap();
        let code = match server.client().request::<Value>(request).await {
            Ok(_) => 200,
            Err(kube::Error::Api(status)) => status.code,
            Err(other) => panic!("{other}"),
        };
        assert_eq!(code, expected, "{query}");
    }
    server.stop().await;
}

#[tokio::test]
async fn tables_have_the_columns_of_their_resource() {
    let (_, server, _maps) = filled(2).await;
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let request = http::Request::get("/api/v1/namespaces/default/configmaps").header("accept", accept);
    let table: Value = server.client().request(request.body(Vec::new()).unwrap()).await.unwrap();
    assert_eq!(table["kind"], "Table");
    let names: Vec<&str> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["Name", "Data", "Age"]);
    let rows = table["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[0]["cells"][0]), (2, &Value::from("m-000")));
    assert_eq!(rows[0]["object"]["kind"], "PartialObjectMetadata");
    server.stop().await;
}

#[tokio::test]
async fn large_objects_are_not_all_read_at_once() {
    let store = Memory::new();
    let server = Server::start(ServerSettings::new(store.clone())).await.unwrap();
    let large = "x".repeat(500_000);
    for at in 0..60 {
        let map = serde_json::json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"large": large},
            "metadata": {"name": format!("m-{at:03}"), "namespace": "default"},
        });
        let key = format!("/registry/configmaps/default/m-{at:03}");
        store.force(&key, Some(bytes::Bytes::from(map.to_string())));
    }
    for query in ["", "?limit=55", "?labelSelector=!none"] {
        let list = read(&server, &format!("/api/v1/namespaces/default/configmaps{query}")).await;
        let expected = if query.starts_with("?limit") { 55 } else { 60 };
        let items: Vec<&Value> = list["items"].as_array().unwrap().iter().collect();
        let names = items.iter().filter(|item| item["metadata"]["name"].as_str().unwrap().starts_with("m-"));
        assert_eq!(names.count(), expected, "{query}");
    }
    assert!(store.most_listed() < 12_000_000, "{} bytes were read at once", store.most_listed());
    server.stop().await;
}
