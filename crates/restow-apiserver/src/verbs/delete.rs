//! Delete and deletecollection.

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
use crate::http::options::IncludeObject;
use crate::http::status::StatusError;
use crate::object::meta::delete::{Deletion, Options, decide};
use crate::object::meta::{name, text};
use crate::object::stored::set_version;
use crate::registry::resource::{Implementation, Resource};
use crate::verbs::api::{Api, NOT_REGISTERED};
use crate::verbs::list::{ListStart, Pages};
use crate::verbs::payload;
use crate::verbs::query::ListQuery;
use crate::verbs::request::{OWN_AGENT, ResourceRequest, VerbResponse};
use crate::verbs::selection::Selection;
use crate::verbs::strategy;
use crate::verbs::view::View;
use crate::verbs::write::{Outcome, current, permit, to_store, write};

/// How many objects of a collection are deleted at once.
const AT_ONCE: usize = 16;

/// The result of a delete.
struct Deleted {
    object: Value,
    /// Whether the object no longer exists.
    gone: bool,
}

/// Answers a delete.
pub(crate) async fn delete(api: &Api, mut request: ResourceRequest) -> Result<VerbResponse, StatusError> {
    let _permit = permit(api, &mut request).await?;
    let options = options(&request)?;
    let entry = api.entry(&request.key()).await?.ok_or_else(|| request.not_found())?;
    let deleted = remove(api, &request, &options, entry).await?.ok_or_else(|| request.not_found())?;
    let code = if !deleted.gone && options.orphan_dependents == Some(false) {
        StatusCode::ACCEPTED
    } else {
        StatusCode::OK
    };
    let returned = match &request.resource.implementation {
        Implementation::BuiltIn(built_in) => built_in.returns_deleted,
        Implementation::Custom(_) => false,
    };
    let bytes = if deleted.gone && !returned {
        json::encode(&success(&request, &deleted.object))
    } else {
        request.view.answer(deleted.object)
    };
    Ok(VerbResponse { code, body: Body::from(bytes), warnings: Vec::new(), made: None })
}

fn success(request: &ResourceRequest, object: &Value) -> Value {
    let mut details = json!({
        "name": name(object), "kind": request.resource.name.resource, "uid": text(object, "uid"),
    });
    if !request.resource.name.group.is_empty() {
        details["group"] = json!(request.resource.name.group);
    }
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details })
}

/// The delete options, from the body or else from the query.
fn options(request: &ResourceRequest) -> Result<Options, StatusError> {
    let mut options = if request.body.is_empty() {
        let query = &request.options;
        Options {
            grace_period_seconds: query.grace_period_seconds,
            propagation_policy: query.propagation_policy.clone(),
            orphan_dependents: query.orphan_dependents,
            ..Options::default()
        }
    } else {
        Options::parse(&payload::parse(&request.content_type, &request.body)?)?
    };
    options.check(None)?;
    options.dry_run |= request.options.dry_run;
    Ok(options)
}

/// Deletes the object of an entry; none if it no longer exists.
async fn remove(
    api: &Api,
    request: &ResourceRequest,
    options: &Options,
    found: Entry,
) -> Result<Option<Deleted>, StatusError> {
    let (made, mut entry) = (found.create_revision, Some(found));
    while let Some(found) = entry {
        let before = current(api, request, found).await?;
        strategy::on_delete(request, &before.object)?;
        let mut object = before.object.clone();
        strategy::hold(request, &mut object);
        let decided = decide(&object, &request.rules(), options, restow_clock::now())?;
        let decided = strategy::deletion(request, &before.object, decided);
        let (value, mut after) = match decided {
            Deletion::Pending => return Ok(Some(Deleted { object: before.object, gone: false })),
            Deletion::Remove => (None, before.object),
            Deletion::Mark(marked) => (Some(to_store(api, request, None, marked.clone()).await?), marked),
        };
        let gone = value.is_none();
        if options.dry_run {
            return Ok(Some(Deleted { object: after, gone }));
        }
        match write(api, request, before.entry.key, before.entry.mod_revision, value).await? {
            Outcome::Done(revision) => {
                set_version(&mut after, revision);
                return Ok(Some(Deleted { object: after, gone }));
            }
            // An object that was created meanwhile under the same name is another one.
            Outcome::Conflict(current) => entry = current.filter(|current| current.create_revision == made),
        }
    }
    Ok(None)
}

/// Deletes a stored custom object, even if none of its versions is served. Returns whether it no longer exists.
pub(crate) async fn delete_stored(
    api: &Api,
    resource: &Arc<Resource>,
    entry: Entry,
    options: &Options,
) -> Result<bool, StatusError> {
    let permit = resource.custom().and_then(|custom| custom.writer().write());
    let _permit = permit.ok_or_else(|| StatusError::service_unavailable(NOT_REGISTERED))?;
    let version = &resource.stored.version;
    let rest = entry.key.strip_prefix(&resource.prefix).unwrap_or_default();
    let (namespace, name) = rest.split_once('/').unwrap_or(("", rest));
    let request = ResourceRequest {
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
        view: View::new(resource, version, Accepted::default(), IncludeObject::default()),
        resource: Arc::clone(resource),
        content_type: String::new(),
        body: Bytes::new(),
        manager: OWN_AGENT.to_owned(),
        sender: User::loopback(),
        passage: Passage::Open,
    };
    let removed = remove(api, &request, options, entry).await?;
    Ok(removed.is_none_or(|removed| removed.gone))
}

/// Answers a deletecollection. Objects that are created meanwhile stay.
pub(crate) async fn delete_collection(
    api: &Arc<Api>,
    mut request: ResourceRequest,
    selection: Selection,
) -> Result<VerbResponse, StatusError> {
    let _permit = permit(api, &mut request).await?;
    let options = options(&request)?;
    let wanted = ListQuery {
        resource: Arc::clone(&request.resource),
        namespace: request.target.namespace.clone(),
        selection,
        view: request.view.clone(),
    };
    let mut pages = Pages::new(Arc::clone(api), wanted, ListStart::default(), request.options.limit);
    let mut items = Vec::new();
    while let Some(page) = pages.next().await? {
        let each = |object: Value| remove_listed(api, &request, &options, object);
        let mut removed = stream::iter(page.objects).map(each).buffered(AT_ONCE);
        while let Some(removed) = removed.next().await {
            items.extend(removed?.map(|deleted| deleted.object));
        }
    }
    let list = json!({
        "apiVersion": request.view.api_version, "kind": request.view.list_kind,
        "metadata": { "resourceVersion": pages.revision().to_string() }, "items": items,
    });
    Ok(VerbResponse {
        code: StatusCode::OK,
        body: Body::from(json::encode(&list)),
        warnings: Vec::new(),
        made: None,
    })
}

async fn remove_listed(
    api: &Api,
    request: &ResourceRequest,
    options: &Options,
    object: Value,
) -> Result<Option<Deleted>, StatusError> {
    let key = request.resource.key(text(&object, "namespace"), name(&object));
    match api.entry(&key).await? {
        Some(entry) => remove(api, request, options, entry).await,
        None => Ok(None),
    }
}
