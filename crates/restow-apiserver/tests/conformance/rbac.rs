//! RBAC: messages of denials, and roles that grant permissions.

use serde_json::{Value, json};

use crate::definition::{define, wait, widget};
use crate::subject::{ApiRequest, Caller, Place, Subject};

scenarios![
    a_user_without_permissions_gets_403,
    every_user_may_use_discovery,
    a_role_grants_in_its_namespace,
    a_cluster_role_grants_everywhere,
    a_role_can_be_restricted_to_resource_names,
    an_unknown_token_is_unauthorized,
    a_request_without_a_token_is_anonymous,
    access_reviews_are_answered,
    users_cannot_grant_permissions_they_do_not_have,
    permissions_in_a_namespace_do_not_cover_cluster_scoped_objects,
    the_role_of_a_binding_must_be_of_the_rbac_group,
    a_binding_of_another_api_group_is_checked_for_escalation,
    invalid_rules_are_refused,
    self_subject_reviews_are_answered,
    a_subresource_needs_its_own_rule,
];

const RBAC: &str = "rbac.authorization.k8s.io/v1";

async fn line(place: &Place<'_>, verb: &str, path: &str) -> String {
    let call = ApiRequest::new(verb, path);
    let call =
        if verb == "GET" || verb == "DELETE" { call } else { call.json(&json!({"metadata": {"name": "a"}})) };
    place.send(call.by(Caller::Alice)).await.line()
}

async fn a_user_without_permissions_gets_403(subject: &Subject) {
    let place = subject.namespace("rbac-nothing").await;
    let user = |verb: &str, resource: &str, group: &str, rest: &str| {
        format!("User \"alice\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {rest}")
    };
    let here = "in the namespace \"rbac-nothing\"";
    let wide = "at the cluster scope";
    for (verb, path, expected) in [
        (
            "GET",
            "configmaps/a",
            format!("configmaps \"a\" is forbidden: {}", user("get", "configmaps", "", here)),
        ),
        ("GET", "configmaps", format!("configmaps is forbidden: {}", user("list", "configmaps", "", here))),
        (
            "GET",
            "configmaps?watch=true",
            format!("configmaps is forbidden: {}", user("watch", "configmaps", "", here)),
        ),
        (
            "POST",
            "configmaps",
            format!("configmaps is forbidden: {}", user("create", "configmaps", "", here)),
        ),
        (
            "PUT",
            "configmaps/a",
            format!("configmaps \"a\" is forbidden: {}", user("update", "configmaps", "", here)),
        ),
        (
            "MERGE",
            "configmaps/a",
            format!("configmaps \"a\" is forbidden: {}", user("patch", "configmaps", "", here)),
        ),
        (
            "DELETE",
            "configmaps/a",
            format!("configmaps \"a\" is forbidden: {}", user("delete", "configmaps", "", here)),
        ),
        (
            "DELETE",
            "configmaps",
            format!("configmaps is forbidden: {}", user("deletecollection", "configmaps", "", here)),
        ),
        (
            "GET",
            "/api/v1/configmaps",
            format!("configmaps is forbidden: {}", user("list", "configmaps", "", wide)),
        ),
        (
            "GET",
            "/api/v1/namespaces/x",
            format!(
                "namespaces \"x\" is forbidden: {}",
                user("get", "namespaces", "", "in the namespace \"x\"")
            ),
        ),
        (
            "GET",
            "/apis/apps/v1/deployments",
            format!("deployments.apps is forbidden: {}", user("list", "deployments", "apps", wide)),
        ),
        ("GET", "nonsense", format!("nonsense is forbidden: {}", user("list", "nonsense", "", here))),
        (
            "GET",
            "/apis/none.example/v1/things",
            format!("things.none.example is forbidden: {}", user("list", "things", "none.example", wide)),
        ),
        ("GET", "/metrics", "forbidden: User \"alice\" cannot get path \"/metrics\"".to_owned()),
    ] {
        assert_eq!(line(&place, verb, path).await, format!("403 Forbidden: {expected}"), "{verb} {path}");
    }
    let answer = place.send(ApiRequest::get("configmaps/a").by(Caller::Alice)).await;
    assert_eq!(answer["details"], json!({"name": "a", "kind": "configmaps"}));
}

