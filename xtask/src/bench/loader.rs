//! The bare loader: the highest write rate that the API server allows.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use anyhow::Result;
use bytes::Bytes;
use futures::future::try_join_all;
use http::Method;
use serde::Deserialize;
use serde_json::json;

use super::link::{Call, Endpoint, Link, MERGE_PATCH, Protocol, apart};

/// How many requests are in flight; the fast pace of restow has as many.
pub(crate) const AT_ONCE: usize = 32;

const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const PAGE: u32 = 1000;

/// The write of one object, ready to be sent.
struct Patch {
    path: String,
    body: Bytes,
}

#[derive(Deserialize)]
struct List {
    metadata: ListMeta,
    items: Vec<Object>,
}

#[derive(Deserialize)]
struct ListMeta {
    #[serde(default, rename = "continue")]
    next: String,
}

#[derive(Deserialize)]
struct Object {
    metadata: ObjectMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ObjectMeta {
    name: String,
    uid: String,
    resource_version: String,
}

/// Rewrites every object of a collection without verifying, and returns how long the writes took.
///
/// Listing and connecting come before the clock starts.
pub(crate) async fn rewrite_all(
    endpoint: Endpoint,
    collection: String,
    protocol: Protocol,
) -> Result<Duration> {
    apart(move || async move {
        let patches = list(&mut endpoint.link().await?, &collection).await?;
        let links = endpoint.links(protocol, AT_ONCE).await?;
        let began = Instant::now();
        drive(links, patches.len(), |index| {
            let Patch { path, body } = &patches[index];
            Call { accept: METADATA, ..Call::write(Method::PATCH, path.clone(), MERGE_PATCH, body.clone()) }
        })
        .await?;
        Ok(began.elapsed())
    })
    .await
}

/// Sends calls 0 to `count`, one at a time on each link; all must succeed.
pub(crate) async fn drive(links: Vec<Link>, count: usize, call: impl Fn(usize) -> Call) -> Result<()> {
    let next = Cell::new(0);
    let (call, next) = (&call, &next);
    let work = links.into_iter().map(|mut link| async move {
        while next.get() < count {
            let index = next.replace(next.get() + 1);
            link.expect(call(index)).await?;
        }
        anyhow::Ok(())
    });
    try_join_all(work).await?;
    Ok(())
}

async fn list(link: &mut Link, collection: &str) -> Result<Vec<Patch>> {
    let mut patches = Vec::new();
    let mut next = String::new();
    loop {
        let path = format!("{collection}?limit={PAGE}&continue={next}");
        let page: List = serde_json::from_slice(&link.expect(Call::get(path, METADATA_LIST)).await?)?;
        patches.extend(page.items.into_iter().map(
            |Object { metadata: ObjectMeta { name, uid, resource_version } }| {
                let body = json!({"metadata": {"uid": uid, "resourceVersion": resource_version}});
                Patch { path: format!("{collection}/{name}"), body: body.to_string().into() }
            },
        ));
        next = page.metadata.next;
        if next.is_empty() {
            return Ok(patches);
        }
    }
}
