//! Flags and values that several commands share.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use restow_core::agreement::encryption::KeyRequirement;
use restow_core::rewrite::pace::{Bounds, Preset};
use restow_migrate::migration::{ListMode, MigrationSettings};
use restow_migrate::rewrite::WriteOptions;

/// The namespace that restow is installed in by default.
pub(crate) const DEFAULT_NAMESPACE: &str = "restow-system";

/// How to reach the cluster, as in kubectl.
#[derive(ClapArgs)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connection {
    /// The kubeconfig file
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The kubeconfig context to use
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// The kubeconfig cluster to use
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) cluster: Option<String>,
    /// The kubeconfig user to use
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// The address of the API server; overrides the kubeconfig
    #[arg(short, long, global = true, value_name = "URL")]
    pub(crate) server: Option<http::Uri>,
    /// Impersonate this user
    #[arg(long = "as", global = true, value_name = "USER")]
    pub(crate) as_user: Option<String>,
    /// Impersonate this group (may be repeated)
    #[arg(long, global = true, value_name = "GROUP", requires = "as_user")]
    pub(crate) as_group: Vec<String>,
    /// A bearer token; overrides the kubeconfig's credentials
    #[arg(long, global = true, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
    /// A file of CA certificates that verify the server's certificate; overrides the kubeconfig
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "insecure_skip_tls_verify")]
    pub(crate) certificate_authority: Option<PathBuf>,
    /// How long to wait for the answer to one request, up to 70s; 0 means no limit [default: 0]
    #[arg(long, global = true, value_name = "DURATION", value_parser = request_timeout)]
    pub(crate) request_timeout: Option<Duration>,
    /// Do not verify the server's certificate
    #[arg(long, global = true)]
    pub(crate) insecure_skip_tls_verify: bool,
    /// The address of one API server, which restow asks directly; name every API server (may be repeated)
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) api_server: Vec<http::Uri>,
    /// Assume there is exactly one API server
    #[arg(long, global = true, conflicts_with = "api_server")]
    pub(crate) assume_single_server: bool,
    /// For managed clusters with several API servers behind one address: sample that address for this long, up to 1h
    #[arg(long, global = true, value_name = "DURATION", value_parser = sampling,
          conflicts_with_all = ["api_server", "assume_single_server"])]
    pub(crate) sample_servers: Option<Duration>,
}

/// Flags that users of kubectl may try and that do not apply: a migration covers all namespaces.
#[derive(ClapArgs, Default)]
pub(crate) struct Scope {
    #[arg(short, long, hide = true, value_name = "NAME", value_parser = cluster_wide)]
    namespace: Option<String>,
    #[arg(short = 'A', long, hide = true, num_args = 0, default_missing_value = "all", value_parser = cluster_wide)]
    all_namespaces: Option<String>,
}

/// Refuses a namespace.
fn cluster_wide(_: &str) -> Result<String, String> {
    Err("migration is cluster-wide: an API server stores a resource in one version for all namespaces, so omit \
    this flag"
        .to_owned())
}

/// The pace and its bounds.
#[derive(ClapArgs, Clone)]
#[command(next_help_heading = "Pace")]
pub(crate) struct Pace {
    /// gentle: 8 writes per second, hardly noticeable; steady: the cluster's own traffic comes first; fast: as fast
    /// as the API servers allow
    #[arg(long, value_enum, default_value_t = PaceName::Steady, value_name = "PACE")]
    pub(crate) pace: PaceName,
    /// The most writes in flight
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) max_in_flight: Option<u32>,
    /// The most writes per second
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) qps: Option<f64>,
    /// The most bytes per second, such as 500K or 10M
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) bandwidth: Option<f64>,
    /// Objects per page; after a crash, at most one page is sent again [default: 500 if fast, else 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10000))]
    page_size: Option<u32>,
    /// How to list objects: in chunks; as a stream, which needs permission to watch; or auto, which streams from
    /// 10,000 objects on
    #[arg(long, value_enum, default_value_t = List::Auto, value_name = "HOW")]
    pub(crate) list: List,
}

impl Pace {
    /// The bounds that these flags set.
    pub(crate) fn bounds(&self) -> Bounds {
        let bounds = self.preset().bounds();
        Bounds {
            max_in_flight: self.max_in_flight.unwrap_or(bounds.max_in_flight),
            qps: self.qps.or(bounds.qps),
            bandwidth: self.bandwidth.or(bounds.bandwidth),
            ..bounds
        }
    }

    /// How many objects a page has.
    pub(crate) fn page_size(&self) -> u32 {
        self.page_size.unwrap_or_else(|| self.preset().page_size())
    }

