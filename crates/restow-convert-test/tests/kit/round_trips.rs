//! Round trips of generated objects.

use restow_convert_test::RoundTrips;
use serde_json::json;

use crate::backup::{Defect, FORGETFUL, chain, definition};

#[test]
fn a_correct_conversion_passes() {
    RoundTrips::of(&definition()).check(&chain()).unwrap();
    RoundTrips::of(&definition()).seed(7).objects(500).check(&chain()).unwrap();
}

#[test]
fn a_loss_is_reported_with_the_seed_and_the_smallest_object() {
    let failures = RoundTrips::of(&definition()).seed(7).check(&FORGETFUL).unwrap_err();
    assert_eq!(failures.checked, "2 pairs of versions, 100 objects each, seed 7");
    let [up, down] = &failures.failures[..] else { panic!("{failures}") };
    assert_eq!((up.name.as_str(), down.name.as_str()), ("v1beta1 to v1 and back", "v1 to v1beta1 and back"));
    let lines: Vec<_> = up.detail.lines().filter(|line| !line.contains("schedule")).collect();
    let object = lines.iter().position(|line| *line == "the object is (seed 7)").unwrap();
    assert!(lines[..object].iter().any(|line| line.starts_with("-   timezone: ")), "{failures}");
    // The schedule is required; the timezone is what is lost.
    assert!(lines[object..].iter().any(|line| line.starts_with("  timezone: ")), "{failures}");
    assert!(down.detail.contains("-   retries: "), "{failures}");
}

#[test]
fn a_loss_that_is_accepted_is_no_failure() {
    let trips = RoundTrips::of(&definition()).lossy("spec.timezone").lossy("spec.retries");
    trips.check(&FORGETFUL).unwrap();
}

#[test]
fn an_object_that_the_api_server_would_refuse_or_prune_is_reported() {
    let cases: [(Defect, &str); 3] = [
        (Defect(|object| object["spec"]["extra"] = json!(1)), "spec.extra: the schema has no such field"),
        (Defect(|object| object["spec"]["retries"] = json!("many")), "spec.retries"),
        (
            Defect(|object| drop(object["spec"].as_object_mut().unwrap().remove("cron"))),
            "spec.cron: the schema requires it",
        ),
    ];
    for (defect, expected) in cases {
        let failures = RoundTrips::of(&definition()).check(&defect).unwrap_err();
        assert!(failures.to_string().contains(expected), "{expected}: {failures}");
    }
}

#[test]
fn an_object_that_cannot_be_made_is_reported() {
    let mut definition = definition();
    let version = &mut definition.spec.versions[0];
    let schema = version.schema.as_mut().unwrap().open_api_v3_schema.as_mut().unwrap();
    let spec = schema.properties.as_mut().unwrap().get_mut("spec").unwrap();
    spec.properties.as_mut().unwrap().get_mut("cron").unwrap().pattern = Some("^x+$".to_owned());
    let failures = RoundTrips::of(&definition).check(&chain()).unwrap_err();
    assert!(failures.to_string().contains("propose some with texts()"), "{failures}");
    let proposed = RoundTrips::of(&definition).texts(|path| match path.last().map(String::as_str) {
        Some("cron") => vec!["xx".to_owned()],
        _ => Vec::new(),
    });
    proposed.check(&chain()).unwrap();
}

#[test]
fn a_definition_with_one_version_proves_nothing() {
    let mut definition = definition();
    definition.spec.versions.truncate(1);
    let failures = RoundTrips::of(&definition).check(&chain()).unwrap_err();
    assert!(failures.to_string().contains("fewer than two versions"), "{failures}");
}
