//! What is printed: tables, reports, progress bars and single values.

pub(crate) mod audit;
pub(crate) mod conversion;
pub(crate) mod migration;
pub(crate) mod pass;
pub(crate) mod plan;
pub(crate) mod progress;
pub(crate) mod report;
pub(crate) mod retire;
pub(crate) mod storage_state;
pub(crate) mod table;
pub(crate) mod text;
