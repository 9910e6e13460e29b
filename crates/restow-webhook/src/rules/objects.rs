//! ConversionRules objects of the cluster: how they are read, and how their status is written.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use restow_convert::rules::{ConversionRules, ConversionRulesStatus, REGISTERED, RulesInForce};
use serde_json::{Value, json};

use super::plan::RulesObject;

/// How often a status is written again after somebody else wrote it.
const TRIES: u32 = 8;

/// A change of a status; none if nothing needs to be written.
type Update<'a> = dyn Fn(&DynamicObject) -> Option<ConversionRulesStatus> + Sync + 'a;

/// The ConversionRules of a cluster.
pub(super) struct RulesObjects(pub(super) Api<DynamicObject>);

/// Whether API servers call the webhook for the kind of some rules, as a condition says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Whether they do.
    pub registered: bool,
    /// Why, in one word.
    pub reason: String,
    /// Why, in a sentence.
    pub message: String,
}

/// What the API calls them.
pub(super) fn kind() -> ApiResource {
    ApiResource::erase::<ConversionRules>(&())
}

impl RulesObjects {
    pub(super) fn new(client: Client) -> Self {
        Self(Api::all_with(client, &kind()))
    }

    pub(super) async fn list(&self) -> Result<Vec<DynamicObject>, kube::Error> {
        Ok(self.0.list(&ListParams::default()).await?.items)
    }

