//! What converts objects between versions, and what that would lose.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::ListParams;
use restow_api::{CONVERTED, ConversionSpec, RefusedObject};
use restow_convert::rules::{self, ConversionRules};
use restow_convert::{Chain, Convertible as _, Pruning, Unchanged, Validation, causes, lost_fields};
use restow_core::controller::conversion::{IN_PLACE, InPlace, Strategy};
use serde_json::Value;

use super::definitions::Found;
use super::error::RoundError;
use super::review::{Reviewed, Reviewer};
use crate::requests::code;

/// How many fields of one object are named.
const NAMED_FIELDS: usize = 20;
/// How many characters of a message are kept.
const MESSAGE: usize = 512;

/// What converts objects.
pub(super) enum Converter {
    /// All versions have the same schema: nothing can be lost.
    Unchanged,
    /// API servers drop what the other schema does not have.
    Pruning(Box<Schemas>),
    /// A webhook, and what API servers drop from its answers.
    Webhook(Box<Reviewer>, Box<Schemas>),
    /// Rules, with which restow converts in place.
    Rules(Box<InPlaceRules>),
}

/// What API servers do with the schemas of a definition.
pub(super) struct Schemas {
    pub(super) pruning: Pruning,
    validation: Validation,
}

/// Rules for a conversion in place.
pub(super) struct InPlaceRules {
    pub(super) chain: Chain,
    pub(super) schemas: Schemas,
    /// Whether the status of the new version can only be written by itself.
    separate_status: bool,
    /// The conversion in place that has begun already.
    begun: Option<InPlace>,
}

impl Converter {
    /// What converts the objects of a definition.
    pub(super) async fn of(
        client: &kube::Client,
        found: &Found,
        spec: &ConversionSpec,
    ) -> Result<Self, RoundError> {
        let schemas = || Box::new(Schemas::of(&found.crd));
        if found.definition.strategy == Strategy::Webhook {
            return Ok(Self::Webhook(Box::new(Reviewer::of(&found.crd).await?), schemas()));
        }
        if Unchanged::of(&found.crd).is_ok() {
            return Ok(Self::Unchanged);
        }
        if spec.convert_in_place != Some(true) {
            return Ok(Self::Pruning(schemas()));
        }
        match InPlaceRules::of(client, found, spec).await? {
            Some(rules) => Ok(Self::Rules(Box::new(rules))),
            None => Ok(Self::Pruning(schemas())),
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Unchanged => "unchanged",
            Self::Pruning(_) => "none",
            Self::Webhook(..) => "webhook",
            Self::Rules(_) => IN_PLACE,
        }
    }

    /// The objects of a page that would not survive.
    pub(super) async fn refused(
        &self,
        objects: Vec<Value>,
        spec: &ConversionSpec,
    ) -> Result<Vec<RefusedObject>, RoundError> {
        match self {
            Self::Unchanged => Ok(Vec::new()),
            Self::Pruning(schemas) => {
                Ok(objects.iter().filter_map(|object| pruned(schemas, object, spec)).collect())
            }
            Self::Webhook(reviewer, schemas) => reviewed(reviewer, schemas, objects, spec).await,
            Self::Rules(rules) => {
                Ok(objects.iter().filter_map(|object| rules.refused(object, spec)).collect())
            }
        }
    }
}

impl Schemas {
    fn of(crd: &CustomResourceDefinition) -> Self {
        Self { pruning: Pruning::of(crd), validation: Validation::of(crd) }
    }

    /// Why an object cannot be changed by users any more in the new version; none if it fits, or did not fit before either.
    fn misfit(&self, object: &Value, there: &Value, spec: &ConversionSpec) -> Option<RefusedObject> {
        let (old, new) = (&spec.old_version, &spec.new_version);
        let problems = self.validation.new_problems((object, old), (there, new));
        if problems.is_empty() {
            return None;
        }
        let words: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let message = format!("would not fit the schema of {new}: {}", words.join("; "));
        Some(refusal(object, problems.into_iter().map(|problem| problem.path).collect(), message))
    }
}

