//! Watches ConversionRules and CRDs. What is wrong with a watch is logged once, not at every try.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::future::join_all;
use futures::{Stream, StreamExt as _};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::{self as reflected, Store, store::Writer};
use kube::runtime::watcher::{Config, Error, Event, Result};
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use kube::{Api, Client};
use restow_lease::request::in_words;
use tokio::sync::Notify;

/// The timeout of a watch in seconds: shorter than the time after which the client gives up a silent connection.
const WATCH_TIMEOUT: u32 = 55;
/// The name of what rules are kept in.
pub(super) const RULES: &str = "ConversionRules";

/// The metadata of a CRD.
pub(super) type CrdMetadata = PartialObjectMeta<CustomResourceDefinition>;

/// Wakes who uses what is watched, and keeps what is wrong with each watch.
#[derive(Debug, Default)]
pub(super) struct Watching {
    pub(super) changed: Notify,
    problems: Mutex<BTreeMap<String, String>>,
}

impl Watching {
    /// What is wrong with one of the watches.
    pub(super) fn problem(&self) -> Option<String> {
        self.lock().values().next().cloned()
    }

    fn failed(&self, what: &str, error: &Error) {
        let problem = problem(what, error);
        let former = self.lock().insert(what.to_owned(), problem.clone());
        if former.as_ref() != Some(&problem) {
            tracing::warn!("{problem}; trying again");
        }
    }

    fn succeeded(&self, what: &str) {
        if self.lock().remove(what).is_some() {
            tracing::info!("{what} can be read again");
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a store up to date, and tells of every change.
    pub(super) async fn follow<K>(
        &self,
        what: String,
        writer: Writer<K>,
        events: impl Stream<Item = Result<Event<K>>>,
    ) where
        K: reflected::Lookup + Clone + Debug + 'static,
        K::DynamicType: Eq + Hash + Clone,
    {
        let events = reflector(writer, events.default_backoff());
        events
            .for_each(|event| {
                match event {
                    // A list has begun, and may fail.
                    Ok(Event::Init | Event::InitApply(_)) => {}
                    Ok(_) => {
                        self.succeeded(&what);
                        self.changed.notify_one();
                    }
                    Err(error) => self.failed(&what, &error),
                }
                std::future::ready(())
            })
            .await;
    }

    /// Watches the metadata of some CRDs, or of all. A role can grant the watch of one object, but of no selection.
    pub(super) fn definitions<'a>(
        &'a self,
        client: &Client,
        named: Option<&[String]>,
    ) -> (Vec<Store<CrdMetadata>>, impl Future<Output = ()> + use<'a>) {
        let api: Api<CrdMetadata> = Api::all(client.clone());
        let selections = match named {
            None => vec![("CRDs".to_owned(), config())],
            Some(names) => names
                .iter()
                .map(|name| (format!("the CRD {name}"), config().fields(&format!("metadata.name={name}"))))
                .collect(),
        };
        let watch = |(what, config)| {
            let writer = Writer::<CrdMetadata>::new(());
            (writer.as_reader(), self.follow(what, writer, watcher(api.clone(), config)))
        };
        let (stores, watches): (Vec<_>, Vec<_>) = selections.into_iter().map(watch).unzip();
        (stores, async move { drop(join_all(watches).await) })
    }
}

/// The settings of every watch.
pub(super) fn config() -> Config {
    Config::default().timeout(WATCH_TIMEOUT)
}

/// What is wrong with a watch, and what to do.
fn problem(what: &str, error: &Error) -> String {
    let failed = match error {
        Error::InitialListFailed(error) | Error::WatchStartFailed(error) | Error::WatchFailed(error) => error,
        Error::WatchError(status) => return format!("the watch of {what} has ended: {}", status.message),
        other => return format!("the watch of {what} has failed: {other}"),
    };
    match failed {
        kube::Error::Api(status) if status.code == 404 && what == RULES => {
            "the CRD conversionrules.restow.dev is not installed, so there are no rules to serve; to install it, run: \
            restow install --crds --apply"
                .to_owned()
        }
        kube::Error::Api(status) if status.code == 403 => {
            format!("no permission to list and watch {what}: {}", status.message)
        }
        failed => format!("could not read {what}: {}", in_words(failed)),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn refused(code: u16, message: &str) -> Error {
        let status = Status { code, message: message.to_owned(), ..Status::default() };
        Error::InitialListFailed(kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn a_failed_watch_is_told_in_plain_words_with_what_to_do() {
        for (what, error, expected) in [
            (RULES, refused(404, "404 page not found"), "restow install --crds --apply"),
            (
                RULES,
                refused(403, "forbidden: no"),
                "no permission to list and watch ConversionRules: forbidden: no",
            ),
            ("the CRD a.b", refused(500, "etcd is away"), "could not read the CRD a.b: etcd is away"),
        ] {
            let text = problem(what, &error);
            assert!(text.contains(expected), "{text}");
            assert!(!text.contains("Status {") && !text.contains("Some("), "{text}");
        }
    }

    #[test]
    fn a_problem_is_kept_until_the_watch_works() {
        let watching = Watching::default();
        watching.failed("CRDs", &refused(403, "no"));
        watching.failed("CRDs", &refused(403, "no"));
        assert_eq!(watching.problem().unwrap(), "no permission to list and watch CRDs: no");
        watching.succeeded(RULES);
        assert!(watching.problem().is_some());
        watching.succeeded("CRDs");
        assert_eq!(watching.problem(), None);
    }
}
