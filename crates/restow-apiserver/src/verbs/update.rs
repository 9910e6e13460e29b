//! Update and patch: recomputed from the current object until they are stored.

use std::sync::Arc;

use http::StatusCode;
use restow_store::Entry;
use serde_json::Value;

use crate::http::body::Body;
use crate::http::status::StatusError;
use crate::object::meta::{name, update, validate};
use crate::object::patch as patching;
use crate::object::stored::set_version;
use crate::object::structure::built_in;
use crate::registry::resource::{Implementation, takes_new};
use crate::verbs::api::Api;
use crate::verbs::apply::{self, Applied};
use crate::verbs::create::{self, ManagedFields};
use crate::verbs::decode;
use crate::verbs::field_managers::{self, Conversions, Interrupted};
use crate::verbs::namespace_lifecycle;
use crate::verbs::payload;
use crate::verbs::request::{ResourceRequest, VerbResponse};
use crate::verbs::strategy;
use crate::verbs::write::{Current, Outcome, current, permit, to_store, write, write_new};
use restow_storageversion::custom::Write as Permit;

/// A change of an object.
enum Change {
    /// Replaces the object.
    Replace(Value),
    /// Patches the object.
    Patch(Patch, Value),
    /// Applies a configuration.
    Apply(Applied),
}

#[derive(Clone, Copy, PartialEq)]
enum Patch {
    Merge,
    Json,
    Strategic,
}

/// Answers an update.
pub(crate) async fn update(
    api: &Arc<Api>,
    mut request: ResourceRequest,
) -> Result<VerbResponse, StatusError> {
    let permit = permit(api, &mut request).await?;
    let size = request.body.len();
    let request = Arc::new(request);
    let reading = Arc::clone(&request);
    let sent = api.workers.run(size, move || create::sent(&reading)).await?;
    change(api, &request, permit.as_ref(), Change::Replace(sent)).await
}

/// Answers a patch.
pub(crate) async fn patch(api: &Arc<Api>, mut request: ResourceRequest) -> Result<VerbResponse, StatusError> {
    let permit = permit(api, &mut request).await?;
    let is_apply = payload::media(&request.content_type) == patching::APPLY;
    apply::check_options(&request, is_apply)?;
    if is_apply {
        let request = Arc::new(request);
        let reading = Arc::clone(&request);
        let applied = api.workers.run(request.body.len(), move || apply::read(&reading)).await?;
        return change(api, &request, permit.as_ref(), Change::Apply(applied)).await;
    }
    let kind = kind(&request)?;
    let sent = payload::json(&request.body).map_err(|failure| {
        StatusError::bad_request(format!("error decoding patch: {}", failure.message()))
    })?;
    change(api, &Arc::new(request), permit.as_ref(), Change::Patch(kind, sent)).await
}

fn kind(request: &ResourceRequest) -> Result<Patch, StatusError> {
    let built_in = matches!(request.resource.implementation, Implementation::BuiltIn(_));
    match payload::media(&request.content_type) {
        patching::MERGE => Ok(Patch::Merge),
        patching::JSON => Ok(Patch::Json),
        patching::STRATEGIC if built_in => Ok(Patch::Strategic),
        _ if built_in => Err(StatusError::unsupported_media_type(&[
            patching::JSON,
            patching::MERGE,
            patching::STRATEGIC,
            patching::APPLY,
        ])),
        _ => Err(StatusError::unsupported_media_type(&[patching::JSON, patching::MERGE, patching::APPLY])),
    }
}

