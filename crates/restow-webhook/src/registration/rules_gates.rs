//! The gates of converters from ConversionRules.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use restow_convert::rules::{ConversionRules, accepted_losses, compile};
use restow_convert::{Chain, Trial, try_on};
use serde_json::Value;

use super::gates::{ConverterGates, CrdState, TryOn};
use crate::rules::{Registration, RulesFollower};

/// How many problems a message has at most.
const SHOWN: usize = 5;
/// No message of a condition is longer: Kubernetes allows 32768 bytes.
const LONGEST_MESSAGE: usize = 4096;

/// The gates of what a [`RulesFollower`] serves.
pub struct RulesGates {
    follower: Arc<RulesFollower>,
    /// The rules that every replica was last seen to serve, by CRD.
    served: Mutex<BTreeMap<String, Arc<Tried>>>,
}

/// Rules, and the converter that they make for a CRD.
struct Tried {
    generation: i64,
    rules: ConversionRules,
    chain: Chain,
}

impl Tried {
    fn try_on(&self, objects: Vec<(String, Value)>) -> Result<(), String> {
        let trials = try_on(&self.chain, objects).map_err(|(object, error)| format!("{object}: {error}"))?;
        let problems: Vec<String> =
            trials.into_iter().flat_map(|trial| problems(&self.rules, &trial)).collect();
        if problems.is_empty() {
            return Ok(());
        }
        Err(format!(
            "live objects would not survive the conversion: {}; change the rules, or the objects",
            shown(problems)
        ))
    }
}

impl RulesGates {
    /// The gates of what a follower serves.
    pub fn new(follower: Arc<RulesFollower>) -> Self {
        Self { follower, served: Mutex::default() }
    }

    /// Remembers rules that are tried next.
    fn remember(
        &self,
        crd: &CustomResourceDefinition,
        generation: i64,
        rules: ConversionRules,
    ) -> Result<(), String> {
        let chain = compile(&rules.spec, crd)
            .map_err(|problems| shown(problems.iter().map(ToString::to_string).collect()))?;
        let tried = Arc::new(Tried { generation, rules, chain });
        self.served.lock().unwrap_or_else(PoisonError::into_inner).insert(name(crd).to_owned(), tried);
        Ok(())
    }

    fn tried(&self, crd: &CustomResourceDefinition) -> Option<Arc<Tried>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner).get(name(crd)).cloned()
    }
}

fn name(crd: &CustomResourceDefinition) -> &str {
    crd.metadata.name.as_deref().unwrap_or_default()
}

impl ConverterGates for RulesGates {
    fn crds(&self) -> Vec<String> {
        self.follower.served().crds()
    }

    async fn is_served(&self, crd: &CustomResourceDefinition) -> Result<(), String> {
        let (generation, rules) = self.follower.rules_served_by_all(crd, restow_clock::now()).await?;
        self.remember(crd, generation, rules)
    }

    fn try_on(&self, crd: &CustomResourceDefinition, objects: Vec<(String, Value)>) -> Result<(), String> {
        let tried = self.tried(crd);
        tried.ok_or_else(|| format!("there are no rules for {}; create them", name(crd)))?.try_on(objects)
    }

    fn trial(&self, crd: &CustomResourceDefinition) -> Option<TryOn> {
        let tried = self.tried(crd)?;
        Some(Arc::new(move |objects| tried.try_on(objects)))
    }

    fn revision(&self, crd: &CustomResourceDefinition) -> i64 {
        self.tried(crd).map_or(0, |tried| tried.generation)
    }

    async fn changed(&self, crd: &CustomResourceDefinition) -> Result<Option<i64>, String> {
        let Some((generation, rules)) = self.follower.changed_rules(name(crd)).await? else {
            return Ok(None);
        };
        // Rules that do not fit the CRD are not tried: the condition Valid says why.
        Ok(self.remember(crd, generation, rules).is_ok().then_some(generation))
    }

    async fn passed(&self, crd: &CustomResourceDefinition) -> Result<(), String> {
        let tried = self.tried(crd).ok_or("no rules were tried")?;
        self.follower.put_in_force(name(crd), tried.generation).await
    }

    async fn report(&self, crd: &str, state: &CrdState) {
        let registration = registration(crd, state);
        if let Err(error) = self.follower.report_registration(crd, &registration).await {
            tracing::warn!(crd, "could not report whether the webhook is registered: {error}");
        }
    }
}

