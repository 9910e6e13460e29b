//! Objects as JSON values: metadata, patches, schemas, selectors and codecs.

pub mod managed_fields;
pub mod meta;
pub mod patch;
pub(crate) mod path;
pub mod protobuf;
pub mod schema;
pub mod selector;
pub mod stored;
pub mod structure;
pub mod table;
