//! Converts objects in place, where no webhook does: read in the old version, converted by rules, written in the new one.
//!
//! Between the change of the storage version and the conversion of an object, every write to that object drops the fields that
//! the new version does not have. So the user must state that nobody writes meanwhile, restow's own migrations wait
//! for the annotation of the definition to go, and objects that were written nevertheless are named and left alone.

use std::time::Duration;

use kube::Api;
use kube::api::{DynamicObject, PostParams};
use restow_api::ConversionConditionType as Condition;
use restow_api::{CONVERTED, ConversionSpec, InPlaceProgress, QuarantinedObject, Reason, RefusedObject};
use restow_convert::{Convertible as _, causes};
use restow_core::controller::condition::{NAMED, Stage};
use restow_core::controller::conversion::{self as decide, InPlace, Work};
use restow_migrate::client::plain;
use serde_json::Value;

use super::converter::{InPlaceRules, is_converted, refusal};
use super::definitions::Found;
use super::error::RoundError;
use super::objects::Objects;
use super::record::Record;
use crate::observe::events::EventType;
use crate::requests::code;

/// How long one page may take before the loop counts as stuck.
const PAGE_TIMEOUT: Duration = Duration::from_secs(600);
/// How many times an object is written if the answer says nothing about it.
const TRIES: u32 = 5;
/// The pause between two tries.
const RETRY_DELAY: Duration = Duration::from_secs(1);
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
    let Some(rules) = InPlaceRules::of(client, found, &spec).await? else {
        return Err(RoundError::Rules("the ConversionRules of the kind are gone".to_owned()));
    };
    let mut old = Objects::new(client, &found.crd, &spec, &spec.old_version)?;
    let new = Objects::new(client, &found.crd, &spec, &spec.new_version)?;
    loop {
        record.context.health.beat("conversion", PAGE_TIMEOUT);
        let token = record.status().in_place.and_then(|progress| progress.continue_token);
        let Some(page) = old.page(token.as_deref()).await? else {
            // What is converted already is recognised.
            begin(record).await?;
            continue;
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
    if is_converted(&object, in_place) {
        return Ok(Converted::Already);
    }
    let version = object["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok());
    if version.is_none_or(|version: u64| version > in_place.since) {
        let message = format!(
            "another client wrote it after the storage version was set, so fields may be lost; correct it in {}, and set the \
             annotation {CONVERTED}: {in_place}",
            spec.new_version
        );
        return Ok(Converted::Left(refusal(&object, Vec::new(), message)));
    }
    // It, or the rules, may have been changed since the check.
    if let Some(refused) = rules.refused(&object, spec) {
        return Ok(Converted::Left(refused));
    }
    let mut converted = match rules.chain.convert(object.clone(), &spec.new_version) {
        Ok(converted) => converted,
        Err(error) => return Ok(Converted::Left(refusal(&object, Vec::new(), causes(&error)))),
    };
    rules.schemas.pruning.prune(&mut converted, &spec.new_version);
    converted["metadata"]["annotations"][CONVERTED] = in_place.to_string().into();
    let converted: DynamicObject =
        serde_json::from_value(converted).map_err(|error| RoundError::Answer(error.to_string()))?;
    let meta = &object["metadata"];
    let name = meta["name"].as_str().unwrap_or_default();
    let api = new.api(meta["namespace"].as_str());
    match write(&api, name, converted).await? {
        Written::Stored => Ok(Converted::Now),
        Written::Pruned(fields) => {
            let message = "API servers dropped these fields when it was written".to_owned();
            Ok(Converted::Left(refusal(&object, fields, message)))
        }
        Written::Refused(error) if matches!(code(&error), Some(404 | 409)) => {
            let now = api.get_metadata_opt(name).await?;
            let now = now.map(|now| serde_json::to_value(now.metadata).unwrap_or_default());
            Ok(absent_or_changed(&object, now.as_ref(), in_place, &plain(&error)))
        }
        Written::Refused(error) => Ok(Converted::Left(refusal(&object, Vec::new(), plain(&error)))),
    }
}

/// What became of a write.
enum Written {
    Stored,
    /// It was stored without these fields.
    Pruned(Vec<String>),
    Refused(kube::Error),
}

/// Writes a converted object, on the condition that it has the uid and resourceVersion that were read.
///
/// An API server that still stores the old version drops the fields of the new one. Its answer shows what it has stored, and
/// the object is written again.
async fn write(
    api: &Api<DynamicObject>,
    name: &str,
    mut converted: DynamicObject,
) -> Result<Written, RoundError> {
    let params = PostParams { field_manager: Some(restow_api::MANAGER.to_owned()), ..PostParams::default() };
    for tries in 1.. {
        let last = tries == TRIES;
        match api.replace(name, &params, &converted).await {
            Ok(stored) => {
                let fields = dropped(&converted.data, &stored.data);
                if fields.is_empty() {
                    return Ok(Written::Stored);
                }
                if last {
                    return Ok(Written::Pruned(fields));
                }
                converted.metadata.resource_version = stored.metadata.resource_version;
            }
            // These pass, and say nothing about the object.
            Err(error) if matches!(code(&error), Some(401 | 408 | 429 | 502..=504) | None) => {
                return Err(error.into());
            }
            Err(error) if !last && code(&error).is_some_and(|code| code >= 500) => {}
            Err(error) => return Ok(Written::Refused(error)),
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
    Err(RoundError::Changed)
}

/// The fields that were sent and not stored, besides the status, which may be a resource of its own.
fn dropped(sent: &Value, stored: &Value) -> Vec<String> {
    fn compare(sent: &Value, stored: &Value, path: &str, dropped: &mut Vec<String>) {
        match (sent, stored) {
            (Value::Object(sent), Value::Object(stored)) => {
                for (name, value) in sent.iter().filter(|(_, value)| !value.is_null()) {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    match stored.get(name) {
                        _ if path == "status" => {}
                        Some(stored) => compare(value, stored, &path, dropped),
                        None => dropped.push(path),
                    }
                }
            }
            (Value::Array(sent), Value::Array(stored)) => {
                let path = format!("{path}[]");
                sent.iter().zip(stored).for_each(|(sent, stored)| compare(sent, stored, &path, dropped));
            }
            _ => {}
        }
    }
    let mut fields = Vec::new();
    compare(sent, stored, "", &mut fields);
    fields.sort();
    fields.dedup();
    fields
}

/// What became of an object whose write was answered with 404 or 409, by its metadata now.
fn absent_or_changed(object: &Value, now: Option<&Value>, in_place: &InPlace, answer: &str) -> Converted {
    let meta = &object["metadata"];
    let left = |message: &str| Converted::Left(refusal(object, Vec::new(), message.to_owned()));
    match now {
        // It is gone.
        None => Converted::Already,
        // An answer was lost, and the object is converted.
        Some(now) if now["annotations"][CONVERTED] == in_place.to_string().as_str() => Converted::Already,
        // Unchanged, so this is not a conflict but a denial.
        Some(now) if now["uid"] == meta["uid"] && now["resourceVersion"] == meta["resourceVersion"] => {
            left(answer)
        }
        Some(_) => left("another client wrote it while it was converted, so fields may be lost"),
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_an_api_server_has_not_stored_is_named() {
        let sent = json!({
            "spec": {"size": 3, "ports": [{"name": "a", "port": 1}, {"port": 2}], "none": null, "kept": {}},
            "status": {"ready": true},
        });
        for (what, stored, expected) in [
            ("all", sent.clone(), vec![]),
            (
                "changed or added by admission",
                json!({"spec": {"size": 4, "ports": [{"name": "b", "port": 1, "x": 1}, {"port": 2}], "kept": {}}}),
                vec![],
            ),
            (
                "pruned",
                json!({"spec": {"ports": [{"port": 1}, {}], "kept": {}}}),
                vec!["spec.ports[].name", "spec.ports[].port", "spec.size"],
            ),
            ("nothing", json!({}), vec!["spec"]),
        ] {
            assert_eq!(dropped(&sent, &stored), expected, "{what}");
        }
    }

    #[test]
    fn only_the_mark_of_this_conversion_shows_that_an_object_is_converted() {
        let in_place = InPlace { version: "v2".to_owned(), since: 41 };
        let object = json!({"metadata": {"name": "w", "uid": "u", "resourceVersion": "7"}});
        let now = |uid: &str, version: &str, mark: &str| json!({"uid": uid, "resourceVersion": version, "annotations": {CONVERTED: mark}});
        for (what, now, expected) in [
            ("gone", None, None),
            ("converted, and the answer lost", Some(now("u", "8", "v2 41")), None),
            ("converted by an earlier one, and written since", Some(now("u", "8", "v2 12")), Some("another")),
            ("of before there was such a mark", Some(now("u", "8", "v2")), Some("another")),
            ("made again", Some(now("other", "9", "")), Some("another")),
            ("refused", Some(now("u", "7", "v1 12")), Some("denied")),
        ] {
            let left = match absent_or_changed(&object, now.as_ref(), &in_place, "denied") {
                Converted::Left(left) => left.message.split(' ').next().map(str::to_owned),
                Converted::Now | Converted::Already => None,
            };
            assert_eq!(left.as_deref(), expected, "{what}");
        }
    }
}