async fn every_user_may_use_discovery(subject: &Subject) {
    let place = subject.place("none");
    for path in [
        "/api",
        "/apis",
        "/api/v1",
        "/apis/apps/v1",
        "/version",
        "/healthz",
        "/readyz",
        "/livez",
        "/openapi/v3",
    ] {
        assert_eq!(place.send(ApiRequest::get(path).by(Caller::Alice)).await.code(), 200, "{path}");
    }
}

/// Grants rules to alice, and waits until they are in force.
async fn grant(place: &Place<'_>, name: &str, rules: Value, granted: &str) {
    let rbac = place.of(RBAC);
    rbac.post("roles", json!({"metadata": {"name": name}, "rules": rules})).await.ok();
    let subjects = json!([{"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}]);
    let role = json!({"kind": "Role", "name": name, "apiGroup": "rbac.authorization.k8s.io"});
    let binding = json!({"metadata": {"name": name}, "subjects": subjects, "roleRef": role});
    rbac.post("rolebindings", binding).await.ok();
    wait("the grant", || async {
        place.send(ApiRequest::get(granted).by(Caller::Alice)).await.code() == 200
    })
    .await;
}

async fn a_role_grants_in_its_namespace(subject: &Subject) {
    let place = subject.namespace("rbac-role").await;
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "create"]}]);
    grant(&place, "read", rules, "configmaps").await;
    assert_eq!(line(&place, "POST", "configmaps").await, "201");
    assert_eq!(line(&place, "GET", "configmaps/a").await, "200");
    for (verb, path) in [
        ("DELETE", "configmaps/a"),
        ("GET", "secrets"),
        ("GET", "/api/v1/configmaps"),
        ("GET", "configmaps?watch=true"),
    ] {
        assert!(line(&place, verb, path).await.starts_with("403 Forbidden"), "{verb} {path}");
    }
    // Permissions can be revoked.
    place.of(RBAC).delete("rolebindings/read").await.ok();
    wait("the end", || async {
        place.send(ApiRequest::get("configmaps").by(Caller::Alice)).await.code() == 403
    })
    .await;
}

async fn a_cluster_role_grants_everywhere(subject: &Subject) {
    let place = subject.namespace("rbac-wide").await;
    let path = "/apis/rbac.authorization.k8s.io/v1";
    let rules = json!([
        {"apiGroups": ["coordination.k8s.io"], "resources": ["*"], "verbs": ["list"]},
        {"nonResourceURLs": ["/nonsense/*"], "verbs": ["get"]},
    ]);
    place
        .post(&format!("{path}/clusterroles"), json!({"metadata": {"name": "rbac-wide"}, "rules": rules}))
        .await
        .ok();
    let binding = json!({
        "metadata": {"name": "rbac-wide"},
        "subjects": [{"kind": "Group", "name": "system:authenticated", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": "ClusterRole", "name": "rbac-wide", "apiGroup": "rbac.authorization.k8s.io"},
    });
    place.post(&format!("{path}/clusterrolebindings"), binding).await.ok();
    let leases = place.of("coordination.k8s.io/v1");
    wait("the grant", || async {
        leases.send(ApiRequest::get("leases").by(Caller::Alice)).await.code() == 200
    })
    .await;
    assert_eq!(line(&leases, "GET", "/apis/coordination.k8s.io/v1/leases").await, "200");
    assert!(line(&leases, "GET", "leases/a").await.starts_with("403"));
}

async fn a_role_can_be_restricted_to_resource_names(subject: &Subject) {
    let place = subject.namespace("rbac-names").await;
    place.post("configmaps", json!({"metadata": {"name": "a"}})).await.ok();
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a"], "verbs": ["get", "list", "create"]}]);
    grant(&place, "one", rules, "configmaps/a").await;
    assert!(line(&place, "GET", "configmaps/b").await.starts_with("403"));
    assert!(line(&place, "GET", "configmaps").await.starts_with("403"));
    assert_eq!(line(&place, "GET", "configmaps?fieldSelector=metadata.name%3Da").await, "200");
    assert!(line(&place, "POST", "configmaps").await.starts_with("403"));
}

async fn a_subresource_needs_its_own_rule(subject: &Subject) {
    let place = subject.namespace("rbac-sub").await;
    let apps = place.of("apps/v1");
    let pod = json!({"containers": [{"name": "c", "image": "i"}]});
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod.clone()}});
    apps.post("deployments", json!({"metadata": {"name": "a"}, "spec": spec})).await.ok();
    let rules = json!([
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["*/status"], "verbs": ["get"]},
    ]);
    grant(&place, "sub", rules, "/apis/apps/v1/namespaces/rbac-sub/deployments/a").await;
    place.post("pods", json!({"metadata": {"name": "a"}, "spec": pod})).await.ok();
    assert_eq!(line(&place, "GET", "pods/a/status").await, "200");
    assert!(line(&place, "GET", "pods/a").await.starts_with("403"));
    assert_eq!(
        line(&apps, "GET", "deployments/a/status").await,
        "403 Forbidden: deployments.apps \"a\" is forbidden: User \"alice\" cannot get resource \
         \"deployments/status\" in API group \"apps\" in the namespace \"rbac-sub\""
    );
}

