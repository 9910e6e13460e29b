//! `cargo xtask tour`: the main job once through, on a real control plane: a CRD moves its storage version, and
//! restow brings what is stored after it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use restow_lab::{Assets, Cluster, ClusterSpec};
use serde_json::{Value, json};

use crate::cargo;

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1beta1/namespaces/default/widgets";

/// What the tour shows.
#[derive(Args)]
pub(crate) struct Tour {
    /// How many objects there are to rewrite.
    #[arg(long, default_value_t = 3000)]
    objects: usize,
}

/// Takes the tour.
pub(crate) async fn run(tour: &Tour) -> Result<()> {
    let restow = build()?;
    let assets = Assets::find()?;
    say("Starting etcd and kube-apiserver on loopback.");
    let cluster = Cluster::start(&assets, ClusterSpec::new()).await?;
    let client = cluster.client(0)?;
    say(&format!("Making a CRD stored as v1beta1, and {} widgets.", tour.objects));
    request(&client, "POST", CRDS, &definition("v1beta1")).await?;
    served(&client).await?;
    let widget = |index: usize| {
        json!({
            "apiVersion": "example.com/v1beta1", "kind": "Widget",
            "metadata": {"name": format!("widget-{index:05}")}, "spec": {"size": index},
        })
    };
    stream::iter(0..tour.objects)
        .map(|index| {
            let (client, widget) = (&client, widget(index));
            async move { request(client, "POST", WIDGETS, &widget).await }
        })
        .buffer_unordered(16)
        .try_for_each(|_| async { Ok(()) })
        .await?;
    say("The author makes v1 the storage version. What is stored stays as it was:");
    let spec = json!({"spec": {"versions": definition("v1")["spec"]["versions"]}});
    request(&client, "PATCH", &format!("{CRDS}/widgets.example.com"), &spec).await?;
    show_stored(&cluster).await?;
    let run = |args: &[&str]| -> Result<()> {
        println!("\n$ restow {}", args.join(" "));
        let status = Command::new(&restow)
            .args(args)
            .env("KUBECONFIG", cluster.kubeconfig(0, "admin"))
            .env("XDG_STATE_HOME", cluster.dir())
            .status()
            .context("running restow")?;
        if status.success() { Ok(()) } else { bail!("restow ended with {status}") }
    };
    run(&["plan", "widgets.example.com"])?;
    run(&["migrate", "widgets.example.com", "--pace", "fast", "--prune-stored-versions"])?;
    say("\nNow etcd holds:");
    show_stored(&cluster).await?;
    say(
        "v1beta1 can be dropped from the CRD. On a cluster of your own: restow plan, then restow migrate RESOURCE.",
    );
    Ok(())
}

fn say(text: &str) {
    println!("{text}");
}

fn build() -> Result<PathBuf> {
    let status = cargo::command().args(["build", "--quiet", "--package", "restow"]).status()?;
    if !status.success() {
        bail!("restow does not build");
    }
    // Cargo puts it beside this program.
    Ok(std::env::current_exe()?.with_file_name("restow"))
}

fn definition(storage: &str) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version =
        |name: &str| json!({"name": name, "served": true, "storage": name == storage, "schema": schema});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [version("v1beta1"), version("v1")],
        },
    })
}

async fn request(client: &kube::Client, method: &str, path: &str, body: &Value) -> Result<Value> {
    let content_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = http::Request::builder().method(method).uri(path).header("Content-Type", content_type);
    client
        .request(request.body(body.to_string().into_bytes())?)
        .await
        .with_context(|| format!("{method} {path}"))
}

async fn served(client: &kube::Client) -> Result<()> {
    for _ in 0..600 {
        let request = http::Request::get(WIDGETS).body(Vec::new())?;
        if client.request::<Value>(request).await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    bail!("the CRD is not served after 30 s")
}

async fn show_stored(cluster: &Cluster) -> Result<()> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let count = |_: &str, bytes: &[u8]| {
        let object: Value = serde_json::from_slice(bytes).unwrap_or_default();
        *counts.entry(object["apiVersion"].as_str().unwrap_or("unreadable").to_owned()).or_default() += 1;
    };
    cluster.etcd().for_each("/registry/example.com/widgets/", count).await?;
    for (version, count) in counts {
        println!("  {count} objects as {version}");
    }
    Ok(())
}
