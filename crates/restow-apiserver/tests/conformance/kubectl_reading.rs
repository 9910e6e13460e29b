//! kubectl as a process, reading: its output is the same on both servers.

use restow_lab::assets;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::definition::{define, wait, widget};
use crate::kubectl::{CONFIG, Kubectl, aged};
use crate::subject::Subject;

scenarios![
    kubectl_describes,
    kubectl_lists_resources,
    kubectl_explains,
    kubectl_shows_custom_resources,
    kubectl_reports_errors,
    kubectl_auth_can_i_works,
    kubectl_watches,
    kubectl_describes_a_namespace,
];

async fn kubectl_describes(subject: &Subject) {
    let Some(kubectl) = Kubectl::new(subject, "kubectl-describes").await else { return };
    kubectl
        .table(&[
            ("create -f -", CONFIG, "configmap/a created"),
            (
                "describe cm a",
                "",
                "Name: a\nNamespace: kubectl-describes\nLabels: <none>\nAnnotations: <none>\n\nData\n====\nk:\n----\nv\n\n\nBinaryData\n====\n\nEvents: <none>",
            ),
        ])
        .await;
}

async fn kubectl_describes_a_namespace(subject: &Subject) {
    let Some(kubectl) = Kubectl::new(subject, "kubectl-describes-ns").await else { return };
    kubectl
        .table(&[
            (
                "describe ns kubectl-describes-ns",
                "",
                "Name: kubectl-describes-ns\nLabels: kubernetes.io/metadata.name=kubectl-describes-ns\nAnnotations: <none>\nStatus: Active\n\nNo resource quota.\n\nNo LimitRange resource.",
            ),
        ])
        .await;
}

async fn kubectl_lists_resources(subject: &Subject) {
    let Some(kubectl) = Kubectl::new(subject, "kubectl-resources").await else { return };
    let resources = kubectl.run("api-resources", "").await;
    for line in [
        "NAME SHORTNAMES APIVERSION NAMESPACED KIND",
        "configmaps cm v1 true ConfigMap",
        "namespaces ns v1 false Namespace",
        "pods po v1 true Pod",
        "deployments deploy apps/v1 true Deployment",
        "customresourcedefinitions crd,crds apiextensions.k8s.io/v1 false CustomResourceDefinition",
        "leases coordination.k8s.io/v1 true Lease",
    ] {
        assert!(resources.lines().any(|other| other == line), "no {line} in {resources}");
    }
    let versions = kubectl.run("api-versions", "").await;
    for version in ["apps/v1", "v1", "rbac.authorization.k8s.io/v1"] {
        assert!(versions.lines().any(|other| other == version), "no {version} in {versions}");
    }
    assert!(kubectl.run("version", "").await.contains("Server Version: v1.36."));
}

async fn kubectl_explains(subject: &Subject) {
    let Some(kubectl) = Kubectl::new(subject, "kubectl-explains").await else { return };
    let explained = kubectl.run("explain configmaps", "").await;
    assert!(explained.starts_with("KIND: ConfigMap\nVERSION: v1\n"), "{explained}");
    for field in ["apiVersion <string>", "data <map[string]string>", "metadata <ObjectMeta>"] {
        assert!(explained.lines().any(|line| line.starts_with(field)), "no {field} in {explained}");
    }
    define(subject, "explained.example", |_| ()).await;
    let explained = async || kubectl.run("explain widgets.spec --api-version=explained.example/v1", "").await;
    let is_there = async || explained().await.contains("size <integer>");
    wait("the schema to be published", is_there).await;
    let explained = explained().await;
    assert!(explained.starts_with("GROUP: explained.example\nKIND: Widget\nVERSION: v1\n"), "{explained}");
    for field in ["colour <string>", "enum: red, green, blue", "nested <Object>", "tags <[]string>"] {
        assert!(explained.lines().any(|line| line == field), "no {field} in {explained}");
    }
}

