//! Tests for conversions between the versions of a CRD. A dev-dependency.
//!
//! - [`Table`]: a name, an object and what it becomes, row by row.
//! - [`RoundTrips`]: objects that the CRD's schemas allow, to every other version and back.
//! - [`Fixtures`]: a folder of objects, each compared with a snapshot of it in every other version.
//! - [`VersionTest`]: your own test of one object in every version, from the lowest to the highest and back.
//!
//! Each works with everything that is [`Convertible`](restow_convert::Convertible): Rust code and rules. A check does not
//! end at the first failure: it returns [`Failures`], which lists all of them with what differs, so that a test ends with
//! `?` or `unwrap`.
//!
//! ```
//! use restow_convert::Unchanged;
//! use restow_convert_test::{RoundTrips, Row, Table};
//! use serde_json::json;
//! # fn definition() -> k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition {
//! #     let versions = ["v1beta1", "v1"].map(|name| json!({"name": name, "served": true, "storage": name == "v1",
//! #         "schema": {"openAPIV3Schema": {"type": "object", "properties":
//! #             {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}}}));
//! #     serde_json::from_value(json!({"metadata": {"name": "widgets.example.com"}, "spec": {
//! #         "group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
//! #         "versions": versions,
//! #     }})).unwrap()
//! # }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let definition = definition();
//! let converter = Unchanged::of(&definition)?;
//! let widget = |version: &str| json!({
//!     "apiVersion": format!("example.com/{version}"), "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 3},
//! });
//!
//! Table::new()
//!     .row(Row::converts("the size stays", widget("v1beta1"), widget("v1")))
//!     .row(Row::fails("a version that nobody knows", widget("v1"), "v7", "unknown version v7"))
//!     .check(&converter)?;
//!
//! RoundTrips::of(&definition).check(&converter)?;
//! # Ok(())
//! # }
//! ```

mod compare;
mod failures;
mod fixtures;
mod object;
mod round_trips;
mod schema;
mod server;
mod shrink;
mod table;
mod versions;

pub use failures::{Failure, Failures};
pub use fixtures::{Fixtures, UPDATE};
pub use round_trips::RoundTrips;
pub use server::OnServer;
pub use table::{Row, Table};
pub use versions::{Converted, Steps, StepsError, VersionTest, WithoutServer};
