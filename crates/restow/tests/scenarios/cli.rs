//! Messages of the command line: incorrect input, missing permissions, unreachable servers, output formats.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::{Lab, Ran, Restow, Widgets, send};

scenarios! {
    an_unreachable_server_is_reported,
    missing_permissions_are_named,
    all_selects_each_stored_resource_once,
    a_run_that_timed_out_can_be_resumed,
    the_binary_works_as_a_kubectl_plugin,
    ; real:
    // It needs objects that kube-apiserver creates for itself.
    plan_prints_the_inventory_in_every_format,
    // It needs objects that kube-apiserver creates for itself.
    plan_lists_needed_migrations_until_they_are_done,
    // It needs the lab's own certificate authority.
    connection_flags_work_as_in_kubectl,
    // It names bindings, which the embedded server does not serve.
    incorrect_usage_is_explained,
}

/// Wrong words on the command line: exit code 2, and an answer that helps.
async fn incorrect_usage_is_explained(lab: Lab) {
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural: "gadgets" };
    widgets.define(&client).await;
    let dir = tempfile::tempdir().unwrap();
    let broken = dir.path().join("broken.yaml");
    std::fs::write(&broken, "clusters: [").unwrap();
    let broken = broken.to_str().unwrap();
    let restow = Restow::new(cluster);
    // Whose last run left nothing.
    restow.run(&["migrate", "priorityclasses"]).await.expect(0);
    for (args, words) in [
        (&["migrate"][..], &["<RESOURCE>", "--help"][..]),
        (&["migrate", "gadgts"], &["no resource \"gadgts\"", "did you mean gadgets.gadgets.example.com?"]),
        (&["migrate", "zzzzz"], &["no resource \"zzzzz\"", "to see them all, run: restow plan"]),
        (&["migrate", "events"], &["events cannot be migrated", "--include-events"]),
        (&["migrate", "bindings"], &["does not support list and patch"]),
        (&["migrate", "secrets", "--pace", "quick"], &["quick", "gentle, steady, fast"]),
        (&["migrate", "secrets", "--qps", "0"], &["--qps", "above zero"]),
        (&["migrate", "secrets", "--bandwidth", "lots"], &["--bandwidth", "10M"]),
        (&["migrate", "secrets", "--page-size", "0"], &["--page-size", "1..=10000"]),
        (&["migrate", "secrets", "--timeout", "soon"], &["--timeout", "90s"]),
        (&["migrate", "secrets", "--verify", "half"], &["full, none"]),
        (&["migrate", "secrets", "--list", "paged"], &["chunked, streaming, auto"]),
        (&["migrate", "secrets", "--encrypted", "secrts"], &["--encrypted", "did you mean secrets?"]),
        (&["migrate", "secrets", "--encrypted", "*"], &["--encrypted", "no resource \"*\""]),
        (&["migrate", "--resume"], &["no unfinished run"]),
        (&["migrate", "secrets", "--retry-quarantined"], &["no earlier run quarantined objects of secrets"]),
        (
            &["migrate", "priorityclasses", "--retry-quarantined"],
            &["no earlier run quarantined objects of priorityclasses"],
        ),
        (&["migrate", "secrets", "--dry-run", "--prune-stored-versions"], &["cannot be used with"]),
        (&["migrate", "secrets", "--api-server", "here"], &["--api-server here is not a URL", "https://"]),
        (&["plan", "--kubeconfig", broken], &["cannot read", "line 1"]),
        (&["plan", "--kubeconfig", "/no/such/file"], &["cannot read", "No such file"]),
        (&["plan", "--context", "elsewhere"], &["no context \"elsewhere\"", "its contexts are: lab"]),
        (&["plan", "--cluster", "elsewhere"], &["no cluster \"elsewhere\"", "its clusters are: lab"]),
        (&["plan", "--user", "nope"], &["the kubeconfig has no user \"nope\"", "its users are: "]),
        (&["plan", "--server", "ftp://localhost"], &["ftp://localhost/ is not the address", "https://"]),
    ] {
        let ran = restow.run(args).await.expect(2);
        for word in words {
            assert!(ran.stderr.contains(word), "{args:?} does not say {word:?}: {ran:#?}");
        }
        assert_eq!(ran.stdout, "", "{args:?}: an error is no data");
    }
}

