//! Table tests of what an answer means, alone, with a look-up, and after repeated failures.

use super::*;

#[test]
fn an_answer_that_does_not_refuse_may_hide_a_write() {
    for unsent in [false, true] {
        let broken = Answer::Broken { message: "no connection".to_owned(), unsent };
        assert_eq!(broken.hides_a_write(), !unsent);
    }
    for (code, hides) in [
        (200, true),
        (302, false),
        (401, false),
        (404, false),
        (408, true),
        (409, false),
        (422, false),
        (429, false),
        (500, true),
        (503, true),
        (504, true),
    ] {
        assert_eq!(Answer::http(code).hides_a_write(), hides, "{code}");
    }
    assert!(!Answer::http(200).with_versions("7", Some("8")).hides_a_write());
}

#[test]
fn every_status_code_has_one_meaning() {
    let name = |outcome: &Outcome| match outcome {
        Outcome::Rewritten => "rewritten",
        Outcome::Current => "current",
        Outcome::Conflicted => "conflicted",
        Outcome::Gone => "gone",
        Outcome::Accepted => "accepted",
        Outcome::Refused { .. } => "refused",
        Outcome::Quarantined { .. } => "quarantined",
        Outcome::Doubtful(_) => "doubtful",
        Outcome::Retry { blame: Blame::Object, .. } => "again, object",
        Outcome::Retry { blame: Blame::Server, .. } => "again, server",
        Outcome::Retry { blame: Blame::Credentials, .. } => "again, credentials",
        Outcome::Retry { blame: Blame::Refusal, .. } => "again, refusal",
    };
    for (code, expected) in [
        (0, "refused"),
        (302, "again, object"),
        (400, "refused"),
        (401, "again, credentials"),
        (403, "refused"),
        (404, "doubtful"),
        (405, "refused"),
        (408, "again, server"),
        (409, "doubtful"),
        (410, "doubtful"),
        (413, "refused"),
        (415, "refused"),
        (418, "refused"),
        (422, "refused"),
        (429, "again, server"),
        (500, "again, object"),
        (501, "again, object"),
        (502, "again, server"),
        (503, "again, server"),
        (504, "again, server"),
        (599, "again, object"),
    ] {
        assert_eq!(name(&classify(&Answer::http(code))), expected, "{code}");
    }
}

#[test]
fn no_message_is_empty() {
    for code in [0, 200, 302, 400, 401, 404, 409, 418, 429, 500, 599] {
        let message = match classify(&Answer::http(code)) {
            Outcome::Refused { message, reason }
            | Outcome::Retry { message, reason, .. }
            | Outcome::Doubtful(Doubt::Refusal { message, reason, .. }) => {
                assert!(!reason.is_empty(), "{code}");
                message
            }
            other => panic!("{code}: {other:?}"),
        };
        assert!(message.contains(&code.to_string()), "{code}: {message}");
    }
    let mut answer = Answer::http(302);
    if let Answer::Http { location, .. } = &mut answer {
        *location = Some("https://login.example.com/".to_owned());
    }
    let outcome = classify(&answer);
    assert!(matches!(&outcome, Outcome::Retry { message, .. } if message.contains("login.example.com")));
}

#[test]
fn a_success_is_classified_by_the_resource_version() {
    for (before, after, expected) in [
        ("7", Some("7"), Outcome::Current),
        ("7", Some("8"), Outcome::Rewritten),
        // etcd restored from a backup may go back; it was written all the same.
        ("7", Some("6"), Outcome::Rewritten),
    ] {
        assert_eq!(classify(&Answer::http(200).with_versions(before, after)), expected);
    }
    assert!(matches!(classify(&Answer::http(200)), Outcome::Retry { blame: Blame::Object, .. }));
    for (after, expected) in [("7", Outcome::Doubtful(Doubt::Terminating)), ("8", Outcome::Rewritten)] {
        let mut answer = Answer::http(200).with_versions("7", Some(after));
        if let Answer::Http { returned: Some(returned), .. } = &mut answer {
            returned.terminating = true;
        }
        assert_eq!(classify(&answer), expected);
    }
}

#[test]
fn a_success_must_be_about_the_object() {
    let object = Identity { namespace: "default", name: "a", uid: "1" };
    for (kind, answered, expected) in [
        ("PartialObjectMetadata", object, true),
        ("Widget", object, true),
        ("Status", object, false),
        ("", object, false),
        ("Widget", Identity { uid: "2", ..object }, false),
        ("Widget", Identity { uid: "", ..object }, false),
        ("Widget", Identity { name: "b", ..object }, false),
        ("Widget", Identity { namespace: "other", ..object }, false),
    ] {
        assert_eq!(is_about(object, "Widget", kind, answered), expected, "{kind} {answered:?}");
    }
}

