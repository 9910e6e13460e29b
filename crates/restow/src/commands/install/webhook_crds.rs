//! Which CRDs call the webhook that `restow install --webhook` installs.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams};
use restow_lease::request::in_words;
use restow_migrate::client::Server;
use restow_webhook::registration::Endpoint;
use restow_webhook::registration::stanza::{Standing, registrant, standing};
use serde_json::{Value, json};

use super::apply::refused;
use super::rules::WEBHOOK;
use crate::error::CliError;

/// How many CRDs are read at once.
const PAGE: u32 = 100;

/// The CRDs that need the installed webhook: those that call its Service, and those that its role names and that call a
/// webhook which restow registered, such as one that runs elsewhere under that role.
pub(crate) async fn calling(
    server: &Server,
    namespace: &str,
) -> Result<Vec<CustomResourceDefinition>, CliError> {
    let endpoint = Endpoint::Service {
        namespace: namespace.to_owned(),
        name: WEBHOOK.to_owned(),
        port: 443,
        path: "/convert".to_owned(),
    };
    let path = format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{WEBHOOK}");
    let named = match server.get::<Value>(&path).await {
        Ok(role) => named(&role),
        Err(error) if error.code() == Some(404) => Vec::new(),
        Err(error) => return Err(refused(server, &format!("clusterrole/{WEBHOOK}"), &error)),
    };
    let calls = |crd: &CustomResourceDefinition| {
        let is_named = crd.metadata.name.as_ref().is_some_and(|name| named.contains(name));
        standing(crd, &endpoint) == Standing::Ours || is_named && registrant(crd).is_some()
    };
    Ok(all(server).await?.into_iter().filter(calls).collect())
}

/// The CRDs that the role of the webhook names.
fn named(role: &Value) -> Vec<String> {
    let rules = role["rules"].as_array().into_iter().flatten();
    let of_crds = rules.filter(|rule| rule["resources"] == json!(["customresourcedefinitions"]));
    let names = of_crds.flat_map(|rule| rule["resourceNames"].as_array().into_iter().flatten());
    names.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// All CRDs of the cluster.
pub(crate) async fn all(server: &Server) -> Result<Vec<CustomResourceDefinition>, CliError> {
    let api: Api<CustomResourceDefinition> = Api::all(server.client().clone());
    let (mut all, mut params) = (Vec::new(), ListParams::default().limit(PAGE));
    loop {
        let page = api.list(&params).await.map_err(|error| {
            CliError::failed(format!("could not find out which CRDs call the webhook: {}", in_words(&error)))
        })?;
        all.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(all),
        }
    }
}

#[cfg(test)]
mod tests {
    use restow_core::resource::name::GroupResource;

    use super::*;
    use crate::commands::install::rules;

    #[test]
    fn the_role_tells_which_crds_the_webhook_was_installed_for() {
        let crds = ["widgets.example.com", "gadgets.example.org"].map(GroupResource::parse);
        assert_eq!(
            named(&json!({"rules": rules::webhook(&crds)})),
            ["widgets.example.com", "gadgets.example.org"]
        );
        assert_eq!(named(&json!({})), Vec::<String>::new());
    }
}
