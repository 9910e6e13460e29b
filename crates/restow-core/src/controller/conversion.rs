//! What to do next about a Conversion, decided from its CustomResourceDefinition and the migrations of its resource.
//!
//! The steps: check → set the storage version → check what was written meanwhile → rewrite and verify → prune → stop serving the old version → done. Each is
//! decided from what there is now, so it does not matter where an earlier process was killed.

mod definition;
mod next;
mod refusal;
mod status;
mod turn;

pub use definition::{
    DefinedVersion, Definition, InPlace, Strategy, patch_converted, patch_served, patch_storage,
    patch_storage_in_place,
};
pub use next::{Candidate, IN_PLACE, Observation, Step, next};
pub use refusal::Refusal;
pub use status::{
    Pass, Work, begin_again, end, mirror, name_refused, rechecked_summary, record, report, summary,
};
pub use turn::{Waiting, turn};

use crate::controller::object_name;

/// The name of the migration that a Conversion creates. It is the same for the same state of the CustomResourceDefinition and the
/// same retry, so that a repeated request creates no second one.
pub fn migration_name(conversion: &str, uid: &str, definition: &str, retry: Option<&str>) -> String {
    let occasion = match retry {
        Some(retry) => format!("{uid} {definition} {retry}"),
        None => format!("{uid} {definition}"),
    };
    object_name::unique(conversion, &occasion)
}
