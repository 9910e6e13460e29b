//! The built-in resources.

use k8s_openapi::api::{
    apiserverinternal, apps, coordination, core, discovery, events, flowcontrol, rbac, scheduling,
    storagemigration,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1 as apiregistration;
use restow_core::resource::name::GroupResource;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::http::status::GroupKind;
use crate::object::meta::{Generation, KEPT_BY_STATUS, NameRule, Rules, StatusRule};

/// One resource that is built in.
#[derive(Debug)]
pub(crate) struct BuiltIn {
    /// The API group, empty for the core group.
    pub group: &'static str,
    /// The version it is served in.
    pub version: &'static str,
    /// The version it is stored in, with its group.
    pub stored: &'static str,
    pub kind: &'static str,
    /// The plural name.
    pub plural: &'static str,
    pub short_names: &'static [&'static str],
    pub categories: &'static [&'static str],
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    pub subresources: &'static [&'static str],
    /// Where it is stored, below `/registry/`.
    pub prefix: &'static str,
    /// The rule for names of objects.
    pub name: NameRule,
    /// Which changes increase the generation.
    pub generation: Generation,
    /// Whether an update without a resourceVersion overwrites whatever is there.
    pub unconditional: bool,
    /// Whether an update of an absent object creates it.
    pub create_on_update: bool,
    /// Whether a delete answers with the object.
    pub returns_deleted: bool,
    /// Its type.
    pub typed: Typed,
}

/// The Go type of a resource, as k8s-openapi has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Typed {
    /// Decodes an object: unknown fields are dropped, and wrong types are refused.
    pub read: fn(Value) -> Result<Value, serde_json::Error>,
    /// Its schema, and the name it has among others.
    pub schema: fn(&mut SchemaGenerator) -> String,
}

impl Typed {
    const fn of<T: Serialize + DeserializeOwned + JsonSchema>() -> Self {
        Self { read: read::<T>, schema: schema::<T> }
    }
}

/// A resource with the usual properties.
const PLAIN: BuiltIn = BuiltIn {
    group: "",
    version: "v1",
    stored: "v1",
    kind: "",
    plural: "",
    short_names: &[],
    categories: &[],
    namespaced: true,
    subresources: &[],
    prefix: "",
    name: NameRule::Subdomain,
    generation: Generation::None,
    unconditional: true,
    create_on_update: false,
    returns_deleted: false,
    typed: Typed::of::<core::v1::ConfigMap>(),
};

const STATUS: &[&str] = &["status"];
const ALL: &[&str] = &["all"];
const RBAC: &str = "rbac.authorization.k8s.io";
const FLOW: &str = "flowcontrol.apiserver.k8s.io";

fn read<T: Serialize + DeserializeOwned>(value: Value) -> Result<Value, serde_json::Error> {
    serde_json::to_value(serde_json::from_value::<T>(value)?)
}

fn schema<T: JsonSchema>(schemas: &mut SchemaGenerator) -> String {
    schemas.subschema_for::<T>();
    T::schema_name().into_owned()
}

