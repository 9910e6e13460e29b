//! Reads one CustomResourceDefinition as a whole, and changes its versions.

use http::Method;
use restow_core::resource::inventory::Crd;
use restow_core::resource::name::GroupResource;
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::client::{RequestError, Server};
use crate::cluster::discovery::{self, CrdObject, crds_path};

/// A CustomResourceDefinition.
#[derive(Clone, Debug)]
pub struct Definition {
    /// The parts that matter for storage.
    pub crd: Crd,
    /// The whole object.
    pub object: Value,
}

impl Definition {
    /// `spec.versions`.
    pub fn versions(&self) -> &[Value] {
        self.object["spec"]["versions"].as_array().map_or(&[], Vec::as_slice)
    }
}

/// Reads a CRD; `None` if there is none of this name.
pub async fn read(server: &Server, name: &GroupResource) -> Result<Option<Definition>, RequestError> {
    let path = format!("{}/{name}", crds_path());
    let object: Value = match server.get(&path).await {
        Ok(object) => object,
        Err(error) if error.code() == Some(404) && discovery::is_undefined(server, name).await? => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let crd = CrdObject::deserialize(&object).map_err(|source| RequestError::Unreadable { path, source })?;
    Ok(Some(Definition { crd: crd.into(), object }))
}

/// Replaces `spec.versions` of a CRD. It fails with 409 if the CRD is no longer as it was read.
pub async fn write_versions(
    server: &Server,
    read: &Definition,
    versions: &[Value],
    dry_run: bool,
) -> Result<(), RequestError> {
    let patch = json!({
        "metadata": {"uid": read.crd.uid, "resourceVersion": read.crd.resource_version},
        "spec": {"versions": versions},
    });
    let dry = if dry_run { "&dryRun=All" } else { "" };
    let path = format!("{}/{}?fieldManager=restow{dry}", crds_path(), read.crd.name);
    let body = patch.to_string().into_bytes();
    let _: CrdObject = server.write(Method::PATCH, &path, "application/merge-patch+json", body).await?;
    Ok(())
}
