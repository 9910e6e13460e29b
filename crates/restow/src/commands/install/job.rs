//! `restow install --job`: a Job that migrates some custom resources once, for operators in any language.

use std::collections::BTreeSet;

use restow_core::controller::object_name;
use restow_core::resource::name::GroupResource;
use serde_json::{Value, json};

use super::choice::InstallChoice;
use super::flags::Install;
use super::manifest::{Manifest, comment};
use super::rules::{self, Rule};
use super::workload::{container_security, pod_security};
use crate::args::{Connection, DEFAULT_NAMESPACE};
use crate::error::CliError;

const RBAC: &str = "rbac.authorization.k8s.io";
/// The longest name of a Job whose pods get its name as a label.
const LONGEST_NAME: usize = 63;
/// How long a Job stays after its end.
const KEPT_SECONDS: u32 = 86_400;
/// Where the progress is kept while the pod runs.
const STATE: &str = "/state";

/// The Job to print.
pub(super) struct JobSetup {
    resources: Vec<GroupResource>,
    image: String,
    namespace: String,
    helm_hook: bool,
    /// The flags that say how API servers are found.
    servers: Vec<String>,
}

impl JobSetup {
    /// From the flags.
    pub(super) fn of(connection: &Connection, flags: &Install) -> Result<Self, CliError> {
        let resources: Vec<GroupResource> =
            flags.resources.iter().map(|name| GroupResource::parse(&name.to_lowercase())).collect();
        if let Some(bare) = resources.iter().find(|name| name.group.is_empty() || name.resource.is_empty()) {
            return Err(CliError::usage(format!(
                "--job needs the full name of a custom resource, not {bare}"
            ))
            .hint("give its plural and its group, such as widgets.example.com"));
        }
        let chart = flags.helm_hook && flags.namespace == DEFAULT_NAMESPACE;
        Ok(Self {
            resources,
            image: flags.image.clone().unwrap_or_default(),
            namespace: if chart { "{{ .Release.Namespace }}".to_owned() } else { flags.namespace.clone() },
            helm_hook: flags.helm_hook,
            servers: InstallChoice::given(connection, flags).server_flags(),
        })
    }

    /// The name of all objects but the Job: one operator's do not replace another's. Dots become dashes, so that only the digest
    /// tells some resources apart.
    fn name(&self) -> String {
        // ClusterRoles have no namespace, and the same resources may be migrated by Jobs in two.
        let occasion = format!("{} {}", self.namespace, self.names().join(","));
        object_name::unique_within(&self.stem(), &occasion, LONGEST_NAME)
    }

    /// The name of the Job, which cannot be changed: with another image or other arguments it is another Job.
    fn job_name(&self) -> String {
        let occasion = format!("{} {} {}", self.names().join(","), self.image, arguments(self).join(" "));
        object_name::unique_within(&self.stem(), &occasion, LONGEST_NAME)
    }

    fn stem(&self) -> String {
        format!("restow-migrate-{}", self.names().join("-")).replace('.', "-")
    }

    /// The resources, each once, in an order that does not depend on how they were typed.
    fn names(&self) -> Vec<String> {
        let names: BTreeSet<String> = self.resources.iter().map(ToString::to_string).collect();
        names.into_iter().collect()
    }
}

/// All manifests, in the order in which they can be created.
pub(super) fn manifests(setup: &JobSetup) -> Vec<Manifest> {
    let mut all = vec![service_account(setup)];
    let why = "What the Job may do in all namespaces. Kubernetes has no permission to list only metadata, or to patch\n\
        without changes: whoever obtains this account's token could read and change these resources.";
    all.push(role(setup, why, None, &rules::job(&setup.resources)));
    all.push(binding(setup, None));
    for (namespace, rules) in rules::job_members() {
        all.push(role(setup, "Which API servers there are.", Some(namespace), &rules));
        all.push(binding(setup, Some(namespace)));
    }
    all.push(job(setup));
    if setup.helm_hook {
        all.iter_mut().for_each(hook);
    }
    all
}

