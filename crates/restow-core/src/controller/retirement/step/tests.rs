//! Tables of what `restow retire` does next.

use super::*;
use crate::resource::name::GroupResource;

const OLD: &str = "v1beta1";

/// A CRD: its versions (a `-` before the name means that it is not served), storage version, stored versions.
fn crd(versions: &str, storage: &str, stored: &str) -> Crd {
    Crd {
        converting: false,
        name: GroupResource::parse("widgets.example.com"),
        resource_version: "5".to_owned(),
        uid: "u".to_owned(),
        generation: 3,
        storage_version: storage.to_owned(),
        versions: versions
            .split_whitespace()
            .map(|name| (name.trim_start_matches('-').to_owned(), !name.starts_with('-')))
            .collect(),
        stored_versions: stored.split_whitespace().map(str::to_owned).collect(),
        changed: None,
        webhook: false,
    }
}

fn seen(crd: Crd) -> Observed {
    let others = crd.versions.iter().filter(|(name, served)| *served && name != OLD);
    Observed {
        version: OLD.to_owned(),
        deprecated: true,
        to: None,
        others: others.map(|(name, _)| name.clone()).collect(),
        survival: Survival::Proven,
        retired: false,
        owned: 0,
        unreadable: 0,
        proof: None,
        requests: Requests::None,
        accepted: Accepted::default(),
        crd,
    }
}

fn proven(mut seen: Observed) -> Observed {
    seen.proof = Some(seen.crd.definition());
    seen
}

fn set(to: &str) -> Step {
    Step::SetStorage { to: to.to_owned() }
}

#[test]
fn the_next_step_follows_from_what_the_cluster_shows() {
    let some = || Requests::Some([("GET".to_owned(), 2)].into());
    let unknown = || Requests::Unknown("forbidden".to_owned());
    let stored = || seen(crd("v1 v1beta1", "v1", "v1 v1beta1"));
    let served = || seen(crd("v1 v1beta1", "v1", "v1"));
    let unserved = || seen(crd("v1 -v1beta1", "v1", "v1"));
    let dropped = || Observed { retired: true, ..seen(crd("v1", "v1", "v1")) };
    let requested = |requests| Observed { requests, ..served() };
    let willing = Accepted { requests: true, ..Accepted::default() };
    for (what, seen, expected) in [
        ("it is the storage version", seen(crd("v2 v1 v1beta1", OLD, OLD)), set("v2")),
        (
            "and another is asked for",
            Observed { to: Some("v1".to_owned()), ..seen(crd("v2 v1 v1beta1", OLD, OLD)) },
            set("v1"),
        ),
        ("objects may be stored in it", stored(), Step::Rewrite),
        ("requests come later", Observed { requests: some(), ..stored() }, Step::Rewrite),
        ("requests were not counted", requested(Requests::Unobserved), Step::WatchRequests),
        ("nobody requests it", served(), Step::StopServing),
        ("requests are accepted", Observed { accepted: willing, ..requested(some()) }, Step::StopServing),
        (
            "or that they are not known",
            Observed { accepted: willing, ..requested(unknown()) },
            Step::StopServing,
        ),
        ("nothing is proven", unserved(), Step::MoveOwners),
        ("owners are left", Observed { owned: 3, ..unserved() }, Step::MoveOwners),
        ("it was never stored by restow", seen(crd("v1 -v1beta1", "v1", "v1 v1beta1")), Step::MoveOwners),
        ("all is proven", proven(unserved()), Step::Drop),
        ("it is gone", dropped(), Step::Done),
        ("dropped too early", Observed { owned: 1, retired: false, ..dropped() }, Step::MoveOwners),
        ("and repaired since", Observed { retired: false, ..proven(dropped()) }, Step::Done),
        (
            "the CRD has changed since the proof",
            Observed { proof: Some("u/2".to_owned()), ..unserved() },
            Step::MoveOwners,
        ),
        (
            "the CRD was replaced since",
            Observed { proof: Some("w/3".to_owned()), ..unserved() },
            Step::MoveOwners,
        ),
    ] {
        assert_eq!(next_step(&seen), Ok(expected), "{what}");
    }
}