#[test]
fn a_list_shows_whether_an_object_is_absent_changed_or_unchanged() {
    for (listed, expected) in [
        (None, LookupResult::Absent),
        (Some(("other", "7")), LookupResult::Absent),
        (Some(("", "7")), LookupResult::Absent),
        (Some(("uid", "8")), LookupResult::Changed),
        (Some(("uid", "7")), LookupResult::Unchanged),
    ] {
        assert_eq!(LookupResult::of("uid", "7", listed), expected, "{listed:?}");
    }
}

#[test]
fn a_doubtful_answer_counts_only_with_evidence_about_the_object() {
    let refusal = |status| Doubt::Refusal {
        status,
        after: None,
        reason: "NotFound".to_owned(),
        message: "no such team".to_owned(),
    };
    let unknown = || LookupResult::Unknown { message: "500".to_owned() };
    for (doubt, sighting, expected) in [
        (refusal(true), LookupResult::Absent, Ok(Outcome::Gone)),
        (refusal(false), LookupResult::Absent, Ok(Outcome::Gone)),
        (refusal(true), LookupResult::Changed, Ok(Outcome::Conflicted)),
        (refusal(true), LookupResult::Unchanged, Err(Blame::Refusal)),
        // A load balancer's own page.
        (refusal(false), LookupResult::Unchanged, Err(Blame::Object)),
        (refusal(true), unknown(), Err(Blame::Object)),
        (Doubt::Terminating, LookupResult::Absent, Ok(Outcome::Gone)),
        (Doubt::Terminating, LookupResult::Changed, Ok(Outcome::Conflicted)),
        (Doubt::Terminating, LookupResult::Unchanged, Ok(Outcome::Current)),
        (Doubt::Terminating, unknown(), Err(Blame::Object)),
    ] {
        let case = format!("{doubt:?}, {sighting:?}");
        let terminating = doubt == Doubt::Terminating;
        match (resolve(doubt, sighting), expected) {
            (Outcome::Retry { blame, message, .. }, Err(expected)) => {
                assert_eq!(blame, expected, "{case}");
                assert!(terminating || message.starts_with("no such team; "), "{case}: {message}");
            }
            (outcome, Ok(expected)) => assert_eq!(outcome, expected, "{case}"),
            (outcome, Err(_)) => panic!("{case}: {outcome:?}"),
        }
    }
}

#[test]
fn an_object_without_preconditions_is_not_sent() {
    let object = Identity { namespace: "default", name: "a", uid: "1" };
    for (object, version, expected) in [
        (object, "7", None),
        (Identity { namespace: "", ..object }, "7", None),
        (Identity { uid: "", ..object }, "7", Some("NoUid")),
        (Identity { name: "", ..object }, "7", Some("NoName")),
        (object, "", Some("NoResourceVersion")),
    ] {
        let reason = unsendable(object, version).map(|outcome| match outcome {
            Outcome::Quarantined { reason, .. } => reason,
            other => panic!("{other:?}"),
        });
        assert_eq!(reason.as_deref(), expected, "{object:?} {version:?}");
    }
}

#[test]
fn an_object_is_given_up_only_while_other_writes_succeed() {
    use Blame::{Credentials, Object, Refusal, Server};
    // Refusals, counted failures, seconds, and whether others fail alike.
    for (blame, refused, counted, seconds, elsewhere, expected) in [
        (Object, 0, 1, 0, false, RetryDecision::Retry),
        (Object, 0, 4, 299, false, RetryDecision::Retry),
        (Object, 0, 5, 2, false, RetryDecision::GiveUp),
        (Object, 0, 1, 300, false, RetryDecision::GiveUp),
        (Object, 0, 5, 2, true, RetryDecision::GiveUp),
        (Object, 0, 5, 900, true, RetryDecision::GiveUp),
        (Object, 0, 4, 299, true, RetryDecision::Retry),
        (Object, 0, 1, 300, true, RetryDecision::Later),
        (Object, 0, 2, 300, true, RetryDecision::GiveUp),
        (Server, 0, 9, 3000, false, RetryDecision::Retry),
        (Server, 0, 10, 29, false, RetryDecision::Retry),
        (Server, 0, 10, 30, true, RetryDecision::GiveUp),
        // The whole server is down: it is waited for, however long.
        (Server, 0, 1, 86_400, false, RetryDecision::Retry),
        (Server, 0, 1, 86_400, true, RetryDecision::Retry),
        (Credentials, 0, 1, 59, true, RetryDecision::Retry),
        (Credentials, 0, 1, 60, true, RetryDecision::Unauthorized),
        (Credentials, 0, 4, 2, false, RetryDecision::Retry),
        (Credentials, 0, 5, 2, false, RetryDecision::GiveUp),
        (Refusal, 2, 1, 0, false, RetryDecision::Retry),
        (Refusal, 3, 1, 0, true, RetryDecision::GiveUp),
    ] {
        let lasted = Duration::from_secs(seconds);
        let failed = FailureHistory { refused, counted, lasted, elsewhere, ..FailureHistory::default() };
        assert_eq!(retry_decision(blame, failed), expected, "{blame:?} {failed:?}");
    }
}

