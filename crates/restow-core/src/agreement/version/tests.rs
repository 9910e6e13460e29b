//! What servers say, and whether that is agreement.

use super::*;
use crate::agreement::member::KUBE_APISERVER;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap_or_default()
}

fn member(name: &str, expires: i64) -> Member {
    Member {
        name: name.to_owned(),
        holder: format!("{name}_1"),
        address: None,
        expires: Some(at(expires)),
        component: KUBE_APISERVER.to_owned(),
    }
}

fn answered(server: &str, hash: &str) -> ServerAnswer {
    ServerAnswer { server: server.to_owned(), hash: Ok(hash.to_owned()) }
}

fn unreachable_server(server: &str) -> ServerAnswer {
    ServerAnswer { server: server.to_owned(), hash: Err("connection refused".to_owned()) }
}

/// Servers that were named, and can be told apart.
fn named(answers: Vec<ServerAnswer>) -> DiscoveryAnswers {
    let distinct = answers.iter().filter(|answer| answer.hash.is_ok()).count();
    DiscoveryAnswers::Named { distinct: Some(distinct), answers }
}

fn seen(members: Result<Vec<Member>, String>, asked: DiscoveryAnswers) -> ServerObservation {
    ServerObservation {
        kind: "Widget".to_owned(),
        members,
        storage_version: Ok(None),
        asked,
        definition: None,
    }
}

fn verdict(sighting: &ServerObservation) -> String {
    match decide(sighting, at(100)) {
        Ok(agreement) => format!("{} {}", agreement.basis, agreement.hash),
        Err(disagreement) => disagreement.to_string(),
    }
}

#[test]
fn every_live_server_must_report_the_same_hash() {
    let two = || Ok(vec![member("a", 200), member("b", 200)]);
    for (what, sighting, expected) in [
        (
            "both say x",
            seen(two(), DiscoveryAnswers::Members(vec![answered("a", "x"), answered("b", "x")])),
            "direct x",
        ),
        (
            "one lags",
            seen(two(), DiscoveryAnswers::Members(vec![answered("a", "x"), answered("b", "y")])),
            "the API servers disagree: a stores x; b stores y",
        ),
        (
            "one cannot be asked",
            seen(two(), DiscoveryAnswers::Members(vec![answered("a", "x"), unreachable_server("b")])),
            "could not query every live API server: b: connection refused",
        ),
        (
            "Leases cannot be read",
            seen(Err("forbidden".to_owned()), DiscoveryAnswers::Members(vec![answered("a", "x")])),
            "cannot determine which API servers exist: forbidden",
        ),
        (
            "nobody is alive",
            seen(Ok(vec![member("a", 50)]), DiscoveryAnswers::Members(vec![])),
            "cannot determine which API servers exist: no identity Lease and no endpoint shows one",
        ),
        (
            "one named of two alive",
            seen(two(), named(vec![answered("https://a", "x")])),
            "2 API servers are alive and 1 named with --api-server",
        ),
        (
            "one named, one alive, one expired",
            seen(Ok(vec![member("a", 200), member("b", 50)]), named(vec![answered("https://a", "x")])),
            "direct x",
        ),
        (
            "one named, all Leases expired by this clock",
            seen(Ok(vec![member("a", 50)]), named(vec![answered("https://a", "x")])),
            "cannot determine which API servers exist: no identity Lease and no endpoint shows one",
        ),
        (
            "sampled, all Leases expired by this clock",
            seen(
                Ok(vec![member("a", 50)]),
                DiscoveryAnswers::Samples { answers: vec![answered("lb", "x"); 9], steady: true },
            ),
            "cannot determine which API servers exist: no identity Lease and no endpoint shows one",
        ),
        (
            "the user's word",
            seen(Err("forbidden".to_owned()), DiscoveryAnswers::Single(answered("https://a", "x"))),
            "assumed x",
        ),
        (
            "sampled",
            seen(two(), DiscoveryAnswers::Samples { answers: vec![answered("lb", "x"); 9], steady: true }),
            "sampled x",
        ),
        (
            "sampled, but a server came",
            seen(two(), DiscoveryAnswers::Samples { answers: vec![answered("lb", "x"); 9], steady: false }),
            "the set of API servers changed while it was sampled",
        ),
    ] {
        assert_eq!(verdict(&sighting), expected, "{what}");
    }
}

