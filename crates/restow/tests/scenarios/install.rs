//! `restow install`: what an API server accepts, which permissions it grants, and how `--wait` works.

use std::collections::BTreeSet;

use http::Request;
use kube::client::Body;
use restow_lab::ClusterSpec;
use serde_json::{Value, json};

use crate::snapshot::{assert_same, first_snapshot, snapshot};
use crate::support::{CRDS, Lab, Restow, Widgets, patch, send, try_send, wait};

scenarios! {
    the_printed_manifests_follow_the_flags,
    ; real:
    // It needs kube-controller-manager.
    install_grants_only_the_needed_permissions,
    // It names bindings, which the embedded server does not serve.
    incorrect_usage_of_install_is_explained,
    // It applies kinds that the embedded server does not serve, and needs pod security.
    the_printed_manifests_are_accepted,
}

pub(crate) const IMAGE: &str = "registry.example/restow:test";
const ACCOUNT: &str = "system:serviceaccount:restow-system:restow";
pub(crate) const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const FLOW: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";
pub(crate) const NAMESPACE: &str = "/api/v1/namespaces/restow-system";

/// What gives a namespace its end, and pods their beginning.
pub(crate) const CONTROLLERS: [&str; 7] = [
    "clusterrole-aggregation-controller",
    "deployment-controller",
    "endpointslice-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "replicaset-controller",
    "serviceaccount-controller",
];

/// The objects of a YAML text.
fn documents(text: &str) -> Vec<Value> {
    let documents: Vec<Value> =
        text.split("---\n").skip(1).map(|document| serde_saphyr::from_str(document).unwrap()).collect();
    assert!(!documents.is_empty(), "{text}");
    documents
}

fn kinds(objects: &[Value]) -> BTreeSet<&str> {
    objects.iter().map(|object| object["kind"].as_str().unwrap()).collect()
}

fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let found = objects.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("no {kind} {name}"))
}

/// Whether restow's account may do something: verb, resource with its group, namespace, name.
async fn may(client: &kube::Client, verb: &str, resource: &str, namespace: &str, name: &str) -> bool {
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let attributes = json!({
        "verb": verb, "group": group, "resource": resource, "subresource": subresource,
        "namespace": namespace, "name": name,
    });
    review(client, json!({"user": ACCOUNT, "resourceAttributes": attributes})).await
}

async fn review(client: &kube::Client, spec: Value) -> bool {
    let review =
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec});
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    send(client, "POST", path, Some(&review)).await["status"]["allowed"] == true
}

/// The uid of the priority level that a request of restow's account waits in.
async fn level_of(client: &kube::Client, path: &str) -> String {
    let request = Request::get(path).header("Impersonate-User", ACCOUNT).body(Body::empty()).unwrap();
    let response = client.send(request).await.unwrap();
    let level = response.headers().get("X-Kubernetes-PF-PriorityLevel-UID");
    level.map(|uid| uid.to_str().unwrap().to_owned()).unwrap_or_default()
}

