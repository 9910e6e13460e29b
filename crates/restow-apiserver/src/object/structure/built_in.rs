//! The structure of built-in kinds, from their published types.

/// A type of objects: the fields that are merged lists, or lead to one.
#[derive(Debug)]
pub(crate) struct Type {
    fields: &'static [(&'static str, Field)],
}

/// The structure of a field.
#[derive(Debug)]
pub(crate) enum Field {
    /// An object of a type.
    Struct(&'static Type),
    /// A list of plain values, each of them once.
    Set,
    /// A list of objects that is merged by a key.
    Keyed {
        key: &'static str,
        /// The type of the items.
        item: &'static Type,
    },
}

impl Type {
    /// The structure of a field, if it is known.
    pub(crate) fn field(&self, key: &str) -> Option<&'static Field> {
        self.fields.iter().find(|(name, _)| *name == key).map(|(_, field)| field)
    }
}

const fn keyed(key: &'static str, item: &'static Type) -> Field {
    Field::Keyed { key, item }
}

/// A type without lists.
pub(crate) static PLAIN: Type = Type { fields: &[] };

/// The metadata of every object.
static METADATA: Type =
    Type { fields: &[("finalizers", Field::Set), ("ownerReferences", keyed("uid", &PLAIN))] };

static METADATA_ONLY: Type = Type { fields: &[("metadata", Field::Struct(&METADATA))] };
static CONDITIONS: Type = Type { fields: &[("conditions", keyed("type", &PLAIN))] };

static CONTAINER: Type = Type {
    fields: &[
        ("env", keyed("name", &PLAIN)),
        ("ports", keyed("containerPort", &PLAIN)),
        ("volumeDevices", keyed("devicePath", &PLAIN)),
        ("volumeMounts", keyed("mountPath", &PLAIN)),
    ],
};
static POD_SPEC: Type = Type {
    fields: &[
        ("containers", keyed("name", &CONTAINER)),
        ("ephemeralContainers", keyed("name", &CONTAINER)),
        ("hostAliases", keyed("ip", &PLAIN)),
        ("imagePullSecrets", keyed("name", &PLAIN)),
        ("initContainers", keyed("name", &CONTAINER)),
        ("resourceClaims", keyed("name", &PLAIN)),
        ("schedulingGates", keyed("name", &PLAIN)),
        ("topologySpreadConstraints", keyed("topologyKey", &PLAIN)),
        ("volumes", keyed("name", &PLAIN)),
    ],
};
static POD_STATUS: Type =
    Type { fields: &[("conditions", keyed("type", &PLAIN)), ("podIPs", keyed("ip", &PLAIN))] };
static POD: Type = Type {
    fields: &[
        ("metadata", Field::Struct(&METADATA)),
        ("spec", Field::Struct(&POD_SPEC)),
        ("status", Field::Struct(&POD_STATUS)),
    ],
};
static DEPLOYMENT_SPEC: Type = Type { fields: &[("template", Field::Struct(&POD))] };
static DEPLOYMENT: Type = Type {
    fields: &[
        ("metadata", Field::Struct(&METADATA)),
        ("spec", Field::Struct(&DEPLOYMENT_SPEC)),
        ("status", Field::Struct(&CONDITIONS)),
    ],
};
static WITH_CONDITIONS: Type =
    Type { fields: &[("metadata", Field::Struct(&METADATA)), ("status", Field::Struct(&CONDITIONS))] };

static SERVICE_ACCOUNT: Type =
    Type { fields: &[("metadata", Field::Struct(&METADATA)), ("secrets", keyed("name", &PLAIN))] };

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
        _ => &METADATA_ONLY,
    }
}
