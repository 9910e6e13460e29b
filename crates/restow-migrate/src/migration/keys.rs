//! Looks of a run at the API servers' encryption configurations.

use std::time::Duration;

use restow_clock::Instant;
use restow_core::agreement::encryption::{Check, Encryption, KeyRequirement, UNREPORTED};
use restow_core::agreement::transient;
use restow_core::agreement::version::{Disagreement, SILENT_SERVER_TIMEOUT};
use restow_core::resource::inventory::Origin;
use restow_core::rewrite::progress::Progress;

use super::looks::Patience;
use super::setup::{Failure, Migration, Observer};
use crate::cluster::is_refused;

/// How long an API server is given to ask its KMS plugins for their keys: it does so once a minute, and when it is asked
/// whether it is ready, if that was 20 seconds ago.
const NAMED_WITHIN: Duration = Duration::from_secs(90);
/// How often that is looked at: metrics are large.
const NAMED_EVERY: Duration = Duration::from_secs(5);
/// Stands for the servers that were not asked.
const NOBODY: &str = "the API servers";

impl<O: Observer> Migration<'_, O> {
    /// What has to be proven about the key.
    pub(super) fn key_requirement(&self) -> KeyRequirement {
        let key_requirement = self.settings.encrypted;
        // Its own server has a configuration of its own, if any.
        let aggregated =
            self.resource.origin == Origin::Aggregated && key_requirement != KeyRequirement::Declared;
        if aggregated || self.settings.manner.dry_run { KeyRequirement::Nothing } else { key_requirement }
    }

    /// Looks at the encryption configurations, at both ends of a pass: servers' metrics are too large for every page,
    /// and tell when a configuration was taken up in between.
    ///
    /// Only a configuration that was heard can differ. A server that is silent is waited for; one that stays silent
    /// leaves the key unproven, and changes nothing.
    pub(super) async fn check_keys(
        &self,
        progress: &mut Progress,
        patience: Patience,
    ) -> Result<(), Failure> {
        let key_requirement = self.key_requirement();
        if key_requirement == KeyRequirement::Nothing {
            return Ok(());
        }
        if self.resource.origin == Origin::Aggregated {
            progress.observe_keys("", Check::none(NOBODY, "an aggregated API server's metrics are not read"));
            return Ok(());
        }
        let Some(look) = self.keys(progress, patience).await? else { return Ok(()) };
        let common = look
            .common()
            .map_err(|hashes| Failure::Disagreement(Disagreement::Encryption(hashes)))?
            .unwrap_or(UNREPORTED);
        match &progress.encryption {
            Some(wanted) if !look.heard.is_empty() && common != wanted => {
                return Err(Failure::Moved(format!(
                    "the encryption configuration changed under the run, which was for {wanted}"
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

    /// Whether a look shows keys that were named since the first look of the pass, where the key is to be proven.
    fn is_new_enough(&self, progress: &Progress, look: &Encryption) -> bool {
        !self.key_requirement().is_watched()
            || progress.fingerprint.is_none()
            || progress.keys.is_followed_by(look)
    }

    /// The servers' encryption configurations, of all that answer before patience ends; none when no metrics at all
    /// may be read, which is taken into the progress.
    async fn keys(&self, progress: &mut Progress, patience: Patience) -> Result<Option<Encryption>, Failure> {
        let since = Instant::now();
        // Who was never heard is not waited for.
        let heard = progress.encryption.is_some() && progress.keys.unchecked.is_empty();
        let expected = patience == Patience::Running && heard;
        loop {
            let look = async {
                match self.key_requirement() {
                    KeyRequirement::Reported => self.cluster.encryption_if_reported().await,
                    _ => self.cluster.encryption().await,
                }
            };
            // Who has shown its metrics before may do so again; somebody else may have refused them.
            let doubtful = expected && since.elapsed() < transient::TRANSIENT_ANSWER_TIMEOUT;
            let silent = match self.unless_stopped(Box::pin(look)).await? {
                Ok(look) => {
                    let reported = look.heard.iter().any(|(_, hash)| hash.is_some());
                    let silent = !look.unreachable.is_empty() && (expected || reported);
                    if silent && since.elapsed() >= SILENT_SERVER_TIMEOUT && patience == Patience::Beginning {
                        // Nothing is written yet, and it could not be proven.
                        return Err(Failure::Disagreement(Disagreement::NotReached(look.unreachable)));
                    }
                    if !(silent && since.elapsed() < SILENT_SERVER_TIMEOUT
                        || doubtful && !look.refused.is_empty())
                    {
                        if self.is_new_enough(progress, &look) || since.elapsed() >= NAMED_WITHIN {
                            return Ok(Some(look));
                        }
                        let message =
                            "waiting until every API server has asked its KMS plugin for the current key";
                        self.observer.waiting(message, NAMED_EVERY);
                        self.unless_stopped(tokio::time::sleep(NAMED_EVERY)).await?;
                        continue;
                    }
                    Disagreement::NotReached([look.unreachable, look.refused].concat()).to_string()
                }
                Err(error) if doubtful => error.to_string(),
                // Who may not read metrics goes by the storage version, and says so.
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
