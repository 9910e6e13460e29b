//! What every cluster has from its start.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};

/// The namespaces every cluster has.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// Makes what is missing.
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
    futures::future::try_join_all(made).await.map(drop)
}
