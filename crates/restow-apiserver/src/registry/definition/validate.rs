//! Validates a definition.

use serde_json::{Value, json};

use super::fields::{flag, list, one_of, text, texts};
use super::{conditions, conversion, structural};
use crate::http::status::Cause;
use crate::http::status::golang::is_printable;
use crate::object::meta::name::{dns_1035_label, subdomain};

/// The errors of a new definition, beside its metadata.
pub(crate) fn create(definition: &Value) -> Vec<Cause> {
    let mut causes: Vec<_> = name(definition).into_iter().collect();
    causes.extend(spec(definition));
    causes.extend(stored_versions(definition));
    causes.extend(approval(definition, None));
    causes
}

/// The errors of a definition that replaces `old`, beside its metadata.
pub(crate) fn update(definition: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = spec(definition);
    let part = |of: &Value, path: &str| of.pointer(path).cloned().unwrap_or_default();
    let mut fixed = Vec::new();
    if conditions::is_true(old, "Established") {
        fixed.extend([("/spec/scope", "spec.scope"), ("/spec/names/kind", "spec.names.kind")]);
    }
    fixed.extend([("/spec/group", "spec.group"), ("/spec/names/plural", "spec.names.plural")]);
    for (path, field) in fixed {
        if part(definition, path) != part(old, path) {
            causes.push(Cause::invalid(field, &part(definition, path), "field is immutable"));
        }
    }
    causes.extend(stored_versions(definition));
    causes.extend(approval(definition, Some(old)));
    causes
}

fn name(definition: &Value) -> Option<Cause> {
    let empty = Value::Null;
    let spec = definition.get("spec").unwrap_or(&empty);
    let plural = spec.get("names").map(|names| text(names, "plural")).unwrap_or_default();
    let (own, wanted) = (crate::object::meta::name(definition), format!("{plural}.{}", text(spec, "group")));
    (own != wanted)
        .then(|| Cause::invalid_text("metadata.name", own, "must be spec.names.plural+\".\"+spec.group"))
}

fn spec(definition: &Value) -> Vec<Cause> {
    let empty = Value::Null;
    let spec = definition.get("spec").unwrap_or(&empty);
    let mut causes: Vec<_> = group(&text(spec, "group")).into_iter().collect();
    causes.extend(one_of("spec.scope", &text(spec, "scope"), &["Cluster", "Namespaced"]));
    let versions = list(spec, "versions");
    for (index, version) in versions.iter().enumerate() {
        if version.pointer("/schema/openAPIV3Schema").is_none_or(Value::is_null) {
            causes.push(Cause::required(format!("spec.versions[{index}].schema.openAPIV3Schema"), ""));
        }
    }
    if flag(spec, "preserveUnknownFields") {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
             spec.versions[*].schema instead";
        causes.push(Cause::invalid("spec.preserveUnknownFields", &json!(true), detail));
    }
    causes.extend(of_versions(versions));
    causes.extend(names(spec.get("names").unwrap_or(&empty)));
    causes.extend(of_contents(versions));
    causes.extend(conversion::errors(spec.get("conversion").unwrap_or(&empty)));
    causes
}

fn group(group: &str) -> Option<Cause> {
    let errors = subdomain(group, "characters");
    if group.is_empty() {
        Some(Cause::required("spec.group", ""))
    } else if !errors.is_empty() {
        Some(Cause::invalid_text("spec.group", group, &errors.join(",")))
    } else {
        let detail = "should be a domain with at least one dot";
        (!group.contains('.')).then(|| Cause::invalid_text("spec.group", group, detail))
    }
}

fn of_versions(versions: &[Value]) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut seen = Vec::new();
    for (index, version) in versions.iter().enumerate() {
        let name = text(version, "name");
        let errors = dns_1035_label(&name);
        if !errors.is_empty() {
            let field = format!("spec.versions[{index}].name");
            causes.push(Cause::invalid_text(field, &name, &errors.join(",")));
        }
        causes.extend(deprecation(version, &format!("spec.versions[{index}].deprecationWarning")));
        seen.push(name);
    }
    let all = json!(versions);
    seen.sort();
    if seen.windows(2).any(|pair| pair[0] == pair[1]) {
        causes.push(Cause::invalid("spec.versions", &all, "must contain unique version names"));
    }
    if versions.iter().filter(|version| flag(version, "storage")).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        causes.push(Cause::invalid("spec.versions", &all, detail));
    }
    causes
}

