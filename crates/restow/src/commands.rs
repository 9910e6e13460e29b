//! The commands, each with its flags beside its code.

pub(crate) mod apiserver;
pub(crate) mod audit;
pub(crate) mod cancel;
pub(crate) mod complete;
pub(crate) mod controller;
pub(crate) mod convert;
pub(crate) mod demo;
pub(crate) mod init;
pub(crate) mod install;
pub(crate) mod migrate;
pub(crate) mod plan;
pub(crate) mod retire;
pub(crate) mod status;
pub(crate) mod steer;
pub(crate) mod uninstall;
pub(crate) mod webhook;