#[test]
fn a_storage_version_object_takes_precedence() {
    let registered = |common: Option<&str>, entries: &[(&str, &str)]| {
        let mut sighting = seen(
            Ok(vec![member("a", 200), member("b", 200)]),
            DiscoveryAnswers::Members(vec![answered("a", "other")]),
        );
        sighting.storage_version = Ok(Some(StorageVersion {
            resource_version: "7".to_owned(),
            entries: entries.iter().map(|(id, v)| ((*id).to_owned(), (*v).to_owned())).collect(),
            common: common.map(str::to_owned),
            since: None,
        }));
        verdict(&sighting)
    };
    assert_eq!(
        registered(Some("example.com/v1"), &[("a", "example.com/v1"), ("b", "example.com/v1")]),
        "storageversion gIwvi5rymmg="
    );
    assert_eq!(
        registered(None, &[("a", "example.com/v1"), ("b", "example.com/v2")]),
        "the API servers disagree: a stores example.com/v1; b stores example.com/v2"
    );
    assert_eq!(
        registered(Some("example.com/v1"), &[("a", "example.com/v2"), ("b", "example.com/v2")]),
        "the API servers disagree: a stores example.com/v2; b stores example.com/v2",
        "what is called common is not what was registered"
    );
    assert_eq!(
        registered(Some("example.com/v1"), &[("a", "example.com/v1")]),
        "could not query every live API server: b: has not registered its storage version"
    );
}

#[test]
fn an_aggregated_api_needs_the_agreement_of_its_own_servers() {
    let of = |component: &str, name: &str, expires| Member {
        component: component.to_owned(),
        ..member(name, expires)
    };
    let sighting = |storage_version, members: Vec<Member>| {
        let mut sighting = seen(Ok(members), DiscoveryAnswers::Aggregated);
        sighting.storage_version = Ok(storage_version);
        verdict(&sighting)
    };
    let registered = |common: Option<&str>, versions: &[&str]| StorageVersion {
        resource_version: "7".to_owned(),
        entries: versions.iter().map(|v| (format!("replica-{v}"), format!("example.com/{v}"))).collect(),
        common: common.map(str::to_owned),
        since: None,
    };
    let one = || Some(registered(Some("example.com/v1"), &["v1"]));
    let agreed = "storageversion gIwvi5rymmg=";
    assert_eq!(sighting(None, Vec::new()), Disagreement::Aggregated.to_string());
    // A StorageVersion that may not be read is not a missing one.
    let unread = ServerObservation {
        storage_version: Err("403".to_owned()),
        ..seen(Ok(Vec::new()), DiscoveryAnswers::Aggregated)
    };
    assert_eq!(
        verdict(&unread),
        "it is served by an aggregated API server, and its StorageVersion cannot be read: 403"
    );
    // Other API servers are asked instead.
    let asked = DiscoveryAnswers::Single(ServerAnswer { server: "a".to_owned(), hash: Ok("x".to_owned()) });
    let unread = ServerObservation { storage_version: Err("403".to_owned()), ..seen(Ok(Vec::new()), asked) };
    assert_eq!(verdict(&unread), "assumed x");
    // A server of a library that makes no Leases.
    assert_eq!(sighting(one(), Vec::new()), agreed);
    assert_eq!(
        sighting(Some(registered(None, &["v1", "v2"])), Vec::new()),
        "the API servers disagree: replica-v1 stores example.com/v1; replica-v2 stores example.com/v2"
    );
    // Another of its kind is alive, and its entry was taken away or is still to come.
    assert_eq!(
        sighting(one(), vec![of("fleet", "replica-v1", 200), of("fleet", "replica-v2", 200)]),
        "could not query every live API server: replica-v2: has not registered its storage version"
    );
    for (component, expires) in [("fleet", 50), ("other", 200)] {
        let members = vec![of("fleet", "replica-v1", 200), of(component, "replica-v2", expires)];
        assert_eq!(sighting(one(), members), agreed, "{component} until {expires}");
    }
}

