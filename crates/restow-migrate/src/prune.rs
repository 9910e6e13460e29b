//! Removes old versions from a CRD's `status.storedVersions`, if all preconditions hold.

use std::time::Duration;

use http::Method;
use restow_clock::Instant;
use restow_core::agreement::transient;
use restow_core::rewrite::progress::Progress;
use restow_core::rewrite::prune::{Refusal, prune};
use serde_json::json;

use crate::client::{RequestError, Server};
use crate::cluster::discovery::{self, CrdObject};

/// Why storedVersions were not changed.
#[derive(Debug, thiserror::Error)]
pub enum PruneError {
    /// A precondition does not hold.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The request failed.
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

/// The time between two attempts.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Prunes after a run; `None` if there was nothing to remove. It retries while the server restarts or a proxy may have
/// answered in its place.
pub async fn prune_stored_versions(
    server: &Server,
    progress: &Progress,
) -> Result<Option<Pruned>, PruneError> {
    let since = Instant::now();
    loop {
        let error = match prune_once(server, progress).await {
            // All preconditions are checked again, so it does not matter whether a lost answer was a success.
            Err(PruneError::Request(error)) if since.elapsed() < transient::TRANSIENT_ANSWER_TIMEOUT => error,
            result => return result,
        };
        let gone = || discovery::is_undefined(server, &progress.resource);
        match error.code() {
            Some(404) if gone().await.is_ok_and(|gone| gone) => return Err(error.into()),
            // Only an API server that has read the patch answers so.
            Some(422) => return Err(error.into()),
            _ => {}
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

async fn prune_once(server: &Server, progress: &Progress) -> Result<Option<Pruned>, PruneError> {
    let name = &progress.resource;
    let (now, _) = discovery::crd(server, name).await?;
    let Some(after) = prune(progress, &now)? else { return Ok(None) };
    // The resourceVersion makes the write fail if anything changed since the preconditions were checked.
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
