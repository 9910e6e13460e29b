//! Converters by kind: one from rules, or one for each kind that the cluster defines.

use std::collections::BTreeMap;

use restow_convert::{Chain, Convertible as _, Pruning, lost_fields};
use restow_core::resource::inventory::Resource;
use restow_migrate::cluster::{Cluster, Inventory};
use restow_migrate::definition::{self, Definition};
use serde_json::Value;

use super::files::Document;
use super::source::{Source, typed};
use super::webhook::Webhook;
use crate::args::Connection;
use crate::connect::{connect, unanswered, unreached};
use crate::error::{CliError, chain};
use crate::output::say;

/// Converts the objects of one kind.
pub(super) enum Converter {
    Rules(Box<Chain>),
    /// API servers change apiVersion and drop what the other schema lacks; what would be dropped is an error.
    ApiServer(Pruning),
    Webhook(Webhook),
}

impl Converter {
    async fn convert(&self, object: Value, to: &str) -> Result<Value, String> {
        match self {
            Self::Rules(rules) => rules.convert(object, to).map_err(|error| chain(&error)),
            Self::ApiServer(pruning) => {
                let converted = pruning.convert(object.clone(), to).map_err(|error| chain(&error))?;
                let mut as_before = converted.clone();
                as_before["apiVersion"] = object["apiVersion"].clone();
                match lost_fields(&object, &as_before) {
                    lost if lost.is_empty() => Ok(converted),
                    lost => Err(format!(
                        "no webhook converts, so API servers would drop what {to} lacks: {}; to convert by rules, give --rules FILE",
                        lost.join(", ")
                    )),
                }
            }
            Self::Webhook(_) if version(&object) == to => Ok(object),
            Self::Webhook(webhook) => match webhook.convert(&[object], to).await {
                Ok(mut converted) => converted.pop().ok_or_else(|| "the webhook returned nothing".to_owned()),
                Err(error) => Err(chain(&error)),
            },
        }
    }
}

/// A connected cluster and what it defines.
pub(super) struct Defined {
    cluster: Cluster,
    inventory: Inventory,
    webhook_url: Option<String>,
}

impl Defined {
    /// Connects, and reads what the cluster defines.
    pub(super) async fn connect(
        connection: &Connection,
        webhook_url: Option<&str>,
    ) -> Result<Self, CliError> {
        let cluster = connect(connection).await?;
        match cluster.inventory(false).await {
            Ok(inventory) => Ok(Self { cluster, inventory, webhook_url: webhook_url.map(str::to_owned) }),
            Err(error) => Err(unanswered(&cluster, error).await),
        }
    }

    /// The CRD of a kind; none if the cluster has none.
    pub(super) async fn definition(&self, group: &str, kind: &str) -> Result<Option<Definition>, CliError> {
        let is_it = |resource: &&Resource| {
            resource.crd.is_some() && resource.name.group == group && resource.kind == kind
        };
        let Some(resource) = self.inventory.resources.iter().find(is_it) else {
            let down = self.inventory.unavailable.iter().find(|(version, _)| version.group == group);
            return match down {
                Some((version, why)) => Err(CliError::failed(format!("{version}: {}", why.explain()))),
                None => Ok(None),
            };
        };
        let server = self.cluster.server();
        definition::read(server, &resource.name).await.map_err(|error| unreached(server, &error))
    }

    /// The conversion of a kind, as the cluster does it.
    async fn converter(&self, group: &str, kind: &str, to: &str) -> Result<Option<Converter>, CliError> {
        let Some(definition) = self.definition(group, kind).await? else { return Ok(None) };
        let versions: Vec<&str> = definition.crd.versions.iter().map(|(name, _)| name.as_str()).collect();
        if !versions.contains(&to) {
            let known = versions.join(", ");
            return Err(CliError::usage(format!(
                "{} has no version {to}; it has {known}",
                definition.crd.name
            )));
        }
        let source =
            Source::of(self.cluster.server(), &definition, None, self.webhook_url.as_deref()).await?;
        source.explain();
        match source {
            Source::Rules { chain, .. } => Ok(Some(Converter::Rules(chain))),
            Source::Webhook(webhook) => Ok(Some(Converter::Webhook(webhook))),
            Source::Unreachable(why) => Err(why),
            Source::None { .. } => Ok(Some(Converter::ApiServer(Pruning::of(&typed(&definition)?)))),
        }
    }
}

