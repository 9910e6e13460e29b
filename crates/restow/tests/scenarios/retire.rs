//! `restow retire`: the whole way of a version out of its CRD, and everything that must stop it.

use std::fs::File;
use std::io::Write as _;
use std::process::Stdio;

use restow_lab::{Cluster, ConversionWebhook};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::support::{CRDS, Lab, Ran, Restow, Widgets, contents, name, patch, send, wait};
use crate::terminal::{interrupt, pair};

scenarios! {
    a_version_is_retired_from_the_storage_version_to_its_removal,
    a_retirement_continues_after_an_interruption_at_every_step,
    a_retirement_continues_after_an_interruption_while_it_rewrites,
    a_dry_run_writes_nothing_and_without_a_terminal_nobody_is_asked,
    a_managed_crd_is_changed_in_its_source,
    a_step_is_decided_again_if_the_crd_has_changed,
    a_version_is_not_dropped_while_fields_are_owned_through_it_behind_a_webhook,
    ; real:
    // Only kube-apiserver counts requests in its metrics.
    a_version_is_served_while_clients_request_it,
}

async fn crd(client: &kube::Client, widgets: &Widgets) -> Value {
    send(client, "GET", &format!("{CRDS}/{}", widgets.name()), None).await
}

/// The versions of a CRD: name, served, storage.
async fn versions(client: &kube::Client, widgets: &Widgets) -> Vec<(String, bool, bool)> {
    let crd = crd(client, widgets).await;
    let each = |one: &Value| {
        (one["name"].as_str().unwrap().to_owned(), one["served"] == true, one["storage"] == true)
    };
    crd["spec"]["versions"].as_array().unwrap().iter().map(each).collect()
}

fn expected(versions: &[(&str, bool, bool)]) -> Vec<(String, bool, bool)> {
    versions.iter().map(|(name, served, storage)| ((*name).to_owned(), *served, *storage)).collect()
}

/// The flags that every run here needs: v1 is stable and not deprecated, and the embedded server counts no requests.
fn arguments<'a>(widgets: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut all = vec!["retire", widgets, "v1", "--undeprecated-ok", "--ignore-requests", "--pace", "fast"];
    all.extend(more);
    all
}

async fn retire(restow: &Restow, widgets: &Widgets, more: &[&str]) -> Ran {
    restow.run(&arguments(&widgets.name(), more)).await
}

/// Objects of v1, stored as v1.
async fn prepared(
    lab: &Lab,
    plural: &'static str,
    objects: usize,
) -> (&'static Cluster, kube::Client, Widgets) {
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural };
    widgets.define(&client).await;
    widgets.create(&client, objects).await;
    (cluster, client, widgets)
}

/// Everything is as if v1 had never been, and nothing is lost.
async fn is_retired(cluster: &Cluster, client: &kube::Client, widgets: &Widgets, objects: usize) {
    assert_eq!(versions(client, widgets).await, expected(&[("v2", true, true)]));
    assert_eq!(widgets.stored_versions(client).await, json!(["v2"]));
    let v2 = format!("{}/v2", widgets.group());
    assert_eq!(widgets.stored_as(cluster).await, [(v2.clone(), objects)].into());
    for (name, (_, object)) in contents(client, &widgets.path("v2", "")).await {
        let entries = object["metadata"]["managedFields"].as_array().unwrap();
        assert!(
            !entries.is_empty() && entries.iter().all(|entry| entry["apiVersion"] == v2),
            "{name}: {object}"
        );
    }
    // A user's write does not wipe the owners.
    let path = widgets.path("v2", &name(0));
    patch(client, &path, &json!({"metadata": {"labels": {"by": "user"}}})).await;
    let owners = send(client, "GET", &path, None).await["metadata"]["managedFields"].to_string();
    assert!(owners.contains("f:by") && owners.contains("f:padding"), "{owners}");
}