async fn change(
    api: &Arc<Api>,
    request: &Arc<ResourceRequest>,
    permit: Option<&Permit>,
    change: Change,
) -> Result<VerbResponse, StatusError> {
    let change = Arc::new(change);
    let mut entry = api.entry(&request.key()).await?;
    loop {
        let Some(found) = entry else { return absent(api, request, permit, &change).await };
        let size = request.effort(request.body.len() + found.value.len());
        let before = Arc::new(current(api, request, found).await?);
        let computed = {
            let (own, calling, change, before) =
                (Arc::clone(api), Arc::clone(request), Arc::clone(&change), Arc::clone(&before));
            computed(api, request, size, move |conversions| {
                let (after, warnings) = changed(&calling, &before.object, &change, conversions)?;
                calling.permit(&own, &after, Some(&before.object))?;
                Ok((after, warnings))
            })
        };
        let (after, warnings) = computed.await?;
        match store(api, request, permit, &before, after).await? {
            Ok(object) => {
                let body = Body::from(request.view.answer(object));
                return Ok(VerbResponse { code: StatusCode::OK, body, warnings, made: None });
            }
            Err(faster) => entry = faster,
        }
    }
}

/// Computes an object, again and again until everything is converted that its field managers need.
async fn computed<T: Send + 'static>(
    api: &Arc<Api>,
    request: &ResourceRequest,
    size: usize,
    work: impl Fn(&Conversions) -> Result<T, Interrupted> + Send + Sync + 'static,
) -> Result<T, StatusError> {
    let (work, mut conversions) = (Arc::new(work), Conversions::default());
    loop {
        let working = Arc::clone(&work);
        let (done, result) = api
            .workers
            .run(size, move || {
                let result = working(&conversions);
                Ok((conversions, result))
            })
            .await?;
        conversions = done;
        match result {
            Ok(object) => return Ok(object),
            Err(Interrupted::Refused(error)) => return Err(error),
            Err(Interrupted::Convert(wanted)) => conversions.add(api, request, *wanted).await,
        }
    }
}

/// An update of some resources creates a missing object, and so does an apply of any.
async fn absent(
    api: &Arc<Api>,
    request: &Arc<ResourceRequest>,
    permit: Option<&Permit>,
    change: &Arc<Change>,
) -> Result<VerbResponse, StatusError> {
    let rules = request.rules();
    let may_create = match &**change {
        Change::Replace(_) => rules.create_on_update,
        Change::Apply(_) => true,
        Change::Patch(..) => false,
    };
    if !may_create || !request.target.subresource.is_empty() {
        return Err(request.not_found());
    }
    if !takes_new(&request.resource) {
        return Err(StatusError::verb_not_supported(&request.resource.name, "create"));
    }
    request.permit_create(api)?;
    let size = request.effort(request.body.len());
    let (calling, change) = (Arc::clone(request), Arc::clone(change));
    let managed =
        if matches!(&*change, Change::Apply(_)) { ManagedFields::Applied } else { ManagedFields::Recorded };
    let read =
        computed(api, request, size, move |conversions| new_object(&calling, &change, conversions)).await?;
    let unchanged = namespace_lifecycle::conditions(api, request, &request.target.name).await?;
    let mut object = create::made(api, request, size, read.object, managed).await?;
    if !request.options.dry_run {
        let bytes = to_store(api, request, permit, object.clone()).await?;
        match write_new(api, request, &request.target.name, bytes, unchanged).await? {
            Outcome::Done(revision) => set_version(&mut object, revision),
            Outcome::Conflict(_) => {
                return Err(StatusError::already_exists(&request.resource.name, &request.target.name));
            }
        }
    }
    let body = Body::from(request.view.answer(object));
    Ok(VerbResponse { code: StatusCode::CREATED, body, warnings: read.warnings, made: None })
}

/// The object that an update or an apply creates.
fn new_object(
    request: &ResourceRequest,
    change: &Change,
    conversions: &Conversions,
) -> Result<decode::DecodedObject, Interrupted> {
    let (rules, target) = (request.rules(), &request.target);
    let mut read = match change {
        Change::Apply(applied) => {
            let mut read = apply::merged(request, None, applied, conversions)?;
            apply::check_new_uid(request, &read.object)?;
            update::check_names(&mut read.object, &rules, &target.namespace, &target.name)?;
            return Ok(read);
        }
        Change::Replace(sent) => decode::read(request, sent.clone())?,
        Change::Patch(..) => return Err(request.not_found().into()),
    };
    update::check_names(&mut read.object, &rules, &target.namespace, &target.name)?;
    update::check_uid(&read.object, None, &rules, &request.key())?;
    Ok(read)
}

