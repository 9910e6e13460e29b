//! Fresh connections to one address, for API servers that hide behind it.

use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::time::Duration;

use restow_core::agreement::{self, Member};
use restow_core::resource::GroupVersion;

use super::{Cluster, Documents, SAMPLE_EVERY};
use crate::discovery;
use crate::sampling::{Round, Samples};
use crate::server::RequestError;

impl Cluster {
    /// What fresh connections show: those of a whole period, and one more now.
    ///
    /// One period is for every resource. It is due anew when an API server came, went or restarted, when the new
    /// connection shows something that the period did not, and when it was long ago.
    pub(crate) async fn sample(
        &self,
        period: Duration,
        wanted: BTreeSet<GroupVersion>,
        members: &Result<Vec<Member>, String>,
    ) -> Result<Round, RequestError> {
        // Without Leases there is no agreement, so nothing is worth waiting for.
        let Ok(members) = members else { return Ok(Round::default()) };
        let mut kept = self.samples.lock().await;
        let mut now = self.sample_once(&wanted).await?;
        let holders = agreement::holders(members, restow_clock::now());
        if let Some(samples) = kept.as_ref()
            && samples.still_hold(&holders, &now, period)
        {
            return Ok(samples.round(now, true));
        }
        let mut versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner).clone();
        versions.extend(wanted);
        let ends = restow_clock::Instant::now() + period;
        let mut samples = Samples::new(holders.clone());
        loop {
            now = self.sample_once(&versions).await?;
            samples.add(now.clone());
            if restow_clock::Instant::now() >= ends {
                break;
            }
            tokio::time::sleep(SAMPLE_EVERY).await;
        }
        let after = self.members().await?;
        let steady = after.is_ok_and(|after| agreement::holders(&after, restow_clock::now()) == holders);
        let round = samples.round(now, steady);
        *kept = steady.then_some(samples);
        Ok(round)
    }

    /// The discovery documents of these versions, over one fresh connection.
    async fn sample_once(&self, versions: &BTreeSet<GroupVersion>) -> Result<Documents, RequestError> {
        let fresh = self.fresh()?;
        let mut documents = Documents::new();
        for version in versions {
            let document = match discovery::document_if_listed(&fresh, version).await {
                // An answer all the same: that server has no such version.
                Ok(served) => Ok(served.unwrap_or_default()),
                // The group's own trouble, which is not that of the others.
                Err(error) if error.code().is_some() => Err(error.to_string()),
                Err(error) => return Err(error),
            };
            documents.insert(version.clone(), document);
        }
        Ok(documents)
    }
}
