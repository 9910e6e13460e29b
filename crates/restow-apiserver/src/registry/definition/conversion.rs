//! Validates the conversion of a definition.

use serde_json::{Value, json};

use super::fields::{one_of, text, texts};
use crate::http::status::Cause;
use crate::object::meta::name::dns_1035_label;

/// The errors of `spec.conversion`.
pub(super) fn errors(conversion: &Value) -> Vec<Cause> {
    let field = |key: &str| format!("spec.conversion.{key}");
    let strategy = text(conversion, "strategy");
    let mut causes: Vec<_> =
        one_of("spec.conversion.strategy", &strategy, &["None", "Webhook"]).into_iter().collect();
    let webhook = conversion.get("webhook").filter(|webhook| !webhook.is_null());
    if strategy != "Webhook" {
        if webhook.is_some_and(|webhook| webhook.get("clientConfig").is_some()) {
            let detail = "should not be set when strategy is not set to Webhook";
            causes.push(Cause::forbidden(field("webhookClientConfig"), detail));
        }
        return causes;
    }
    match webhook.and_then(|webhook| webhook.get("clientConfig")) {
        None => causes
            .push(Cause::required(field("webhookClientConfig"), "required when strategy is set to Webhook")),
        Some(config) => causes.extend(client_config(config, &field("webhookClientConfig"))),
    }
    let reviews = webhook.map(|webhook| texts(webhook, "conversionReviewVersions")).unwrap_or_default();
    causes.extend(review_versions(&reviews, &field("conversionReviewVersions")));
    causes
}

fn client_config(config: &Value, field: &str) -> Vec<Cause> {
    let url = config.get("url").and_then(Value::as_str);
    let service = config.get("service").filter(|service| !service.is_null());
    match (url, service) {
        (Some(url), None) => url_errors(url, &format!("{field}.url")),
        (None, Some(service)) => service_errors(service, &format!("{field}.service")),
        _ => vec![Cause::required(field, "exactly one of url or service is required")],
    }
}

fn url_errors(url: &str, field: &str) -> Vec<Cause> {
    let form = "; desired format: https://host[/path]";
    let mut causes = Vec::new();
    let Some((scheme, rest)) = url.split_once("://") else {
        return vec![
            Cause::invalid_text(field, "", &format!("'https' is the only allowed URL scheme{form}")),
            Cause::invalid_text(field, "", &format!("host must be specified{form}")),
        ];
    };
    if scheme != "https" {
        causes.push(Cause::invalid_text(
            field,
            scheme,
            &format!("'https' is the only allowed URL scheme{form}"),
        ));
    }
    if rest.is_empty() || rest.starts_with('/') {
        causes.push(Cause::invalid_text(field, "", &format!("host must be specified{form}")));
    }
    for (letter, word) in [('@', "user information"), ('#', "fragments"), ('?', "query parameters")] {
        if rest.contains(letter) {
            let part = rest.split(letter).next_back().unwrap_or_default();
            let detail = format!("{word} are not permitted in the URL");
            causes.push(Cause::invalid_text(field, part, &detail));
        }
    }
    causes
}

fn service_errors(service: &Value, field: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (key, words) in [("name", "service name is required"), ("namespace", "service namespace is required")]
    {
        if text(service, key).is_empty() {
            causes.push(Cause::required(format!("{field}.{key}"), words));
        }
    }
    let port = service.get("port").and_then(Value::as_i64).unwrap_or(443);
    if !(1..=65535).contains(&port) {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        causes.push(Cause::invalid(format!("{field}.port"), &json!(port), detail));
    }
    let path = text(service, "path");
    if !path.is_empty() && !path.starts_with('/') {
        causes.push(Cause::invalid_text(format!("{field}.path"), &path, "must start with a '/'"));
    }
    causes
}

fn review_versions(versions: &[String], field: &str) -> Vec<Cause> {
    if versions.is_empty() {
        return vec![Cause::required(field, "")];
    }
    let mut causes = Vec::new();
    for (index, version) in versions.iter().enumerate() {
        let field = format!("{field}[{index}]");
        if versions[..index].contains(version) {
            causes.push(Cause::invalid_text(field, version, "duplicate version"));
            continue;
        }
        causes
            .extend(dns_1035_label(version).iter().map(|error| Cause::invalid_text(&field, version, error)));
    }
    if !versions.iter().any(|version| version == "v1" || version == "v1beta1") {
        causes.push(Cause::invalid(field, &json!(versions), "must include at least one of v1, v1beta1"));
    }
    causes
}
