//! What passes count, when they prove something, and what is kept of them.

use super::*;

#[test]
fn only_a_pass_without_changes_verifies() {
    let pass = |rewritten| Counts { listed: 9, rewritten, current: 9 - rewritten, ..Counts::default() };
    for (rewritten, shifted, unsure, passes, expected) in [
        (0, false, false, 1, PassVerdict::Verified),
        (1, false, false, 1, PassVerdict::AnotherPass),
        (0, true, false, 1, PassVerdict::AnotherPass),
        (0, false, true, 1, PassVerdict::AnotherPass),
        (1, false, false, 5, PassVerdict::Restless),
        (0, true, false, 5, PassVerdict::Restless),
        (0, false, true, 5, PassVerdict::AnotherPass),
        (0, true, true, 5, PassVerdict::Restless),
        (0, false, true, 20, PassVerdict::Restless),
        (0, false, false, 5, PassVerdict::Verified),
    ] {
        let proof = judge_pass(&pass(rewritten), shifted, unsure, passes);
        assert_eq!(proof, expected, "{rewritten} {shifted} {unsure} {passes}");
    }
}

#[test]
fn a_possible_own_write_leaves_a_pass_unsure() {
    let name = GroupResource::parse("widgets.example.com");
    let mut verifying = Progress::new(name, "v2", "x", Timestamp::default());
    verifying.begin_verifying();
    verifying.begin_verifying();
    // Whether the pass was resumed, what each page shows (an answer that was lost, an object that seems written by
    // others), whether the pass is unsure and how many passes are counted.
    for (resumed, pages, unsure, passes) in [
        (false, vec![(false, true)], false, 2),
        (false, vec![(true, true)], true, 2),
        (true, vec![(false, false)], false, 2),
        (true, vec![(false, true), (false, true)], true, 1),
        (true, vec![(true, true), (false, true)], true, 1),
    ] {
        let mut progress = Progress { resumed, ..verifying.clone() };
        for (answer_lost, seems_written) in &pages {
            progress.note_hidden_write(*answer_lost, *seems_written);
        }
        assert_eq!((progress.unsure, progress.passes), (unsure, passes), "{resumed} {pages:?}");
        progress.begin_verifying();
        assert!(!progress.unsure && !progress.resumed);
    }
}

#[test]
fn resource_versions_show_what_was_written_since_the_pass_began() {
    let name = GroupResource::parse("widgets.example.com");
    let mut progress = Progress::new(name, "v2", "x", Timestamp::default());
    for (began_at, listed, since) in
        [(Some(7), "7", false), (Some(7), "8", true), (Some(7), "", true), (None, "7", true)]
    {
        progress.began_at = began_at;
        assert_eq!(progress.is_written_since(listed), since, "{began_at:?} {listed:?}");
    }
}

#[test]
fn an_object_that_is_still_listed_is_recounted() {
    let name = GroupResource::parse("widgets.example.com");
    let mut progress = Progress::new(name, "v2", "x", Timestamp::default());
    progress.page_done(&Counts { listed: 3, gone: 1, conflicted: 2, ..Counts::default() }, None, None);
    for before in [Outcome::Gone, Outcome::Conflicted] {
        progress.recount(&before, &crate::rewrite::outcome::misplaced());
    }
    let counts = progress.counts;
    assert_eq!((counts.gone, counts.conflicted, counts.quarantined, counts.done()), (0, 1, 2, 3));
}

#[test]
fn a_refused_object_that_disappears_leaves_the_pass_unproven() {
    for (gone, conflicted, current, shifted) in
        [(0, 0, 1, false), (1, 0, 0, true), (0, 1, 0, true), (0, 0, 0, false)]
    {
        let name = GroupResource::parse("widgets.example.com");
        let mut progress = Progress::new(name, "v2", "x", Timestamp::default());
        progress.begin_verifying();
        progress.page_done(&Counts { listed: 9, current: 8, ..Counts::default() }, None, None);
        let tried = Counts { listed: 1, gone, conflicted, current, ..Counts::default() };
        progress.count_retried(&tried);
        assert_eq!((progress.verify.listed, progress.shifted), (9, shifted), "{tried:?}");
        assert_eq!(progress.verify.done(), 8 + tried.done());
    }
}

#[test]
fn a_changed_mark_spoils_the_pass() {
    let agreement = |mark: &str| Agreement {
        hash: "x".to_owned(),
        basis: Basis::Direct,
        mark: mark.to_owned(),
        definition: None,
        since: None,
        leased: true,
    };
    for (marks, shifted) in
        [(vec!["a"], false), (vec!["a", "a"], false), (vec!["a", "b"], true), (vec!["a", "b", "a"], true)]
    {
        let name = GroupResource::parse("widgets.example.com");
        let mut progress = Progress::new(name, "v2", "x", Timestamp::default());
        marks.iter().for_each(|mark| progress.observe_agreement(&agreement(mark)));
        assert_eq!(progress.shifted, shifted, "{marks:?}");
        progress.begin_verifying();
        assert!(!progress.shifted);
    }
}

#[test]
fn the_most_severe_end_gives_the_exit_code() {
    for (ends, code) in [
        (vec![], 0),
        (vec![End::Succeeded, End::Succeeded], 0),
        (vec![End::Succeeded, End::ObjectsLeft], 3),
        (vec![End::Unsafe, End::ObjectsLeft], 4),
        (vec![End::Unsafe, End::Failed], 1),
        (vec![End::Succeeded, End::Stopped], 130),
    ] {
        assert_eq!(exit_code(ends.clone()), code, "{ends:?}");
    }
}

