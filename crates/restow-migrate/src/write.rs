//! Sends the no-op write of one object.

use http::Method;
use restow_core::managed_fields::{Care, care};
use restow_core::outcome::{Answer, Helper, Outcome, classify};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::pages::Item;
use crate::rewrite::Rewriter;
use crate::server::{Broken, METADATA, Reply};
use crate::wire::{ManagedFieldsEntry, Object};

const MERGE_PATCH: &str = "application/merge-patch+json";
const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// The write that changes nothing. Without the uid a deleted object could come back empty; without the
/// resourceVersion a user's write could be lost.
#[derive(Serialize)]
struct Patch<'a> {
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    apply: Option<TypeMeta<'a>>,
    metadata: PatchMeta<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TypeMeta<'a> {
    api_version: String,
    kind: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PatchMeta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    uid: &'a str,
    resource_version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    managed_fields: Option<&'a serde_json::Value>,
}

/// How one object is written.
#[derive(Clone, Copy)]
enum Way<'a> {
    /// By a merge patch, perhaps with other managedFields.
    Merge(Option<&'a serde_json::Value>),
    /// By a server-side apply of nothing. It fails where managedFields cannot be converted, and a merge patch would
    /// wipe them.
    Apply,
}

/// What one request came to.
pub(crate) struct Sent {
    pub(crate) outcome: Outcome,
    pub(crate) bytes: usize,
    /// The resourceVersion that came back.
    pub(crate) version: Option<String>,
    /// How many managedFields entries came back.
    kept: usize,
}

impl Sent {
    /// A request that got no answer.
    pub(crate) fn broken(broken: Broken) -> Self {
        let outcome = classify(&Answer::Broken { message: broken.to_string() });
        Self { outcome, bytes: 0, version: None, kept: 0 }
    }
}

impl Rewriter<'_> {
    /// Who has a part in writing an object.
    pub(crate) fn helper(&self, item: &Item) -> Helper {
        match (&self.target.conversion, item.converted_fields && !self.repairs(item)) {
            (None, _) => Helper::None,
            (Some(_), true) => Helper::Webhook,
            (Some(_), false) => Helper::Perhaps,
        }
    }

    /// Whether an object can be read from where it is stored; caches answer no request for a single one.
    pub(crate) async fn can_read(&self, item: &Item) -> bool {
        let path = self.target.object_path(&item.namespace, &item.name);
        self.server.send(Method::GET, &path, METADATA, None).await.is_ok_and(|reply| reply.code == 200)
    }

    /// Whether an object's managedFields are moved to the version that is written through.
    fn repairs(&self, item: &Item) -> bool {
        self.manner.repair_managed_fields && item.stale_fields.is_some()
    }

    /// Writes one object once; one whose managedFields a write may wipe is sent so that they stay.
    pub(crate) async fn careful(&self, item: &Item, dry_run: bool) -> Result<Sent, Broken> {
        let Some(fields) =
            item.stale_fields.as_ref().filter(|_| self.repairs(item) || !item.converted_fields)
        else {
            let way = if item.converted_fields { Way::Apply } else { Way::Merge(None) };
            return self.send(item, way, dry_run).await;
        };
        if self.repairs(item) {
            let moved = self.moved(fields);
            return self.send(item, Way::Merge(Some(&moved)), dry_run).await;
        }
        let tried = self.send(item, Way::Merge(None), true).await?;
        if tried.outcome != Outcome::Accepted {
            return Ok(tried);
        }
        match care(entries(fields.get()), tried.kept) {
            Care::Send if dry_run => Ok(tried),
            Care::Send => {
                let sent = self.send(item, Way::Merge(None), false).await?;
                Ok(Sent { bytes: tried.bytes + sent.bytes, ..sent })
            }
            Care::Quarantine => {
                let message = "its managedFields hold entries of a version that the server no longer knows, and any \
                               write would wipe them all; --repair-managed-fields moves them to the storage version"
                    .to_owned();
                let outcome = Outcome::Quarantined { reason: "StaleManagedFields".to_owned(), message };
                Ok(Sent { outcome, ..tried })
            }
        }
    }

    /// Sends one patch.
    async fn send(&self, item: &Item, way: Way<'_>, dry_run: bool) -> Result<Sent, Broken> {
        let path = self.target.object_path(&item.namespace, &item.name);
        let dry = if dry_run { "dryRun=All" } else { "" };
        let type_meta = TypeMeta { api_version: self.target.version.to_string(), kind: &self.target.kind };
        let (content_type, query, apply, name, managed_fields) = match way {
            Way::Merge(fields) => (MERGE_PATCH, dry.to_owned(), None, None, fields),
            Way::Apply => {
                (APPLY_PATCH, format!("fieldManager=restow&{dry}"), Some(type_meta), Some(&*item.name), None)
            }
        };
        let metadata =
            PatchMeta { name, uid: &item.uid, resource_version: &item.resource_version, managed_fields };
        let body = bytes::Bytes::from(serde_json::to_vec(&Patch { apply, metadata }).unwrap_or_default());
        let path = format!("{path}?{query}");
        let length = body.len();
        let body = Some((content_type, body));
        let reply =
            self.server.send(Method::PATCH, path.trim_end_matches(['?', '&']), METADATA, body).await?;
        let bytes = length + reply.body.len();
        let (version, kept) = returned(&reply);
        let outcome = match classify(&reply.answer(&item.resource_version, version.clone())) {
            Outcome::Rewritten | Outcome::Current if dry_run => Outcome::Accepted,
            other => other,
        };
        Ok(Sent { outcome, bytes, version, kept })
    }

    /// The entries, those of versions that do not stay moved to the version that is written through.
    fn moved(&self, fields: &RawValue) -> serde_json::Value {
        let mut entries: Vec<serde_json::Value> = serde_json::from_str(fields.get()).unwrap_or_default();
        for entry in &mut entries {
            let goes = entry["apiVersion"].as_str().is_some_and(|version| self.target.versions.goes(version));
            if goes {
                entry["apiVersion"] = self.target.version.to_string().into();
            }
        }
        entries.into()
    }
}

/// The resourceVersion of a successful answer, and how many managedFields entries it has.
fn returned(reply: &Reply) -> (Option<String>, usize) {
    if reply.code >= 300 {
        return (None, 0);
    }
    match serde_json::from_slice::<Object<'_>>(&reply.body) {
        Ok(object) if !object.metadata.resource_version.is_empty() => (
            Some(object.metadata.resource_version.into_owned()),
            object.metadata.managed_fields.map_or(0, |fields| entries(fields.get())),
        ),
        _ => (None, 0),
    }
}

fn entries(fields: &str) -> usize {
    serde_json::from_str::<Vec<ManagedFieldsEntry<'_>>>(fields).map_or(0, |entries| entries.len())
}