#[test]
fn a_gate_refuses_with_its_reason() {
    let webhook = |mut seen: Observed| {
        seen.crd.webhook = true;
        seen
    };
    let unserved = || seen(crd("v1 -v1beta1", "v1", "v1"));
    let owned = |webhook| Refusal::Owned { version: OLD.to_owned(), owned: 3, webhook };
    let some = Requests::Some([("GET".to_owned(), 2)].into());
    let unknown = Requests::Unknown("forbidden".to_owned());
    let to = |to: &str| Observed { to: Some(to.to_owned()), ..seen(crd("v3 v2 -v1 v1beta1", OLD, OLD)) };
    let wrong = |to: &str, why| Refusal::WrongTarget { to: to.to_owned(), why };
    let requested =
        |requests: &Requests| Observed { requests: requests.clone(), ..seen(crd("v1 v1beta1", "v1", "v1")) };
    for (what, seen, expected) in [
        ("the only version", seen(crd(OLD, OLD, OLD)), Refusal::OnlyVersion(OLD.to_owned())),
        ("no other is served", seen(crd("-v1 v1beta1", OLD, OLD)), Refusal::NothingServed(OLD.to_owned())),
        (
            "the storage version is not served",
            seen(crd("v2 -v1 v1beta1", "v1", "v1")),
            wrong("v1", "does not serve it"),
        ),
        ("a version that is not served", to("v1"), wrong("v1", "does not serve it")),
        ("a version that is not there", to("v9"), wrong("v9", "has no such version")),
        ("itself", to(OLD), wrong(OLD, "would still have to keep the version to retire")),
        (
            "a third version while the second is the storage version",
            Observed { to: Some("v3".to_owned()), ..seen(crd("v3 v2 v1beta1", "v2", "v2")) },
            wrong("v3", "already stores objects in another version, which is kept"),
        ),
        ("requests", requested(&some), Refusal::Requested(some.clone())),
        ("nobody knows", requested(&unknown), Refusal::Requested(unknown.clone())),
        ("owners behind a webhook", webhook(Observed { owned: 3, ..proven(unserved()) }), owned(true)),
        (
            "owners behind a webhook while it is served, so that they can still move by themselves",
            webhook(Observed { owned: 3, ..seen(crd("v1 v1beta1", "v1", "v1")) }),
            owned(true),
        ),
        (
            "a version that was never there",
            seen(crd("v2 v1", "v1", "v1")),
            Refusal::NoSuchVersion { version: OLD.to_owned(), known: vec!["v2".to_owned(), "v1".to_owned()] },
        ),
        ("owners that could not be moved", Observed { owned: 3, ..proven(unserved()) }, owned(false)),
        (
            "dropped too early behind a webhook",
            webhook(Observed { owned: 3, ..seen(crd("v1", "v1", "v1")) }),
            owned(true),
        ),
        (
            "objects that cannot be read, so that their owners are not known",
            Observed { unreadable: 2, ..proven(unserved()) },
            Refusal::Unreadable(2),
        ),
        (
            "dropped while objects were stored in it",
            Observed { unreadable: 1, ..seen(crd("v1", "v1", "v1")) },
            Refusal::Unreadable(1),
        ),
        (
            "storedVersions came back",
            proven(seen(crd("v1 -v1beta1", "v1", "v1 v1beta1"))),
            Refusal::StillStored(OLD.to_owned()),
        ),
    ] {
        assert_eq!(next_step(&seen), Err(expected), "{what}");
    }
}

#[test]
fn only_alpha_versions_go_without_being_deprecated() {
    for (version, deprecated, accepted, refused) in [
        ("v1alpha1", false, false, false),
        ("v1beta1", false, false, true),
        ("v1beta1", true, false, false),
        ("v1beta1", false, true, false),
        ("v1", false, false, true),
        ("v1", true, false, false),
        ("odd", false, false, true),
    ] {
        let seen = Observed {
            version: version.to_owned(),
            deprecated,
            accepted: Accepted { undeprecated: accepted, ..Accepted::default() },
            ..seen(crd(&format!("v2 {version}"), "v2", "v2"))
        };
        let refusal = matches!(next_step(&seen), Err(Refusal::Undeprecated { .. }));
        assert_eq!(refusal, refused, "{version} {deprecated} {accepted}");
    }
}

