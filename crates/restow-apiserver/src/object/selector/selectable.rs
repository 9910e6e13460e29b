//! The fields by which the objects of a resource can be selected.

use serde_json::Value;

use crate::http::status::golang::{quote, show_number};

/// The fields of one resource.
#[derive(Clone, Debug)]
pub(crate) struct Selectable {
    fields: Vec<(String, Vec<String>)>,
    /// Whether unsupported fields are refused with the message of resources that have their own fields.
    own_words: bool,
}

/// The fields of built-in resources that have other ones than name and namespace.
const BUILT_IN: &[(&str, &str, &[&str])] = &[
    (
        "",
        "pods",
        &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
    ),
    (
        "",
        "events",
        &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
    ),
    (
        "events.k8s.io",
        "events",
        &[
            "reason",
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reportingController",
            "type",
        ],
    ),
    ("", "secrets", &["type"]),
    ("", "namespaces", &["status.phase"]),
];

impl Selectable {
    /// The fields of a built-in resource.
    pub(crate) fn built_in(group: &str, resource: &str) -> Self {
        let own = BUILT_IN.iter().find(|(of, name, _)| (*of, *name) == (group, resource));
        let own_fields = own.map(|(_, _, fields)| *fields).unwrap_or_default();
        let mut fields: Vec<_> = own_fields.iter().map(|field| named(field)).collect();
        fields.push(named("metadata.name"));
        if (group, resource) != ("", "namespaces") {
            fields.push(named("metadata.namespace"));
        }
        Self { fields, own_words: own.is_some() }
    }

    /// The fields of a custom resource: its own are simple JSON paths such as `.spec.color`.
    pub(crate) fn custom(namespaced: bool, paths: &[String]) -> Self {
        let mut fields: Vec<_> =
            paths.iter().map(|path| named(path.strip_prefix('.').unwrap_or(path))).collect();
        fields.push(named("metadata.name"));
        if namespaced {
            fields.push(named("metadata.namespace"));
        }
        Self { fields, own_words: true }
    }

    /// The name of a field, or why it cannot be selected by.
    pub(crate) fn canonical(&self, field: &str) -> Result<String, String> {
        if self.fields.iter().any(|(name, _)| name == field) {
            return Ok(field.to_owned());
        }
        if self.own_words {
            return Err(format!("field label not supported: {field}"));
        }
        let (name, namespace) = ("\"metadata.name\"", "\"metadata.namespace\"");
        Err(format!("{} is not a known field selector: only {name}, {namespace}", quote(field)))
    }

    /// The value of a field of an object, empty if it has none.
    pub(crate) fn value(&self, object: &Value, field: &str) -> String {
        if field == "source" {
            return source(object);
        }
        let Some((_, path)) = self.fields.iter().find(|(name, _)| name == field) else {
            return String::new();
        };
        let value = path.iter().try_fold(object, |value, key| value.get(key));
        match value {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => show_number(number),
            Some(Value::Bool(flag)) => flag.to_string(),
            _ if field == "spec.hostNetwork" => "false".to_owned(),
            _ => String::new(),
        }
    }
}

fn named(field: &str) -> (String, Vec<String>) {
    (field.to_owned(), field.split('.').map(str::to_owned).collect())
}

/// Where an event is from: the older field, or else the newer one.
fn source(event: &Value) -> String {
    let component = event.get("source").and_then(|source| source.get("component")).and_then(Value::as_str);
    let text = component.filter(|component| !component.is_empty());
    text.or_else(|| event.get("reportingComponent").and_then(Value::as_str)).unwrap_or_default().to_owned()
}
