//! Which CRDs call the webhook that `restow install --webhook` installs.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams};
use restow_lease::request::in_words;
use restow_migrate::client::Server;
use restow_webhook::registration::Endpoint;

use super::rules::WEBHOOK;
use crate::error::CliError;

/// How many CRDs are read at once.
const PAGE: u32 = 100;

/// The installed webhook, as CRDs call it.
pub(crate) fn called_by(namespace: &str) -> Endpoint {
    Endpoint::Service {
        namespace: namespace.to_owned(),
        name: WEBHOOK.to_owned(),
        port: 443,
        path: "/convert".to_owned(),
    }
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
