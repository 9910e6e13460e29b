//! What the controllers will do when they start for the first time, said before it happens.

use kube::Resource as _;
use restow_api::StorageState;
use restow_core::resource::name::GroupResource;
use restow_migrate::server::Server;
use serde_json::Value;

use super::manifests::Setup;
use crate::commands::controller::Name as Controller;
use crate::output::say;

/// Says that everything will be rewritten once, where nothing is known yet of how it is stored.
pub(crate) async fn announce(server: &Server, setup: &Setup) {
    let runs = setup.workload.is_some() && setup.controllers.contains(&Controller::Trigger);
    // Without the definitions there are no states.
    let known = server.get::<Value>(&StorageState::url_path(&(), None)).await.unwrap_or_default();
    let known = known["items"].as_array().cloned().unwrap_or_default();
    let unknown = |resource: &&GroupResource| {
        !known.iter().any(|state| state["metadata"]["name"] == resource.to_string())
    };
    let count = setup.resources.iter().filter(unknown).count();
    if !runs || count == 0 {
        return;
    }
    let resources = if count == 1 { "1 resource".to_owned() } else { format!("{count} resources") };
    say!(
        "when the controllers start, they send every object of {resources} one write, because it is not known yet \
         how it is stored; migrations of these resources that exist already are replaced. Name resources to begin \
         with fewer, or give --pace gentle"
    );
}
