//! What converts objects between versions, and what that would lose.

use kube::Api;
use kube::api::ListParams;
use restow_api::{CONVERTED, ConversionSpec, RefusedObject};
use restow_convert::rules::{self, ConversionRules};
use restow_convert::{Chain, Convertible as _, Pruning, Unchanged, lost_fields};
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
    Pruning(Pruning),
    /// A webhook, and what API servers drop from its answers.
    Webhook(Box<Reviewer>, Pruning),
    /// Rules, with which restow converts in place.
    Rules(Box<InPlaceRules>),
}

/// Rules for a conversion in place.
pub(super) struct InPlaceRules {
    pub(super) chain: Chain,
    pub(super) pruning: Pruning,
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
        let pruning = || Pruning::of(&found.crd);
        if found.definition.strategy == Strategy::Webhook {
            return Ok(Self::Webhook(Box::new(Reviewer::of(&found.crd).await?), pruning()));
        }
        if Unchanged::of(&found.crd).is_ok() {
            return Ok(Self::Unchanged);
        }
        if spec.convert_in_place != Some(true) {
            return Ok(Self::Pruning(pruning()));
        }
        match InPlaceRules::of(client, found, spec).await? {
            Some(rules) => Ok(Self::Rules(Box::new(rules))),
            None => Ok(Self::Pruning(pruning())),
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
            Self::Pruning(pruning) => {
                Ok(objects.iter().filter_map(|object| pruned(pruning, object, spec)).collect())
            }
            Self::Webhook(reviewer, pruning) => reviewed(reviewer, pruning, objects, spec).await,
            Self::Rules(rules) => {
                Ok(objects.iter().filter_map(|object| rules.refused(object, spec)).collect())
            }
        }
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
            pruning: Pruning::of(crd),
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
            Err(error) => return Some(refusal(object, Vec::new(), chain(&error))),
        };
        // A write of the object keeps its status as the API server reads it in the new version.
        if self.separate_status {
            let kept = self.pruning.convert(object.clone(), &spec.new_version).unwrap_or_default();
            if kept["status"] != there["status"] {
                let message =
                    "its status differs in the new version, and cannot be written with the rest of it";
                return Some(refusal(object, vec!["status".to_owned()], message.to_owned()));
            }
        }
        self.pruning.prune(&mut there, &spec.new_version);
        match self.chain.convert(there, &spec.old_version) {
            Ok(back) => lost(object, &back),
            Err(error) => Some(refusal(object, Vec::new(), chain(&error))),
        }
    }
}

/// Whether this conversion in place has converted an object. The annotation of an earlier one proves nothing: the object may
/// have been converted back since.
pub(super) fn is_converted(object: &Value, begun: &InPlace) -> bool {
    object["metadata"]["annotations"][CONVERTED] == begun.to_string().as_str()
}

/// What would be lost without a webhook.
fn pruned(pruning: &Pruning, object: &Value, spec: &ConversionSpec) -> Option<RefusedObject> {
    let there = pruning.convert(object.clone(), &spec.new_version);
    match there.and_then(|there| pruning.convert(there, &spec.old_version)) {
        Ok(back) => lost(object, &back),
        Err(error) => Some(refusal(object, Vec::new(), error.to_string())),
    }
}

/// What would be lost with a webhook. A review that fails as a whole is repeated object by object.
async fn reviewed(
    reviewer: &Reviewer,
    pruning: &Pruning,
    objects: Vec<Value>,
    spec: &ConversionSpec,
) -> Result<Vec<RefusedObject>, RoundError> {
    if objects.is_empty() {
        return Ok(Vec::new());
    }
    if let Ok(back) = there_and_back(reviewer, pruning, &objects, spec).await? {
        return Ok(objects.iter().zip(&back).filter_map(|(object, back)| lost(object, back)).collect());
    }
    let mut refused = Vec::new();
    for object in &objects {
        match there_and_back(reviewer, pruning, std::slice::from_ref(object), spec).await? {
            Ok(back) => refused.extend(back.first().and_then(|back| lost(object, back))),
            Err(why) => refused.push(refusal(object, Vec::new(), format!("the webhook refuses it: {why}"))),
        }
    }
    Ok(refused)
}

/// The objects after the way to the new version and back, as API servers would store and show them.
async fn there_and_back(
    reviewer: &Reviewer,
    pruning: &Pruning,
    objects: &[Value],
    spec: &ConversionSpec,
) -> Result<Result<Vec<Value>, String>, RoundError> {
    let mut converted = objects.to_vec();
    for version in [&spec.new_version, &spec.old_version] {
        converted = match reviewer.convert(&converted, version).await? {
            Reviewed::Converted(converted) => converted,
            Reviewed::Refused(why) => return Ok(Err(why)),
        };
        converted.iter_mut().for_each(|object| pruning.prune(object, version));
    }
    Ok(Ok(converted))
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

/// An error and its causes.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |message, cause| format!("{message}: {cause}"))
}