/// What a retirement must not change.
async fn kept(client: &kube::Client, widgets: &Widgets) -> Vec<(String, Value, Value)> {
    let objects = contents(client, &widgets.path("v2", "")).await;
    let owned = |object: &Value| {
        let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        entries
            .iter()
            .map(|entry| json!([entry["manager"], entry["operation"], entry["fieldsV1"]]))
            .collect::<Value>()
    };
    objects.into_iter().map(|(name, (_, object))| (name, object["spec"].clone(), owned(&object))).collect()
}

async fn a_version_is_retired_from_the_storage_version_to_its_removal(lab: Lab) {
    let objects = lab.objects(500);
    let (cluster, client, widgets) = prepared(&lab, "veterans", objects).await;
    let restow = Restow::new(cluster);
    let before = kept(&client, &widgets).await;

    // A stable version that is not deprecated is not retired just so.
    let refused = restow.run(&["retire", &widgets.name(), "v1", "--yes"]).await.expect(4);
    assert!(refused.stderr.contains("v1 is not deprecated"), "{refused:#?}");
    assert_eq!(versions(&client, &widgets).await, expected(&[("v1", true, true), ("v2", true, false)]));

    let ran = retire(&restow, &widgets, &["--yes"]).await.expect(0);
    for text in [
        "objects are stored in v1",
        "have owners through v1",
        "1. convert every object from v1 to v2 and back",
        "2. make v2 the storage version",
        "drop v1 from the CRD",
    ] {
        assert!(ran.stdout.contains(text), "{text:?}: {ran:#?}");
    }
    assert!(ran.stderr.contains("undo: kubectl patch crd"), "{ran:#?}");
    assert_eq!(kept(&client, &widgets).await, before);
    is_retired(cluster, &client, &widgets, objects).await;

    // It is known that this one was retired; one that was never there is an error.
    let again = retire(&restow, &widgets, &["--yes", "-o", "json"]).await.expect(0);
    assert!(again.stderr.contains("has no version v1"), "{again:#?}");
    let report = again.report();
    assert_eq!((&report["retired"], &report["taken"]), (&json!(true), &json!([])), "{report:#}");
    let typed = ["retire", &widgets.name(), "v1betal", "--yes", "-o", "json"];
    let wrong = restow.run(&typed).await.expect(2);
    assert!(wrong.stderr.contains("there is no version v1betal; the CRD has v2"), "{wrong:#?}");
    assert_eq!(wrong.report()["refused"]["reason"], "NoSuchVersion", "{wrong:#?}");
    let only = restow.run(&["retire", &widgets.name(), "v2", "--yes", "--undeprecated-ok"]).await.expect(2);
    assert!(only.stderr.contains("only version"), "{only:#?}");
}

/// A run with a person at a terminal.
struct Person {
    child: tokio::process::Child,
    keyboard: File,
}

impl Person {
    fn start(restow: &Restow, widgets: &Widgets) -> Self {
        let (ours, theirs) = pair(100, 40);
        let widgets = widgets.name();
        let mut command = restow.command(&arguments(&widgets, &[]));
        let child = command.stdin(Stdio::from(theirs)).spawn().unwrap();
        Self { child, keyboard: File::from(ours) }
    }

