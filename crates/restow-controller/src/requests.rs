//! Requests that several controllers send.

use std::fmt::Debug;

use kube::api::{DeleteParams, Preconditions};
use kube::{Api, ResourceExt as _};
use serde::de::DeserializeOwned;

/// The HTTP status code of an error; none if the server did not answer.
pub(crate) fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// Deletes an object if it still has the same uid, whatever has changed in it since.
pub(crate) async fn delete<K>(api: &Api<K>, object: &K) -> Result<(), kube::Error>
where
    K: kube::Resource + Clone + DeserializeOwned + Debug,
{
    let params = DeleteParams {
        // No resourceVersion: a running migration is written after each page, and must be deleted too.
        preconditions: Some(Preconditions { uid: object.uid(), resource_version: None }),
        ..DeleteParams::background()
    };
    match api.delete(&object.name_any(), &params).await {
        Ok(_) => Ok(()),
        // It is gone, or another object has its name; but an admission webhook may deny with the same codes.
        Err(error) if matches!(code(&error), Some(404 | 409)) => {
            let now = api.get_opt(&object.name_any()).await?;
            let stays = now.is_some_and(|now| {
                now.meta().uid == object.meta().uid && now.meta().deletion_timestamp.is_none()
            });
            if stays { Err(error) } else { Ok(()) }
        }
        Err(error) => Err(error),
    }
}
