//! The version harness without a server.

use std::cell::RefCell;
use std::convert::Infallible;

use restow_convert_test::{Converted, VersionTest, WithoutServer};
use serde_json::json;

use crate::backup::{FORGETFUL, backup, chain, definition};

fn seed() -> serde_json::Value {
    backup("v1beta1", json!({"schedule": "0 3 * * *", "timezone": "UTC"}))
}

#[tokio::test]
async fn the_test_runs_at_the_start_and_after_each_step() {
    let seen = RefCell::new(Vec::new());
    let test = async |step: &Converted| {
        seen.borrow_mut().push((step.version.clone(), step.object["spec"].clone()));
        Ok::<_, Infallible>(())
    };
    let chain = chain();
    VersionTest::new(&definition(), seed()).run(&mut WithoutServer::new(&chain), test).await.unwrap();
    let old = ("v1beta1".to_owned(), seed()["spec"].clone());
    let new = ("v1".to_owned(), json!({"cron": "0 3 * * *"}));
    assert_eq!(seen.into_inner(), [old.clone(), new, old]);
}

#[tokio::test]
async fn a_test_that_fails_names_its_step() {
    let test = async |step: &Converted| match step.version.as_str() {
        "v1" => Err("there is no schedule"),
        _ => Ok(()),
    };
    let chain = chain();
    let ran = VersionTest::new(&definition(), seed()).run(&mut WithoutServer::new(&chain), test).await;
    let expected = "\
1 failed, of 3 versions on the way from v1beta1 to v1 and back

  step 1, from v1beta1 to v1
    the test failed: there is no schedule
";
    assert_eq!(ran.unwrap_err().to_string(), expected);
}

#[tokio::test]
async fn what_is_lost_on_the_way_is_a_failure_at_the_end() {
    let nothing = async |_: &Converted| Ok::<_, Infallible>(());
    let ran = VersionTest::new(&definition(), seed()).run(&mut WithoutServer::new(&FORGETFUL), nothing).await;
    let failures = ran.unwrap_err().to_string();
    assert!(failures.contains("step 2, from v1 to v1beta1"), "{failures}");
    assert!(failures.contains("-   timezone: UTC"), "{failures}");
}

#[tokio::test]
async fn a_range_that_is_none_is_refused() {
    let test = VersionTest::new(&definition(), seed());
    let cases = [
        (test.clone().max("v2"), "the CRD has no version v2; it has v1beta1, v1"),
        (test.clone().max("v1beta1"), "v1beta1 is not newer than v1beta1"),
        (test.clone().min("v1"), "v1 is not newer than v1"),
        (
            VersionTest::new(&definition(), backup("v1", json!({"cron": ""}))),
            "the version of the seed object is v1; it must be v1beta1",
        ),
    ];
    let chain = chain();
    for (test, expected) in cases {
        let nothing = async |_: &Converted| Ok::<_, Infallible>(());
        let ran = test.run(&mut WithoutServer::new(&chain), nothing).await;
        let failures = ran.unwrap_err().to_string();
        assert!(failures.contains(expected), "{failures}");
    }
}
