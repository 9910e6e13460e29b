//! The metrics of a controller process.
//!
//! The text is in Prometheus' own format. OpenMetrics requires `_total` in the name of a counter, and the counters of
//! kube-storage-version-migrator, which dashboards use, do not have it.

mod count;
mod resource;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::text;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};
use restow_api::{ConditionType, Conversion, Reason, StorageVersionMigration};
use restow_migrate::prune::{PruneError, Pruned};

use count::{Count, gauge_value};
pub use resource::ResourceMetrics;

/// The content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

const PHASES: [&str; 5] = ["Waiting", "Suspended", "Running", "Succeeded", "Failed"];

/// The reasons for which the trigger acts.
const TRIGGER_REASONS: [Reason; 14] = [
    Reason::NewResource,
    Reason::StaleHeartbeat,
    Reason::ForeignState,
    Reason::StorageVersionChanged,
    Reason::StorageVersionChangedTwice,
    Reason::EncryptionChanged,
    Reason::EncryptionChangedTwice,
    Reason::EncryptionUnwatched,
    Reason::EncryptionUnseen,
    Reason::VersionRetired,
    Reason::Disagreement,
    Reason::Migrated,
    Reason::RetryPlanned,
    Reason::Retried,
];

type Labels<const N: usize> = [(&'static str, Cow<'static, str>); N];

/// How a migration ended, as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Verified.
    Succeeded,
    /// For any other reason than a changed storage version.
    Failed,
    /// Failed, because the storage version changed.
    Superseded,
    /// Abandoned, to be started again.
    Aborted,
}

/// All metrics of a controller process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    migrated: Family<Labels<1>, Count>,
    remaining: Family<Labels<1>, Gauge>,
    completed: Family<Labels<2>, Count>,
    objects: Family<Labels<2>, Count>,
    ended: Family<Labels<1>, Count>,
    phases: Family<Labels<1>, Gauge>,
    leader: Gauge,
    decisions: Family<Labels<1>, Count>,
    disagreeing: Gauge,
    unsettled: Gauge,
    pages: Count,
    page_seconds: Histogram,
    in_flight_limit: Gauge<f64, AtomicU64>,
    prunes: Family<Labels<1>, Count>,
    events_dropped: Count,
    conversions: Family<Labels<1>, Gauge>,
    conversions_ended: Family<Labels<1>, Count>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        // The names that dashboards of kube-storage-version-migrator use.
        let to = registry.sub_registry_with_prefix("storage_migrator_core_migrator");
        let migrated = new(to, "migrated_objects", "Objects that have been migrated");
        let remaining = new(to, "remaining_objects", "Objects that still require migration");
        let completed = new(to, "migrations", "Migrations that have ended");
        let to = registry.sub_registry_with_prefix("restow");
        let build: Family<Labels<1>, Gauge> = new(to, "build_info", "The version that runs");
        build.get_or_create(&one("version", env!("CARGO_PKG_VERSION"))).set(1);
        let page_seconds = Histogram::new(exponential_buckets(0.05, 2.0, 12));
        to.register("page_seconds", "Seconds that a page took", page_seconds.clone());
        let metrics = Self {
            migrated,
            remaining,
            completed,
            objects: new(to, "objects_total", "Objects by outcome, in every pass"),
            ended: new(to, "migrations_total", "Migrations that have ended, by result"),
            phases: new(to, "migrations", "Existing migrations by phase"),
            leader: new(to, "leader", "Whether this process leads"),
            decisions: new(to, "trigger_decisions_total", "Changes of StorageStates by reason"),
            disagreeing: new(to, "disagreeing_resources", "Resources that API servers do not agree on"),
            unsettled: new(
                to,
                "storage_states_unsettled",
                "Resources that may be stored in several versions or under several keys",
            ),
            pages: new(to, "pages_total", "Pages of objects that were completed and saved"),
            page_seconds,
            in_flight_limit: new(to, "in_flight_limit", "Limit of writes in flight"),
            prunes: new(to, "prunes_total", "Attempts to prune storedVersions, by result"),
            events_dropped: new(
                to,
                "events_dropped_total",
                "Events that were dropped: too many waited to be sent",
            ),
            conversions: new(to, "conversions", "Existing Conversions by phase"),
            conversions_ended: new(to, "conversions_total", "Conversions that have ended, by result"),
            registry,
        };
        metrics.zeroed()
    }
}

/// Creates and registers a metric.
fn new<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

impl Metrics {
    /// Creates all label values at zero, so that a rate includes the first increment.
    fn zeroed(self) -> Self {
        for result in [Ended::Succeeded, Ended::Failed, Ended::Aborted] {
            drop(self.ended.get_or_create(&one("result", result.name())));
        }
        for reason in TRIGGER_REASONS {
            drop(self.decisions.get_or_create(&one("reason", reason_label(reason))));
        }
        for phase in PHASES {
            drop(self.phases.get_or_create(&one("phase", phase)));
            drop(self.conversions.get_or_create(&one("phase", phase)));
        }
        for result in ["pruned", "unneeded", "refused", "failed"] {
            drop(self.prunes.get_or_create(&one("result", result)));
        }
        for result in ["succeeded", "failed"] {
            drop(self.conversions_ended.get_or_create(&one("result", result)));
        }
        self
    }

