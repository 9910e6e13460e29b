//! Updates and patches: computed anew from what is read anew until they are stored.

use std::sync::Arc;

use http::StatusCode;
use restow_store::Entry;
use serde_json::Value;

use crate::http::body::Body;
use crate::http::status::Failure;
use crate::object::meta::{name, update, validate};
use crate::object::patch as patching;
use crate::object::stored::set_version;
use crate::object::structure::built_in;
use crate::registry::resource::Nature;
use crate::verbs::api::Api;
use crate::verbs::call::{Answer, Call};
use crate::verbs::create;
use crate::verbs::decode;
use crate::verbs::field_managers;
use crate::verbs::namespace_lifecycle;
use crate::verbs::payload;
use crate::verbs::strategy;
use crate::verbs::write::{Current, Outcome, current, permit, to_store, write, write_new};
use restow_storageversion::custom::Write as Permit;

/// What is to become of an object.
enum Change {
    /// This.
    Replace(Value),
    /// What the patch makes of it.
    Patch(Patch, Value),
}

#[derive(Clone, Copy, PartialEq)]
enum Patch {
    Merge,
    Json,
    Strategic,
}

/// Answers an update.
pub(crate) async fn update(api: &Arc<Api>, mut call: Call) -> Result<Answer, Failure> {
    let permit = permit(api, &mut call).await?;
    let size = call.body.len();
    let call = Arc::new(call);
    let reading = Arc::clone(&call);
    let sent = api.workers.run(size, move || create::sent(&reading)).await?;
    change(api, &call, permit.as_ref(), Change::Replace(sent)).await
}

/// Answers a patch.
pub(crate) async fn patch(api: &Arc<Api>, mut call: Call) -> Result<Answer, Failure> {
    let permit = permit(api, &mut call).await?;
    let kind = kind(&call)?;
    let sent = payload::json(&call.body)
        .map_err(|failure| Failure::bad_request(format!("error decoding patch: {}", failure.message())))?;
    change(api, &Arc::new(call), permit.as_ref(), Change::Patch(kind, sent)).await
}

fn kind(call: &Call) -> Result<Patch, Failure> {
    let built_in = matches!(call.resource.nature, Nature::BuiltIn(_));
    match payload::media(&call.content_type) {
        patching::MERGE => Ok(Patch::Merge),
        patching::JSON => Ok(Patch::Json),
        patching::STRATEGIC if built_in => Ok(Patch::Strategic),
        _ if built_in => {
            Err(Failure::unsupported_media_type(&[patching::JSON, patching::MERGE, patching::STRATEGIC]))
        }
        _ => Err(Failure::unsupported_media_type(&[patching::JSON, patching::MERGE])),
    }
}

async fn change(
    api: &Arc<Api>,
    call: &Arc<Call>,
    permit: Option<&Permit>,
    change: Change,
) -> Result<Answer, Failure> {
    let change = Arc::new(change);
    let mut entry = api.entry(&call.key()).await?;
    loop {
        let Some(found) = entry else { return absent(api, call, permit, &change).await };
        let size = call.effort(call.body.len() + found.value.len());
        let before = current(api, call, found).await?;
        let (own, calling, change) = (Arc::clone(api), Arc::clone(call), Arc::clone(&change));
        let work = move || {
            let (after, warnings) = changed(&calling, &before.object, &change)?;
            calling.permit(&own, &after, Some(&before.object))?;
            Ok((before, after, warnings))
        };
        let (before, after, warnings) = api.workers.run(size, work).await?;
        match store(api, call, permit, before, after).await? {
            Ok(object) => {
                let body = Body::from(call.view.answer(object));
                return Ok(Answer { code: StatusCode::OK, body, warnings, made: None });
            }
            Err(faster) => entry = faster,
        }
    }
}

