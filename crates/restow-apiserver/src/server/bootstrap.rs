//! The default objects of every cluster.

use http::{Request, header};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use serde_json::Value;

use crate::auth::rbac::{self, BootstrapObject, bootstrap as roles};

/// The default namespaces.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// Creates the default objects that are missing.
pub(crate) async fn bootstrap(client: &Client) -> kube::Result<()> {
    let namespaces = Api::<Namespace>::all(client.clone());
    let made = NAMESPACES.map(|name| {
        let namespaces = namespaces.clone();
        async move {
            let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
            let namespace = Namespace { metadata, ..Namespace::default() };
            match namespaces.create(&PostParams::default(), &namespace).await {
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
                other => other.map(drop),
            }
        }
    });
    let roles = roles().into_iter().map(|role| make(client, role));
    let (namespaces, roles) =
        futures::future::join(futures::future::try_join_all(made), futures::future::try_join_all(roles))
            .await;
    namespaces.and(roles).map(drop)
}

async fn make(client: &Client, role: BootstrapObject) -> kube::Result<()> {
    let resource = role.kind.resource();
    let path = format!("/apis/{}/v1/{resource}", rbac::GROUP);
    let request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
    let request = request.body(role.object.to_string().into_bytes());
    match client.request::<Value>(request.map_err(kube::Error::HttpError)?).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        other => other.map(drop),
    }
}
