//! `restow retire`: takes a version out of a CRD, step by step.

mod ask;
pub(crate) mod flags;
mod look;
mod manifest;
mod retirement;
mod run;
mod steps;

pub(crate) use run::run;
