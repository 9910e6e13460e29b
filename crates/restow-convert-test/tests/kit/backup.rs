//! A kind with two versions, its converter, and converters with a defect.

use std::convert::Infallible;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::CustomResourceExt as _;
use kube_core::crd::merge_crds;
use restow_convert::{Chain, Convertible, Error, SimpleConverter};
use serde_json::{Value, json};

pub(crate) mod v1beta1 {
    use kube_derive::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(
        group = "example.com",
        version = "v1beta1",
        kind = "Backup",
        namespaced,
        crates(kube_core = "::kube_core")
    )]
    pub(crate) struct BackupSpec {
        pub schedule: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub timezone: Option<String>,
    }
}

pub(crate) mod v1 {
    use kube_derive::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(
        group = "example.com",
        version = "v1",
        kind = "Backup",
        namespaced,
        crates(kube_core = "::kube_core")
    )]
    pub(crate) struct BackupSpec {
        pub cron: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub retries: Option<u8>,
    }
}

impl SimpleConverter for v1::Backup {
    type Older = v1beta1::Backup;
    type Error = Infallible;

    fn upgrade_from(older: v1beta1::Backup) -> Result<Self, Infallible> {
        Ok(Self {
            metadata: older.metadata,
            spec: v1::BackupSpec { cron: older.spec.schedule, retries: None },
        })
    }

    fn downgrade(self) -> Result<v1beta1::Backup, Infallible> {
        let spec = v1beta1::BackupSpec { schedule: self.spec.cron, timezone: None };
        Ok(v1beta1::Backup { metadata: self.metadata, spec })
    }
}

pub(crate) fn definition() -> CustomResourceDefinition {
    merge_crds(vec![v1::Backup::crd(), v1beta1::Backup::crd()], "v1").unwrap()
}

pub(crate) fn chain() -> Chain {
    let chain = Chain::oldest::<v1beta1::Backup>().then::<v1::Backup>();
    chain.definition(&definition()).build().unwrap()
}

pub(crate) fn backup(version: &str, spec: Value) -> Value {
    json!({
        "apiVersion": format!("example.com/{version}"), "kind": "Backup", "metadata": {"name": "nightly"}, "spec": spec,
    })
}

/// The chain, with a defect in what it returns.
pub(crate) struct Defect(pub fn(&mut Value));

impl Convertible for Defect {
    fn convert(&self, object: Value, version: &str) -> Result<Value, Error> {
        let mut converted = chain().convert(object, version)?;
        (self.0)(&mut converted);
        Ok(converted)
    }
}

/// Forgets what a version cannot express.
pub(crate) const FORGETFUL: Defect = Defect(|object| {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("annotations");
    }
});
