//! The annotation by which a CRD says which webhook of restow converts it.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

/// The annotation of a CRD that a webhook registers itself in, or is about to; the value names the webhook.
pub const ANNOUNCED: &str = "restow.dev/conversion-webhook";
/// The value of that annotation that keeps every webhook from registering itself.
pub const NOBODY: &str = "none";

/// The webhook that a CRD names, if it names one.
pub(crate) fn announced(crd: &CustomResourceDefinition) -> Option<&str> {
    let name = crd.metadata.annotations.as_ref()?.get(ANNOUNCED)?;
    (name != NOBODY).then_some(name)
}
