//! How long a large review takes from its bytes to the bytes of the answer, without a server.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use restow_convert::Converters;
use restow_convert::review::{Limits, Observer, Place, Review, Scope};

use super::backups;
use crate::bench::report::{cells, median, table};

const ROUNDS: usize = 15;

struct Proceed;

impl Observer for Proceed {
    fn begin(&self, _: &Place) -> bool {
        true
    }

    fn end(&self, _: &Place) {}
}

/// Measures both converters in turns, on one thread and on all processors.
pub(super) fn measure(objects: usize) -> Result<String> {
    let body = backups::review(objects);
    let helpers = std::thread::available_parallelism()?.get() - 1;
    let ways = [
        ("rules", backups::by_rules(), 0),
        ("Rust code", backups::by_code(), 0),
        ("rules", backups::by_rules(), helpers),
        ("Rust code", backups::by_code(), helpers),
    ];
    let mut times = ways.each_ref().map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for ((_, converters, helpers), times) in ways.iter().zip(&mut times) {
            times.push(once(&body, converters, *helpers)?.as_secs_f64());
        }
    }
    let mut rows = vec![cells(["by", "threads", &format!("median of {ROUNDS}"), "fastest"])];
    for ((by, _, helpers), times) in ways.iter().zip(&times) {
        let shown = |seconds: f64| format!("{:.1} ms", 1000.0 * seconds);
        let fastest = times.iter().copied().fold(f64::INFINITY, f64::min);
        let row = [
            (*by).to_owned(),
            (helpers + 1).to_string(),
            shown(median(times.iter().copied())),
            shown(fastest),
        ];
        rows.push(row.to_vec());
    }
    Ok(table(&rows))
}

fn once(body: &str, converters: &Converters, helpers: usize) -> Result<Duration> {
    let began = Instant::now();
    let review = Review::parse(body.as_bytes(), Limits::default())?;
    let answer = review.convert_on(helpers, converters, Scope::All, &Proceed);
    let took = began.elapsed();
    ensure!(answer.failure.is_none(), "{:?}", answer.failure);
    Ok(took)
}
