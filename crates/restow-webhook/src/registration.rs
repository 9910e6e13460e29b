//! Registers a webhook in CRDs: the stanza `spec.conversion`, which makes API servers call it.
//!
//! [`stanza`] decides what to change and what somebody else manages, [`Gate`] is what must hold before, and [`Registrar`]
//! carries it out. [`RulesGates`] are the gates of converters from ConversionRules.

mod definitions;
mod endpoint;
mod error;
mod events;
mod gates;
mod ownership;
mod probe;
mod registrar;
mod removal;
mod rules_gates;
pub mod stanza;
mod survey;
mod unregister;
mod write;

pub use definitions::{Applied, apply_definitions};
pub use endpoint::{Endpoint, InvalidUrl};
pub use error::RegistrationError;
pub use gates::{Closed, ConverterGates, CrdState, Gate, TryOn};
pub use probe::{ProbeError, probe, review};
pub use registrar::{Registrar, RegistrationSettings};
pub use removal::{StillNeeded, may_unregister};
pub use rules_gates::RulesGates;
pub use survey::{Survey, SurveyError, survey};
pub use unregister::{Mode, unregister};
