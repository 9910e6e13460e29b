//! Converts custom resources between the versions of their CRD, without losing anything.
//!
//! - [`Convertible`]: what every converter can do. It takes a raw object and the wanted version.
//! - [`SimpleConverter`] and [`Chain`]: the author writes two functions for each pair of neighbouring versions, and objects
//!   are converted along the chain. What a version cannot express is kept in an annotation and restored on the way back;
//!   the rules are those of [`kept`].
//! - [`rules`]: the same without code, from a document of rules.
//! - [`Unchanged`]: for CRDs whose versions all have the same schema.
//! - [`Pruning`]: what API servers do without a webhook, to know what that would lose.
//! - [`Validation`]: whether an object fits the schema of a version.
//! - [`try_on`] and [`Generator`]: whether objects survive the way to every other version and back, those that there are
//!   and those that a schema allows.
//! - [`review`]: answers what an API server asks of a conversion webhook, for the kinds of a [`Converters`] set.
//! - [`version_order`]: which of two versions is the newer one.
//!
//! ```
//! mod v1beta1 {
//!     # use kube_derive::CustomResource;
//!     # use schemars::JsonSchema;
//!     # use serde::{Deserialize, Serialize};
//!     #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
//!     #[kube(group = "example.com", version = "v1beta1", kind = "Backup")]
//!     # #[kube(crates(kube_core = "::kube_core"))]
//!     pub struct BackupSpec {
//!         pub schedule: String,
//!         pub timezone: Option<String>,
//!     }
//! }
//!
//! mod v1 {
//!     # use std::convert::Infallible;
//!     # use kube_derive::CustomResource;
//!     # use schemars::JsonSchema;
//!     # use serde::{Deserialize, Serialize};
//!     use restow_convert::SimpleConverter;
//!
//!     use super::v1beta1;
//!
//!     #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
//!     #[kube(group = "example.com", version = "v1", kind = "Backup")]
//!     # #[kube(crates(kube_core = "::kube_core"))]
//!     pub struct BackupSpec {
//!         pub cron: String,
//!     }
//!
//!     impl SimpleConverter for Backup {
//!         type Older = v1beta1::Backup;
//!         type Error = Infallible;
//!
//!         fn upgrade_from(older: v1beta1::Backup) -> Result<Self, Infallible> {
//!             Ok(Self { metadata: older.metadata, spec: BackupSpec { cron: older.spec.schedule } })
//!         }
//!
//!         fn downgrade(self) -> Result<v1beta1::Backup, Infallible> {
//!             let spec = v1beta1::BackupSpec { schedule: self.spec.cron, timezone: None };
//!             Ok(v1beta1::Backup { metadata: self.metadata, spec })
//!         }
//!     }
//! }
//!
//! use restow_convert::{Chain, Convertible};
//! use serde_json::json;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let chain = Chain::oldest::<v1beta1::Backup>().then::<v1::Backup>().build()?;
//! let old = json!({
//!     "apiVersion": "example.com/v1beta1",
//!     "kind": "Backup",
//!     "metadata": {"name": "nightly"},
//!     "spec": {"schedule": "0 3 * * *", "timezone": "Europe/Berlin"},
//! });
//! let new = chain.convert(old.clone(), "v1")?;
//! assert_eq!(new["spec"], json!({"cron": "0 3 * * *"}));
//! // v1 has no timezone. It is kept in an annotation, and restored.
//! assert_eq!(chain.convert(new, "v1beta1")?, old);
//! # Ok(())
//! # }
//! ```

mod chain;
mod converters;
mod convertible;
mod error;
mod generate;
mod hop;
pub mod kept;
mod metadata;
mod pruning;
pub mod review;
pub mod rules;
mod schema;
mod trial;
mod unchanged;
mod untouched;
mod validation;
mod version;

pub use chain::{Chain, ChainBuilder, ChainError, DEFAULT_LIMIT, SimpleConverter};
pub use converters::{Converter, Converters, TwoConverters};
pub use convertible::Convertible;
pub use error::{Error, causes};
pub use generate::Generator;
pub use kept::ANNOTATION;
pub use pruning::Pruning;
pub use trial::{Refusal, Trial, lost_fields, try_on};
pub use unchanged::{SchemasDiffer, Unchanged};
pub use validation::{Problem, Validation};
pub use version::version_order;
