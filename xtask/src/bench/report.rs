//! What the bench found, as tables that read well in a terminal and in Markdown.

use std::{fmt::Write as _, time::Duration};

use super::machine::Usage;

/// Everything that was measured.
#[derive(Default)]
pub(crate) struct Findings {
    /// One for each contestant, in the order of the table.
    pub(crate) rows: Vec<Row>,
    /// One for each pace that was probed.
    pub(crate) probes: Vec<Probed>,
    /// restow's peak at the smaller and the larger number of objects, in bytes.
    pub(crate) memory: Option<(Peak, Peak)>,
    /// What the controller held while it migrated every resource, the widgets among them.
    pub(crate) controller: Option<Peak>,
}

/// A contestant and its turns.
pub(crate) struct Row {
    pub(crate) contestant: Contestant,
    pub(crate) turns: Vec<Turn>,
}

/// Which program rewrites the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contestant {
    Ceiling,
    CeilingHttp1,
    Fast,
    Steady,
    FastWhole,
    SteadyWhole,
    BuiltIn,
}

/// One migration.
pub(crate) struct Turn {
    pub(crate) objects: usize,
    pub(crate) took: Duration,
    pub(crate) peak: Option<u64>,
    pub(crate) left: usize,
    pub(crate) usage: Usage,
}

impl Turn {
    /// Objects per second.
    pub(crate) fn rate(&self) -> f64 {
        self.objects as f64 / self.took.as_secs_f64()
    }
}

/// The latencies of the probe.
pub(crate) struct Probed {
    pub(crate) pace: &'static str,
    pub(crate) windows: usize,
    pub(crate) without: Vec<Duration>,
    pub(crate) during: Vec<Duration>,
}

/// The peak memory of a run.
#[derive(Clone, Copy)]
pub(crate) struct Peak {
    pub(crate) objects: usize,
    pub(crate) bytes: u64,
}

/// What must hold.
struct Claim {
    what: String,
    required: String,
    measured: String,
    holds: bool,
}

impl Contestant {
    /// The name in the table.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Ceiling => "ceiling: bare loader, 32 in flight, one HTTP/2 connection",
            Self::CeilingHttp1 => "the same over 32 HTTP/1.1 connections",
            Self::Fast => "restow --pace fast, its rewriting pass",
            Self::Steady => "restow --pace steady, its rewriting pass",
            Self::FastWhole => "restow --pace fast, start to end, verified",
            Self::SteadyWhole => "restow --pace steady, start to end, verified",
            Self::BuiltIn => "built-in controller, creation to Succeeded",
        }
    }
}

impl Row {
    fn seconds(&self) -> f64 {
        median(self.turns.iter().map(|turn| turn.took.as_secs_f64()))
    }

    /// Objects per second: the median of the turns.
    pub(crate) fn rate(&self) -> f64 {
        median(self.turns.iter().map(Turn::rate))
    }
}

impl Findings {
    /// Adds a turn.
    pub(crate) fn add(&mut self, contestant: Contestant, turn: Turn) {
        match self.rows.iter_mut().find(|row| row.contestant == contestant) {
            Some(row) => row.turns.push(turn),
            None => self.rows.push(Row { contestant, turns: vec![turn] }),
        }
    }

    fn turns(&self, contestant: Contestant) -> &[Turn] {
        self.rows.iter().find(|row| row.contestant == contestant).map_or(&[], |row| row.turns.as_slice())
    }

    /// The ratio of two rates: the median of the rounds in which both had a turn, because a shared machine differs between
    /// rounds.
    fn ratio(&self, above: Contestant, below: Contestant) -> Option<f64> {
        let rounds = self.turns(above).iter().zip(self.turns(below));
        let ratios: Vec<f64> = rounds.map(|(above, below)| above.rate() / below.rate()).collect();
        (!ratios.is_empty()).then(|| median(ratios.into_iter()))
    }

    pub(crate) fn tables(&self) -> String {
        let tables = [self.contestants(), self.foreground(), self.claims()];
        tables.iter().filter(|table| !table.is_empty()).cloned().collect::<Vec<_>>().join("\n")
    }

    fn contestants(&self) -> String {
        let mut rows = vec![cells([
            "contestant",
            "objects/s",
            "of the ceiling",
            "seconds",
            "own CPU s",
            "peak memory",
            "left behind",
            "CPU of others",
        ])];
        for row in &self.rows {
            rows.push(vec![
                row.contestant.title().to_owned(),
                format!("{:.0}", row.rate()),
                self.ratio(row.contestant, Contestant::Ceiling)
                    .map_or_else(none, |ratio| format!("{ratio:.2}")),
                format!("{:.1}", row.seconds()),
                format!("{:.1}", median(row.turns.iter().map(|turn| turn.usage.own))),
                row.turns.iter().filter_map(|turn| turn.peak).max().map_or_else(none, mib),
                row.turns.iter().map(|turn| turn.left).max().unwrap_or(0).to_string(),
                format!("{:.0} %", 100.0 * median(row.turns.iter().map(|turn| turn.usage.others))),
            ]);
        }
        table(&rows)
    }