    fn types(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    async fn end(self) -> Ran {
        self.child.wait_with_output().await.unwrap().into()
    }
}

async fn a_retirement_continues_after_an_interruption_at_every_step(lab: Lab) {
    let (cluster, client, widgets) = prepared(&lab, "stages", 30).await;
    let restow = Restow::new(cluster);
    let before = kept(&client, &widgets).await;
    let both =
        |served, storage: &str| expected(&[("v1", served, storage == "v1"), ("v2", true, storage == "v2")]);
    // Each time one step is taken, and the next is declined.
    for (step, versions_now, stored) in [
        ("make v2 the storage version", both(true, "v2"), json!(["v1", "v2"])),
        ("rewrite all objects, verify", both(true, "v2"), json!(["v2"])),
        ("stop serving v1", both(false, "v2"), json!(["v2"])),
        ("move managedFields", both(false, "v2"), json!(["v2"])),
    ] {
        let mut person = Person::start(&restow, &widgets);
        person.types("y\nn\n");
        let ran = person.end().await.expect(130);
        let asked = ran.stderr.lines().find(|line| line.contains("next: ")).unwrap_or_default();
        assert!(asked.contains(step), "{step}: {ran:#?}");
        assert!(ran.stderr.contains("run the same command again"), "{ran:#?}");
        assert_eq!(versions(&client, &widgets).await, versions_now, "{step}");
        assert_eq!(widgets.stored_versions(&client).await, stored, "{step}");
    }
    // What was verified is verified again in the run that drops the version.
    let mut person = Person::start(&restow, &widgets);
    person.types("y\nyes\n");
    person.end().await.expect(0);
    assert_eq!(kept(&client, &widgets).await, before);
    is_retired(cluster, &client, &widgets, 30).await;
}

async fn a_retirement_continues_after_an_interruption_while_it_rewrites(lab: Lab) {
    let (cluster, client, widgets) = prepared(&lab, "pauses", 100).await;
    let restow = Restow::new(cluster);
    let before = kept(&client, &widgets).await;
    let full = widgets.name();
    let slow = arguments(&full, &["--yes", "--qps", "20", "--page-size", "10"]);
    let mut child = restow.command(&slow).spawn().unwrap();
    let v2 = format!("{}/v2", widgets.group());
    wait("some objects to be rewritten", || async {
        widgets.stored_as(cluster).await.get(&v2).is_some_and(|count| *count >= 20)
    })
    .await;
    interrupt(&child);
    let code = child.wait().await.unwrap().code();
    assert_eq!(code, Some(130));
    assert_eq!(widgets.stored_versions(&client).await, json!(["v1", "v2"]), "nothing is proven yet");
    let ran = retire(&restow, &widgets, &["--yes"]).await.expect(0);
    assert!(ran.stderr.contains("resuming"), "{ran:#?}");
    assert_eq!(kept(&client, &widgets).await, before);
    is_retired(cluster, &client, &widgets, 100).await;
}

async fn a_dry_run_writes_nothing_and_without_a_terminal_nobody_is_asked(lab: Lab) {
    let (cluster, client, widgets) = prepared(&lab, "previews", 10).await;
    let restow = Restow::new(cluster);
    let before = (crd(&client, &widgets).await, contents(&client, &widgets.path("v1", "")).await);
    let planned = retire(&restow, &widgets, &["--dry-run"]).await.expect(0);
    for step in ["2. make v2 the storage version", "7. drop v1 from the CRD"] {
        assert!(planned.stdout.contains(step), "{planned:#?}");
    }
    let unasked = retire(&restow, &widgets, &[]).await.expect(2);
    assert!(
        unasked.stdout.contains("7. drop v1 from the CRD") && unasked.stderr.contains("--yes"),
        "{unasked:#?}"
    );
    for (more, code) in [(&["--dry-run", "--to", "v9"][..], 2), (&["--yes", "--to", "v1"], 2)] {
        retire(&restow, &widgets, more).await.expect(code);
    }
    let report = retire(&restow, &widgets, &["--dry-run", "-o", "json"]).await.expect(0).report();
    let steps = |list: &Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|one| one["step"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(steps(&report["taken"]), ["check"]);
    let remaining = ["setStorage", "check", "rewrite", "stopServing", "moveOwners", "drop"];
    assert_eq!(
        (steps(&report["remaining"]), &report["retired"]),
        (remaining.map(str::to_owned).to_vec(), &json!(false))
    );
    restow.run(&["retire", "configmaps", "v1", "--yes"]).await.expect(2);
    let after = (crd(&client, &widgets).await, contents(&client, &widgets.path("v1", "")).await);
    assert!(before == after, "something was written");
}

async fn a_version_is_not_dropped_while_fields_are_owned_through_it_behind_a_webhook(lab: Lab) {
    let (cluster, client, widgets) = prepared(&lab, "claims", 12).await;
    let webhook = ConversionWebhook::start(cluster, |_, _| ()).await.unwrap();
    patch(
        &client,
        &format!("{CRDS}/{}", widgets.name()),
        &json!({"spec": {"conversion": webhook.conversion()}}),
    )
    .await;
    let restow = Restow::new(cluster);
    let refused = retire(&restow, &widgets, &["--yes"]).await.expect(4);
    assert!(refused.stderr.contains("12 objects with managedFields entries of v1"), "{refused:#?}");
    assert!(refused.stderr.contains("apply once through another version"), "{refused:#?}");
    // It is still served, so that its owners can move to another version by themselves.
    assert_eq!(versions(&client, &widgets).await, expected(&[("v1", true, false), ("v2", true, true)]));
    let owners = |object: &Value| object["metadata"]["managedFields"].as_array().map_or(0, Vec::len);
    let objects = contents(&client, &widgets.path("v2", "")).await;
    assert!(objects.values().all(|(_, object)| owners(object) == 1), "an owner was lost");

    // The owners give their fields up; the last of them still holds the version.
    let give_up = async |index: usize| {
        patch(&client, &widgets.path("v2", &name(index)), &json!({"metadata": {"managedFields": [{}]}}))
            .await;
    };
    for index in 1..12 {
        give_up(index).await;
    }
    let refused = retire(&restow, &widgets, &["--yes"]).await.expect(4);
    assert!(refused.stderr.contains("1 object with managedFields entries of v1"), "{refused:#?}");
    give_up(0).await;
    retire(&restow, &widgets, &["--yes"]).await.expect(0);
    assert_eq!(versions(&client, &widgets).await, expected(&[("v2", true, true)]));
    let v2 = format!("{}/v2", widgets.group());
    assert_eq!(widgets.stored_as(cluster).await, [(v2, 12)].into());
}

async fn a_managed_crd_is_changed_in_its_source(lab: Lab) {
    let (cluster, client, widgets) = prepared(&lab, "releases", 10).await;
    let path = format!("{CRDS}/{}", widgets.name());
    let label = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "Helm"}}});
    let managed = patch(&client, &path, &label).await;
    let restow = Restow::new(cluster);
    let ran = retire(&restow, &widgets, &["--yes"]).await.expect(4);
    for text in ["is managed by Helm", "spec.versions, v2:", "+storage: true"] {
        assert!(ran.stdout.contains(text), "{text}: {ran:#?}");
    }
    assert_eq!(crd(&client, &widgets).await, managed);

    // The same with the file: each change is made there, and applied by its owner.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("crd.yaml");
    let source = format!(
        "# Our CRD.\nkind: CustomResourceDefinition\nmetadata:\n  name: {}\nspec:\n  versions:\n  - name: v1\n    served: true # for now\n    \
         storage: true\n  - name: v2\n    served: true\n    storage: false\n",
        widgets.name()
    );
    std::fs::write(&file, &source).unwrap();
    for (served, storage) in [(true, "v2"), (false, "v2"), (false, "")] {
        let ran = retire(&restow, &widgets, &["--yes", "--manifest", file.to_str().unwrap()]).await.expect(4);
        assert!(ran.stderr.contains("was changed; apply it"), "{ran:#?}");
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("# Our CRD."), "{text}");
        if storage.is_empty() {
            assert!(!text.contains("v1\n") && !text.contains("for now"), "{text}");
            widgets.set_versions(&client, &[("v2", true, true)]).await;
        } else {
            assert!(text.contains(&format!("served: {served} # for now\n    storage: false")), "{text}");
            widgets.set_versions(&client, &[("v1", served, false), ("v2", true, true)]).await;
        }
    }
    // Nothing is left to do. That it was retired is noted only in a CRD that restow changes itself.
    let ran = retire(&restow, &widgets, &["--yes", "--manifest", file.to_str().unwrap()]).await.expect(2);
    assert!(ran.stderr.contains("there is no version v1; the CRD has v2"), "{ran:#?}");
    is_retired(cluster, &client, &widgets, 10).await;
}

