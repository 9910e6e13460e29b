//! The cluster: its resources, its API servers, and whether they agree on how a resource is stored.

mod agreement;
pub(crate) mod changes;
pub(crate) mod discovery;
mod handle;
mod keys;
mod membership;
mod metrics;
mod peers;
mod registered;
mod requests;
mod samples;
mod sampling;
mod survey;

pub use handle::{AgreementError, Cluster, Inventory, Trust};
pub use keys::is_refused;
pub use survey::Survey;
