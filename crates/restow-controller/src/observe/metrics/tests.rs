//! What Prometheus reads.

use std::collections::BTreeSet;

use jiff::Timestamp;
use restow_api::{ConditionStatus, MigrationCondition};
use restow_core::resource::name::GroupResource;
use restow_core::rewrite::outcome::Outcome;
use restow_core::rewrite::progress::{Counts, Phase, Progress};
use restow_core::rewrite::prune::Refusal;

use super::*;

/// The value of one line, by its name and labels; none when it is not there.
fn value(metrics: &Metrics, line: &str) -> Option<f64> {
    let text = metrics.encode();
    let mut values = text.lines().filter_map(|other| other.strip_prefix(line)?.strip_prefix(' '));
    let value = values.next()?.parse().unwrap();
    assert_eq!(values.next(), None, "{line} is there twice");
    Some(value)
}

fn quarantined() -> Outcome {
    Outcome::Quarantined { reason: "Invalid".to_owned(), message: "no".to_owned() }
}

fn progress(phase: Phase, expected: u64, done: u64) -> Progress {
    let name = GroupResource::new("example.com", "widgets");
    let counts = Counts { listed: done, current: done, ..Counts::default() };
    Progress {
        phase,
        expected: Some(expected),
        counts,
        verify: counts,
        ..Progress::new(name, "v1", "hash", Timestamp::UNIX_EPOCH)
    }
}

#[test]
fn objects_are_counted_under_new_and_old_names() {
    let metrics = Metrics::default();
    let widgets = metrics.resource("widgets.example.com");
    widgets.pass(&progress(Phase::Rewriting, 6, 0));
    let outcomes =
        [Outcome::Rewritten, Outcome::Rewritten, Outcome::Current, Outcome::Conflicted, Outcome::Gone];
    outcomes.iter().for_each(|outcome| widgets.decided(outcome));
    widgets.decided(&quarantined());
    let again = Outcome::Retry {
        after: None,
        blame: restow_core::rewrite::outcome::Blame::Server,
        overloaded: true,
        reason: String::new(),
        message: String::new(),
    };
    widgets.decided(&again);
    for (outcome, count) in
        [("rewritten", 2.0), ("current", 1.0), ("conflicted", 1.0), ("gone", 1.0), ("quarantined", 1.0)]
    {
        let line = format!("restow_objects_total{{resource=\"widgets.example.com\",outcome=\"{outcome}\"}}");
        assert_eq!(value(&metrics, &line), Some(count), "{line}");
    }
    let migrated = "storage_migrator_core_migrator_migrated_objects{resource=\"widgets.example.com\"}";
    assert_eq!(value(&metrics, migrated), Some(4.0));

    // What is looked at again to verify it was migrated before.
    widgets.pass(&progress(Phase::Verifying, 6, 0));
    widgets.decided(&Outcome::Current);
    assert_eq!(value(&metrics, migrated), Some(4.0));
    let current = "restow_objects_total{resource=\"widgets.example.com\",outcome=\"current\"}";
    assert_eq!(value(&metrics, current), Some(2.0));

    // Another handle goes on with the same counts.
    metrics.resource("widgets.example.com").decided(&Outcome::Rewritten);
    assert_eq!(value(&metrics, migrated), Some(5.0));
}

#[test]
fn remaining_objects_are_set_after_each_page() {
    let metrics = Metrics::default();
    let widgets = metrics.resource("widgets.example.com");
    let remaining = "storage_migrator_core_migrator_remaining_objects{resource=\"widgets.example.com\"}";
    for (seen, expected) in [
        (progress(Phase::Rewriting, 1200, 0), 1200.0),
        (progress(Phase::Rewriting, 1200, 500), 700.0),
        (Progress { expected: None, ..progress(Phase::Rewriting, 0, 500) }, 700.0),
        (progress(Phase::Verifying, 1200, 1199), 1.0),
    ] {
        widgets.page(&seen);
        assert_eq!(value(&metrics, remaining), Some(expected), "{seen:?}");
    }
    widgets.done();
    assert_eq!(value(&metrics, remaining), Some(0.0));
}

#[test]
fn ended_migrations_are_counted_by_result() {
    let metrics = Metrics::default();
    let of = |result: &str| value(&metrics, &format!("restow_migrations_total{{result=\"{result}\"}}"));
    assert_eq!((of("succeeded"), of("failed"), of("aborted")), (Some(0.0), Some(0.0), Some(0.0)));
    for how in [Ended::Succeeded, Ended::Succeeded, Ended::Failed, Ended::Superseded, Ended::Aborted] {
        metrics.ended("secrets", how);
    }
    assert_eq!((of("succeeded"), of("failed"), of("aborted")), (Some(2.0), Some(1.0), Some(2.0)));
    let old = "storage_migrator_core_migrator_migrations";
    let of = |status: &str| value(&metrics, &format!("{old}{{resource=\"secrets\",status=\"{status}\"}}"));
    // One whose storage version has changed is Failed, as its condition says.
    assert_eq!((of("Succeeded"), of("Failed"), of("Aborted")), (Some(2.0), Some(2.0), None));
}

