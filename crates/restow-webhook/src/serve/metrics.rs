//! The metrics of the webhook. All labels are names that a converter knows, so nobody can make them grow with requests.

use std::borrow::Cow;
use std::time::Duration;

use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use restow_convert::review::{Answer, Pair};

type Labels<const N: usize> = [(&'static str, Cow<'static, str>); N];

/// The metrics of the webhook.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    seconds: Family<Labels<1>, Histogram>,
    conversion_seconds: Histogram,
    objects: Family<Labels<4>, Counter>,
    failures: Family<Labels<5>, Counter>,
    refused: Family<Labels<1>, Counter>,
    in_flight: Gauge,
    abandoned: Gauge,
}

/// A review that is counted as in flight until this is dropped.
pub(super) struct InFlight(Gauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::beside(Registry::default())
    }
}

impl Metrics {
    /// The metrics of the webhook beside those that a registry has already.
    pub(super) fn beside(mut root: Registry) -> Self {
        let registry = root.sub_registry_with_prefix("restow_webhook");
        let seconds = Family::<Labels<1>, Histogram>::new_with_constructor(|| {
            Histogram::new(exponential_buckets(0.001, 2.0, 15))
        });
        let conversion_seconds = Histogram::new(exponential_buckets(0.001, 2.0, 15));
        let metrics = Self {
            seconds: seconds.clone(),
            conversion_seconds: conversion_seconds.clone(),
            objects: Family::default(),
            failures: Family::default(),
            refused: Family::default(),
            in_flight: Gauge::default(),
            abandoned: Gauge::default(),
            registry: Registry::default(),
        };
        registry.register("review_duration_seconds", "How long reviews took, by result", seconds);
        registry.register(
            "conversion_duration_seconds",
            "How long it took from the last byte of a review to its answer",
            conversion_seconds,
        );
        registry.register(
            "objects",
            "Objects that were converted, by pair of versions",
            metrics.objects.clone(),
        );
        registry.register(
            "failures",
            "Reviews that failed, by pair of versions and reason",
            metrics.failures.clone(),
        );
        registry.register(
            "refused_requests",
            "Requests that were no reviews or came too fast, by code",
            metrics.refused.clone(),
        );
        registry.register("reviews_in_flight", "Reviews that are being answered", metrics.in_flight.clone());
        registry.register(
            "abandoned_conversions",
            "Threads held by converters that did not return in time",
            metrics.abandoned.clone(),
        );
        Self { registry: root, ..metrics }
    }

    pub(super) fn begin(&self) -> InFlight {
        self.in_flight.inc();
        InFlight(self.in_flight.clone())
    }

    /// Counts an answer. It `took` so long altogether, and `converted` from the last byte of the review on.
    pub(super) fn answered(&self, answer: &Answer, took: Duration, converted: Duration) {
        self.conversion_seconds.observe(converted.as_secs_f64());
        match &answer.failure {
            None => {
                for count in &answer.converted {
                    self.objects.get_or_create(&labels(&count.pair)).inc_by(count.objects);
                }
                self.took("success", took);
            }
            Some(failure) => self.failed(failure.pair.as_ref(), failure.reason.as_str(), took),
        }
    }

    /// Counts a review that failed.
    pub(super) fn failed(&self, pair: Option<&Pair>, reason: &'static str, took: Duration) {
        let pair = pair.map_or_else(
            || ["group", "kind", "from", "to"].map(|name| (name, Cow::Borrowed("unknown"))),
            labels,
        );
        let [group, kind, from, to] = pair;
        self.failures.get_or_create(&[group, kind, from, to, ("reason", reason.into())]).inc();
        self.took("failure", took);
    }

    fn took(&self, result: &'static str, took: Duration) {
        self.seconds.get_or_create(&[("result", result.into())]).observe(took.as_secs_f64());
    }

    /// Counts a request that was refused.
    pub(super) fn refused(&self, code: u16) {
        self.refused.get_or_create(&[("code", code.to_string().into())]).inc();
    }

    /// All metrics as text.
    pub(super) fn text(&self, abandoned: usize) -> String {
        self.abandoned.set(i64::try_from(abandoned).unwrap_or(i64::MAX));
        let mut text = String::new();
        // Writing into a string does not fail.
        let _ = text::encode(&mut text, &self.registry);
        text
    }
}

fn labels(pair: &Pair) -> Labels<4> {
    [("group", &pair.group), ("kind", &pair.kind), ("from", &pair.from), ("to", &pair.to)]
        .map(|(name, value)| (name, Cow::Owned(value.clone())))
}