    /// Counts the existing Conversions by phase.
    pub fn conversions<'a>(&self, all: impl IntoIterator<Item = &'a Conversion>) {
        let mut counts = PHASES.map(|phase| (phase, 0));
        for conversion in all {
            let phase = conversion.status.as_ref().and_then(|status| status.phase.as_deref());
            let phase = phase.unwrap_or("Waiting");
            counts.iter_mut().filter(|(name, _)| *name == phase).for_each(|(_, count)| *count += 1);
        }
        for (phase, count) in counts {
            self.conversions.get_or_create(&one("phase", phase)).set(count);
        }
    }

    /// Counts a Conversion that has ended.
    pub fn conversion_ended(&self, succeeded: bool) {
        let result = if succeeded { "succeeded" } else { "failed" };
        self.conversions_ended.get_or_create(&one("result", result)).add_one();
    }

    /// The metrics of one resource, such as `widgets.example.com`. Keep them while it is migrated.
    pub fn resource(&self, name: &str) -> ResourceMetrics {
        let outcome = |outcome: &'static str| {
            let [resource] = one("resource", name.to_owned());
            self.objects.get_or_create_owned(&[resource, ("outcome", outcome.into())])
        };
        let resource = one("resource", name.to_owned());
        ResourceMetrics {
            migrated: self.migrated.get_or_create_owned(&resource),
            remaining: self.remaining.get_or_create_owned(&resource),
            rewritten: outcome("rewritten"),
            current: outcome("current"),
            conflicted: outcome("conflicted"),
            gone: outcome("gone"),
            quarantined: outcome("quarantined"),
            verifying: Arc::default(),
        }
    }

    /// Counts a migration that has ended.
    pub fn ended(&self, resource: &str, how: Ended) {
        self.ended.get_or_create(&one("result", how.name())).add_one();
        let status = match how {
            Ended::Succeeded => "Succeeded",
            Ended::Failed | Ended::Superseded => "Failed",
            // kube-storage-version-migrator has no such end.
            Ended::Aborted => return,
        };
        let [resource] = one("resource", resource.to_owned());
        self.completed.get_or_create(&[resource, ("status", status.into())]).add_one();
    }

    /// Counts the existing migrations by phase.
    pub fn migrations<'a>(&self, all: impl IntoIterator<Item = &'a StorageVersionMigration>) {
        let mut counts = PHASES.map(|phase| (phase, 0));
        for migration in all {
            let phase = phase(migration);
            counts.iter_mut().filter(|(name, _)| *name == phase).for_each(|(_, count)| *count += 1);
        }
        for (phase, count) in counts {
            self.phases.get_or_create(&one("phase", phase)).set(count);
        }
    }

    /// Whether this process leads.
    pub fn leading(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    /// Counts a change of a StorageState.
    pub fn triggered(&self, reason: Reason) {
        self.decisions.get_or_create(&one("reason", reason_label(reason))).add_one();
    }

    /// Sets the number of resources that the API servers do not agree on.
    pub fn disagreeing(&self, resources: usize) {
        self.disagreeing.set(gauge_value(resources as u64));
    }

    /// Sets the number of StorageStates whose objects may be stored in several versions.
    pub fn unsettled(&self, states: usize) {
        self.unsettled.set(gauge_value(states as u64));
    }

    /// Counts a finished page.
    pub fn page(&self, took: Duration) {
        self.pages.add_one();
        self.page_seconds.observe(took.as_secs_f64());
    }

    /// Sets the limit of writes in flight.
    pub fn in_flight_limit(&self, limit: f64) {
        self.in_flight_limit.set(limit);
    }

    /// Counts an attempt to prune storedVersions.
    pub fn pruned(&self, result: &Result<Option<Pruned>, PruneError>) {
        let result = match result {
            Ok(Some(_)) => "pruned",
            Ok(None) => "unneeded",
            Err(PruneError::Refused(_)) => "refused",
            Err(PruneError::Request(_)) => "failed",
        };
        self.prunes.get_or_create(&one("result", result)).add_one();
    }

    /// Counts an Event that was dropped because too many waited to be sent.
    pub fn event_dropped(&self) {
        self.events_dropped.add_one();
    }

    /// All metrics as text of type [`CONTENT_TYPE`].
    pub fn encode(&self) -> String {
        let mut encoded = String::with_capacity(8 * 1024);
        // Writing to a String never fails.
        text::encode_registry(&mut encoded, &self.registry).ok();
        encoded
    }
}

impl Ended {
    fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Superseded | Self::Aborted => "aborted",
        }
    }
}

/// The phase of a migration, computed from its conditions: objects of kube-storage-version-migrator have no `status.phase`.
fn phase(migration: &StorageVersionMigration) -> &'static str {
    match () {
        () if migration.is(ConditionType::Succeeded) => "Succeeded",
        () if migration.is(ConditionType::Failed) => "Failed",
        () if migration.is_suspended() => "Suspended",
        () if migration.is(ConditionType::Running) => "Running",
        () => "Waiting",
    }
}

/// The reason in snake case, as Prometheus writes the values of labels.
fn reason_label(reason: Reason) -> String {
    let mut label = String::new();
    for letter in reason.as_str().chars() {
        if letter.is_ascii_uppercase() && !label.is_empty() {
            label.push('_');
        }
        label.push(letter.to_ascii_lowercase());
    }
    label
}

fn one(label: &'static str, value: impl Into<Cow<'static, str>>) -> Labels<1> {
    [(label, value.into())]
}

#[cfg(test)]
mod tests;
