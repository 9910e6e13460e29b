//! Tries a converter on all live objects of a CRD, page by page.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use http::Request;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use kube::api::ListParams;
use restow_lease::request::{ObjectError, ask};
use serde_json::Value;

use super::gates::{Closed, ConverterGates, Gate, TryOn};

/// How many objects a page has. At most one page is in memory.
const PAGE: u32 = 100;
/// How often the list begins again because a continue token expired.
const RESTARTS: u32 = 5;
/// How long a page may take. A review of as many objects must be answered within 30 seconds.
const LONGEST_TRIAL: Duration = Duration::from_secs(30);

/// Why the live objects could not be tried.
#[derive(Debug, thiserror::Error)]
pub enum SurveyError {
    /// The objects could not be listed.
    #[error("could not list the objects")]
    List(#[from] ObjectError),
    /// The answer is no list.
    #[error("the answer to a list request is not a list")]
    NotAList,
    /// Objects would not survive.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// Continue tokens kept expiring.
    #[error("the list expired again and again before it was complete")]
    Expired,
    /// No version of the CRD is served.
    #[error("the CRD serves no version")]
    NotServed,
}

/// What was tried.
#[derive(Debug, Default)]
pub struct Survey {
    /// How many objects.
    pub objects: usize,
    /// One of them, for a probe.
    pub sample: Option<Value>,
}

/// Tries a converter on all live objects, as every version shows them that they may be stored in.
///
/// # Errors
/// When an object would not survive, or not all objects could be listed.
pub async fn survey(
    client: &kube::Client,
    crd: &CustomResourceDefinition,
    gates: &impl ConverterGates,
) -> Result<Survey, SurveyError> {
    let versions = listed_versions(crd);
    if versions.is_empty() {
        return Err(SurveyError::NotServed);
    }
    let mut done = Survey::default();
    for version in versions {
        let path = format!("/apis/{}/{version}/{}", crd.spec.group, crd.spec.names.plural);
        let seen = walk_again(client, crd, gates, &path).await?;
        done.objects = done.objects.max(seen.objects);
        done.sample = done.sample.or(seen.sample);
    }
    Ok(done)
}

/// The versions to list objects in, the storage version first. Where a webhook converts, every served version shows the
/// objects as its clients may write them back. Without one, a version that no object is stored in shows objects that it
/// does not fit, so only those count that objects may be stored in; an API server does not say in which of them each is.
fn listed_versions(crd: &CustomResourceDefinition) -> Vec<&str> {
    let converted = crd.spec.conversion.as_ref().is_some_and(|conversion| conversion.strategy == "Webhook");
    let stored = crd.status.as_ref().and_then(|status| status.stored_versions.as_deref()).unwrap_or_default();
    let served = || crd.spec.versions.iter().filter(|version| version.served);
    let counts = |version: &&CustomResourceDefinitionVersion| {
        version.storage || converted || stored.contains(&version.name)
    };
    let mut listed: Vec<_> = served().filter(counts).collect();
    if listed.is_empty() {
        listed.extend(served().next());
    }
    listed.sort_by_key(|version| !version.storage);
    listed.into_iter().map(|version| version.name.as_str()).collect()
}

/// Lists again from the start if a continue token has expired.
async fn walk_again(
    client: &kube::Client,
    crd: &CustomResourceDefinition,
    gates: &impl ConverterGates,
    path: &str,
) -> Result<Survey, SurveyError> {
    for _ in 0..RESTARTS {
        match walk(client, crd, gates, path).await {
            Err(SurveyError::List(ObjectError::Other(kube::Error::Api(status)))) if status.code == 410 => {}
            done => return done,
        }
    }
    Err(SurveyError::Expired)
}

async fn walk(
    client: &kube::Client,
    crd: &CustomResourceDefinition,
    gates: &impl ConverterGates,
    path: &str,
) -> Result<Survey, SurveyError> {
    let mut done = Survey::default();
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let mut page = list(client, path, &params).await?;
        let Value::Array(items) = page["items"].take() else { return Err(SurveyError::NotAList) };
        done.objects += items.len();
        done.sample = done.sample.or_else(|| items.first().cloned());
        let named = items.into_iter().map(|object| (name(&object), object)).collect();
        try_on(gates, crd, named, LONGEST_TRIAL).await?;
        match page["metadata"]["continue"].as_str() {
            Some(token) if !token.is_empty() => params.continue_token = Some(token.to_owned()),
            _ => return Ok(done),
        }
    }
}

