//! The conversions of the example, with the test kit.
#![allow(clippy::unwrap_used, missing_docs)]

use operator::{chain, definition};
use restow_convert::Chain;
use restow_convert_test::{
    Converted, Failures, Fixtures, RoundTrips, Row, StepsError, Table, VersionTest, WithoutServer,
};
use serde_json::{Value, json};

fn converter() -> Chain {
    chain(&definition("v1").unwrap()).unwrap()
}

fn page(version: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Page", "metadata": {"name": "p"}, "spec": spec})
}

/// A page of the oldest version that uses every field.
fn seed() -> Value {
    page(
        "v1alpha1",
        json!({"heading": "Pets", "body": "Cats", "address": "www.example.com:8080", "blink": true}),
    )
}

#[test]
fn each_change_of_the_api_has_a_row() -> Result<(), Failures> {
    let beta = |address: &str| page("v1beta1", json!({"title": "Pets", "address": address}));
    let stable = |mut spec: Value| {
        spec["title"] = json!("Pets");
        page("v1", spec)
    };
    Table::new()
        .row(Row::converts(
            "a renamed and a removed field",
            page("v1alpha1", json!({"heading": "Pets", "address": "a", "blink": true})),
            beta("a"),
        ))
        .row(Row::converts("a split and an added field", beta("a:8080"), stable(json!({"host": "a", "port": 8080, "language": "en"}))))
        .row(Row::converts("no port", beta("a"), stable(json!({"host": "a", "language": "en"}))))
        .row(Row::converts("the oldest version", seed(), page("v1", json!({
            "title": "Pets", "body": "Cats", "host": "www.example.com", "port": 8080, "language": "en",
        }))))
        .row(Row::converts("another language, downwards", stable(json!({"host": "a", "port": 1, "language": "de"})), beta("a:1")))
        .row(Row::fails("a port that is none", beta("a:http"), "v1", "spec.address: \"a:http\" has no port behind the colon"))
        .check(&converter())
}

#[test]
fn generated_pages_survive_every_way() -> Result<(), Failures> {
    let addresses = |path: &[String]| match path.last().map(String::as_str) {
        Some("address") => ["a", "a:80", "a:08080", ""].map(str::to_owned).to_vec(),
        _ => Vec::new(),
    };
    RoundTrips::of(&definition("v1").unwrap()).texts(addresses).objects(200).check(&converter())
}

#[test]
fn pages_of_users_become_what_their_snapshots_show() -> Result<(), Failures> {
    Fixtures::at(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures")).check(&converter())
}

/// What must be true of the seed in every version: its title, wherever it is.
async fn keeps_its_title(step: &Converted) -> Result<(), StepsError> {
    let spec = &step.object["spec"];
    let title = spec.get("title").or_else(|| spec.get("heading"));
    if title == Some(&json!("Pets")) { Ok(()) } else { Err(format!("the title is {title:?}").into()) }
}

#[tokio::test]
async fn a_page_keeps_its_title_in_every_version() -> Result<(), Failures> {
    let converter = converter();
    let mut steps = WithoutServer::new(&converter);
    VersionTest::new(&definition("v1").unwrap(), seed()).run(&mut steps, keeps_its_title).await
}
