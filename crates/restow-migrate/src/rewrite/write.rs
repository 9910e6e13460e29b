//! Sends the no-op write of one object.

use http::Method;
use restow_core::resource::name::GroupVersion;
use restow_core::rewrite::managed_fields::{DryRunVerdict, dry_run_verdict, moved};
use restow_core::rewrite::outcome::{
    Answer, Doubt, Identity, Outcome, Returned, WebhookUse, classify, is_about,
};
use serde::Serialize;

use super::rewriter::Rewriter;
use crate::client::wire::{ManagedFieldsEntry, Object};
use crate::client::{Broken, METADATA, Reply};
use crate::list::pages::{Item, segment};

const MERGE_PATCH: &str = "application/merge-patch+json";
const APPLY_PATCH: &str = "application/apply-patch+yaml";
/// An apply of nothing takes away whatever its manager has applied before, so nobody else may have this name.
const APPLIER: &str = "restow.dev/rewrite-of-nothing";

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
    /// By a merge patch through another version.
    Through(&'a GroupVersion),
    /// By a server-side apply of nothing. It fails where managedFields cannot be converted, and a merge patch would
    /// wipe them.
    Apply,
}

/// What one request came to.
pub(crate) struct Sent {
    pub(crate) outcome: Outcome,
    /// Whether the credentials were accepted.
    pub(crate) accepted: bool,
    pub(crate) bytes: usize,
    /// The resourceVersion that came back.
    pub(crate) version: Option<String>,
    /// Whether it may have been carried out although the answer does not say so.
    pub(crate) hides_a_write: bool,
    /// How many managedFields entries came back.
    kept: usize,
}

impl Sent {
    /// A request that got no answer.
    pub(crate) fn broken(broken: Broken) -> Self {
        let answer = Answer::Broken { message: broken.to_string(), unsent: broken.unsent };
        let (outcome, hides_a_write) = (classify(&answer), answer.hides_a_write());
        Self { outcome, accepted: false, bytes: 0, version: None, hides_a_write, kept: 0 }
    }

    /// An object that is left because of its managedFields.
    fn stale(why: &str) -> Self {
        let (reason, message) = ("StaleManagedFields".to_owned(), why.to_owned());
        let outcome = Outcome::Quarantined { reason, message };
        Self { outcome, accepted: false, bytes: 0, version: None, hides_a_write: false, kept: 0 }
    }
}

