//! kubectl as a process, writing: its output is the same on both servers.

use std::path::PathBuf;
use std::process::Stdio;

use restow_lab::assets;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::subject::Subject;

scenarios![
    kubectl_replaces_and_edits,
    kubectl_waits,
    kubectl_creates_gets_and_deletes,
    kubectl_applies,
    kubectl_applies_on_the_server,
    kubectl_patches_labels_and_annotates,
    kubectl_creates_from_many_documents,
    kubectl_creates_by_its_generators,
    kubectl_sets_images_and_diffs_nothing,
    kubectl_deletes_by_label_and_namespace,
    ; real:
    // No scale subresource.
    kubectl_scales,
];

/// kubectl in one namespace of a server.
pub(crate) struct Kubectl {
    program: PathBuf,
    namespace: String,
    home: tempfile::TempDir,
}

impl Kubectl {
    /// kubectl in a new namespace; none if the lab has no kubectl.
    pub(crate) async fn new(subject: &Subject, namespace: &str) -> Option<Self> {
        let (_, program) = assets::kubectl_or_skip("kubectl in the conformance suite")?;
        subject.namespace(namespace).await;
        Some(Self::within(subject, namespace, program))
    }

    pub(crate) fn within(subject: &Subject, namespace: &str, program: PathBuf) -> Self {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("kubeconfig"), subject.kubeconfig()).unwrap();
        Self { program, namespace: namespace.to_owned(), home }
    }

    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(&self.program);
        command
            .env_clear()
            .env("HOME", self.home.path())
            .env("KUBECONFIG", self.home.path().join("kubeconfig"))
            .env("KUBE_EDITOR", "sed -i s/before/after/")
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .args(["--namespace", &self.namespace])
            .args(line.split(' ').map(|word| word.replace('~', " ")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// The output of a command, with ages as `AGE`. A tilde stands for a space within a word.
    pub(crate) async fn run(&self, line: &str, input: &str) -> String {
        let mut child = self.command(line).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).await.unwrap();
        let output = child.wait_with_output().await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        if output.status.success() { aged(&out) } else { format!("{out}{err}") }
    }

    /// Runs the commands of a table in order, and reports all unexpected outputs.
    pub(crate) async fn table(&self, rows: &[(&str, &str, &str)]) {
        let mut wrong = Vec::new();
        for (line, input, expected) in rows {
            let printed = self.run(line, input).await;
            if printed != *expected {
                wrong.push(format!("kubectl {line}\n  expected {expected:?}\n  printed  {printed:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

/// Replaces ages by `AGE`, and separates columns by one space.
pub(crate) fn aged(text: &str) -> String {
    let is_age = |word: &str| {
        let digits = word.trim_end_matches(['s', 'm']);
        digits.len() < word.len()
            && !digits.is_empty()
            && digits.chars().all(|c| c.is_ascii_digit() || c == 'm')
    };
    let line = |line: &str| {
        let words = line.split_whitespace().map(|word| if is_age(word) { "AGE" } else { word });
        words.collect::<Vec<_>>().join(" ")
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// A ConfigMap.
pub(crate) const CONFIG: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: v\n";

async fn kubectl_creates_gets_and_deletes(subject: &Subject) {
    let Some(kubectl) = Kubectl::new(subject, "kubectl-makes").await else { return };
    kubectl
        .table(&[
            ("get configmaps", "", ""),
            ("create -f -", CONFIG, "configmap/a created"),
            ("get configmaps", "", "NAME DATA AGE\na 1 AGE"),
            ("get cm a", "", "NAME DATA AGE\na 1 AGE"),
            ("get cm a -o name", "", "configmap/a"),
            ("get cm a -o jsonpath={.data.k}", "", "v"),
            ("get cm -o custom-columns=N:.metadata.name,K:.data.k", "", "N K\na v"),
            ("get cm a --no-headers --show-labels", "", "a 1 AGE <none>"),
            ("get cm,secrets -o name", "", "configmap/a"),
            (
                "get --raw /api/v1/namespaces/kubectl-makes/secrets?limit=1 -o name",
                "",
                "error: --raw and --output are mutually exclusive",
            ),
            ("delete cm a", "", "configmap \"a\" deleted from kubectl-makes namespace"),
            ("delete cm a --ignore-not-found", "", ""),
        ])
        .await;
}

async fn kubectl_applies_on_the_server(subject: &Subject) {
    let Some(kubectl) = Kubectl::new(subject, "kubectl-server-side").await else { return };
    let changed = CONFIG.replace("k: v", "m: w");
    let other = CONFIG.replace("k: v", "m: x");
    kubectl
        .table(&[
            ("apply -f -", CONFIG, "configmap/a created"),
            // From the client's side to the server's.
            ("apply --server-side -f -", &changed, "configmap/a serverside-applied"),
            ("get cm a -o jsonpath={.data}", "", r#"{"m":"w"}"#),
            ("apply --server-side -f -", &changed, "configmap/a serverside-applied"),
            (
                "apply --server-side --dry-run=server -f -",
                CONFIG,
                "configmap/a serverside-applied (server dry run)",
            ),
            (
                "apply --server-side --field-manager=other --force-conflicts -f -",
                &other,
                "configmap/a serverside-applied",
            ),
            ("get cm a -o jsonpath={.data}", "", r#"{"m":"x"}"#),
        ])
        .await;
    let conflict = kubectl.run("apply --server-side -f -", &changed).await;
    assert!(
        conflict.contains("Apply failed with 1 conflict: conflict with \"other\": .data.m"),
        "{conflict}"
    );
}

async fn kubectl_applies(subject: &Subject) {
    let Some(kubectl) = Kubectl::new(subject, "kubectl-applies").await else { return };
    let changed = CONFIG.replace("k: v", "m: w");
    kubectl
        .table(&[
            ("apply -f -", CONFIG, "configmap/a created"),
            ("apply -f -", CONFIG, "configmap/a unchanged"),
            ("apply -f -", &changed, "configmap/a configured"),
            ("get cm a -o jsonpath={.data}", "", r#"{"m":"w"}"#),
            ("apply --dry-run=server -f -", CONFIG, "configmap/a configured (server dry run)"),
            ("get cm a -o jsonpath={.data}", "", r#"{"m":"w"}"#),
        ])
        .await;
    let deployment = |image: &str, extra: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d}}\nspec:\n  selector: {{matchLabels: {{a: b}}}}\n  \
             template:\n    metadata: {{labels: {{a: b}}}}\n    spec:\n      containers:\n      - {{name: c, image: '{image}'}}\n{extra}"
        )
    };
    let images = "get deploy d -o jsonpath={.spec.template.spec.containers[*].image}";
    kubectl
        .table(&[
            (
                "apply -f -",
                &deployment("one:1", "      - {name: d, image: 'two:1'}\n"),
                "deployment.apps/d created",
            ),
            (images, "", "one:1 two:1"),
            ("apply -f -", &deployment("one:2", ""), "deployment.apps/d configured"),
            (images, "", "one:2"),
            ("get deploy d -o jsonpath={.metadata.generation}", "", "2"),
        ])
        .await;
}

async fn kubectl_patches_labels_and_annotates(subject: &Subject) {
    let Some(kubectl) = Kubectl::new(subject, "kubectl-patches").await else { return };
    kubectl
        .table(&[
            ("create -f -", CONFIG, "configmap/a created"),
            (r#"patch cm a --type=merge -p {"data":{"m":"1"}}"#, "", "configmap/a patched"),
            (
                r#"patch cm a --type=json -p [{"op":"add","path":"/data/j","value":"2"}]"#,
                "",
                "configmap/a patched",
            ),
            (r#"patch cm a --type=strategic -p {"data":{"s":"3"}}"#, "", "configmap/a patched"),
            (r#"patch cm a -p {"data":{"s":"3"}}"#, "", "configmap/a patched (no change)"),
            ("get cm a -o jsonpath={.data}", "", r#"{"j":"2","k":"v","m":"1","s":"3"}"#),
            ("label cm a x=1 y=2", "", "configmap/a labeled"),
            ("label cm a x=1", "", "configmap/a not labeled"),
            ("label cm a x=9", "", "error: 'x' already has a value (1), and --overwrite is false"),
            ("label cm a x=9 y- --overwrite", "", "configmap/a modified"),
            ("get cm -l x=9 -o name", "", "configmap/a"),
            ("get cm -L x,y", "", "NAME DATA AGE X Y\na 4 AGE 9"),
            ("annotate cm a n=1", "", "configmap/a annotated"),
            ("annotate cm a n-", "", "configmap/a annotated"),
            ("get cm a -o jsonpath={.metadata.labels}{.metadata.annotations}", "", r#"{"x":"9"}"#),
        ])
        .await;
}

async fn kubectl_replaces_and_edits(subject: &Subject) {
    let Some(kubectl) = Kubectl::new(subject, "kubectl-replaces").await else { return };
    let before = CONFIG.replace("k: v", "k: before");
    kubectl
        .table(&[
            ("create -f -", CONFIG, "configmap/a created"),
            ("replace -f -", &before, "configmap/a replaced"),
            ("edit cm a", "", "configmap/a edited"),
            ("get cm a -o jsonpath={.data.k}", "", "after"),
            ("edit cm a", "", ""),
            (
                "replace --force -f -",
                CONFIG,
                "configmap \"a\" deleted from kubectl-replaces namespace\nconfigmap/a replaced",
            ),
        ])
        .await;
}

async fn kubectl_creates_from_many_documents(subject: &Subject) {
    let Some(kubectl) = Kubectl::new(subject, "kubectl-many").await else { return };
    let secret = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\nstringData:\n  k: v\n";
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "sa"}},
        {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}},
    ]});
    let all = format!("{CONFIG}---\n{secret}---\n{list}\n");
    kubectl
        .table(&[
            ("apply -f -", &all, "configmap/a created\nsecret/s created\nserviceaccount/sa created\nlease.coordination.k8s.io/l created"),
            ("get cm/a secret/s sa/sa lease/l -o name", "", "configmap/a\nsecret/s\nserviceaccount/sa\nlease.coordination.k8s.io/l"),
            ("get secrets", "", "NAME TYPE DATA AGE\ns Opaque 1 AGE"),
            ("get leases", "", "NAME HOLDER AGE\nl AGE"),
            ("delete -f -", &all, "configmap \"a\" deleted from kubectl-many namespace\nsecret \"s\" deleted from kubectl-many namespace\nserviceaccount \"sa\" deleted from kubectl-many namespace\nlease.coordination.k8s.io \"l\" deleted from kubectl-many namespace"),
        ])
        .await;
}

async fn kubectl_waits(subject: &Subject) {
    let Some(kubectl) = Kubectl::new(subject, "kubectl-waits").await else { return };
    kubectl.run("create -f -", CONFIG).await;
    let (waited, ()) =
        futures::join!(kubectl.run("wait --for=jsonpath={.data.k}=w cm/a --timeout=60s", ""), async {
            assert_eq!(
                kubectl.run(r#"patch cm a --type=merge -p {"data":{"k":"w"}}"#, "").await,
                "configmap/a patched"
            );
        });
    assert_eq!(waited, "configmap/a condition met");
    let (waited, ()) = futures::join!(kubectl.run("wait --for=delete cm/a --timeout=60s", ""), async {
        kubectl.run("delete cm a", "").await;
    });
    assert!(["configmap/a condition met", ""].contains(&waited.as_str()), "{waited}");
}

async fn kubectl_creates_by_its_generators(subject: &Subject) {
    let Some(kubectl) = Kubectl::new(subject, "kubectl-generators").await else { return };
    kubectl
        .table(&[
            ("create configmap g --from-literal=a=b", "", "configmap/g created"),
            ("create secret generic s --from-literal=a=b", "", "secret/s created"),
            ("get secret s -o jsonpath={.data.a}{.type}", "", "Yg==Opaque"),
            ("create serviceaccount x", "", "serviceaccount/x created"),
            (
                "create role r --verb=get --resource=configmaps",
                "",
                "role.rbac.authorization.k8s.io/r created",
            ),
            (
                "create rolebinding b --role=r --user=alice",
                "",
                "rolebinding.rbac.authorization.k8s.io/b created",
            ),
            ("create deployment d --image=i --replicas=2", "", "deployment.apps/d created"),
            ("get deploy d -o jsonpath={.spec.replicas}{.metadata.labels.app}", "", "2d"),
            ("create ns kubectl-generated", "", "namespace/kubectl-generated created"),
            ("get ns kubectl-generated", "", "NAME STATUS AGE\nkubectl-generated Active AGE"),
        ])
        .await;
}

async fn kubectl_sets_images_and_diffs_nothing(subject: &Subject) {
    let Some(kubectl) = Kubectl::new(subject, "kubectl-scales").await else { return };
    kubectl
        .table(&[
            ("create deployment d --image=i --replicas=2", "", "deployment.apps/d created"),
            ("set image deploy/d i=j:2", "", "deployment.apps/d image updated"),
            ("get deploy d -o jsonpath={.spec.template.spec.containers[0].image}", "", "j:2"),
            ("apply -f -", CONFIG, "configmap/a created"),
            ("diff -f -", CONFIG, ""),
        ])
        .await;
}

async fn kubectl_scales(subject: &Subject) {
    let Some(kubectl) = Kubectl::new(subject, "kubectl-scale").await else { return };
    kubectl
        .table(&[
            ("create deployment d --image=i --replicas=2", "", "deployment.apps/d created"),
            ("scale deploy d --replicas=5", "", "deployment.apps/d scaled"),
            ("get deploy d -o jsonpath={.spec.replicas}", "", "5"),
        ])
        .await;
}

async fn kubectl_deletes_by_label_and_namespace(subject: &Subject) {
    let Some(kubectl) = Kubectl::new(subject, "kubectl-deletes").await else { return };
    kubectl
        .table(&[
            ("create configmap a", "", "configmap/a created"),
            ("create configmap b", "", "configmap/b created"),
            ("label cm a x=y", "", "configmap/a labeled"),
            ("delete cm -l x=y", "", "configmap \"a\" deleted from kubectl-deletes namespace"),
            ("get cm -o name", "", "configmap/b"),
            ("delete ns kubectl-deletes --timeout=60s", "", "namespace \"kubectl-deletes\" deleted"),
            (
                "get ns kubectl-deletes",
                "",
                r#"Error from server (NotFound): namespaces "kubectl-deletes" not found"#,
            ),
        ])
        .await;
}
