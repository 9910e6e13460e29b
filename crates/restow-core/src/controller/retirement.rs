//! What `restow retire` does next. Everything is derived from the cluster, so an interrupted retirement continues when
//! the command runs again.

mod change;
mod policy;
mod requests;
mod schema;
mod step;
mod survival;

pub use change::{changed, edits};
pub use policy::{Stability, is_version_name, stability};
pub use requests::{RequestCounts, Requests, requests_between};
pub use schema::lost_fields;
pub use step::{Accepted, Observed, Refusal, Step, next_step, plan, successor};
pub use survival::{Survival, rewritten_from};
