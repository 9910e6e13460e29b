//! What one migration works with: its settings, where it saves progress, who observes it, and why it may fail.

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
use crate::rewrite::{Manner, Unfinished};

/// How objects are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListMode {
    /// In chunks.
    #[default]
    Chunked,
    /// As one stream, where the server can.
    Streaming,
    /// As one stream where there are so many objects that it spares the server something, else in chunks.
    Auto,
}

/// How a migration is done.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Objects in a page: what is sent again at most after a crash.
    pub page_size: u32,
    /// How objects are listed.
    pub list: ListMode,
    /// Whether a second pass has to find nothing to rewrite.
    pub verify: bool,
    /// How objects are written.
    pub manner: Manner,
    /// What has to be proven about the API servers' encryption configurations.
    pub encrypted: KeyRequirement,
}

/// Where progress is kept between pages.
pub trait Journal {
    /// Keeps the progress, and the objects of the page that were left.
    ///
    /// Once this has returned, a crash resumes behind this page.
    fn save(
        &mut self,
        progress: &Progress,
        left: &[Quarantined],
    ) -> impl Future<Output = std::io::Result<()>> + Send;

    /// Whether something may be kept after the run was told to stop: a leader that has lost its Lease writes nothing.
    fn can_save_after_stop(&self) -> bool {
        false
    }
}

/// Somebody who watches a migration.
pub trait Observer: Waiting + Sync {
    /// A CRD was changed just now: its handlers are given time to follow.
    fn settling(&self, wait: Duration);
    /// A pass begins.
    fn pass(&self, progress: &Progress);
    /// An object was decided.
    fn decided(&self, outcome: &Outcome);
    /// A page was finished and kept.
    fn page(&self, progress: &Progress);
    /// A pass was cut short, and so many objects that it has rewritten are not counted: whoever goes on checks them again.
    fn uncounted(&self, _rewritten: u64) {}
}

/// Why a migration ended early. What was kept stays kept.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The API servers do not agree.
    #[error("{0}")]
    Disagreement(Disagreement),
    /// The storage version changed under the run.
    #[error("{0}")]
    Moved(String),
    /// Objects change with every write, or servers come and go.
    #[error("{0}")]
    Restless(String),
    /// No page can be had.
    #[error(transparent)]
    Page(#[from] PageError),
    /// A page could not be finished.
    #[error(transparent)]
    Unfinished(Unfinished),
    /// The progress cannot be kept.
    #[error("keeping the progress")]
    Journal(#[from] std::io::Error),
    /// The server did not answer what is needed before the first write.
    #[error(transparent)]
    Request(#[from] RequestError),
}

impl From<Unfinished> for Failure {
    fn from(unfinished: Unfinished) -> Self {
        match unfinished {
            Unfinished::Vanished(resource) => PageError::Vanished(resource).into(),
            other => Self::Unfinished(other),
        }
    }
}

impl From<CutShort> for Failure {
    fn from(cut: CutShort) -> Self {
        cut.why.into()
    }
}

/// The migration of one resource.
pub struct Migration<'a, O> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// The resource.
    pub resource: &'a Resource,
    /// How.
    pub settings: Settings,
    /// How fast.
    pub throttle: &'a Throttle,
    /// Who watches.
    pub observer: &'a O,
    /// Stops it.
    pub stop: &'a Stop,
}
