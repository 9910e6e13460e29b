//! The gates of converters from ConversionRules.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use restow_convert::rules::{ConversionRules, accepted_losses, compile};
use restow_convert::{Chain, Trial, try_on};
use serde_json::Value;

use super::gates::ConverterGates;
use crate::rules::RulesFollower;

/// How many problems a message has at most.
const SHOWN: usize = 5;

/// The gates of what a [`RulesFollower`] serves.
pub struct RulesGates {
    follower: Arc<RulesFollower>,
    /// The rules that every replica was last seen to serve, by CRD.
    served: Mutex<BTreeMap<String, Arc<Tried>>>,
}

/// Rules, and the converter that they make for a CRD.
struct Tried {
    rules: ConversionRules,
    chain: Chain,
}

impl RulesGates {
    /// The gates of what a follower serves.
    pub fn new(follower: Arc<RulesFollower>) -> Self {
        Self { follower, served: Mutex::default() }
    }
}

impl ConverterGates for RulesGates {
    fn crds(&self) -> Vec<String> {
        self.follower.served().crds()
    }

    async fn is_served(&self, crd: &CustomResourceDefinition) -> Result<(), String> {
        let rules = self.follower.rules_served_by_all(crd, restow_clock::now()).await?;
        let chain = compile(&rules.spec, crd)
            .map_err(|problems| shown(problems.iter().map(ToString::to_string).collect()))?;
        let name = crd.metadata.name.clone().unwrap_or_default();
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        served.insert(name, Arc::new(Tried { rules, chain }));
        Ok(())
    }

    fn try_on(&self, crd: &CustomResourceDefinition, objects: Vec<(String, Value)>) -> Result<(), String> {
        let name = crd.metadata.name.as_deref().unwrap_or_default();
        let served = self.served.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        let tried = served.ok_or_else(|| format!("there are no rules for {name}; create them"))?;
        let trials = try_on(&tried.chain, objects).map_err(|(object, error)| format!("{object}: {error}"))?;
        let problems: Vec<String> =
            trials.into_iter().flat_map(|trial| problems(&tried.rules, &trial)).collect();
        if problems.is_empty() {
            return Ok(());
        }
        Err(format!(
            "live objects would not survive the conversion: {}; change the rules, or the objects",
            shown(problems)
        ))
    }
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

    use super::*;

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