/// All of them.
pub(crate) static ALL_BUILT_IN: &[BuiltIn] = &[
    BuiltIn {
        kind: "Namespace",
        plural: "namespaces",
        short_names: &["ns"],
        namespaced: false,
        subresources: &["finalize", "status"],
        prefix: "namespaces",
        returns_deleted: true,
        name: NameRule::Label,
        typed: Typed::of::<core::v1::Namespace>(),
        ..PLAIN
    },
    BuiltIn {
        kind: "ConfigMap",
        plural: "configmaps",
        short_names: &["cm"],
        prefix: "configmaps",
        typed: Typed::of::<core::v1::ConfigMap>(),
        ..PLAIN
    },
    BuiltIn {
        kind: "Secret",
        plural: "secrets",
        prefix: "secrets",
        typed: Typed::of::<core::v1::Secret>(),
        ..PLAIN
    },
    BuiltIn {
        kind: "ServiceAccount",
        plural: "serviceaccounts",
        short_names: &["sa"],
        prefix: "serviceaccounts",
        returns_deleted: true,
        typed: Typed::of::<core::v1::ServiceAccount>(),
        ..PLAIN
    },
    BuiltIn {
        kind: "Event",
        plural: "events",
        short_names: &["ev"],
        prefix: "events",
        create_on_update: true,
        typed: Typed::of::<core::v1::Event>(),
        ..PLAIN
    },
    BuiltIn {
        kind: "Pod",
        plural: "pods",
        short_names: &["po"],
        categories: ALL,
        subresources: STATUS,
        prefix: "pods",
        returns_deleted: true,
        generation: Generation::Spec,
        typed: Typed::of::<core::v1::Pod>(),
        ..PLAIN
    },
    BuiltIn {
        kind: "Service",
        plural: "services",
        short_names: &["svc"],
        categories: ALL,
        subresources: STATUS,
        prefix: "services/specs",
        returns_deleted: true,
        name: NameRule::Label,
        create_on_update: true,
        typed: Typed::of::<core::v1::Service>(),
        ..PLAIN
    },
    BuiltIn {
        kind: "Endpoints",
        plural: "endpoints",
        short_names: &["ep"],
        prefix: "services/endpoints",
        create_on_update: true,
        typed: Typed::of::<core::v1::Endpoints>(),
        ..PLAIN
    },
    BuiltIn {
        kind: "ResourceQuota",
        plural: "resourcequotas",
        short_names: &["quota"],
        subresources: STATUS,
        prefix: "resourcequotas",
        returns_deleted: true,
        typed: Typed::of::<core::v1::ResourceQuota>(),
        ..PLAIN
    },
    BuiltIn {
        kind: "LimitRange",
        plural: "limitranges",
        short_names: &["limits"],
        prefix: "limitranges",
        create_on_update: true,
        typed: Typed::of::<core::v1::LimitRange>(),
        ..PLAIN
    },
    BuiltIn {
        group: "events.k8s.io",
        kind: "Event",
        plural: "events",
        short_names: &["ev"],
        prefix: "events",
        create_on_update: true,
        typed: Typed::of::<events::v1::Event>(),
        ..PLAIN
    },
    BuiltIn {
        group: "discovery.k8s.io",
        stored: "discovery.k8s.io/v1",
        kind: "EndpointSlice",
        plural: "endpointslices",
        prefix: "endpointslices",
        generation: Generation::Content,
        typed: Typed::of::<discovery::v1::EndpointSlice>(),
        ..PLAIN
    },
    BuiltIn {
        group: "apps",
        stored: "apps/v1",
        kind: "Deployment",
        plural: "deployments",
        short_names: &["deploy"],
        categories: ALL,
        subresources: STATUS,
        prefix: "deployments",
        generation: Generation::SpecOrAnnotations,
        typed: Typed::of::<apps::v1::Deployment>(),
        ..PLAIN
    },
    BuiltIn {
        group: "apps",
        stored: "apps/v1",
        kind: "ReplicaSet",
        plural: "replicasets",
        short_names: &["rs"],
        categories: ALL,
        subresources: STATUS,
        prefix: "replicasets",
        generation: Generation::Spec,
        typed: Typed::of::<apps::v1::ReplicaSet>(),
        ..PLAIN
    },
    BuiltIn {
        group: "coordination.k8s.io",
        stored: "coordination.k8s.io/v1",
        kind: "Lease",
        plural: "leases",
        prefix: "leases",
        unconditional: false,
        create_on_update: true,
        typed: Typed::of::<coordination::v1::Lease>(),
        ..PLAIN
    },
    BuiltIn {
        group: RBAC,
        stored: "rbac.authorization.k8s.io/v1",
        kind: "Role",
        plural: "roles",
        prefix: "roles",
        name: NameRule::PathSegment,
        create_on_update: true,
        typed: Typed::of::<rbac::v1::Role>(),
        ..PLAIN
    },
    BuiltIn {
        group: RBAC,
        stored: "rbac.authorization.k8s.io/v1",
        kind: "RoleBinding",
        plural: "rolebindings",
        prefix: "rolebindings",
        name: NameRule::PathSegment,
        create_on_update: true,
        typed: Typed::of::<rbac::v1::RoleBinding>(),
        ..PLAIN
    },
    BuiltIn {
        group: RBAC,
        stored: "rbac.authorization.k8s.io/v1",
        kind: "ClusterRole",
        plural: "clusterroles",
        namespaced: false,
        prefix: "clusterroles",
        name: NameRule::PathSegment,
        create_on_update: true,
        typed: Typed::of::<rbac::v1::ClusterRole>(),
        ..PLAIN
    },
    BuiltIn {
        group: RBAC,
        stored: "rbac.authorization.k8s.io/v1",
        kind: "ClusterRoleBinding",
        plural: "clusterrolebindings",
        namespaced: false,
        prefix: "clusterrolebindings",
        name: NameRule::PathSegment,
        create_on_update: true,
        typed: Typed::of::<rbac::v1::ClusterRoleBinding>(),
        ..PLAIN
    },
    BuiltIn {
        group: "apiextensions.k8s.io",
        stored: "apiextensions.k8s.io/v1",
        kind: "CustomResourceDefinition",
        plural: "customresourcedefinitions",
        short_names: &["crd", "crds"],
        categories: &["api-extensions"],
        namespaced: false,
        subresources: STATUS,
        prefix: "apiextensions.k8s.io/customresourcedefinitions",
        generation: Generation::Spec,
        unconditional: false,
        typed: Typed::of::<apiextensions::CustomResourceDefinition>(),
        ..PLAIN
    },
    BuiltIn {
        group: "apiregistration.k8s.io",
        stored: "apiregistration.k8s.io/v1",
        kind: "APIService",
        plural: "apiservices",
        categories: &["api-extensions"],
        namespaced: false,
        subresources: STATUS,
        prefix: "apiregistration.k8s.io/apiservices",
        unconditional: false,
        typed: Typed::of::<apiregistration::APIService>(),
        ..PLAIN
    },
    BuiltIn {
        group: "internal.apiserver.k8s.io",
        version: "v1alpha1",
        stored: "internal.apiserver.k8s.io/v1alpha1",
        kind: "StorageVersion",
        plural: "storageversions",
        namespaced: false,
        subresources: STATUS,
        prefix: "storageversions",
        unconditional: false,
        typed: Typed::of::<apiserverinternal::v1alpha1::StorageVersion>(),
        ..PLAIN
    },
    BuiltIn {
        group: "storagemigration.k8s.io",
        version: "v1beta1",
        stored: "storagemigration.k8s.io/v1beta1",
        kind: "StorageVersionMigration",
        plural: "storageversionmigrations",
        namespaced: false,
        subresources: STATUS,
        prefix: "storageversionmigrations",
        generation: Generation::Spec,
        unconditional: false,
        typed: Typed::of::<storagemigration::v1beta1::StorageVersionMigration>(),
        ..PLAIN
    },
    BuiltIn {
        group: FLOW,
        stored: "flowcontrol.apiserver.k8s.io/v1",
        kind: "FlowSchema",
        plural: "flowschemas",
        namespaced: false,
        subresources: STATUS,
        prefix: "flowschemas",
        generation: Generation::Spec,
        typed: Typed::of::<flowcontrol::v1::FlowSchema>(),
        ..PLAIN
    },
    BuiltIn {
        group: FLOW,
        stored: "flowcontrol.apiserver.k8s.io/v1",
        kind: "PriorityLevelConfiguration",
        plural: "prioritylevelconfigurations",
        namespaced: false,
        subresources: STATUS,
        prefix: "prioritylevelconfigurations",
        generation: Generation::Spec,
        typed: Typed::of::<flowcontrol::v1::PriorityLevelConfiguration>(),
        ..PLAIN
    },
    BuiltIn {
        group: "scheduling.k8s.io",
        stored: "scheduling.k8s.io/v1",
        kind: "PriorityClass",
        plural: "priorityclasses",
        short_names: &["pc"],
        namespaced: false,
        prefix: "priorityclasses",
        generation: Generation::Content,
        typed: Typed::of::<scheduling::v1::PriorityClass>(),
        ..PLAIN
    },
];