async fn a_step_is_decided_again_if_the_crd_has_changed(lab: Lab) {
    let (cluster, client, widgets) = prepared(&lab, "surprises", 10).await;
    let restow = Restow::new(cluster);
    let mut person = Person::start(&restow, &widgets);
    let mut lines = BufReader::new(person.child.stderr.take().unwrap()).lines();
    let mut said = Vec::new();
    // At each of these questions somebody changes the CRD first.
    let mut rollback = true;
    while let Ok(Some(line)) = lines.next_line().await {
        said.push(line.clone());
        if !line.contains("undo: ") {
            continue;
        }
        let next = said.iter().rfind(|line| line.contains("next: ")).cloned().unwrap();
        if next.contains("make v2") && said.iter().filter(|line| line.contains("next: ")).count() == 1 {
            let label = json!({"metadata": {"labels": {"touched": "yes"}}});
            patch(&client, &format!("{CRDS}/{}", widgets.name()), &label).await;
        } else if next.contains("stop serving") && rollback {
            rollback = false;
            widgets.store_as(&client, "v1").await;
        }
        person.types("y\n");
    }
    person.end().await.expect(0);
    let steps: Vec<&str> =
        said.iter().filter_map(|line| line.split_once("next: ")).map(|(_, step)| step).collect();
    let beginnings = [
        "make v2",
        "make v2",
        "rewrite",
        "stop serving",
        "make v2",
        "rewrite",
        "stop serving",
        "rewrite",
        "drop",
    ];
    assert_eq!(steps.len(), beginnings.len(), "{said:#?}");
    for (step, beginning) in steps.iter().zip(beginnings) {
        assert!(step.starts_with(beginning), "{said:#?}");
    }
    assert_eq!(
        said.iter().filter(|line| line.contains("has changed in the meantime")).count(),
        2,
        "{said:#?}"
    );
    assert_eq!(crd(&client, &widgets).await["metadata"]["labels"]["touched"], "yes");
    is_retired(cluster, &client, &widgets, 10).await;
}