async fn an_unreachable_server_is_reported(lab: Lab) {
    let cluster = lab.shared();
    let restow = Restow::new(cluster);
    for (args, address) in [
        (&["plan"][..], "https://127.0.0.1:1"),
        (&["migrate", "secrets"], "https://127.0.0.1:1"),
        (&["migrate", "--all", "-o", "json"], "https://127.0.0.1:1"),
        (&["status"], "https://127.0.0.1:1"),
        (&["install", "--image", "x", "--apply"], "https://127.0.0.1:1"),
        (&["uninstall", "--dry-run"], "https://127.0.0.1:1"),
        // As kubectl reads it where the kubeconfig has a certificate.
        (&["plan"], "127.0.0.1:1"),
    ] {
        let mut args = args.to_vec();
        args.extend(["--server", address]);
        let ran = restow.run(&args).await.expect(1);
        assert!(ran.stderr.contains("cannot reach https://127.0.0.1:1"), "{ran:#?}");
        assert!(ran.stderr.contains("hint:"), "{ran:#?}");
    }
}

/// What users of kubectl are used to.
async fn connection_flags_work_as_in_kubectl(lab: Lab) {
    let cluster = lab.shared();
    let dir = tempfile::tempdir().unwrap();
    let lab = cluster.kubeconfig(0, "admin");
    let list = format!("{}:/missing", lab.display());
    let restow = Restow::with_kubeconfig(list.into());
    restow.run(&["plan", "secret,widgets.v1.example.com"]).await.expect(2);
    let names = restow.run(&["plan", "secret,configmaps.v1", "ev", "-o", "json"]).await.expect(0).report();
    let names: Vec<&str> =
        names.as_array().unwrap().iter().map(|l| l["resource"].as_str().unwrap()).collect();
    assert_eq!(names, ["secrets", "configmaps", "events"]);

    let mut kubeconfig: Value = serde_saphyr::from_str(&std::fs::read_to_string(&lab).unwrap()).unwrap();
    let write = |name: &str, kubeconfig: &Value| {
        let path = dir.path().join(name);
        std::fs::write(&path, kubeconfig.to_string()).unwrap();
        Restow::with_kubeconfig(path)
    };
    let original = kubeconfig.clone();
    let ca = kubeconfig["clusters"][0]["cluster"].clone();
    kubeconfig["clusters"][0]["cluster"] = json!({"server": ca["server"]});
    let ran = write("unsigned", &kubeconfig).run(&["plan"]).await.expect(1);
    assert!(ran.stderr.contains("its certificate is signed by an unknown authority"), "{ran:#?}");
    assert!(ran.stderr.contains("--certificate-authority FILE"), "{ran:#?}");
    let ran =
        write("unsigned", &kubeconfig).run(&["plan", "--certificate-authority", "/missing"]).await.expect(2);
    assert!(ran.stderr.contains("--certificate-authority /missing"), "{ran:#?}");

    // An authority that is named is verified by, although the kubeconfig would verify nothing.
    kubeconfig["clusters"][0]["cluster"] = json!({"server": ca["server"], "insecure-skip-tls-verify": true});
    let insecure = write("insecure", &kubeconfig);
    insecure.run(&["plan", "secrets", "--request-timeout", "0"]).await.expect(0);
    let file = |name: &str| cluster.dir().join(name).display().to_string();
    let (right, wrong) = (file("ca.crt"), file("apiserver-0.crt"));
    insecure.run(&["plan", "secrets", "--certificate-authority", &right]).await.expect(0);
    let ran = insecure.run(&["plan", "secrets", "--certificate-authority", &wrong]).await.expect(1);
    assert!(ran.stderr.contains("its certificate is signed by an unknown authority"), "{ran:#?}");

    // Without a kubeconfig, the server that is named is asked; with the default one, its users count.
    let home = dir.path().join("home");
    let at_home = async |args: &[&str]| -> Ran {
        let mut command = insecure.command(args);
        command.env_remove("KUBECONFIG").env("HOME", &home).output().await.unwrap().into()
    };
    let server = ca["server"].as_str().unwrap();
    let named = ["plan", "-s", server, "--certificate-authority", &right, "--token", "wrong"];
    let ran = at_home(&named).await.expect(1);
    assert!(ran.stderr.contains("does not accept these credentials"), "{ran:#?}");
    let ran = at_home(&named[..5]).await.expect(1);
    assert!(ran.stderr.contains("\"system:anonymous\" cannot"), "{ran:#?}");
    assert!(ran.stderr.contains("check your credentials"), "{ran:#?}");
    let ran = at_home(&["plan"]).await.expect(1);
    assert!(ran.stderr.contains("there is no kubeconfig") && ran.stderr.contains("--server URL"), "{ran:#?}");
    std::fs::create_dir_all(home.join(".kube")).unwrap();
    let mut lost = original.clone();
    lost["contexts"][0]["context"]["user"] = json!("gone");
    std::fs::write(home.join(".kube/config"), lost.to_string()).unwrap();
    let ran = at_home(&["plan"]).await.expect(2);
    let context = &original["contexts"][0]["name"];
    let said = format!("the kubeconfig has no user \"gone\", which its context {context} names");
    assert!(ran.stderr.contains(&said), "{ran:#?}");

    kubeconfig = original;
    let exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-plugin", "interactiveMode": "Never",
        "installHint": "get it from the cloud",
    });
    kubeconfig["users"][0]["user"] = json!({"exec": exec});
    let ran = write("plugin", &kubeconfig).run(&["plan"]).await.expect(1);
    assert!(
        ran.stderr.contains("cannot run the kubeconfig's credential plugin \"no-such-plugin\": "),
        "{ran:#?}"
    );
    assert!(ran.stderr.contains("hint:") && ran.stderr.contains("get it from the cloud"), "{ran:#?}");
    let ran = write("plugin", &kubeconfig).run(&["plan", "--token", "wrong"]).await.expect(1);
    assert!(ran.stderr.contains("does not accept these credentials"), "{ran:#?}");
}

