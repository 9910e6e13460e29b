//! The objects that are migrated: custom resources of 1 KiB, whose storage version flips between v1 and v2.

use std::{
    collections::BTreeMap,
    ops::Range,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use http::Method;
use restow_core::resource::hash::storage_version_hash;
use restow_core::resource::name::GroupVersion;
use restow_lab::Etcd;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    link::{Call, Endpoint, Protocol, apart},
    loader::{AT_ONCE, drive, rewrite_all},
};

const GROUP: &str = "bench.example.com";
const PLURAL: &str = "widgets";
const KIND: &str = "Widget";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const PREFIX: &str = "/registry/bench.example.com/widgets/";
/// The size of one object as it is stored.
const STORED_BYTES: usize = 1024;
/// Objects that are held in memory at once while they are put into the store.
const PLANTED_AT_ONCE: usize = 4096;
/// A CRD's handlers may follow its discovery only seconds later (kubernetes#130235).
const SETTLE: Duration = Duration::from_secs(7);

/// The widgets of one server.
pub(crate) struct Widgets<'a> {
    /// The client of etcd to count stored objects with; none for a server that stores in a file.
    etcd: Option<Etcd>,
    endpoint: &'a Endpoint,
    storage: &'static str,
    count: usize,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    api_version: String,
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    uid: String,
}

impl<'a> Widgets<'a> {
    /// Defines the resource and creates this many objects, stored as v1.
    pub(crate) async fn make(etcd: Option<Etcd>, endpoint: &'a Endpoint, count: usize) -> Result<Self> {
        let mut widgets = Self::define(etcd, endpoint).await?;
        widgets.grow(count).await?;
        Ok(widgets)
    }

