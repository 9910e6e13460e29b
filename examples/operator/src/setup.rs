//! What the operator hands over to `restow-operator`, and the permissions that it needs.

use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use restow_convert::Chain;
use restow_operator::{Permissions, Webhook};

use crate::{NAME, admission};

/// The webhook server: the conversion of pages, and the admission handler beside it.
pub fn webhook(webhook: Webhook, chain: Chain) -> Webhook {
    webhook
        .convert(chain)
        .mount(admission::PATH, tower::service_fn(admission::handle))
        .validating(admission::PATH, &admission::configuration())
}

/// What `restow-operator` needs for the CRD and the webhook, and what the reconcile loop needs.
pub fn permissions(definition: &CustomResourceDefinition, webhook: &Webhook) -> Permissions {
    restow_operator::permissions(NAME, std::slice::from_ref(definition)).with_webhook(webhook).with_rules([
        rule("example.com", "pages", &["watch"]),
        rule("example.com", "pages/status", &["patch"]),
        rule("", "configmaps", &["get", "create", "update"]),
    ])
}

fn rule(group: &str, resource: &str, verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    }
}
