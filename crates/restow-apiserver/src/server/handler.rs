//! Dispatches requests to the verbs, and turns errors into responses.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use restow_core::protocol::request::ResourcePath;
use restow_storageversion::gate::Passage;
use serde_json::json;

use crate::auth::user::{Sender, sender};
use crate::docs::endpoints;
use crate::http::body::Body;
use crate::http::negotiation::{ACCEPTED, RequestedItem, negotiate};
use crate::http::options::InvalidOption;
use crate::http::request_info::{RequestInfo, Verb, attached};
use crate::http::response::{CreatedName, error_response, text};
use crate::http::status::{Cause, GroupKind, StatusError};
use crate::http::warnings;
use crate::registry::resource::Resource;
use crate::registry::reviews;
use crate::verbs::api::Api;
use crate::verbs::create::create;
use crate::verbs::delete::{delete, delete_collection};
use crate::verbs::field_managers::manager;
use crate::verbs::get::get;
use crate::verbs::list::list;
use crate::verbs::query::ListQuery;
use crate::verbs::request::{OWN_AGENT, ResourceRequest, VerbResponse};
use crate::verbs::review;
use crate::verbs::selection::Selection;
use crate::verbs::update::{patch, update};
use crate::verbs::view::View;
use crate::verbs::watch::watch;

/// The field manager of requests without a User-Agent.
const UNKNOWN_AGENT: &str = "unknown";
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const YAML: HeaderValue = HeaderValue::from_static("application/yaml");

/// Answers a request.
pub(crate) async fn handle(api: &Arc<Api>, request: Request<Bytes>) -> Response<Body> {
    match answer(api, request).await {
        Ok(response) => response,
        Err(failure) => error_response(&failure),
    }
}

async fn answer(api: &Arc<Api>, request: Request<Bytes>) -> Result<Response<Body>, StatusError> {
    let (head, body) = request.into_parts();
    let info = attached(&head).ok_or_else(|| StatusError::internal("no RequestInfo found in the context"))?;
    match &info.resource {
        Some(target) => {
            let (answer, yaml) = on_resource(api, &head, body, info, target).await?;
            Ok(respond(answer, yaml))
        }
        None => endpoints::answer(api, &head, info).await,
    }
}

/// The response, and whether it is YAML.
async fn on_resource(
    api: &Arc<Api>,
    head: &http::request::Parts,
    body: Bytes,
    info: &RequestInfo,
    target: &Arc<ResourcePath>,
) -> Result<(VerbResponse, bool), StatusError> {
    let size = body.len();
    if let Some(review) = reviews::find(&target.group, &target.version, &target.resource) {
        let (own, head, target) = (Arc::clone(api), head.clone(), Arc::clone(target));
        let work = move || review::answer(&own, review, &head, &body, &target);
        return Ok((api.workers.run(size, work).await?, false));
    }
    let (verb, request) = resource_request(api, head, body, info, target)?;
    let warning = request.resource.custom().and_then(|custom| custom.warning(&request.target.version));
    let warning = warning.map(str::to_owned);
    let yaml = request.accepted.yaml;
    let mut answer = perform(api, verb, request).await?;
    answer.warnings.extend(warning);
    Ok((answer, yaml))
}

async fn perform(api: &Arc<Api>, verb: Verb, request: ResourceRequest) -> Result<VerbResponse, StatusError> {
    let selection = match verb {
        Verb::List | Verb::Watch | Verb::DeleteCollection => {
            Selection::of(&request.resource, &request.target.version, &request.options)?
        }
        _ => Selection::default(),
    };
    match verb {
        Verb::Get => get(api, &request).await,
        Verb::List => list(api, list_query(&request, selection), &request.options).await.map(whole),
        Verb::Watch => watch(api, list_query(&request, selection), &request.options).await.map(whole),
        Verb::Create => create(api, request).await,
        Verb::Update => update(api, request).await,
        Verb::Patch => patch(api, request).await,
        Verb::Delete => delete(api, request).await,
        Verb::DeleteCollection => delete_collection(api, request, selection).await,
    }
}

fn list_query(request: &ResourceRequest, selection: Selection) -> ListQuery {
    let namespace =
        if request.resource.namespaced { request.target.namespace.clone() } else { String::new() };
    ListQuery { resource: Arc::clone(&request.resource), namespace, selection, view: request.view.clone() }
}

fn whole(body: Body) -> VerbResponse {
    VerbResponse { code: StatusCode::OK, body, warnings: Vec::new(), made: None }
}

