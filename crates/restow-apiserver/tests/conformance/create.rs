//! Create: what is refused and with which message, and which fields the server sets.

use serde_json::{Value, json};

use crate::subject::{ApiRequest, Subject};

scenarios![
    invalid_creates_are_refused,
    create_returns_the_object_with_server_set_fields,
    create_ignores_server_set_fields,
    generated_names_add_five_characters,
    a_name_that_is_taken_is_a_conflict,
    a_malformed_body_is_a_bad_request,
    only_objects_with_a_desired_state_have_a_generation,
    a_created_secret_has_its_string_data_encoded,
    cluster_scoped_objects_have_no_namespace,
];

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
    and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

async fn invalid_creates_are_refused(subject: &Subject) {
    let place = subject.namespace("create-refuses").await;
    let named = |name: &str| json!({"metadata": {"name": name}});
    let bad = format!(
        r#"422 Invalid: ConfigMap "A_b" is invalid: metadata.name: Invalid value: "A_b": {SUBDOMAIN}"#
    );
    place
        .table(&[
            (
                "POST",
                "/api/v1/namespaces/none-such/configmaps",
                named("a"),
                r#"404 NotFound: namespaces "none-such" not found"#,
            ),
            (
                "POST",
                "configmaps",
                json!({}),
                r#"422 Invalid: ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required"#,
            ),
            ("POST", "configmaps", named("A_b"), &bad),
            (
                "POST",
                "configmaps",
                json!({"metadata": {"name": "a", "namespace": "elsewhere"}}),
                "400 BadRequest: the namespace of the provided object does not match the namespace sent on the request",
            ),
            (
                "POST",
                "configmaps",
                json!({"metadata": {"name": "a", "resourceVersion": "1"}}),
                "500 -: resourceVersion should not be set on objects to be created",
            ),
            (
                "POST",
                "configmaps",
                json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "a"}}),
                "400 BadRequest: *",
            ),
            (
                "POST",
                "configmaps",
                json!({"kind": "ConfigMap", "apiVersion": "v2", "metadata": {"name": "a"}}),
                "400 BadRequest: *",
            ),
            (
                "POST",
                "configmaps/a",
                named("a"),
                "405 MethodNotAllowed: the server does not allow this method on the requested resource",
            ),
        ])
        .await;
}

