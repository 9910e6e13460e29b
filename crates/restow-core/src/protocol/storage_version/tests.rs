//! Tables of registrations and departures.

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap_or_default()
}

fn versions(encoding: &str) -> Versions {
    let decodable = ["e/v1", "e/v2"].map(GroupVersion::parse);
    Versions::new(&GroupVersion::parse(encoding), &decodable, &decodable).unwrap()
}

fn entry(server: &str, encoding: &str) -> Entry {
    Entry { server: server.to_owned(), versions: versions(encoding) }
}

/// `a=v1 b=v2`, both in group `e`.
fn entries_of(text: &str) -> Vec<Entry> {
    let each = |pair: &str| {
        let (server, version) = pair.split_once('=').unwrap();
        entry(server, &format!("e/{version}"))
    };
    text.split_whitespace().map(each).collect()
}

fn text_of(entries: &[Entry]) -> String {
    let each = |entry: &Entry| format!("{}={}", entry.server, entry.versions.encoding.replace("e/", ""));
    entries.iter().map(each).collect::<Vec<_>>().join(" ")
}

/// `a b`, or `?` when it could not be read.
fn members(text: &str) -> Membership {
    match text {
        "?" => Membership::Unknown("forbidden".to_owned()),
        ids => Membership::Known(ids.split_whitespace().map(str::to_owned).collect()),
    }
}

#[test]
fn a_server_registers_and_drops_entries_of_absent_servers() {
    for (what, before, live, expected) in [
        ("the first", "", "me", "me=v2"),
        ("beside another", "a=v1", "a me", "a=v1 me=v2"),
        ("over its former life", "me=v1 a=v1", "a me", "me=v2 a=v1"),
        ("as it is already", "a=v2 me=v2", "a me", "a=v2 me=v2"),
        ("a stale one is dropped", "gone=v1 a=v2", "a me", "a=v2 me=v2"),
        ("members that have not registered do no harm", "", "a b me", "me=v2"),
        ("an error is nobody's departure", "gone=v1 a=v2", "?", "gone=v1 a=v2 me=v2"),
    ] {
        let after = register(&entries_of(before), &members(live), &entry("me", "e/v2")).unwrap();
        assert_eq!(text_of(&after), expected, "{what}");
    }
    let unseen = register(&entries_of("a=v1"), &members("a"), &entry("me", "e/v2"));
    assert_eq!(unseen, Err(NotAMember("me".to_owned())));
}

#[test]
fn only_entries_of_absent_servers_are_garbage() {
    for (what, before, live, expected) in [
        ("all are alive", "a=v1 b=v1", "a b", CollectAction::Keep),
        ("one is gone", "a=v1 b=v2", "b c", CollectAction::Update(entries_of("b=v2"))),
        ("all are gone", "a=v1 b=v2", "c", CollectAction::Delete),
        ("nobody ever registered", "", "c", CollectAction::Delete),
        ("an error is nobody's departure", "a=v1 b=v2", "?", CollectAction::Keep),
        ("nor a reason to delete", "", "?", CollectAction::Keep),
    ] {
        assert_eq!(collect(&entries_of(before), &members(live)), expected, "{what}");
    }
}

#[test]
fn a_server_unregisters_only_its_own_entry() {
    for (what, before, expected) in [
        ("beside another", "a=v1 me=v2", CollectAction::Update(entries_of("a=v1"))),
        ("the last", "me=v2", CollectAction::Delete),
        ("it has none", "a=v1", CollectAction::Keep),
        ("there is none", "", CollectAction::Keep),
    ] {
        assert_eq!(unregister(&entries_of(before), "me"), expected, "{what}");
    }
}

#[test]
fn a_server_repairs_its_own_entry() {
    for (what, before, handled, expected) in [
        ("it is as it should be", "a=v1 me=v2", Some("e/v2"), OwnEntryAction::Keep),
        ("somebody has changed it", "a=v1 me=v1", Some("e/v2"), OwnEntryAction::Register),
        ("somebody has taken it away", "a=v1", Some("e/v2"), OwnEntryAction::Register),
        ("somebody has deleted the object", "", Some("e/v2"), OwnEntryAction::Register),
        ("it is handled no more", "a=v1 me=v2", None, OwnEntryAction::Drop),
        ("others handle it", "a=v1", None, OwnEntryAction::Keep),
    ] {
        let handled = handled.map(versions);
        assert_eq!(own_entry_action(&entries_of(before), "me", handled.as_ref()), expected, "{what}");
    }
}

