//! Which object a key of the store is for.

/// Resources of Kubernetes whose keys have no group: the prefix of the keys, the resource and its group.
const BUILT_IN: &[(&str, &str, &str)] = &[
    ("certificatesigningrequests", "certificatesigningrequests", "certificates.k8s.io"),
    ("clusterrolebindings", "clusterrolebindings", "rbac.authorization.k8s.io"),
    ("clusterroles", "clusterroles", "rbac.authorization.k8s.io"),
    ("clustertrustbundles", "clustertrustbundles", "certificates.k8s.io"),
    ("configmaps", "configmaps", ""),
    ("controllerrevisions", "controllerrevisions", "apps"),
    ("controllers", "replicationcontrollers", ""),
    ("cronjobs", "cronjobs", "batch"),
    ("csidrivers", "csidrivers", "storage.k8s.io"),
    ("csinodes", "csinodes", "storage.k8s.io"),
    ("csistoragecapacities", "csistoragecapacities", "storage.k8s.io"),
    ("daemonsets", "daemonsets", "apps"),
    ("deployments", "deployments", "apps"),
    ("deviceclasses", "deviceclasses", "resource.k8s.io"),
    ("devicetaintrules", "devicetaintrules", "resource.k8s.io"),
    ("endpointslices", "endpointslices", "discovery.k8s.io"),
    ("events", "events", ""),
    ("flowschemas", "flowschemas", "flowcontrol.apiserver.k8s.io"),
    ("horizontalpodautoscalers", "horizontalpodautoscalers", "autoscaling"),
    ("ingress", "ingresses", "networking.k8s.io"),
    ("ingressclasses", "ingressclasses", "networking.k8s.io"),
    ("ipaddresses", "ipaddresses", "networking.k8s.io"),
    ("jobs", "jobs", "batch"),
    ("leasecandidates", "leasecandidates", "coordination.k8s.io"),
    ("leases", "leases", "coordination.k8s.io"),
    ("limitranges", "limitranges", ""),
    ("minions", "nodes", ""),
    ("mutatingadmissionpolicies", "mutatingadmissionpolicies", "admissionregistration.k8s.io"),
    ("mutatingadmissionpolicybindings", "mutatingadmissionpolicybindings", "admissionregistration.k8s.io"),
    ("mutatingwebhookconfigurations", "mutatingwebhookconfigurations", "admissionregistration.k8s.io"),
    ("namespaces", "namespaces", ""),
    ("networkpolicies", "networkpolicies", "networking.k8s.io"),
    ("persistentvolumeclaims", "persistentvolumeclaims", ""),
    ("persistentvolumes", "persistentvolumes", ""),
    ("podcertificaterequests", "podcertificaterequests", "certificates.k8s.io"),
    ("poddisruptionbudgets", "poddisruptionbudgets", "policy"),
    ("podgroups", "podgroups", "scheduling.k8s.io"),
    ("pods", "pods", ""),
    ("podsecuritypolicy", "podsecuritypolicies", "policy"),
    ("podtemplates", "podtemplates", ""),
    ("priorityclasses", "priorityclasses", "scheduling.k8s.io"),
    ("prioritylevelconfigurations", "prioritylevelconfigurations", "flowcontrol.apiserver.k8s.io"),
    ("replicasets", "replicasets", "apps"),
    ("resourceclaims", "resourceclaims", "resource.k8s.io"),
    ("resourceclaimtemplates", "resourceclaimtemplates", "resource.k8s.io"),
    ("resourcepoolstatusrequests", "resourcepoolstatusrequests", "resource.k8s.io"),
    ("resourcequotas", "resourcequotas", ""),
    ("resourceslices", "resourceslices", "resource.k8s.io"),
    ("rolebindings", "rolebindings", "rbac.authorization.k8s.io"),
    ("roles", "roles", "rbac.authorization.k8s.io"),
    ("runtimeclasses", "runtimeclasses", "node.k8s.io"),
    ("secrets", "secrets", ""),
    ("serviceaccounts", "serviceaccounts", ""),
    ("servicecidrs", "servicecidrs", "networking.k8s.io"),
    ("services/endpoints", "endpoints", ""),
    ("services/specs", "services", ""),
    ("statefulsets", "statefulsets", "apps"),
    ("storageclasses", "storageclasses", "storage.k8s.io"),
    ("storageversionmigrations", "storageversionmigrations", "storagemigration.k8s.io"),
    ("storageversions", "storageversions", "internal.apiserver.k8s.io"),
    ("validatingadmissionpolicies", "validatingadmissionpolicies", "admissionregistration.k8s.io"),
    (
        "validatingadmissionpolicybindings",
        "validatingadmissionpolicybindings",
        "admissionregistration.k8s.io",
    ),
    ("validatingwebhookconfigurations", "validatingwebhookconfigurations", "admissionregistration.k8s.io"),
    ("volumeattachments", "volumeattachments", "storage.k8s.io"),
    ("volumeattributesclasses", "volumeattributesclasses", "storage.k8s.io"),
    ("workloads", "workloads", "scheduling.k8s.io"),
];

