//! What is made of discovery documents and definitions.

use super::*;

fn served(name: &str, kind: &str, verbs: &[&str], stored_as: Option<&str>) -> Served {
    Served {
        name: name.to_owned(),
        kind: kind.to_owned(),
        singular: kind.to_lowercase(),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        hash: stored_as.map(|version| storage_version_hash(&GroupVersion::parse(version), kind)),
        ..Served::default()
    }
}

fn document(version: &str, aggregated: bool, resources: Vec<Served>) -> Document {
    Document { version: GroupVersion::parse(version), aggregated, resources: Ok(resources) }
}

fn widgets(stored: &[&str]) -> Crd {
    Crd {
        name: GroupResource::parse("widgets.example.com"),
        resource_version: "1".to_owned(),
        uid: "u".to_owned(),
        generation: 1,
        storage_version: "v2".to_owned(),
        versions: vec![("v1".to_owned(), true), ("v2".to_owned(), true)],
        stored_versions: stored.iter().map(|version| (*version).to_owned()).collect(),
        changed: None,
        webhook: false,
        converting: false,
    }
}

fn cluster(include_events: bool) -> Vec<Resource> {
    let all = ["list", "patch"];
    inventory(
        &[
            document(
                "v1",
                false,
                vec![
                    served("secrets", "Secret", &all, Some("v1")),
                    served("events", "Event", &all, Some("v1")),
                    served("bindings", "Binding", &["create"], None),
                    served("pods", "Pod", &all, Some("v1")),
                    served("pods/status", "Pod", &all, None),
                    served("componentstatuses", "ComponentStatus", &["get", "list"], None),
                ],
            ),
            document("events.k8s.io/v1", false, vec![served("events", "Event", &all, Some("v1"))]),
            document("autoscaling/v1", false, vec![served("hpas", "HPA", &all, Some("autoscaling/v2"))]),
            document("autoscaling/v2", false, vec![served("hpas", "HPA", &all, Some("autoscaling/v2"))]),
            document(
                "example.com/v1",
                false,
                vec![served("widgets", "Widget", &all, Some("example.com/v1"))],
            ),
            document(
                "example.com/v2",
                false,
                vec![served("widgets", "Widget", &all, Some("example.com/v1"))],
            ),
            document("wardle.dev/v1", true, vec![served("flunders", "Flunder", &all, None)]),
        ],
        &[widgets(&["v1", "v2"])],
        include_events,
    )
}

#[test]
fn a_resource_that_cannot_be_migrated_has_an_obstacle() {
    let cluster = cluster(false);
    let row = |name: &str| {
        let resource = find(&cluster, name).unwrap_or_else(|error| unreachable!("{error}"));
        (
            resource.endpoint().map(ToString::to_string).unwrap_or_default(),
            resource.storage_version_name().to_owned(),
            resource.origin,
            resource.obstacle.as_ref().map(Obstacle::explain).unwrap_or_default(),
        )
    };
    let expect = |endpoint: &str, stored: &str, origin, obstacle: &str| {
        (endpoint.to_owned(), stored.to_owned(), origin, obstacle.to_owned())
    };
    assert_eq!(row("secrets"), expect("v1", "v1", Origin::BuiltIn, ""));
    assert_eq!(row("hpas"), expect("autoscaling/v2", "v2", Origin::BuiltIn, ""));
    // Discovery still shows v1; the definition already says v2.
    assert_eq!(row("widgets"), expect("example.com/v2", "v2", Origin::Custom, ""));
    assert_eq!(row("bindings").3, "does not support list and patch");
    assert_eq!(row("componentstatuses").3, "does not support patch");
    assert_eq!(row("flunders").3, "its API server publishes no storage version");
    assert_eq!(row("events.events.k8s.io").3, "stored as events, migrated there");
    assert!(cluster.iter().all(|resource| !resource.name.resource.contains('/')));
}

#[test]
fn a_resource_with_an_unreadable_version_is_not_migrated() {
    let all = ["list", "patch"];
    let widgets = || vec![served("widgets", "Widget", &all, Some("example.com/v1"))];
    let missing =
        Document { resources: Err("404".to_owned()), ..document("example.com/v2", false, Vec::new()) };
    let elsewhere = Document { version: GroupVersion::parse("other.com/v1"), ..missing.clone() };
    for (other, expected) in [
        (document("example.com/v2", false, widgets()), None),
        (missing, Some(Obstacle::Unavailable("404".to_owned()))),
        (elsewhere, None),
    ] {
        let found = inventory(&[document("example.com/v1", false, widgets()), other], &[], false);
        assert_eq!(found[0].obstacle, expected);
    }
}