    fn foreground(&self) -> String {
        let mut rows = vec![cells([
            "probe beside",
            "windows",
            "samples without/during",
            "median without",
            "during",
            "99th percentile without",
            "during",
            "ratio",
        ])];
        for probed in &self.probes {
            rows.push(vec![
                format!("restow --pace {}", probed.pace),
                probed.windows.to_string(),
                format!("{}/{}", probed.without.len(), probed.during.len()),
                milliseconds(percentile(&probed.without, 0.5)),
                milliseconds(percentile(&probed.during, 0.5)),
                milliseconds(percentile(&probed.without, 0.99)),
                milliseconds(percentile(&probed.during, 0.99)),
                format!("{:.2}", probed.ratio()),
            ]);
        }
        table(&rows)
    }

    fn claims(&self) -> String {
        let mut rows = vec![cells(["claim", "required", "measured", "holds"])];
        for claim in self.judged() {
            let holds = if claim.holds { "yes" } else { "NO" };
            rows.push(vec![claim.what, claim.required, claim.measured, holds.to_owned()]);
        }
        table(&rows)
    }

    fn judged(&self) -> Vec<Claim> {
        let at_least = |what: &str, least: f64, found: f64| Claim {
            what: what.to_owned(),
            required: format!("≥ {least}"),
            measured: format!("{found:.2}"),
            holds: found >= least,
        };
        let mut claims = Vec::new();
        if let Some(found) = self.ratio(Contestant::Fast, Contestant::Ceiling) {
            claims.push(at_least("fast / ceiling", 0.95, found));
        }
        for probed in self.probes.iter().filter(|probed| probed.pace == "steady") {
            claims.push(Claim {
                what: "99th percentile of the probe, during steady / without".to_owned(),
                required: "≤ 1.5".to_owned(),
                measured: format!("{:.2}", probed.ratio()),
                holds: probed.ratio() <= 1.5,
            });
        }
        if let Some((small, large)) = self.memory {
            claims.extend(memory_claims(small, large));
        }
        claims.extend(self.controller.map(controller_claim));
        claims
    }
}

fn controller_claim(peak: Peak) -> Claim {
    Claim {
        what: format!("the controller's peak memory, all resources and {} objects", peak.objects),
        required: "≤ 40 MiB".to_owned(),
        measured: mib(peak.bytes),
        holds: peak.bytes <= 40 << 20,
    }
}

fn memory_claims(small: Peak, large: Peak) -> [Claim; 2] {
    const MIB: u64 = 1 << 20;
    let more = large.bytes.saturating_sub(small.bytes);
    [
        Claim {
            what: format!("restow's peak memory at {} objects", large.objects),
            required: "≤ 32 MiB".to_owned(),
            measured: mib(large.bytes),
            holds: large.bytes <= 32 * MIB,
        },
        Claim {
            what: format!("more than at {} objects ({})", small.objects, mib(small.bytes)),
            required: "≤ 4 MiB".to_owned(),
            measured: mib(more),
            holds: more <= 4 * MIB,
        },
    ]
}

impl Probed {
    /// The ratio of the 99th percentiles during the migration and without it.
    pub(crate) fn ratio(&self) -> f64 {
        percentile(&self.during, 0.99).as_secs_f64() / percentile(&self.without, 0.99).as_secs_f64()
    }
}

/// The value that this share of the samples does not exceed.
fn percentile(samples: &[Duration], share: f64) -> Duration {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

pub(crate) fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = numbers.collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        count if count.is_multiple_of(2) => (sorted[middle - 1] + sorted[middle]) / 2.0,
        _ => sorted[middle],
    }
}

/// An aligned Markdown table: text to the left, the rest to the right; nothing when there are no rows.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let Some((head, body)) = rows.split_first() else { return String::new() };
    if body.is_empty() {
        return String::new();
    }
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    let mut line = |row: &[String]| {
        for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            let done = if column == 0 {
                write!(text, "| {cell:width$} ")
            } else {
                write!(text, "| {cell:>width$} ")
            };
            done.ok();
        }
        text.push_str("|\n");
    };
    line(head);
    let rule = |(column, &width): (usize, &usize)| {
        if column == 0 { "-".repeat(width) } else { format!("{}:", "-".repeat(width - 1)) }
    };
    line(&widths.iter().enumerate().map(rule).collect::<Vec<_>>());
    body.iter().for_each(|row| line(row));
    text
}

pub(crate) fn cells<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

fn none() -> String {
    "-".to_owned()
}

pub(crate) fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn milliseconds(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_ranks() {
        let samples: Vec<Duration> = (1..=200).rev().map(Duration::from_millis).collect();
        for (share, expected) in [(0.5, 100), (0.99, 198), (1.0, 200)] {
            assert_eq!(percentile(&samples, share), Duration::from_millis(expected));
        }
        assert_eq!(percentile(&[], 0.99), Duration::ZERO);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
    }

    #[test]
    fn rewriting_is_judged_by_its_ratio_to_the_ceiling_alone() {
        for (fast, holds) in [(10.5, true), (11.0, false)] {
            let mut findings = Findings::default();
            let usage = Usage { own: 1.0, others: 0.0 };
            for (contestant, seconds) in
                [(Contestant::Ceiling, 10.0), (Contestant::Fast, fast), (Contestant::BuiltIn, 11.0)]
            {
                let took = Duration::from_secs_f64(seconds);
                findings.add(contestant, Turn { objects: 100, took, peak: None, left: 0, usage });
            }
            let judged: Vec<bool> = findings.judged().iter().map(|claim| claim.holds).collect();
            assert_eq!(judged, [holds], "{fast} s against 10 s");
            assert!(findings.tables().lines().all(|line| line.is_empty() || line.starts_with('|')));
        }
    }
}
