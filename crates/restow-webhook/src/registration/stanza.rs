//! What the conversion stanza of a CRD says, who manages its parts, and what to change in it: pure functions.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition, WebhookClientConfig, WebhookConversion,
};
use serde_json::{Value, json};

use super::endpoint::Endpoint;
pub use crate::announcement::{ANNOUNCED, NOBODY};
use crate::certificates::{Bundle, CrdTrust, fingerprints, unexpired};

/// The name of the webhook as a field manager.
pub const FIELD_MANAGER: &str = "restow-webhook";
/// The field manager of CRDs that the webhook creates.
pub(super) const CREATOR: &str = "restow-webhook-crds";
/// Annotations by which a CRD asks somebody else to fill in its caBundle.
const INJECTORS: [(&str, &str); 4] = [
    ("cert-manager.io/inject-ca-from", "cert-manager"),
    ("cert-manager.io/inject-ca-from-secret", "cert-manager"),
    ("cert-manager.io/inject-apiserver-ca", "cert-manager"),
    ("service.beta.openshift.io/inject-cabundle", "the OpenShift service CA operator"),
];
/// The versions of ConversionReview that the webhook understands, the preferred one first. Every API server that serves
/// apiextensions.k8s.io/v1 can send v1.
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// Which conversion a CRD has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// None: only apiVersion changes.
    Unconverted,
    /// This webhook converts it.
    Ours,
    /// Another webhook converts it, at this address.
    Foreign(String),
}

/// Which conversion a CRD has.
pub fn standing(crd: &CustomResourceDefinition, endpoint: &Endpoint) -> Standing {
    let conversion = crd.spec.conversion.as_ref().filter(|conversion| conversion.strategy == "Webhook");
    let Some(conversion) = conversion else { return Standing::Unconverted };
    let config = conversion.webhook.as_ref().and_then(|webhook| webhook.client_config.as_ref());
    match config {
        Some(config) if endpoint.is_called_by(config) => Standing::Ours,
        config => Standing::Foreign(config.map_or_else(|| "an unknown address".to_owned(), address)),
    }
}

fn address(config: &WebhookClientConfig) -> String {
    match (&config.service, &config.url) {
        (Some(service), _) => format!("the Service {}/{}", service.namespace, service.name),
        (None, Some(url)) => url.clone(),
        (None, None) => "an unknown address".to_owned(),
    }
}

/// Whether the webhook announced that it registers itself.
pub fn is_announced(crd: &CustomResourceDefinition, endpoint: &Endpoint) -> bool {
    let annotations = crd.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(ANNOUNCED)).is_some_and(|name| *name == endpoint.to_string())
}

/// What a CRD trusts, if it calls this webhook or is about to. One that is about to trusts nobody yet.
pub fn trust(crd: &CustomResourceDefinition, endpoint: &Endpoint) -> Option<CrdTrust> {
    let authorities = match standing(crd, endpoint) {
        Standing::Ours => bundle(crd).map(fingerprints).unwrap_or_default(),
        Standing::Unconverted if is_announced(crd, endpoint) => BTreeSet::new(),
        // An annotation that is left from before says nothing: only a CRD without a conversion is registered.
        Standing::Unconverted | Standing::Foreign(_) => return None,
    };
    Some(CrdTrust { name: crd.metadata.name.clone().unwrap_or_default(), authorities })
}

fn client_config(crd: &CustomResourceDefinition) -> Option<&WebhookClientConfig> {
    crd.spec.conversion.as_ref()?.webhook.as_ref()?.client_config.as_ref()
}

fn bundle(crd: &CustomResourceDefinition) -> Option<&[u8]> {
    client_config(crd)?.ca_bundle.as_ref().map(|bundle| bundle.0.as_slice())
}

/// How many former authorities a caBundle keeps.
const FORMER: usize = 8;

/// What a CRD shall trust. Where restow keeps the authorities, the Secret has all of them. A Secret that somebody else manages
/// has only the newest, so those that the CRD trusts already stay until they expire: a replica may serve the former leaf.
pub fn trusted(crd: &CustomResourceDefinition, kept: &Bundle, now: Timestamp) -> String {
    let mut pem = kept.pem.clone();
    if !kept.foreign {
        return pem;
    }
    let former = bundle(crd).and_then(|former| std::str::from_utf8(former).ok()).unwrap_or_default();
    let former = unexpired(former, now).into_iter().filter(|(id, _)| !kept.authorities.contains(id));
    for (_, certificate) in former.take(FORMER) {
        if !pem.ends_with('\n') {
            pem.push('\n');
        }
        pem.push_str(&certificate);
    }
    pem
}

