//! The encryption configurations of the API servers, as their metrics tell.

use std::collections::HashMap;
use std::sync::PoisonError;
use std::time::Duration;

use restow_core::agreement;
use restow_core::agreement::encryption::{self, Config, Encryption, MetricsError};
use restow_core::agreement::member::Member;

use super::handle::{Cluster, SAMPLE_EVERY, Trust, Unreported};
use super::metrics::metrics;
use crate::client::{RequestError, Server};

/// How long the result "no API server reports an encryption configuration" is reused.
const UNREPORTED_FOR: Duration = Duration::from_secs(60);
/// How many times the keys of KMS plugins may change while they are read.
const KEY_TRIES: u32 = 3;
/// Names the API servers that could not be told apart.
const OTHERS: &str = "the other API servers";

impl Cluster {
    /// The encryption configurations of all API servers, read from their metrics.
    ///
    /// An error comes from restow's own server, or says that no metrics may be read.
    pub async fn encryption(&self) -> Result<Encryption, RequestError> {
        let mut answers = Vec::new();
        let members = match self.trust {
            Trust::Single => Ok(Vec::new()),
            _ => self.members().await?.into_result(),
        };
        if let Trust::Sampled(period) = self.trust {
            return self.sample_encryption(period, &members).await;
        }
        for (server, peer) in self.peers(&members) {
            let config = match peer {
                Ok(peer) => usable(&peer).await.map_err(|error| unread(&error)),
                Err(why) => Err(MetricsError::Refused(why)),
            };
            answers.push((server, config));
        }
        if answers.iter().all(|(_, config)| config.is_err()) {
            // At least one of them is behind restow's own address.
            answers.push((self.server.name().to_owned(), Ok(usable(&self.server).await?)));
        }
        let missed = match &members {
            Ok(members) => {
                let live = agreement::member::live(members, restow_clock::now()).len();
                encryption::missed(&answers, live)
            }
            Err(why) => matches!(self.trust, Trust::Members).then(|| why.clone()),
        };
        answers.extend(missed.map(|why| (OTHERS.to_owned(), Err(MetricsError::Refused(why)))));
        Ok(encryption::agree(&answers))
    }

    /// Like [`encryption`](Self::encryption), for a resource that the user did not declare as encrypted. Metrics are large: if
    /// no server reports a configuration, they are not read again for every resource of a run.
    pub async fn encryption_if_reported(&self) -> Result<Encryption, RequestError> {
        let holders = self.holders().await?;
        let known = self.unreported.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(known) = known
            && known.since.elapsed() < UNREPORTED_FOR
            && known.holders == holders
        {
            return Ok(known.look);
        }
        let look = self.encryption().await?;
        let reported = look.heard.iter().any(|(_, hash)| hash.is_some());
        // A server that did not answer is asked again.
        let complete = look.unreachable.is_empty() && look.refused.is_empty();
        *self.unreported.lock().unwrap_or_else(PoisonError::into_inner) = (!reported && complete)
            .then(|| Unreported { since: restow_clock::Instant::now(), holders, look: look.clone() });
        Ok(look)
    }

    /// The holders of the identity Leases, if they may be read.
    async fn holders(&self) -> Result<Vec<String>, RequestError> {
        if matches!(self.trust, Trust::Single) {
            return Ok(Vec::new());
        }
        let members = self.members().await?.into_result().unwrap_or_default();
        Ok(agreement::member::holders(&members, restow_clock::now()))
    }

    /// Reads the metrics of the servers behind a load balancer over new connections, until all servers were reached.
    async fn sample_encryption(
        &self,
        period: Duration,
        members: &Result<Vec<Member>, String>,
    ) -> Result<Encryption, RequestError> {
        let live = match members {
            Ok(members) => match agreement::member::live(members, restow_clock::now()).len() {
                0 => Err("every identity Lease has expired by this machine's clock".to_owned()),
                live => Ok(live),
            },
            Err(why) => Err(why.clone()),
        };
        let ends = restow_clock::Instant::now() + period;
        let mut met: HashMap<String, Config> = HashMap::new();
        loop {
            let fresh = self.fresh()?;
            let config = usable(&fresh).await?;
            met.insert(config.name(), config);
            let all = live.as_ref().is_ok_and(|live| met.len() >= *live);
            if all || restow_clock::Instant::now() >= ends {
                break;
            }
            tokio::time::sleep(SAMPLE_EVERY).await;
        }
        let mut answers: Vec<_> = met.into_iter().map(|(name, config)| (name, Ok(config))).collect();
        answers.sort_by(|(one, _), (other, _)| one.cmp(other));
        let missed = match live {
            Ok(live) => encryption::missed(&answers, live)
                .map(|why| format!("{why} on new connections in {} s", period.as_secs())),
            Err(why) => Some(why),
        };
        answers.extend(missed.map(|why| (OTHERS.to_owned(), Err(MetricsError::Refused(why)))));
        Ok(encryption::agree(&answers))
    }
}

fn unread(error: &RequestError) -> MetricsError {
    let why = format!("its metrics cannot be read: {error}");
    if is_refused(error) { MetricsError::Refused(why) } else { MetricsError::Silent(why) }
}

/// Whether a server refuses its metrics, or answers with something else.
pub fn is_refused(error: &RequestError) -> bool {
    error.is_final() || matches!(error, RequestError::Unreadable { .. })
}

/// The encryption configuration of one server, once it uses the keys that its KMS plugins report.
///
/// While a plugin cannot encrypt with the key that it reports, the API server is not ready, and treats objects under the
/// former key as current. So the same keys must be reported before and after the server says that it is ready. A
/// readiness check makes the server ask its plugins too.
async fn usable(server: &Server) -> Result<Config, RequestError> {
    let mut config = metrics(server).await?;
    for _ in 0..KEY_TRIES {
        if config.kms.is_empty() {
            return Ok(config);
        }
        ready(server).await?;
        let after = metrics(server).await?;
        if after.identity() == config.identity() {
            return Ok(after);
        }
        config = after;
    }
    Err(unusable(503))
}

async fn ready(server: &Server) -> Result<(), RequestError> {
    match server.lines("/readyz", |_| ()).await {
        Err(RequestError::Refused { code: code @ 500.., .. }) => Err(unusable(code)),
        answered => answered,
    }
}

fn unusable(code: u16) -> RequestError {
    let message = "the API server is not ready: it may not use the current keys of its KMS plugins yet";
    RequestError::Refused { code, message: message.to_owned() }
}
