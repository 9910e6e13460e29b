//! How the objects of one resource are listed and rewritten, what each answer means, and what a finished run proves.

pub mod conversion;
pub mod estimate;
pub mod isolate;
pub mod managed_fields;
pub mod outcome;
pub mod pace;
pub mod page;
pub mod progress;
mod proof;
pub mod prune;
pub mod sequence;
pub mod token;