#[test]
fn a_plan_takes_the_remaining_steps_from_everywhere() {
    let check = |from: &[&str]| Step::Check {
        from: from.iter().map(|version| (*version).to_owned()).collect(),
        to: "v1".to_owned(),
    };
    let end = [Step::WatchRequests, Step::StopServing, Step::MoveOwners, Step::Drop];
    let plus = |first: &[Step], rest: &[Step]| [first, rest].concat();
    for (crd, expected) in [
        // It is checked again what was written before the storage version was set.
        (crd("v1 v1beta1", OLD, OLD), plus(&[check(&[OLD]), set("v1"), check(&[OLD]), Step::Rewrite], &end)),
        (crd("v1 v1beta1", "v1", "v1beta1 v1"), plus(&[check(&[OLD]), Step::Rewrite], &end)),
        (crd("v1 v1beta1", "v1", "v1"), end.to_vec()),
        (crd("v1 -v1beta1", "v1", "v1beta1 v1"), plus(&[check(&[OLD])], &end[2..])),
        (crd("v1 -v1beta1", "v1", "v1"), end[2..].to_vec()),
        (crd("v1", "v1", "v1"), vec![]),
    ] {
        let seen = Observed {
            requests: Requests::Unobserved,
            survival: Survival::Unchecked,
            retired: true,
            ..seen(crd)
        };
        assert_eq!(plan(&seen), (expected, None));
    }
}

#[test]
fn a_plan_ends_at_the_gate_that_is_closed() {
    let mut behind = Observed { owned: 2, ..seen(crd("v1 v1beta1", "v1", "v1 v1beta1")) };
    behind.crd.webhook = true;
    let (steps, refusal) = plan(&behind);
    assert_eq!(steps, [Step::Rewrite]);
    assert_eq!(refusal, Some(Refusal::Owned { version: OLD.to_owned(), owned: 2, webhook: true }));
}

#[test]
fn every_version_that_a_rewrite_converts_from_is_checked() {
    for (what, crd, to, expected) in [
        ("stored in the retired version", crd("v1 v1beta1", OLD, OLD), "v1", &[OLD][..]),
        (
            "in a third version too",
            crd("v1 v1beta1 v1alpha1", OLD, "v1alpha1 v1beta1"),
            "v1",
            &["v1alpha1", OLD],
        ),
        ("in a third version only", crd("v1 v1beta1 v1alpha1", "v1", "v1alpha1 v1"), "v1", &["v1alpha1"]),
        ("storedVersions were pruned by hand", crd("v1 v1beta1", OLD, ""), "v1", &[OLD]),
        ("in the successor already", crd("v1 v1beta1", "v1", "v1"), "v1", &[]),
    ] {
        assert_eq!(rewritten_from(&crd, to), expected, "{what}");
    }
}

#[test]
fn objects_are_not_stored_in_a_version_that_they_would_not_survive() {
    let places = || {
        [
            ("it is the storage version", crd("v1 v1beta1", OLD, OLD)),
            ("objects may be stored in it", crd("v1 v1beta1", "v1", "v1 v1beta1")),
            ("and it is not served", crd("v1 -v1beta1", "v1", "v1 v1beta1")),
            ("objects may be stored in a third one", crd("v1 v1beta1 v1alpha1", "v1", "v1alpha1 v1")),
        ]
    };
    let losses = vec!["default/w would lose spec.a".to_owned()];
    for webhook in [false, true] {
        for (what, mut crd) in places() {
            crd.webhook = webhook;
            let with = |survival| next_step(&Observed { survival, ..seen(crd.clone()) });
            let to = || "v1".to_owned();
            assert!(matches!(with(Survival::Unchecked), Ok(Step::Check { .. })), "{what}");
            let lossy = Refusal::Loses { to: to(), losses: losses.clone() };
            assert_eq!(with(Survival::Lossy(losses.clone())), Err(lossy), "{what}");
            let dead = Refusal::Unchecked { to: to(), why: "connection refused".to_owned() };
            assert_eq!(with(Survival::Unknown("connection refused".to_owned())), Err(dead), "{what}");
            let accepted = Accepted { losses: true, ..Accepted::default() };
            let seen = Observed { survival: Survival::Lossy(losses.clone()), accepted, ..seen(crd.clone()) };
            assert!(!matches!(next_step(&seen), Err(Refusal::Loses { .. })), "{what}, and it is accepted");
        }
    }
    let stored_in_v1 = Observed { survival: Survival::Unchecked, ..seen(crd("v1 v1beta1", "v1", "v1")) };
    assert_eq!(next_step(&stored_in_v1), Ok(Step::StopServing), "nothing is converted");
}
