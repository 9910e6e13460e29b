//! Cuts a CRD's storedVersions down to the storage version, with every guard held.

use http::Method;
use restow_core::progress::Progress;
use restow_core::prune::{Refusal, prune};
use serde_json::json;

use crate::discovery::{self, CrdObject};
use crate::server::{RequestError, Server};

/// Why storedVersions stay as they are.
#[derive(Debug, thiserror::Error)]
pub enum PruneError {
    /// A guard says no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The server says no.
    #[error("writing storedVersions")]
    Request(#[from] RequestError),
}

/// What was pruned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pruned {
    /// storedVersions before.
    pub before: Vec<String>,
    /// storedVersions after.
    pub after: Vec<String>,
}

/// Prunes after a run; `None` when there was nothing to cut.
pub async fn prune_stored_versions(
    server: &Server,
    progress: &Progress,
) -> Result<Option<Pruned>, PruneError> {
    let name = &progress.resource;
    let (now, _) = discovery::crd(server, name).await?;
    let Some(after) = prune(progress, &now)? else { return Ok(None) };
    // The resourceVersion makes the write fail if anything changed since the guards were checked.
    let patch = json!({
        "metadata": {"uid": now.uid, "resourceVersion": now.resource_version},
        "status": {"storedVersions": after},
    });
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}/status");
    let _: CrdObject = server
        .write(Method::PATCH, &path, "application/merge-patch+json", patch.to_string().into_bytes())
        .await?;
    Ok(Some(Pruned { before: now.stored_versions, after }))
}
