//! The manifests for a server that runs on the same machine as the kube-apiserver.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::ship::{GROUP, Version};

/// The names in the certificate. The first one is that of the Service, which the aggregation layer expects.
pub const NAMES: [&str; 3] = ["fleet.default.svc", "localhost", "127.0.0.1"];

/// The Service and the APIServices, as one list.
pub fn manifests(port: u16, certificate: &str) -> Value {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "fleet", "namespace": "default"},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    let api = |(order, version): (usize, &Version)| {
        json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": format!("{}.{GROUP}", version.name())},
            "spec": {
                "group": GROUP, "version": version.name(),
                "groupPriorityMinimum": 1000, "versionPriority": 15 + order,
                "service": {"namespace": "default", "name": "fleet", "port": port},
                "caBundle": STANDARD.encode(certificate),
            },
        })
    };
    let mut items = vec![service];
    // The preferred version is the first one, and gets the highest priority.
    items.extend(Version::ALL.iter().rev().enumerate().map(api));
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}
