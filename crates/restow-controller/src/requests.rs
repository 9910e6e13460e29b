//! Requests that several controllers send, and what their errors mean.

use std::fmt::Debug;

use kube::api::{DeleteParams, Preconditions};
use kube::{Api, ResourceExt as _};
use serde::de::DeserializeOwned;

/// The HTTP status code of an error, when there was an answer.
pub(crate) fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// Deletes an object, if it is still the one that was seen, in whatever state it is by now.
pub(crate) async fn delete<K>(api: &Api<K>, object: &K) -> Result<(), kube::Error>
where
    K: kube::Resource + Clone + DeserializeOwned + Debug,
{
    let params = DeleteParams {
        // No resourceVersion: one that runs is written after each page, and is to go all the same.
        preconditions: Some(Preconditions { uid: object.uid(), resource_version: None }),
        ..DeleteParams::background()
    };
    match api.delete(&object.name_any(), &params).await {
        Ok(_) => Ok(()),
        // It is gone, or another one has its name; but a webhook denies with the same codes.
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