impl InPlaceRules {
    /// The rules for a kind; none if there are none.
    pub(super) async fn of(
        client: &kube::Client,
        found: &Found,
        spec: &ConversionSpec,
    ) -> Result<Option<Self>, RoundError> {
        let crd = &found.crd;
        let api = Api::<ConversionRules>::all(client.clone());
        let all = match api.list(&ListParams::default()).await {
            Ok(all) => all.items,
            // There is no such resource.
            Err(error) if code(&error) == Some(404) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let of_kind =
            |rules: &&ConversionRules| (&rules.spec.group, &rules.spec.kind) == (&spec.group, &spec.kind);
        let Some(rules) = all.iter().find(of_kind) else { return Ok(None) };
        let chain = rules::compile(&rules.spec, crd).map_err(|problems| {
            RoundError::Rules(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
        })?;
        let version = crd.spec.versions.iter().find(|version| version.name == spec.new_version);
        let subresources = version.and_then(|version| version.subresources.as_ref());
        Ok(Some(Self {
            chain,
            schemas: Schemas::of(crd),
            separate_status: subresources.is_some_and(|subresources| subresources.status.is_some()),
            begun: found.definition.converting.clone(),
        }))
    }

    /// Why an object would not survive; none if it would, or has the fields of the new version already.
    pub(super) fn refused(&self, object: &Value, spec: &ConversionSpec) -> Option<RefusedObject> {
        if self.begun.as_ref().is_some_and(|begun| is_converted(object, begun)) {
            return None;
        }
        let mut there = match self.chain.convert(object.clone(), &spec.new_version) {
            Ok(there) => there,
            Err(error) => return Some(refusal(object, Vec::new(), causes(&error))),
        };
        // A write of the object keeps its status as the API server reads it in the new version.
        if self.separate_status {
            let kept = self.schemas.pruning.convert(object.clone(), &spec.new_version).unwrap_or_default();
            if kept["status"] != there["status"] {
                let message =
                    "its status differs in the new version, and cannot be written with the rest of it";
                return Some(refusal(object, vec!["status".to_owned()], message.to_owned()));
            }
        }
        self.schemas.pruning.prune(&mut there, &spec.new_version);
        if let Some(misfit) = self.schemas.misfit(object, &there, spec) {
            return Some(misfit);
        }
        match self.chain.convert(there, &spec.old_version) {
            Ok(back) => lost(object, &back),
            Err(error) => Some(refusal(object, Vec::new(), causes(&error))),
        }
    }
}

/// Whether this conversion in place has converted an object. The annotation of an earlier one proves nothing: the object may
/// have been converted back since.
pub(super) fn is_converted(object: &Value, begun: &InPlace) -> bool {
    object["metadata"]["annotations"][CONVERTED] == begun.to_string().as_str()
}

/// What would be lost without a webhook.
fn pruned(schemas: &Schemas, object: &Value, spec: &ConversionSpec) -> Option<RefusedObject> {
    let there = match schemas.pruning.convert(object.clone(), &spec.new_version) {
        Ok(there) => there,
        Err(error) => return Some(refusal(object, Vec::new(), causes(&error))),
    };
    if let Some(misfit) = schemas.misfit(object, &there, spec) {
        return Some(misfit);
    }
    match schemas.pruning.convert(there, &spec.old_version) {
        Ok(back) => lost(object, &back),
        Err(error) => Some(refusal(object, Vec::new(), causes(&error))),
    }
}

/// What would be lost with a webhook. A review that fails as a whole is repeated object by object.
async fn reviewed(
    reviewer: &Reviewer,
    schemas: &Schemas,
    objects: Vec<Value>,
    spec: &ConversionSpec,
) -> Result<Vec<RefusedObject>, RoundError> {
    if objects.is_empty() {
        return Ok(Vec::new());
    }
    if let Ok(refused) = there_and_back(reviewer, schemas, &objects, spec).await? {
        return Ok(refused);
    }
    let mut refused = Vec::new();
    for object in &objects {
        match there_and_back(reviewer, schemas, std::slice::from_ref(object), spec).await? {
            Ok(one) => refused.extend(one),
            Err(why) => refused.push(refusal(object, Vec::new(), format!("the webhook refuses it: {why}"))),
        }
    }
    Ok(refused)
}

/// Has the webhook convert objects to the new version and back, as API servers would store and show them; returns those that do
/// not survive.
async fn there_and_back(
    reviewer: &Reviewer,
    schemas: &Schemas,
    objects: &[Value],
    spec: &ConversionSpec,
) -> Result<Result<Vec<RefusedObject>, String>, RoundError> {
    let mut there = match reviewer.convert(objects, &spec.new_version).await? {
        Reviewed::Converted(converted) => converted,
        Reviewed::Refused(why) => return Ok(Err(why)),
    };
    there.iter_mut().for_each(|object| schemas.pruning.prune(object, &spec.new_version));
    let mut back = match reviewer.convert(&there, &spec.old_version).await? {
        Reviewed::Converted(converted) => converted,
        Reviewed::Refused(why) => return Ok(Err(why)),
    };
    back.iter_mut().for_each(|object| schemas.pruning.prune(object, &spec.old_version));
    let ways = objects.iter().zip(there.iter().zip(&back));
    let refused = ways.filter_map(|(object, (there, back))| {
        schemas.misfit(object, there, spec).or_else(|| lost(object, back))
    });
    Ok(Ok(refused.collect()))
}

fn lost(object: &Value, back: &Value) -> Option<RefusedObject> {
    let fields = lost_fields(object, back);
    if fields.is_empty() {
        return None;
    }
    let message = format!("would lose {}", fields.join(", "));
    Some(refusal(object, fields, message))
}

pub(super) fn refusal(object: &Value, mut fields: Vec<String>, message: String) -> RefusedObject {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    fields.truncate(NAMED_FIELDS);
    let message = match message.char_indices().nth(MESSAGE) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message,
    };
    RefusedObject { namespace: text("namespace"), name: text("name"), uid: text("uid"), fields, message }
}
