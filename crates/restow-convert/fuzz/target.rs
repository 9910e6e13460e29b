//! What must hold for any bytes that are sent as a review. The fuzz target tries it with a fuzzer, and the tests of
//! `restow-convert` with mutations of their own, so that it compiles and holds wherever they run.

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use restow_convert::review::{Answer, Limits, Review, Scope};
use restow_convert::rules::{ConversionRulesSpec, compile};
use restow_convert::{Chain, Converter, Converters};
use serde_json::{Value, json};

/// The versions of the kind, the oldest first.
pub(crate) const VERSIONS: [&str; 3] = ["v1alpha1", "v1beta1", "v1"];

/// Most fields are the same in all versions: those of `spec` and `status`, and most of `template`.
fn definition() -> CustomResourceDefinition {
    let (text, number) = (json!({"type": "string"}), json!({"type": "integer"}));
    let version = |name: &str, size: &str, place: Value| {
        let env = json!({"type": "array", "items": {"type": "object", "properties": {"name": text, "value": text}}});
        let resources = json!({"type": "object", "additionalProperties": {"type": "object", "properties": {"n": number}}});
        let template = json!({"type": "object", "properties": {
            "place": place, "resources": resources, "free": {"x-kubernetes-preserve-unknown-fields": true},
        }});
        let spec = json!({"type": "object", "properties": {
            size: number, "env": env, "template": template, "any": {"x-kubernetes-int-or-string": true},
            "policy": {"type": "string", "default": "Keep"}, "added": {"type": "object", "properties": {"made": text}},
        }});
        let status = json!({"type": "object", "properties": {"lines": {"type": "array", "items": text}}});
        let schema =
            json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}});
        json!({"name": name, "served": true, "storage": name == "v1", "schema": schema})
    };
    let place = json!({"type": "object", "properties": {"shelf": text, "row": text}});
    let versions = [
        version("v1alpha1", "width", text.clone()),
        version("v1beta1", "size", text.clone()),
        version("v1", "size", place),
    ];
    let names = json!({"kind": "Box", "plural": "boxes"});
    let spec = json!({"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions});
    serde_json::from_value(json!({"metadata": {"name": "boxes.example.com"}, "spec": spec})).unwrap()
}

/// Converts by rules.
pub(crate) fn chain() -> Chain {
    let parts = json!([{"path": "spec.template.place.shelf"}, {"path": "spec.template.place.row"}]);
    let hops = json!([
        {"older": "v1alpha1", "newer": "v1beta1", "rules": [{"rename": {"older": "spec.width", "newer": "spec.size"}}]},
        {"older": "v1beta1", "newer": "v1", "rules": [
            {"split": {"older": "spec.template.place", "separator": "/", "newer": parts}},
            {"constant": {"newer": "spec.added.made", "value": "by a rule"}},
            {"constant": {"older": "spec.added.made", "value": "by another"}},
        ]},
    ]);
    let rules: ConversionRulesSpec =
        serde_json::from_value(json!({"group": "example.com", "kind": "Box", "hops": hops})).unwrap();
    compile(&rules, &definition()).unwrap()
}

/// The same converter twice: with what it knows about untouched fields, and without.
pub(crate) static BOTH: LazyLock<[Converters; 2]> = LazyLock::new(|| {
    let reads_all = Converter::new("example.com", "Box", VERSIONS, chain());
    [chain().into(), reads_all].map(|converter| Converters::new([converter]).unwrap())
});

/// Checks the answer to any bytes, and returns it. None if they are not a review.
pub(crate) fn check(body: &[u8]) -> Option<Value> {
    let review = Review::parse(body, Limits { objects: 10_000, ..Limits::default() }).ok()?;
    let [fast, slow] = BOTH.each_ref().map(|converters| review.convert(converters, Scope::All, &|_| true));
    let shown = || String::from_utf8_lossy(body);
    assert_eq!(fast.failure, slow.failure, "{}", shown());
    assert_eq!(fast.converted, slow.converted, "{}", shown());
    let (fast, slow) = (understood(&review, &fast), understood(&review, &slow));
    assert_eq!(fast, slow, "{}", shown());
    Some(fast)
}

/// The answer, after a check that an API server understands it.
fn understood(review: &Review<'_>, answer: &Answer) -> Value {
    let answered: Value = serde_json::from_slice(&answer.body.to_vec()).unwrap();
    assert_eq!(answered["apiVersion"], review.head().api_version.as_str());
    assert_eq!(answered["response"]["uid"], review.head().uid.as_str());
    let count = answered["response"]["convertedObjects"].as_array().map(Vec::len);
    assert_eq!(count, answer.failure.is_none().then_some(review.count()));
    assert!(answer.failure.as_ref().is_none_or(|failure| failure.message.chars().count() <= 4097));
    answered
}
