//! What is counted, and what is stale.

use restow_store::encryption::Transformers;

use super::{Stale, Tally};
use crate::{
    expectation::{Expectations, Served},
    report::{Finding, Gap, Report},
};

const KEYS: &str = "
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - aesgcm: { keys: [ { name: key2, secret: MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE= } ] }
  - aescbc: { keys: [ { name: key1, secret: MTEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE= } ] }
  - identity: {}
";

fn json(version: &str) -> Vec<u8> {
    format!(r#"{{"apiVersion":"{version}","kind":"A","data":{{"password":"canary"}}}}"#).into_bytes()
}

fn expecting(versions: &[&str]) -> Expectations {
    let mut expected = Expectations::default();
    versions.iter().for_each(|version| expected.expect_version(version).unwrap());
    expected
}

fn audit(expected: Expectations, entries: &[(&str, &[u8])]) -> Report {
    let mut tally = Tally::new("/registry", expected);
    tally.add(b"\xff", b"not of the cluster");
    entries.iter().for_each(|(key, value)| tally.add(key.as_bytes(), value));
    tally.report("test", 1)
}

#[test]
fn versions_are_compared_with_what_is_expected() {
    let (v1, v2, core) = (json("example.com/v1"), json("example.com/v2"), json("v1"));
    let entries: [(&str, &[u8]); 5] = [
        ("/registry/example.com/widgets/default/b", &v1),
        ("/registry/example.com/widgets/default/a", &v1),
        ("/registry/example.com/widgets/default/c", &v2),
        ("/registry/configmaps/default/a", &core),
        ("compact_rev_key", b"7"),
    ];
    let report = audit(expecting(&["example.com/v2"]), &entries);
    let [configmaps, widgets] = &report.resources[..] else { panic!("{report:#?}") };
    assert_eq!((configmaps.stale, configmaps.objects), (None, 1), "nothing is expected of them");
    assert_eq!((widgets.stale, widgets.objects), (Some(2), 3));
    assert_eq!(widgets.stale_names, ["default/a", "default/b"]);
    assert_eq!(widgets.bytes, (v1.len() * 2 + v2.len()) as u64);
    assert_eq!(
        widgets.versions.iter().map(|(version, count)| (version.as_str(), *count)).collect::<Vec<_>>(),
        [("example.com/v1", 2), ("example.com/v2", 1),]
    );
    assert_eq!((report.outside, report.finding()), (2, Finding::Stale));
    let text = serde_json::to_string(&report).unwrap() + &format!("{report:?}");
    assert!(!text.contains("canary"), "{text}");
    assert_eq!(audit(expecting(&["example.com/v1", "example.com/v2"]), &entries).finding(), Finding::Nothing);
}

#[test]
fn what_cannot_be_decoded_is_listed_with_its_key() {
    let report = audit(
        Expectations::default(),
        &[
            ("/registry/secrets/default/a", b"canary"),
            ("/registry/secrets/default/b", b"k8s:enc:rot13:v1:x:canary"),
            ("/registry/secrets", b"canary"),
        ],
    );
    let keys: Vec<&str> = report.undecodable.iter().map(|one| one.key.as_str()).collect();
    assert_eq!(keys, ["/registry/secrets", "/registry/secrets/default/a", "/registry/secrets/default/b"]);
    assert_eq!((report.objects(), report.finding()), (2, Finding::Undecodable));
    assert!(!format!("{report:?}").contains("canary"));
}

#[test]
fn keys_are_compared_with_the_encryption_configuration() {
    let transformers = || Transformers::parse(KEYS.as_bytes()).unwrap();
    let old = Transformers::parse(KEYS.replace("- aesgcm", "- identity: {}\n  - aesgcm").as_bytes()).unwrap();
    let old_key = KEYS.replace(
        "  - aesgcm: { keys: [ { name: key2, secret: MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE= } ] }\n",
        "",
    );
    let old_key = Transformers::parse(old_key.as_bytes()).unwrap();
    let stored = |with: &Transformers, name: &str| {
        with.of("", "secrets")
            .encrypt(&format!("/registry/secrets/default/{name}"), json("v1").into())
            .unwrap()
    };
    let (current, under_old, plain) =
        (stored(&transformers(), "a"), stored(&old_key, "b"), stored(&old, "c"));
    let entries: [(&str, &[u8]); 4] = [
        ("/registry/secrets/default/a", &current),
        ("/registry/secrets/default/b", &under_old),
        ("/registry/secrets/default/c", &plain),
        ("/registry/secrets/default/moved", &current),
    ];
    let mut expected = expecting(&["v1"]);
    expected.set_transformers(transformers());
    let report = audit(expected, &entries);
    let secrets = &report.resources[0];
    assert_eq!(
        secrets.encryption.iter().map(|(key, count)| (key.as_str(), *count)).collect::<Vec<_>>(),
        [("aescbc:key1", 1), ("aesgcm:key2", 2), ("identity", 1),]
    );
    assert_eq!(secrets.stale_names, ["default/b", "default/c"]);
    assert_eq!(secrets.versions["v1"], 3, "what is inside is seen");
    assert_eq!(report.undecodable[0].key, "/registry/secrets/default/moved", "encrypted for another key");

    // Without the configuration, several keys are a gap, and versions inside are not seen.
    let report = audit(expecting(&["v1"]), &entries);
    assert_eq!(report.gaps, [Gap::Keys { resource: "secrets".to_owned() }]);
    assert_eq!((report.resources[0].stale, report.finding()), (Some(0), Finding::Incomplete));
    assert_eq!(audit(Expectations::default(), &entries).finding(), Finding::Nothing, "nothing is expected");
    let sealed: [(&str, &[u8]); 1] = [("/registry/example.com/widgets/default/a", &current)];
    let report = audit(expecting(&["example.com/v1"]), &sealed);
    assert_eq!(report.gaps, [Gap::Versions { resource: "widgets.example.com".to_owned(), objects: 1 }]);
}

#[test]
fn names_are_bounded_and_all_are_passed_on() {
    let (mut all, v1) = (Vec::new(), json("v1"));
    let mut tally = Tally::new("registry/", expecting(&["v2"]))
        .max_names(2)
        .each_stale(|Stale { resource, name }| all.push(format!("{resource} {name}")));
    for index in [3, 1, 4, 0, 2] {
        tally.add(format!("/registry/configmaps/default/{index}").as_bytes(), &v1);
    }
    let report = tally.report("test", 1);
    assert_eq!(report.resources[0].stale, Some(5));
    assert_eq!(report.resources[0].stale_names, ["default/0", "default/1"], "the first ones in order");
    assert_eq!(all.len(), 5);
    assert_eq!(all[4], "configmaps default/2");
}

#[test]
fn storage_that_no_api_serves_is_reported() {
    let mut expected = Expectations::default();
    expected.expect_storage("configmaps", "v1");
    expected.set_served(Served { resources: ["configmaps".to_owned()].into(), ..Served::default() });
    let (v1, gone) = (json("v1"), json("gone.example.com/v1"));
    let report = audit(
        expected,
        &[
            ("/registry/configmaps/default/a", &v1),
            ("/registry/gone.example.com/widgets/default/a", &gone),
            ("/registry/ranges/serviceips", b"k8s\0"),
        ],
    );
    let unserved: Vec<_> = report.unserved.iter().map(|one| (one.resource.as_str(), one.objects)).collect();
    assert_eq!(unserved, [("widgets.gone.example.com", 1)]);
    assert_eq!(report.finding(), Finding::Nothing);
}