/// Resolves a resource request.
fn resource_request(
    api: &Api,
    head: &http::request::Parts,
    body: Bytes,
    info: &RequestInfo,
    target: &Arc<ResourcePath>,
) -> Result<(Verb, ResourceRequest), StatusError> {
    let resource = api.registry.find(&target.group, &target.version, &target.resource);
    let resource = resource.ok_or_else(|| match api.registry.served().has_group(&target.group) {
        true => StatusError::unknown_path(),
        false => StatusError::no_page(),
    })?;
    let mut options = info.options.clone().map_err(invalid)?;
    let verb = info.verb.ok_or_else(StatusError::method_not_allowed)?;
    if verb == Verb::Watch && !target.name.is_empty() {
        options.field_selector = format!("metadata.name={}", target.name);
    }
    check_supported(&resource, target, verb)?;
    let asked = if verb == Verb::List { RequestedItem::List } else { RequestedItem::One };
    let accept = text(&head.headers, header::ACCEPT);
    let accepted = negotiate(accept, asked).ok_or_else(|| StatusError::not_acceptable(ACCEPTED))?;
    let view = View::new(&resource, &target.version, accepted, options.include_object);
    let agent = match text(&head.headers, header::USER_AGENT) {
        "" if head.extensions.get::<Sender>().is_none() => OWN_AGENT,
        "" => UNKNOWN_AGENT,
        agent => agent,
    };
    let manager = manager(&options.field_manager, agent);
    let content_type = text(&head.headers, header::CONTENT_TYPE).to_owned();
    let sender = sender(head);
    // Only the server's own identity Lease is written around the gate. Custom resources pass the gate, because each of them
    // is registered separately; the server still has to be a member.
    let passage = match head.extensions.get::<Passage>() {
        _ if resource.custom().is_some() => Passage::Open,
        Some(passage) => *passage,
        None => Passage::Exempt,
    };
    Ok((
        verb,
        ResourceRequest {
            resource,
            target: ResourcePath::clone(target),
            options,
            accepted,
            view,
            content_type,
            body,
            manager,
            sender,
            passage,
        },
    ))
}

/// Refuses a path or verb that the resource does not support.
fn check_supported(resource: &Resource, target: &ResourcePath, verb: Verb) -> Result<(), StatusError> {
    let below = !target.subresource.is_empty();
    if below && !resource.has(&target.version, &target.subresource) {
        return Err(StatusError::unknown_path());
    }
    if resource.namespaced {
        let everywhere = target.namespace.is_empty();
        if everywhere && !target.name.is_empty() {
            return Err(StatusError::unknown_path());
        }
        if everywhere && !matches!(verb, Verb::List | Verb::Watch) {
            return Err(StatusError::method_not_allowed());
        }
    } else if target.in_namespace {
        return Err(StatusError::unknown_path());
    }
    let allowed = match verb {
        Verb::Create => target.name.is_empty(),
        Verb::Get | Verb::Update | Verb::Patch => true,
        // Namespaces can only be deleted by name.
        Verb::DeleteCollection if resource.is_namespaces() => false,
        Verb::Delete | Verb::DeleteCollection | Verb::List | Verb::Watch => !below,
    };
    if allowed { Ok(()) } else { Err(StatusError::method_not_allowed()) }
}

fn invalid(error: InvalidOption) -> StatusError {
    match error {
        InvalidOption::Unsupported { name, value, known } => {
            let cause = Cause::not_supported(name, &json!(value), known);
            StatusError::invalid(&GroupKind::new("meta.k8s.io", "Options"), "", vec![cause])
        }
        InvalidOption::Form { .. } => StatusError::bad_request(error.to_string()),
    }
}

fn respond(answer: VerbResponse, yaml: bool) -> Response<Body> {
    let body = if yaml { in_yaml(answer.body) } else { answer.body };
    let mut response = Response::new(body);
    *response.status_mut() = answer.code;
    if let Some(name) = answer.made {
        response.extensions_mut().insert(CreatedName(name));
    }
    let media = if yaml { YAML } else { JSON };
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    for warning in warnings::headers(&answer.warnings) {
        response.headers_mut().append(header::WARNING, warning);
    }
    response
}

/// The body in YAML. A stream stays JSON, which is YAML too.
fn in_yaml(body: Body) -> Body {
    let Some(bytes) = body.whole() else { return body };
    let read = serde_json::from_slice::<serde_json::Value>(bytes).ok();
    match read.and_then(|value| serde_saphyr::to_string(&value).ok()) {
        Some(text) => Body::from(Bytes::from(text)),
        None => body,
    }
}
