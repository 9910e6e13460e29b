//! From a request to its answer: which handler it is for, and how failures are told.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use restow_core::protocol::request::ResourcePath;
use restow_storageversion::gate::Passage;
use serde_json::json;

use crate::auth::user::{Sender, sender};
use crate::docs::endpoints;
use crate::http::body::Body;
use crate::http::negotiation::{ACCEPTED, Asked, negotiate};
use crate::http::options::InvalidOption;
use crate::http::request_info::{RequestInfo, Verb, attached};
use crate::http::response::{Named, refuse, text};
use crate::http::status::{Cause, Failure, GroupKind};
use crate::http::warnings;
use crate::object::managed_fields::manager;
use crate::registry::resource::Resource;
use crate::registry::reviews;
use crate::verbs::api::Api;
use crate::verbs::call::{Answer, Call, OWN_AGENT};
use crate::verbs::create::create;
use crate::verbs::delete::{delete, delete_collection};
use crate::verbs::get::get;
use crate::verbs::list::list;
use crate::verbs::query::Wanted;
use crate::verbs::review;
use crate::verbs::selection::Selection;
use crate::verbs::update::{patch, update};
use crate::verbs::view::View;
use crate::verbs::watch::watch;

/// Who writes without saying who it is.
const UNKNOWN_AGENT: &str = "unknown";
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const YAML: HeaderValue = HeaderValue::from_static("application/yaml");

/// Answers a request.
pub(crate) async fn handle(api: &Arc<Api>, request: Request<Bytes>) -> Response<Body> {
    match answer(api, request).await {
        Ok(response) => response,
        Err(failure) => refuse(&failure),
    }
}

async fn answer(api: &Arc<Api>, request: Request<Bytes>) -> Result<Response<Body>, Failure> {
    let (head, body) = request.into_parts();
    let info = attached(&head).ok_or_else(|| Failure::internal("no RequestInfo found in the context"))?;
    match &info.resource {
        Some(target) => {
            let (answer, yaml) = on_resource(api, &head, body, info, target).await?;
            Ok(respond(answer, yaml))
        }
        None => endpoints::answer(api, &head, info).await,
    }
}

/// The answer, and whether it is to be written as YAML.
async fn on_resource(
    api: &Arc<Api>,
    head: &http::request::Parts,
    body: Bytes,
    info: &RequestInfo,
    target: &Arc<ResourcePath>,
) -> Result<(Answer, bool), Failure> {
    let size = body.len();
    if let Some(review) = reviews::find(&target.group, &target.version, &target.resource) {
        let (own, head, target) = (Arc::clone(api), head.clone(), Arc::clone(target));
        let work = move || review::answer(&own, review, &head, &body, &target);
        return Ok((api.workers.run(size, work).await?, false));
    }
    let (verb, call) = call(api, head, body, info, target)?;
    let warning = call.resource.custom().and_then(|custom| custom.warning(&call.target.version));
    let warning = warning.map(str::to_owned);
    let yaml = call.accepted.yaml;
    let mut answer = perform(api, verb, call).await?;
    answer.warnings.extend(warning);
    Ok((answer, yaml))
}

async fn perform(api: &Arc<Api>, verb: Verb, call: Call) -> Result<Answer, Failure> {
    let selection = match verb {
        Verb::List | Verb::Watch | Verb::DeleteCollection => {
            Selection::of(&call.resource, &call.target.version, &call.options)?
        }
        _ => Selection::default(),
    };
    match verb {
        Verb::Get => get(api, &call).await,
        Verb::List => list(api, wanted(&call, selection), &call.options).await.map(whole),
        Verb::Watch => watch(api, wanted(&call, selection), &call.options).await.map(whole),
        Verb::Create => create(api, call).await,
        Verb::Update => update(api, call).await,
        Verb::Patch => patch(api, call).await,
        Verb::Delete => delete(api, call).await,
        Verb::DeleteCollection => delete_collection(api, call, selection).await,
    }
}

fn wanted(call: &Call, selection: Selection) -> Wanted {
    let namespace = if call.resource.namespaced { call.target.namespace.clone() } else { String::new() };
    Wanted { resource: Arc::clone(&call.resource), namespace, selection, view: call.view.clone() }
}

fn whole(body: Body) -> Answer {
    Answer { code: StatusCode::OK, body, warnings: Vec::new(), made: None }
}

