use super::*;

fn owned_by(uids: &[&str]) -> Value {
    let one = |uid: &&str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": uid, "uid": uid});
    json!({"metadata": {"name": "a", "ownerReferences": uids.iter().map(one).collect::<Vec<_>>()}})
}

fn owners(standings: &[Standing]) -> Vec<(Reference, Standing)> {
    let uids: Vec<String> = (0..standings.len()).map(|index| index.to_string()).collect();
    let uids: Vec<&str> = uids.iter().map(String::as_str).collect();
    references(&owned_by(&uids)).into_iter().zip(standings.iter().copied()).collect()
}

#[test]
fn what_becomes_of_an_object() {
    use Standing::{Gone, Solid, Waiting};
    let none = Owned::default();
    let some = Owned { any: true, waiting: false };
    let cycle = Owned { any: true, waiting: true };
    let delete = |policy, unblock| Act::Delete { policy, unblock };
    let disown = |uid: &str| Act::Disown { uids: vec![uid.to_owned()] };
    for (standings, owned, expected) in [
        (vec![], none, Act::Leave),
        (vec![Solid], none, Act::Leave),
        (vec![Solid, Solid], some, Act::Leave),
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
fn an_object_goes_as_its_own_finalizers_say() {
    for (finalizers, policy) in [
        (json!(["orphan"]), "Orphan"),
        (json!(["foregroundDeletion"]), "Foreground"),
        (json!(["x.example/f"]), "Background"),
    ] {
        let object = json!({"metadata": {"finalizers": finalizers}});
        let act = decide(&object, &owners(&[Standing::Gone]), Owned::default());
        assert_eq!(act, Act::Delete { policy, unblock: false }, "{finalizers}");
    }
}

#[test]
fn what_is_going_already_is_left() {
    let object = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    assert_eq!(decide(&object, &owners(&[Standing::Gone]), Owned::default()), Act::Leave);
}

#[test]
fn how_owners_stand() {
    let reference = &references(&owned_by(&["u"]))[0];
    let at = "2026-01-01T00:00:00Z";
    for (found, expected) in [
        (None, Standing::Gone),
        (Some(json!({"metadata": {"uid": "v"}})), Standing::Gone),
        (Some(json!({"metadata": {}})), Standing::Gone),
        (Some(json!({"metadata": {"uid": "u"}})), Standing::Solid),
        (Some(json!({"metadata": {"uid": "u", "finalizers": ["foregroundDeletion"]}})), Standing::Solid),
        (
            Some(json!({"metadata": {"uid": "u", "deletionTimestamp": at, "finalizers": ["x"]}})),
            Standing::Solid,
        ),
        (
            Some(
                json!({"metadata": {"uid": "u", "deletionTimestamp": at, "finalizers": ["foregroundDeletion"]}}),
            ),
            Standing::Waiting,
        ),
    ] {
        assert_eq!(standing(reference, found.as_ref()), expected, "{found:?}");
    }
}

#[test]
fn references_are_taken_away() {
    let object = owned_by(&["u", "v"]);
    let both = ["u".to_owned(), "v".to_owned()];
    assert_eq!(without(&object, &both[..1])[0]["uid"], "v");
    assert_eq!(without(&object, &both), Value::Null);
    assert_eq!(without(&object, &[]), object["metadata"]["ownerReferences"]);
}

#[test]
fn nobody_waits_for_what_is_unblocked() {
    let mut object = owned_by(&["u", "v"]);
    object["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = json!(true);
    let list = unblocked(&object);
    assert_eq!((&list[0]["blockOwnerDeletion"], &list[1].get("blockOwnerDeletion")), (&json!(false), &None));
}
