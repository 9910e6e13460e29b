//! Rules are tried on objects that their schemas allow.

use restow_convert::rules::generate;
use restow_convert::{Refusal, try_on};
use serde_json::json;

use crate::fixture::{backup, chain, rules};

#[test]
fn generated_objects_survive_and_what_is_kept_is_named() {
    let objects = generate(&rules(), &chain(), 200, 7);
    assert_eq!(objects.len(), 400);
    assert_eq!(objects, generate(&rules(), &chain(), 200, 7));
    let trials = try_on(&chain(), objects).unwrap();
    let [up, down] = &trials[..] else { panic!("{trials:#?}") };
    assert_eq!((up.from.as_str(), up.to.as_str(), up.objects), ("v1beta1", "v1", 200));
    assert_eq!((up.refused.len(), down.refused.len()), (0, 0), "{trials:#?}");
    // The author accepts this loss.
    assert_eq!(up.lost.keys().collect::<Vec<_>>(), ["spec.comment"]);
    assert!(down.is_clean(), "{down:#?}");
    for kept in ["spec.legacy", "spec.mode", "spec.ports[].note", "spec.hosts"] {
        assert!(up.kept.contains_key(kept), "{kept}: {:#?}", up.kept);
    }
    assert!(down.kept.contains_key("spec.replicas"), "{:#?}", down.kept);
}

#[test]
fn an_object_that_is_refused_is_named_with_the_reason() {
    let objects = vec![("one".to_owned(), backup("v1beta1", json!({"retries": "many"})))];
    let trials = try_on(&chain(), objects).unwrap();
    let message = "cannot convert from v1beta1 to v1: spec.retries: not an integer: \"many\"".to_owned();
    assert_eq!(trials[0].refused, [Refusal { object: "one".to_owned(), message }]);
    assert!(!trials[0].is_clean());

    let (name, error) = try_on(&chain(), vec![("two".to_owned(), backup("v7", json!({})))]).unwrap_err();
    assert_eq!(
        (name.as_str(), error.to_string().as_str()),
        ("two", "unknown version v7; known versions: v1beta1, v1")
    );
}