    /// The settings of a migration at this pace: verified, and every write stored.
    pub(crate) fn settings(&self) -> MigrationSettings {
        MigrationSettings {
            page_size: self.page_size(),
            list: match self.list {
                List::Chunked => ListMode::Chunked,
                List::Streaming => ListMode::Streaming,
                List::Auto => ListMode::Auto,
            },
            verify: true,
            write_options: WriteOptions::default(),
            encrypted: KeyRequirement::default(),
        }
    }

    pub(crate) fn preset(&self) -> Preset {
        match self.pace {
            PaceName::Gentle => Preset::Gentle,
            PaceName::Steady => Preset::Steady,
            PaceName::Fast => Preset::Fast,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PaceName {
    Gentle,
    Steady,
    Fast,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum List {
    Chunked,
    Streaming,
    Auto,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Table,
    Wide,
    Json,
    Yaml,
    Name,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportOutput {
    Table,
    Json,
    Yaml,
}

/// Parses `90s`, `5m` or `1h30m`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let parsed: jiff::SignedDuration =
        text.parse().map_err(|_| "give a number and a unit, such as 90s, 5m or 1h30m".to_owned())?;
    Duration::try_from(parsed).map_err(|_| "a duration cannot be negative".to_owned())
}

/// Parses a duration above zero.
pub(crate) fn period(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("give a time above zero".to_owned()),
        period => Ok(period),
    }
}

/// A duration as text that [`duration`] parses to the same value.
pub(crate) fn typed_duration(duration: Duration) -> String {
    let fraction = format!("{:09}", duration.subsec_nanos());
    match fraction.trim_end_matches('0') {
        "" => format!("{}s", duration.as_secs()),
        fraction => format!("{}.{fraction}s", duration.as_secs()),
    }
}

/// Parses the timeout of a request, as in kubectl: a bare number is in seconds, and zero means no limit.
fn request_timeout(text: &str) -> Result<Duration, String> {
    match text.parse().map(Duration::from_secs).or_else(|_| duration(text))? {
        timeout if timeout <= Duration::from_secs(70) => Ok(timeout),
        _ => Err("API servers end a request after a minute: give 70s at most, or 0 for no limit".to_owned()),
    }
}

/// Parses how long an address is sampled: long enough to reach a server, and no longer than an observation may take.
fn sampling(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        period if period < Duration::from_secs(1) || period > Duration::from_secs(3600) => {
            Err("give a time between 1s and 1h".to_owned())
        }
        period => Ok(period),
    }
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if number > 0.0 && f64::is_finite(number) => Ok(number),
        _ => Err("give a number above zero".to_owned()),
    }
}

fn bytes(text: &str) -> Result<f64, String> {
    let upper = text.trim().trim_end_matches("/s").to_uppercase();
    let (number, factor) = [("K", 1e3), ("M", 1e6), ("G", 1e9), ("KI", 1024.0), ("MI", 1024.0 * 1024.0)]
        .into_iter()
        .find_map(|(unit, factor)| {
            let bare = upper.strip_suffix('B').unwrap_or(&upper);
            bare.strip_suffix(unit).map(|number| (number.trim().to_owned(), factor))
        })
        .unwrap_or_else(|| (upper.trim_end_matches('B').to_owned(), 1.0));
    match number.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number * factor),
        _ => Err("give a number of bytes above zero, such as 500K, 10M or 1048576".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_are_read_or_refused() {
        for (text, expected) in [
            ("500K", Some(5e5)),
            ("10M", Some(1e7)),
            ("10MB/s", Some(1e7)),
            ("1Mi", Some(1_048_576.0)),
            ("1048576", Some(1_048_576.0)),
            ("0", None),
            ("-1K", None),
            ("fast", None),
            ("", None),
        ] {
            assert_eq!(bytes(text).ok(), expected, "{text}");
        }
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
        for text in ["0s", "500ms", "1s", "90s", "1h30m", "1s250ms", "7ns"] {
            let read = duration(text).unwrap();
            assert_eq!(duration(&typed_duration(read)), Ok(read), "{text}: {}", typed_duration(read));
        }
        assert_eq!(typed_duration(Duration::from_millis(1250)), "1.25s");
        assert!(period("0s").is_err() && period("0ms").is_err());
        assert_eq!(period("500ms"), Ok(Duration::from_millis(500)));
        assert!(duration("90").is_err() && duration("-5s").is_err() && duration("soon").is_err());
        for (text, expected) in
            [("60s", Some(60)), ("1h", Some(3600)), ("61m", None), ("0s", None), ("x", None)]
        {
            assert_eq!(sampling(text).ok(), expected.map(Duration::from_secs), "{text}");
        }
        for (text, expected) in [
            ("30", Some(30)),
            ("1m", Some(60)),
            ("2m", None),
            ("0", Some(0)),
            ("0s", Some(0)),
            ("soon", None),
        ] {
            assert_eq!(request_timeout(text).ok(), expected.map(Duration::from_secs), "{text}");
        }
        assert!(positive("0").is_err() && positive("nan").is_err() && positive("2.5").is_ok());
    }
}