async fn uid(client: &kube::Client, path: &str) -> String {
    send(client, "GET", path, None).await["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// A server-side apply as a dry run, strict about fields, of an object as it was printed.
async fn try_apply(client: &kube::Client, object: &Value) -> Result<Value, kube::Error> {
    let version = object["apiVersion"].as_str().unwrap();
    let base = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    let kind = object["kind"].as_str().unwrap().to_lowercase();
    let plural = match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if kind.ends_with("ss") => format!("{kind}es"),
        None => format!("{kind}s"),
    };
    let meta = &object["metadata"];
    let place = meta["namespace"].as_str().map(|name| format!("/namespaces/{name}")).unwrap_or_default();
    let name = meta["name"].as_str().unwrap();
    let request = Request::patch(format!(
        "{base}{place}/{plural}/{name}?fieldManager=test&dryRun=All&fieldValidation=Strict"
    ))
    .header("Content-Type", "application/apply-patch+yaml")
    .body(object.to_string().into_bytes())
    .unwrap();
    client.request(request).await
}

/// Everything that is printed passes a real server's strict validation, and the pods its strictest pod security.
async fn the_printed_manifests_are_accepted(lab: Lab) {
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let client = cluster.client(0).unwrap();
    let restow = Restow::new(&cluster);
    let before = first_snapshot(&client, &[]).await;
    let ran = restow.run(&["install", "--image", IMAGE]).await.expect(0);
    let objects = documents(&ran.stdout);
    assert_eq!(objects.len(), 24, "{:?}", kinds(&objects));
    restow.run(&["install", "--image", IMAGE, "--dry-run"]).await.expect(0);
    assert_same(&snapshot(&client).await, &before, "printing and dry runs leave nothing");

    send(&client, "POST", "/api/v1/namespaces", Some(find(&objects, "Namespace", "restow-system"))).await;
    for object in &objects {
        let answer = try_apply(&client, object).await;
        assert!(answer.is_ok(), "{answer:?}: {object:#}");
    }
    let mut wrong = find(&objects, "Deployment", "restow").clone();
    wrong["spec"]["template"]["spec"]["containers"][0]["imagee"] = json!("x");
    assert!(try_apply(&client, &wrong).await.is_err(), "strict validation is what this test is about");

    let class = find(&objects, "PriorityClass", "restow");
    send(&client, "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", Some(class)).await;
    let template = &find(&objects, "Deployment", "restow")["spec"]["template"];
    let mut pod =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": template["spec"]});
    let path = format!("{NAMESPACE}/pods?dryRun=All");
    let accepted = send(&client, "POST", &path, Some(&pod)).await;
    assert_eq!(accepted["spec"]["preemptionPolicy"], "Never");
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = json!(true);
    let refused = try_send(&client, "POST", &path, Some(&pod)).await.unwrap_err().to_string();
    assert!(refused.contains("restricted"), "{refused}");
}

/// The choice of resources and controllers shows in the roles, and flags reach the pods.
async fn the_printed_manifests_follow_the_flags(lab: Lab) {
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural: "chosens" };
    widgets.define(&client).await;
    let restow = Restow::new(cluster);
    let name = widgets.name();
    let args =
        ["install", "secret", &name, "--image", IMAGE, "-n", "ops", "--controllers", "migrator,pruner"];
    let more = ["--pace", "gentle", "--poll-interval", "2m", "--assume-single-server"];
    let objects = documents(&restow.run(&[&args[..], &more].concat()).await.expect(0).stdout);
    let rules = find(&objects, "ClusterRole", "restow")["rules"].as_array().unwrap();
    let rule = |group: &str, resource: &str| json!({"apiGroups": [group], "resources": [resource], "verbs": ["list", "patch"]});
    assert_eq!(rules[..2], [rule("", "secrets"), rule(&widgets.group(), "chosens")]);
    assert!(rules.iter().all(|rule| rule["resources"] != json!(["configmaps"])));
    let container = &find(&objects, "Deployment", "restow")["spec"]["template"]["spec"]["containers"][0];
    let expected = [
        "controller",
        "--leader-election-namespace=ops",
        "--listen=0.0.0.0:8080",
        "--log-format=json",
        "--controllers=migrator,pruner",
        "--pace=gentle",
        "--poll-interval=120s",
        "--assume-single-server",
        "--resources=secrets,chosens.chosens.example.com",
    ];
    assert_eq!((&container["args"], &container["image"]), (&json!(expected), &json!(IMAGE)));

    // Names are passed on in full, patterns as they are.
    for (given, passed) in
        [("secret,cm,*.apps", "secrets,configmaps,*.apps"), ("*.*", "*.*"), ("none", "none")]
    {
        let args = ["install", "secrets", "--image", IMAGE, "--encryption-resources", given];
        let objects = documents(&restow.run(&args).await.expect(0).stdout);
        let container = &find(&objects, "Deployment", "restow")["spec"]["template"]["spec"]["containers"][0];
        let flag = json!(format!("--encryption-resources={passed}"));
        assert!(container["args"].as_array().unwrap().contains(&flag), "{container:#}");
    }

    let bare = documents(&restow.run(&["install", "--without-deployment"]).await.expect(0).stdout);
    assert!(!kinds(&bare).contains("Deployment") && kinds(&bare).contains("FlowSchema"));
    let all = &find(&bare, "ClusterRole", "restow")["rules"];
    assert!(
        all.to_string().contains("\"chosens\"") && all.to_string().contains("\"deployments\""),
        "{all:#}"
    );

    // The definitions are the same in every cluster.
    let nowhere = Restow::with_kubeconfig("/no/such/file".into());
    let crds = documents(&nowhere.run(&["install", "--crds"]).await.expect(0).stdout);
    assert_eq!(kinds(&crds), BTreeSet::from(["CustomResourceDefinition"]));
}