/// Who else manages a field of the client configuration: the field manager that owns it, unless the webhook does.
pub fn manager_of<'a>(crd: &'a CustomResourceDefinition, field: &[&str]) -> Option<&'a str> {
    let path = ["f:spec", "f:conversion", "f:webhook", "f:clientConfig"];
    let entries = crd.metadata.managed_fields.iter().flatten();
    let owners = entries.filter(|entry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        path.iter().chain(field).try_fold(fields, |at, part| Some(at?.get(*part))).flatten().is_some()
    });
    let owners: Vec<&str> = owners.filter_map(|entry| entry.manager.as_deref()).collect();
    let is_own = |owner: &&str| [FIELD_MANAGER, CREATOR].contains(owner);
    if owners.iter().any(is_own) { None } else { owners.first().copied() }
}

/// Who else manages the caBundle of a CRD.
pub fn bundle_manager(crd: &CustomResourceDefinition) -> Option<String> {
    let annotations = crd.metadata.annotations.as_ref();
    let injector = INJECTORS.iter().find(|(name, _)| annotations.is_some_and(|all| all.contains_key(*name)));
    let injector = injector.map(|(annotation, who)| format!("{who} (annotation {annotation})"));
    injector.or_else(|| manager_of(crd, &["f:caBundle"]).map(|who| format!("the field manager {who}")))
}

/// What to do about the stanza of a CRD.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// It is as it shall be.
    None,
    /// Write this merge patch, which has a precondition.
    Patch(Value),
    /// It is somebody else's, who has to change it; this says what.
    LeftAlone(String),
}

/// What to change in the stanza of a CRD that calls the webhook, so that it trusts these authorities.
pub fn update(crd: &CustomResourceDefinition, endpoint: &Endpoint, bundle: &str) -> Change {
    let wanted = fingerprints(bundle.as_bytes());
    let has = self::bundle(crd).map(fingerprints).unwrap_or_default();
    if let Some(manager) = bundle_manager(crd) {
        return if wanted.is_subset(&has) {
            Change::None
        } else {
            Change::LeftAlone(format!(
                "{manager} manages its caBundle, which lacks {} of {} certificate authorities of the webhook; let it set \
                the caBundle to ca.crt of the webhook's Secret, or remove the field there, so that restow sets it",
                wanted.difference(&has).count(),
                wanted.len()
            ))
        };
    }
    let config = wanted_config(crd, endpoint, bundle);
    if has == wanted && is_announced(crd, endpoint) && contains(client_config(crd), &config) {
        return Change::None;
    }
    Change::Patch(patch(crd, json!({"webhook": {"clientConfig": config}}), Some(endpoint)))
}

/// Announces that the webhook registers itself. From then on no authority begins to sign that this CRD does not trust.
pub fn announce(crd: &CustomResourceDefinition, endpoint: &Endpoint) -> Value {
    patch(crd, Value::Null, Some(endpoint))
}

/// Registers the webhook in a CRD that has no conversion, or completes a stanza that leads to the webhook.
pub fn register(crd: &CustomResourceDefinition, endpoint: &Endpoint, bundle: &str) -> Value {
    let mut config = wanted_config(crd, endpoint, bundle);
    if let Value::Object(config) = &mut config {
        let other = if config.contains_key("service") { "url" } else { "service" };
        config.insert(other.to_owned(), Value::Null);
    }
    let former = crd.spec.conversion.as_ref().and_then(|conversion| conversion.webhook.as_ref());
    let mut versions: Vec<&str> = REVIEW_VERSIONS.to_vec();
    let known = |version: &String| REVIEW_VERSIONS.contains(&version.as_str());
    if let Some(former) = former.filter(|former| former.conversion_review_versions.iter().any(known)) {
        versions = former.conversion_review_versions.iter().map(String::as_str).collect();
    }
    let stanza = json!({
        "strategy": "Webhook",
        "webhook": {"clientConfig": config, "conversionReviewVersions": versions},
    });
    patch(crd, stanza, Some(endpoint))
}