/// All converters that some documents need.
pub(super) struct Converters {
    known: BTreeMap<(String, String), Option<Converter>>,
    cluster: Option<Defined>,
}

impl Converters {
    /// One converter from rules; objects of other kinds are not converted.
    pub(super) fn only(rules: Chain) -> Self {
        let kind = (rules.group().to_owned(), rules.kind().to_owned());
        Self { known: BTreeMap::from([(kind, Some(Converter::Rules(Box::new(rules))))]), cluster: None }
    }

    /// The converters of a cluster.
    pub(super) fn of(cluster: Defined) -> Self {
        Self { known: BTreeMap::new(), cluster: Some(cluster) }
    }

    async fn find(&mut self, group: &str, kind: &str, to: &str) -> Result<Option<&Converter>, CliError> {
        let key = (group.to_owned(), kind.to_owned());
        if !self.known.contains_key(&key) {
            let found = match &self.cluster {
                // Kinds of the core group are not custom resources.
                Some(cluster) if !group.is_empty() && !kind.is_empty() => {
                    cluster.converter(group, kind, to).await?
                }
                _ => None,
            };
            self.known.insert(key.clone(), found);
        }
        Ok(self.known.get(&key).and_then(Option::as_ref))
    }

    /// A document in the wanted version. A list has all its items converted; an object of another kind stays as it is.
    pub(super) async fn convert(&mut self, document: Document, to: &str) -> Result<Value, CliError> {
        let Document { place, mut value } = document;
        let list_of = text(&value, "kind").strip_suffix("List").map(str::to_owned);
        let own_list = match &list_of {
            Some(kind) => self.find(&group(&value), kind, to).await?.is_some(),
            None => false,
        };
        let any_list = value["apiVersion"] == "v1" && value["kind"] == "List";
        let (version, group) = (value["apiVersion"].clone(), group(&value));
        let Some(Value::Array(items)) = value.get_mut("items").filter(|_| own_list || any_list) else {
            return self.object(&place, value, to, true).await;
        };
        for (index, item) in items.iter_mut().enumerate() {
            // Items of a typed list may leave out what the list says of them.
            if own_list && item.is_object() && item.get("kind").is_none() {
                item["apiVersion"] = version.clone();
                item["kind"] = list_of.clone().into();
            }
            let place = format!("{place}, item {}", index + 1);
            *item = self.object(&place, item.take(), to, false).await?;
        }
        if own_list {
            value["apiVersion"] = Value::from(format!("{group}/{to}"));
        }
        Ok(value)
    }

    async fn object(&mut self, place: &str, object: Value, to: &str, says: bool) -> Result<Value, CliError> {
        let kind = text(&object, "kind").to_owned();
        match self.find(&group(&object), &kind, to).await.map_err(|error| error.about(place))? {
            Some(converter) => converter
                .convert(object, to)
                .await
                .map_err(|error| CliError::failed(format!("{place}: {error}"))),
            None => {
                let kind = if kind.is_empty() { "no kind" } else { &kind };
                if says {
                    say!("{place}: {kind} is not converted; printed as it is");
                }
                Ok(object)
            }
        }
    }
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}

fn group(object: &Value) -> String {
    text(object, "apiVersion").split_once('/').map_or(String::new(), |(group, _)| group.to_owned())
}

fn version(object: &Value) -> &str {
    text(object, "apiVersion").split_once('/').map_or("", |(_, version)| version)
}