    /// Defines the resource, to be stored as v1.
    pub(crate) async fn define(etcd: Option<Etcd>, endpoint: &'a Endpoint) -> Result<Self> {
        let widgets = Self { etcd, endpoint, storage: "v1", count: 0 };
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": Self::name()},
            "spec": {
                "group": GROUP, "scope": "Namespaced",
                "names": {"plural": PLURAL, "singular": "widget", "kind": KIND},
                "versions": versions("v1"),
            },
        });
        let mut link = endpoint.link().await?;
        link.json(Method::POST, CRDS, Some(&crd)).await?;
        link.wait(&widgets.collection(), |list| list["items"].is_array()).await?;
        Ok(widgets)
    }

    /// Creates more of them, up to this number, and returns how long that took.
    pub(crate) async fn grow(&mut self, count: usize) -> Result<Duration> {
        let (endpoint, collection) = (self.endpoint.clone(), self.collection());
        let (range, version) = (self.count..count, self.storage);
        let took = apart(move || async move {
            let began = Instant::now();
            create(&endpoint, &collection, version, range).await?;
            Ok(began.elapsed())
        })
        .await?;
        self.count = count;
        if let Some(bytes) = self.bytes().await? {
            let average = bytes / count.max(1);
            ensure!(
                average.abs_diff(STORED_BYTES) < 64,
                "an object takes {average} bytes, not {STORED_BYTES}"
            );
        }
        Ok(took)
    }

    /// Writes more of them to the store itself, up to this number: the bytes of the first one under other names and uids.
    ///
    /// They stay in the version in which the first one is stored.
    pub(crate) async fn plant(&mut self, count: usize) -> Result<()> {
        let etcd = self.etcd.as_ref().context("objects can be planted in etcd alone")?;
        let key = |index| format!("{PREFIX}default/{}", object_name(index));
        let first = etcd.get(&key(0)).await?.context("there is no first object")?;
        let first = String::from_utf8(first)?;
        let stored: Stored = serde_json::from_str(&first)?;
        let indices: Vec<usize> = (self.count..count).collect();
        for some in indices.chunks(PLANTED_AT_ONCE) {
            let object = |&index: &usize| {
                let uid = format!("{}{index:012}", &stored.metadata.uid[..24]);
                let object = first.replace(&object_name(0), &object_name(index));
                (key(index), object.replace(&stored.metadata.uid, &uid).into_bytes())
            };
            etcd.put_all(&some.iter().map(object).collect::<Vec<_>>()).await?;
        }
        self.count = count;
        Ok(())
    }

    /// The full name of the resource.
    pub(crate) fn name() -> String {
        format!("{PLURAL}.{GROUP}")
    }

    /// How many objects there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The objects' path, at the storage version.
    pub(crate) fn collection(&self) -> String {
        format!("/apis/{GROUP}/{}/namespaces/default/{PLURAL}", self.storage)
    }

    /// What the built-in migrator takes.
    pub(crate) fn group_resource() -> Value {
        json!({"group": GROUP, "resource": PLURAL})
    }

    /// One object, which may be touched.
    pub(crate) fn first(&self) -> String {
        format!("{}/{}", self.collection(), object_name(0))
    }

    /// Makes all objects need a migration: flips the storage version and waits until the handlers have followed.
    pub(crate) async fn flip(&mut self) -> Result<()> {
        if self.left_behind().await? > Some(0) {
            // The contestant before left some behind; the next one must not profit from that.
            self.rewrite(Protocol::Http2).await?;
        }
        let left = self.left_behind().await?.unwrap_or(0);
        ensure!(left == 0, "{left} objects cannot be brought to {}", self.storage);

        self.storage = if self.storage == "v1" { "v2" } else { "v1" };
        let mut link = self.endpoint.link().await?;
        let spec = json!({"spec": {"versions": versions(self.storage)}});
        link.json(Method::PATCH, &format!("{CRDS}/{}", Self::name()), Some(&spec)).await?;
        let hash = storage_version_hash(&GroupVersion::new(GROUP, self.storage), KIND);
        link.wait(&format!("/apis/{GROUP}/{}", self.storage), |found| {
            found["resources"][0]["storageVersionHash"] == hash.as_str()
        })
        .await?;
        // After a change of the CRD, the first request makes the server fill its caches again.
        for version in ["v1", "v2"] {
            let path =
                format!("/apis/{GROUP}/{version}/namespaces/default/{PLURAL}?limit=1&resourceVersion=0");
            link.wait(&path, |found| found["items"].is_array()).await?;
        }
        tokio::time::sleep(SETTLE).await;

        let left = self.left_behind().await?.unwrap_or(self.count);
        ensure!(left == self.count, "only {left} of {} objects need a migration", self.count);
        Ok(())
    }

    /// Rewrites all objects with the bare loader.
    pub(crate) async fn rewrite(&self, protocol: Protocol) -> Result<Duration> {
        rewrite_all(self.endpoint.clone(), self.collection(), protocol).await
    }

    /// How many objects etcd holds in another version than the storage version.
    pub(crate) async fn left_behind(&self) -> Result<Option<usize>> {
        let Some(etcd) = &self.etcd else { return Ok(None) };
        let mut census = BTreeMap::<String, usize>::new();
        let count = |_: &str, bytes: &[u8]| {
            let version = serde_json::from_slice::<Stored>(bytes).map(|stored| stored.api_version);
            *census.entry(version.unwrap_or_default()).or_default() += 1;
        };
        etcd.for_each(PREFIX, count).await?;
        let all: usize = census.values().sum();
        ensure!(all == self.count, "etcd holds {all} objects, not {}", self.count);
        Ok(Some(all - census.get(&format!("{GROUP}/{}", self.storage)).copied().unwrap_or(0)))
    }

    async fn bytes(&self) -> Result<Option<usize>> {
        let Some(etcd) = &self.etcd else { return Ok(None) };
        let mut sum = 0;
        etcd.for_each(PREFIX, |_, bytes| sum += bytes.len()).await?;
        Ok(Some(sum))
    }
}

fn versions(storage: &str) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    ["v1", "v2"]
        .iter()
        .map(|&name| json!({"name": name, "served": true, "storage": name == storage, "schema": schema}))
        .collect()
}

fn object_name(index: usize) -> String {
    format!("w-{index:07}")
}

async fn create(endpoint: &Endpoint, collection: &str, version: &str, range: Range<usize>) -> Result<()> {
    let links = endpoint.links(Protocol::Http2, AT_ONCE).await?;
    let (start, count) = (range.start, range.len());
    drive(links, count, |index| {
        let object = json!({
            "apiVersion": format!("{GROUP}/{version}"), "kind": KIND,
            "metadata": {"name": object_name(start + index)},
            "spec": {"size": index, "padding": "x".repeat(560)},
        });
        let body = object.to_string().into();
        Call::write(Method::POST, collection.to_owned(), "application/json", body)
    })
    .await
    .context("making the objects")
}
