//! What is converted: backups of two versions, with a renamed field, a string that is split, and a removed field.
//! `lab/conversion-webhook` does the same in Go.
#![allow(clippy::expect_used, missing_docs, unreachable_pub)]

use std::convert::Infallible;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use restow_convert::rules::{ConversionRulesSpec, compile};
use restow_convert::{Chain, Converters, SimpleConverter};
use serde_json::{Value, json};

mod variable {
    #[derive(Clone, Debug, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
    pub struct Variable {
        name: String,
        value: String,
    }
}

mod v1beta1 {
    use serde::{Deserialize, Serialize};

    use super::variable::Variable;

    #[derive(Clone, Debug, Deserialize, Serialize, schemars::JsonSchema, kube_derive::CustomResource)]
    #[kube(group = "example.com", version = "v1beta1", kind = "Backup", crates(kube_core = "::kube::core"))]
    pub struct BackupSpec {
        pub color: String,
        pub target: String,
        pub env: Vec<Variable>,
        pub legacy: Option<String>,
    }
}

mod v1 {
    use serde::{Deserialize, Serialize};

    use super::variable::Variable;

    #[derive(Clone, Debug, Deserialize, Serialize, schemars::JsonSchema, kube_derive::CustomResource)]
    #[kube(group = "example.com", version = "v1", kind = "Backup", crates(kube_core = "::kube::core"))]
    pub struct BackupSpec {
        pub colour: String,
        pub host: String,
        pub port: i64,
        pub env: Vec<Variable>,
    }
}

impl SimpleConverter for v1::Backup {
    type Older = v1beta1::Backup;
    type Error = Infallible;

    fn upgrade_from(older: v1beta1::Backup) -> Result<Self, Infallible> {
        let v1beta1::BackupSpec { color, target, env, .. } = older.spec;
        let (host, port) = target.split_once(':').unwrap_or((&target, "0"));
        let (host, port) = (host.to_owned(), port.parse().unwrap_or_default());
        Ok(Self { metadata: older.metadata, spec: v1::BackupSpec { colour: color, host, port, env } })
    }

    fn downgrade(self) -> Result<v1beta1::Backup, Infallible> {
        let v1::BackupSpec { colour, host, port, env } = self.spec;
        let spec = v1beta1::BackupSpec { color: colour, target: format!("{host}:{port}"), env, legacy: None };
        Ok(v1beta1::Backup { metadata: self.metadata, spec })
    }
}

/// The CRD, with both versions.
pub(crate) fn definition() -> CustomResourceDefinition {
    let (text, number) = (json!({"type": "string"}), json!({"type": "integer"}));
    let env =
        json!({"type": "array", "items": {"type": "object", "properties": {"name": text, "value": text}}});
    let version = |name: &str, fields: Value| {
        let spec = json!({"type": "object", "properties": fields});
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
        json!({"name": name, "served": true, "storage": name == "v1", "schema": schema})
    };
    let versions = [
        version("v1beta1", json!({"color": text, "target": text, "legacy": text, "env": env})),
        version("v1", json!({"colour": text, "host": text, "port": number, "env": env})),
    ];
    let names = json!({"kind": "Backup", "plural": "backups"});
    let spec = json!({"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions});
    serde_json::from_value(json!({"metadata": {"name": "backups.example.com"}, "spec": spec}))
        .expect("it is one")
}

/// The same conversion without code.
pub(crate) fn rules() -> ConversionRulesSpec {
    let target = [json!({"path": "spec.host"}), json!({"path": "spec.port", "type": "integer"})];
    let rules = json!([
        {"rename": {"older": "spec.color", "newer": "spec.colour"}},
        {"split": {"older": "spec.target", "separator": ":", "newer": target}},
        {"remove": {"older": "spec.legacy"}},
    ]);
    let hops = json!([{"older": "v1beta1", "newer": "v1", "rules": rules}]);
    serde_json::from_value(json!({"group": "example.com", "kind": "Backup", "hops": hops}))
        .expect("it is one")
}

/// A converter made of the rules.
pub(crate) fn by_rules() -> Converters {
    let chain = compile(&rules(), &definition()).expect("the rules fit the CRD");
    Converters::new([chain.into()]).expect("there is only one")
}

/// A converter made of the types.
pub(crate) fn by_code() -> Converters {
    let chain = Chain::oldest::<v1beta1::Backup>().then::<v1::Backup>().definition(&definition()).build();
    Converters::new([chain.expect("v1 is newer").into()]).expect("there is only one")
}

/// A review of some objects of 10 KiB.
pub(crate) fn review(objects: usize) -> String {
    let value = "0123456789".repeat(4);
    let env: Vec<_> =
        (0..132).map(|number| json!({"name": format!("VARIABLE_{number:04}"), "value": value})).collect();
    let object = |number: usize| {
        json!({
            "apiVersion": "example.com/v1beta1", "kind": "Backup",
            "metadata": {"name": format!("backup-{number}"), "namespace": "default", "uid": format!("u-{number}"),
                "resourceVersion": "12345", "labels": {"app": "backup", "team": "blue"}},
            "spec": {"color": "red", "target": format!("host-{number}:80"), "env": env, "legacy": "kept"},
        })
    };
    let objects: Vec<_> = (0..objects).map(object).collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": {"uid": "u", "desiredAPIVersion": "example.com/v1", "objects": objects},
    })
    .to_string()
}
