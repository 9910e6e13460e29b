//! The built-in API `storagemigration.k8s.io` and its controller, used only when the settings ask for it.
//!
//! `api` finds the API, `delegate` hands a first pass to the built-in controller, `undelegate` takes it back, and
//! `adopter` serves the API's objects.

pub(crate) mod adopter;
pub(crate) mod api;
pub(crate) mod delegate;
pub(crate) mod undelegate;
