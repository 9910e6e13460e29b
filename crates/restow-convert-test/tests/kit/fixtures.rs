//! Fixture folders with snapshots.

use std::fs;

use restow_convert_test::Fixtures;
use serde_json::json;

use crate::backup::{Defect, FORGETFUL, chain};

const OLD: &str = "\
apiVersion: example.com/v1beta1
kind: Backup
metadata: {name: nightly}
spec: {schedule: 0 3 * * *, timezone: UTC}
";

/// A folder with one object of each version; the second one cannot be converted.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for version in ["v1beta1", "v1"] {
        fs::create_dir(folder.path().join(version)).unwrap();
    }
    fs::write(folder.path().join("v1beta1/nightly.yaml"), OLD).unwrap();
    let broken = "apiVersion: example.com/v1\nkind: Backup\nmetadata: {name: broken}\nspec: {}\n";
    fs::write(folder.path().join("v1/broken.yaml"), broken).unwrap();
    folder
}

#[test]
fn snapshots_are_written_on_request_and_compared_otherwise() {
    let folder = folder();
    let fixtures = Fixtures::at(folder.path()).update(false);
    let missing = fixtures.check(&chain()).unwrap_err();
    assert_eq!(missing.failures.len(), 2, "{missing}");
    assert!(missing.to_string().contains("to write it, set RESTOW_UPDATE_SNAPSHOTS=1"), "{missing}");

    fixtures.clone().update(true).check(&chain()).unwrap();
    let snapshot = fs::read_to_string(folder.path().join("v1beta1/nightly.to-v1.yaml")).unwrap();
    assert!(
        snapshot.contains("  cron: 0 3 * * *\n") && snapshot.contains("restow.dev/conversion-data"),
        "{snapshot}"
    );
    let refused = fs::read_to_string(folder.path().join("v1/broken.to-v1beta1.yaml")).unwrap();
    assert_eq!(refused, "# cannot be converted: the object is not a valid v1: missing field `cron`\n");
    fixtures.check(&chain()).unwrap();

    let other = Defect(|object| object["spec"]["cron"] = json!("never"));
    let failures = fixtures.check(&other).unwrap_err();
    assert!(failures.to_string().contains("-   cron: 0 3 * * *\n    +   cron: never"), "{failures}");
}

#[test]
fn a_snapshot_that_hides_a_loss_is_still_a_failure() {
    let folder = folder();
    let failures = Fixtures::at(folder.path()).update(true).check(&FORGETFUL).unwrap_err();
    assert!(failures.to_string().contains("-   timezone: UTC"), "{failures}");
}

#[test]
fn files_that_do_not_belong_there_are_reported() {
    let folder = folder();
    let fixtures = Fixtures::at(folder.path()).update(false);
    fixtures.clone().update(true).check(&chain()).unwrap();
    fs::write(folder.path().join("v1/gone.to-v1beta1.yaml"), "").unwrap();
    fs::write(folder.path().join("v1/wrong.yaml"), OLD).unwrap();
    fs::write(folder.path().join("v1/text.yaml"), "{").unwrap();
    let failures = fixtures.check(&chain()).unwrap_err();
    let names: Vec<_> = failures.failures.iter().map(|failure| failure.name.as_str()).collect();
    assert_eq!(names, ["v1/text.yaml", "v1/wrong.yaml", "v1/gone.to-v1beta1.yaml"], "{failures}");
    assert!(failures.to_string().contains("in the folder v1, but its version is v1beta1"), "{failures}");
}

#[test]
fn a_folder_without_objects_proves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().to_owned(), folder.path().join("none")] {
        Fixtures::at(path).update(false).check(&chain()).unwrap_err();
    }
}