#[test]
fn named_servers_count_as_all_only_if_they_can_be_distinguished() {
    let two = || Ok(vec![member("a", 200), member("b", 200)]);
    let one = || Ok(vec![member("a", 200)]);
    let endpoints = || {
        let endpoint = |name: &str| Member { expires: None, ..member(name, 0) };
        Ok(vec![endpoint("10.0.0.1:6443"), endpoint("10.0.0.2:6443")])
    };
    let forbidden = || Err("forbidden".to_owned());
    let lead_to_one =
        "2 API servers are alive, and the 2 addresses named with --api-server lead to 1 of them".to_owned();
    for (what, members, distinct, expected) in [
        ("two names of two servers", two(), Some(2), "direct x true".to_owned()),
        ("two names of one load balancer", two(), Some(1), lead_to_one.clone()),
        ("servers that do not tell which they are", two(), None, "named x true".to_owned()),
        ("two names of the one server", one(), Some(1), "direct x true".to_owned()),
        ("two names, one server, which does not tell", one(), None, "direct x true".to_owned()),
        ("endpoints are no identities", endpoints(), Some(2), "named x false".to_owned()),
        ("fewer than there are endpoints", endpoints(), Some(1), lead_to_one),
        ("unreadable Leases", forbidden(), Some(2), "named x false".to_owned()),
    ] {
        let answers = vec![answered("https://a", "x"), answered("https://b", "x")];
        let verdict = match decide(&seen(members, DiscoveryAnswers::Named { answers, distinct }), at(100)) {
            Ok(agreed) => format!("{} {} {}", agreed.basis, agreed.hash, agreed.leased),
            Err(disagreement) => disagreement.to_string(),
        };
        assert_eq!(verdict, expected, "{what}");
    }
}

#[test]
fn endpoints_do_not_prove_that_all_servers_answered() {
    let endpoint = |name: &str| Member { expires: None, ..member(name, 0) };
    let sighting =
        seen(Ok(vec![endpoint("10.0.0.1:6443")]), DiscoveryAnswers::Members(vec![answered("a", "x")]));
    assert_eq!(verdict(&sighting), "endpoints x");
    assert!(decide(&sighting, at(100)).is_ok_and(|agreement| !agreement.leased));
}

#[test]
fn a_disagreement_that_may_go_away_is_waited_out() {
    let rows = || vec![("b".to_owned(), "connection refused".to_owned())];
    for (why, first, known) in [
        (Disagreement::NotReached(rows()), FIRST_ANSWER_TIMEOUT, SILENT_SERVER_TIMEOUT),
        (
            Disagreement::UnknownMembers("forbidden".to_owned()),
            Duration::ZERO,
            transient::TRANSIENT_ANSWER_TIMEOUT,
        ),
        (Disagreement::ServersChanged, SILENT_SERVER_TIMEOUT, SILENT_SERVER_TIMEOUT),
        (Disagreement::Split(rows()), Duration::ZERO, Duration::ZERO),
        (Disagreement::NotAllNamed { live: 2, addresses: 1, named: 1 }, Duration::ZERO, Duration::ZERO),
        (Disagreement::Encryption(Vec::new()), Duration::ZERO, Duration::ZERO),
        (Disagreement::Aggregated, Duration::ZERO, Duration::ZERO),
        (
            Disagreement::StorageVersionUnreadable("forbidden".to_owned()),
            Duration::ZERO,
            transient::TRANSIENT_ANSWER_TIMEOUT,
        ),
    ] {
        assert_eq!(
            (disagreement_timeout(&why, false), disagreement_timeout(&why, true)),
            (first, known),
            "{why}"
        );
    }
}

#[test]
fn a_restart_changes_the_mark_of_a_storage_version() {
    let mark = |holder: &str, listed: bool| {
        let member = Member { holder: holder.to_owned(), ..member("a", 200) };
        let members = if listed { Ok(vec![member]) } else { Err("forbidden".to_owned()) };
        let (entry, v1) = ("a".to_owned(), "example.com/v1".to_owned());
        let object = StorageVersion {
            resource_version: "7".to_owned(),
            entries: vec![(entry, v1.clone())],
            common: Some(v1),
            since: None,
        };
        let asked = named(vec![answered("https://a", "gIwvi5rymmg=")]);
        let sighting = ServerObservation { storage_version: Ok(Some(object)), ..seen(members, asked) };
        decide(&sighting, at(100)).map(|agreement| (agreement.mark, agreement.leased))
    };
    assert_eq!(mark("a_1", true), Ok(("7 a_1".to_owned(), true)));
    assert_eq!(mark("a_2", true), Ok(("7 a_2".to_owned(), true)));
    // Who may not list the Leases does not see a restart.
    assert_eq!(mark("a_1", false), Ok(("7".to_owned(), false)));
}

