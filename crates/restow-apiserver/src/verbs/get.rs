//! Get.

use crate::http::status::Failure;
use crate::verbs::api::Api;
use crate::verbs::call::{Answer, Call};

/// Answers a get.
pub(crate) async fn get(api: &Api, call: &Call) -> Result<Answer, Failure> {
    let entry = api.entry(&call.key()).await?.ok_or_else(|| call.not_found())?;
    let stored = api.decode(&call.resource, entry, call.view.extent(&Default::default()))?;
    let object = call.view.object(api, stored).await?;
    Ok(Answer::ok(call.view.answer(object)))
}
