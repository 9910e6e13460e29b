//! The fields that an endpoint does not change, and whose changes nobody owns.

use std::sync::LazyLock;

use restow_apply::Set;

use crate::object::meta::Endpoint;
use crate::registry::resource::Implementation;
use crate::verbs::request::ResourceRequest;

static STATUS: LazyLock<Set> = LazyLock::new(|| Set::of_fields(&[&["status"]]));
static SPEC: LazyLock<Set> = LazyLock::new(|| Set::of_fields(&[&["spec"]]));
static SPEC_AND_METADATA: LazyLock<Set> = LazyLock::new(|| Set::of_fields(&[&["metadata"], &["spec"]]));
static SPEC_AND_LABELS: LazyLock<Set> =
    LazyLock::new(|| Set::of_fields(&[&["metadata", "labels"], &["spec"]]));
static OF_POD_STATUS: LazyLock<Set> = LazyLock::new(|| {
    Set::of_fields(&[&["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"], &["spec"]])
});

/// The fields that the endpoint of a request does not change, in a version.
pub(super) fn fields(request: &ResourceRequest, api_version: &str) -> Option<&'static Set> {
    let is_own = api_version == request.view.api_version;
    match (request.endpoint(), &request.resource.implementation) {
        (Endpoint::Main, _) => {
            let apart = is_own && request.resource.has(&request.target.version, "status");
            apart.then(|| &*STATUS)
        }
        (Endpoint::Status, Implementation::Custom(_)) => Some(&SPEC_AND_METADATA),
        (Endpoint::Status, Implementation::BuiltIn(own)) => Some(match (own.group, own.kind) {
            ("", "Pod") => &OF_POD_STATUS,
            ("apps", "Deployment") => &SPEC_AND_LABELS,
            ("", _) | ("apps" | "apiextensions.k8s.io", _) => &SPEC,
            _ => &SPEC_AND_METADATA,
        }),
    }
}
