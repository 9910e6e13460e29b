//! Creates.

use std::sync::Arc;

use http::StatusCode;
use restow_storageversion::custom::Write as Permit;
use restow_store::Unchanged;
use serde_json::Value;

use crate::http::body::Body;
use crate::http::status::Failure;
use crate::object::meta::{create::Birth, create::is_generated, create::prepare, name, validate};
use crate::object::stored::set_version;
use crate::registry::resource::takes_new;
use crate::verbs::api::Api;
use crate::verbs::call::{Answer, Call};
use crate::verbs::decode;
use crate::verbs::field_managers;
use crate::verbs::namespace_lifecycle;
use crate::verbs::payload;
use crate::verbs::strategy;
use crate::verbs::write::{Outcome, permit, to_store, write_new};

/// How many names are tried for an object that is to be given one.
const NAMES: usize = 8;

/// Answers a create.
pub(crate) async fn create(api: &Arc<Api>, mut call: Call) -> Result<Answer, Failure> {
    let permit = permit(api, &mut call).await?;
    if !takes_new(&call.resource) {
        return Err(Failure::verb_not_supported(&call.resource.name, "create"));
    }
    let size = call.body.len();
    let call = Arc::new(call);
    let reading = Arc::clone(&call);
    let read = api.workers.run(size, move || decode::read(&reading, sent(&reading)?)).await?;
    let unchanged = namespace_lifecycle::conditions(api, &call, name(&read.object)).await?;
    let generated = is_generated(&read.object);
    let tries = if generated { NAMES } else { 1 };
    for last in (0..tries).rev() {
        let object = made(api, &call, size, read.object.clone()).await?;
        let stored = store(api, &call, permit.as_ref(), unchanged.clone(), object.clone()).await?;
        if let Some(object) = stored {
            let made = Some(name(&object).to_owned());
            let body = Body::from(call.view.answer(object));
            return Ok(Answer { code: StatusCode::CREATED, body, warnings: read.warnings, made });
        }
        if last == 0 {
            let taken = name(&object);
            return Err(if generated {
                Failure::generated_name_exists(&call.resource.name, taken)
            } else {
                Failure::already_exists(&call.resource.name, taken)
            });
        }
    }
    Err(Failure::plain("no name was tried"))
}

/// The object that was sent.
pub(super) fn sent(call: &Call) -> Result<Value, Failure> {
    let sent = payload::parse(&call.content_type, &call.body)?;
    payload::object(&call.resource, &call.view.api_version, sent)
}

/// A new object as it is to be stored, if its sender may store it.
pub(super) async fn made(
    api: &Arc<Api>,
    call: &Arc<Call>,
    size: usize,
    object: Value,
) -> Result<Value, Failure> {
    let size = call.effort(size);
    let (own, call) = (Arc::clone(api), Arc::clone(call));
    let work = move || {
        let object = born(&call, object)?;
        call.permit(&own, &object, None)?;
        Ok(object)
    };
    api.workers.run(size, work).await
}

/// A new object as it is to be stored.
fn born(call: &Call, mut object: Value) -> Result<Value, Failure> {
    let rules = call.rules();
    let uid = crate::object::uid::uid();
    let birth = Birth {
        namespace: &call.target.namespace,
        uid: &uid,
        now: restow_clock::now(),
        random: fastrand::u64(..),
    };
    prepare(&mut object, &rules, &birth)?;
    strategy::on_create(call, &mut object)?;
    strategy::settle(call, &mut object);
    field_managers::record(call, &mut object, None);
    let mut causes = validate::create(&object, &rules);
    causes.extend(strategy::validate(call, &object, None));
    if causes.is_empty() {
        return Ok(object);
    }
    Err(Failure::invalid(&call.resource.group_kind(), name(&object), causes))
}

/// Stores a new object; none if its name is taken.
async fn store(
    api: &Api,
    call: &Call,
    permit: Option<&Permit>,
    unchanged: Vec<Unchanged>,
    mut object: Value,
) -> Result<Option<Value>, Failure> {
    if call.options.dry_run {
        let key = call.resource.key(&call.target.namespace, name(&object));
        return Ok(api.entry(&key).await?.is_none().then_some(object));
    }
    let bytes = to_store(api, call, permit, object.clone()).await?;
    match write_new(api, call, name(&object), bytes, unchanged).await? {
        Outcome::Done(revision) => {
            set_version(&mut object, revision);
            Ok(Some(object))
        }
        Outcome::Faster(_) => Ok(None),
    }
}
