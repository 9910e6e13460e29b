//! The structure of built-in kinds, from their published types.

use serde_json::{Value, json};

/// A type of objects: the fields that are more than a plain value, an object of plain values, or a list without keys.
#[derive(Debug)]
pub(crate) struct Type {
    fields: &'static [(&'static str, Field)],
}

/// The structure of a field.
#[derive(Debug)]
pub(crate) enum Field {
    /// An object of a type.
    Struct(&'static Type),
    /// An object in which a strategic patch may name the keys to keep.
    Retained(&'static Type),
    /// One value, though it is an object.
    Atomic,
    /// A list of plain values, each of them once.
    Set,
    /// A list of objects with keys; without a type, each is one value.
    Keyed {
        keys: &'static [&'static str],
        /// The type of the items.
        item: Option<&'static Type>,
        /// Whether a strategic patch merges it, by the first key.
        merged: bool,
    },
}

impl Type {
    /// The structure of a field, if it is known.
    pub(crate) fn field(&self, key: &str) -> Option<&'static Field> {
        self.fields.iter().find(|(name, _)| *name == key).map(|(_, field)| field)
    }
}

const fn keyed(keys: &'static [&'static str], item: &'static Type) -> Field {
    Field::Keyed { keys, item: Some(item), merged: true }
}

const fn atoms(keys: &'static [&'static str]) -> Field {
    Field::Keyed { keys, item: None, merged: true }
}

/// A map to field managers, but replaced by strategic patches.
const fn replaced(keys: &'static [&'static str]) -> Field {
    Field::Keyed { keys, item: Some(&PLAIN), merged: false }
}

/// A type without lists.
pub(crate) static PLAIN: Type = Type { fields: &[] };

/// The metadata of every object.
pub(crate) static METADATA: Type = Type {
    fields: &[
        ("finalizers", Field::Set),
        ("ownerReferences", atoms(&["uid"])),
        ("managedFields", Field::Atomic),
    ],
};

static METADATA_ONLY: Type = Type { fields: &[("metadata", Field::Struct(&METADATA))] };
static CONDITIONS: Type = Type { fields: &[("conditions", keyed(&["type"], &PLAIN))] };
static CONDITIONS_REPLACED: Type = Type { fields: &[("conditions", replaced(&["type"]))] };

static ENV_SOURCE: Type = Type {
    fields: &[
        ("configMapKeyRef", Field::Atomic),
        ("fieldRef", Field::Atomic),
        ("resourceFieldRef", Field::Atomic),
        ("secretKeyRef", Field::Atomic),
    ],
};
static ENV: Type = Type { fields: &[("valueFrom", Field::Struct(&ENV_SOURCE))] };
static RESOURCES: Type = Type { fields: &[("claims", replaced(&["name"]))] };
static CONTAINER: Type = Type {
    fields: &[
        ("env", keyed(&["name"], &ENV)),
        ("ports", keyed(&["containerPort", "protocol"], &PLAIN)),
        ("resources", Field::Struct(&RESOURCES)),
        ("volumeDevices", keyed(&["devicePath"], &PLAIN)),
        ("volumeMounts", keyed(&["mountPath"], &PLAIN)),
    ],
};
static POD_SPEC: Type = Type {
    fields: &[
        ("containers", keyed(&["name"], &CONTAINER)),
        ("ephemeralContainers", keyed(&["name"], &CONTAINER)),
        ("hostAliases", keyed(&["ip"], &PLAIN)),
        ("imagePullSecrets", atoms(&["name"])),
        ("initContainers", keyed(&["name"], &CONTAINER)),
        ("nodeSelector", Field::Atomic),
        ("resourceClaims", keyed(&["name"], &PLAIN)),
        ("schedulingGates", keyed(&["name"], &PLAIN)),
        ("topologySpreadConstraints", keyed(&["topologyKey", "whenUnsatisfiable"], &PLAIN)),
        ("volumes", keyed(&["name"], &PLAIN)),
    ],
};
static POD_STATUS: Type =
    Type { fields: &[("conditions", keyed(&["type"], &PLAIN)), ("podIPs", keyed(&["ip"], &PLAIN))] };
