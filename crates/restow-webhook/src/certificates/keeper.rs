//! Keeps the certificates of one replica: reads the Secret, writes what has to change, and serves its leaf.
//!
//! Every replica does the same. Each write has the resourceVersion that was read as its precondition, so one of them
//! writes and the others read what it wrote.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{PostParams, WatchParams};
use restow_clock::Instant;
use restow_convert::causes;
use restow_lease::Stop;
use restow_lease::request::{ObjectError, ask, find};

use super::foreign::ForeignLeaf;
use super::issue::{IssueError, Issuing};
use super::rotation::{Seen, Step, Wanted, carry_out, next_step};
use super::secret::{self, Bundle, Certificates, ContentError, ForeignCertificate, Found, ROTATE};
use super::serving::ServingCertificate;
use super::trust::SharedTrust;
use super::x509::{certificates, fingerprint, fingerprints};

/// How often a write is tried again because another replica wrote first.
const ATTEMPTS: u32 = 20;
/// The timeout of a watch in seconds.
const WATCH_TIMEOUT: u32 = 55;

/// Why the certificates could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The Secret could not be read or written.
    #[error("could not read or write the Secret")]
    Secret(#[from] ObjectError),
    /// The Secret does not exist, and somebody else has to create it.
    #[error("the Secret does not exist; whoever manages it has to create it")]
    NotFound,
    /// The Secret cannot be used.
    #[error("the Secret cannot be used")]
    Content(#[from] ContentError),
    /// A certificate could not be made.
    #[error("could not make a certificate")]
    Issue(#[from] IssueError),
    /// The authorities could not be written down.
    #[error("could not write the authorities")]
    Json(#[from] serde_json::Error),
    /// Other replicas wrote at the same time, again and again.
    #[error("other replicas kept writing the Secret at the same time")]
    Contended,
}

/// Where certificates are kept, and what they shall be.
#[derive(Clone, Debug)]
pub struct CertificateSettings {
    /// The namespace of the Secret.
    pub namespace: String,
    /// The name of the Secret.
    pub secret: String,
    /// Whether somebody else manages the Secret, whatever its labels say.
    pub foreign: bool,
    /// What the certificates shall be.
    pub wanted: Wanted,
    /// How often to read the Secret if no watch shows a change; 30 seconds by default.
    pub check_every: Duration,
}

/// Keeps the certificates of one replica.
pub struct CertificateKeeper {
    secrets: Api<Secret>,
    settings: CertificateSettings,
    serving: Arc<ServingCertificate>,
    trust: Arc<SharedTrust>,
    /// What was read or written last, to restore a Secret that was deleted.
    last: Mutex<Option<Certificates>>,
    /// The resourceVersion of the Secret that was read last.
    seen: Mutex<Option<String>>,
    /// The leaf of a Secret that somebody else manages.
    foreign: Mutex<ForeignLeaf>,
}

/// The certificates as they are now.
#[derive(Debug)]
struct Current {
    found: Found,
    resource_version: Option<String>,
}

impl CertificateKeeper {
    /// A keeper that serves nothing yet. `trust` is what somebody observes about CRDs; without observations no authority
    /// begins to sign before the one before has expired.
    pub fn new(client: kube::Client, settings: CertificateSettings, trust: Arc<SharedTrust>) -> Self {
        let secrets = Api::namespaced(client, &settings.namespace);
        Self {
            secrets,
            settings,
            serving: Arc::default(),
            trust,
            last: Mutex::default(),
            seen: Mutex::default(),
            foreign: Mutex::default(),
        }
    }

    /// The certificate for a TLS server.
    pub fn serving(&self) -> Arc<ServingCertificate> {
        Arc::clone(&self.serving)
    }

    /// Keeps the certificates until it is stopped.
    pub async fn run(&self, stop: &Stop) {
        while let Some(result) = stop.unless(self.refresh(restow_clock::now())).await {
            let changed = match result {
                Ok(version) => version,
                Err(error) => {
                    self.report(&error);
                    None
                }
            };
            stop.unless(self.until_changed(changed)).await;
        }
    }

    fn report(&self, error: &CertificateError) {
        let CertificateSettings { namespace, secret, .. } = &self.settings;
        let cause = causes(error);
        match self.serving.not_after() {
            Some(until) => tracing::warn!(
                namespace, secret, valid_until = %until,
                "could not refresh the certificate; keeping the current one: {cause}"
            ),
            None => tracing::warn!(namespace, secret, "there is no certificate to serve yet: {cause}"),
        }
    }

    /// Reads the Secret, carries out what has to be done, and serves the leaf. Returns the Secret's resourceVersion.
    ///
    /// # Errors
    /// When the Secret cannot be read, written or used. The current certificate is served all the same.
    pub async fn refresh(&self, now: Timestamp) -> Result<Option<String>, CertificateError> {
        for _ in 0..ATTEMPTS {
            match self.step(now).await {
                Ok(Some(current)) => return self.serve(current),
                // It was written: read it again, because there may be more to do.
                Ok(None) | Err(CertificateError::Secret(ObjectError::Conflict)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(CertificateError::Contended)
    }

    /// Serves what was found.
    fn serve(&self, current: Current) -> Result<Option<String>, CertificateError> {
        let leaf = match &current.found {
            Found::Own(kept) => &kept.leaf.material,
            Found::Foreign(foreign) => &foreign.leaf,
            Found::Damaged(_) => return Ok(current.resource_version),
        };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen != current.resource_version {
            seen.clone_from(&current.resource_version);
            self.trust.certificates_changed();
            self.warn_if_unlabelled(&current.found);
        }
        drop(seen);
        if let Found::Foreign(foreign) = &current.found
            && !self.may_serve(foreign)?
        {
            return Ok(current.resource_version);
        }
        if self.serving.swap(leaf)? {
            let id = self.serving.id().map(|id| id.to_string());
            let until = self.serving.not_after().map(|until| until.to_string());
            tracing::info!(leaf = id, valid_until = until, "serving another certificate");
        }
        if let Found::Own(kept) = current.found {
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(*kept);
        }
        Ok(current.resource_version)
    }

    /// Whether a leaf of somebody else's Secret is served now, or when CRDs have trusted its authority for a while.
    fn may_serve(&self, foreign: &ForeignCertificate) -> Result<bool, CertificateError> {
        let chain = certificates(foreign.leaf.chain.as_bytes());
        let chain = chain.map_err(|error| ContentError::Certificates("tls.crt", error))?;
        let leaf = chain.first().map(fingerprint).ok_or(ContentError::Missing("tls.crt"))?;
        let authorities = fingerprints(foreign.bundle.as_deref().unwrap_or_default().as_bytes());
        let serves =
            self.serving.id().as_ref() != Some(&leaf) && self.serving.check(restow_clock::now()).is_ok();
        let mut known = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        let may = known.may_serve(
            &leaf,
            &authorities,
            serves,
            self.settings.wanted.lifetimes.settle,
            Instant::now(),
        );
        if !may {
            tracing::debug!(leaf = %leaf, "serving the former certificate until CRDs trust the authority of the new one");
        }
        Ok(may)
    }

    /// A Secret of restow that lost its label is not rotated any more, which nobody would notice before it expires.
    fn warn_if_unlabelled(&self, found: &Found) {
        let Found::Foreign(foreign) = found else { return };
        if foreign.unlabelled && !self.settings.foreign {
            let CertificateSettings { namespace, secret, .. } = &self.settings;
            tracing::warn!(
                namespace,
                secret,
                "the Secret has restow's certificates, but lacks restow's label, so it is only read and never renewed; to let \
                restow manage it, run: kubectl -n {namespace} label secret {secret} {}={}",
                restow_api::MANAGED_BY,
                restow_api::MANAGER
            );
        }
    }

    /// One step: what is kept if there is nothing to do, none if it was written.
    async fn step(&self, now: Timestamp) -> Result<Option<Current>, CertificateError> {
        let name = &self.settings.secret;
        let Some(secret) = find(self.secrets.get(name)).await? else {
            return if self.settings.foreign {
                Err(CertificateError::NotFound)
            } else {
                self.create(now).await
            };
        };
        let resource_version = secret.metadata.resource_version.clone();
        let found = secret::read(&secret, self.settings.foreign)?;
        let kept = match &found {
            Found::Foreign(_) => return Ok(Some(Current { found, resource_version })),
            Found::Own(kept) => Some((**kept).clone()),
            Found::Damaged(error) => {
                let cause = causes(error);
                tracing::warn!(secret = name, "the Secret is damaged; putting certificates into it: {cause}");
                None
            }
        };
        let requested = secret::rotation_requested(&secret);
        let step = self.decide(kept.as_ref(), requested, now);
        if step == Step::Keep {
            return Ok(Some(Current { found, resource_version }));
        }
        let kept = match kept {
            Some(kept) => self.carry_out(step, Some(kept), now)?,
            None => self.restored(now)?,
        };
        self.write(secret, &kept, step).await?;
        Ok(None)
    }

    fn decide(&self, kept: Option<&Certificates>, rotation_requested: bool, now: Timestamp) -> Step {
        let next = kept.and_then(|kept| kept.next());
        let next_trusted_for = next.and_then(|next| self.trust.lasting(&next.id));
        next_step(kept, &self.settings.wanted, Seen { next_trusted_for, rotation_requested }, now)
    }

    fn carry_out(
        &self,
        step: Step,
        kept: Option<Certificates>,
        now: Timestamp,
    ) -> Result<Certificates, CertificateError> {
        let mut mint = Issuing { skew: self.settings.wanted.lifetimes.skew };
        let after = carry_out(&mut mint, step, kept, &self.settings.wanted, now)?;
        after.ok_or(CertificateError::NotFound)
    }

    /// The certificates for a Secret that is gone: those in memory, and the next authority, because who deletes them may
    /// want others. Without any in memory, new ones.
    fn restored(&self, now: Timestamp) -> Result<Certificates, CertificateError> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let step = match &last {
            None => Step::Create,
            Some(last) if last.next().is_none() => Step::Introduce,
            Some(_) => Step::Keep,
        };
        self.carry_out(step, last, now)
    }

    async fn create(&self, now: Timestamp) -> Result<Option<Current>, CertificateError> {
        let CertificateSettings { namespace, secret: name, .. } = &self.settings;
        let kept = self.restored(now)?;
        let secret = secret::create(namespace, name, &kept)?;
        let created = ask(self.secrets.create(&PostParams::default(), &secret)).await;
        secret::erase(secret);
        created.map(secret::erase)?;
        tracing::info!(
            namespace,
            secret = name,
            authorities = kept.authorities.len(),
            "created the Secret of the certificates"
        );
        Ok(None)
    }

    /// Writes the Secret, if nobody else has since it was read.
    async fn write(
        &self,
        mut secret: Secret,
        kept: &Certificates,
        step: Step,
    ) -> Result<(), CertificateError> {
        restow_lease::request::as_read(&secret.metadata)?;
        secret::fill(&mut secret, kept)?;
        if step == Step::Introduce
            && let Some(annotations) = &mut secret.metadata.annotations
        {
            annotations.remove(ROTATE);
        }
        let replaced =
            ask(self.secrets.replace(&self.settings.secret, &PostParams::default(), &secret)).await;
        secret::erase(secret);
        replaced.map(secret::erase)?;
        let signing = kept.signing().map(|signing| signing.id.to_string());
        tracing::info!(secret = self.settings.secret, ?step, signing, "changed the certificates");
        Ok(())
    }

    /// Returns when the Secret may have changed, or when it is time to look again.
    async fn until_changed(&self, resource_version: Option<String>) {
        let watched = async {
            let Some(version) = &resource_version else { return std::future::pending().await };
            let only = format!("metadata.name={}", self.settings.secret);
            let params = WatchParams::default().fields(&only).timeout(WATCH_TIMEOUT).disable_bookmarks();
            match self.secrets.watch_metadata(&params, version).await {
                Ok(stream) => {
                    if std::pin::pin!(stream).next().await.is_none() {
                        std::future::pending::<()>().await;
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "the Secret cannot be watched; it is read from time to time");
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::select! {
            () = watched => {}
            () = self.trust.observed() => {}
            () = tokio::time::sleep(self.settings.check_every) => {}
        }
    }
}

/// Reads from the Secret what CRDs shall trust.
///
/// # Errors
/// When the Secret cannot be read, or does not say it.
pub async fn read_bundle(
    client: &kube::Client,
    settings: &CertificateSettings,
) -> Result<Bundle, CertificateError> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &settings.namespace);
    let secret = find(secrets.get(&settings.secret)).await?.ok_or(CertificateError::NotFound)?;
    let found = secret::read(&secret, settings.foreign);
    secret::erase(secret);
    Ok(secret::trusted(&found?)?)
}

#[cfg(test)]
mod tests;