/// The changed object, and warnings.
fn changed(
    request: &ResourceRequest,
    old: &Value,
    change: &Change,
    conversions: &Conversions,
) -> Result<(Value, Vec<String>), Interrupted> {
    let rules = request.rules();
    let (mut new, mut warnings) = match change {
        Change::Apply(applied) => {
            let mut read = apply::merged(request, Some(old), applied, conversions)?;
            update::check_names(&mut read.object, &rules, &request.target.namespace, &request.target.name)?;
            (read.object, read.warnings)
        }
        Change::Replace(sent) => {
            let mut read = decode::read(request, sent.clone())?;
            update::check_names(&mut read.object, &rules, &request.target.namespace, &request.target.name)?;
            update::check_uid(&read.object, Some(old), &rules, &request.key())?;
            (read.object, read.warnings)
        }
        Change::Patch(kind, sent) => {
            let patched = match kind {
                Patch::Merge => patching::merge::apply(old, sent)?,
                Patch::Json => patching::json::apply(old, sent)?,
                Patch::Strategic => {
                    let name = &request.resource.name;
                    let kind = built_in::kind(&name.group, &request.resource.kind);
                    patching::strategic::apply(old, sent, kind)?
                }
            };
            // A patch that changes nothing cannot violate a rule that held before.
            if patched == *old && field_managers::is_lasting(request, old) {
                return Ok((patched, Vec::new()));
            }
            let object = payload::object(&request.resource, &request.view.api_version, patched.clone());
            let read = object.and_then(|object| decode::read(request, object));
            let mut read = read.map_err(|failure| unfit(&patched, failure))?;
            update::check_names(&mut read.object, &rules, &request.target.namespace, &request.target.name)?;
            (read.object, read.warnings)
        }
    };
    if !matches!(change, Change::Apply(_)) {
        field_managers::record(request, &mut new, Some(old), conversions)?;
    }
    update::prepare(&mut new, old, &rules, request.endpoint())?;
    strategy::on_update(request, &mut new, old)?;
    strategy::omit_empty(request, &mut new);
    let mut causes = validate::update(&new, old, &rules);
    causes.extend(strategy::validate(request, &new, Some(old)));
    if !causes.is_empty() {
        return Err(StatusError::invalid(&request.resource.group_kind(), name(old), causes).into());
    }
    update::restore_times(&mut new, old);
    if new["spec"] != old["spec"] {
        warnings.extend(strategy::warnings(request, &new));
    }
    Ok((new, warnings))
}

/// The error of a patch whose result is not an object of the resource.
fn unfit(patched: &Value, failure: StatusError) -> StatusError {
    if failure.code() == 400 { StatusError::unfit_patch(patched, failure.message()) } else { failure }
}

/// Stores an object unless it is unchanged. Returns the current entry on a conflict.
async fn store(
    api: &Api,
    request: &ResourceRequest,
    permit: Option<&Permit>,
    before: &Current,
    mut object: Value,
) -> Result<Result<Value, Option<Entry>>, StatusError> {
    let finished = update::is_finished(&object, &before.object) && strategy::may_go(request, &object);
    let value = if finished { None } else { Some(to_store(api, request, permit, object.clone()).await?) };
    let revision = before.entry.mod_revision;
    set_version(&mut object, revision);
    let same = value.as_ref() == Some(&before.entry.value) && !before.stale;
    if request.options.dry_run || same {
        return Ok(Ok(object));
    }
    Ok(match write(api, request, before.entry.key.clone(), revision, value).await? {
        Outcome::Done(revision) => {
            set_version(&mut object, revision);
            Ok(object)
        }
        Outcome::Conflict(current) => Err(current),
    })
}
