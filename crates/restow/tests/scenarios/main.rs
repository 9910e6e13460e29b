//! What restow must do, shown on a real kube-apiserver and etcd: one module for each topic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, clippy::disallowed_methods)]

mod fleet;
mod snapshot;
mod support;
mod terminal;
mod traffic;

mod account;
mod aggregated;
mod agreement;
mod apiserver;
mod cli;
mod controller;
mod demo;
mod denied;
mod faults;
mod footprint;
mod forgotten;
mod gone;
mod guarded;
mod in_tree;
mod initializing;
mod install;
mod keys;
mod lifecycle;
mod list_faults;
mod listing;
mod objects;
mod predecessor;
mod privacy;
mod proof;
mod registering;
mod rejected;
mod replaced;
mod replicas;
mod restless;
mod resuming;
mod retiring;
mod rewriting;
mod rolling;
mod steering;
mod storm;
mod turns;
mod uninstall;
mod unreadable;
mod webhook;
