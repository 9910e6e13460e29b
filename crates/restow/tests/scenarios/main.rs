//! What restow must do, shown on a real kube-apiserver and etcd: one module for each topic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod support;

mod agreement;
mod privacy;
mod rejected;
mod retiring;
mod rewriting;
mod unreadable;