async fn an_unknown_token_is_unauthorized(subject: &Subject) {
    let place = subject.place("none");
    let expected = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "Unauthorized", "reason": "Unauthorized", "code": 401,
    });
    for path in ["/api/v1/namespaces", "/readyz", "/nonsense"] {
        let answer = place.send(ApiRequest::get(path).by(Caller::Stranger)).await;
        assert_eq!((answer.code(), &answer.body), (401, &expected), "{path}");
    }
}

async fn a_request_without_a_token_is_anonymous(subject: &Subject) {
    let place = subject.place("none");
    let answer = place.send(ApiRequest::get("/api/v1/namespaces").by(Caller::Anonymous)).await;
    assert_eq!(
        answer.line(),
        "403 Forbidden: namespaces is forbidden: User \"system:anonymous\" cannot list resource \"namespaces\" in \
         API group \"\" at the cluster scope"
    );
    for path in ["/healthz", "/readyz", "/livez", "/version"] {
        assert_eq!(place.send(ApiRequest::get(path).by(Caller::Anonymous)).await.code(), 200, "{path}");
    }
    assert_eq!(place.send(ApiRequest::get("/apis").by(Caller::Anonymous)).await.code(), 403);
}

async fn access_reviews_are_answered(subject: &Subject) {
    let place = subject.namespace("rbac-ask").await;
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let review = |verb: &str, resource: &str| {
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": verb, "resource": resource, "namespace": "rbac-ask"}}})
    };
    let own = place.post(path, review("get", "configmaps")).await;
    assert_eq!((own.code(), &own["status"]["allowed"]), (201, &json!(true)));
    let other =
        place.send(ApiRequest::new("POST", path).json(&review("get", "configmaps")).by(Caller::Alice)).await;
    assert_eq!((other.code(), &other["status"]["allowed"]), (201, &json!(false)));
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let mut asked = review("list", "secrets");
    asked["kind"] = json!("SubjectAccessReview");
    asked["spec"]["user"] = json!("alice");
    let answer = place.post(path, asked.clone()).await;
    assert_eq!((answer.code(), &answer["status"]["allowed"]), (201, &json!(false)));
    asked["spec"]["groups"] = json!(["system:masters"]);
    assert_eq!(place.post(path, asked).await["status"]["allowed"], true);
}

async fn users_cannot_grant_permissions_they_do_not_have(subject: &Subject) {
    let place = subject.namespace("rbac-escalate").await;
    let rules = json!([{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["get", "list", "create"]}]);
    grant(&place, "some", rules, "/apis/rbac.authorization.k8s.io/v1/namespaces/rbac-escalate/roles").await;
    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]);
    let more = json!({"metadata": {"name": "more"}, "rules": rules});
    let answer = place.of(RBAC).send(ApiRequest::new("POST", "roles").json(&more).by(Caller::Alice)).await;
    assert_eq!(answer.reason(), "403 Forbidden", "{}", answer.line());
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .contains("is attempting to grant RBAC permissions not currently held"),
        "{}",
        answer.line()
    );
}

