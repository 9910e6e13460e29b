//! Converts objects in place, where no webhook does: read in the old version, converted by rules, written in the new one.
//!
//! Between the change of the storage version and the conversion of an object, every write to that object drops the fields that
//! the new version does not have. So the user must state that nobody writes meanwhile, restow's own migrations wait
//! for the annotation of the definition to go, and objects that were written nevertheless are named and left alone.

use std::time::Duration;

use kube::api::{DynamicObject, PostParams};
use restow_api::ConversionConditionType as Condition;
use restow_api::{CONVERTED, ConversionSpec, InPlaceProgress, QuarantinedObject, Reason, RefusedObject};
use restow_convert::Convertible as _;
use restow_core::controller::condition::{NAMED, Stage};
use restow_core::controller::conversion::{self as decide, InPlace, Work};
use restow_migrate::client::plain;
use serde_json::Value;

use super::converter::{InPlaceRules, chain, is_converted, refusal};
use super::definitions::Found;
use super::error::RoundError;
use super::objects::Objects;
use super::record::Record;
use crate::observe::events::EventType;
use crate::requests::code;

/// How long one page may take before the loop counts as stuck.
const PAGE_TIMEOUT: Duration = Duration::from_secs(600);
const MESSAGE: &str = "rules convert every object";

/// What became of one object.
enum Converted {
    /// It was written in the new version.
    Now,
    /// It was converted before, or is gone.
    Already,
    /// It is left as it is.
    Left(RefusedObject),
}

/// Converts all objects, or the rest of them, while `goes_on` says so after a page.
pub(super) async fn convert(
    record: &mut Record<'_>,
    found: &Found,
    goes_on: impl Fn() -> bool,
) -> Result<(), RoundError> {
    let spec = record.object.spec.clone();
    let client = record.context.client();
    let Some(in_place) = found.definition.converting.clone().filter(|one| one.version == spec.new_version)
    else {
        let message = "the storage version was set by another client, so it is not known which objects have the fields of \
                       which version";
        return record.ends(Stage::Failed, Reason::Superseded, message).await;
    };
    let Some(rules) = InPlaceRules::of(client, &found.crd, &spec).await? else {
        return Err(RoundError::Rules("the ConversionRules of the kind are gone".to_owned()));
    };
    let mut old = Objects::new(client, &found.crd, &spec, &spec.old_version)?;
    let new = Objects::new(client, &found.crd, &spec, &spec.new_version)?;
    loop {
        record.context.health.beat("conversion", PAGE_TIMEOUT);
        let token = record.status().in_place.and_then(|progress| progress.continue_token);
        let page = match old.page(token.as_deref()).await {
            // What is converted already is recognised.
            Err(RoundError::Kube(error)) if code(&error) == Some(410) && token.is_some() => {
                begin(record).await?;
                continue;
            }
            page => page?,
        };
        let (mut converted, mut left) = (0, Vec::new());
        for object in page.objects {
            if record.stop.is_stopped() {
                return Ok(());
            }
            match one(&rules, &new, object, &spec, &in_place).await? {
                Converted::Now => converted += 1,
                Converted::Already => {}
                Converted::Left(object) => left.push(object),
            }
        }
        let (next, now) = (page.next, restow_clock::now());
        let last = next.is_none();
        record.update(|status| keep(status, converted, left, next, now)).await?;
        if last {
            return conclude(record).await;
        }
        if !goes_on() {
            return Ok(());
        }
    }
}

fn keep(
    status: &mut restow_api::ConversionStatus,
    converted: u64,
    left: Vec<RefusedObject>,
    next: Option<String>,
    now: jiff::Timestamp,
) {
    let progress = status.in_place.get_or_insert_default();
    progress.converted += converted;
    progress.left += left.len() as u64;
    progress.continue_token = next;
    let room = NAMED.saturating_sub(status.quarantined.len());
    status.quarantined.extend(left.into_iter().take(room).map(|object| QuarantinedObject {
        namespace: object.namespace,
        name: object.name,
        uid: object.uid,
        reason: Reason::ConvertingInPlace.to_string(),
        message: object.message,
    }));
    let work = (Stage::Running, Some(Work::ConvertingInPlace));
    decide::report(status, work, Reason::ConvertingInPlace, MESSAGE, now);
}

