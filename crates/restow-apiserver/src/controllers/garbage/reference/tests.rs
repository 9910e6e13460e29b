use super::*;

fn owned_by(uids: &[&str]) -> Value {
    let one = |uid: &&str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": uid, "uid": uid});
    json!({"metadata": {"name": "a", "ownerReferences": uids.iter().map(one).collect::<Vec<_>>()}})
}

fn owners(standings: &[OwnerState]) -> Vec<(Reference, OwnerState)> {
    let uids: Vec<String> = (0..standings.len()).map(|index| index.to_string()).collect();
    let uids: Vec<&str> = uids.iter().map(String::as_str).collect();
    references(&owned_by(&uids)).into_iter().zip(standings.iter().copied()).collect()
}

#[test]
fn an_object_is_kept_disowned_or_deleted_by_the_state_of_its_owners() {
    use OwnerState::{Gone, Solid, Waiting};
    let none = Owned::default();
    let some = Owned { any: true, waiting: false };
    let cycle = Owned { any: true, waiting: true };
    let delete = |policy, unblock| GarbageAction::Delete { policy, unblock };
    let disown = |uid: &str| GarbageAction::Disown { uids: vec![uid.to_owned()] };
    for (standings, owned, expected) in [
        (vec![], none, GarbageAction::Leave),
        (vec![Solid], none, GarbageAction::Leave),
        (vec![Solid, Solid], some, GarbageAction::Leave),
        (vec![Gone], none, delete("Background", false)),
        (vec![Gone, Gone], some, delete("Background", false)),
        (vec![Solid, Gone], none, disown("1")),
        (vec![Waiting, Solid], some, disown("0")),
        (vec![Waiting], none, delete("Background", false)),
        (vec![Waiting], some, delete("Foreground", false)),
        (vec![Waiting, Gone], some, delete("Foreground", false)),
        (vec![Waiting], cycle, delete("Foreground", true)),
    ] {
        assert_eq!(decide(&json!({}), &owners(&standings), owned), expected, "{standings:?} {owned:?}");
    }
}

#[test]
fn the_finalizers_of_an_object_choose_its_propagation_policy() {
    for (finalizers, policy) in [
        (json!(["orphan"]), "Orphan"),
        (json!(["foregroundDeletion"]), "Foreground"),
        (json!(["x.example/f"]), "Background"),
    ] {
        let object = json!({"metadata": {"finalizers": finalizers}});
        let act = decide(&object, &owners(&[OwnerState::Gone]), Owned::default());
        assert_eq!(act, GarbageAction::Delete { policy, unblock: false }, "{finalizers}");
    }
}

#[test]
fn an_object_that_is_being_deleted_is_left_alone() {
    let object = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    assert_eq!(decide(&object, &owners(&[OwnerState::Gone]), Owned::default()), GarbageAction::Leave);
}

#[test]
fn an_owner_is_solid_gone_or_waiting() {
    let reference = &references(&owned_by(&["u"]))[0];
    let at = "2026-01-01T00:00:00Z";
    for (found, expected) in [
        (None, OwnerState::Gone),
        (Some(json!({"metadata": {"uid": "v"}})), OwnerState::Gone),
        (Some(json!({"metadata": {}})), OwnerState::Gone),
        (Some(json!({"metadata": {"uid": "u"}})), OwnerState::Solid),
        (Some(json!({"metadata": {"uid": "u", "finalizers": ["foregroundDeletion"]}})), OwnerState::Solid),
        (
            Some(json!({"metadata": {"uid": "u", "deletionTimestamp": at, "finalizers": ["x"]}})),
            OwnerState::Solid,
        ),
        (
            Some(
                json!({"metadata": {"uid": "u", "deletionTimestamp": at, "finalizers": ["foregroundDeletion"]}}),
            ),
            OwnerState::Waiting,
        ),
    ] {
        assert_eq!(owner_state(reference, found.as_ref()), expected, "{found:?}");
    }
}

#[test]
fn references_to_absent_owners_are_removed() {
    let object = owned_by(&["u", "v"]);
    let both = ["u".to_owned(), "v".to_owned()];
    assert_eq!(without(&object, &both[..1])[0]["uid"], "v");
    assert_eq!(without(&object, &both), Value::Null);
    assert_eq!(without(&object, &[]), object["metadata"]["ownerReferences"]);
}

#[test]
fn an_unblocked_object_blocks_no_owner() {
    let mut object = owned_by(&["u", "v"]);
    object["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = json!(true);
    let list = unblocked(&object);
    assert_eq!((&list[0]["blockOwnerDeletion"], &list[1].get("blockOwnerDeletion")), (&json!(false), &None));
}
