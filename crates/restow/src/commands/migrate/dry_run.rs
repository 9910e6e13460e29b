//! A migration whose every write is a server-side dry run, for `migrate --dry-run` and `plan --dry-run-objects`.

use restow_core::resource::inventory::Resource;
use restow_core::rewrite::progress::{End, Progress};
use restow_migrate::migration::{self, Migration};
use restow_migrate::rewrite::Unfinished;

use super::explain::explain;
use crate::render::progress::ProgressView;
use crate::render::report::{Left, ResourceReport, finished};
use crate::state_dir::NoJournal;

/// The progress of a migration before the first agreement; `begin` replaces it before the first write.
pub(crate) fn unbegun(resource: &Resource) -> Progress {
    let hash = resource.hash.as_deref().unwrap_or_default();
    Progress::new(resource.name.clone(), resource.storage_version_name(), hash, restow_clock::now())
}

/// Runs a migration whose writes are dry runs, and saves nothing.
pub(crate) async fn rehearse(migration: &Migration<'_, ProgressView<'_>>) -> ResourceReport {
    let mut left = NoJournal(Vec::new());
    let resource = migration.resource;
    let mut progress = unbegun(resource);
    let result = async {
        progress = migration.begin().await?;
        migration.run(&mut progress, &mut left).await
    };
    let result = result.await;
    let ended = end(&result, &progress);
    let error = match &result {
        Ok(()) => None,
        Err(failure) => Some(explain(migration.cluster, resource, failure).await),
    };
    ResourceReport {
        end: ended,
        error,
        left: Left::Here(left.0),
        pruned: None,
        dry_run: true,
        retried: false,
        progress,
    }
}

/// How a run ended.
pub(crate) fn end(result: &Result<(), migration::MigrationError>, progress: &Progress) -> End {
    use migration::MigrationError as F;
    match result {
        Ok(()) => finished(progress),
        Err(F::Disagreement(_) | F::Moved(_)) => End::Unsafe,
        Err(F::Unfinished(Unfinished::Stopped)) => End::Stopped,
        Err(_) => End::Failed,
    }
}
