//! Counters without `_total` appended to their names.

use std::fmt;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::{MetricType, TypedMetric};

/// A counter whose name is exactly the registered one; the crate's own counter appends `_total`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Count(Counter);

impl Count {
    pub(crate) fn add_one(&self) {
        self.0.inc();
    }
}

impl TypedMetric for Count {
    const TYPE: MetricType = MetricType::Counter;
}

impl EncodeMetric for Count {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        // In the text, a gauge is encoded like a counter but without `_total`.
        encoder.encode_gauge(&self.0.get())
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

/// Converts a count to a gauge's type.
pub(crate) fn gauge_value(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
