//! How long a review of 1,500 objects of 10 KiB takes, by rules and by Rust code: `cargo xtask bench-convert`.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::print_stdout,
    missing_docs,
    unreachable_pub
)]

use std::convert::Infallible;
use std::time::{Duration, Instant};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use restow_convert::review::{Limits, Review, Scope};
use restow_convert::rules::{ConversionRulesSpec, compile};
use restow_convert::{Chain, Converters, SimpleConverter};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const OBJECTS: usize = 1_500;
const ROUNDS: usize = 9;

#[derive(Clone, Debug, Deserialize, Serialize, schemars::JsonSchema)]
struct Variable {
    name: String,
    value: String,
}

mod v1beta1 {
    use super::*;

    #[derive(Clone, Debug, Deserialize, Serialize, schemars::JsonSchema, kube_derive::CustomResource)]
    #[kube(group = "example.com", version = "v1beta1", kind = "Backup", crates(kube_core = "::kube_core"))]
    pub struct BackupSpec {
        pub color: String,
        pub target: String,
        pub env: Vec<Variable>,
        pub legacy: Option<String>,
    }
}

mod v1 {
    use super::*;

    #[derive(Clone, Debug, Deserialize, Serialize, schemars::JsonSchema, kube_derive::CustomResource)]
    #[kube(group = "example.com", version = "v1", kind = "Backup", crates(kube_core = "::kube_core"))]
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

fn definition() -> CustomResourceDefinition {
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
    serde_json::from_value(json!({"metadata": {"name": "backups.example.com"}, "spec": spec})).unwrap()
}

fn rules() -> ConversionRulesSpec {
    let target = [json!({"path": "spec.host"}), json!({"path": "spec.port", "type": "integer"})];
    let rules = json!([
        {"rename": {"older": "spec.color", "newer": "spec.colour"}},
        {"split": {"older": "spec.target", "separator": ":", "newer": target}},
        {"remove": {"older": "spec.legacy"}},
    ]);
    let hops = json!([{"older": "v1beta1", "newer": "v1", "rules": rules}]);
    serde_json::from_value(json!({"group": "example.com", "kind": "Backup", "hops": hops})).unwrap()
}

fn review() -> String {
    let env: Vec<_> = (0..120)
        .map(|number| json!({"name": format!("VARIABLE_{number:04}"), "value": "0123456789".repeat(4)}))
        .collect();
    let object = |number: usize| {
        json!({
            "apiVersion": "example.com/v1beta1", "kind": "Backup",
            "metadata": {"name": format!("backup-{number}"), "namespace": "default", "uid": format!("u-{number}"),
                "resourceVersion": "12345", "labels": {"app": "backup", "team": "blue"}},
            "spec": {"color": "red", "target": format!("host-{number}:80"), "env": env, "legacy": "kept"},
        })
    };
    let objects: Vec<_> = (0..OBJECTS).map(object).collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": {"uid": "u", "desiredAPIVersion": "example.com/v1", "objects": objects},
    })
    .to_string()
}

/// The median time of an answer.
fn measure(body: &str, converters: &Converters) -> Duration {
    let mut times: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            let review = Review::parse(body.as_bytes(), Limits::default()).unwrap();
            let answer = review.convert(converters, Scope::All, &|_| true);
            let took = began.elapsed();
            assert!(answer.failure.is_none(), "{:?}", answer.failure);
            took
        })
        .collect();
    times.sort_unstable();
    times[ROUNDS / 2]
}

fn main() {
    let body = review();
    let chain = Chain::oldest::<v1beta1::Backup>().then::<v1::Backup>().definition(&definition()).build();
    let code = Converters::new([chain.unwrap().into()]).unwrap();
    let rules = Converters::new([compile(&rules(), &definition()).unwrap().into()]).unwrap();
    println!("{OBJECTS} objects, {} KiB each", body.len() / OBJECTS / 1024);
    let began = Instant::now();
    let values: Vec<Value> = vec![serde_json::from_str(&body).unwrap()];
    println!("reading the JSON alone: {:?}", began.elapsed());
    drop(values);
    let (by_rules, by_code) = (measure(&body, &rules), measure(&body, &code));
    println!("by rules: {by_rules:?}");
    println!("by Rust code: {by_code:?}");
    println!("speed of rules / of Rust code: {:.2}", by_code.as_secs_f64() / by_rules.as_secs_f64());
}
