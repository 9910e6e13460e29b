//! Checks the API servers' encryption configurations during a run.

use std::time::Duration;

use restow_clock::Instant;
use restow_core::agreement::encryption::{Check, Encryption, KeyRequirement, UNREPORTED};
use restow_core::agreement::transient;
use restow_core::agreement::version::{Disagreement, SILENT_SERVER_TIMEOUT};
use restow_core::resource::inventory::Origin;
use restow_core::rewrite::progress::Progress;

use super::agreement::Stage;
use super::setup::{Migration, MigrationError, Observer};
use crate::cluster::is_refused;

/// How long an API server may take to ask its KMS plugins for their keys. It does so once a minute, and in a readiness check
/// if the last time is 20 seconds ago.
const KEY_REFRESH_TIMEOUT: Duration = Duration::from_secs(90);
/// The pause between two reads of the metrics, which are large.
const READ_METRICS_EVERY: Duration = Duration::from_secs(5);
/// Names the servers that were not asked.
const NOBODY: &str = "the API servers";

impl<O: Observer> Migration<'_, O> {
    /// What has to be proven about the encryption key.
    pub(super) fn key_requirement(&self) -> KeyRequirement {
        let key_requirement = self.settings.encrypted;
        // An aggregated API server has its own configuration, if any.
        let aggregated =
            self.resource.origin == Origin::Aggregated && key_requirement != KeyRequirement::Declared;
        if aggregated || self.settings.write_options.dry_run {
            KeyRequirement::Nothing
        } else {
            key_requirement
        }
    }

    /// Checks the encryption configurations at the start and at the end of a pass. Metrics are too large for every page, and
    /// they show whether a configuration was loaded in between.
    ///
    /// Only a configuration that was read can differ. It waits for a silent server; if the server stays silent, the key is
    /// not proven.
    pub(super) async fn check_keys(
        &self,
        progress: &mut Progress,
        stage: Stage,
    ) -> Result<(), MigrationError> {
        let key_requirement = self.key_requirement();
        if key_requirement == KeyRequirement::Nothing {
            return Ok(());
        }
        if self.resource.origin == Origin::Aggregated {
            progress.observe_keys("", Check::none(NOBODY, "an aggregated API server's metrics are not read"));
            return Ok(());
        }
        let Some(look) = self.keys(progress, stage).await? else { return Ok(()) };
        let common = look
            .common()
            .map_err(|hashes| MigrationError::Disagreement(Disagreement::Encryption(hashes)))?
            .unwrap_or(UNREPORTED);
        match &progress.encryption {
            Some(wanted) if !look.heard.is_empty() && common != wanted => {
                return Err(MigrationError::Moved(format!(
                    "the encryption configuration changed during the run, which was for {wanted}"
                )));
            }
            None if look.unreachable.is_empty() && look.refused.is_empty() => {
                progress.encryption = Some(common.to_owned());
            }
            _ => {}
        }
        progress.observe_keys(&look.fingerprint, look.check());
        Ok(())
    }

    /// Whether the keys were reported after the first check of the pass, if the key has to be proven.
    fn is_new_enough(&self, progress: &Progress, look: &Encryption) -> bool {
        !self.key_requirement().is_watched()
            || progress.fingerprint.is_none()
            || progress.keys.is_followed_by(look)
    }

    /// The encryption configurations of all servers that answer in time; `None` if no metrics may be read, which the
    /// progress records.
    async fn keys(
        &self,
        progress: &mut Progress,
        stage: Stage,
    ) -> Result<Option<Encryption>, MigrationError> {
        let since = Instant::now();
        // A server that never answered is not waited for.
        let heard = progress.encryption.is_some() && progress.keys.unchecked.is_empty();
        let expected = stage == Stage::Running && heard;
        loop {
            let look = async {
                match self.key_requirement() {
                    KeyRequirement::Reported => self.cluster.encryption_if_reported().await,
                    _ => self.cluster.encryption().await,
                }
            };
            // A server that has shown its metrics before may do so again; a proxy may have refused them.
            let doubtful = expected && since.elapsed() < transient::TRANSIENT_ANSWER_TIMEOUT;
            let silent = match self.unless_stopped(Box::pin(look)).await? {
                Ok(look) => {
                    let reported = look.heard.iter().any(|(_, hash)| hash.is_some());
                    let silent = !look.unreachable.is_empty() && (expected || reported);
                    if silent && since.elapsed() >= SILENT_SERVER_TIMEOUT && stage == Stage::Starting {
                        // Nothing is written yet, and the key could not be proven.
                        return Err(MigrationError::Disagreement(Disagreement::NotReached(look.unreachable)));
                    }
                    if !(silent && since.elapsed() < SILENT_SERVER_TIMEOUT
                        || doubtful && !look.refused.is_empty())
                    {
                        if self.is_new_enough(progress, &look) || since.elapsed() >= KEY_REFRESH_TIMEOUT {
                            return Ok(Some(look));
                        }
                        let message =
                            "waiting until every API server has asked its KMS plugin for the current key";
                        self.observer.waiting(message, READ_METRICS_EVERY);
                        self.unless_stopped(tokio::time::sleep(READ_METRICS_EVERY)).await?;
                        continue;
                    }
                    Disagreement::NotReached([look.unreachable, look.refused].concat()).to_string()
                }
                Err(error) if doubtful => error.to_string(),
                // Without permission to read metrics only the storage version counts, which is reported.
                Err(error) if is_refused(&error) || since.elapsed() >= SILENT_SERVER_TIMEOUT => {
                    let why = format!("its metrics cannot be read: {error}");
                    progress.observe_keys("", Check::none(self.cluster.server().name(), &why));
                    return Ok(None);
                }
                Err(error) => error.to_string(),
            };
            self.wait(&silent).await?;
        }
    }
}