async fn incorrect_usage_of_install_is_explained(lab: Lab) {
    let cluster = lab.shared();
    let restow = Restow::new(cluster);
    for (args, words) in [
        (&["install"][..], &["--image IMAGE is missing", "--without-deployment", "--crds"][..]),
        (&["install", "--apply"], &["--image IMAGE is missing"]),
        (&["install", "--image", "a b"], &["--image", "registry.example/restow:1.0"]),
        (&["install", "--image", "x", "-n", "kube-system"], &["kube-system", "a namespace of its own"]),
        (&["install", "--image", "x", "-n", "default"], &["a namespace of its own"]),
        (&["install", "--image", "x", "-n", "My_Place"], &["lowercase letters"]),
        (&["install", "secrts", "--image", "x"], &["no resource \"secrts\"", "did you mean secrets?"]),
        (&["install", "bindings", "--image", "x"], &["bindings cannot be migrated"]),
        (&["install", "--image", "x", "--wait"], &["--apply"]),
        (&["install", "--image", "x", "--apply", "--timeout", "1m"], &["--wait"]),
        (
            &["install", "--image", "x", "--controllers", "cleaner"],
            &["cleaner", "migrator, trigger, encryption, pruner"],
        ),
        (
            &["install", "--image", "x", "--encryption-resources", "secrts"],
            &["--encryption-resources", "no resource \"secrts\"", "did you mean secrets?"],
        ),
        (&["install", "--image", "x", "--poll-interval", "0s"], &["--poll-interval", "above zero"]),
        (&["install", "--image", "x", "--sample-servers", "0s"], &["--sample-servers", "between 1s and 1h"]),
        (&["install", "--crds", "secrets"], &["cannot be used with"]),
        (&["uninstall", "--dry-run", "--wait"], &["cannot be used with"]),
        (&["uninstall", "-n", "kube-system"], &["a namespace of its own"]),
    ] {
        let ran = restow.run(args).await.expect(2);
        for word in words {
            assert!(ran.stderr.contains(word), "{args:?} does not say {word:?}: {ran:#?}");
        }
        assert!(ran.stdout.is_empty(), "{ran:#?}");
    }
    let alice = Restow::with_kubeconfig(cluster.kubeconfig(0, "alice"));
    let ran = alice.run(&["install", "--crds", "--apply"]).await.expect(1);
    assert!(ran.stderr.contains("forbidden") && ran.stderr.contains("cluster-admin"), "{ran:#?}");
}

/// Installed, restow may do what it needs and no more, waits behind others, and a second install changes nothing.
async fn install_grants_only_the_needed_permissions(lab: Lab) {
    let cluster = lab.cluster(ClusterSpec::new().controller_manager(&CONTROLLERS)).await;
    let client = cluster.client(0).unwrap();
    let restow = Restow::new(&cluster);
    let widgets = Widgets { plural: "laters" };
    let ran = restow.run(&["install", "--without-deployment", "--apply", "--wait"]).await.expect(0);
    assert_eq!(ran.stderr.matches(" created\n").count(), 19, "{ran:#?}");
    assert_eq!(ran.stderr.matches(" is ready\n").count(), 4, "{ran:#?}");
    assert!(ran.stdout.is_empty(), "{ran:#?}");
    let again = restow.run(&["install", "--without-deployment", "--apply", "--wait"]).await.expect(0);
    assert_eq!(again.stderr.matches(" unchanged\n").count(), 19, "{again:#?}");

    permissions(&client).await;
    priorities(&client).await;
    // What is granted is enough for everything there is, roles and bindings among it.
    let ran = restow.run(&["migrate", "--all", "--as", ACCOUNT, "-o", "json"]).await.expect(0);
    let report = ran.report();
    let roles = report["resources"].as_array().unwrap().iter();
    let roles = roles.clone().find(|r| r["resource"] == "clusterroles.rbac.authorization.k8s.io").unwrap();
    assert!(roles["listed"].as_u64().unwrap() > 50 && roles["verified"] == true, "{roles:#}");

    // What is defined later is granted by whoever defines it, or by another install.
    widgets.define(&client).await;
    let resource = widgets.name();
    assert!(!may(&client, "patch", &resource, "default", "").await);
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "laters", "labels": {"restow.dev/aggregate-to-migrator": "true"}},
        "rules": [{"apiGroups": [widgets.group()], "resources": ["laters"], "verbs": ["list", "patch"]}],
    });
    send(&client, "POST", &format!("{RBAC}/clusterroles"), Some(&role)).await;
    wait("the rules to be gathered", || may(&client, "patch", &resource, "default", "")).await;
    let third = restow.run(&["install", "--without-deployment", "--apply"]).await.expect(0);
    assert!(third.stderr.contains("clusterrole/restow configured\n"), "{third:#?}");
    assert_eq!(third.stderr.matches(" unchanged\n").count(), 18, "{third:#?}");

    // Nothing runs pods here, so that the wait for them ends with what it was for.
    let args = ["install", "--image", IMAGE, "--apply", "--wait", "--timeout", "2s"];
    let ran = restow.run(&args).await.expect(1);
    assert!(ran.stderr.contains("waited 2.0s for deployment/restow in restow-system: 0 of 2"), "{ran:#?}");
    let ran = restow.run(&["install", "--image", IMAGE, "--apply", "-n", "elsewhere"]).await.expect(1);
    assert!(ran.stderr.contains("already installed in the namespace restow-system"), "{ran:#?}");
    upgrade(&client, &restow).await;
    never_wider(&client, &restow, &widgets).await;
}

