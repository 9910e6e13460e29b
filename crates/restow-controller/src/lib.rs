//! The controllers: they make migrations when storage versions or encryption keys change, and run them.
//!
//! Each is a thin loop around decisions of `restow-core` and the engine of `restow-migrate`. In the order of a
//! migration's life:
//!
//! | module | what it does |
//! |---|---|
//! | [`run`] | starts all controllers of a process, and stops them when it no longer leads |
//! | [`settings`] | which controllers run, and how |
//! | `watches` | wakes the trigger when a definition, a StorageVersion or an API server changes |
//! | `trigger` | keeps a StorageState for each resource, and makes a migration when its version or key changes |
//! | `migrator` | schedules migrations: at most so many in flight, never two of one resource |
//! | `attempt` | runs one migration from its object to its end |
//! | `record` | keeps its progress in the object, on condition of what was last read of it |
//! | `verdict` | what the end of an attempt means: a condition, and when to try again |
//! | `pruner` | prunes `storedVersions` after a verified migration |
//! | `conversion` | carries out Conversions: check, storage version, a migration, prune, stop serving |
//! | `in_tree` | `storagemigration.k8s.io`, the built-in API: serve its objects, or delegate to its controller |
//! | [`observe`] | Events, metrics, `/healthz` and `/readyz` |
//! | `context`, `ownership`, `requests` | what the controllers share: the cluster, labels, requests |

mod attempt;
mod context;
mod conversion;
mod in_tree;
mod migrator;
pub mod observe;
mod ownership;
mod pruner;
mod record;
mod requests;
pub mod run;
pub mod settings;
mod trigger;
mod verdict;
mod watches;
