//! What is served, told to clients: in documents for each version, or all in one.

mod document;

use std::cmp::Reverse;
use std::sync::Arc;

use http::{Method, Response, header};
use serde_json::{Value, json};

use crate::docs::health;
use crate::docs::openapi;
use crate::http::body::Body;
use crate::http::json;
use crate::http::negotiation::{ACCEPTED, Asked, negotiate};
use crate::http::status::Failure;
use crate::registry::served::{Resource, Served};
use crate::server::handler::text;
use crate::verbs::api::Api;
use crate::verbs::review::{REVIEWS, Review, VERSION};

/// What one version of a group has.
#[derive(Default)]
pub struct Contents {
    /// Resources, with the place of the version among theirs.
    pub resources: Vec<(Arc<Resource>, usize)>,
    /// Reviews.
    pub reviews: Vec<&'static Review>,
}

/// A group and its versions, the preferred one first.
pub struct Group {
    /// Its name.
    pub name: String,
    /// Its versions.
    pub versions: Vec<(String, Contents)>,
}

/// All groups, the core group first, and custom ones behind.
pub fn groups(served: &Served) -> Vec<Group> {
    let mut groups = Vec::new();
    for resource in &served.built_in {
        add(&mut groups, resource);
    }
    for review in REVIEWS {
        contents(&mut groups, review.group, VERSION).reviews.push(review);
    }
    for resource in served.custom.values() {
        add(&mut groups, resource);
    }
    for group in &mut groups {
        group.versions.sort_by_cached_key(|(version, _)| Reverse(priority(version)));
    }
    groups
}

fn add(groups: &mut Vec<Group>, resource: &Arc<Resource>) {
    for (place, version) in resource.versions.iter().enumerate() {
        let contents = contents(groups, &resource.name.group, &version.name);
        contents.resources.push((Arc::clone(resource), place));
    }
}

/// What a version of a group has so far.
fn contents<'a>(groups: &'a mut Vec<Group>, group: &str, version: &str) -> &'a mut Contents {
    let at = groups.iter().position(|known| known.name == group).unwrap_or_else(|| {
        groups.push(Group { name: group.to_owned(), versions: Vec::new() });
        groups.len() - 1
    });
    let versions = &mut groups[at].versions;
    let at = versions.iter().position(|(known, _)| known == version).unwrap_or_else(|| {
        versions.push((version.to_owned(), Contents::default()));
        versions.len() - 1
    });
    &mut versions[at].1
}

/// How far in front a version stands: stable before beta before alpha, then the higher, then others by name.
pub fn priority(version: &str) -> (u8, u64, u64, Reverse<String>) {
    let other = || (0, 0, 0, Reverse(version.to_owned()));
    let Some(rest) = version.strip_prefix('v') else { return other() };
    let (major, rest) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
    let Ok(major) = major.parse() else { return other() };
    let (stage, minor) = match rest {
        "" => return (3, major, 0, Reverse(String::new())),
        rest if rest.starts_with("beta") => (2, &rest[4..]),
        rest if rest.starts_with("alpha") => (1, &rest[5..]),
        _ => return other(),
    };
    match minor.parse() {
        Ok(minor) => (stage, major, minor, Reverse(String::new())),
        Err(_) => other(),
    }
}

/// Answers what is not about a resource.
pub async fn answer(api: &Api, head: &http::request::Parts) -> Result<Response<Body>, Failure> {
    let path = head.uri.path();
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    if !matches!(head.method, Method::GET | Method::HEAD) {
        return Err(if known(api, &segments) { Failure::method_not_allowed() } else { Failure::no_page() });
    }
    if let Some(response) = health::answer(api, head).await {
        return Ok(response);
    }
    if let ["openapi", ..] = segments[..] {
        return openapi::answer(api, head);
    }
    let accept = text(&head.headers, header::ACCEPT);
    let accepted = negotiate(accept, Asked::Other).ok_or_else(|| Failure::not_acceptable(ACCEPTED))?;
    let groups = groups(&api.registry.served());
    let document = match segments[..] {
        [""] => document::paths(&groups),
        ["api"] if accepted.aggregated => return Ok(aggregated(&groups[..1])),
        ["apis"] if accepted.aggregated => return Ok(aggregated(&groups[1..])),
        ["api"] => document::versions(&groups[0]),
        ["apis"] => document::groups(&groups[1..]),
        ["api", version] => document::resources(find(&groups, "", version)?, "", version),
        ["apis", name] => document::group(named(&groups, name)?, true),
        ["apis", name, version] => document::resources(find(&groups, name, version)?, name, version),
        _ => return Err(Failure::no_page()),
    };
    Ok(json_response(&document))
}

fn known(api: &Api, segments: &[&str]) -> bool {
    let served = api.registry.served();
    match segments {
        ["" | "api" | "apis" | "version" | "openapi" | "healthz" | "livez" | "readyz" | "metrics", ..]
            if segments.len() == 1 =>
        {
            true
        }
        ["api", version] => served.has_version("", version),
        ["apis", group, version] => served.has_version(group, version),
        _ => false,
    }
}

fn named<'a>(groups: &'a [Group], name: &str) -> Result<&'a Group, Failure> {
    let mut named = groups.iter().filter(|group| group.name == name && !name.is_empty());
    named.next().ok_or_else(Failure::no_page)
}

fn find<'a>(groups: &'a [Group], name: &str, version: &str) -> Result<&'a Contents, Failure> {
    let mut versions = groups.iter().filter(|group| group.name == name).flat_map(|group| &group.versions);
    let found = versions.find(|(own, _)| own == version);
    let of_group = groups.iter().any(|group| group.name == name);
    let unknown = || if of_group { Failure::unknown_path() } else { Failure::no_page() };
    found.map(|(_, contents)| contents).ok_or_else(unknown)
}

fn aggregated(groups: &[Group]) -> Response<Body> {
    let mut response = json_response(&document::aggregated(groups));
    let media = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    response.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static(media));
    response
}

/// An answer in JSON.
pub fn json_response(document: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(json::encode(document)));
    let media = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    response
}

/// The version of Kubernetes that is served.
pub fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.3+restow", "gitCommit": "", "gitTreeState": "",
        "buildDate": "", "goVersion": "", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_in_order() {
        let mut versions =
            vec!["foo", "v1alpha1", "v2beta1", "v10", "v1", "v2", "v11alpha2", "v1beta2", "bar"];
        versions.sort_by_cached_key(|version| Reverse(priority(version)));
        let expected = ["v10", "v2", "v1", "v2beta1", "v1beta2", "v11alpha2", "v1alpha1", "bar", "foo"];
        assert_eq!(versions, expected);
    }
}