impl BuiltIn {
    /// The name of one object of it.
    pub(crate) fn singular(&self) -> String {
        self.kind.to_lowercase()
    }

    /// The rules of its metadata.
    pub(crate) fn rules(&self) -> Rules {
        let resource = GroupResource::new(self.group, self.plural);
        let plain = Rules::plain(resource, GroupKind::new(self.group, self.kind), self.namespaced);
        let status = if self.subresources.contains(&"status") {
            StatusRule::KeepSpecAnd(KEPT_BY_STATUS)
        } else {
            StatusRule::None
        };
        Rules {
            name: self.name,
            generation: self.generation,
            status,
            unconditional_update: self.unconditional,
            create_on_update: self.create_on_update,
            graceful: self.kind == "Pod",
            ..plain
        }
    }

    /// `group/version` as it is served.
    #[cfg(test)]
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    #[test]
    fn each_built_in_round_trips_through_its_type() {
        let names: BTreeSet<_> =
            ALL_BUILT_IN.iter().map(|built_in| (built_in.group, built_in.plural)).collect();
        assert_eq!(names.len(), ALL_BUILT_IN.len());
        for built_in in ALL_BUILT_IN {
            let object = json!({"apiVersion": built_in.api_version(), "kind": built_in.kind, "metadata": {}});
            let minimal = (built_in.typed.read)(object);
            assert!(minimal.is_ok(), "{}: {minimal:?}", built_in.kind);
        }
    }

    #[test]
    fn unknown_fields_are_dropped_and_wrong_types_refused() {
        let read = read::<core::v1::ConfigMap>;
        let given =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}, "data": {"a": "b"}, "x": 1});
        assert_eq!(read(given).ok().and_then(|read| read.get("x").cloned()), None);
        assert!(read(json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": 1}})).is_err());
    }
}
