//! Which replicas of an operator run, and which versions each can convert.
//!
//! Every replica renews a Lease of its own with a fingerprint of the versions that its release converts between. While a release
//! replaces another one, replicas of both answer API servers. So the leader adds versions to a CRD only when every replica
//! knows them.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{ListParams, ObjectMeta, PostParams};
use restow_clock::Instant;
use restow_lease::request::{ObjectError, as_read, ask, delete_as_read, find};
use restow_lease::{Stop, election};

/// The label of the Leases; the value is the name of the webhook.
const LABEL: &str = "restow.dev/webhook";
/// The annotation with the fingerprint.
const CONVERTS: &str = "restow.dev/converts";
/// How long a replica may go without renewing its Lease.
const DURATION: Duration = Duration::from_secs(30);
const RENEW_EVERY: Duration = Duration::from_secs(10);

/// A replica, as its Lease shows it.
#[derive(Clone, Debug, PartialEq)]
struct Replica {
    lease: String,
    holder: String,
    converts: String,
    resource_version: String,
}

/// The replicas that were seen, and since when each Lease is unchanged by this machine's clock.
#[derive(Debug, Default)]
struct Roll(BTreeMap<String, (String, Duration)>);

impl Roll {
    /// The replicas that are alive: a Lease counts until it was unchanged for its duration while this process watched.
    fn live(&mut self, replicas: Vec<Replica>, now: Duration) -> Vec<Replica> {
        self.0.retain(|lease, _| replicas.iter().any(|replica| replica.lease == *lease));
        let is_alive = |replica: &Replica| {
            let (version, since) = self
                .0
                .entry(replica.lease.clone())
                .or_insert_with(|| (replica.resource_version.clone(), now));
            if *version != replica.resource_version {
                (*version, *since) = (replica.resource_version.clone(), now);
            }
            now.saturating_sub(*since) <= DURATION
        };
        replicas.into_iter().filter(is_alive).collect()
    }
}

/// Makes this replica known, and knows the others.
pub(crate) struct Replicas {
    leases: Api<Lease>,
    webhook: String,
    lease: String,
    holder: String,
    converts: String,
    roll: Mutex<Roll>,
    start: Instant,
}

impl Replicas {
    /// The replicas of a webhook. `converts` is the fingerprint of what this one converts.
    pub(crate) fn new(client: kube::Client, namespace: &str, webhook: &str, converts: String) -> Self {
        Self {
            leases: Api::namespaced(client, namespace),
            webhook: webhook.to_owned(),
            lease: format!("{webhook}-{}", election::nonce()),
            holder: election::host_name(),
            converts,
            roll: Mutex::default(),
            start: Instant::now(),
        }
    }

    /// Renews the Lease of this replica until it is stopped.
    pub(crate) async fn renew(&self, stop: &Stop) {
        while let Some(renewed) = stop.unless(self.renew_once()).await {
            if let Err(error) = renewed {
                tracing::warn!(lease = self.lease, "could not renew the Lease of this replica: {error}");
            }
            stop.unless(tokio::time::sleep(RENEW_EVERY)).await;
        }
    }

    async fn renew_once(&self) -> Result<(), ObjectError> {
        let found = find(self.leases.get(&self.lease)).await?;
        let is_new = found.is_none();
        let mut lease = match found {
            Some(lease) => {
                as_read(&lease.metadata)?;
                lease
            }
            None => Lease {
                metadata: ObjectMeta {
                    name: Some(self.lease.clone()),
                    labels: Some(BTreeMap::from([(LABEL.to_owned(), self.webhook.clone())])),
                    annotations: Some(BTreeMap::from([(CONVERTS.to_owned(), self.converts.clone())])),
                    ..ObjectMeta::default()
                },
                spec: None,
            },
        };
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(self.holder.clone()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            renew_time: Some(MicroTime(restow_clock::now())),
            ..LeaseSpec::default()
        });
        let params = PostParams::default();
        match is_new {
            true => ask(self.leases.create(&params, &lease)).await?,
            false => ask(self.leases.replace(&self.lease, &params, &lease)).await?,
        };
        Ok(())
    }

    /// Deletes the Lease of this replica, so that nobody waits for it.
    pub(crate) async fn leave(&self) {
        let left = async {
            if let Some(lease) = find(self.leases.get(&self.lease)).await? {
                ask(self.leases.delete(&self.lease, &delete_as_read(&lease.metadata)?)).await?;
            }
            Ok::<(), ObjectError>(())
        };
        if let Err(error) = left.await {
            let lease = &self.lease;
            tracing::warn!(lease, "could not delete the Lease of this replica; it expires: {error}");
        }
    }

    /// Whether all replicas that run convert between the same versions as this one.
    pub(crate) async fn all_convert(&self) -> Result<(), String> {
        let params = ListParams::default().labels(&format!("{LABEL}={}", self.webhook));
        let listed = ask(self.leases.list(&params)).await;
        let listed = listed.map_err(|error| format!("could not list the Leases of replicas: {error}"))?;
        let replicas = listed.items.iter().map(replica).collect();
        let live = {
            let mut roll = self.roll.lock().unwrap_or_else(PoisonError::into_inner);
            roll.live(replicas, self.start.elapsed())
        };
        let others: Vec<String> = live
            .into_iter()
            .filter(|replica| replica.converts != self.converts)
            .map(|replica| format!("{} (Lease {})", replica.holder, replica.lease))
            .collect();
        if others.is_empty() {
            return Ok(());
        }
        Err(format!(
            "replicas of another release still run, which cannot convert the versions of this one: {}; waiting for their end",
            others.join(", ")
        ))
    }
}

fn replica(lease: &Lease) -> Replica {
    let annotations = lease.metadata.annotations.as_ref();
    Replica {
        lease: lease.metadata.name.clone().unwrap_or_default(),
        holder: lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default(),
        converts: annotations.and_then(|all| all.get(CONVERTS).cloned()).unwrap_or_default(),
        resource_version: lease.metadata.resource_version.clone().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_counts_until_its_lease_was_seen_unchanged_for_its_duration() {
        let replica = |lease: &str, version: &str| Replica {
            lease: lease.to_owned(),
            holder: "host".to_owned(),
            converts: "x".to_owned(),
            resource_version: version.to_owned(),
        };
        let mut roll = Roll::default();
        for (seconds, listed, expected) in [
            (0, &[("a", "1"), ("b", "1")][..], &["a", "b"][..]),
            (30, &[("a", "1"), ("b", "2")], &["a", "b"]),
            (31, &[("a", "1"), ("b", "2")], &["b"]),
            // It was only slow.
            (40, &[("a", "2"), ("b", "2")], &["a", "b"]),
            // One that has left, and a new one of the same name later.
            (41, &[("b", "2")], &["b"]),
            (99, &[("a", "2"), ("b", "3")], &["a", "b"]),
        ] {
            let listed = listed.iter().map(|(lease, version)| replica(lease, version)).collect();
            let live = roll.live(listed, Duration::from_secs(seconds));
            let names: Vec<&str> = live.iter().map(|replica| replica.lease.as_str()).collect();
            assert_eq!(names, expected, "after {seconds} s");
        }
    }
}
