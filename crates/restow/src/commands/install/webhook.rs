//! `restow install --webhook`: what the conversion webhook needs in a cluster, with permissions for just the named CRDs.

use restow_core::resource::name::GroupResource;
use restow_migrate::client::Server;
use serde_json::{Value, json};

use super::apply;
use super::flags::{Install, no_image};
use super::manifest::{Manifest, labels};
use super::manifests::{self, meta, own_namespace, rules_crd, yaml};
use super::ready;
use super::rules::{self, CERTIFICATES, Rule, WEBHOOK};
use super::webhook_crds;
use super::workload::{container_security, pod_security};
use crate::args::Connection;
use crate::connect::connect;
use crate::error::CliError;
use crate::output;

/// The port that the pods listen on.
const PORT: u16 = 8443;
/// How long a pod may take to end, in seconds: it serves for 5 more, and answers what it has begun within 30.
const GRACE: u32 = 60;

/// What to install.
#[derive(Clone, Debug)]
pub(crate) struct WebhookSetup {
    pub(crate) namespace: String,
    /// The CRDs that the webhook may be registered in.
    pub(crate) crds: Vec<GroupResource>,
    /// The image, unless the webhook runs elsewhere.
    pub(crate) image: Option<String>,
}

impl WebhookSetup {
    /// From the flags.
    fn of(flags: &Install) -> Result<Self, CliError> {
        let crds: Vec<GroupResource> =
            flags.resources.iter().map(|name| GroupResource::parse(&name.to_lowercase())).collect();
        if let Some(bare) = crds.iter().find(|name| name.group.is_empty() || name.resource.is_empty()) {
            return Err(CliError::usage(format!("--webhook needs the full name of a CRD, not {bare}"))
                .hint("give its plural and its group, such as widgets.example.com"));
        }
        if flags.image.is_none() && !flags.without_deployment {
            return Err(no_image());
        }
        Ok(Self { namespace: flags.namespace.clone(), crds, image: flags.image.clone() })
    }
}

/// Prints or applies the manifests.
pub(super) async fn run(connection: &Connection, flags: &Install) -> Result<u8, CliError> {
    let setup = WebhookSetup::of(flags)?;
    let all = manifests(&setup);
    if !flags.apply && !flags.dry_run {
        output::print(&yaml(&all));
        return Ok(0);
    }
    let cluster = connect(connection).await?;
    keeps_registered(cluster.server(), &setup).await?;
    apply::apply(cluster.server(), all.clone(), flags.dry_run).await?;
    if flags.wait {
        ready::ready(cluster.server(), &all, flags.timeout).await?;
    }
    Ok(0)
}

/// Fails if a CRD that calls the webhook is not named any more: its caBundle would not be kept up to date. A named CRD that
/// does not exist is reported.
async fn keeps_registered(server: &Server, setup: &WebhookSetup) -> Result<(), CliError> {
    let is_named = |name: &str| setup.crds.iter().any(|named| named.to_string() == name);
    for crd in webhook_crds::calling(server, &setup.namespace).await? {
        let name = crd.metadata.name.as_deref().unwrap_or_default();
        if !is_named(name) {
            return Err(CliError::failed(format!("{name} calls the webhook, and is not named")).hint(
                format!(
                    "name all CRDs that the webhook serves; or first run: {} webhook unregister {name}",
                    crate::program::program()
                ),
            ));
        }
    }
    let crds = webhook_crds::all(server).await?;
    for named in &setup.crds {
        if !crds.iter().any(|crd| crd.metadata.name.as_deref() == Some(&named.to_string())) {
            CliError::failed(format!("there is no CRD {named} yet"))
                .hint("it is served when it is created")
                .warn();
        }
    }
    Ok(())
}

/// All manifests, in the order in which they can be created.
pub(crate) fn manifests(setup: &WebhookSetup) -> Vec<Manifest> {
    let namespace = setup.namespace.as_str();
    let mut all = vec![own_namespace(namespace), rules_crd(), service_account(namespace)];
    all.extend(roles(setup));
    all.push(service(namespace));
    if let Some(image) = &setup.image {
        all.push(disruption_budget(namespace));
        all.push(deployment(setup, image));
    }
    all
}