#[test]
fn the_only_object_of_a_resource_is_given_up_after_an_outages_time() {
    for (seconds, expected) in [(299, RetryDecision::Retry), (300, RetryDecision::GiveUp)] {
        let failed =
            FailureHistory { lasted: Duration::from_secs(seconds), alone: true, ..FailureHistory::default() };
        assert_eq!(retry_decision(Blame::Server, failed), expected, "{seconds}");
    }
}

#[test]
fn an_object_is_quarantined_only_after_its_refusal_lasted() {
    for code in [400, 403, 405, 413, 418, 422] {
        let refused = classify(&Answer::http(code));
        let short = quarantine_if_lasting(refused.clone(), REFUSAL_TIMEOUT - Duration::from_millis(1));
        assert_eq!(short, refused, "{code}");
        let long = quarantine_if_lasting(refused, REFUSAL_TIMEOUT);
        assert!(matches!(long, Outcome::Quarantined { .. }), "{code}: {long:?}");
    }
    assert_eq!(quarantine_if_lasting(Outcome::Current, REFUSAL_TIMEOUT), Outcome::Current);
}

#[test]
fn only_a_comparable_write_shows_that_the_server_is_healthy() {
    let quarantined = give_up("Invalid".to_owned(), String::new());
    let failed = classify(&Answer::http(500));
    let unauthorized = classify(&Answer::http(401));
    let doubtful = classify(&Answer::http(404));
    for (outcome, none, perhaps, webhook) in [
        (Outcome::Rewritten, true, true, true),
        (Outcome::Current, true, false, true),
        (Outcome::Accepted, true, false, true),
        (Outcome::Conflicted, true, false, false),
        (Outcome::Gone, true, false, false),
        (quarantined, true, false, false),
        (failed, false, false, false),
        (unauthorized, false, false, false),
        (doubtful, false, false, false),
    ] {
        let shown = [WebhookUse::None, WebhookUse::Perhaps, WebhookUse::Webhook]
            .map(|helper| shows_health(&outcome, helper));
        assert_eq!(shown, [none, perhaps, webhook], "{outcome:?}");
    }
}

#[test]
fn a_broken_connection_is_never_final_by_itself() {
    let outcome = classify(&Answer::Broken { message: "connection refused".to_owned(), unsent: true });
    assert!(matches!(outcome, Outcome::Retry { blame: Blame::Server, overloaded: true, .. }), "{outcome:?}");
}

#[test]
fn a_backoff_honours_retry_after_and_is_capped() {
    let s = Duration::from_secs;
    assert_eq!(backoff(1, Some(s(4))), s(4));
    assert_eq!(backoff(1, Some(s(4000))), s(60));
    assert_eq!(backoff(1, Some(s(0))), Duration::from_millis(100));
    assert_eq!(backoff(1, None), Duration::from_millis(100));
    assert_eq!(backoff(3, None), Duration::from_millis(400));
    assert_eq!(backoff(u32::MAX, None), s(5));
}

#[test]
fn an_api_servers_own_answer_shows_that_the_credentials_were_accepted() {
    let proxy = |code| match Answer::http(code) {
        Answer::Http { code, reason, message, location, retry_after, sent, returned, .. } => {
            Answer::Http { code, status: false, reason, message, location, retry_after, sent, returned }
        }
        broken => broken,
    };
    for (answer, accepts) in [
        (Answer::http(200).with_versions("1", Some("1")), true),
        (Answer::http(200), false),
        (Answer::http(401), false),
        (Answer::http(403), true),
        (Answer::http(500), true),
        (proxy(500), false),
        (proxy(302), false),
        (Answer::Broken { message: "connection refused".to_owned(), unsent: true }, false),
    ] {
        assert_eq!(answer.accepts(), accepts, "{answer:?}");
    }
}
