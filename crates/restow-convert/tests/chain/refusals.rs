//! What a chain refuses, and the message that the client reads.

use std::convert::Infallible;

use restow_convert::{Chain, Convertible, SimpleConverter};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::versions::{chain, v1, v1alpha1, v1beta1, widget};

/// An error and its causes.
fn message(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        message.push_str(": ");
        message.push_str(&cause.to_string());
        source = cause.source();
    }
    message
}

#[test]
fn a_refusal_says_what_is_wrong() {
    let good = || widget("v1alpha1", json!({"address": "a:1"}));
    let with = |field: &str, value: Value| {
        let mut widget = good();
        widget[field] = value;
        widget
    };
    let mut deep = json!(1);
    for _ in 0..100 {
        deep = json!([deep]);
    }
    let cases = [
        (good(), "v2", "unknown version v2; known versions: v1alpha1, v1beta1, v1"),
        (
            with("apiVersion", json!("example.com/v7")),
            "v1",
            "unknown version v7; known versions: v1alpha1, v1beta1, v1",
        ),
        (
            with("apiVersion", json!("other.com/v1")),
            "v1",
            "expected Widget.example.com, found Widget.other.com",
        ),
        (with("kind", json!("Gadget")), "v1", "expected Widget.example.com, found Gadget.example.com"),
        (with("kind", json!(null)), "v1", "not a Kubernetes object: it has no kind"),
        (with("metadata", json!("x")), "v1", "not a Kubernetes object: it has no metadata"),
        (json!([]), "v1", "not a Kubernetes object: it has no apiVersion"),
        (with("status", deep), "v1", "not a Kubernetes object: it is nested more than 100 levels deep"),
        (with("spec", json!({})), "v1", "the object is not a valid v1alpha1: missing field `address`"),
        (
            with("spec", json!({"address": "a:b"})),
            "v1",
            "cannot convert from v1alpha1 to v1beta1: invalid digit found in string",
        ),
    ];
    for (object, version, expected) in cases {
        let error = chain().convert(object, version).unwrap_err();
        assert_eq!(message(&error), expected);
    }
}

#[test]
fn more_than_the_annotation_may_hold_is_refused_by_name() {
    let chain = Chain::oldest::<v1alpha1::Widget>().then::<v1beta1::Widget>().limit(200).build().unwrap();
    let ok = widget("v1alpha1", json!({"address": "a:1", "legacy": true}));
    assert!(chain.convert(ok, "v1beta1").is_ok());
    let large = "x".repeat(300);
    let too_large = widget("v1alpha1", json!({"address": "a:1", "legacy": true, "large": large}));
    let error = chain.convert(too_large, "v1beta1").unwrap_err();
    let expected =
        "v1beta1 cannot express spec.large, spec.legacy of v1alpha1, and keeping it in an annotation takes ";
    assert!(error.to_string().starts_with(expected), "{error}");
    assert!(error.to_string().ends_with("bytes; the limit is 200"), "{error}");
}

/// Makes a version v2 of the widget whose converter meddles with the metadata.
macro_rules! meddler {
    ($name:ident, $meta:ident => $meddle:expr) => {
        mod $name {
            use super::*;
            use kube_derive::CustomResource;
            use schemars::JsonSchema;

            #[derive(CustomResource, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
            #[kube(
                group = "example.com",
                version = "v2",
                kind = "Widget",
                namespaced,
                crates(kube_core = "::kube_core")
            )]
            pub(super) struct WidgetSpec {}

            impl SimpleConverter for Widget {
                type Older = v1::Widget;
                type Error = Infallible;

                fn upgrade_from(older: v1::Widget) -> Result<Self, Infallible> {
                    let mut $meta = older.metadata;
                    $meddle;
                    Ok(Self { metadata: $meta, spec: WidgetSpec {} })
                }

                fn downgrade(self) -> Result<v1::Widget, Infallible> {
                    Ok(v1::Widget { metadata: self.metadata, spec: v1::WidgetSpec::default() })
                }
            }
        }
    };
}

meddler!(renames, metadata => metadata.name = Some("other".to_owned()));
meddler!(finalizes, metadata => metadata.finalizers = Some(vec!["x".to_owned()]));
meddler!(forgets, metadata => metadata.creation_timestamp = None);
meddler!(labels, metadata => metadata.labels = Some([("a".to_owned(), "b".to_owned())].into()));

#[test]
fn a_converter_that_changes_metadata_is_refused_by_the_field() {
    let widget = || widget("v1", json!({"host": "a", "port": 1, "replicas": 3}));
    let refused = |chain: Chain| chain.convert(widget(), "v2").unwrap_err().to_string();
    let expected = |field: &str| {
        format!(
            "the conversion from v1 to v2 changed metadata.{field}; only labels and annotations may change"
        )
    };
    let chain = Chain::oldest::<v1::Widget>;
    assert_eq!(refused(chain().then::<renames::Widget>().build().unwrap()), expected("name"));
    assert_eq!(refused(chain().then::<finalizes::Widget>().build().unwrap()), expected("finalizers"));
    assert_eq!(refused(chain().then::<forgets::Widget>().build().unwrap()), expected("creationTimestamp"));

    let labelled = chain().then::<labels::Widget>().build().unwrap();
    let converted = labelled.convert(widget(), "v2").unwrap();
    assert_eq!(converted["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(labelled.convert(converted, "v1").unwrap(), widget());
}

mod misplaced {
    //! A version that is older than the one it follows.
    use super::*;
    use kube_derive::CustomResource;
    use schemars::JsonSchema;

    #[derive(CustomResource, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
    #[kube(
        group = "example.com",
        version = "v1beta2",
        kind = "Widget",
        namespaced,
        crates(kube_core = "::kube_core")
    )]
    pub(super) struct WidgetSpec {}

    impl SimpleConverter for Widget {
        type Older = v1::Widget;
        type Error = Infallible;

        fn upgrade_from(older: v1::Widget) -> Result<Self, Infallible> {
            Ok(Self { metadata: older.metadata, spec: WidgetSpec {} })
        }

        fn downgrade(self) -> Result<v1::Widget, Infallible> {
            Ok(v1::Widget { metadata: self.metadata, spec: v1::WidgetSpec::default() })
        }
    }
}

#[test]
fn versions_out_of_order_make_no_chain() {
    let error = Chain::oldest::<v1::Widget>().then::<misplaced::Widget>().build().map(drop).unwrap_err();
    let expected = "version v1beta2 follows v1, but is not newer by Kubernetes' order of versions";
    assert_eq!(error.to_string(), expected);
}
