//! Writes that fail: temporary failures are retried, and an object whose write never succeeds is quarantined.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::header::RETRY_AFTER;
use restow_lab::{Action, Seen};
use serde_json::json;

use crate::expected::{outdated, rewritten_once, verified};
use crate::support::{Lab, Restow, name};
use crate::traffic::{Request, Traffic, ended, number, status, status_body};

scenarios! {
    postponed_and_lost_writes_are_retried,
    objects_whose_writes_never_succeed_are_quarantined,
    a_run_ends_when_its_credentials_expire,
    a_run_waits_while_all_writes_fail,
    the_last_object_is_quarantined_if_its_write_never_succeeds,
}

/// An answer with this code that says when to retry.
fn busy(code: u16, header: Option<&'static str>, seconds: Option<u64>) -> Action {
    let mut body = status_body(code, "TooManyRequests", "not now");
    if let Some(seconds) = seconds {
        body["details"] = json!({"retryAfterSeconds": seconds});
    }
    let mut action = Action::reply(code, &body.to_string());
    if let (Action::Reply(response), Some(header)) = (&mut action, header) {
        response.headers_mut().insert(RETRY_AFTER, http::HeaderValue::from_static(header));
    }
    action
}

async fn postponed_and_lost_writes_are_retried(lab: Lab) {
    const OBJECTS: usize = 100;
    let cluster = lab.shared();
    let widgets = outdated(cluster, "delays", OBJECTS).await;
    let rule = |seen: &Seen, before: usize| match (number(seen), before) {
        (Some(number), 0) if number % 10 == 1 => busy(429, Some("1"), None),
        (Some(12), 0) => busy(429, None, Some(2)),
        (Some(13), 0..2) => busy(503, Some("1"), None),
        (Some(number), 0..3) if number % 10 == 4 => status(503, "ServiceUnavailable", "shutting down"),
        (Some(number), 0..3) if number % 10 == 5 => status(504, "Timeout", "took too long"),
        (Some(26 | 36), 0) => Action::DropBefore,
        (Some(47 | 57 | 67), 0) => Action::DropAfter,
        _ => Action::Forward,
    };
    let (recorder, traffic) = Traffic::record(cluster, rule).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let report = verified(restow.migrate(&widgets.name(), &["--pace", "fast"]).await, OBJECTS);
    // Written, but the answer was lost: the second try finds a newer object, and must not pass for a rewrite.
    assert_eq!((&report["conflicted"], &report["rewritten"]), (&json!(3), &json!(OBJECTS - 3)), "{report}");
    rewritten_once(cluster, &widgets, OBJECTS).await;
    for number in [47, 57, 67] {
        assert_eq!(traffic.answers_to(&name(number)), [200, 409, 200]);
    }
    let asked = (0..10).map(|ten| (ten * 10 + 1, 1)).chain([(12, 2), (13, 1)]);
    for (number, seconds) in asked {
        let sent = traffic.patches_of(&name(number));
        let waits: Vec<_> = sent.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
        assert!(waits[0] >= Duration::from_secs(seconds), "w-{number} came back after {waits:?}");
    }
    // Three refused tries, the write, and the pass that verifies.
    assert_eq!(traffic.patches_of(&name(4)).len(), 5);
    assert_eq!(traffic.patches_of(&name(5)).len(), 5);
}

async fn objects_whose_writes_never_succeed_are_quarantined(lab: Lab) {
    const OBJECTS: usize = 200;
    let cluster = lab.shared();
    let widgets = outdated(cluster, "refusals", OBJECTS).await;
    let mended = Arc::new(AtomicBool::new(false));
    let now = Arc::clone(&mended);
    let rule = move |seen: &Seen, _: usize| match number(seen) {
        _ if now.load(Ordering::SeqCst) => Action::Forward,
        Some(10) => status(500, "InternalError", "the webhook of team blue has panicked"),
        Some(60) => Action::reply(413, "the body is too large"),
        Some(110) => status(415, "UnsupportedMediaType", "no merge patch here"),
        Some(160) => status(422, "Invalid", "spec.size: must be even"),
        _ => Action::Forward,
    };
    let (recorder, traffic) = Traffic::record(cluster, rule).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let flags = ["--pace", "fast", "--page-size", "50"];
    let report = restow.migrate(&widgets.name(), &flags).await.expect(3).resource();
    assert_eq!((&report["rewritten"], &report["verified"]), (&json!(OBJECTS - 4), &json!(false)), "{report}");
    let mut left: Vec<_> = report["quarantined"]
        .as_array()
        .unwrap()
        .iter()
        .map(|object| ["name", "reason", "message"].map(|key| object[key].as_str().unwrap()))
        .collect();
    left.sort_unstable();
    let names = [10, 60, 110, 160].map(name);
    let expected = [
        [&names[0], "InternalError", "the webhook of team blue has panicked"],
        [&names[1], "RequestEntityTooLarge", "the body is too large"],
        [&names[2], "UnsupportedMediaType", "no merge patch here"],
        [&names[3], "Invalid", "spec.size: must be even"],
    ];
    assert_eq!(left, expected);
    let tries = [10, 60, 110, 160].map(|number| traffic.patches_of(&name(number)).len());
    // Each is tried once more when its refusal has had time to pass.
    assert!((4..=20).contains(&tries[0]) && tries[1..] == [2, 2, 2], "{tries:?}");
    assert_eq!(widgets.stored_as(cluster).await[&format!("{}/v1", widgets.group())], 4);

    mended.store(true, Ordering::SeqCst);
    let report = restow.migrate(&widgets.name(), &["--retry-quarantined"]).await.expect(0).resource();
    assert_eq!((&report["rewritten"], &report["verified"]), (&json!(OBJECTS), &json!(true)), "{report}");
    rewritten_once(cluster, &widgets, OBJECTS).await;
}

