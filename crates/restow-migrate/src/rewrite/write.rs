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
use crate::client::{METADATA, NoAnswer, Reply};
use crate::list::pages::{Item, segment};

const MERGE_PATCH: &str = "application/merge-patch+json";
const APPLY_PATCH: &str = "application/apply-patch+yaml";
/// The field manager of an empty apply. An empty apply removes all that its manager has applied, so the name must be unique.
const APPLIER: &str = "restow.dev/rewrite-of-nothing";

/// The patch that changes nothing. Without the uid it could recreate a deleted object; without the resourceVersion it
/// could overwrite a user's change.
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

/// The kind of patch that is sent for one object.
#[derive(Clone, Copy)]
enum PatchKind<'a> {
    /// A merge patch, which may replace managedFields.
    Merge(Option<&'a serde_json::Value>),
    /// A merge patch through another version.
    Through(&'a GroupVersion),
    /// An empty server-side apply. It fails if managedFields cannot be converted; a merge patch would remove them.
    Apply,
}

/// The result of one request.
pub(crate) struct Sent {
    pub(crate) outcome: Outcome,
    /// Whether the credentials were accepted.
    pub(crate) accepted: bool,
    pub(crate) bytes: usize,
    /// The resourceVersion in the answer.
    pub(crate) version: Option<String>,
    /// Whether the object may have been written although the answer does not say so.
    pub(crate) hides_a_write: bool,
    /// The number of managedFields entries in the answer.
    kept: usize,
}

impl Sent {
    /// A request that got no answer.
    pub(crate) fn broken(broken: NoAnswer) -> Self {
        let answer = Answer::Broken { message: broken.to_string(), unsent: broken.unsent };
        let (outcome, hides_a_write) = (classify(&answer), answer.hides_a_write());
        Self { outcome, accepted: false, bytes: 0, version: None, hides_a_write, kept: 0 }
    }

    /// An object that is quarantined because of its managedFields.
    fn stale(why: &str) -> Self {
        let (reason, message) = ("StaleManagedFields".to_owned(), why.to_owned());
        let outcome = Outcome::Quarantined { reason, message };
        Self { outcome, accepted: false, bytes: 0, version: None, hides_a_write: false, kept: 0 }
    }
}

impl Rewriter<'_> {
    /// Whether a webhook takes part in writing an object.
    pub(crate) fn helper(&self, item: &Item) -> WebhookUse {
        match (&self.target.conversion, item.converted_fields && !self.repairs(item)) {
            (None, _) => WebhookUse::None,
            (Some(_), true) => WebhookUse::Webhook,
            (Some(_), false) => WebhookUse::Perhaps,
        }
    }

    /// Whether an object's managedFields are moved to the version of the request.
    fn repairs(&self, item: &Item) -> bool {
        self.write_options.repair_managed_fields
            && item.stale_fields.is_some()
            && self.target.versions.can_move()
    }

    /// Writes one object once. It keeps managedFields that a plain write could remove.
    pub(crate) async fn careful(&self, item: &Item, dry_run: bool) -> Result<Sent, NoAnswer> {
        let Some(fields) = &item.stale_fields else { return self.plain(item, dry_run).await };
        if self.repairs(item) {
            let entries: Vec<serde_json::Value> = serde_json::from_str(fields.get()).unwrap_or_default();
            let to = self.target.version.to_string();
            let Some(moved) = moved(entries, &self.target.versions, &to) else {
                return Ok(Sent::stale("its managedFields have entries that cannot be merged"));
            };
            let count = moved.len();
            let moved = moved.into();
            return self.tried(item, PatchKind::Merge(Some(&moved)), count, dry_run).await;
        }
        // Entries that the server can convert stay as they are.
        if item.converted_fields {
            return self.plain(item, dry_run).await;
        }
        self.tried(item, PatchKind::Merge(None), entries(fields.get()), dry_run).await
    }

    /// Writes an object of which the server knows all managedFields entries.
    async fn plain(&self, item: &Item, dry_run: bool) -> Result<Sent, NoAnswer> {
        let kind = if item.converted_fields { PatchKind::Apply } else { PatchKind::Merge(None) };
        self.send(item, kind, dry_run).await
    }

    /// Sends a write only if a dry run returns this many managedFields entries.
    async fn tried(
        &self,
        item: &Item,
        kind: PatchKind<'_>,
        entries: usize,
        dry_run: bool,
    ) -> Result<Sent, NoAnswer> {
        let tried = match self.send(item, kind, true).await {
            Ok(tried) => tried,
            Err(broken) => return Ok(Sent { hides_a_write: false, ..Sent::broken(broken) }),
        };
        if tried.outcome != Outcome::Accepted {
            return Ok(tried);
        }
        match dry_run_verdict(entries, tried.kept) {
            DryRunVerdict::Send if dry_run => Ok(tried),
            DryRunVerdict::Send => {
                let sent = self.send(item, kind, false).await?;
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
                    "its managedFields have entries of a version that the server no longer knows, and any write would \
                     remove them all; {advice}"
                ));
                Ok(Sent { bytes: tried.bytes, ..stale })
            }
        }
    }

    /// Sends a dry run through another version for an object in the storage version, which the webhook has to convert;
    /// `None` if no other version is served.
    pub(crate) async fn converts(&self, witness: &Item) -> Option<Sent> {
        let version = self.target.conversion.as_ref()?.other()?;
        Some(self.send(witness, PatchKind::Through(version), true).await.unwrap_or_else(Sent::broken))
    }

    /// Sends one patch.
    async fn send(&self, item: &Item, kind: PatchKind<'_>, dry_run: bool) -> Result<Sent, NoAnswer> {
        let dry = if dry_run { "dryRun=All" } else { "" };
        let type_meta = TypeMeta { api_version: self.target.version.to_string(), kind: &self.target.kind };
        let mut path = self.target.object_path(&item.namespace, &item.name);
        let (content_type, query, apply, name, managed_fields) = match kind {
            PatchKind::Merge(fields) => (MERGE_PATCH, dry.to_owned(), None, None, fields),
            PatchKind::Through(other) => {
                path =
                    format!("{}/{}", self.target.list_path_at(other, &item.namespace), segment(&item.name));
                (MERGE_PATCH, dry.to_owned(), None, None, None)
            }
            PatchKind::Apply => (
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

    /// The state of the object in a successful answer, and its number of managedFields entries; `None` if the answer is
    /// about something else.
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
    pub(crate) fn identity(&self) -> Identity<'_> {
        Identity { namespace: &self.namespace, name: &self.name, uid: &self.uid }
    }
}

fn entries(fields: &str) -> usize {
    serde_json::from_str::<Vec<ManagedFieldsEntry<'_>>>(fields).map_or(0, |entries| entries.len())
}