#[test]
fn without_a_first_pass_the_verifying_counts_are_reported() {
    let count = |listed| Counts { listed, current: listed, ..Counts::default() };
    for (first, second, expected) in [(0, 0, 0), (7, 0, 7), (7, 8, 7), (0, 8, 8)] {
        let name = GroupResource::parse("widgets.example.com");
        let mut progress = Progress::new(name, "v2", "x", Timestamp::default());
        (progress.counts, progress.verify) = (count(first), count(second));
        assert_eq!(progress.overall_counts().listed, expected, "{first} {second}");
    }
}

#[test]
fn a_page_without_readable_objects_keeps_the_last_key() {
    let mut progress =
        Progress::new(GroupResource::parse("widgets.example.com"), "v2", "x", Timestamp::default());
    for (last_key, expected) in
        [(None, None), (Some("a"), Some("a")), (None, Some("a")), (Some("b"), Some("b"))]
    {
        progress.page_done(&Counts::default(), None, last_key.map(str::to_owned));
        assert_eq!(progress.last_key.as_deref(), expected);
    }
    progress.begin_verifying();
    assert_eq!(progress.last_key, None);
}

#[test]
fn a_restart_keeps_only_the_start_time() {
    let name = GroupResource::parse("widgets.example.com");
    let fresh = Progress::new(name, "v2", "x", Timestamp::default());
    let mut progress = fresh.clone();
    progress.page_done(&Counts { listed: 5, rewritten: 5, ..Counts::default() }, None, Some("a".to_owned()));
    progress.encryption = Some("k".to_owned());
    progress.begin_verifying();
    progress.restart();
    assert_eq!(progress, fresh);
}

#[test]
fn counts_of_the_first_pass_are_kept_in_later_passes() {
    let name = GroupResource::parse("widgets.example.com");
    let mut progress = Progress::new(name, "v2", "x", Timestamp::default());
    progress.begin_verifying();
    for (rewritten, current) in [(4, 1), (0, 5)] {
        progress.page_done(&Counts { listed: 5, rewritten, current, ..Counts::default() }, None, None);
        progress.begin_verifying();
        assert_eq!((progress.overall_counts().rewritten, progress.overall_counts().current), (4, 1));
    }
}

#[test]
fn one_bad_key_does_not_look_like_several() {
    assert_eq!([0, 1, 2].map(objects), ["0 objects", "1 object", "2 objects"]);
}

#[test]
fn every_outcome_is_counted_once() {
    let mut counts = Counts::default();
    for outcome in [
        Outcome::Rewritten,
        Outcome::Current,
        Outcome::Conflicted,
        Outcome::Gone,
        Outcome::Accepted,
        Outcome::Quarantined { reason: String::new(), message: String::new() },
    ] {
        counts.count(&outcome);
    }
    assert_eq!(counts.done(), 6);
}

#[test]
fn a_reload_changes_the_key_and_silence_does_not() {
    use crate::agreement::encryption::{Config, MetricsError, agree};
    let look = |second: &str| {
        let config =
            |at: &str| Config { hash: Some("a".to_owned()), reloaded: at.to_owned(), ..Config::default() };
        let second = match second {
            "silent" => Err(MetricsError::Silent("down".to_owned())),
            at => Ok(config(at)),
        };
        agree(&[("one".to_owned(), Ok(config("1"))), ("two".to_owned(), second)])
    };
    for (looks, shifted, checked) in [
        (["1", "1"], false, true),
        (["1", "2"], true, true),
        (["1", "silent"], false, false),
        (["silent", "1"], false, false),
    ] {
        let name = GroupResource::parse("secrets");
        let mut progress = Progress::new(name, "v1", "x", Timestamp::default());
        for second in looks {
            let look = look(second);
            progress.observe_keys(&look.fingerprint, look.check());
        }
        assert_eq!((progress.shifted, progress.keys.checked), (shifted, checked), "{looks:?}");
    }
}

#[test]
fn a_resumed_pass_lists_objects_as_they_are_now() {
    let began = Token::behind("default/w-00099", 238).encode();
    let newest = Token::behind("default/w-00099", NEWEST).encode();
    for (kept, expected, announced) in [
        (None, None, Some(7)),
        (Some(began.as_str()), Some(newest.as_str()), None),
        (Some(newest.as_str()), Some(newest.as_str()), None),
        // Another server's token cannot be changed.
        (Some("opaque"), Some("opaque"), Some(7)),
    ] {
        let name = GroupResource::parse("widgets.example.com");
        let mut progress = Progress::new(name, "v2", "x", Timestamp::default());
        progress.continue_token = kept.map(str::to_owned);
        progress.announced = Some(7);
        let mut verifying = Progress { phase: Phase::Verifying, ..progress.clone() };
        progress.restart_list();
        assert_eq!(progress.continue_token.as_deref(), expected);
        assert_eq!(progress.announced, announced, "{kept:?}");
        verifying.restart_list();
        assert_eq!((verifying.continue_token.as_deref(), verifying.announced), (kept, Some(7)));
    }
}

#[test]
fn progress_saved_by_an_earlier_version_can_be_read() {
    let name = GroupResource::parse("secrets");
    let kept = serde_json::to_value(Progress::new(name, "v1", "x", Timestamp::default()));
    let mut kept = kept.unwrap_or_else(|error| unreachable!("{error}"));
    for added in ["settled", "keys", "unproven", "unconfirmed"] {
        kept.as_object_mut().map(|fields| fields.remove(added));
    }
    let read: Result<Progress, _> = serde_json::from_value(kept);
    assert!(read.is_ok_and(|progress| !progress.keys.checked && progress.settled.is_none()));
}
