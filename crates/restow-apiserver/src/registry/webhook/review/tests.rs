use super::*;

fn widget(version: &str) -> Value {
    json!({
        "apiVersion": format!("example.com/{version}"), "kind": "Widget",
        "metadata": {"name": "a", "namespace": "x", "uid": "u", "labels": {"l": "1"}, "generation": 3},
    })
}

fn review(count: usize) -> Review {
    Review::new(ReviewVersion::V1, "r", "example.com/v2", vec![widget("v1"); count])
}

fn answer(objects: Vec<Value>) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "response": {"uid": "r", "result": {"status": "Success"}, "convertedObjects": objects},
    })
}

fn message(review: &Review, answer: Value) -> String {
    match review.converted(answer) {
        Ok(objects) => format!("{} converted", objects.len()),
        Err(error) => review.failure(error).message().to_owned(),
    }
}

#[test]
fn a_conversion_review_has_the_objects_and_the_desired_version() {
    let request = review(1).request();
    assert_eq!(request["apiVersion"], "apiextensions.k8s.io/v1");
    let expected = json!({"uid": "r", "desiredAPIVersion": "example.com/v2", "objects": [widget("v1")]});
    assert_eq!(request["request"], expected);
}

#[test]
fn the_first_supported_review_version_is_used() {
    for (versions, expected) in [
        (vec!["v1", "v1beta1"], Some(ReviewVersion::V1)),
        (vec!["v2", "v1beta1", "v1"], Some(ReviewVersion::V1beta1)),
        (vec!["v2"], None),
        (vec![], None),
    ] {
        let versions: Vec<String> = versions.into_iter().map(str::to_owned).collect();
        assert_eq!(ReviewVersion::first_of(&versions), expected, "{versions:?}");
    }
}

#[test]
fn malformed_review_responses_are_refused() {
    let with = |change: &dyn Fn(&mut Value)| {
        let mut answer = answer(vec![widget("v2")]);
        change(&mut answer);
        answer
    };
    let object = |field: &str, value: Value| {
        with(&|answer| {
            *answer["response"]["convertedObjects"][0].pointer_mut(field).unwrap() = value.clone();
        })
    };
    for (answer, expected) in [
        (answer(vec![]), "returned 0 objects, expected 1"),
        (answer(vec![widget("v2"), widget("v2")]), "returned 2 objects, expected 1"),
        (with(&|answer| answer["response"] = Value::Null), "failed: no response provided"),
        (
            with(&|answer| answer["response"]["uid"] = json!("s")),
            "failed: expected response.uid=\"r\", got \"s\"",
        ),
        (
            with(&|answer| answer["kind"] = json!("Status")),
            "failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got \
             apiextensions.k8s.io/v1, Kind=Status",
        ),
        (
            with(&|answer| answer["response"]["result"] = json!({"status": "Failure", "message": "no"})),
            "failed: no",
        ),
        (
            with(&|answer| answer["response"]["result"] = json!({"status": "Failure"})),
            "failed: response.result.status was 'Failure', not 'Success'",
        ),
        (
            object("/apiVersion", json!("example.com/v3")),
            "returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received example.com/v3)",
        ),
        (
            object("/kind", json!("W")),
            "returned invalid object at index 0: invalid kind (expected Widget, received W)",
        ),
        (object("/metadata/name", json!("b")), "returned invalid object: must have the same name: a != b"),
        (
            object("/metadata/namespace", json!("y")),
            "returned invalid object: must have the same namespace: x != y",
        ),
        (object("/metadata/uid", json!("v")), "returned invalid object: must have the same UID: u != v"),
        (
            object("/metadata/labels", json!({"l": 1})),
            "returned invalid metadata: metadata.labels[l] must be a string, but is int64 in converted object",
        ),
        (
            object("/metadata/labels", json!("l")),
            "returned invalid metadata: invalid metadata.labels of type string in converted object",
        ),
    ] {
        let expected = format!("conversion webhook for example.com/v1, Kind=Widget {expected}");
        assert_eq!(message(&review(1), answer), expected);
    }
    let refused = message(&review(1), object("/metadata/labels", json!({"l": "not a label"})));
    assert!(refused.contains("returned invalid metadata: metadata.labels: Invalid value"), "{refused}");
}

#[test]
fn a_webhook_can_change_only_labels_and_annotations_of_metadata() {
    let mut sent = widget("v2");
    sent["metadata"] = json!({
        "name": "a", "namespace": "x", "uid": "u", "annotations": {"n": "1"}, "generation": 9, "finalizers": ["f"],
    });
    sent["spec"] = json!({"size": 1});
    let converted = review(1).converted(answer(vec![sent])).unwrap();
    let metadata =
        json!({"name": "a", "namespace": "x", "uid": "u", "annotations": {"n": "1"}, "generation": 3});
    assert_eq!((&converted[0]["metadata"], &converted[0]["spec"]["size"]), (&metadata, &json!(1)));
}

#[test]
fn errors_name_the_index_of_an_object_among_many() {
    let mut second = widget("v2");
    second["metadata"]["name"] = json!("b");
    let found = message(&review(2), answer(vec![widget("v2"), second]));
    let expected = "conversion webhook for example.com/v1, Kind=Widget returned invalid converted object at index 1: \
                    must have the same name: a != b";
    assert_eq!(found, expected);
}