/// An upgrade keeps what was chosen unless told otherwise, and shows what changes.
async fn upgrade(client: &kube::Client, restow: &Restow) {
    const NEWER: &str = "registry.example/restow:newer";
    let now = async || {
        let role = send(client, "GET", &format!("{RBAC}/clusterroles/restow"), None).await;
        let path = "/apis/apps/v1/namespaces/restow-system/deployments/restow";
        let deployment = send(client, "GET", path, None).await;
        let container = deployment["spec"]["template"]["spec"]["containers"][0].clone();
        (role["rules"].clone(), container["args"].clone(), container["image"].clone())
    };
    let ran = restow.run(&["install", "secret", "--controllers", "migrator", "--apply"]).await.expect(0);
    let lost = ran.stderr.lines().find(|line| line.starts_with("  - list, patch: "));
    assert!(lost.is_some_and(|lost| lost.contains(" deployments.apps, ")), "{ran:#?}");
    assert!(ran.stderr.contains("  + --resources=secrets\n"), "{ran:#?}");
    let (rules, arguments, image) = now().await;
    assert!(!rules.to_string().contains("deployments") && image == IMAGE, "{rules:#}");

    let dry = restow.run(&["install", "--image", NEWER, "--dry-run"]).await.expect(0);
    let ran = restow.run(&["install", "--image", NEWER, "--apply"]).await.expect(0);
    for ran in [dry, ran] {
        let kept =
            "kept from the earlier install: secrets --controllers=migrator (use --reset to ignore it)\n";
        assert!(ran.stderr.contains(kept), "{ran:#?}");
        assert!(ran.stderr.contains(&format!("  image {IMAGE} -> {NEWER}\n")), "{ran:#?}");
        assert!(!ran.stderr.contains("  + ") && !ran.stderr.contains("  - "), "{ran:#?}");
    }
    assert_eq!(now().await, (rules.clone(), arguments.clone(), json!(NEWER)));
    let printed = documents(&restow.run(&["install", "--image", NEWER]).await.expect(0).stdout);
    assert_eq!(find(&printed, "ClusterRole", "restow")["rules"], rules);
    // Whoever applies what is printed by other means meets no conflict.
    for object in &printed {
        let applied = try_apply(client, object).await;
        assert!(applied.is_ok(), "{applied:?}: {object:#}");
    }

    let ran = restow.run(&["install", "--apply", "--reset", "--image", NEWER]).await.expect(0);
    assert!(ran.stderr.contains("  + list, patch: "), "{ran:#?}");
    assert!(ran.stderr.contains("  - --resources=secrets\n"), "{ran:#?}");
    assert!(now().await.0.to_string().contains("deployments"));
}