fn service_account(namespace: &str) -> Manifest {
    let object = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta(WEBHOOK, Some(namespace)),
        "automountServiceAccountToken": false,
    });
    Manifest::new("The identity of the webhook. Only its own pods get its token.", object)
}

fn roles(setup: &WebhookSetup) -> Vec<Manifest> {
    let cluster = "What the webhook may do in all namespaces. It can change only the CRDs that you named, and reads their\n\
        objects before it is registered: would all of them survive the conversion?";
    let own = "What the webhook may do in its own namespace.";
    let default = "What the webhook may do in the namespace default.";
    let own_namespace = setup.namespace.as_str();
    [
        (cluster, "ClusterRole", None, rules::webhook(&setup.crds)),
        (own, "Role", Some(own_namespace), rules::webhook_own()),
        (default, "Role", Some("default"), rules::webhook_events()),
    ]
    .into_iter()
    .flat_map(|(why, kind, namespace, rules)| {
        [role(why, kind, namespace, &rules), binding(kind, namespace, own_namespace)]
    })
    .collect()
}

fn role(why: &'static str, kind: &str, namespace: Option<&str>, rules: &[Rule]) -> Manifest {
    let api = format!("{}/v1", manifests::RBAC);
    let object =
        json!({"apiVersion": api, "kind": kind, "metadata": meta(WEBHOOK, namespace), "rules": rules});
    Manifest::new(why, object).noted(rules.iter().map(|rule| rule.why).collect())
}

fn binding(kind: &str, namespace: Option<&str>, own: &str) -> Manifest {
    let object = json!({
        "apiVersion": format!("{}/v1", manifests::RBAC), "kind": format!("{kind}Binding"),
        "metadata": meta(WEBHOOK, namespace),
        "roleRef": {"apiGroup": manifests::RBAC, "kind": kind, "name": WEBHOOK},
        "subjects": [{"kind": "ServiceAccount", "name": WEBHOOK, "namespace": own}],
    });
    Manifest::new("", object)
}

/// The labels that select the pods.
fn selector() -> Value {
    json!({"app.kubernetes.io/name": WEBHOOK, "app.kubernetes.io/component": "webhook"})
}

fn service(namespace: &str) -> Manifest {
    let object = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": meta(WEBHOOK, Some(namespace)),
        "spec": {
            "selector": selector(),
            "ports": [{"name": "webhook", "port": 443, "targetPort": "webhook", "protocol": "TCP"}],
        },
    });
    Manifest::new("The address that API servers call.", object)
}

fn disruption_budget(namespace: &str) -> Manifest {
    let why = "Nodes may be drained, one replica at a time: without a replica, objects cannot be read.";
    let object = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta(WEBHOOK, Some(namespace)),
        "spec": {
            "maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": selector()},
        },
    });
    Manifest::new(why, object)
}

fn deployment(setup: &WebhookSetup, image: &str) -> Manifest {
    let why = "Two replicas, which both serve. An update ends an old one only when a new one is ready.";
    let mut pod_labels = labels();
    if let (Value::Object(all), Value::Object(own)) = (&mut pod_labels, selector()) {
        all.extend(own);
    }
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta(WEBHOOK, Some(&setup.namespace)),
        "spec": {
            "replicas": 2,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "selector": {"matchLabels": selector()},
            "template": {"metadata": {"labels": pod_labels}, "spec": pod(setup, image)},
        },
    });
    Manifest::new(why, object)
}

fn pod(setup: &WebhookSetup, image: &str) -> Value {
    json!({
        "serviceAccountName": WEBHOOK,
        "automountServiceAccountToken": true,
        "terminationGracePeriodSeconds": GRACE,
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "securityContext": pod_security(),
        "topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": selector()},
        }],
        "containers": [container(setup, image)],
    })
}

/// The arguments of the container.
fn arguments(setup: &WebhookSetup) -> Vec<String> {
    let crds: Vec<String> = setup.crds.iter().map(ToString::to_string).collect();
    vec![
        "webhook".to_owned(),
        format!("--listen=0.0.0.0:{PORT}"),
        format!("--service={WEBHOOK}"),
        format!("--namespace={}", setup.namespace),
        format!("--certificate-secret={CERTIFICATES}"),
        format!("--crds={}", crds.join(",")),
        "--log-format=json".to_owned(),
    ]
}