async fn kubectl_shows_custom_resources(subject: &Subject) {
    let Some((_, program)) = assets::kubectl_or_skip("kubectl in the conformance suite") else { return };
    let group = "spoken.example";
    define(subject, group, |definition| {
        definition["spec"]["names"]["shortNames"] = json!(["spk"]);
        definition["spec"]["versions"][0]["additionalPrinterColumns"] =
            json!([{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]);
    })
    .await;
    let kubectl = Kubectl::within(subject, "spoken-example", program);
    let object = widget(group, "a", json!({"size": 5})).to_string();
    let changed = widget(group, "a", json!({"size": 6})).to_string();
    kubectl
        .table(&[
            ("apply -f -", &object, "widget.spoken.example/a created"),
            ("get spk", "", "NAME SIZE\na 5"),
            ("apply -f -", &changed, "widget.spoken.example/a configured"),
            ("get widgets.spoken.example a -o jsonpath={.spec}", "", r#"{"colour":"red","size":6}"#),
            (r#"patch spk a --type=merge -p {"spec":{"size":7}}"#, "", "widget.spoken.example/a patched"),
            (
                r#"patch spk a --type=merge --subresource=status -p {"status":{"phase":"done"}}"#,
                "",
                "widget.spoken.example/a patched",
            ),
            (
                "wait --for=jsonpath={.status.phase}=done spk/a --timeout=60s",
                "",
                "widget.spoken.example/a condition met",
            ),
            (
                "wait --for=condition=Established crd/widgets.spoken.example --timeout=60s",
                "",
                "customresourcedefinition.apiextensions.k8s.io/widgets.spoken.example condition met",
            ),
            ("get crd widgets.spoken.example -o jsonpath={.status.storedVersions}", "", r#"["v1"]"#),
            ("delete spk --all", "", "widget.spoken.example \"a\" deleted from spoken-example namespace"),
        ])
        .await;
}

async fn kubectl_reports_errors(subject: &Subject) {
    let Some(kubectl) = Kubectl::new(subject, "kubectl-fails").await else { return };
    let unknown = "apiVersion: none.example/v1\nkind: Thing\nmetadata:\n  name: a\n";
    kubectl
        .table(&[
            ("get cm none", "", r#"Error from server (NotFound): configmaps "none" not found"#),
            ("get nonsense", "", "error: the server doesn't have a resource type \"nonsense\""),
            ("delete cm none", "", r#"Error from server (NotFound): configmaps "none" not found"#),
            ("create -f -", CONFIG, "configmap/a created"),
            ("create -f -", CONFIG, "Error from server (AlreadyExists): error when creating \"STDIN\": configmaps \"a\" already exists"),
            ("apply -f -", unknown, "error: resource mapping not found for name: \"a\" namespace: \"\" from \"STDIN\": no matches for kind \"Thing\" in version \"none.example/v1\"\nensure CRDs are installed first"),
            ("get cm --as alice", "", "Error from server (Forbidden): configmaps is forbidden: User \"alice\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"kubectl-fails\""),
        ])
        .await;
}

async fn kubectl_auth_can_i_works(subject: &Subject) {
    let Some(kubectl) = Kubectl::new(subject, "kubectl-asks").await else { return };
    kubectl
        .table(&[
            ("auth can-i create configmaps", "", "yes"),
            ("auth can-i create configmaps --as alice", "", "no"),
            ("auth whoami -o jsonpath={.status.userInfo.username} --as alice", "", "alice"),
        ])
        .await;
}

async fn kubectl_watches(subject: &Subject) {
    let Some(kubectl) = Kubectl::new(subject, "kubectl-watches").await else { return };
    kubectl.run("create -f -", CONFIG).await;
    let mut child = kubectl
        .command("get cm --watch --no-headers -o custom-columns=N:.metadata.name,K:.data.k")
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = async || aged(&lines.next_line().await.unwrap().unwrap());
    assert_eq!(next().await, "a v");
    kubectl.run(r#"patch cm a --type=merge -p {"data":{"k":"w"}}"#, "").await;
    assert_eq!(next().await, "a w");
    kubectl.run("delete cm a", "").await;
    assert_eq!(next().await, "a w");
}
