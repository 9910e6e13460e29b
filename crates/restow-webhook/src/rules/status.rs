//! The status that a verdict makes.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use restow_convert::rules::{ConversionRulesStatus, VALID};

use super::plan::{Validity, Verdict};
use super::replicas::report;

/// The status after this replica has said what it thinks and serves. None if nothing needs to be written.
pub(super) fn updated(
    status: &ConversionRulesStatus,
    verdict: &Verdict,
    replica: &str,
    now: Timestamp,
) -> Option<ConversionRulesStatus> {
    let replicas = report(&status.replicas, replica, verdict.served, now);
    let known = status.conditions.iter().find(|condition| condition.type_ == VALID);
    let state = match verdict.validity {
        Validity::Valid => "True",
        Validity::Invalid => "False",
        Validity::Unknown => "Unknown",
    };
    let same = known.is_some_and(|known| {
        known.status == state
            && known.reason == verdict.reason
            && known.message == verdict.message
            && known.observed_generation == Some(verdict.generation)
    });
    if same && replicas.is_none() && status.observed_generation == Some(verdict.generation) {
        return None;
    }
    let since = known.filter(|known| known.status == state).map(|known| known.last_transition_time.clone());
    let condition = Condition {
        type_: VALID.to_owned(),
        status: state.to_owned(),
        reason: verdict.reason.to_owned(),
        message: verdict.message.clone(),
        observed_generation: Some(verdict.generation),
        last_transition_time: since.unwrap_or(Time(now)),
    };
    let mut conditions: Vec<_> =
        status.conditions.iter().filter(|condition| condition.type_ != VALID).cloned().collect();
    conditions.push(condition);
    Some(ConversionRulesStatus {
        observed_generation: Some(verdict.generation),
        conditions,
        replicas: replicas.unwrap_or_else(|| status.replicas.clone()),
        in_force: status.in_force.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).unwrap()
    }

    fn verdict(validity: Validity, reason: &'static str) -> Verdict {
        Verdict {
            name: "widgets".to_owned(),
            generation: 3,
            validity,
            reason,
            message: reason.to_owned(),
            served: (3, 7),
        }
    }

    #[test]
    fn a_status_is_written_once_and_when_it_changes() {
        let valid = verdict(Validity::Valid, "Compiled");
        let first = updated(&ConversionRulesStatus::default(), &valid, "a", at(0)).unwrap();
        assert_eq!(first.observed_generation, Some(3));
        assert_eq!((first.conditions.len(), first.replicas.len()), (1, 1));
        assert_eq!(updated(&first, &valid, "a", at(1)), None);
        let second = updated(&first, &valid, "b", at(1)).unwrap();
        assert_eq!((second.conditions.len(), second.replicas.len()), (1, 2));
        assert_eq!(second.conditions[0].last_transition_time.0, at(0));
        let broken = updated(&second, &verdict(Validity::Invalid, "DoesNotCompile"), "a", at(2)).unwrap();
        assert_eq!(broken.conditions[0].last_transition_time.0, at(2));
        assert_eq!((broken.conditions[0].status.as_str(), broken.replicas.len()), ("False", 2));
    }

    #[test]
    fn conditions_of_others_are_left_alone() {
        let valid = verdict(Validity::Valid, "Compiled");
        let mut status = updated(&ConversionRulesStatus::default(), &valid, "a", at(0)).unwrap();
        let registered = Condition { type_: "Registered".to_owned(), ..status.conditions[0].clone() };
        status.conditions.push(registered.clone());
        let next = updated(&status, &verdict(Validity::Invalid, "NoDefinition"), "a", at(1)).unwrap();
        assert!(next.conditions.contains(&registered));
        assert_eq!(next.conditions.len(), 2);
    }
}
