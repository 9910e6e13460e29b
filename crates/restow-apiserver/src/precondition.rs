//! What every write and delete is conditioned on.

use kube::api::{DeleteParams, ObjectMeta, Preconditions};

use crate::trouble::Trouble;

/// A delete of just the object that was read, in just that state.
pub(crate) fn delete_as_read(metadata: &ObjectMeta) -> Result<DeleteParams, Trouble> {
    let (uid, resource_version) = as_read(metadata)?;
    let preconditions =
        Preconditions { uid: Some(uid.to_owned()), resource_version: Some(resource_version.to_owned()) };
    Ok(DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() })
}

/// The uid and resourceVersion, without which nothing that was read is sent back.
pub(crate) fn as_read(metadata: &ObjectMeta) -> Result<(&str, &str), Trouble> {
    metadata.uid.as_deref().zip(metadata.resource_version.as_deref()).ok_or(Trouble::Unconditional)
}