/// What an earlier install was for is kept as far as it is there, read where it can be, and else asked for.
async fn never_wider(client: &kube::Client, restow: &Restow, widgets: &Widgets) {
    let path = format!("{RBAC}/clusterroles/restow");
    let rules = async || send(client, "GET", &path, None).await["rules"].clone();
    let unmarked = json!({"metadata": {"annotations": {"restow.dev/install": null}}});
    let rule = |verbs: &[&str]| json!({"apiGroups": [""], "resources": ["secrets"], "verbs": verbs});
    // All that can be migrated, and nothing tells any more that this was chosen.
    patch(client, &path, &unmarked).await;
    let ran = restow.run(&["install", "--apply"]).await.expect(2);
    assert!(ran.stderr.contains("does not say which resources the earlier install was for"), "{ran:#?}");
    let name = widgets.name();
    let ran = restow.run(&["install", "secrets", &name, "--list", "streaming", "--apply"]).await.expect(0);
    assert!(ran.stderr.contains("  + --list=streaming\n"), "{ran:#?}");
    assert_eq!(rules().await[0], rule(&["list", "watch", "patch"]));

    // The Deployment tells the same.
    patch(client, &path, &unmarked).await;
    let ran = restow.run(&["install", "--list", "chunked", "--apply"]).await.expect(0);
    assert!(ran.stderr.contains(&format!("kept from the earlier install: secrets {name} ")), "{ran:#?}");
    assert!(!ran.stderr.contains("  + list"), "{ran:#?}");
    assert_eq!(rules().await[0], rule(&["list", "patch"]));

    send(client, "DELETE", &format!("{CRDS}/{name}"), None).await;
    wait("the group to be gone", || async {
        !send(client, "GET", "/apis", None).await.to_string().contains(&widgets.group())
    })
    .await;
    let ran = restow.run(&["install", "--apply"]).await.expect(0);
    let dropped = format!("dropped, because no API server serves it any more: {name}\n");
    assert!(ran.stderr.contains(&dropped), "{ran:#?}");
    assert!(!rules().await.to_string().contains(widgets.plural));
    let ran = restow.run(&["install", "secrets", &name, "--apply"]).await.expect(2);
    assert!(ran.stderr.contains("no resource"), "{ran:#?}");
}

async fn permissions(client: &kube::Client) {
    wait("the roles to count", || may(client, "patch", "secrets", "default", "")).await;
    let crd = "customresourcedefinitions.apiextensions.k8s.io";
    let leases = "leases.coordination.k8s.io";
    for (verb, resource, namespace, name, expected) in [
        ("list", "secrets", "", "", true),
        ("patch", "secrets", "anywhere", "x", true),
        ("list", "deployments.apps", "", "", true),
        ("watch", crd, "", "", true),
        ("patch", &format!("customresourcedefinitions/status.{}", "apiextensions.k8s.io"), "", "x", true),
        ("create", "storageversionmigrations.migration.k8s.io", "", "", true),
        ("update", "storagestates/status.migration.k8s.io", "", "x", true),
        ("list", leases, "kube-system", "", true),
        ("create", leases, "restow-system", "", true),
        ("update", leases, "restow-system", "restow", true),
        ("list", "endpointslices.discovery.k8s.io", "default", "", true),
        ("create", "events.events.k8s.io", "default", "", true),
        ("get", "namespaces", "", "kube-system", true),
        ("get", "secrets", "default", "x", false),
        ("watch", "secrets", "", "", false),
        ("create", "secrets", "restow-system", "", false),
        ("update", "secrets", "default", "x", false),
        ("delete", "secrets", "default", "x", false),
        ("get", "configmaps", "restow-system", "x", false),
        ("update", leases, "restow-system", "another", false),
        ("update", leases, "kube-system", "restow", false),
        ("create", "events", "kube-system", "", false),
        ("update", crd, "", "x", false),
        ("create", "pods", "restow-system", "", false),
        ("create", "pods/exec", "restow-system", "x", false),
        ("create", "serviceaccounts/token", "kube-system", "x", false),
        ("create", "clusterrolebindings.rbac.authorization.k8s.io", "", "", false),
        ("escalate", "clusterroles.rbac.authorization.k8s.io", "", "", false),
        ("bind", "clusterroles.rbac.authorization.k8s.io", "", "cluster-admin", false),
        ("impersonate", "users", "", "admin", false),
        ("patch", "nodes/status", "", "x", false),
        ("*", "*.*", "", "", false),
    ] {
        let allowed = may(client, verb, resource, namespace, name).await;
        assert_eq!(allowed, expected, "{verb} {resource} {namespace}/{name}");
    }
    for (path, expected) in [("/metrics", true), ("/apis/apps/v1", true), ("/readyz", true), ("/logs", false)]
    {
        let spec = json!({"user": ACCOUNT, "nonResourceAttributes": {"path": path, "verb": "get"}});
        assert_eq!(review(client, spec).await, expected, "{path}");
    }
}

/// The server itself says where requests of the account wait.
async fn priorities(client: &kube::Client) {
    let own = uid(client, &format!("{FLOW}/prioritylevelconfigurations/restow")).await;
    let high = uid(client, &format!("{FLOW}/prioritylevelconfigurations/leader-election")).await;
    let lease = "/apis/coordination.k8s.io/v1/namespaces/restow-system/leases/restow";
    for (path, expected) in [("/api/v1/secrets?limit=1", &own), ("/apis", &own), (lease, &high)] {
        wait(&format!("requests for {path} to go to their level"), || async {
            level_of(client, path).await == *expected
        })
        .await;
    }
}
