//! Counters whose names are what they are registered by.

use std::fmt;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::{MetricType, TypedMetric};

/// A counter under the very name it is registered by; the crate's own appends `_total`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Count(Counter);

impl Count {
    /// One more.
    pub(crate) fn add_one(&self) {
        self.0.inc();
    }
}

impl TypedMetric for Count {
    const TYPE: MetricType = MetricType::Counter;
}

impl EncodeMetric for Count {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        // A gauge differs from a counter in the text by the name alone.
        encoder.encode_gauge(&self.0.get())
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

/// A count as a gauge takes it.
pub(crate) fn gauge_value(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
