//! The part of an uninstall that is about the conversion webhook.

use std::collections::BTreeSet;

use restow_migrate::client::Server;
use restow_webhook::registration::stanza;
use serde_json::{Value, json};

use crate::commands::install::manifest::Manifest;
use crate::commands::install::rules::CERTIFICATES;
use crate::commands::install::webhook::{WebhookSetup, manifests};
use crate::commands::install::webhook_crds;
use crate::error::CliError;
use crate::program::program;

/// Fails if API servers call the installed webhook for some CRD, or any webhook of restow if rules are deleted, too.
pub(super) async fn refuse_while_called(
    server: &Server,
    namespace: &str,
    rules_too: bool,
) -> Result<(), CliError> {
    let mut crds = webhook_crds::calling(server, namespace).await?;
    if rules_too {
        let all = webhook_crds::all(server).await?;
        crds.extend(all.into_iter().filter(|crd| stanza::registrant(crd).is_some()));
    }
    let calling: BTreeSet<String> = crds.into_iter().filter_map(|crd| crd.metadata.name).collect();
    let calling: Vec<String> = calling.into_iter().collect();
    if calling.is_empty() {
        return Ok(());
    }
    let names = calling.join(" ");
    let keep = if rules_too { "" } else { "; to remove only the controllers, use --keep-webhook" };
    Err(CliError::failed(format!(
        "nothing was deleted: API servers call the conversion webhook for {}, and could not read their objects without it",
        calling.join(", ")
    ))
    .hint(format!("first run: {} webhook unregister {names}{keep}", program())))
}

/// Whether an object is the Secret that the webhook made for its certificates.
pub(super) fn is_certificates(found: &Value) -> bool {
    let labels = &found["metadata"]["labels"];
    found["kind"] == "Secret"
        && found["metadata"]["name"] == CERTIFICATES
        && labels[restow_api::MANAGED_BY] == restow_api::MANAGER
}

/// A Lease, which pods create without labels.
pub(super) fn lease(name: &str, namespace: &str) -> Manifest {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace},
    });
    Manifest::new("", lease)
}

/// Adds what an install of the webhook can have created, and what its pods created.
pub(super) fn add(all: &mut Vec<Manifest>, namespace: &str) {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": CERTIFICATES, "namespace": namespace},
    });
    all.splice(1..1, [lease(CERTIFICATES, namespace), Manifest::new("", secret)]);
    let setup =
        WebhookSetup { namespace: namespace.to_owned(), crds: Vec::new(), image: Some(String::new()) };
    let shared = |manifest: &Manifest| ["Namespace", "CustomResourceDefinition"].contains(&manifest.kind());
    all.extend(manifests(&setup).into_iter().filter(|manifest| !shared(manifest)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_secret_that_the_webhook_made_is_recognized() {
        let secret = |name: &str, manager: &str| {
            json!({
                "kind": "Secret", "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": manager}},
            })
        };
        assert!(is_certificates(&secret(CERTIFICATES, "restow")));
        assert!(!is_certificates(&secret(CERTIFICATES, "cert-manager")));
        assert!(!is_certificates(&secret("mine", "restow")));
    }
}
