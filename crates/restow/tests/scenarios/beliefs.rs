//! An answer that may not come from an API server does not remove a resource, proves nothing and does not end a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use restow_lab::{Action, ClusterSpec, Observer, Proxy, Recorder, Seen};
use serde_json::{Value, json};

use crate::support::{CRDS, Lab, Restow, Widgets};
use crate::traffic::{Traffic, status};

scenarios! {
    a_404_does_not_remove_a_listed_resource,
    an_answer_without_metrics_does_not_show_that_nothing_is_encrypted,
    ; real:
    // It needs two API servers.
    a_silent_server_is_awaited_and_two_names_of_one_server_count_once,
    // It needs a server that registers no storage versions.
    addresses_without_identity_leases_do_not_count_as_every_server,
    // It counts the requests to a server that registers no storage versions.
    unexpected_answers_between_two_pages_are_waited_out,
}

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

/// What a load balancer answers that knows no backend.
fn default_backend() -> Action {
    Action::reply(404, "default backend - 404")
}

async fn prepared(client: &kube::Client, plural: &'static str, count: usize) -> Widgets {
    let widgets = Widgets { plural };
    widgets.define(client).await;
    widgets.create(client, count).await;
    widgets.store_as(client, "v2").await;
    widgets
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

async fn a_404_does_not_remove_a_listed_resource(lab: Lab) {
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let widgets = prepared(&client, "vanishings", 5).await;

    // The definitions, or the APIServices, are listed and not to be had: the resource would look built-in.
    for path in [CRDS, SERVICES] {
        let rule = move |seen: &Seen, _| if seen.path == path { default_backend() } else { Action::Forward };
        let (recorder, traffic) = Traffic::record(cluster, rule).await;
        let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
        let ran = restow.migrate(&widgets.name(), &[]).await.expect(1);
        assert!(text(&ran.report()["error"]).contains("404"), "{path}: {ran:#?}");
        assert_eq!(traffic.patches(), 0, "{path}: something was written");
    }

    // Its document is missing for a moment: it is waited for.
    let document = format!("/apis/{}/v2", widgets.group());
    let rule = move |seen: &Seen, before: usize| {
        if seen.path == document && before < 2 { default_backend() } else { Action::Forward }
    };
    let (recorder, _traffic) = Traffic::record(cluster, rule).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let report = restow.migrate(&widgets.name(), &[]).await.expect(0).resource();
    assert_eq!((&report["verified"], &report["rewritten"]), (&json!(true), &json!(5)), "{report:#}");
    assert_eq!(widgets.stored_as(cluster).await[&format!("{}/v2", widgets.group())], 5);

    // Missing for good, it is said to be left out, and not to be nothing.
    let group = widgets.group();
    let rule = move |seen: &Seen, _| {
        if seen.path.starts_with(&format!("/apis/{group}/")) { default_backend() } else { Action::Forward }
    };
    let (recorder, _traffic) = Traffic::record(cluster, rule).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let ran = restow.migrate(&widgets.name(), &[]).await.expect(1);
    assert!(ran.stderr.contains(&format!("/apis lists {}/v", widgets.group())), "{ran:#?}");
}

async fn an_answer_without_metrics_does_not_show_that_nothing_is_encrypted(lab: Lab) {
    let cluster = lab.shared();
    for body in ["<html>log in</html>", "{}", "go_goroutines 7\nprocess_start_time_seconds 1.7e+09\n"] {
        let rule = move |seen: &Seen, _| {
            if seen.path == "/metrics" { Action::reply(200, body) } else { Action::Forward }
        };
        let (recorder, _traffic) = Traffic::record(cluster, rule).await;
        let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
        let report = restow.migrate("secrets", &[]).await.expect(4).resource();
        assert_eq!(report["verified"], false, "{body}: {report:#}");
        assert!(text(&report["notChecked"][0]).contains("metrics cannot be read"), "{body}: {report:#}");
    }
    // The real ones show it.
    let report = Restow::new(cluster).migrate("secrets", &[]).await.expect(0).resource();
    assert_eq!(report["verified"], true, "{report:#}");
    assert!(text(&report["notChecked"][0]).contains("no API server reports"), "{report:#}");
}

async fn unexpected_answers_between_two_pages_are_waited_out(lab: Lab) {
    const MANY: usize = 30;
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let widgets = prepared(&client, "betweens", MANY).await;
    let (definition, document) =
        (format!("{CRDS}/{}", widgets.name()), format!("/apis/{}/v2", widgets.group()));
    let met = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&met);
    let rule = move |seen: &Seen, before: usize| {
        // Once the first page is written, each is refused a few times in a row.
        let refused = match seen.path.as_str() {
            path if path == definition || path == document => (4..6).contains(&before).then(default_backend),
            // The write that prunes.
            path if path.starts_with(CRDS) && seen.method == http::Method::PATCH => (before < 2)
                .then(|| status(403, "Forbidden", "customresourcedefinitions/status is forbidden")),
            LEASES => (4..7).contains(&before).then(|| status(403, "Forbidden", "leases are forbidden")),
            "/metrics" => (2..4).contains(&before).then(|| status(403, "Forbidden", "metrics are forbidden")),
            _ => None,
        };
        counted.fetch_add(usize::from(refused.is_some()), Ordering::SeqCst);
        refused.unwrap_or(Action::Forward)
    };
    let (recorder, _traffic) = Traffic::record(cluster, rule).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let flags = ["--page-size", "10", "--prune-stored-versions"];
    let report = restow.migrate(&widgets.name(), &flags).await.expect(0).resource();
    assert_eq!((&report["verified"], &report["rewritten"]), (&json!(true), &json!(MANY)), "{report:#}");
    assert!(met.load(Ordering::SeqCst) >= 9, "only {} answers were met", met.load(Ordering::SeqCst));
    assert_eq!(widgets.stored_as(cluster).await[&format!("{}/v2", widgets.group())], MANY);
    assert_eq!(widgets.stored_versions(&client).await, json!(["v2"]));
}