/// Reads what a request asks of a resource.
fn call(
    api: &Api,
    head: &http::request::Parts,
    body: Bytes,
    info: &RequestInfo,
    target: &Arc<ResourcePath>,
) -> Result<(Verb, Call), Failure> {
    let resource = api.registry.find(&target.group, &target.version, &target.resource);
    let resource = resource.ok_or_else(|| match api.registry.served().has_group(&target.group) {
        true => Failure::unknown_path(),
        false => Failure::no_page(),
    })?;
    let mut options = info.options.clone().map_err(invalid)?;
    let verb = info.verb.ok_or_else(Failure::method_not_allowed)?;
    if verb == Verb::Watch && !target.name.is_empty() {
        options.field_selector = format!("metadata.name={}", target.name);
    }
    suits(&resource, target, verb)?;
    let asked = if verb == Verb::List { Asked::List } else { Asked::One };
    let accept = text(&head.headers, header::ACCEPT);
    let accepted = negotiate(accept, asked).ok_or_else(|| Failure::not_acceptable(ACCEPTED))?;
    let view = View::new(&resource, &target.version, accepted, options.include_object);
    let agent = match text(&head.headers, header::USER_AGENT) {
        "" if head.extensions.get::<Sender>().is_none() => OWN_AGENT,
        "" => UNKNOWN_AGENT,
        agent => agent,
    };
    let manager = manager(&options.field_manager, agent);
    let content_type = text(&head.headers, header::CONTENT_TYPE).to_owned();
    let sender = sender(head);
    // What comes around the gate is the server's own identity Lease. The gate lets custom resources pass, because they
    // are registered by themselves; the server has to be a member for them all the same.
    let passage = match head.extensions.get::<Passage>() {
        _ if resource.custom().is_some() => Passage::Open,
        Some(passage) => *passage,
        None => Passage::Exempt,
    };
    Ok((
        verb,
        Call {
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

/// Whether a resource has what a path names, and a verb there.
fn suits(resource: &Resource, target: &ResourcePath, verb: Verb) -> Result<(), Failure> {
    let below = !target.subresource.is_empty();
    if below && !resource.has(&target.version, &target.subresource) {
        return Err(Failure::unknown_path());
    }
    if resource.namespaced {
        let everywhere = target.namespace.is_empty();
        if everywhere && !target.name.is_empty() {
            return Err(Failure::unknown_path());
        }
        if everywhere && !matches!(verb, Verb::List | Verb::Watch) {
            return Err(Failure::method_not_allowed());
        }
    } else if target.in_namespace {
        return Err(Failure::unknown_path());
    }
    let allowed = match verb {
        Verb::Create => target.name.is_empty(),
        Verb::Get | Verb::Update | Verb::Patch => true,
        // A namespace goes by its own name only.
        Verb::DeleteCollection if resource.is_namespaces() => false,
        Verb::Delete | Verb::DeleteCollection | Verb::List | Verb::Watch => !below,
    };
    if allowed { Ok(()) } else { Err(Failure::method_not_allowed()) }
}

fn invalid(error: InvalidOption) -> Failure {
    match error {
        InvalidOption::Unsupported { name, value, known } => {
            let cause = Cause::not_supported(name, &json!(value), known);
            Failure::invalid(&GroupKind::new("meta.k8s.io", "Options"), "", vec![cause])
        }
        InvalidOption::Form { .. } => Failure::bad_request(error.to_string()),
    }
}

fn respond(answer: Answer, yaml: bool) -> Response<Body> {
    let body = if yaml { in_yaml(answer.body) } else { answer.body };
    let mut response = Response::new(body);
    *response.status_mut() = answer.code;
    if let Some(name) = answer.made {
        response.extensions_mut().insert(Named(name));
    }
    let media = if yaml { YAML } else { JSON };
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    for warning in warnings::headers(&answer.warnings) {
        response.headers_mut().append(header::WARNING, warning);
    }
    response
}

/// The same in YAML; what is sent piece by piece stays JSON, which is YAML too.
fn in_yaml(body: Body) -> Body {
    let Some(bytes) = body.whole() else { return body };
    let read = serde_json::from_slice::<serde_json::Value>(bytes).ok();
    match read.and_then(|value| serde_saphyr::to_string(&value).ok()) {
        Some(text) => Body::from(Bytes::from(text)),
        None => body,
    }
}