/// An update of some resources makes what is not there.
async fn absent(
    api: &Arc<Api>,
    call: &Arc<Call>,
    permit: Option<&Permit>,
    change: &Change,
) -> Result<Answer, Failure> {
    let rules = call.rules();
    let Change::Replace(sent) = change else { return Err(call.not_found()) };
    if !rules.create_on_update || !call.target.subresource.is_empty() {
        return Err(call.not_found());
    }
    call.permit_create(api)?;
    let mut read = decode::read(call, sent.clone())?;
    update::check_names(&mut read.object, &rules, &call.target.namespace, &call.target.name)?;
    update::check_uid(&read.object, None, &rules, &call.key())?;
    let unchanged = namespace_lifecycle::conditions(api, call, &call.target.name).await?;
    let mut object = create::made(api, call, call.body.len(), read.object).await?;
    if !call.options.dry_run {
        let bytes = to_store(api, call, permit, object.clone()).await?;
        match write_new(api, call, &call.target.name, bytes, unchanged).await? {
            Outcome::Done(revision) => set_version(&mut object, revision),
            Outcome::Faster(_) => {
                return Err(Failure::already_exists(&call.resource.name, &call.target.name));
            }
        }
    }
    let body = Body::from(call.view.answer(object));
    Ok(Answer { code: StatusCode::CREATED, body, warnings: read.warnings, made: None })
}

/// The object as it is to be, and what to warn of.
fn changed(call: &Call, old: &Value, change: &Change) -> Result<(Value, Vec<String>), Failure> {
    let rules = call.rules();
    let (mut new, warnings) = match change {
        Change::Replace(sent) => {
            let mut read = decode::read(call, sent.clone())?;
            update::check_names(&mut read.object, &rules, &call.target.namespace, &call.target.name)?;
            update::check_uid(&read.object, Some(old), &rules, &call.key())?;
            (read.object, read.warnings)
        }
        Change::Patch(kind, sent) => {
            let patched = match kind {
                Patch::Merge => patching::merge::apply(old, sent)?,
                Patch::Json => patching::json::apply(old, sent)?,
                Patch::Strategic => {
                    let name = &call.resource.name;
                    let kind = built_in::kind(&name.group, &call.resource.kind);
                    patching::strategic::apply(old, sent, kind)?
                }
            };
            // What changes nothing can break no rule that was kept before.
            if patched == *old && field_managers::is_lasting(call, old) {
                return Ok((patched, Vec::new()));
            }
            let object = payload::object(&call.resource, &call.view.api_version, patched.clone());
            let read = object.and_then(|object| decode::read(call, object));
            let mut read = read.map_err(|failure| unfit(&patched, failure))?;
            update::check_names(&mut read.object, &rules, &call.target.namespace, &call.target.name)?;
            (read.object, read.warnings)
        }
    };
    field_managers::record(call, &mut new, Some(old));
    update::prepare(&mut new, old, &rules, call.endpoint())?;
    strategy::on_update(call, &mut new, old)?;
    strategy::settle(call, &mut new);
    let mut causes = validate::update(&new, old, &rules);
    causes.extend(strategy::validate(call, &new, Some(old)));
    if !causes.is_empty() {
        return Err(Failure::invalid(&call.resource.group_kind(), name(old), causes));
    }
    update::settle(&mut new, old);
    Ok((new, warnings))
}

/// A patch that makes something else of an object is refused as a whole.
fn unfit(patched: &Value, failure: Failure) -> Failure {
    if failure.code() == 400 { Failure::unfit_patch(patched, failure.message()) } else { failure }
}

/// Stores an object unless it is stored just so already; else what is there when another was faster.
async fn store(
    api: &Api,
    call: &Call,
    permit: Option<&Permit>,
    before: Current,
    mut object: Value,
) -> Result<Result<Value, Option<Entry>>, Failure> {
    let finished = update::is_finished(&object, &before.object) && strategy::may_go(call, &object);
    let value = if finished { None } else { Some(to_store(api, call, permit, object.clone()).await?) };
    let revision = before.entry.mod_revision;
    set_version(&mut object, revision);
    let same = value.as_ref() == Some(&before.entry.value) && !before.stale;
    if call.options.dry_run || same {
        return Ok(Ok(object));
    }
    Ok(match write(api, call, before.entry.key, revision, value).await? {
        Outcome::Done(revision) => {
            set_version(&mut object, revision);
            Ok(object)
        }
        Outcome::Faster(current) => Err(current),
    })
}