fn deprecation(version: &Value, field: &str) -> Vec<Cause> {
    let Some(warning) = version.get("deprecationWarning").and_then(Value::as_str) else { return Vec::new() };
    let mut errors = Vec::new();
    if !flag(version, "deprecated") {
        errors.push("can only be set for deprecated versions".to_owned());
    } else {
        if warning.len() > 256 {
            errors.push("must be <= 256 characters long".to_owned());
        }
        if warning.is_empty() {
            errors.push("must not be an empty string".to_owned());
        }
        if let Some((index, _)) = warning.char_indices().find(|(_, letter)| !is_printable(*letter)) {
            errors.push(format!(
                "must only contain printable UTF-8 characters; non-printable character found at index {index}"
            ));
        }
    }
    errors.iter().map(|error| Cause::invalid_text(field, warning, error)).collect()
}

fn names(names: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for key in ["plural", "singular", "kind", "listKind"] {
        if text(names, key).is_empty() {
            causes.push(Cause::required(format!("spec.names.{key}"), ""));
        }
    }
    for key in ["plural", "singular", "kind", "listKind"] {
        let name = text(names, key);
        let mixed = key.ends_with("ind");
        let errors = dns_1035_label(&if mixed { name.to_lowercase() } else { name.clone() });
        if !name.is_empty() && !errors.is_empty() {
            let before = if mixed { "may have mixed case, but should otherwise match: " } else { "" };
            let field = format!("spec.names.{key}");
            causes.push(Cause::invalid_text(field, &name, &format!("{before}{}", errors.join(","))));
        }
    }
    causes.extend(labels(names, "shortNames"));
    let kind = text(names, "kind");
    if !kind.is_empty() && kind == text(names, "listKind") {
        causes.push(Cause::invalid_text(
            "spec.names.listKind",
            &kind,
            "kind and listKind may not be the same",
        ));
    }
    causes.extend(labels(names, "categories"));
    causes
}

fn labels(names: &Value, key: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (index, name) in texts(names, key).iter().enumerate() {
        let errors = dns_1035_label(name);
        if !errors.is_empty() {
            causes.push(Cause::invalid_text(format!("spec.names.{key}[{index}]"), name, &errors.join(",")));
        }
    }
    causes
}

/// Schemas, subresources, columns and selectable fields. Errors that all versions have are reported once, at a path of
/// the internal version, as in kube-apiserver.
fn of_contents(versions: &[Value]) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (key, common, check) in [
        ("schema", "spec.validation", schema as fn(&Value, &Value, &str) -> Vec<Cause>),
        ("subresources", "spec.subresources", |part, _, field| subresources(part, field)),
        ("additionalPrinterColumns", "spec.additionalPrinterColumns", |part, _, field| columns(part, field)),
        ("selectableFields", "spec.selectableFields", selectable),
    ] {
        let shared = versions.windows(2).all(|pair| pair[0].get(key) == pair[1].get(key));
        let checked = if shared { &versions[..versions.len().min(1)] } else { versions };
        for (index, version) in checked.iter().enumerate() {
            let field = if shared { common.to_owned() } else { format!("spec.versions[{index}].{key}") };
            if let Some(part) = version.get(key) {
                causes.extend(check(part, version, &field));
            }
        }
    }
    causes
}

fn schema(schema: &Value, version: &Value, field: &str) -> Vec<Cause> {
    let status = version.pointer("/subresources/status").is_some_and(|status| !status.is_null());
    match schema.get("openAPIV3Schema").filter(|schema| !schema.is_null()) {
        Some(schema) => structural::errors(schema, status, &format!("{field}.openAPIV3Schema")),
        None => Vec::new(),
    }
}

fn subresources(subresources: &Value, field: &str) -> Vec<Cause> {
    let Some(scale) = subresources.get("scale").filter(|scale| !scale.is_null()) else { return Vec::new() };
    let mut causes = Vec::new();
    for (key, roots, wanted) in [
        ("specReplicasPath", &[".spec."][..], ".spec"),
        ("statusReplicasPath", &[".status."][..], ".status"),
        ("labelSelectorPath", &[".spec.", ".status."][..], "either .spec or .status"),
    ] {
        let path = text(scale, key);
        let field = format!("{field}.scale.{key}");
        if path.is_empty() {
            if key != "labelSelectorPath" {
                causes.push(Cause::required(field, ""));
            }
        } else if !path.starts_with('.') {
            causes.push(Cause::invalid_text(field, &path, "must be a simple json path starting with ."));
        } else if !roots.iter().any(|root| path.starts_with(root)) {
            causes.push(Cause::invalid_text(field, &path, &format!("should be a json path under {wanted}")));
        }
    }
    causes
}

const COLUMN_TYPES: &str = "boolean,date,integer,number,string";
const COLUMN_FORMATS: &str = "byte,date,date-time,double,float,int32,int64,password";

