//! Samples API servers behind one load balancer, by opening new connections to its address.

use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::time::Duration;

use restow_core::agreement;
use restow_core::agreement::member::Member;
use restow_core::resource::name::{GroupResource, GroupVersion};

use super::discovery;
use super::handle::{Cluster, SAMPLE_EVERY};
use super::sampling::{Documents, Round, Samples};
use super::survey::lacks;
use crate::client::RequestError;
use crate::client::access::Access;

impl Cluster {
    /// What new connections show: those of a whole period, and one more now.
    ///
    /// One period covers every resource. Another one is needed when an API server joined, left or restarted, when the newest
    /// connection shows something that the period did not, and when the period is too old.
    pub(crate) async fn sample(
        &self,
        period: Duration,
        wanted: BTreeSet<GroupVersion>,
        members: &Result<Vec<Member>, String>,
    ) -> Result<Round, RequestError> {
        // Without Leases there is no agreement, so sampling would not help.
        let Ok(members) = members else { return Ok(Round::default()) };
        let mut kept = self.samples.lock().await;
        let mut now = self.sample_once(&wanted).await?;
        let holders = agreement::member::holders(members, restow_clock::now());
        if let Some(samples) = kept.as_ref()
            && samples.still_hold(&holders, &now, period)
        {
            return Ok(samples.round(now, true));
        }
        let mut versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner).clone();
        versions.extend(wanted);
        let ends = restow_clock::Instant::now() + period;
        let mut samples = Samples::new(holders.clone());
        loop {
            now = self.sample_once(&versions).await?;
            samples.add(now.clone());
            if restow_clock::Instant::now() >= ends {
                break;
            }
            tokio::time::sleep(SAMPLE_EVERY).await;
        }
        let steady = match self.members().await? {
            Access::Granted(after) => agreement::member::holders(&after, restow_clock::now()) == holders,
            Access::Denied(_) => false,
        };
        let round = samples.round(now, steady);
        *kept = steady.then_some(samples);
        Ok(round)
    }

    /// Whether every new connection of a whole period reached a server that is ready and does not serve a resource. False if
    /// an API server joined or left in that period.
    pub(crate) async fn is_lacked(
        &self,
        period: Duration,
        name: &GroupResource,
    ) -> Result<bool, RequestError> {
        let holders = |members: &[Member]| agreement::member::holders(members, restow_clock::now());
        let Access::Granted(before) = self.members().await? else { return Ok(false) };
        let before = holders(&before);
        let ends = restow_clock::Instant::now() + period;
        loop {
            if !lacks(&self.fresh()?, name).await? {
                return Ok(false);
            }
            if restow_clock::Instant::now() >= ends {
                break;
            }
            tokio::time::sleep(SAMPLE_EVERY).await;
        }
        Ok(match self.members().await? {
            Access::Granted(after) => holders(&after) == before,
            Access::Denied(_) => false,
        })
    }

    /// The discovery documents of these versions, read over one new connection.
    async fn sample_once(&self, versions: &BTreeSet<GroupVersion>) -> Result<Documents, RequestError> {
        let fresh = self.fresh()?;
        let mut documents = Documents::new();
        for version in versions {
            let document = match discovery::document_if_listed(&fresh, version).await {
                // This is an answer too: the server does not serve that version.
                Ok(served) => Ok(served.unwrap_or_default()),
                // Only this group fails, not the others.
                Err(error) if error.code().is_some() => Err(error.to_string()),
                Err(error) => return Err(error),
            };
            documents.insert(version.clone(), document);
        }
        Ok(documents)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::Trust;

    /// The answer of a server that serves widgets or does not, and whose process has this name.
    fn answer_to(path: &str, serves: bool, process: &str) -> Option<Value> {
        let version = json!({"groupVersion": "example.com/v1", "version": "v1"});
        let widgets = json!({"name": "widgets", "singularName": "widget", "kind": "Widget", "namespaced": true, "verbs": []});
        Some(match path {
            "/readyz" => json!("ok"),
            "/apis" => json!({"kind": "APIGroupList", "groups":
                [{"name": "example.com", "versions": [version], "preferredVersion": version}]}),
            "/api/v1" => json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": []}),
            "/apis/example.com/v1" => json!({"kind": "APIResourceList", "groupVersion": "example.com/v1",
                "resources": if serves { vec![widgets] } else { Vec::new() }}),
            path if path.ends_with("/leases") => json!({"kind": "LeaseList", "items": [{
                "metadata": {"name": "a", "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"}},
                "spec": {"holderIdentity": process}}]}),
            _ => return None,
        })
    }

    #[tokio::test]
    async fn a_resource_is_served_nowhere_only_if_no_new_connection_shows_it() {
        let period = SAMPLE_EVERY;
        // One value for each connection. All other requests use the first one.
        for (what, serves, restarts, gone) in [
            ("nobody has it", [false, false, false], false, true),
            ("the second fresh connection shows it", [false, false, true], false, false),
            ("an API server restarted meanwhile", [false, false, false], true, false),
        ] {
            let (connections, listed) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
            let connect = move |_: &str| {
                let number = connections.fetch_add(1, Ordering::Relaxed);
                let (serves, listed) = (serves[number.min(2)], Arc::clone(&listed));
                let answer = move |request: Request<Body>| {
                    let path = request.uri().path().to_owned();
                    let lists = path.ends_with("/leases");
                    let again = lists && listed.fetch_add(1, Ordering::Relaxed) > 0;
                    let said = answer_to(&path, serves, if again && restarts { "a_2" } else { "a_1" });
                    let code = if said.is_some() { 200 } else { 404 };
                    let missing = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                        "reason": "NotFound", "code": 404, "message": "not found"});
                    let body = Body::from(said.unwrap_or(missing).to_string().into_bytes());
                    let response =
                        Response::builder().status(code).header("content-type", "application/json");
                    std::future::ready(response.body(body))
                };
                kube::Client::new(tower::service_fn(answer), "default")
            };
            let cluster = Cluster::over("https://one", Trust::Sampled(period), connect);
            let name = GroupResource::parse("widgets.example.com");
            assert_eq!(cluster.is_served_nowhere(&name).await.unwrap(), gone, "{what}");
        }
    }
}