static POD: Type = Type {
    fields: &[
        ("metadata", Field::Struct(&METADATA)),
        ("spec", Field::Struct(&POD_SPEC)),
        ("status", Field::Struct(&POD_STATUS)),
    ],
};
static DEPLOYMENT_SPEC: Type = Type {
    fields: &[
        ("selector", Field::Atomic),
        ("strategy", Field::Retained(&PLAIN)),
        ("template", Field::Struct(&POD)),
    ],
};
static DEPLOYMENT: Type = Type {
    fields: &[
        ("metadata", Field::Struct(&METADATA)),
        ("spec", Field::Struct(&DEPLOYMENT_SPEC)),
        ("status", Field::Struct(&CONDITIONS)),
    ],
};
static WITH_CONDITIONS: Type =
    Type { fields: &[("metadata", Field::Struct(&METADATA)), ("status", Field::Struct(&CONDITIONS))] };
static DEFINITION: Type = Type {
    fields: &[("metadata", Field::Struct(&METADATA)), ("status", Field::Struct(&CONDITIONS_REPLACED))],
};
static STORAGE_VERSION_STATUS: Type =
    Type { fields: &[("conditions", replaced(&["type"])), ("storageVersions", replaced(&["apiServerID"]))] };
static STORAGE_VERSION: Type = Type {
    fields: &[("metadata", Field::Struct(&METADATA)), ("status", Field::Struct(&STORAGE_VERSION_STATUS))],
};
static SERVICE_ACCOUNT: Type =
    Type { fields: &[("metadata", Field::Struct(&METADATA)), ("secrets", atoms(&["name"]))] };
static EVENT: Type = Type {
    fields: &[
        ("metadata", Field::Struct(&METADATA)),
        ("involvedObject", Field::Atomic),
        ("related", Field::Atomic),
        ("regarding", Field::Atomic),
    ],
};
static BINDING: Type = Type { fields: &[("metadata", Field::Struct(&METADATA)), ("roleRef", Field::Atomic)] };

/// The type of a built-in kind.
pub(crate) fn kind(group: &str, kind: &str) -> &'static Type {
    match (group, kind) {
        ("", "Pod") => &POD,
        ("apps", "Deployment") => &DEPLOYMENT,
        ("", "ServiceAccount") => &SERVICE_ACCOUNT,
        ("", "Namespace")
        | ("apiregistration.k8s.io", "APIService")
        | ("storagemigration.k8s.io", "StorageVersionMigration")
        | ("flowcontrol.apiserver.k8s.io", _) => &WITH_CONDITIONS,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => &DEFINITION,
        ("internal.apiserver.k8s.io", "StorageVersion") => &STORAGE_VERSION,
        ("", "Event") | ("events.k8s.io", "Event") => &EVENT,
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => &BINDING,
        _ => &METADATA_ONLY,
    }
}

/// The fields of an empty object of a built-in kind, which no manager owns.
pub(crate) fn zero(group: &str, kind: &str) -> Value {
    match (group, kind) {
        ("apps", "Deployment") => json!({"metadata": {}, "status": {}, "spec": {"strategy": {}, "template": {
            "metadata": {}, "spec": {"containers": []}}}}),
        ("", "Pod") => json!({"metadata": {}, "spec": {"containers": []}, "status": {}}),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            json!({"metadata": {}, "spec": {"names": {}}, "status": {"acceptedNames": {}}})
        }
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            json!({"metadata": {}, "roleRef": {}})
        }
        ("", "Event") => json!({"metadata": {}, "involvedObject": {}, "source": {}}),
        _ => json!({"metadata": {}, "spec": {}, "status": {}}),
    }
}