#[test]
fn the_mark_changes_with_servers_and_crd() {
    let mark = |holder: &str, definition: Option<&str>| {
        let member = Member { holder: holder.to_owned(), ..member("a", 200) };
        let mut sighting = seen(Ok(vec![member]), DiscoveryAnswers::Members(vec![answered("a", "x")]));
        sighting.definition = definition.map(str::to_owned);
        decide(&sighting, at(100)).map(|agreement| agreement.mark)
    };
    assert_eq!(mark("a_1", None), Ok("a_1".to_owned()));
    assert_eq!(mark("a_1", Some("u/3")), Ok("a_1 u/3".to_owned()));
    assert_ne!(mark("a_1", Some("u/3")), mark("a_1", Some("u/5")));
    assert_ne!(mark("a_1", None), mark("a_2", None));
}

#[test]
fn a_changed_crd_gets_time_to_settle() {
    for (changed, now, expected) in
        [(None, 100, 0), (Some(100), 100, 6), (Some(71), 100, 6), (Some(70), 100, 0), (Some(105), 100, 6)]
    {
        assert_eq!(settle(changed.map(at), at(now)), Duration::from_secs(expected), "{changed:?}");
    }
}

#[test]
fn unlistable_servers_are_not_the_same_as_no_servers() {
    // The hash of example.com/v1 Widget.
    const V1: &str = "gIwvi5rymmg=";
    let forbidden = || Err("forbidden".to_owned());
    let both = |hashes: &[&str]| named(hashes.iter().map(|hash| answered("https://a", hash)).collect());
    let samples =
        |hash: &str| DiscoveryAnswers::Samples { answers: vec![answered("lb", hash); 9], steady: true };
    let none = || DiscoveryAnswers::Members(Vec::new());
    let two = || Ok(vec![member("a", 200), member("b", 200)]);
    let endpoint = || Ok(vec![Member { expires: None, ..member("10.0.0.1:6443", 200) }]);
    for (what, members, asked, expected) in [
        ("unreadable Leases", forbidden(), none(), "cannot determine which API servers exist: forbidden"),
        (
            "no Lease at all",
            Ok(Vec::new()),
            none(),
            "cannot determine which API servers exist: no API server has an identity Lease",
        ),
        (
            "endpoints alone",
            endpoint(),
            none(),
            "cannot determine which API servers exist: no API server has an identity Lease",
        ),
        (
            "an aggregated API",
            forbidden(),
            DiscoveryAnswers::Aggregated,
            "cannot determine which API servers exist: forbidden",
        ),
        ("the user's list", forbidden(), both(&[V1, V1]), "named gIwvi5rymmg="),
        (
            "the user's list, one of it disagrees",
            forbidden(),
            both(&[V1, "other"]),
            "the API servers disagree: https://a stores gIwvi5rymmg=; https://a stores other",
        ),
        (
            "the user's list, the object disagrees",
            two(),
            both(&["other", "other"]),
            "the API servers disagree: the StorageVersion object stores gIwvi5rymmg=; the API servers' own discovery stores other",
        ),
        ("both", two(), both(&[V1, V1]), "storageversion gIwvi5rymmg="),
        ("not all are named", two(), both(&[V1]), "2 API servers are alive and 1 named with --api-server"),
        (
            "one that is named is dead",
            two(),
            named(vec![answered("https://a", V1), unreachable_server("https://b")]),
            "could not query every live API server: https://b: connection refused",
        ),
        ("samples agree", two(), samples(V1), "storageversion gIwvi5rymmg="),
        (
            "samples without Leases",
            forbidden(),
            samples(V1),
            "cannot determine which API servers exist: forbidden",
        ),
        (
            "samples show another",
            two(),
            samples("other"),
            "the API servers disagree: the StorageVersion object stores gIwvi5rymmg=; the API servers' own discovery stores other",
        ),
    ] {
        let entries = ["a", "b"].map(|id| (id.to_owned(), "example.com/v1".to_owned())).to_vec();
        let common = Some("example.com/v1".to_owned());
        let object = StorageVersion { resource_version: "7".to_owned(), entries, common, since: None };
        let sighting = ServerObservation { storage_version: Ok(Some(object)), ..seen(members, asked) };
        assert_eq!(verdict(&sighting), expected, "{what}");
    }
    // Without a StorageVersion object the same holds.
    assert_eq!(verdict(&seen(forbidden(), both(&["x", "x"]))), "named x");
    assert_eq!(
        verdict(&seen(forbidden(), samples("x"))),
        "cannot determine which API servers exist: forbidden"
    );
}