/// The rules the README names are enough, and what is missing is named with the rule that grants it.
async fn missing_permissions_are_named(lab: Lab) {
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural: "permits" };
    widgets.define(&client).await;
    widgets.create(&client, 10).await;
    widgets.store_as(&client, "v2").await;
    let restow = Restow::with_kubeconfig(cluster.kubeconfig(0, "alice"));

    let ran = restow.run(&["plan"]).await.expect(1);
    assert!(ran.stderr.contains("cannot list resource"), "{ran:#?}");
    assert!(ran.stderr.contains("resources: [\"customresourcedefinitions\"], verbs: [\"list\"]"), "{ran:#?}");

    let rule = |group: &str, resource: &str, verbs: &[&str]| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
    grant(
        &client,
        "look",
        &[
            rule("apiextensions.k8s.io", "customresourcedefinitions", &["list"]),
            rule("apiregistration.k8s.io", "apiservices", &["list"]),
        ],
    )
    .await;
    // A CRD tells what is needed; of what cannot even be counted, nothing does.
    restow.run(&["plan", &widgets.name(), "--needed"]).await.expect(3);
    let ran = restow.run(&["plan", "secrets", "--needed"]).await.expect(1);
    assert!(ran.stdout.contains("cannot be listed: ") && ran.stdout.contains("maybe"), "{ran:#?}");
    assert!(ran.stderr.contains("cannot read the StorageStates: no permission"), "{ran:#?}");
    assert!(ran.stderr.contains("not everything could be checked"), "{ran:#?}");
    let ran = restow.migrate(&widgets.name(), &["--prune-stored-versions"]).await.expect(1);
    assert!(ran.stderr.contains(&format!("you may not patch {}", widgets.name())), "{ran:#?}");
    let wanted =
        format!("{{apiGroups: [{:?}], resources: [\"permits\"], verbs: [\"list\"]}}", widgets.group());
    assert!(ran.stderr.contains(&wanted), "{ran:#?}");
    assert!(ran.stderr.contains("you may not patch customresourcedefinitions/status"), "{ran:#?}");

    grant(
        &client,
        "migrate",
        &[
            rule(&widgets.group(), "permits", &["list", "patch"]),
            rule("apiextensions.k8s.io", "customresourcedefinitions/status", &["patch"]),
        ],
    )
    .await;
    let error = |ran: &Ran| ran.resource()["error"].as_str().unwrap().to_owned();
    let ran = restow.migrate(&widgets.name(), &[]).await.expect(1);
    let wanted = "a ClusterRole with these rules would grant it: [{apiGroups: [\"apiextensions.k8s.io\"], \
                  resources: [\"customresourcedefinitions\"], verbs: [\"get\"]}]";
    assert!(error(&ran).contains(wanted), "{ran:#?}");
    let read = rule("apiextensions.k8s.io", "customresourcedefinitions", &["get"]);
    grant(&client, "read", &[read]).await;
    let wanted = "a Role in kube-system with these rules would grant it: [{apiGroups: [\"coordination.k8s.io\"], \
                  resources: [\"leases\"], verbs: [\"list\"]}]";
    for more in [&[][..], &["--sample-servers", "1s"]] {
        let ran = restow.migrate(&widgets.name(), more).await.expect(4);
        assert!(error(&ran).starts_with("cannot determine which API servers exist: "), "{ran:#?}");
        assert!(error(&ran).contains(wanted), "{ran:#?}");
    }
    grant(&client, "members", &[rule("coordination.k8s.io", "leases", &["list"])]).await;
    let report = restow.migrate(&widgets.name(), &["--prune-stored-versions"]).await.expect(0).resource();
    assert_eq!((&report["rewritten"], &report["verified"]), (&json!(10), &json!(true)));

    // The same through impersonation.
    let admin = Restow::new(cluster);
    admin.migrate(&widgets.name(), &["--as", "alice"]).await.expect(0);
    let ran = admin.migrate("secrets", &["--as", "alice"]).await.expect(1);
    assert!(ran.stderr.contains("you may not list secrets"), "{ran:#?}");
}

