//! Deletes.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::StatusCode;
use restow_core::protocol::request::ResourcePath;
use restow_storageversion::gate::Passage;
use restow_store::Entry;
use serde_json::{Value, json};

use crate::auth::user::User;
use crate::http::body::Body;
use crate::http::json;
use crate::http::negotiation::Accepted;
use crate::http::options::Include;
use crate::http::status::Failure;
use crate::object::meta::delete::{Deletion, Options, decide};
use crate::object::meta::{name, text};
use crate::object::stored::set_version;
use crate::registry::resource::{Nature, Resource};
use crate::verbs::api::{Api, NOT_REGISTERED};
use crate::verbs::call::{Answer, Call, OWN_AGENT};
use crate::verbs::list::{Pages, Start};
use crate::verbs::payload;
use crate::verbs::query::Wanted;
use crate::verbs::selection::Selection;
use crate::verbs::strategy;
use crate::verbs::view::View;
use crate::verbs::write::{Outcome, current, permit, to_store, write};

/// How many objects of a collection are deleted at once.
const AT_ONCE: usize = 16;

/// What a delete has come to.
struct Deleted {
    object: Value,
    /// Whether it is gone.
    gone: bool,
}

/// Answers a delete.
pub(crate) async fn delete(api: &Api, mut call: Call) -> Result<Answer, Failure> {
    let _permit = permit(api, &mut call).await?;
    let options = options(&call)?;
    let entry = api.entry(&call.key()).await?.ok_or_else(|| call.not_found())?;
    let deleted = remove(api, &call, &options, entry).await?.ok_or_else(|| call.not_found())?;
    let code = if !deleted.gone && options.orphan_dependents == Some(false) {
        StatusCode::ACCEPTED
    } else {
        StatusCode::OK
    };
    let returned = match &call.resource.nature {
        Nature::BuiltIn(built_in) => built_in.returns_deleted,
        Nature::Custom(_) => false,
    };
    let bytes = if deleted.gone && !returned {
        json::encode(&success(&call, &deleted.object))
    } else {
        call.view.answer(deleted.object)
    };
    Ok(Answer { code, body: Body::from(bytes), warnings: Vec::new(), made: None })
}

fn success(call: &Call, object: &Value) -> Value {
    let mut details = json!({
        "name": name(object), "kind": call.resource.name.resource, "uid": text(object, "uid"),
    });
    if !call.resource.name.group.is_empty() {
        details["group"] = json!(call.resource.name.group);
    }
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details })
}

/// How it is to be deleted: by its body, else by its query.
fn options(call: &Call) -> Result<Options, Failure> {
    let mut options = if call.body.is_empty() {
        let query = &call.options;
        Options {
            grace_period_seconds: query.grace_period_seconds,
            propagation_policy: query.propagation_policy.clone(),
            orphan_dependents: query.orphan_dependents,
            ..Options::default()
        }
    } else {
        Options::parse(&payload::parse(&call.content_type, &call.body)?)?
    };
    options.check(None)?;
    options.dry_run |= call.options.dry_run;
    Ok(options)
}

/// Deletes what an entry holds; none if it is gone already.
async fn remove(api: &Api, call: &Call, options: &Options, found: Entry) -> Result<Option<Deleted>, Failure> {
    let (made, mut entry) = (found.create_revision, Some(found));
    while let Some(found) = entry {
        let before = current(api, call, found).await?;
        strategy::on_delete(call, &before.object)?;
        let mut object = before.object.clone();
        strategy::hold(call, &mut object);
        let decided = decide(&object, &call.rules(), options, restow_clock::now())?;
        let decided = strategy::deletion(call, &before.object, decided);
        let (value, mut after) = match decided {
            Deletion::Pending => return Ok(Some(Deleted { object: before.object, gone: false })),
            Deletion::Remove => (None, before.object),
            Deletion::Mark(marked) => (Some(to_store(api, call, None, marked.clone()).await?), marked),
        };
        let gone = value.is_none();
        if options.dry_run {
            return Ok(Some(Deleted { object: after, gone }));
        }
        match write(api, call, before.entry.key, before.entry.mod_revision, value).await? {
            Outcome::Done(revision) => {
                set_version(&mut after, revision);
                return Ok(Some(Deleted { object: after, gone }));
            }
            // What was made meanwhile under the same name is another object.
            Outcome::Faster(current) => entry = current.filter(|current| current.create_revision == made),
        }
    }
    Ok(None)
}

/// Deletes a custom object as it is stored, whether or not any of its versions is served; tells whether it is gone.
pub(crate) async fn delete_stored(
    api: &Api,
    resource: &Arc<Resource>,
    entry: Entry,
    options: &Options,
) -> Result<bool, Failure> {
    let permit = resource.custom().and_then(|custom| custom.writer().write());
    let _permit = permit.ok_or_else(|| Failure::service_unavailable(NOT_REGISTERED))?;
    let version = &resource.stored.version;
    let rest = entry.key.strip_prefix(&resource.prefix).unwrap_or_default();
    let (namespace, name) = rest.split_once('/').unwrap_or(("", rest));
    let call = Call {
        target: ResourcePath {
            group: resource.name.group.clone(),
            version: version.clone(),
            resource: resource.name.resource.clone(),
            namespace: namespace.to_owned(),
            in_namespace: resource.namespaced,
            name: name.to_owned(),
            subresource: String::new(),
            has_more: false,
        },
        options: crate::http::options::Options::default(),
        accepted: Accepted::default(),
        view: View::new(resource, version, Accepted::default(), Include::default()),
        resource: Arc::clone(resource),
        content_type: String::new(),
        body: Bytes::new(),
        manager: OWN_AGENT.to_owned(),
        sender: User::loopback(),
        passage: Passage::Open,
    };
    let removed = remove(api, &call, options, entry).await?;
    Ok(removed.is_none_or(|removed| removed.gone))
}

/// Answers a delete of many; what is made meanwhile stays.
pub(crate) async fn delete_collection(
    api: &Arc<Api>,
    mut call: Call,
    selection: Selection,
) -> Result<Answer, Failure> {
    let _permit = permit(api, &mut call).await?;
    let options = options(&call)?;
    let wanted = Wanted {
        resource: Arc::clone(&call.resource),
        namespace: call.target.namespace.clone(),
        selection,
        view: call.view.clone(),
    };
    let mut pages = Pages::new(Arc::clone(api), wanted, Start::default(), call.options.limit);
    let mut items = Vec::new();
    while let Some(page) = pages.next().await? {
        let each = |object: Value| remove_listed(api, &call, &options, object);
        let mut removed = stream::iter(page.objects).map(each).buffered(AT_ONCE);
        while let Some(removed) = removed.next().await {
            items.extend(removed?.map(|deleted| deleted.object));
        }
    }
    let list = json!({
        "apiVersion": call.view.api_version, "kind": call.view.list_kind,
        "metadata": { "resourceVersion": pages.revision().to_string() }, "items": items,
    });
    Ok(Answer {
        code: StatusCode::OK,
        body: Body::from(json::encode(&list)),
        warnings: Vec::new(),
        made: None,
    })
}

async fn remove_listed(
    api: &Api,
    call: &Call,
    options: &Options,
    object: Value,
) -> Result<Option<Deleted>, Failure> {
    let key = call.resource.key(text(&object, "namespace"), name(&object));
    match api.entry(&key).await? {
        Some(entry) => remove(api, call, options, entry).await,
        None => Ok(None),
    }
}
