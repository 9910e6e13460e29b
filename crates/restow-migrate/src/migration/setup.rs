//! What a migration needs: its settings, a journal for its progress, and an observer; and why it may fail.

use std::time::Duration;

use restow_core::agreement::encryption::KeyRequirement;
use restow_core::agreement::version::Disagreement;
use restow_core::resource::inventory::Resource;
use restow_core::rewrite::outcome::Outcome;
use restow_core::rewrite::progress::{Progress, Quarantined};
use restow_lease::Stop;

use crate::client::{RequestError, Throttle};
use crate::cluster::Cluster;
use crate::list::{PageError, Waiting};
use crate::rewrite::page::CutShort;
use crate::rewrite::{Unfinished, WriteOptions};

/// How objects are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListMode {
    /// In pages with continue tokens.
    #[default]
    Chunked,
    /// As one stream, if the server supports it.
    Streaming,
    /// As one stream if there are many objects, otherwise in chunks.
    Auto,
}

/// How one migration lists, writes and verifies.
#[derive(Clone, Copy, Debug)]
pub struct MigrationSettings {
    /// Objects in a page. After a crash, at most one page is written again.
    pub page_size: u32,
    /// How objects are listed.
    pub list: ListMode,
    /// Whether another pass has to prove that nothing is left to rewrite.
    pub verify: bool,
    /// How objects are written.
    pub write_options: WriteOptions,
    /// What has to be proven about the API servers' encryption configurations.
    pub encrypted: KeyRequirement,
}

/// Saves the progress between pages.
pub trait Journal {
    /// Saves the progress and the quarantined objects of the page.
    ///
    /// Once this has returned, a run that crashes resumes after this page.
    fn save(
        &mut self,
        progress: &Progress,
        left: &[Quarantined],
    ) -> impl Future<Output = std::io::Result<()>> + Send;

    /// Whether progress may be saved after the run was told to stop. A leader that has lost its Lease writes nothing.
    fn can_save_after_stop(&self) -> bool {
        false
    }
}

/// Is told how a migration proceeds.
pub trait Observer: Waiting + Sync {
    /// A CRD has just changed; the migration waits for its handlers.
    fn settling(&self, wait: Duration);
    /// A pass starts.
    fn pass(&self, progress: &Progress);
    /// The outcome of an object is decided.
    fn decided(&self, outcome: &Outcome);
    /// A page was finished and saved.
    fn page(&self, progress: &Progress);
    /// A pass was cut short, and this many rewritten objects are not counted. The next run checks them again.
    fn uncounted(&self, _rewritten: u64) {}
}

/// Why a migration ended early. Saved progress is kept.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// The API servers do not agree.
    #[error("{0}")]
    Disagreement(Disagreement),
    /// The storage version or the encryption key changed during the run.
    #[error("{0}")]
    Moved(String),
    /// Objects change with every write, or servers join and leave all the time.
    #[error("{0}")]
    Restless(String),
    /// A page could not be listed.
    #[error(transparent)]
    Page(#[from] PageError),
    /// A page could not be finished.
    #[error(transparent)]
    Unfinished(Unfinished),
    /// The progress could not be saved.
    #[error("saving the progress")]
    Journal(#[from] std::io::Error),
    /// A request that is needed before the first write failed.
    #[error(transparent)]
    Request(#[from] RequestError),
}

impl From<Unfinished> for MigrationError {
    fn from(unfinished: Unfinished) -> Self {
        match unfinished {
            Unfinished::Vanished(resource) => PageError::Vanished(resource).into(),
            other => Self::Unfinished(other),
        }
    }
}

impl From<CutShort> for MigrationError {
    fn from(cut: CutShort) -> Self {
        cut.why.into()
    }
}

/// The migration of one resource.
pub struct Migration<'a, O> {
    /// Where the resource is stored.
    pub cluster: &'a Cluster,
    /// What is migrated.
    pub resource: &'a Resource,
    /// How it lists, writes and verifies.
    pub settings: MigrationSettings,
    /// Limits the pace.
    pub throttle: &'a Throttle,
    /// Is told how it proceeds.
    pub observer: &'a O,
    /// Stops it.
    pub stop: &'a Stop,
}
