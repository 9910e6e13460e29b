//! A kind with three versions: a renamed field, a split one, a removed one and an added one.

use restow_convert::Chain;
use serde_json::{Value, json};

/// The chain of the three versions.
pub(crate) fn chain() -> Chain {
    Chain::oldest::<v1alpha1::Widget>().then::<v1beta1::Widget>().then::<v1::Widget>().build().unwrap()
}

/// The versions, the oldest first.
pub(crate) const VERSIONS: [&str; 3] = ["v1alpha1", "v1beta1", "v1"];

/// A widget with this spec.
pub(crate) fn widget(version: &str, spec: Value) -> Value {
    json!({
        "apiVersion": format!("example.com/{version}"),
        "kind": "Widget",
        "metadata": {"name": "w", "namespace": "default", "uid": "u", "creationTimestamp": "2026-01-02T03:04:05Z"},
        "spec": spec,
    })
}

/// The oldest: an address in one field, a color, a legacy field that v1beta1 drops, and ports.
pub(crate) mod v1alpha1 {
    use kube_derive::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    #[derive(CustomResource, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
    #[kube(
        group = "example.com",
        version = "v1alpha1",
        kind = "Widget",
        namespaced,
        crates(kube_core = "::kube_core")
    )]
    pub(crate) struct WidgetSpec {
        /// `host` or `host:port`.
        pub address: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub color: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub legacy: Option<bool>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub ports: Vec<Port>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub args: Vec<String>,
    }

    #[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
    pub(crate) struct Port {
        pub name: String,
        pub number: u16,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub comment: Option<String>,
    }
}

/// The address is split into host and port; there is no legacy field, and ports have no comment.
pub(crate) mod v1beta1 {
    use std::num::ParseIntError;

    use kube_derive::CustomResource;
    use restow_convert::SimpleConverter;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    use super::v1alpha1;

    #[derive(CustomResource, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
    #[kube(
        group = "example.com",
        version = "v1beta1",
        kind = "Widget",
        namespaced,
        crates(kube_core = "::kube_core")
    )]
    pub(crate) struct WidgetSpec {
        pub host: String,
        pub port: u16,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub color: Option<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub ports: Vec<Port>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub args: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub replicas: Option<u32>,
    }

    #[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
    pub(crate) struct Port {
        pub name: String,
        pub number: u16,
    }

    impl SimpleConverter for Widget {
        type Older = v1alpha1::Widget;
        type Error = ParseIntError;

        fn upgrade_from(older: v1alpha1::Widget) -> Result<Self, ParseIntError> {
            let v1alpha1::WidgetSpec { address, color, ports, args, .. } = older.spec;
            let (host, port) = match address.split_once(':') {
                Some((host, port)) => (host.to_owned(), port.parse()?),
                None => (address, 80),
            };
            let ports = ports.into_iter().map(|port| Port { name: port.name, number: port.number }).collect();
            let spec = WidgetSpec { host, port, color, ports, args, replicas: None };
            Ok(Self { metadata: older.metadata, spec })
        }

        fn downgrade(self) -> Result<v1alpha1::Widget, ParseIntError> {
            let ports = self.spec.ports.into_iter().map(|port| v1alpha1::Port {
                name: port.name,
                number: port.number,
                comment: None,
            });
            let spec = v1alpha1::WidgetSpec {
                address: format!("{}:{}", self.spec.host, self.spec.port),
                color: self.spec.color,
                legacy: None,
                ports: ports.collect(),
                args: self.spec.args,
            };
            Ok(v1alpha1::Widget { metadata: self.metadata, spec })
        }
    }
}

/// The color is called colour, and is one of two; replicas are required; even ports cannot be expressed.
pub(crate) mod v1 {
    use std::convert::Infallible;

    use kube_derive::CustomResource;
    use restow_convert::SimpleConverter;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    use super::v1beta1;

    #[derive(CustomResource, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
    #[kube(
        group = "example.com",
        version = "v1",
        kind = "Widget",
        namespaced,
        crates(kube_core = "::kube_core")
    )]
    pub(crate) struct WidgetSpec {
        pub host: String,
        pub port: u16,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub colour: Option<Colour>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub ports: Vec<v1beta1::Port>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub args: Vec<String>,
        pub replicas: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub zone: Option<String>,
    }

    #[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
    pub(crate) enum Colour {
        Red,
        Other,
    }

    impl SimpleConverter for Widget {
        type Older = v1beta1::Widget;
        type Error = Infallible;

        fn upgrade_from(older: v1beta1::Widget) -> Result<Self, Infallible> {
            let v1beta1::WidgetSpec { host, port, color, ports, args, replicas } = older.spec;
            let colour = color.map(|color| if color == "red" { Colour::Red } else { Colour::Other });
            let ports = ports.into_iter().filter(|port| port.number % 2 == 1).collect();
            let replicas = replicas.unwrap_or(1);
            let spec = WidgetSpec { host, port, colour, ports, args, replicas, zone: None };
            Ok(Self { metadata: older.metadata, spec })
        }

        fn downgrade(self) -> Result<v1beta1::Widget, Infallible> {
            let color = self.spec.colour.map(|colour| if colour == Colour::Red { "red" } else { "other" });
            let spec = v1beta1::WidgetSpec {
                host: self.spec.host,
                port: self.spec.port,
                color: color.map(str::to_owned),
                ports: self.spec.ports,
                args: self.spec.args,
                replicas: Some(self.spec.replicas),
            };
            Ok(v1beta1::Widget { metadata: self.metadata, spec })
        }
    }
}
