//! Create.

use std::sync::Arc;

use http::StatusCode;
use restow_storageversion::custom::Write as Permit;
use restow_store::Unchanged;
use serde_json::Value;

use crate::http::body::Body;
use crate::http::status::StatusError;
use crate::object::meta::{
    create::CreateOptions, create::is_generated, create::prepare, name, set, validate,
};
use crate::object::stored::set_version;
use crate::registry::resource::takes_new;
use crate::verbs::api::Api;
use crate::verbs::decode;
use crate::verbs::field_managers::{self, Conversions, Interrupted};
use crate::verbs::namespace_lifecycle;
use crate::verbs::payload;
use crate::verbs::request::{ResourceRequest, VerbResponse};
use crate::verbs::strategy;
use crate::verbs::write::{Outcome, permit, to_store, write_new};

/// How many generated names are tried.
const NAMES: usize = 8;

/// Answers a create.
pub(crate) async fn create(
    api: &Arc<Api>,
    mut request: ResourceRequest,
) -> Result<VerbResponse, StatusError> {
    let permit = permit(api, &mut request).await?;
    if !takes_new(&request.resource) {
        return Err(StatusError::verb_not_supported(&request.resource.name, "create"));
    }
    let size = request.body.len();
    let request = Arc::new(request);
    let reading = Arc::clone(&request);
    let read = api.workers.run(size, move || decode::read(&reading, sent(&reading)?)).await?;
    let unchanged = namespace_lifecycle::conditions(api, &request, name(&read.object)).await?;
    let generated = is_generated(&read.object);
    let tries = if generated { NAMES } else { 1 };
    for last in (0..tries).rev() {
        let object = made(api, &request, size, read.object.clone(), ManagedFields::Recorded).await?;
        let stored = store(api, &request, permit.as_ref(), unchanged.clone(), object.clone()).await?;
        if let Some(object) = stored {
            let made = Some(name(&object).to_owned());
            let mut warnings = read.warnings;
            warnings.extend(strategy::warnings(&request, &object));
            let body = Body::from(request.view.answer(object));
            return Ok(VerbResponse { code: StatusCode::CREATED, body, warnings, made });
        }
        if last == 0 {
            let taken = name(&object);
            return Err(if generated {
                StatusError::generated_name_exists(&request.resource.name, taken)
            } else {
                StatusError::already_exists(&request.resource.name, taken)
            });
        }
    }
    Err(StatusError::plain("could not generate a name"))
}

/// Whether a new object has its managedFields already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ManagedFields {
    /// Everything in it belongs to the manager of the request.
    Recorded,
    /// An apply has set them.
    Applied,
}

/// The object in the body.
pub(super) fn sent(request: &ResourceRequest) -> Result<Value, StatusError> {
    let sent = payload::parse(&request.content_type, &request.body)?;
    payload::object(&request.resource, &request.view.api_version, sent)
}

/// The new object, if its sender may store it.
pub(super) async fn made(
    api: &Arc<Api>,
    request: &Arc<ResourceRequest>,
    size: usize,
    object: Value,
    managed: ManagedFields,
) -> Result<Value, StatusError> {
    let size = request.effort(size);
    let (own, request) = (Arc::clone(api), Arc::clone(request));
    let work = move || {
        let object = prepared(&request, object, managed)?;
        request.permit(&own, &object, None)?;
        Ok(object)
    };
    api.workers.run(size, work).await
}

/// The new object, validated and with server-set fields.
fn prepared(
    request: &ResourceRequest,
    mut object: Value,
    managed: ManagedFields,
) -> Result<Value, StatusError> {
    let rules = request.rules();
    let uid = crate::object::uid::uid();
    let options = CreateOptions {
        namespace: &request.target.namespace,
        uid: &uid,
        now: restow_clock::now(),
        random: fastrand::u64(..),
    };
    if managed == ManagedFields::Applied {
        // An apply may be for a certain version of an object, but not of one that is created.
        set(&mut object, "resourceVersion", None);
    }
    prepare(&mut object, &rules, &options)?;
    strategy::on_create(request, &mut object)?;
    strategy::omit_empty(request, &mut object);
    if managed == ManagedFields::Recorded {
        match field_managers::record(request, &mut object, None, &Conversions::default()) {
            Ok(()) => {}
            Err(Interrupted::Refused(error)) => return Err(error),
            // A new object that brings managedFields of another version does not keep them.
            Err(Interrupted::Convert(_)) => set(&mut object, "managedFields", None),
        }
    }
    let mut causes = validate::create(&object, &rules);
    causes.extend(strategy::validate(request, &object, None));
    if causes.is_empty() {
        return Ok(object);
    }
    Err(StatusError::invalid(&request.resource.group_kind(), name(&object), causes))
}

/// Stores a new object; none if the name exists.
async fn store(
    api: &Api,
    request: &ResourceRequest,
    permit: Option<&Permit>,
    unchanged: Vec<Unchanged>,
    mut object: Value,
) -> Result<Option<Value>, StatusError> {
    if request.options.dry_run {
        let key = request.resource.key(&request.target.namespace, name(&object));
        return Ok(api.entry(&key).await?.is_none().then_some(object));
    }
    let bytes = to_store(api, request, permit, object.clone()).await?;
    match write_new(api, request, name(&object), bytes, unchanged).await? {
        Outcome::Done(revision) => {
            set_version(&mut object, revision);
            Ok(Some(object))
        }
        Outcome::Conflict(_) => Ok(None),
    }
}
