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
use crate::output::say;

/// Where a conversion comes from.
pub(super) enum Source {
    /// Rules, compiled for the CRD.
    Rules {
        chain: Box<Chain>,
        rules: Box<ConversionRules>,
        /// Why they are used although the user did not name them.
        why: Option<String>,
    },
    /// A webhook that can be called.
    Webhook(Webhook),
    /// A webhook that only API servers can call; the hint says how to call it.
    Unreachable(CliError),
    /// The API server changes nothing but apiVersion.
    None {
        /// The name of a ConversionRules object that the cluster does not use.
        unused: Option<String>,
    },
}

impl Source {
    /// The conversion of a CRD: by rules in a file, else as its API servers do it.
    ///
    /// Rules in the cluster take part only if a webhook converts. If that can be called, it is. If it is a Service, which cannot
    /// be called from here, the rules show what a webhook does that serves them.
    pub(super) async fn of(
        server: &Server,
        definition: &Definition,
        rules: Option<&Path>,
        webhook: Option<&str>,
    ) -> Result<Self, CliError> {
        if let Some(path) = rules {
            return Self::rules(read(path)?, definition, None);
        }
        if !definition.crd.webhook {
            let unused = stored_rules(server, definition).await.ok().flatten();
            return Ok(Self::None { unused: unused.and_then(|rules| rules.metadata.name) });
        }
        let unreachable = match Webhook::of(definition, webhook) {
            Ok(webhook) => return Ok(Self::Webhook(webhook)),
            Err(unreachable) => unreachable,
        };
        if webhook.is_some() {
            return Err(unreachable);
        }
        match stored_rules(server, definition).await? {
            Some(rules) => {
                let name = rules.metadata.name.clone().unwrap_or_default();
                let why = format!(
                    "{unreachable}; the ConversionRules {name} are used instead, which is right if that webhook serves them"
                );
                Self::rules(rules, definition, Some(why))
            }
            None => Ok(Self::Unreachable(unreachable)),
        }
    }

    fn rules(rules: ConversionRules, definition: &Definition, why: Option<String>) -> Result<Self, CliError> {
        let chain = compile(&rules, &typed(definition)?)?;
        Ok(Self::Rules { chain: Box::new(chain), rules: Box::new(rules), why })
    }

    /// Says what is used where a user may expect something else.
    pub(super) fn explain(&self) {
        match self {
            Self::Rules { why: Some(why), .. } => say!("{why}"),
            Self::None { unused: Some(name) } => say!(
                "the CRD has no webhook, so the API servers do not use the ConversionRules {name}; to use rules, give --rules FILE"
            ),
            _ => {}
        }
    }

    /// What the report calls it.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Rules { .. } => "rules",
            Self::Webhook(_) => "webhook",
            Self::Unreachable(_) | Self::None { .. } => "API server",
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