/// Binds alice to a cluster role in the namespace of a place, and waits until that is in force.
async fn bind(place: &Place<'_>, role: &str, granted: &str) {
    let binding = json!({
        "metadata": {"name": "alice"},
        "subjects": [{"kind": "User", "name": "alice"}],
        "roleRef": {"kind": "ClusterRole", "name": role, "apiGroup": "rbac.authorization.k8s.io"},
    });
    place.of(RBAC).post("rolebindings", binding).await.ok();
    wait("the binding", || async {
        place.send(ApiRequest::get(granted).by(Caller::Alice)).await.code() == 200
    })
    .await;
}

async fn permissions_in_a_namespace_do_not_cover_cluster_scoped_objects(subject: &Subject) {
    // A namespace, a cluster-scoped object and a cluster role of one name.
    let (group, name) = ("reach.example", "reach-example");
    let place = define(subject, group, |definition| definition["spec"]["scope"] = json!("Cluster")).await;
    let path = format!("/apis/{group}/v1/widgets");
    let made = place.post(&path, widget(group, name, json!({"size": 1}))).await.ok();
    let roles = "/apis/rbac.authorization.k8s.io/v1";
    place.post(&format!("{roles}/clusterroles"), json!({"metadata": {"name": name}, "rules": []})).await.ok();
    bind(&place, "cluster-admin", "/api/v1/namespaces/reach-example/configmaps").await;
    for (verb, path) in [
        ("GET", format!("widgets/{name}")),
        ("PUT", format!("widgets/{name}")),
        ("MERGE", format!("widgets/{name}")),
        ("DELETE", format!("widgets/{name}")),
        ("GET", format!("widgets/{name}/status")),
        ("GET", "widgets".to_owned()),
        ("POST", "widgets".to_owned()),
        ("DELETE", "widgets".to_owned()),
        ("GET", format!("{roles}/namespaces/{name}/clusterroles/{name}")),
        ("DELETE", format!("{roles}/namespaces/{name}/clusterroles/{name}")),
        ("GET", format!("/api/v1/namespaces/{name}/namespaces/{name}")),
        ("GET", format!("/api/v1/namespaces/{name}/namespaces")),
    ] {
        let answer = line(&place, verb, &path).await;
        assert!(answer.starts_with("404"), "{verb} {path}: {answer}");
    }
    let kept = place.get(&format!("{path}/{name}")).await.ok();
    assert_eq!((kept.uid(), kept.resource_version()), (made.uid(), made.resource_version()));
}

/// A binding of bob to a cluster role, whose group is as given.
fn binding_of(name: &str, role: Value) -> Value {
    json!({"metadata": {"name": name}, "subjects": [{"kind": "User", "name": "bob"}], "roleRef": role})
}

async fn the_role_of_a_binding_must_be_of_the_rbac_group(subject: &Subject) {
    let place = subject.namespace("rbac-groups").await.of(RBAC);
    let invalid = |name: &str, why: &str| {
        format!("422 Invalid: RoleBinding.rbac.authorization.k8s.io \"{name}\" is invalid: {why}")
    };
    let group = "rbac.authorization.k8s.io";
    let view = |group: &str| json!({"apiGroup": group, "kind": "ClusterRole", "name": "view"});
    let mut wrong_subject = binding_of("f", view(group));
    wrong_subject["subjects"] = json!([
        {"kind": "User", "name": "u", "apiGroup": "x.example"},
        {"kind": "Robot", "name": "r"},
        {"kind": "ServiceAccount", "name": "s", "apiGroup": group},
        {"kind": "Group", "name": ""},
    ]);
    place
        .table(&[
            ("POST", "rolebindings", binding_of("a", view("")), "201"),
            ("POST", "rolebindings", binding_of("b", json!({"kind": "ClusterRole", "name": "view"})), "201"),
            // A defaulted API group is the same role.
            ("MERGE", "rolebindings/b", json!({"roleRef": {"apiGroup": ""}, "metadata": {"labels": {"x": "y"}}}), "200"),
            ("POST", "rolebindings", binding_of("c", view("x.example")), &invalid("c", "roleRef.apiGroup: Unsupported value: \"x.example\": supported values: \"rbac.authorization.k8s.io\"")),
            ("POST", "rolebindings", binding_of("d", json!({"kind": "Cluster", "name": "view"})), &invalid("d", "roleRef.kind: Unsupported value: \"Cluster\": supported values: \"Role\", \"ClusterRole\"")),
            ("POST", "rolebindings", binding_of("e", json!({"kind": "ClusterRole", "name": ""})), &invalid("e", "roleRef.name: Required value")),
            ("POST", "rolebindings", wrong_subject, &invalid("f", "[subjects[0].apiGroup: Unsupported value: \"x.example\": supported values: \"rbac.authorization.k8s.io\", subjects[1].kind: Unsupported value: \"Robot\": supported values: \"ServiceAccount\", \"User\", \"Group\", subjects[2].apiGroup: Unsupported value: \"rbac.authorization.k8s.io\": supported values: \"\", subjects[3].name: Required value]")),
            ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding_of("g", json!({"kind": "Role", "name": "view"})), "422 Invalid: ClusterRoleBinding.rbac.authorization.k8s.io \"g\" is invalid: roleRef.kind: Unsupported value: \"Role\": supported values: \"ClusterRole\""),
        ])
        .await;
    let stored = place.get("rolebindings/a").await.ok();
    assert_eq!(stored["roleRef"]["apiGroup"], group);
    assert_eq!(stored["subjects"], json!([{"kind": "User", "name": "bob", "apiGroup": group}]));
}