#[test]
fn an_unserved_storage_version_is_an_obstacle() {
    let all = ["list", "patch"];
    for (served_too, expected) in [(true, None), (false, Some(Obstacle::Unserved("v2".to_owned())))] {
        let versions = vec![("v1".to_owned(), true), ("v2".to_owned(), served_too)];
        let crd = Crd { versions, ..widgets(&["v1", "v2"]) };
        // As a real server has it: the hash is left out where the storage version is not served.
        let documents = [document("example.com/v1", false, vec![served("widgets", "Widget", &all, None)])];
        let found = inventory(&documents, &[crd], false);
        assert_eq!(found.iter().map(|one| one.obstacle.clone()).collect::<Vec<_>>(), [expected]);
        assert!(matches!(found[0].need(), Need::Yes(_)));
    }
}

#[test]
fn events_are_included_only_on_request_and_once() {
    let obstacle = |include, name: GroupResource| {
        cluster(include).into_iter().find(|resource| resource.name == name).and_then(|r| r.obstacle)
    };
    let (core, other) = (GroupResource::new("", "events"), GroupResource::new("events.k8s.io", "events"));
    assert_eq!(obstacle(false, core.clone()), Some(Obstacle::Events));
    assert_eq!(obstacle(true, core.clone()), None);
    assert_eq!(obstacle(true, other), Some(Obstacle::SharedWith(core)));
}

#[test]
fn the_need_for_a_migration_follows_from_stored_versions() {
    for (stored, need) in [
        (vec!["v2"], Need::Unlikely),
        (vec!["v1", "v2"], Need::Yes(vec!["v1".to_owned()])),
        (vec!["v1"], Need::Yes(vec!["v1".to_owned()])),
    ] {
        let mut resource =
            cluster(false).into_iter().find(|r| r.crd.is_some()).unwrap_or_else(|| unreachable!());
        resource.crd = Some(widgets(&stored));
        assert_eq!(resource.need(), need);
    }
}

#[test]
fn a_migration_is_recommended_with_a_reason() {
    let yes = |why: &str| Recommendation::Yes(why.to_owned());
    let no = |why: &str| Recommendation::No(why.to_owned());
    let maybe = |why: &str| Recommendation::Maybe(why.to_owned());
    let nothing = Evidence::Nothing;
    let proof = Evidence::Proof("verified on 2026-11-16".to_owned());
    let doubt = Evidence::Doubt("verified on 2026-11-16, but".to_owned());
    for (name, stored, objects, evidence, expected) in [
        ("widgets.example.com", vec!["v1", "v2"], Some(3), &nothing, yes("storedVersions v1, v2")),
        // storedVersions are pruned only after a migration, be it of nothing.
        ("widgets.example.com", vec!["v1", "v2"], Some(0), &nothing, yes("storedVersions v1, v2")),
        ("widgets.example.com", vec!["v1", "v2"], Some(3), &proof, yes("storedVersions v1, v2")),
        ("widgets.example.com", vec!["v2"], Some(3), &nothing, no("its CRD says that all is stored in v2")),
        ("secrets", vec![], Some(3), &nothing, maybe(NO_EVIDENCE)),
        ("secrets", vec![], None, &nothing, maybe(NO_EVIDENCE)),
        ("secrets", vec![], Some(3), &proof, no("verified on 2026-11-16")),
        ("secrets", vec![], Some(3), &doubt, maybe("verified on 2026-11-16, but")),
        ("secrets", vec![], Some(0), &nothing, no("it has no objects")),
        ("secrets", vec![], Some(0), &doubt, no("it has no objects")),
        ("bindings", vec![], None, &nothing, no("does not support list and patch")),
    ] {
        let mut resource =
            cluster(false).into_iter().find(|r| r.name.to_string() == name).unwrap_or_else(|| unreachable!());
        if resource.crd.is_some() {
            resource.crd = Some(widgets(&stored));
        }
        assert_eq!(resource.recommend(objects, evidence.clone()), expected, "{name} {stored:?} {objects:?}");
        // Nor does it follow from a missing permission that nothing is needed; a CRD tells by itself.
        let hidden =
            Resource { obstacle: Some(Obstacle::Unregistered("403".to_owned())), ..resource.clone() };
        let shown = hidden.recommend(objects, evidence.clone());
        match hidden.need() {
            Need::Unknown => assert!(matches!(shown, Recommendation::Maybe(_)), "{name}: {shown:?}"),
            Need::Yes(_) => assert_eq!(shown, expected, "{name}"),
            Need::Unlikely => assert!(matches!(shown, Recommendation::No(_)), "{name}: {shown:?}"),
        }
        assert_eq!(hidden.is_unseen(), hidden.need() == Need::Unknown, "{name}");
        // What its server does not show now, it may still have to be migrated.
        let silent = Resource { obstacle: Some(Obstacle::Unavailable("503".to_owned())), ..resource };
        assert!(silent.is_unseen());
        let unknown = maybe("cannot query its API server: 503");
        assert_eq!(silent.recommend(objects, evidence.clone()), unknown, "{name}");
    }
}

