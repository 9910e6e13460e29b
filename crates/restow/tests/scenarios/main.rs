//! Scenarios of restow on a real kube-apiserver and etcd, and on the embedded API server, one module for each topic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, clippy::disallowed_methods)]

/// Makes a test on each server from each scenario. Those after `; real:` need something that only kube-apiserver, etcd or
/// kube-controller-manager has.
macro_rules! scenarios {
    ($($both:ident),* $(,)? $(; real: $($real:ident),* $(,)?)?) => {
        mod real {
            scenarios!(@on real: $($both,)* $($($real,)*)?);
        }

        mod embedded {
            scenarios!(@on embedded: $($both,)*);
        }
    };
    (@on $server:ident: $($name:ident,)*) => {
        $(#[tokio::test]
        async fn $name() {
            if let Some(lab) = crate::support::Lab::$server(concat!(module_path!(), "::", stringify!($name))) {
                super::$name(lab).await;
            }
        })*
    };
}

mod expected;
mod fleet;
mod snapshot;
mod support;
mod terminal;
mod traffic;
mod webhook_pool;

mod account;
mod aggregated;
mod agreement;
mod apiserver;
mod audit;
mod beliefs;
mod changed_rules;
mod cli;
mod controller;
mod conversion;
mod converting;
mod demo;
mod denied;
mod following;
mod footprint;
mod forgotten;
mod gone;
mod guarded;
mod in_tree;
mod initializing;
mod install;
mod installed_webhook;
mod interruptions;
mod job;
mod keys;
mod kms;
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
mod retire;
mod retiring;
mod rewriting;
mod rolling;
mod rotating;
mod serving;
mod signals;
mod steering;
mod storm;
mod turns;
mod uninstall;
mod unreadable;
mod upgrade;
mod webhook;
mod write_faults;
