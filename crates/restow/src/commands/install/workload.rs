//! The Deployment of the controllers, and the objects that go with it.

use serde_json::{Value, json};

use super::manifest::{Manifest, labels};
use super::rules::NAME;

/// The label of namespaces whose pods may read the metrics.
const METRICS: &str = "restow.dev/metrics";
/// The port of probes and metrics.
const PORT: u16 = 8080;
/// A user that no node has.
const USER: u32 = 65532;

/// What pods may do on their node: as little as the *restricted* pod security standard asks for.
pub(super) fn pod_security() -> Value {
    json!({
        "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}

/// The same for containers.
pub(super) fn container_security() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]},
    })
}

/// The program to run.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    /// An image whose entrypoint is restow.
    pub(crate) image: String,
    /// Flags of `restow controller`, in addition to those of every install.
    pub(crate) flags: Vec<String>,
}

/// The labels that select the pods.
fn selector() -> Value {
    json!({"app.kubernetes.io/name": NAME, "app.kubernetes.io/component": "controller"})
}

/// The priority of the pods.
pub(crate) fn priority_class() -> Manifest {
    let why =
        "Yields to ordinary pods and preempts none. (Below -10, cluster autoscalers would add no node.)";
    let object = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": NAME},
        "value": -5, "preemptionPolicy": "Never",
        "description": "for restow, which can wait",
    });
    Manifest::new(why, object)
}

/// The namespaced objects: Service, NetworkPolicy, PodDisruptionBudget and Deployment.
pub(crate) fn manifests(namespace: &str, workload: &Workload) -> Vec<Manifest> {
    vec![
        service(namespace),
        network_policy(namespace),
        disruption_budget(namespace),
        deployment(namespace, workload),
    ]
}

fn network_policy(namespace: &str) -> Manifest {
    let why = "Metrics name resources and migrations. Only pods in namespaces with the label restow.dev/metrics: \
    \"true\" may\n\
        read them: kubectl label namespace monitoring restow.dev/metrics=true. (A node's probes are always allowed.)";
    let object = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": {
            "podSelector": {"matchLabels": selector()},
            "policyTypes": ["Ingress"],
            "ingress": [{
                "from": [{"namespaceSelector": {"matchLabels": {METRICS: "true"}}}],
                "ports": [{"port": "metrics", "protocol": "TCP"}],
            }],
        },
    });
    Manifest::new(why, object)
}

fn service(namespace: &str) -> Manifest {
    let why = "The metrics of each replica, for Prometheus. It is headless, because each replica is scraped by itself.";
    let object = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": NAME, "namespace": namespace},
        "spec": {
            "clusterIP": "None", "selector": selector(),
            "ports": [{"name": "metrics", "port": PORT, "targetPort": "metrics", "protocol": "TCP"}],
        },
    });
    Manifest::new(why, object)
}

fn disruption_budget(namespace: &str) -> Manifest {
    let why = "Nodes may be drained, one replica at a time.";
    let object = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": {
            "maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": selector()},
        },
    });
    Manifest::new(why, object)
}

fn deployment(namespace: &str, workload: &Workload) -> Manifest {
    let why = "Two replicas: one leads, the other takes over when the Lease expires.";
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": NAME, "namespace": namespace},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": selector()},
            "template": {"metadata": {"labels": pod_labels()}, "spec": pod(namespace, workload)},
        },
    });
    Manifest::new(why, object)
}

/// Pods have the labels of everything that restow creates, so that an uninstall recognizes them.
fn pod_labels() -> Value {
    let mut all = labels();
    if let (Value::Object(all), Value::Object(own)) = (&mut all, selector()) {
        all.extend(own);
    }
    all
}

fn pod(namespace: &str, workload: &Workload) -> Value {
    json!({
        "serviceAccountName": NAME,
        "automountServiceAccountToken": true,
        "priorityClassName": NAME,
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "securityContext": pod_security(),
        "topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": selector()},
        }],
        "containers": [container(namespace, workload)],
    })
}

fn container(namespace: &str, workload: &Workload) -> Value {
    let mut args = vec![
        "controller".to_owned(),
        format!("--leader-election-namespace={namespace}"),
        format!("--listen=0.0.0.0:{PORT}"),
        "--log-format=json".to_owned(),
    ];
    args.extend(workload.flags.iter().cloned());
    let probe = |path: &str, failures: u32| {
        json!({
            "httpGet": {"path": path, "port": "metrics"},
            "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": failures,
        })
    };
    json!({
        "name": "controller",
        "image": workload.image,
        "args": args,
        "ports": [{"name": "metrics", "containerPort": PORT, "protocol": "TCP"}],
        "livenessProbe": probe("/healthz", 6),
        "readinessProbe": probe("/readyz", 3),
        "resources": {
            "requests": {"cpu": "50m", "memory": "64Mi"},
            "limits": {"memory": "256Mi"},
        },
        "securityContext": container_security(),
    })
}