async fn a_version_is_served_while_clients_request_it(lab: Lab) {
    let (cluster, client, widgets) = prepared(&lab, "regulars", 10).await;
    let restow = Restow::new(cluster);
    let full = widgets.name();
    let arguments = ["retire", &full, "v1", "--undeprecated-ok", "--yes", "--watch-requests", "2s"];
    // A client that reads through v1 all the time.
    let (reader, path) = (client.clone(), widgets.path("v1", &name(0)));
    let reading = tokio::spawn(async move {
        loop {
            send(&reader, "GET", &path, None).await;
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    });
    let refused = restow.run(&arguments).await.expect(4);
    assert!(
        refused.stderr.contains("clients request it: ") && refused.stderr.contains(" GET"),
        "{refused:#?}"
    );
    assert_eq!(versions(&client, &widgets).await, expected(&[("v1", true, false), ("v2", true, true)]));
    reading.abort();
    reading.await.unwrap_err();

    // A user who may not read metrics does not learn that nobody requests it.
    let account = "system:serviceaccount:default:nobody";
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "retire-without-metrics"},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "retire-without-metrics"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "retire-without-metrics"},
        "subjects": [{"kind": "ServiceAccount", "name": "nobody", "namespace": "default"}]});
    send(&client, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", Some(&role)).await;
    send(&client, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", Some(&binding)).await;
    let mut limited = arguments.to_vec();
    limited.extend(["--as", account, "--as-group", "system:authenticated"]);
    wait("the role to be known", || async {
        let ran = restow.run(&limited).await;
        ran.code == 4 && ran.stderr.contains("not known whether clients request it")
    })
    .await;
    assert_eq!(versions(&client, &widgets).await, expected(&[("v1", true, false), ("v2", true, true)]));

    let retired = restow.run(&arguments).await.expect(0);
    assert!(retired.stderr.contains("no client requested it"), "{retired:#?}");
    is_retired(cluster, &client, &widgets, 10).await;
}
