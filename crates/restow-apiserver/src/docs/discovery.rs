//! Discovery: which resources are served, per version or aggregated.

mod document;

use http::{Response, header};

use crate::docs::groups::{Contents, Group, groups};
use crate::http::body::Body;
use crate::http::negotiation::{ACCEPTED, RequestedItem, negotiate};
use crate::http::response::{json_response, text};
use crate::http::status::StatusError;
use crate::verbs::api::Api;

/// Answers a request for a discovery document.
pub(crate) fn answer(
    api: &Api,
    head: &http::request::Parts,
    segments: &[&str],
) -> Result<Response<Body>, StatusError> {
    let accept = text(&head.headers, header::ACCEPT);
    let accepted =
        negotiate(accept, RequestedItem::Other).ok_or_else(|| StatusError::not_acceptable(ACCEPTED))?;
    let groups = groups(&api.registry.served());
    let document = match *segments {
        [""] => document::paths(&groups),
        ["api"] if accepted.aggregated => return Ok(aggregated(&groups[..1])),
        ["apis"] if accepted.aggregated => return Ok(aggregated(&groups[1..])),
        ["api"] => document::versions(&groups[0]),
        ["apis"] => document::groups(&groups[1..]),
        ["api", version] => document::resources(find(&groups, "", version)?, "", version),
        ["apis", name] => document::group(named(&groups, name)?, true),
        ["apis", name, version] => document::resources(find(&groups, name, version)?, name, version),
        _ => return Err(StatusError::no_page()),
    };
    Ok(json_response(&document))
}

fn named<'a>(groups: &'a [Group], name: &str) -> Result<&'a Group, StatusError> {
    let mut named = groups.iter().filter(|group| group.name == name && !name.is_empty());
    named.next().ok_or_else(StatusError::no_page)
}

fn find<'a>(groups: &'a [Group], name: &str, version: &str) -> Result<&'a Contents, StatusError> {
    let mut versions = groups.iter().filter(|group| group.name == name).flat_map(|group| &group.versions);
    let found = versions.find(|(own, _)| own == version);
    let of_group = groups.iter().any(|group| group.name == name);
    let unknown = || if of_group { StatusError::unknown_path() } else { StatusError::no_page() };
    found.map(|(_, contents)| contents).ok_or_else(unknown)
}

fn aggregated(groups: &[Group]) -> Response<Body> {
    let mut response = json_response(&document::aggregated(groups));
    let media = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    response.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static(media));
    response
}
