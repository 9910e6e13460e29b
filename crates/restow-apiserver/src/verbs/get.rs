//! Get.

use crate::http::status::StatusError;
use crate::verbs::api::Api;
use crate::verbs::request::{ResourceRequest, VerbResponse};

/// Answers a get.
pub(crate) async fn get(api: &Api, request: &ResourceRequest) -> Result<VerbResponse, StatusError> {
    let entry = api.entry(&request.key()).await?.ok_or_else(|| request.not_found())?;
    let stored = api.decode(&request.resource, entry, request.view.decode_scope(&Default::default()))?;
    let object = request.view.object(api, stored).await?;
    Ok(VerbResponse::ok(request.view.answer(object)))
}