/// Credentials that end in the middle, and are not renewed, end the run: for writes alone, and for everything.
async fn a_run_ends_when_its_credentials_expire(lab: Lab) {
    const OBJECTS: usize = 300;
    let cluster = lab.shared();
    let widgets = outdated(cluster, "logouts", OBJECTS).await;
    let restow = Restow::new(cluster);
    for (run, only_writes) in [(0, true), (1, false)] {
        let patches = AtomicUsize::new(0);
        let rule = move |seen: &Seen, _: usize| {
            let write = number(seen).is_some();
            let sent = patches.fetch_add(usize::from(write), Ordering::SeqCst);
            if sent < 70 || (only_writes && !write) {
                return Action::Forward;
            }
            status(401, "Unauthorized", "Unauthorized")
        };
        let (recorder, traffic) = Traffic::record(cluster, rule).await;
        let through = recorder.kubeconfig().to_str().unwrap();
        let (resource, began) = (widgets.name(), Instant::now());
        let flags = ["--kubeconfig", through, "--page-size", "50", "--max-in-flight", "4", "--resume"];
        let ran = restow.run(&[&["migrate", &resource], &flags[..]].concat()).await.expect(1);
        assert!(began.elapsed() < Duration::from_secs(150));
        assert!(ran.stdout.contains("credentials") || ran.stdout.contains("Unauthorized"), "{ran:#?}");
        assert!(ran.stdout.contains("--resume"), "{ran:#?}");
        let requests = traffic.requests();
        let sent = traffic.patches();
        // The 4 under way are tried until renewed credentials would have come, with growing pauses, and no others.
        let last = traffic.patches_of("")[70].at;
        let after = requests.iter().filter(|request| request.at > last).count();
        assert!(after <= 250, "{after} more requests after the first 401, {sent} writes");
        let tried: HashSet<String> =
            traffic.patches_of("").split_off(70).into_iter().map(|request| request.path).collect();
        assert!(tried.len() <= 5, "4 at once, and one that was written before: {tried:?}");
        // What was written of the page is kept.
        assert_eq!(restow.listed(&resource, "counts"), 70 * (run + 1), "{ran:#?}");
    }
    verified(restow.migrate(&widgets.name(), &["--resume", "--pace", "fast"]).await, OBJECTS);
    rewritten_once(cluster, &widgets, OBJECTS).await;
}

/// Errors that an object may cause are not blamed on objects while no write succeeds.
async fn a_run_waits_while_all_writes_fail(lab: Lab) {
    const OBJECTS: usize = 60;
    const PAGE: usize = 20;
    let cluster = lab.shared();
    let widgets = outdated(cluster, "outcries", OBJECTS).await;
    let out = Arc::new(AtomicBool::new(true));
    let still = Arc::clone(&out);
    let rule = move |seen: &Seen, _: usize| match number(seen) {
        Some(_) if still.load(Ordering::SeqCst) => {
            status(500, "InternalError", "the webhook of team red is down")
        }
        _ => Action::Forward,
    };
    let (recorder, traffic) = Traffic::record(cluster, rule).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let flags = ["--pace", "fast", "--page-size", "20", "-o", "json"];
    let mut child = restow.start(&widgets.name(), &flags);
    // Seven tries of each object of the first page: more than any object of its own fault has.
    traffic.reach(7 * PAGE, &mut child).await;
    assert_eq!(restow.listed(&widgets.name(), "counts"), 0);
    out.store(false, Ordering::SeqCst);
    let report = verified(ended(child).await, OBJECTS);
    assert_eq!(report["rewritten"], OBJECTS, "{report}");
    rewritten_once(cluster, &widgets, OBJECTS).await;
}

/// If no other object remains to show that the server is healthy, restow sends a dry run for one that was written.
async fn the_last_object_is_quarantined_if_its_write_never_succeeds(lab: Lab) {
    const OBJECTS: usize = 40;
    let cluster = lab.shared();
    let widgets = outdated(cluster, "lasts", OBJECTS).await;
    let rule = |seen: &Seen, _: usize| match number(seen) {
        Some(39) => status(500, "InternalError", "the webhook of team blue has panicked"),
        _ => Action::Forward,
    };
    let (recorder, traffic) = Traffic::record(cluster, rule).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let began = Instant::now();
    let flags = ["--max-in-flight", "1", "--page-size", "20"];
    let report = restow.migrate(&widgets.name(), &flags).await.expect(3).resource();
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert_eq!(
        (&report["rewritten"], &report["quarantined"][0]["name"]),
        (&json!(39), &json!(name(39))),
        "{report}"
    );
    let is_dry = |request: &Request| request.query == "dryRun=All";
    let (dry, sent): (Vec<_>, Vec<_>) = traffic.patches_of(&name(39)).into_iter().partition(is_dry);
    assert_eq!(sent.len(), 10, "five times, and five times more 15 seconds later");
    let asked = traffic.requests().iter().filter(|request| is_dry(request)).count();
    assert_eq!((dry.len(), asked - dry.len()), (8, 8), "this one and another one, before each further try");
}
