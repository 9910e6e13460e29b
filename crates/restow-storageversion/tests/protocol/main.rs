//! The StorageVersion protocol between test servers, on a real kube-apiserver.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod collecting;
mod custom;
mod gating;
mod meddler;
mod registering;
mod support;