/// What the condition Registered says.
fn registration(crd: &str, state: &CrdState) -> Registration {
    let (registered, reason, message) = match state {
        CrdState::Registered => {
            (true, "Registered".to_owned(), format!("API servers call the webhook for {crd}"))
        }
        CrdState::LeftAlone(why) => (true, "LeftAlone".to_owned(), why.clone()),
        CrdState::Held(closed) => {
            let message =
                format!("the rules as they are now are not used; those that passed before are: {closed}");
            (true, closed.gate.to_string(), message)
        }
        CrdState::Waiting(closed) => (false, closed.gate.to_string(), closed.message.clone()),
    };
    Registration { registered, reason, message: message.chars().take(LONGEST_MESSAGE).collect() }
}

/// What a trial refused, and what it lost besides the losses that the rules accept.
fn problems(rules: &ConversionRules, trial: &Trial) -> Vec<String> {
    let (from, to) = (&trial.from, &trial.to);
    let accepted = accepted_losses(&rules.spec, from, to);
    let refused = trial.refused.iter().map(|refusal| {
        format!("{} cannot be converted from {from} to {to}: {}", refusal.object, refusal.message)
    });
    let lost = trial.lost.iter().filter(|(place, _)| !accepted.contains(place));
    let lost = lost.map(|(place, count)| {
        format!("{place} does not come back from {to} to {from}, in {count} objects of one page")
    });
    refused.chain(lost).collect()
}

/// The first problems, and how many more there are.
fn shown(mut problems: Vec<String>) -> String {
    let more = problems.len().saturating_sub(SHOWN);
    problems.truncate(SHOWN);
    let text = problems.join("; ");
    if more == 0 { text } else { format!("{text}; and {more} more") }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use restow_convert::Refusal;
    use serde_json::json;

    use super::super::gates::{Closed, Gate};
    use super::*;

    #[test]
    fn the_condition_says_which_rules_are_used_and_why() {
        let closed = Closed { gate: Gate::Objects, message: "spec.color would be lost".to_owned() };
        for (state, registered, reason, message) in [
            (CrdState::Registered, true, "Registered", "API servers call the webhook for w.example.com"),
            (
                CrdState::Held(closed.clone()),
                true,
                "ObjectsWouldChange",
                "are not used; those that passed before are",
            ),
            (CrdState::Waiting(closed), false, "ObjectsWouldChange", "spec.color would be lost"),
            (CrdState::LeftAlone("cert-manager".to_owned()), true, "LeftAlone", "cert-manager"),
        ] {
            let found = registration("w.example.com", &state);
            assert_eq!((found.registered, found.reason.as_str()), (registered, reason));
            assert!(found.message.contains(message), "{}", found.message);
        }
    }

    fn rules() -> ConversionRules {
        let rules = json!({
            "apiVersion": "restow.dev/v1alpha1", "kind": "ConversionRules", "metadata": {"name": "widgets"},
            "spec": {"group": "example.com", "kind": "Widget", "hops": [{"older": "v1", "newer": "v2", "rules": []}]},
        });
        serde_json::from_value(rules).unwrap()
    }

    #[test]
    fn refusals_and_losses_close_the_gate_and_fields_that_are_kept_do_not() {
        let refusal =
            Refusal { object: "default/a".to_owned(), message: "spec.size is no number".to_owned() };
        let trial = Trial {
            from: "v1".to_owned(),
            to: "v2".to_owned(),
            objects: 3,
            refused: vec![refusal],
            lost: BTreeMap::from([("spec.color".to_owned(), 2)]),
            kept: BTreeMap::from([("spec.legacy".to_owned(), 3)]),
        };
        assert_eq!(
            problems(&rules(), &trial),
            [
                "default/a cannot be converted from v1 to v2: spec.size is no number",
                "spec.color does not come back from v2 to v1, in 2 objects of one page",
            ]
        );
        let kept = Trial { refused: Vec::new(), lost: BTreeMap::new(), ..trial };
        assert_eq!(problems(&rules(), &kept), Vec::<String>::new());
    }

    #[test]
    fn a_message_shows_the_first_problems_and_counts_the_others() {
        let many: Vec<String> = (0..7).map(|number| format!("p{number}")).collect();
        assert_eq!(shown(many), "p0; p1; p2; p3; p4; and 2 more");
        assert_eq!(shown(vec!["p".to_owned()]), "p");
    }
}
