//! What to do next about a Conversion, decided from its CustomResourceDefinition and the migrations of its resource.
//!
//! The steps: check → set the storage version → rewrite and verify → prune → stop serving the old version → done. Each is
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
pub use status::{Work, end, mirror, name_refused, record, report, summary};
pub use turn::{Waiting, turn};

use crate::controller::object_name;

/// The name of the migration that a Conversion creates. It is the same for the same state of the CustomResourceDefinition,
/// so that a repeated request creates no second one.
pub fn migration_name(conversion: &str, uid: &str, definition: &str) -> String {
    object_name::unique(conversion, &format!("{uid} {definition}"))
}