async fn begin(record: &mut Record<'_>) -> Result<(), RoundError> {
    let fresh = |status: &mut restow_api::ConversionStatus| {
        let converted = status.in_place.as_ref().map_or(0, |progress| progress.converted);
        status.in_place = Some(InPlaceProgress { converted, ..InPlaceProgress::default() });
        status.quarantined.clear();
    };
    record.update(fresh).await
}

/// Converts one object.
async fn one(
    rules: &InPlaceRules,
    new: &Objects,
    object: Value,
    spec: &ConversionSpec,
    in_place: &InPlace,
) -> Result<Converted, RoundError> {
    if is_converted(&object, spec) {
        return Ok(Converted::Already);
    }
    let version = object["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok());
    if version.is_none_or(|version: u64| version > in_place.since) {
        let message = format!(
            "another client wrote it after the storage version was set, so fields may be lost; correct it in {}, and set the \
             annotation {CONVERTED}: {}",
            spec.new_version, spec.new_version
        );
        return Ok(Converted::Left(refusal(&object, Vec::new(), message)));
    }
    let mut converted = match rules.chain.convert(object.clone(), &spec.new_version) {
        Ok(converted) => converted,
        Err(error) => return Ok(Converted::Left(refusal(&object, Vec::new(), chain(&error)))),
    };
    converted["metadata"]["annotations"][CONVERTED] = spec.new_version.clone().into();
    write(new, &object, converted).await
}

/// Writes a converted object, on the condition that it has the uid and resourceVersion that were read.
async fn write(new: &Objects, object: &Value, converted: Value) -> Result<Converted, RoundError> {
    let meta = &object["metadata"];
    let name = meta["name"].as_str().unwrap_or_default().to_owned();
    let api = new.api(meta["namespace"].as_str());
    let converted: DynamicObject =
        serde_json::from_value(converted).map_err(|error| RoundError::Answer(error.to_string()))?;
    let params = PostParams { field_manager: Some(restow_api::MANAGER.to_owned()), ..PostParams::default() };
    let Err(error) = api.replace(&name, &params, &converted).await else { return Ok(Converted::Now) };
    match code(&error) {
        Some(404 | 409) => {
            let now = api.get_metadata_opt(&name).await?;
            let same = |now: &kube::core::PartialObjectMeta<DynamicObject>| {
                now.metadata.uid.as_deref() == meta["uid"].as_str()
                    && now.metadata.resource_version.as_deref() == meta["resourceVersion"].as_str()
            };
            match now {
                // It is gone, or was made again: that one is not this one.
                None => Ok(Converted::Already),
                // An answer was lost, and the object is converted.
                Some(now)
                    if now.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(CONVERTED)) =>
                {
                    Ok(Converted::Already)
                }
                // Unchanged, so this is not a conflict but a denial.
                Some(now) if same(&now) => Ok(Converted::Left(refusal(object, Vec::new(), plain(&error)))),
                Some(_) => {
                    let message =
                        "another client wrote it while it was converted, so fields may be lost".to_owned();
                    Ok(Converted::Left(refusal(object, Vec::new(), message)))
                }
            }
        }
        Some(400..500) => Ok(Converted::Left(refusal(object, Vec::new(), plain(&error)))),
        _ => Err(error.into()),
    }
}

/// Writes that the pass is over.
async fn conclude(record: &mut Record<'_>) -> Result<(), RoundError> {
    let progress = record.status().in_place.unwrap_or_default();
    if progress.left > 0 {
        let message = format!(
            "{} objects could not be converted: see status.quarantined; migrations of the resource wait until another \
             Conversion has converted them",
            progress.left
        );
        return record.ends(Stage::Failed, Reason::Quarantined, &message).await;
    }
    let (message, now) =
        (format!("rules have converted {} objects", progress.converted), restow_clock::now());
    record
        .update(|status| {
            let reason = Reason::ConvertedInPlace;
            decide::record(status, Condition::ConvertedInPlace, true, reason, &message, now);
        })
        .await?;
    record.publish(EventType::Normal, Reason::ConvertedInPlace, &message);
    Ok(())
}