#[test]
fn names_resolve_as_in_kubectl() {
    let cluster = cluster(false);
    for name in [
        "widgets",
        "widget",
        "Widget",
        "widgets.example.com",
        "widget.example.com",
        "widgets.v1.example.com",
        "Widget.v2.example.com",
    ] {
        assert_eq!(find(&cluster, name).map(|r| r.name.to_string()), Ok("widgets.example.com".to_owned()));
    }
    // The exact full name wins over others of the same plural.
    assert_eq!(find(&cluster, "events").map(|r| r.name.group.clone()), Ok(String::new()));
    let error = find(&cluster, "widgts").map(|_| ());
    assert_eq!(
        error.map_err(|error| error.to_string()),
        Err("the server has no resource \"widgts\" (did you mean widgets.example.com?)".to_owned())
    );
    assert_eq!(find(&cluster, "secrets.v1").map(|r| r.name.to_string()), Ok("secrets".to_owned()));
    for name in ["widgets.v3.example.com", "secrets.v2", "widgets.v1"] {
        assert!(matches!(find(&cluster, name), Err(NameError::Unknown { .. })), "{name}");
    }
    // Two groups of one storage are one resource; else it has to be said which is meant.
    assert_eq!(find(&cluster, "event").map(|r| r.name.to_string()), Ok("events".to_owned()));
    let mut apart = cluster.clone();
    apart.iter_mut().for_each(|resource| resource.obstacle = None);
    assert!(matches!(find(&apart, "event"), Err(NameError::Ambiguous { .. })));
}

#[test]
fn a_registered_version_fills_in_for_discovery() {
    let all = ["list", "patch"];
    let mut hidden = widgets(&["v1", "v2"]);
    hidden.versions = vec![("v1".to_owned(), true), ("v2".to_owned(), false)];
    let documents = [
        document(
            "v1",
            false,
            vec![served("reviews", "Review", &all, None), served("secrets", "Secret", &all, Some("v1"))],
        ),
        document("example.com/v1", false, vec![served("widgets", "Widget", &all, None)]),
    ];
    let mut resources = inventory(&documents, &[hidden], false);
    // Who may not look does not know that there is nothing.
    let mut unread = resources.clone();
    for resource in unread.iter_mut().filter(|resource| hides_storage(resource)) {
        take_registered(resource, Err("403".to_owned()));
    }
    let obstacles = unread.iter().map(|resource| resource.obstacle.clone()).collect::<Vec<_>>();
    let unregistered = Some(Obstacle::Unregistered("403".to_owned()));
    assert_eq!(obstacles, [unregistered.clone(), None, unregistered]);
    // What discovery shows stands.
    for resource in resources.iter_mut().filter(|resource| hides_storage(resource)) {
        let version = (resource.name.resource != "reviews").then(|| "example.com/v2".to_owned());
        take_registered(resource, Ok(version));
    }
    let shown: Vec<(String, Option<String>, bool)> = resources
        .iter()
        .map(|one| {
            (
                one.name.to_string(),
                one.storage_version.as_ref().map(ToString::to_string),
                one.obstacle.is_none(),
            )
        })
        .collect();
    let expected = [
        ("reviews", None, false),
        ("secrets", Some("v1"), true),
        ("widgets.example.com", Some("example.com/v2"), true),
    ];
    let expected = expected.map(|(name, version, can)| (name.to_owned(), version.map(str::to_owned), can));
    assert_eq!(shown, expected);
    let widgets = &resources[2];
    assert_eq!(widgets.hash, Some(storage_version_hash(&GroupVersion::parse("example.com/v2"), "Widget")));
    assert_eq!(widgets.endpoint(), Some(&GroupVersion::parse("example.com/v1")));
}
