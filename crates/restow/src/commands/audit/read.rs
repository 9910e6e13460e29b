//! Reads a source into a report, with a progress bar on a terminal.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use restow_audit::{Expectations, Meter, Report, Source, SourceError, Stale, Tally};
use tokio::task;

use crate::error::{CliError, chain};

/// How often the bar moves.
const DRAW_EVERY: Duration = Duration::from_millis(100);

/// Reads everything, and counts it.
pub(super) async fn read(
    source: Box<dyn Source>,
    prefix: &str,
    expected: Expectations,
    max_names: usize,
    stale_names: Option<&Path>,
) -> Result<Report, CliError> {
    let names = stale_names.map(Names::create).transpose()?;
    let tally = Tally::new(prefix, expected).max_names(max_names);
    let meter = Arc::new(Meter::default());
    let reading = {
        let meter = Arc::clone(&meter);
        task::spawn_blocking(move || read_all(source.as_ref(), tally, names, &meter))
    };
    let bar = std::io::stderr().is_terminal().then(bar);
    let drawing = async {
        loop {
            if let Some(bar) = &bar {
                let (done, total) = meter.read();
                bar.set_length(total.max(done));
                bar.set_position(done);
            }
            tokio::time::sleep(DRAW_EVERY).await;
        }
    };
    let read = tokio::select! {
        read = reading => read,
        () = drawing => return Err(CliError::failed("the progress bar ended")),
    };
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    read.map_err(|_| CliError::failed("the audit ended unexpectedly"))?
}

fn read_all(
    source: &dyn Source,
    tally: Tally<'static>,
    names: Option<Names>,
    meter: &Meter,
) -> Result<Report, CliError> {
    let Some(names) = names else {
        let mut tally = tally;
        let revision = source.read(meter, &mut |key, value| tally.add(key, value)).map_err(failed)?;
        return Ok(tally.report(source.name(), revision));
    };
    let (path, mut error) = (names.path.clone(), None);
    let mut file = names.file;
    let mut tally = tally.each_stale(|Stale { resource, name }| {
        if error.is_none() {
            error = writeln!(file, "{resource} {name}").err();
        }
    });
    let read = source.read(meter, &mut |key, value| tally.add(key, value)).map_err(failed);
    let report = read.map(|revision| tally.report(source.name(), revision));
    let written = error.map_or_else(|| file.flush(), Err);
    let report =
        report.and_then(|report| written.map(|()| report).map_err(|error| unwritable(&path, &error)));
    if report.is_err() {
        // A part of the names would pass for all of them.
        fs::remove_file(&path).ok();
    }
    report
}

/// The file for the names of all stale objects.
struct Names {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Names {
    /// Creates the file, readable for its owner only.
    fn create(path: &Path) -> Result<Self, CliError> {
        let opened = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
        let file = opened.map_err(|error| unwritable(path, &error))?;
        Ok(Self { path: path.to_owned(), file: BufWriter::new(file) })
    }
}

fn unwritable(path: &Path, error: &io::Error) -> CliError {
    CliError::failed(format!("cannot write {}: {error}", path.display()))
}

fn failed(error: SourceError) -> CliError {
    let hint = match &error {
        SourceError::InUse { .. } => {
            Some("audit the running etcd with --etcd, or take a snapshot: etcdctl snapshot save FILE")
        }
        SourceError::File { .. } => {
            Some("nothing was counted; take a new snapshot, or audit the running etcd with --etcd")
        }
        SourceError::Store(restow_store::file::OpenError::InUse { .. }) => {
            Some("stop the server, or audit a copy of its data directory")
        }
        SourceError::Etcd { source: restow_store::StoreError::Compacted { .. }, .. } => {
            Some("etcd was compacted while it was read; audit a snapshot instead: etcdctl snapshot save FILE")
        }
        SourceError::Etcd { .. } => {
            Some("check its addresses and certificates: etcdctl endpoint status asks the same")
        }
        _ => None,
    };
    let error = CliError::failed(chain(&error));
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template("reading {bar:30} {percent}%  {elapsed}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