    /// Changes a status that is as it was read, or reads it again. Returns whether anything was written.
    pub(super) async fn write(
        &self,
        object: &DynamicObject,
        update: &Update<'_>,
    ) -> Result<bool, kube::Error> {
        let name = object.name_any();
        let (uid, mut current) = (object.uid(), object.clone());
        for attempt in 1.. {
            let Some(after) = update(&current) else { return Ok(false) };
            let mut patch = json!({
                "metadata": {"uid": current.uid(), "resourceVersion": current.resource_version()},
                "status": {
                    "observedGeneration": after.observed_generation,
                    "conditions": after.conditions,
                    "replicas": after.replicas,
                },
            });
            // They can be long, and seldom change.
            if after.in_force != status(&current).in_force {
                patch["status"]["inForce"] = json!(after.in_force);
            }
            match self.0.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                Ok(_) => return Ok(true),
                Err(kube::Error::Api(error)) if error.code == 404 => return Ok(false),
                Err(kube::Error::Api(error)) if error.code == 409 && attempt < TRIES => {
                    match self.0.get_opt(&name).await? {
                        Some(found) if found.uid() == uid => current = found,
                        // Another object of this name is another plan's.
                        _ => return Ok(false),
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Puts rules in force that have passed every gate. Returns whether they are, because they may have changed since.
    pub(super) async fn put_in_force(&self, object: &DynamicObject) -> Result<bool, kube::Error> {
        let passed = RulesInForce {
            generation: object.metadata.generation.unwrap_or_default(),
            spec: object.data.get("spec").cloned().unwrap_or_default(),
        };
        let update = |current: &DynamicObject| {
            let status = status(current);
            let same = current.metadata.generation == Some(passed.generation);
            (same && status.in_force.as_ref() != Some(&passed))
                .then(|| ConversionRulesStatus { in_force: Some(passed.clone()), ..status })
        };
        if status(object).in_force.as_ref() == Some(&passed) {
            return Ok(true);
        }
        self.write(object, &update).await
    }

    /// Writes the condition Registered, unless it is there already.
    pub(super) async fn registered(
        &self,
        object: &DynamicObject,
        registration: &Registration,
        now: Timestamp,
    ) -> Result<bool, kube::Error> {
        self.write(object, &|current: &DynamicObject| {
            with_registration(&status(current), registration, current.metadata.generation, now)
        })
        .await
    }
}

/// The status with the condition Registered; none if it has it already.
fn with_registration(
    status: &ConversionRulesStatus,
    registration: &Registration,
    generation: Option<i64>,
    now: Timestamp,
) -> Option<ConversionRulesStatus> {
    let known = status.conditions.iter().find(|condition| condition.type_ == REGISTERED);
    let state = if registration.registered { "True" } else { "False" };
    let since = known.filter(|known| known.status == state).map(|known| known.last_transition_time.clone());
    let condition = Condition {
        type_: REGISTERED.to_owned(),
        status: state.to_owned(),
        reason: registration.reason.clone(),
        message: registration.message.clone(),
        observed_generation: generation,
        last_transition_time: since.unwrap_or(Time(now)),
    };
    if known == Some(&condition) {
        return None;
    }
    let others = status.conditions.iter().filter(|condition| condition.type_ != REGISTERED).cloned();
    let conditions = others.chain([condition]).collect();
    Some(ConversionRulesStatus { conditions, ..status.clone() })
}

/// What a status says; one that cannot be read says nothing.
pub(super) fn status(object: &DynamicObject) -> ConversionRulesStatus {
    let status = object.data.get("status").cloned().unwrap_or_default();
    serde_json::from_value(status).unwrap_or_default()
}

/// One object that this version cannot read must not keep the others from being served, so each is read for itself.
pub(super) fn parse(object: &DynamicObject) -> RulesObject {
    let created = object.metadata.creation_timestamp.as_ref();
    let in_force = status(object).in_force;
    let in_force = in_force.and_then(|passed| Some((passed.generation, content(&passed.spec).ok()?)));
    RulesObject {
        name: object.name_any(),
        uid: object.uid().unwrap_or_default(),
        generation: object.metadata.generation.unwrap_or_default(),
        created: created.map_or(i64::MAX, |time| time.0.as_second()),
        rules: content(object.data.get("spec").unwrap_or(&Value::Null)),
        in_force,
    }
}

fn content(spec: &Value) -> Result<ConversionRules, String> {
    let object = json!({
        "apiVersion": "restow.dev/v1alpha1", "kind": "ConversionRules", "metadata": {}, "spec": spec,
    });
    serde_json::from_value(object).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).unwrap()
    }

    #[test]
    fn the_condition_registered_is_written_when_something_changes() {
        let yes = Registration {
            registered: true,
            reason: "Registered".to_owned(),
            message: "API servers call the webhook".to_owned(),
        };
        let first = with_registration(&ConversionRulesStatus::default(), &yes, Some(1), at(0)).unwrap();
        assert_eq!(with_registration(&first, &yes, Some(1), at(5)), None);
        let held = Registration { reason: "ObjectsWouldChange".to_owned(), ..yes.clone() };
        let second = with_registration(&first, &held, Some(2), at(5)).unwrap();
        assert_eq!(second.conditions.len(), 1);
        assert_eq!(second.conditions[0].last_transition_time.0, at(0), "it is still registered");
        let no = Registration { registered: false, ..held };
        let third = with_registration(&second, &no, Some(2), at(9)).unwrap();
        assert_eq!(
            (third.conditions[0].status.as_str(), third.conditions[0].last_transition_time.0),
            ("False", at(9))
        );
    }

    #[test]
    fn rules_in_force_are_read_beside_rules_that_cannot_be() {
        let good = json!({"group": "example.com", "kind": "Widget", "hops": []});
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "restow.dev/v1alpha1", "kind": "ConversionRules",
            "metadata": {"name": "w", "uid": "u", "generation": 4},
            "spec": {"group": "example.com", "kind": "Widget", "hops": [], "from": "the future"},
            "status": {"inForce": {"generation": 3, "spec": good}},
        }))
        .unwrap();
        let parsed = parse(&object);
        assert!(parsed.rules.is_err());
        let (generation, rules) = parsed.in_force.unwrap();
        assert_eq!((generation, rules.spec.kind.as_str()), (3, "Widget"));
    }
}