fn columns(columns: &Value, field: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (index, column) in columns.as_array().into_iter().flatten().enumerate() {
        let field = |key: &str| format!("{field}[{index}].{key}");
        if text(column, "name").is_empty() {
            causes.push(Cause::required(field("name"), ""));
        }
        let kind = text(column, "type");
        if kind.is_empty() {
            causes.push(Cause::required(field("type"), &format!("must be one of {COLUMN_TYPES}")));
        } else if !COLUMN_TYPES.split(',').any(|known| known == kind) {
            causes.push(Cause::invalid_text(field("type"), &kind, &format!("must be one of {COLUMN_TYPES}")));
        }
        let format = text(column, "format");
        if !format.is_empty() && !COLUMN_FORMATS.split(',').any(|known| known == format) {
            let detail = format!("must be one of {COLUMN_FORMATS}");
            causes.push(Cause::invalid_text(field("format"), &format, &detail));
        }
        let path = text(column, "jsonPath");
        if path.is_empty() {
            causes.push(Cause::required(field("JSONPath"), ""));
        } else if !path.starts_with('.') {
            let detail = "must be a simple json path starting with .";
            causes.push(Cause::invalid_text(field("JSONPath"), &path, detail));
        }
    }
    causes
}

fn selectable(fields: &Value, version: &Value, field: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut seen = Vec::new();
    for (index, one) in fields.as_array().into_iter().flatten().enumerate() {
        let field = format!("{field}[{index}].jsonPath");
        let path = text(one, "jsonPath");
        if path.is_empty() {
            causes.push(Cause::required(field, ""));
            continue;
        }
        let keys: Vec<_> = path.split('.').skip(1).collect();
        let schema = version.pointer("/schema/openAPIV3Schema");
        let found = keys.iter().try_fold(schema, |schema, key| {
            schema.and_then(|schema| schema.get("properties")?.get(key)).map(Some)
        });
        let Some(Some(found)) = found.filter(|_| path.starts_with('.')) else {
            causes.push(Cause::invalid_text(
                field,
                &path,
                "is an invalid path: does not refer to a valid field",
            ));
            continue;
        };
        if keys.first() == Some(&"metadata") {
            causes.push(Cause::invalid_text(&field, &path, "must not point to fields in metadata"));
        }
        if !["string", "boolean", "integer"].contains(&text(found, "type").as_str()) {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings \
                 with formats are allowed.";
            causes.push(Cause::invalid_text(&field, &path, detail));
        }
        if seen.contains(&path) {
            causes.push(Cause::duplicate(field, &json!(path)));
        } else {
            seen.push(path);
        }
    }
    if seen.len() > 8 {
        causes.push(Cause::too_many(field, seen.len(), 8));
    }
    causes
}

fn stored_versions(definition: &Value) -> Vec<Cause> {
    let field = "status.storedVersions";
    let stored = definition.get("status").map(|status| texts(status, "storedVersions")).unwrap_or_default();
    if stored.is_empty() {
        return vec![Cause::invalid(field, &json!([]), "must have at least one stored version")];
    }
    let versions = definition.get("spec").map(|spec| list(spec, "versions")).unwrap_or_default();
    let mut causes = Vec::new();
    for version in versions.iter().filter(|version| flag(version, "storage")) {
        let name = text(version, "name");
        if !stored.contains(&name) {
            let detail = format!("must have the storage version {name}");
            causes.push(Cause::invalid(field, &json!(stored), &detail));
        }
    }
    for (index, name) in stored.iter().enumerate() {
        if versions.iter().all(|version| text(version, "name") != *name) {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in \
                 spec.versions until a storage migration ensures no data remains persisted in {name} and removes \
                 {name} from status.storedVersions"
            );
            causes.push(Cause::invalid_text(format!("{field}[{index}]"), name, &detail));
        }
    }
    causes
}

const APPROVED: &str = "api-approved.kubernetes.io";

/// Groups of the Kubernetes project need an approval.
fn approval(definition: &Value, old: Option<&Value>) -> Option<Cause> {
    let group = definition.get("spec").map(|spec| text(spec, "group")).unwrap_or_default();
    let protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group == *domain || group.ends_with(&format!(".{domain}")));
    let given = |of: &Value| {
        crate::object::meta::field(of, "annotations").map(|all| text(all, APPROVED)).unwrap_or_default()
    };
    let approval = given(definition);
    if !protected || old.is_some_and(|old| given(old) == approval) {
        return None;
    }
    let field = format!("metadata.annotations[{APPROVED}]");
    if approval.is_empty() {
        let detail = "protected groups must have approval annotation \"api-approved.kubernetes.io\", see \
             https://github.com/kubernetes/enhancements/pull/1111";
        return Some(Cause::required(field, detail));
    }
    let good = approval.starts_with("unapproved") || approval.starts_with("https://");
    (!good).then(|| {
        let detail = "protected groups must have approval annotation \"api-approved.kubernetes.io\" with either a \
             URL or a reason starting with \"unapproved\", see \
             https://github.com/kubernetes/enhancements/pull/1111";
        Cause::invalid_text(field, &approval, detail)
    })
}