/// A converter that panics or does not return closes the gate, and ends nothing else.
async fn try_on(
    gates: &impl ConverterGates,
    crd: &CustomResourceDefinition,
    objects: Vec<(String, Value)>,
    longest: Duration,
) -> Result<(), Closed> {
    let names: Vec<_> =
        [objects.first(), objects.last()].into_iter().flatten().map(|(name, _)| name.clone()).collect();
    let panicked = || {
        let names = names.join(" to ");
        Err(format!("the converter panicked on one of the objects from {names}; the log has the message"))
    };
    let tried = match gates.trial(crd) {
        Some(trial) => match tokio::time::timeout(longest, on_a_thread(trial, objects)).await {
            Ok(tried) => tried.unwrap_or_else(panicked),
            Err(_) => Err(format!(
                "the converter did not return within {} s for one of the objects from {}",
                longest.as_secs(),
                names.join(" to ")
            )),
        },
        None => {
            // Conversions take time: other tasks on this thread must go on.
            tokio::task::yield_now().await;
            catch_unwind(AssertUnwindSafe(|| gates.try_on(crd, objects))).unwrap_or_else(|_| panicked())
        }
    };
    tried.map_err(|message| Closed::new(Gate::Objects, message))
}

/// Tries objects on a thread of its own, which is left alone if it does not return: the end of a runtime would wait for
/// one of tokio's. None if the converter panicked.
async fn on_a_thread(trial: TryOn, objects: Vec<(String, Value)>) -> Option<Result<(), String>> {
    let (sender, result) = tokio::sync::oneshot::channel();
    let work = move || {
        // Without a result, the receiver learns that the work panicked.
        if let Ok(tried) = catch_unwind(AssertUnwindSafe(|| trial(objects))) {
            let _ = sender.send(tried);
        }
    };
    match std::thread::Builder::new().name("try".to_owned()).spawn(work) {
        Ok(_) => result.await.ok(),
        Err(error) => Some(Err(format!("could not start a thread to try the conversion: {error}"))),
    }
}

async fn list(client: &kube::Client, path: &str, params: &ListParams) -> Result<Value, ObjectError> {
    let request: Request<Vec<u8>> = kube::core::Request::new(path)
        .list(params)
        .map_err(|error| ObjectError::Other(kube::Error::BuildRequest(error)))?;
    ask(client.request(request)).await
}

fn name(object: &Value) -> String {
    let field = |name: &str| object["metadata"][name].as_str();
    let name = field("name").unwrap_or("an object without a name");
    field("namespace").map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    /// Panics or hangs, on the caller's thread or on another one.
    struct Bad {
        hangs: bool,
        elsewhere: bool,
    }

    impl ConverterGates for Bad {
        fn crds(&self) -> Vec<String> {
            Vec::new()
        }

        async fn is_served(&self, _: &CustomResourceDefinition) -> Result<(), String> {
            Ok(())
        }

        fn try_on(&self, _: &CustomResourceDefinition, _: Vec<(String, Value)>) -> Result<(), String> {
            panic!("as asked")
        }

        fn trial(&self, _: &CustomResourceDefinition) -> Option<TryOn> {
            let hangs = self.hangs;
            self.elsewhere.then(|| -> TryOn {
                Arc::new(move |_| {
                    if hangs {
                        loop {
                            std::thread::park();
                        }
                    }
                    panic!("as asked")
                })
            })
        }
    }

    #[tokio::test]
    async fn a_converter_that_panics_or_hangs_closes_the_gate() {
        for (bad, expected) in [
            (Bad { hangs: false, elsewhere: false }, "panicked on one of the objects from a to c"),
            (Bad { hangs: false, elsewhere: true }, "panicked on one of the objects from a to c"),
            (Bad { hangs: true, elsewhere: true }, "did not return within 0 s"),
        ] {
            let objects = ["a", "b", "c"].map(|name| (name.to_owned(), json!({}))).to_vec();
            let longest = if bad.hangs { Duration::from_millis(10) } else { LONGEST_TRIAL };
            let closed =
                try_on(&bad, &CustomResourceDefinition::default(), objects, longest).await.unwrap_err();
            assert_eq!(closed.gate, Gate::Objects);
            assert!(closed.message.contains(expected), "{closed}");
        }
    }

    #[test]
    fn objects_are_listed_in_every_version_that_shows_them_as_they_are() {
        let crd = |strategy: &str, stored: &[&str]| -> CustomResourceDefinition {
            let version =
                |name: &str, served: bool| json!({"name": name, "served": served, "storage": name == "v2"});
            serde_json::from_value(json!({
                "metadata": {"name": "widgets.example.com"},
                "spec": {
                    "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
                    "versions": [version("v1", true), version("v2", true), version("v3", true), version("v4", false)],
                    "conversion": {"strategy": strategy},
                },
                "status": {"storedVersions": stored},
            }))
            .unwrap()
        };
        for (strategy, stored, expected) in [
            ("None", &["v2"][..], &["v2"][..]),
            ("None", &["v1", "v2"], &["v2", "v1"]),
            ("None", &["v2", "v4"], &["v2"]),
            ("Webhook", &["v2"], &["v2", "v1", "v3"]),
        ] {
            assert_eq!(listed_versions(&crd(strategy, stored)), expected, "{strategy} {stored:?}");
        }
    }
}
