//! Conformance scenarios: the same functions run on a real kube-apiserver and on the embedded server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// Makes a test of each scenario on each server. Those after `; real:` run only on the real one: they are the differences
/// that `docs/EMBEDDED.md` explains.
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
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
        async fn $name() {
            if let Some(subject) = crate::subject::Subject::$server().await {
                super::$name(&subject).await;
            }
        })*
    };
}

mod answer;
mod definition;
mod subject;
mod watching;

mod apply;
mod apply_conflicts;
mod apply_random;
mod apply_versions;
mod builtins;
mod client;
mod compacted;
mod continue_tokens;
mod create;
mod custom;
mod definitions;
mod delete;
mod discovery;
mod dry_run;
mod finalizers;
mod get;
mod kubectl;
mod kubectl_reading;
mod leases;
mod limits;
mod list;
mod managed_fields;
mod namespaces;
mod negotiation;
mod owners;
mod patch_json;
mod patch_merge;
mod patch_strategic;
mod rbac;
mod schemas;
mod selectors;
mod status;
mod update;
mod versions;
mod watch;
mod watch_definitions;
mod watch_initial;
