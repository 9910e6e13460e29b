//! The cells of a Service.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::cell::{at, created, items, name, number, text, text_or};

const NONE: &str = "<none>";

/// The cells of a Service. It is stored without defaults, so missing values are replaced by those of kube-apiserver.
pub(super) fn cells(service: &Value, now: Timestamp) -> Vec<Value> {
    let kind = text_or(service, "/spec/type", "ClusterIP");
    let address = text_or(service, "/spec/clusterIPs/0", &text_or(service, "/spec/clusterIP", NONE));
    vec![
        name(service),
        json!(kind),
        json!(address),
        json!(external(service, &kind)),
        json!(ports(service)),
        created(service, now),
        json!(selector(service)),
    ]
}

fn external(service: &Value, kind: &str) -> String {
    let mut addresses: Vec<String> = Vec::new();
    match kind {
        "ExternalName" => return text(service, "/spec/externalName"),
        "LoadBalancer" => addresses.extend(balancer(service)),
        _ => {}
    }
    let own = items(service, "/spec/externalIPs").iter().filter_map(Value::as_str).map(str::to_owned);
    addresses.extend(own);
    match (addresses.is_empty(), kind) {
        (false, _) => addresses.join(","),
        (true, "LoadBalancer") => "<pending>".to_owned(),
        (true, _) => NONE.to_owned(),
    }
}

fn balancer(service: &Value) -> BTreeSet<String> {
    let points = items(service, "/status/loadBalancer/ingress").iter();
    let addresses = points.map(|point| text_or(point, "/ip", &text(point, "/hostname")));
    addresses.filter(|address| !address.is_empty()).collect()
}

fn ports(service: &Value) -> String {
    let shown = items(service, "/spec/ports").iter().map(|port| {
        let protocol = text_or(port, "/protocol", "TCP");
        match (number(port, "/port"), number(port, "/nodePort")) {
            (own, 0) => format!("{own}/{protocol}"),
            (own, node) => format!("{own}:{node}/{protocol}"),
        }
    });
    let shown: Vec<String> = shown.collect();
    if shown.is_empty() { NONE.to_owned() } else { shown.join(",") }
}

fn selector(service: &Value) -> String {
    let labels = at(service, "/spec/selector").and_then(Value::as_object).into_iter().flatten();
    let shown: Vec<String> =
        labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    if shown.is_empty() { NONE.to_owned() } else { shown.join(",") }
}