/// What API servers keep for themselves. It is no object of any resource.
const INTERNAL: [&str; 3] = ["masterleases", "peerserverleases", "ranges"];

/// What a key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<'k> {
    /// An object.
    Object(Object<'k>),
    /// What API servers keep for themselves.
    Internal,
    /// It does not have the prefix of the cluster.
    Outside,
    /// It has the prefix, and is not the key of an object.
    Malformed,
}

/// The object of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object<'k> {
    /// The plural name.
    pub resource: &'k str,
    /// The group, empty for the core group; `None` if only the object itself tells.
    pub group: Option<&'k str>,
    /// The namespace, if there is one, a slash and the name.
    pub name: &'k str,
}

/// The object of a key below a prefix such as `/registry/`.
pub fn place<'k>(key: &'k str, prefix: &str) -> Place<'k> {
    let Some(rest) = key.strip_prefix(prefix) else { return Place::Outside };
    let Some((first, below)) = rest.split_once('/') else { return Place::Malformed };
    if INTERNAL.contains(&first) {
        return Place::Internal;
    }
    // A custom resource has a group, and every such group has a dot.
    let (resource, group, name) = if first.contains('.') {
        let Some((resource, name)) = below.split_once('/') else { return Place::Malformed };
        (resource, Some(first), name)
    } else if let Some((_, resource, group, name)) = built_in(rest) {
        (resource, Some(group), name)
    } else {
        (first, None, below)
    };
    let is_name =
        !name.is_empty() && name.split('/').count() <= 2 && name.split('/').all(|part| !part.is_empty());
    if !is_name
        || !is_label(resource)
        || !group.unwrap_or_default().split('.').all(|part| part.is_empty() || is_label(part))
    {
        return Place::Malformed;
    }
    Place::Object(Object { resource, group, name })
}

/// The row of the table for a key, and the name that follows.
fn built_in(rest: &str) -> Option<(&'static str, &'static str, &'static str, &str)> {
    let (first, below) = rest.split_once('/')?;
    let row = |prefix: &str| BUILT_IN.binary_search_by_key(&prefix, |row| row.0).ok().map(|at| BUILT_IN[at]);
    if let Some((prefix, resource, group)) = row(first) {
        return Some((prefix, resource, group, below));
    }
    let (second, name) = below.split_once('/')?;
    let (prefix, resource, group) = row(&rest[..first.len() + 1 + second.len()])?;
    Some((prefix, resource, group, name))
}

fn is_label(text: &str) -> bool {
    let is_ok = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.len() <= 253 && text.bytes().all(is_ok)
}

/// A resource as reports name it: `widgets.example.com`, or `secrets` in the core group.
pub fn resource_name(resource: &str, group: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

#[cfg(test)]
mod tests {
    use super::{BUILT_IN, Object, Place, place};

    #[test]
    fn a_key_names_its_object() {
        let object = |resource, group, name| Place::Object(Object { resource, group, name });
        for (key, expected) in [
            ("/registry/secrets/default/a", object("secrets", Some(""), "default/a")),
            ("/registry/deployments/x/y", object("deployments", Some("apps"), "x/y")),
            ("/registry/services/specs/x/y", object("services", Some(""), "x/y")),
            ("/registry/services/endpoints/x/y", object("endpoints", Some(""), "x/y")),
            ("/registry/minions/node1", object("nodes", Some(""), "node1")),
            ("/registry/controllers/x/y", object("replicationcontrollers", Some(""), "x/y")),
            ("/registry/ingress/x/y", object("ingresses", Some("networking.k8s.io"), "x/y")),
            (
                "/registry/clusterroles/system:admin",
                object("clusterroles", Some("rbac.authorization.k8s.io"), "system:admin"),
            ),
            ("/registry/example.com/widgets/default/a", object("widgets", Some("example.com"), "default/a")),
            ("/registry/example.com/globals/a", object("globals", Some("example.com"), "a")),
            (
                "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com",
                object("customresourcedefinitions", Some("apiextensions.k8s.io"), "widgets.example.com"),
            ),
            ("/registry/novelties/x/y", object("novelties", None, "x/y")),
            ("/registry/ranges/serviceips", Place::Internal),
            ("/registry/masterleases/10.0.0.1", Place::Internal),
            ("/registry/peerserverleases/apiserver-x", Place::Internal),
            ("compact_rev_key", Place::Outside),
            ("/other/secrets/a/b", Place::Outside),
            ("/registry/health", Place::Malformed),
            ("/registry/secrets/", Place::Malformed),
            ("/registry/secrets/a/b/c", Place::Malformed),
            ("/registry/secrets//b", Place::Malformed),
            ("/registry/example.com/widgets", Place::Malformed),
            ("/registry/exam ple.com/widgets/a", Place::Malformed),
            ("/registry/Weird\u{1b}/x/y", Place::Malformed),
        ] {
            assert_eq!(place(key, "/registry/"), expected, "{key}");
        }
    }

    #[test]
    fn the_table_can_be_searched() {
        assert!(BUILT_IN.is_sorted_by_key(|row| row.0));
    }
}
