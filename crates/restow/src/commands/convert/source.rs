//! Where a conversion comes from: rules in a file or in the cluster, the CRD's webhook, or the API server alone.

use std::path::Path;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use restow_convert::Chain;
use restow_convert::rules::ConversionRules;
use restow_migrate::client::Server;
use restow_migrate::definition::Definition;
use serde::Deserialize;

use super::converter::compile;
use super::files::read;
use super::webhook::Webhook;
use crate::connect::unreached;
use crate::error::CliError;

/// Where a conversion comes from.
pub(super) enum Source {
    /// Rules, compiled for the CRD.
    Rules(Box<Chain>, Box<ConversionRules>),
    /// A webhook that can be called.
    Webhook(Webhook),
    /// A webhook that only API servers can call; the hint says how to call it.
    Unreachable(CliError),
    /// The API server changes nothing but apiVersion.
    None,
}

impl Source {
    /// The conversion of a CRD: by rules in a file, else by rules in the cluster, else as its API servers do it.
    pub(super) async fn of(
        server: &Server,
        definition: &Definition,
        rules: Option<&Path>,
        webhook: Option<&str>,
    ) -> Result<Self, CliError> {
        let rules = match rules {
            Some(path) => Some(read(path)?),
            None if webhook.is_some() => None,
            None => stored_rules(server, definition).await?,
        };
        if let Some(rules) = rules {
            let chain = compile(&rules, &typed(definition)?)?;
            return Ok(Self::Rules(Box::new(chain), Box::new(rules)));
        }
        Ok(match definition.crd.webhook {
            true => Webhook::of(definition, webhook).map_or_else(Self::Unreachable, Self::Webhook),
            false => Self::None,
        })
    }

    /// What the report calls it.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Rules(..) => "rules",
            Self::Webhook(_) => "webhook",
            Self::Unreachable(_) | Self::None => "API server",
        }
    }
}

/// The CRD with its types.
pub(super) fn typed(definition: &Definition) -> Result<CustomResourceDefinition, CliError> {
    serde_json::from_value(definition.object.clone())
        .map_err(|error| CliError::failed(format!("cannot read the CRD {}: {error}", definition.crd.name)))
}

/// The ConversionRules object for the kind. Not being allowed to look is an error: there may be one.
async fn stored_rules(server: &Server, definition: &Definition) -> Result<Option<ConversionRules>, CliError> {
    #[derive(Deserialize)]
    struct List {
        items: Vec<ConversionRules>,
    }
    let path = "/apis/restow.dev/v1alpha1/conversionrules";
    let all: List = match server.get(path).await {
        Ok(all) => all,
        Err(error) if error.code() == Some(404) => return Ok(None),
        Err(error) => return Err(unreached(server, &error).about("cannot list ConversionRules")),
    };
    let spec = &definition.object["spec"];
    let is_for = |rules: &ConversionRules| {
        spec["group"] == rules.spec.group.as_str() && spec["names"]["kind"] == rules.spec.kind.as_str()
    };
    let mut found: Vec<_> = all.items.into_iter().filter(is_for).collect();
    match found.len() {
        0 | 1 => Ok(found.pop()),
        many => {
            Err(CliError::failed(format!("{many} ConversionRules objects are for {}", definition.crd.name))
                .hint("give the rules to use with --rules FILE"))
        }
    }
}