async fn invalid_rules_are_refused(subject: &Subject) {
    let place = subject.namespace("rbac-rules").await.of(RBAC);
    let role = |name: &str, rule: Value| json!({"metadata": {"name": name}, "rules": [rule]});
    let invalid = |kind: &str, name: &str, why: &str| {
        format!("422 Invalid: {kind}.rbac.authorization.k8s.io \"{name}\" is invalid: {why}")
    };
    let paths = json!({"nonResourceURLs": ["/x", "/y"], "verbs": ["get"]});
    let both = json!({"nonResourceURLs": ["/x"], "apiGroups": [""], "resources": ["pods"], "verbs": ["get"]});
    let cluster_roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let empty = json!({"metadata": {"name": "f"}, "aggregationRule": {}});
    place
        .table(&[
            ("POST", "roles", role("a", paths.clone()), &invalid("Role", "a", "rules[0].nonResourceURLs: Invalid value: [\"/x\",\"/y\"]: namespaced rules cannot apply to non-resource URLs")),
            ("POST", "roles", role("b", json!({"verbs": []})), &invalid("Role", "b", "[rules[0].verbs: Required value: verbs must contain at least one value, rules[0].apiGroups: Required value: resource rules must supply at least one api group, rules[0].resources: Required value: resource rules must supply at least one resource]")),
            ("POST", cluster_roles, role("rbac-rules", paths), "201"),
            ("MERGE", &format!("{cluster_roles}/rbac-rules"), json!({"rules": [both]}), &invalid("ClusterRole", "rbac-rules", "rules[0].nonResourceURLs: Invalid value: [\"/x\"]: rules cannot apply to both regular resources and non-resource URLs")),
            ("POST", cluster_roles, empty, &invalid("ClusterRole", "f", "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil")),
        ])
        .await;
}

async fn a_binding_of_another_api_group_is_checked_for_escalation(subject: &Subject) {
    let place = subject.namespace("rbac-other-group").await;
    let rules = json!([
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["rolebindings"], "verbs": ["create"]},
        {"apiGroups": ["", "x.example"], "resources": ["*"], "verbs": ["*"]},
    ]);
    grant(&place, "some", rules, "configmaps").await;
    for group in ["", "x.example", "rbac.authorization.k8s.io"] {
        let role = json!({"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"});
        let call = ApiRequest::new("POST", "rolebindings").json(&binding_of("more", role)).by(Caller::Alice);
        let answer = place.of(RBAC).send(call).await;
        assert!([403, 422].contains(&answer.code()), "{group:?}: {}", answer.line());
        assert_eq!(place.of(RBAC).get("rolebindings/more").await.code(), 404, "{group:?}");
    }
}

async fn self_subject_reviews_are_answered(subject: &Subject) {
    let place = subject.place("none");
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let call = ApiRequest::new("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews").json(&review);
    let answer = place.send(call.by(Caller::Alice)).await;
    assert_eq!((answer.code(), &answer["status"]["userInfo"]["username"]), (201, &json!("alice")));
    let groups = answer["status"]["userInfo"]["groups"].as_array().unwrap();
    assert!(groups.contains(&json!("system:authenticated")), "{groups:?}");
}