/// The manifests as one YAML text.
pub(super) fn yaml(manifests: &[Manifest]) -> String {
    let head = format!(
        "Migrates custom resources to their storage version once, with restow {}. It exits as restow migrate does.\n\
         To run it again, delete the Job and apply it again; it is deleted by itself a day after its end. With another image\n\
         or other arguments it is another Job. As a hook of a Helm chart it runs after each upgrade.",
        env!("CARGO_PKG_VERSION")
    );
    let texts: Vec<String> = manifests.iter().map(Manifest::yaml).collect();
    format!("{}---\n{}", comment(&head), texts.join("---\n"))
}

/// Roles come first. They are deleted after a success, so that nothing may be rewritten between two upgrades.
fn hook(manifest: &mut Manifest) {
    let (weight, delete) = match manifest.kind() {
        "Job" => ("0", "before-hook-creation"),
        _ => ("-5", "before-hook-creation,hook-succeeded"),
    };
    manifest.object["metadata"]["annotations"] = json!({
        "helm.sh/hook": "post-upgrade,post-rollback",
        "helm.sh/hook-weight": weight,
        "helm.sh/hook-delete-policy": delete,
    });
}

fn meta(setup: &JobSetup, namespace: Option<&str>) -> Value {
    let mut meta = json!({"name": setup.name(), "labels": labels()});
    if let Some(namespace) = namespace {
        meta["namespace"] = namespace.into();
    }
    meta
}

fn labels() -> Value {
    json!({"app.kubernetes.io/name": "restow-migrate"})
}

fn service_account(setup: &JobSetup) -> Manifest {
    let object = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta(setup, Some(&setup.namespace)),
        "automountServiceAccountToken": false,
    });
    Manifest::foreign("The identity of the Job. Only its own pod gets its token.", object)
}

fn role(setup: &JobSetup, why: &'static str, namespace: Option<&str>, rules: &[Rule]) -> Manifest {
    let kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
    let object = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": kind, "metadata": meta(setup, namespace), "rules": rules,
    });
    Manifest::foreign(why, object).noted(rules.iter().map(|rule| rule.why).collect())
}

fn binding(setup: &JobSetup, namespace: Option<&str>) -> Manifest {
    let kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
    let name = setup.name();
    let object = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": format!("{kind}Binding"), "metadata": meta(setup, namespace),
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": setup.namespace}],
    });
    Manifest::foreign("", object)
}

/// The arguments of the container.
fn arguments(setup: &JobSetup) -> Vec<String> {
    let mut all = vec!["migrate".to_owned()];
    all.extend(setup.names());
    all.extend(["--prune-stored-versions", "--repair-managed-fields", "--list=chunked"].map(str::to_owned));
    all.push(format!("--state-dir={STATE}"));
    all.extend(setup.servers.iter().cloned());
    all
}

fn job(setup: &JobSetup) -> Manifest {
    let why = "Wrong usage (2) and quarantined objects (3) end the Job at once: another try would end the same way.\n\
        Other failures are retried, such as API servers that disagree during an upgrade (4).";
    let object = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": setup.job_name(), "labels": labels(), "namespace": setup.namespace},
        "spec": {
            "backoffLimit": 6,
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "podFailurePolicy": {"rules": [
                {"action": "FailJob", "onExitCodes": {"containerName": "migrate", "operator": "In", "values": [2, 3]}},
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            ]},
            "template": {"metadata": {"labels": labels()}, "spec": pod(setup)},
        },
    });
    Manifest::foreign(why, object)
}