async fn create_returns_the_object_with_server_set_fields(subject: &Subject) {
    let place = subject.namespace("create-answers").await;
    let made = place
        .post("configmaps", json!({"metadata": {"name": "a", "labels": {"l": "1"}}, "data": {"k": "v"}}))
        .await;
    assert_eq!(made.code(), 201);
    assert_eq!(made.header("content-type"), "application/json");
    assert_eq!((&made["kind"], &made["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
    let metadata = &made["metadata"];
    assert_eq!((&metadata["name"], &metadata["namespace"]), (&json!("a"), &json!("create-answers")));
    assert_eq!((&metadata["labels"], &made["data"]), (&json!({"l": "1"}), &json!({"k": "v"})));
    assert_eq!(made.uid().len(), 36);
    assert!(made.revision() > 0);
    let created = metadata["creationTimestamp"].as_str().unwrap();
    assert!(created.len() == 20 && created.ends_with('Z'), "{created}");
    assert_eq!(place.get("configmaps/a").await.body, made.body);
}

async fn create_ignores_server_set_fields(subject: &Subject) {
    let place = subject.namespace("create-ignores").await;
    let wishes = json!({
        "name": "a",
        "uid": "11111111-1111-1111-1111-111111111111",
        "creationTimestamp": "2001-01-01T00:00:00Z",
        "deletionTimestamp": "2001-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 5,
        "generation": 7,
        "selfLink": "/mine",
    });
    let made = place.post("configmaps", json!({"metadata": wishes})).await.ok();
    let metadata = &made["metadata"];
    assert_ne!(made.uid(), "11111111-1111-1111-1111-111111111111");
    assert_ne!(metadata["creationTimestamp"], json!("2001-01-01T00:00:00Z"));
    for gone in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        assert_eq!(metadata[gone], Value::Null, "{gone}");
    }
}

async fn generated_names_add_five_characters(subject: &Subject) {
    let place = subject.namespace("create-generated").await;
    let asked = json!({"metadata": {"generateName": "some-"}});
    let (one, other) =
        (place.post("configmaps", asked.clone()).await.ok(), place.post("configmaps", asked).await.ok());
    let name = |made: &Value| made["metadata"]["name"].as_str().unwrap().to_owned();
    for made in [&one, &other] {
        assert!(name(&made.body).starts_with("some-") && name(&made.body).len() == 10, "{:?}", made.body);
        assert_eq!(made["metadata"]["generateName"], "some-");
    }
    assert_ne!(name(&one.body), name(&other.body));
    // An explicit name wins.
    let both = json!({"metadata": {"generateName": "some-", "name": "given"}});
    assert_eq!(name(&place.post("configmaps", both).await.ok().body), "given");
}

async fn a_name_that_is_taken_is_a_conflict(subject: &Subject) {
    let place = subject.namespace("create-taken").await;
    place.post("configmaps", json!({"metadata": {"name": "a"}})).await.ok();
    let again = place.post("configmaps", json!({"metadata": {"name": "a"}})).await;
    let expected = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "configmaps \"a\" already exists", "reason": "AlreadyExists",
        "details": {"name": "a", "kind": "configmaps"}, "code": 409,
    });
    assert_eq!((again.code(), &again.body), (409, &expected));
    // The message includes the API group.
    let leases = place.of("coordination.k8s.io/v1");
    leases.post("leases", json!({"metadata": {"name": "a"}})).await.ok();
    let again = leases.post("leases", json!({"metadata": {"name": "a"}})).await;
    assert_eq!(again.line(), r#"409 AlreadyExists: leases.coordination.k8s.io "a" already exists"#);
    assert_eq!(again["details"], json!({"name": "a", "group": "coordination.k8s.io", "kind": "leases"}));
}

async fn a_malformed_body_is_a_bad_request(subject: &Subject) {
    let place = subject.namespace("create-broken").await;
    for body in ["", "{", "[]", "nonsense", "\"text\"", "{\"metadata\":5}"] {
        let answer = place.send(ApiRequest::new("POST", "configmaps").body(body)).await;
        assert_eq!(answer.reason(), "400 BadRequest", "{body:?}: {}", answer.line());
    }
}

async fn only_objects_with_a_desired_state_have_a_generation(subject: &Subject) {
    let place = subject.namespace("create-generation").await;
    let named = json!({"metadata": {"name": "a"}});
    let pod = json!({"containers": [{"name": "c", "image": "i"}]});
    let spec = json!({
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod},
    });
    let apps = place.of("apps/v1");
    let deployment = apps.post("deployments", json!({"metadata": {"name": "a"}, "spec": spec})).await.ok();
    assert_eq!(deployment.generation(), Some(1));
    assert_eq!(place.post("configmaps", named.clone()).await.ok().generation(), None);
    assert_eq!(place.post("secrets", named.clone()).await.ok().generation(), None);
    let leases = place.of("coordination.k8s.io/v1");
    assert_eq!(leases.post("leases", named).await.ok().generation(), None);
}

async fn a_created_secret_has_its_string_data_encoded(subject: &Subject) {
    let place = subject.namespace("create-secret").await;
    let secret = json!({"metadata": {"name": "a"}, "stringData": {"k": "v"}, "data": {"old": "b2xk"}});
    let made = place.post("secrets", secret).await.ok();
    assert_eq!(made["data"], json!({"k": "dg==", "old": "b2xk"}));
    assert_eq!((&made["stringData"], &made["type"]), (&Value::Null, &json!("Opaque")));
}

async fn cluster_scoped_objects_have_no_namespace(subject: &Subject) {
    let place = subject.place("none");
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    // A requested namespace is dropped.
    let role = json!({"metadata": {"name": "create-cluster", "namespace": "x"}, "rules": []});
    assert_eq!(place.post(roles, role).await.ok()["metadata"]["namespace"], Value::Null);
    let made = place.get(&format!("{roles}/create-cluster")).await.ok();
    assert_eq!(made["metadata"]["namespace"], Value::Null);
}
