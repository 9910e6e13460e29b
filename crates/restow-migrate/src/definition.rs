//! Reads one CustomResourceDefinition as a whole, and changes its versions.

use http::Method;
use restow_api::RETIRED;
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

/// Replaces `spec.versions` of a CRD, and notes a version that is retired with that. It fails with 409 if the CRD is no longer as
/// it was read.
pub async fn write_versions(
    server: &Server,
    read: &Definition,
    versions: &[Value],
    retired: Option<&str>,
) -> Result<(), RequestError> {
    let mut patch = json!({
        "metadata": {"uid": read.crd.uid, "resourceVersion": read.crd.resource_version},
        "spec": {"versions": versions},
    });
    if let Some(version) = retired {
        let before = read.object["metadata"]["annotations"][RETIRED].as_str().unwrap_or_default();
        patch["metadata"]["annotations"] = json!({RETIRED: with_version(before, version)});
    }
    let path = format!("{}/{}?fieldManager=restow", crds_path(), read.crd.name);
    let body = patch.to_string().into_bytes();
    let _: CrdObject = server.write(Method::PATCH, &path, "application/merge-patch+json", body).await?;
    Ok(())
}

/// A list of versions, separated by commas, with one more.
fn with_version(list: &str, version: &str) -> String {
    let mut all: Vec<&str> = list.split(',').map(str::trim).filter(|one| !one.is_empty()).collect();
    if !all.contains(&version) {
        all.push(version);
    }
    all.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retired_version_is_added_once_to_those_before_it() {
        for (list, version, expected) in
            [("", "v1", "v1"), ("v1", "v1", "v1"), ("v1alpha1, v1beta1", "v1", "v1alpha1,v1beta1,v1")]
        {
            assert_eq!(with_version(list, version), expected);
        }
    }
}