#[test]
fn migrations_are_counted_by_phase() {
    let migration = |holds: Option<ConditionType>, suspend: bool| {
        let mut migration = StorageVersionMigration::default();
        migration.spec.suspend = Some(suspend);
        let condition = |type_| MigrationCondition {
            type_,
            status: ConditionStatus::True,
            last_update_time: None,
            reason: None,
            message: None,
        };
        migration.status.get_or_insert_default().conditions = holds.map(condition).into_iter().collect();
        migration
    };
    let all = [
        migration(None, false),
        migration(None, true),
        migration(Some(ConditionType::Running), false),
        migration(Some(ConditionType::Running), false),
        migration(Some(ConditionType::Succeeded), true),
        migration(Some(ConditionType::Failed), false),
    ];
    let metrics = Metrics::default();
    let counts =
        || PHASES.map(|phase| value(&metrics, &format!("restow_migrations{{phase=\"{phase}\"}}")).unwrap());
    assert_eq!(counts(), [0.0; 5]);
    metrics.migrations(&all);
    assert_eq!(counts(), [1.0, 1.0, 2.0, 1.0, 1.0]);
    metrics.migrations(&all[..1]);
    assert_eq!(counts(), [1.0, 0.0, 0.0, 0.0, 0.0]);
}

#[test]
fn other_metrics_are_counted() {
    let metrics = Metrics::default();
    metrics.leading(true);
    metrics.triggered(Reason::StaleHeartbeat);
    metrics.disagreeing(2);
    metrics.unsettled(3);
    metrics.page(Duration::from_millis(70));
    metrics.page(Duration::from_secs(1000));
    metrics.in_flight_limit(12.5);
    metrics.pruned(&Ok(None));
    metrics.pruned(&Ok(Some(Pruned { before: Vec::new(), after: Vec::new() })));
    metrics.pruned(&Err(Refusal::Unverified.into()));
    for (line, expected) in [
        ("restow_leader", 1.0),
        ("restow_trigger_decisions_total{reason=\"stale_heartbeat\"}", 1.0),
        ("restow_trigger_decisions_total{reason=\"disagreement\"}", 0.0),
        ("restow_disagreeing_resources", 2.0),
        ("restow_storage_states_unsettled", 3.0),
        ("restow_pages_total", 2.0),
        ("restow_page_seconds_count", 2.0),
        ("restow_page_seconds_bucket{le=\"0.05\"}", 0.0),
        ("restow_page_seconds_bucket{le=\"0.1\"}", 1.0),
        ("restow_page_seconds_bucket{le=\"+Inf\"}", 2.0),
        ("restow_in_flight_limit", 12.5),
        ("restow_prunes_total{result=\"unneeded\"}", 1.0),
        ("restow_prunes_total{result=\"pruned\"}", 1.0),
        ("restow_prunes_total{result=\"refused\"}", 1.0),
        ("restow_prunes_total{result=\"failed\"}", 0.0),
        (concat!("restow_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"}"), 1.0),
    ] {
        assert_eq!(value(&metrics, line), Some(expected), "{line} in\n{}", metrics.encode());
    }
    metrics.leading(false);
    assert_eq!(value(&metrics, "restow_leader"), Some(0.0));
}

/// Every sample has a type line of its own name, and every type is one of Prometheus' text format.
#[test]
fn the_text_is_in_prometheus_format() {
    let metrics = Metrics::default();
    metrics.resource("widgets.example.com").decided(&Outcome::Current);
    metrics.ended("widgets.example.com", Ended::Succeeded);
    let text = metrics.encode();
    let mut types = BTreeSet::new();
    for line in text.lines() {
        if let Some(type_) = line.strip_prefix("# TYPE ") {
            let (name, type_) = type_.split_once(' ').unwrap();
            assert!(["counter", "gauge", "histogram"].contains(&type_), "{line}");
            assert_eq!(type_ == "counter" && name.starts_with("restow"), name.ends_with("_total"), "{line}");
            types.insert(name);
        } else if !line.starts_with("# HELP ") {
            let name = line.split(['{', ' ']).next().unwrap();
            let histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            assert!(types.contains(name) || histogram.is_some_and(|name| types.contains(name)), "{line}");
        }
    }
    assert_eq!(types.len(), 18, "{types:?}");
}
