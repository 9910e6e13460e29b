//! Tries a converter on all live objects of a CRD, page by page.

use std::panic::{AssertUnwindSafe, catch_unwind};

use http::Request;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ListParams;
use restow_lease::request::{ObjectError, ask};
use serde_json::Value;

use super::gates::{Closed, ConverterGates, Gate};

/// How many objects a page has. At most one page is in memory.
const PAGE: u32 = 100;
/// How often the list begins again because a continue token expired.
const RESTARTS: u32 = 5;

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

/// Tries a converter on all live objects.
///
/// # Errors
/// When an object would not survive, or not all objects could be listed.
pub async fn survey(
    client: &kube::Client,
    crd: &CustomResourceDefinition,
    gates: &impl ConverterGates,
) -> Result<Survey, SurveyError> {
    let path = list_path(crd).ok_or(SurveyError::NotServed)?;
    for _ in 0..RESTARTS {
        match walk(client, crd, gates, &path).await {
            Err(SurveyError::List(ObjectError::Other(kube::Error::Api(status)))) if status.code == 410 => {}
            done => return done,
        }
    }
    Err(SurveyError::Expired)
}

/// The path of all objects, in the storage version if it is served: objects are then listed as they are stored.
fn list_path(crd: &CustomResourceDefinition) -> Option<String> {
    let served = || crd.spec.versions.iter().filter(|version| version.served);
    let version = served().find(|version| version.storage).or_else(|| served().next())?;
    Some(format!("/apis/{}/{}/{}", crd.spec.group, version.name, crd.spec.names.plural))
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
        // Conversions take time: other tasks on this thread must go on.
        tokio::task::yield_now().await;
        try_on(gates, crd, named)?;
        match page["metadata"]["continue"].as_str() {
            Some(token) if !token.is_empty() => params.continue_token = Some(token.to_owned()),
            _ => return Ok(done),
        }
    }
}

/// A converter that panics closes the gate, and ends nothing else.
fn try_on(
    gates: &impl ConverterGates,
    crd: &CustomResourceDefinition,
    objects: Vec<(String, Value)>,
) -> Result<(), Closed> {
    let names: Vec<_> =
        [objects.first(), objects.last()].into_iter().flatten().map(|(name, _)| name.clone()).collect();
    let tried = catch_unwind(AssertUnwindSafe(|| gates.try_on(crd, objects))).unwrap_or_else(|_| {
        Err(format!(
            "the converter panicked on one of the objects from {}; the log has the message",
            names.join(" to ")
        ))
    });
    tried.map_err(|message| Closed::new(Gate::Objects, message))
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
    use serde_json::json;

    use super::*;

    struct Panicking;

    impl ConverterGates for Panicking {
        fn crds(&self) -> Vec<String> {
            Vec::new()
        }

        async fn is_served(&self, _: &CustomResourceDefinition) -> Result<(), String> {
            Ok(())
        }

        fn try_on(&self, _: &CustomResourceDefinition, _: Vec<(String, Value)>) -> Result<(), String> {
            panic!("as asked")
        }
    }

    #[test]
    fn a_converter_that_panics_closes_the_gate() {
        let objects = ["a", "b", "c"].map(|name| (name.to_owned(), json!({}))).to_vec();
        let closed = try_on(&Panicking, &CustomResourceDefinition::default(), objects).unwrap_err();
        assert_eq!(closed.gate, Gate::Objects);
        assert!(closed.message.contains("from a to c"), "{closed}");
    }
}