/// Grants rules to alice.
pub(crate) async fn grant(client: &kube::Client, name: &str, rules: &[Value]) {
    let api = "rbac.authorization.k8s.io";
    let role = json!({
        "apiVersion": format!("{api}/v1"), "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules,
    });
    let binding = json!({
        "apiVersion": format!("{api}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": api, "kind": "User", "name": "alice"}],
    });
    send(client, "POST", &format!("/apis/{api}/v1/clusterroles"), Some(&role)).await;
    send(client, "POST", &format!("/apis/{api}/v1/clusterrolebindings"), Some(&binding)).await;
    // Authorization follows from a watch: ask until it does.
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": "alice", "resourceAttributes": {
            "verb": rules[0]["verbs"][0], "group": rules[0]["apiGroups"][0], "resource": rules[0]["resources"][0],
        }},
    });
    crate::support::wait("the role to count", || async {
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        send(client, "POST", path, Some(&review)).await["status"]["allowed"] == true
    })
    .await;
}

async fn plan_prints_the_inventory_in_every_format(lab: Lab) {
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural: "plans" };
    widgets.define(&client).await;
    widgets.create(&client, 30).await;
    widgets.store_as(&client, "v2").await;
    let restow = Restow::new(cluster);
    let name = widgets.name();

    let lines: Value =
        serde_json::from_str(&restow.run(&["plan", "-o", "json"]).await.expect(0).stdout).unwrap();
    let line =
        |name: &str| lines.as_array().unwrap().iter().find(|line| line["resource"] == name).cloned().unwrap();
    let planned = line(&name);
    assert_eq!(
        (&planned["storageVersion"], &planned["objects"], &planned["needed"], &planned["storedVersions"]),
        (&json!("v2"), &json!(30), &json!("yes"), &json!(["v1", "v2"]))
    );
    assert_eq!((&planned["servedBy"], &planned["requests"]), (&json!("custom"), &json!(62)));
    assert_eq!(line("events")["migratable"], false);
    assert_eq!(line("events.events.k8s.io")["sharesStorageWith"], json!(["events"]));
    assert_eq!(line("bindings")["whyNot"], "does not support list and patch");
    // Stored in a version that is not served.
    assert_eq!(line("customresourcedefinitions.apiextensions.k8s.io")["storageVersion"], "v1beta1");

    assert_eq!(planned["reason"], "storedVersions v1, v2");
    for line in lines.as_array().unwrap() {
        assert_eq!(line["migratable"] == true, line["whyNot"].is_null(), "{line:#}");
    }

    let names = restow.run(&["plan", "-o", "name"]).await.expect(0).stdout;
    assert!(
        names.lines().any(|line| line == name) && names.lines().all(|line| line != "bindings"),
        "{names}"
    );
    let yaml = restow.run(&["plan", &name, "-o", "yaml"]).await.expect(0).stdout;
    assert!(yaml.contains(&format!("resource: {name}")), "{yaml}");
    let table = restow.run(&["plan", &name]).await.expect(0);
    assert!(table.stdout.starts_with("RESOURCE"), "{table:#?}");
    assert!(table.stdout.contains("storedVersions v1, v2"), "{table:#?}");
    assert!(table.stderr.starts_with("1 resource: 1 to migrate (30 objects, about "), "{table:#?}");
    let wide = restow.run(&["plan", &name, "-o", "wide"]).await.expect(0).stdout;
    assert!(
        wide.contains("HASH") && wide.contains(planned["storageVersionHash"].as_str().unwrap()),
        "{wide}"
    );
}

