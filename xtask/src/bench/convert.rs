//! `cargo xtask bench-convert`: compares conversion webhooks by rules, by Rust code and in Go with controller-runtime, in one
//! run.

mod backups;
mod driver;
mod in_process;
mod webhooks;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use restow_lab::{Assets, assets};

use self::driver::{Done, Load};
use self::webhooks::{By, Stage};
use super::report::{cells, median, mib, table};
use super::{build, machine};

/// The objects of the large review.
const LARGE: usize = 1_500;

/// What to measure.
#[derive(Args)]
pub(crate) struct BenchConvert {
    /// How often to repeat everything, with the webhooks in turns; medians count.
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// Large reviews to send in each round.
    #[arg(long, value_name = "N", default_value_t = 20)]
    large: usize,
    /// Small reviews to send in each round.
    #[arg(long, value_name = "N", default_value_t = 4_000)]
    small: usize,
    /// Measure only the conversion itself, without servers.
    #[arg(long)]
    in_process: bool,
    /// Serve the conversion by Rust code at this address; the benchmark starts itself so.
    #[arg(long, hide = true, requires = "certificate")]
    serve: Option<SocketAddr>,
    #[arg(long, hide = true)]
    certificate: Option<PathBuf>,
}

/// Builds what is measured, runs it and prints the tables.
pub(crate) async fn run(bench: BenchConvert) -> Result<()> {
    if let (Some(address), Some(certificate)) = (bench.serve, &bench.certificate) {
        return webhooks::serve(address, certificate).await;
    }
    let programs = build()?;
    if bench.in_process {
        println!("{}", in_process::measure(LARGE)?);
        return Ok(());
    }
    let stage = Stage::new(programs.join("restow"), assets::conversion_webhook()?)?;
    let machine = machine::describe(&Assets::find()?).await?;
    eprintln!("{machine}");
    let loads = [("1 object", load(1, bench.small, 8)), ("1,500 objects", load(LARGE, bench.large, 2))];
    let mut done: BTreeMap<(usize, By), Vec<Done>> = BTreeMap::new();
    for round in 0..bench.rounds {
        for (number, (_, load)) in loads.iter().enumerate() {
            // Each round starts with another one, so that the order favours nobody.
            for by in By::ALL.into_iter().cycle().skip(round).take(By::ALL.len()) {
                let webhook = stage.start(by).await?;
                let result = driver::drive(&webhook, load.clone()).await?;
                webhook.stop().await?;
                eprintln!(
                    "round {}: {}, {} objects: {:.1} reviews/s, {:.1} ms alone, {}",
                    round + 1,
                    by.title(),
                    load.objects,
                    result.rate,
                    1000.0 * result.alone,
                    mib(result.memory)
                );
                done.entry((number, by)).or_default().push(result);
            }
        }
    }
    println!("{machine}\n\nwithout a server, {LARGE} objects of 10 KiB:\n\n{}", in_process::measure(LARGE)?);
    for (number, (title, load)) in loads.iter().enumerate() {
        let of = |by: By| done.get(&(number, by)).map(|done| medians(done)).context("it was measured");
        println!("reviews of {title} of 10 KiB, {} at once:\n", load.at_once);
        println!("{}", comparison(load, &[of(By::Go)?, of(By::Rules)?, of(By::RustCode)?]));
    }
    Ok(())
}

fn load(objects: usize, reviews: usize, at_once: usize) -> Load {
    Load { review: backups::review(objects).into(), objects, reviews, at_once }
}

fn medians(done: &[Done]) -> Done {
    let of = |number: fn(&Done) -> f64| median(done.iter().map(number));
    let server: Vec<_> = done.iter().filter_map(|done| done.server).collect();
    Done {
        rate: of(|done| done.rate),
        alone: of(|done| done.alone),
        processor: of(|done| done.processor),
        // The largest of all rounds.
        memory: done.iter().map(|done| done.memory).max().unwrap_or_default(),
        server: (!server.is_empty()).then(|| median(server.into_iter())),
    }
}

/// The webhooks beside each other; the first one is what the others are compared with.
fn comparison(load: &Load, done: &[Done; 3]) -> String {
    let titles = [By::Go, By::Rules, By::RustCode].map(By::title);
    let mut rows = vec![cells([
        "webhook",
        "reviews/s",
        "objects/s",
        "times Go's",
        "alone, at the client",
        "in the server",
        "processor time for each",
        "peak memory",
        "of Go's",
    ])];
    let milliseconds = |seconds: f64| format!("{:.2} ms", 1000.0 * seconds);
    for (title, it) in titles.iter().zip(done) {
        rows.push(vec![
            (*title).to_owned(),
            format!("{:.1}", it.rate),
            format!("{:.0}", it.rate * load.objects as f64),
            format!("{:.2}", it.rate / done[0].rate),
            milliseconds(it.alone),
            it.server.map_or_else(|| "-".to_owned(), milliseconds),
            milliseconds(it.processor),
            mib(it.memory),
            format!("{:.2}", it.memory as f64 / done[0].memory.max(1) as f64),
        ]);
    }
    table(&rows)
}