async fn addresses_without_identity_leases_do_not_count_as_every_server(lab: Lab) {
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let widgets = prepared(&client, "endpoints", 5).await;
    let rule = |seen: &Seen, _| {
        match seen.path.as_str() {
        LEASES => Action::reply(
            200,
            &json!({"kind": "LeaseList", "apiVersion": "coordination.k8s.io/v1", "metadata": {}, "items": []})
                .to_string(),
        ),
        _ => Action::Forward,
    }
    };
    let (recorder, _traffic) = Traffic::record(cluster, rule).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let report = restow.migrate(&widgets.name(), &[]).await.expect(0).resource();
    assert_eq!(report["agreement"], "endpoints", "{report:#}");
    assert!(text(&report["notChecked"][0]).contains("no API server has an identity Lease"), "{report:#}");
}

/// Cuts off the first questions about these documents.
struct Restarting(Vec<(&'static str, AtomicUsize)>);

impl Observer for Restarting {
    fn request(&self, request: &Seen) -> Action {
        let met = self.0.iter().find(|(path, _)| request.path == *path);
        let cut = met.is_some_and(|(_, times)| times.fetch_add(1, Ordering::SeqCst) < 3);
        if cut { Action::DropBefore } else { Action::Forward }
    }
}

async fn a_silent_server_is_awaited_and_two_names_of_one_server_count_once(lab: Lab) {
    let cluster = lab.cluster(ClusterSpec::new().servers(2)).await;
    let restow = Restow::new(&cluster);
    let (first, second) = (cluster.url(0), cluster.url(1));

    // It restarts before the first resource, and between two.
    let documents = ["/api/v1", "/apis/scheduling.k8s.io/v1"].map(|path| (path, AtomicUsize::new(0)));
    let restarting = Arc::new(Restarting(documents.into()));
    let recorder = Recorder::start(&cluster, 1, "admin", Arc::clone(&restarting)).await.unwrap();
    let both = ["--api-server", &first, "--api-server", &recorder.url()];
    let ran = restow.migrate("namespaces", &[&["priorityclasses"], &both[..]].concat()).await.expect(0);
    for resource in ran.report()["resources"].as_array().unwrap() {
        assert_eq!((&resource["agreement"], &resource["verified"]), (&json!("direct"), &json!(true)));
        assert!(resource["notChecked"].to_string().contains("no API server reports"), "{resource:#}");
    }
    for (path, times) in &restarting.0 {
        assert!(times.load(Ordering::SeqCst) > 3, "{path} was asked {times:?} times");
    }

    // Two addresses that lead to one server do not speak for the other one.
    let (one, other) =
        (Proxy::start(cluster.addr(0)).await.unwrap(), Proxy::start(cluster.addr(0)).await.unwrap());
    let twice = ["--api-server", &one.url(), "--api-server", &other.url()];
    let report = restow.migrate("namespaces", &twice).await.expect(4).resource();
    assert!(text(&report["error"]).contains("lead to 1 of them"), "{report:#}");
    let report = restow.migrate("namespaces", &["--api-server", &one.url(), "--api-server", &second]).await;
    assert_eq!(report.expect(0).resource()["agreement"], "direct");
}
