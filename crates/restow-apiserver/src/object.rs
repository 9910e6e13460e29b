//! Objects as JSON values: metadata, patches, schemas, selectors and codecs.

pub(crate) mod meta;
pub(crate) mod patch;
pub(crate) mod path;
pub(crate) mod protobuf;
pub(crate) mod schema;
pub(crate) mod selector;
pub(crate) mod stored;
pub(crate) mod structure;
pub(crate) mod table;
pub(crate) mod uid;