#[test]
fn the_name_of_a_storage_version_yields_its_resource() {
    for resource in ["pods", "deployments.apps", "widgets.a.example.com"] {
        let resource = GroupResource::parse(resource);
        assert_eq!(super::resource(&name(&resource)), resource);
    }
}

#[test]
fn a_member_list_without_the_reader_is_not_trusted() {
    let seen = |ids: &[&str]| Membership::as_seen_by("me", ids.iter().map(|id| (*id).to_owned()).collect());
    assert_eq!(seen(&["a", "me"]), members("a me"));
    for list in [&[][..], &["a"]] {
        assert!(matches!(seen(list), Membership::Unknown(_)), "{list:?}");
    }
}

#[test]
fn a_status_is_computed_from_its_entries() {
    let context = |registrant, second| StatusContext { generation: Some(1), registrant, now: at(second) };
    let mut last = None;
    for (entries, second, common, state, since) in [
        ("a=v1", 1, Some("e/v1"), "True", 1),
        ("a=v1 b=v1", 2, Some("e/v1"), "True", 1),
        ("a=v1 b=v2", 3, None, "False", 3),
        ("a=v2 b=v2", 4, Some("e/v2"), "True", 4),
        ("a=v2", 5, Some("e/v2"), "True", 4),
        // A server alone is never of two minds, and yet what it writes is another version now.
        ("a=v1", 6, Some("e/v1"), "True", 6),
    ] {
        let entries = entries_of(entries);
        let now = status(last.as_ref(), &entries, context(Some("b_1"), second));
        let condition = &now.conditions.as_deref().unwrap()[0];
        assert_eq!(now.common_encoding_version.as_deref(), common);
        assert_eq!((condition.type_.as_str(), condition.status.as_str()), (ALL_EQUAL, state));
        assert_eq!(condition.last_transition_time, Some(Time(at(since))), "{condition:?}");
        assert!(!condition.reason.is_empty() && !condition.message.is_empty(), "the API wants both");
        assert_eq!(super::entries(Some(&now)), entries, "it reads as it was written");
        last = Some(now);
    }
}

#[test]
fn only_a_restart_changes_an_unchanged_registration() {
    let entries = entries_of("a=v1");
    let status = |before, registrant, second| {
        status(
            before,
            &entries,
            StatusContext { generation: None, registrant: Some(registrant), now: at(second) },
        )
    };
    let first = status(None, "a_1", 1);
    assert_eq!(status(Some(&first), "a_1", 2), first);
    assert_ne!(status(Some(&first), "a_2", 1), first);
}

#[test]
fn conditions_of_other_controllers_are_kept() {
    let foreign = StorageVersionCondition { type_: "Foreign".to_owned(), ..Default::default() };
    let before = StorageVersionStatus { conditions: Some(vec![foreign.clone()]), ..Default::default() };
    let context = StatusContext { generation: None, registrant: None, now: at(1) };
    let after = status(Some(&before), &entries_of("a=v1"), context).conditions.unwrap();
    assert_eq!((after.len(), &after[0]), (2, &foreign));
}

#[test]
fn a_storage_version_is_named_by_group_and_resource() {
    for (resource, expected) in [
        ("widgets.example.com", "example.com.widgets"),
        ("secrets", "core.secrets"),
        ("leases.coordination.k8s.io", "coordination.k8s.io.leases"),
    ] {
        let resource = GroupResource::parse(resource);
        assert_eq!(name(&resource), expected);
        assert_eq!(group(expected), resource.group);
    }
}

#[test]
fn an_encoding_version_must_be_decodable() {
    let [one, two] = ["e/v1", "e/v2"].map(GroupVersion::parse);
    let only = |version: &GroupVersion| [version.clone()];
    assert_eq!(Versions::new(&one, &only(&two), &[]), Err(InvalidVersions::Encoding("e/v1".to_owned())));
    assert_eq!(
        Versions::new(&one, &only(&one), &only(&two)),
        Err(InvalidVersions::Served("e/v2".to_owned()))
    );
}