impl Rewriter<'_> {
    /// Who has a part in writing an object.
    pub(crate) fn helper(&self, item: &Item) -> WebhookUse {
        match (&self.target.conversion, item.converted_fields && !self.repairs(item)) {
            (None, _) => WebhookUse::None,
            (Some(_), true) => WebhookUse::Webhook,
            (Some(_), false) => WebhookUse::Perhaps,
        }
    }

    /// Whether an object's managedFields are moved to the version that is written through.
    fn repairs(&self, item: &Item) -> bool {
        self.manner.repair_managed_fields && item.stale_fields.is_some() && self.target.versions.can_move()
    }

    /// Writes one object once; one whose managedFields a write may wipe is sent so that they stay.
    pub(crate) async fn careful(&self, item: &Item, dry_run: bool) -> Result<Sent, Broken> {
        let Some(fields) = &item.stale_fields else { return self.plain(item, dry_run).await };
        if self.repairs(item) {
            let entries: Vec<serde_json::Value> = serde_json::from_str(fields.get()).unwrap_or_default();
            let to = self.target.version.to_string();
            let Some(moved) = moved(entries, &self.target.versions, &to) else {
                return Ok(Sent::stale("its managedFields hold entries of a form that cannot be united"));
            };
            let count = moved.len();
            let moved = moved.into();
            return self.tried(item, Way::Merge(Some(&moved)), count, dry_run).await;
        }
        // Entries that the server can convert are kept as they are.
        if item.converted_fields {
            return self.plain(item, dry_run).await;
        }
        self.tried(item, Way::Merge(None), entries(fields.get()), dry_run).await
    }

    /// Writes an object whose managedFields entries the server knows.
    async fn plain(&self, item: &Item, dry_run: bool) -> Result<Sent, Broken> {
        let way = if item.converted_fields { Way::Apply } else { Way::Merge(None) };
        self.send(item, way, dry_run).await
    }

    /// Sends a write only if a dry run of it comes back with so many managedFields entries.
    async fn tried(&self, item: &Item, way: Way<'_>, entries: usize, dry_run: bool) -> Result<Sent, Broken> {
        let tried = match self.send(item, way, true).await {
            Ok(tried) => tried,
            Err(broken) => return Ok(Sent { hides_a_write: false, ..Sent::broken(broken) }),
        };
        if tried.outcome != Outcome::Accepted {
            return Ok(tried);
        }
        match dry_run_verdict(entries, tried.kept) {
            DryRunVerdict::Send if dry_run => Ok(tried),
            DryRunVerdict::Send => {
                let sent = self.send(item, way, false).await?;
                Ok(Sent { bytes: tried.bytes + sent.bytes, ..sent })
            }
            DryRunVerdict::Quarantine => {
                let advice = if self.target.versions.can_move() {
                    "--repair-managed-fields moves them to the storage version"
                } else {
                    "they cannot be moved, because a webhook converted that version; define it again until their \
                     managers have written through the storage version"
                };
                let stale = Sent::stale(&format!(
                    "its managedFields hold entries of a version that the server no longer knows, and any write would \
                     wipe them all; {advice}"
                ));
                Ok(Sent { bytes: tried.bytes, ..stale })
            }
        }
    }

    /// Whether the webhook converts an object that is stored in the storage version, as a dry run through another
    /// version needs it to; none where no other version is served.
    pub(crate) async fn converts(&self, witness: &Item) -> Option<Sent> {
        let version = self.target.conversion.as_ref()?.other()?;
        Some(self.send(witness, Way::Through(version), true).await.unwrap_or_else(Sent::broken))
    }

    /// Sends one patch.
    async fn send(&self, item: &Item, way: Way<'_>, dry_run: bool) -> Result<Sent, Broken> {
        let dry = if dry_run { "dryRun=All" } else { "" };
        let type_meta = TypeMeta { api_version: self.target.version.to_string(), kind: &self.target.kind };
        let mut path = self.target.object_path(&item.namespace, &item.name);
        let (content_type, query, apply, name, managed_fields) = match way {
            Way::Merge(fields) => (MERGE_PATCH, dry.to_owned(), None, None, fields),
            Way::Through(other) => {
                path =
                    format!("{}/{}", self.target.list_path_at(other, &item.namespace), segment(&item.name));
                (MERGE_PATCH, dry.to_owned(), None, None, None)
            }
            Way::Apply => (
                APPLY_PATCH,
                format!("fieldManager={APPLIER}&{dry}"),
                Some(type_meta),
                Some(&*item.name),
                None,
            ),
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
        let (returned, kept) = self.returned(item, &reply);
        let version = returned.as_ref().map(|returned| returned.resource_version.clone());
        let answer = reply.answer(&item.resource_version, returned);
        let (accepted, hides_a_write) = (answer.accepts(), !dry_run && answer.hides_a_write());
        let outcome = match classify(&answer) {
            Outcome::Rewritten | Outcome::Current | Outcome::Doubtful(Doubt::Terminating) if dry_run => {
                Outcome::Accepted
            }
            other => other,
        };
        Ok(Sent { outcome, accepted, bytes, version, hides_a_write, kept })
    }

    /// What a successful answer says of the object, and how many managedFields entries it has; none where it is about
    /// something else.
    fn returned(&self, item: &Item, reply: &Reply) -> (Option<Returned>, usize) {
        let object = match serde_json::from_slice::<Object<'_>>(&reply.body) {
            Ok(object) if reply.code < 300 => object,
            _ => return (None, 0),
        };
        let meta = &object.metadata;
        let answered = Identity { namespace: &meta.namespace, name: &meta.name, uid: &meta.uid };
        if meta.resource_version.is_empty()
            || !is_about(item.identity(), &self.target.kind, &object.kind, answered)
        {
            return (None, 0);
        }
        let returned = Returned {
            resource_version: meta.resource_version.to_string(),
            terminating: meta.deletion_timestamp.is_some(),
        };
        (Some(returned), meta.managed_fields.map_or(0, |fields| entries(fields.get())))
    }
}

impl Item {
    /// Which object it is.
    pub(crate) fn identity(&self) -> Identity<'_> {
        Identity { namespace: &self.namespace, name: &self.name, uid: &self.uid }
    }
}

fn entries(fields: &str) -> usize {
    serde_json::from_str::<Vec<ManagedFieldsEntry<'_>>>(fields).map_or(0, |entries| entries.len())
}
