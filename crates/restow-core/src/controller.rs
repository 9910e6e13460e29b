//! What the controllers do: when a migration is made, when it runs, what its object reports, and when it is replaced.

pub mod adoption;
pub mod condition;
pub mod conversion;
pub mod crd_manager;
pub mod delegation;
pub mod event_limiter;
pub mod evidence;
pub mod object_name;
pub mod predecessor;
pub mod retirement;
pub mod retry;
pub mod schedule;
pub mod steering;
pub mod supersession;
pub mod trigger;
pub mod troubleshooting;
pub mod unmatched;
pub mod verdict;
