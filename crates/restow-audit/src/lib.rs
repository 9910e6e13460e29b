//! What a cluster has really stored: read from the bytes, without its API servers.
//!
//! A [`Source`] visits every live key: a running etcd, a file of one, or the file of restow's own API server. A [`Tally`]
//! decides what each value is, counts it and compares it with what is expected. The [`Report`] has the counts.
//!
//! Values are decoded just far enough to see their version and their encryption key. They are never kept, and nothing of
//! them gets into a report.
//!
//! ```
//! use restow_audit::{Expectations, Tally};
//!
//! let mut expected = Expectations::default();
//! expected.expect_version("example.com/v2").unwrap();
//! let mut tally = Tally::new("/registry", expected);
//! let value = br#"{"apiVersion":"example.com/v1","kind":"Widget"}"#;
//! tally.add(b"/registry/example.com/widgets/default/a", value);
//! let report = tally.report("a test", 7);
//! assert_eq!(report.resources[0].stale, Some(1));
//! assert_eq!(report.resources[0].stale_names, ["default/a"]);
//! ```

pub mod bolt;
mod expectation;
mod identity;
mod meter;
mod place;
mod report;
pub mod snapshot;
mod source;
mod tally;
pub mod value;
mod wire;

pub use expectation::{ExpectationError, Expectations, Served};
pub use meter::Meter;
pub use place::{Object, Place, place, resource_name};
pub use report::{Finding, Gap, Report, ResourceReport, Undecodable, Unserved};
pub use source::{DataDir, EtcdFile, LiveEtcd, Source, SourceError};
pub use tally::{Stale, Tally};