fn pod(setup: &JobSetup) -> Value {
    json!({
        "serviceAccountName": setup.name(),
        "automountServiceAccountToken": true,
        "restartPolicy": "Never",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "securityContext": pod_security(),
        "containers": [{
            "name": "migrate",
            "image": setup.image,
            "args": arguments(setup),
            "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
            "securityContext": container_security(),
            "volumeMounts": [{"name": "state", "mountPath": STATE}],
        }],
        "volumes": [{"name": "state", "emptyDir": {"sizeLimit": "64Mi"}}],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::install::manifest::is_ours;

    fn setup(names: &[&str], helm_hook: bool) -> JobSetup {
        JobSetup {
            resources: names.iter().map(|name| GroupResource::parse(name)).collect(),
            image: "registry.example/restow:1".to_owned(),
            namespace: if helm_hook { "{{ .Release.Namespace }}" } else { "widgets" }.to_owned(),
            helm_hook,
            servers: Vec::new(),
        }
    }

    #[test]
    fn jobs_are_as_reviewed() {
        for (name, setup) in [
            ("job", setup(&["widgets.example.com"], false)),
            ("job-helm-hook", setup(&["widgets.example.com", "gadgets.example.com"], true)),
        ] {
            let text = yaml(&manifests(&setup)).replace(env!("CARGO_PKG_VERSION"), "VERSION");
            crate::snapshots::check(&format!("install/{name}"), &text);
        }
    }

    #[test]
    fn a_job_finds_the_api_servers_as_it_was_told() {
        #[derive(clap::Parser)]
        struct Typed {
            #[command(flatten)]
            connection: Connection,
            #[command(flatten)]
            install: Install,
        }
        let job = ["install", "--job", "--image=i", "widgets.example.com"];
        for given in [&["--sample-servers=60s"][..], &["--assume-single-server"], &[]] {
            let typed = <Typed as clap::Parser>::try_parse_from(job.iter().chain(given)).unwrap();
            let arguments = arguments(&JobSetup::of(&typed.connection, &typed.install).unwrap());
            assert_eq!(arguments[arguments.len() - given.len()..], *given);
            assert!(!given.is_empty() || arguments.last().unwrap().starts_with("--state-dir"));
        }
    }

    #[test]
    fn names_are_short_and_differ_between_operators() {
        let long = format!("{}.example.com", "w".repeat(70));
        let names: BTreeSet<String> = [
            &["widgets.example.com"][..],
            &["widgets.example.org"],
            &["widgets.example.com", "gadgets.example.com"],
            &[&long],
            // Without the dots these are the same.
            &["widgets-example.com"],
            &["widgets.example-com"],
            &["a.b", "c.d"],
            &["a.b-c.d"],
        ]
        .map(|names| setup(names, false).name())
        .into();
        assert_eq!(names.len(), 8);
        assert!(names.iter().all(|name| name.len() <= 63 && !name.contains('.')), "{names:?}");
    }

    #[test]
    fn a_job_with_another_image_or_other_arguments_is_another_job() {
        let one = setup(&["widgets.example.com", "gadgets.example.com"], false);
        let image = JobSetup {
            image: "registry.example/restow:2".to_owned(),
            ..setup(&["widgets.example.com", "gadgets.example.com"], false)
        };
        let flags = JobSetup {
            servers: vec!["--assume-single-server".to_owned()],
            ..setup(&["widgets.example.com", "gadgets.example.com"], false)
        };
        let typed = setup(&["gadgets.example.com", "widgets.example.com", "widgets.example.com"], false);
        let jobs: BTreeSet<String> = [&one, &image, &flags].map(JobSetup::job_name).into();
        assert_eq!(jobs.len(), 3);
        assert!(jobs.iter().all(|name| name.len() <= 63), "{jobs:?}");
        assert_eq!(one.name(), image.name(), "roles are updated");
        assert_eq!((one.name(), one.job_name()), (typed.name(), typed.job_name()));
        let elsewhere = JobSetup { namespace: "other".to_owned(), ..typed };
        assert_ne!(one.name(), elsewhere.name(), "its ClusterRoleBinding is for another account");
    }

    #[test]
    fn an_uninstall_of_the_controllers_leaves_jobs_alone() {
        let all = manifests(&setup(&["widgets.example.com"], false));
        assert!(all.iter().all(|manifest| !is_ours(&manifest.object)));
    }
}
