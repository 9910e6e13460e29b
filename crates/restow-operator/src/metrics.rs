//! The progress as metrics, for the registry of an operator.

use std::borrow::Cow;
use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

type Labels<const N: usize> = [(&'static str, Cow<'static, str>); N];

/// The progress of migrations. Register them with the operator's own metrics.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    objects: Family<Labels<2>, Counter>,
    remaining: Family<Labels<1>, Gauge>,
    migrations: Family<Labels<2>, Counter>,
    finished: Family<Labels<1>, Gauge<f64, AtomicU64>>,
}

impl Metrics {
    /// Adds them to a registry: `restow_objects_total`, `restow_remaining_objects`, `restow_migrations_total` and
    /// `restow_migrated_timestamp_seconds`. The only labels are the operator's own resources, outcomes and results.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("restow");
        registry.register("objects", "Objects by outcome, in every pass", self.objects.clone());
        registry.register(
            "remaining_objects",
            "Objects that are still to be checked",
            self.remaining.clone(),
        );
        registry.register("migrations", "Migrations that have ended, by result", self.migrations.clone());
        let help = "When the resource was last verified to be stored in its storage version";
        registry.register("migrated_timestamp_seconds", help, self.finished.clone());
    }

    pub(crate) fn decided(&self, resource: &str, outcome: &'static str) {
        self.objects.get_or_create(&[label("resource", resource), ("outcome", Cow::Borrowed(outcome))]).inc();
    }

    pub(crate) fn remaining(&self, resource: &str, objects: u64) {
        let objects = i64::try_from(objects).unwrap_or(i64::MAX);
        self.remaining.get_or_create(&[label("resource", resource)]).set(objects);
    }

    pub(crate) fn ended(&self, resource: &str, result: &'static str) {
        self.migrations
            .get_or_create(&[label("resource", resource), ("result", Cow::Borrowed(result))])
            .inc();
    }

    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn verified(&self, resource: &str) {
        let now = restow_clock::now().as_second();
        self.finished.get_or_create(&[label("resource", resource)]).set(now as f64);
    }
}

fn label(name: &'static str, value: &str) -> (&'static str, Cow<'static, str>) {
    (name, Cow::Owned(value.to_owned()))
}
