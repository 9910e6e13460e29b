//! What a cluster stores: names of resources, their storage versions, and which of them can and need to be migrated.

pub mod hash;
pub mod inventory;
pub mod name;
pub mod near;