/// A CRD that does not exist yet, with the webhook in its stanza.
pub fn registered(
    definition: &CustomResourceDefinition,
    endpoint: &Endpoint,
    bundle: &str,
) -> CustomResourceDefinition {
    let mut definition = definition.clone();
    let config = wanted_config(&definition, endpoint, bundle);
    definition.spec.conversion = Some(CustomResourceConversion {
        strategy: "Webhook".to_owned(),
        webhook: Some(WebhookConversion {
            client_config: serde_json::from_value(config).ok(),
            conversion_review_versions: REVIEW_VERSIONS.map(str::to_owned).to_vec(),
        }),
    });
    let annotations = definition.metadata.annotations.get_or_insert_default();
    annotations.insert(ANNOUNCED.to_owned(), endpoint.to_string());
    definition
}

/// Whether somebody has removed the webhook from a CRD, so that none registers itself again.
pub fn is_opted_out(crd: &CustomResourceDefinition) -> bool {
    let annotations = crd.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(ANNOUNCED)).is_some_and(|name| name == NOBODY)
}

/// The webhook of restow that has registered itself in a CRD, and that API servers call for it.
pub fn registrant(crd: &CustomResourceDefinition) -> Option<Endpoint> {
    let conversion = crd.spec.conversion.as_ref().filter(|conversion| conversion.strategy == "Webhook")?;
    let endpoint = Endpoint::of(conversion.webhook.as_ref()?.client_config.as_ref()?)?;
    is_announced(crd, &endpoint).then_some(endpoint)
}

/// Removes the webhook from a CRD, and keeps it from registering itself again.
pub fn unregister(crd: &CustomResourceDefinition) -> Value {
    let mut patch = patch(crd, json!({"strategy": "None", "webhook": null}), None);
    patch["metadata"]["annotations"][ANNOUNCED] = json!(NOBODY);
    patch
}

/// Withdraws the announcement of a webhook that was not registered after all. None if there is none.
pub fn withdraw(crd: &CustomResourceDefinition, endpoint: &Endpoint) -> Option<Value> {
    let announced = standing(crd, endpoint) == Standing::Unconverted && is_announced(crd, endpoint);
    announced.then(|| patch(crd, Value::Null, None))
}

/// A merge patch of the stanza, which fails if the CRD has changed since it was read.
fn patch(crd: &CustomResourceDefinition, conversion: Value, endpoint: Option<&Endpoint>) -> Value {
    let announced = endpoint.map(ToString::to_string);
    let mut patch = json!({"metadata": {
        "uid": crd.metadata.uid, "resourceVersion": crd.metadata.resource_version,
        "annotations": {ANNOUNCED: announced},
    }});
    if !conversion.is_null() {
        patch["spec"] = json!({"conversion": conversion});
    }
    patch
}

/// The client configuration. What somebody else manages is left out, or as it is.
fn wanted_config(crd: &CustomResourceDefinition, endpoint: &Endpoint, bundle: &str) -> Value {
    let mut config = endpoint.for_crd(crd).client_config();
    let former = client_config(crd).filter(|former| endpoint.is_called_by(former));
    if let (Some(service), Some(former)) =
        (config.get_mut("service"), former.and_then(|former| former.service.as_ref()))
    {
        if manager_of(crd, &["f:service", "f:port"]).is_some() {
            service["port"] = json!(former.port);
        }
        if manager_of(crd, &["f:service", "f:path"]).is_some() {
            service["path"] = json!(former.path);
        }
    }
    if let (Some(url), Some(former)) = (config.get_mut("url"), former.and_then(|former| former.url.as_ref()))
        && manager_of(crd, &["f:url"]).is_some()
    {
        *url = json!(former);
    }
    if bundle_manager(crd).is_none() {
        config["caBundle"] = json!(ByteString(bundle.as_bytes().to_vec()));
    }
    config
}

/// Whether a client configuration has all of what is wanted.
fn contains(config: Option<&WebhookClientConfig>, wanted: &Value) -> bool {
    let Some(Ok(config)) = config.map(serde_json::to_value) else { return false };
    fn within(wanted: &Value, config: &Value) -> bool {
        match wanted {
            Value::Object(fields) => fields.iter().all(|(name, value)| within(value, &config[name])),
            value => value == config,
        }
    }
    within(wanted, &config)
}

#[cfg(test)]
mod tests;