/// What is needed, for people and for CI: until a migration is verified, and as `init` sees it.
async fn plan_lists_needed_migrations_until_they_are_done(lab: Lab) {
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural: "needs" };
    widgets.define(&client).await;
    widgets.create(&client, 3).await;
    let restow = Restow::new(cluster);
    let (name, built_in) = (widgets.name(), "priorityclasses.scheduling.k8s.io");
    let plan = ["plan", &name, built_in, "--needed"];
    let shown = |ran: &Ran| -> Vec<String> {
        ran.stdout.lines().skip(1).map(|line| line.split("  ").next().unwrap().to_owned()).collect()
    };

    let ran = restow.run(&plan).await.expect(0);
    assert_eq!(shown(&ran), [built_in], "{ran:#?}");
    assert!(ran.stderr.starts_with("1 resource: 0 to migrate, 1 unknown: "), "{ran:#?}");
    widgets.store_as(&client, "v2").await;
    let ran = restow.run(&plan).await.expect(3);
    assert_eq!(shown(&ran), [name.as_str(), built_in], "{ran:#?}");
    let names = restow.run(&[&plan[..], &["-o", "name"]].concat()).await.expect(3).stdout;
    assert_eq!(names, format!("{name}\n{built_in}\n"));

    let names: Vec<&str> = names.lines().collect();
    restow.run(&[&["migrate", "--prune-stored-versions"], &names[..]].concat()).await.expect(0);
    let ran = restow.run(&plan).await.expect(0);
    assert!(shown(&ran).is_empty(), "{ran:#?}");
    let lines = restow.run(&["plan", built_in, "-o", "json"]).await.expect(0).report();
    assert!(lines[0]["reason"].as_str().unwrap().starts_with("verified on 20"), "{lines:#}");

    let quiet = restow.run(&["migrate", &name]).await.expect(0);
    let verbose = restow.run(&["migrate", &name, "-v"]).await.expect(0);
    assert!(!quiet.stderr.contains("a page is done"), "{quiet:#?}");
    assert!(verbose.stderr.contains("a page is done") && verbose.stderr.contains("listed=3"), "{verbose:#?}");
}