fn container(setup: &WebhookSetup, image: &str) -> Value {
    let probe = |path: &str, period: u32, failures: u32| {
        json!({
            "httpGet": {"path": path, "port": "webhook", "scheme": "HTTPS"},
            "periodSeconds": period, "timeoutSeconds": 5, "failureThreshold": failures,
        })
    };
    json!({
        "name": "webhook",
        "image": image,
        "args": arguments(setup),
        "ports": [{"name": "webhook", "containerPort": PORT, "protocol": "TCP"}],
        "livenessProbe": probe("/healthz", 10, 6),
        "readinessProbe": probe("/readyz", 5, 1),
        "resources": {
            "requests": {"cpu": "50m", "memory": "64Mi"},
            "limits": {"memory": "1Gi"},
        },
        "securityContext": container_security(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::commands::install::manifest::is_ours;

    fn setup(image: bool) -> WebhookSetup {
        WebhookSetup {
            namespace: "ops".to_owned(),
            crds: ["widgets.example.com", "gadgets.example.org"].map(GroupResource::parse).to_vec(),
            image: image.then(|| "registry.example/restow:1".to_owned()),
        }
    }

    #[test]
    fn the_manifests_of_the_webhook_are_as_reviewed() {
        let mut all = manifests(&setup(true));
        let paths: BTreeSet<String> = all.iter().map(Manifest::path).collect();
        assert_eq!(paths.len(), all.len());
        assert!(all.iter().all(|manifest| is_ours(&manifest.object)));
        all.retain(|manifest| manifest.kind() != "CustomResourceDefinition");
        let text = yaml(&all).replace(env!("CARGO_PKG_VERSION"), "VERSION");
        crate::snapshots::check("install/webhook", &text);
        let kinds: Vec<String> =
            manifests(&setup(false)).iter().map(|manifest| manifest.kind().to_owned()).collect();
        assert!(!kinds.contains(&"Deployment".to_owned()) && kinds.contains(&"Service".to_owned()));
    }

    #[test]
    fn the_command_line_of_the_pods_parses() {
        #[derive(clap::Parser)]
        struct Typed {
            #[command(flatten)]
            _webhook: crate::commands::webhook::Webhook,
        }
        let typed = <Typed as clap::Parser>::try_parse_from(arguments(&setup(true)));
        assert!(typed.is_ok(), "{}", typed.err().map(|error| error.to_string()).unwrap_or_default());
    }

    #[test]
    fn only_the_named_crds_and_its_own_secret_can_be_changed() {
        let on = |rules: &[Rule], resource: &str, verb: &str| -> Vec<Value> {
            let all = rules.iter().map(|rule| serde_json::to_value(rule).unwrap());
            let of = |rule: &Value, field: &str, word: &str| {
                rule[field].as_array().is_some_and(|words| words.iter().any(|one| one == word))
            };
            all.filter(|rule| of(rule, "resources", resource) && of(rule, "verbs", verb)).collect()
        };
        let rules = rules::webhook(&setup(true).crds);
        for verb in ["get", "list", "watch", "patch"] {
            let found = on(&rules, "customresourcedefinitions", verb);
            assert_eq!(found.len(), 1, "{verb}");
            assert_eq!(found[0]["resourceNames"], json!(["widgets.example.com", "gadgets.example.org"]));
        }
        for verb in ["get", "watch", "create", "update", "patch", "delete"] {
            assert!(on(&rules, "widgets", verb).is_empty(), "{verb}");
        }
        let own = rules::webhook_own();
        for verb in ["get", "watch", "update"] {
            let found = on(&own, "secrets", verb);
            assert!(
                !found.is_empty() && found.iter().all(|rule| rule["resourceNames"] == json!([CERTIFICATES]))
            );
        }
        assert!(on(&own, "secrets", "list").is_empty() && on(&rules, "secrets", "get").is_empty());
    }
}
