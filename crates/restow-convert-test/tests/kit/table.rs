//! Table tests.

use restow_convert_test::{Row, Table};
use serde_json::json;

use crate::backup::{FORGETFUL, backup, chain};

fn table() -> Table {
    Table::new()
        .row(Row::converts(
            "the schedule is called cron",
            backup("v1beta1", json!({"schedule": "0 3 * * *", "timezone": "Europe/Berlin"})),
            backup("v1", json!({"cron": "0 3 * * *"})),
        ))
        .row(Row::fails("no schedule", backup("v1beta1", json!({})), "v1", "missing field `schedule`"))
        .row(Row::fails(
            "another version",
            backup("v1", json!({"cron": ""})),
            "v2",
            "unknown version v2; known",
        ))
}

#[test]
fn a_table_of_a_correct_conversion_passes() {
    table().check(&chain()).unwrap();
}

#[test]
fn an_annotation_is_compared_if_the_row_has_one() {
    let old = backup("v1beta1", json!({"schedule": "", "timezone": "UTC"}));
    let mut new = backup("v1", json!({"cron": ""}));
    new["metadata"]["annotations"] = json!({"restow.dev/conversion-data": "something else"});
    let failures = Table::new().row(Row::converts("kept", old, new)).check(&chain()).unwrap_err();
    assert!(failures.to_string().contains("+     restow.dev/conversion-data: "), "{failures}");
}

#[test]
fn all_rows_that_fail_are_shown_with_what_differs() {
    let failures = table()
        .row(Row::converts(
            "another cron",
            backup("v1beta1", json!({"schedule": "a"})),
            backup("v1", json!({"cron": "b"})),
        ))
        .row(Row::fails("no error", backup("v1beta1", json!({"schedule": "a"})), "v1", "refused"))
        .row(Row::fails("another error", backup("v1", json!({"cron": ""})), "v2", "refused"))
        .row(Row::converts("an error", backup("v1beta1", json!({})), backup("v1", json!({}))))
        .check(&FORGETFUL)
        .unwrap_err();
    let expected = "\
4 failed, of 7 rows

  another cron
    the result differs (- expected, + result)
      metadata:
        name: nightly
      spec:
    -   cron: b
    +   cron: a

  no error
    the conversion to v1 should fail with \"refused\", but the result is
    apiVersion: example.com/v1
    kind: Backup
    metadata:
      name: nightly
    spec:
      cron: a

  another error
    the error should contain
      refused
    but it is
      unknown version v2; known versions: v1beta1, v1

  an error
    the conversion to v1 failed: the object is not a valid v1beta1: missing field `schedule`
";
    assert_eq!(failures.to_string(), expected);
    assert_eq!(format!("{failures:?}"), expected);
}