async fn all_selects_each_stored_resource_once(lab: Lab) {
    let cluster = lab.shared();
    let restow = Restow::new(cluster);
    let ran = restow.run(&["migrate", "--all", "--dry-run", "-o", "json"]).await;
    // Other tests define and poison their own resources meanwhile; what is chosen is what counts here.
    let report = ran.report();
    let names: Vec<&str> =
        report["resources"].as_array().unwrap().iter().map(|r| r["resource"].as_str().unwrap()).collect();
    assert!(names.contains(&"secrets") && names.contains(&"deployments.apps"), "{names:?}");
    assert!(!names.contains(&"events") && !names.contains(&"events.events.k8s.io"), "{names:?}");
    assert!(ran.stderr.contains(": dry run of ") && !ran.stderr.contains("rewriting"), "{}", ran.stderr);
    let events =
        restow.run(&["migrate", "events.events.k8s.io", "--include-events", "-o", "json"]).await.expect(0);
    assert_eq!(events.resource()["resource"], "events", "shared storage is migrated where it is stored");
}

/// A run that is out of time says how to go on, and does: with what was cut short, and with what had not begun.
async fn a_run_that_timed_out_can_be_resumed(lab: Lab) {
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let all = [Widgets { plural: "hurries" }, Widgets { plural: "lates" }];
    for widgets in &all {
        widgets.define(&client).await;
        widgets.create(&client, 100).await;
        widgets.store_as(&client, "v2").await;
    }
    let restow = Restow::new(cluster);
    let (first, second) = (all[0].name(), all[1].name());
    let slowly = ["migrate", &first, &second, "--qps", "10", "--page-size", "10", "--timeout", "10s"];
    let ran = restow.run(&slowly).await.expect(130);
    assert!(ran.stdout.contains(&format!("restow migrate {first} --resume")), "{ran:#?}");
    let report = restow.run(&["migrate", "--resume", "-o", "json"]).await.expect(0).report();
    assert_eq!(report["resources"].as_array().unwrap().len(), 2, "{report:#}");
    for (widgets, report) in all.iter().zip(report["resources"].as_array().unwrap()) {
        assert_eq!((&report["listed"], &report["verified"]), (&json!(100), &json!(true)), "{report:#}");
        assert_eq!(report["rewritten"], 100, "{report:#}");
        assert_eq!(widgets.stored_as(cluster).await[&format!("{}/v2", widgets.group())], 100);
    }
    restow.run(&["migrate", "--resume"]).await.expect(2);
}

async fn the_binary_works_as_a_kubectl_plugin(lab: Lab) {
    let dir = tempfile::tempdir().unwrap();
    let plugin = dir.path().join("kubectl-restow");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_restow"), &plugin).unwrap();
    let help =
        tokio::process::Command::new(&plugin).arg("--help").stdin(Stdio::null()).output().await.unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(help.contains("Usage: kubectl restow"), "{help}");

    // kubectl asks a program of this name what may come next.
    let cluster = lab.shared();
    let completion = dir.path().join("kubectl_complete-restow");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_restow"), &completion).unwrap();
    for (words, expected) in [
        (&["migrate", "prioritycl"][..], "priorityclasses.scheduling.k8s.io\n:4\n"),
        (&["vers"], "version\n:4\n"),
    ] {
        let mut command = tokio::process::Command::new(&completion);
        command.args(words).env("KUBECONFIG", cluster.kubeconfig(0, "admin")).stdin(Stdio::null());
        assert_eq!(String::from_utf8(command.output().await.unwrap().stdout).unwrap(), expected);
    }
}
