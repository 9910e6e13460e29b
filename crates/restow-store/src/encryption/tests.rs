//! Encryption at rest, without a server.

use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;

use super::{SealError, Transformers, follow};

const KEY16: &str = "MDEyMzQ1Njc4OWFiY2RlZg==";
const KEY24: &str = "MDEyMzQ1Njc4OWFiY2RlZmdoaWprbG1u";
const KEY32: &str = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";
const OTHER32: &str = "YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXphYmNkZWY=";
const PATH: &str = "/registry/secrets/default/a";

/// A rule: its resources, and the elements of its providers.
fn file(rules: &[(&str, &[String])]) -> String {
    let mut text =
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n".to_owned();
    for (resources, providers) in rules {
        text += &format!("- resources: [{resources}]\n  providers:\n");
        for provider in *providers {
            text += &format!("  - {provider}\n");
        }
    }
    text
}

fn provider(name: &str, keys: &[(&str, &str)]) -> String {
    let keys: Vec<String> =
        keys.iter().map(|(name, secret)| format!("{{ name: {name}, secret: {secret} }}")).collect();
    format!("{name}: {{ keys: [{}] }}", keys.join(", "))
}

fn identity() -> String {
    "identity: {}".to_owned()
}

fn parse(rules: &[(&str, &[String])]) -> Transformers {
    Transformers::parse(file(rules).as_bytes()).unwrap()
}

fn all_kinds() -> Vec<String> {
    let mut kinds = vec![provider("secretbox", &[("key", KEY32)])];
    for name in ["aescbc", "aesgcm"] {
        kinds.extend([KEY16, KEY24, KEY32].map(|key| provider(name, &[("key", key)])));
    }
    kinds
}

#[test]
fn the_first_key_seals_and_any_opens() {
    let (first, second) = ([("one", KEY32)], [("two", OTHER32), ("one", KEY32)]);
    let old = parse(&[("secrets", &[provider("aescbc", &first)])]);
    let new = parse(&[("secrets", &[provider("aescbc", &second), identity()])]);
    let gone = parse(&[("secrets", &[provider("aescbc", &second[..1])])]);
    let plain = Bytes::from_static(b"{\"kind\":\"Secret\"}");

    let sealed = old.of("", "secrets").seal(PATH, plain.clone()).unwrap();
    assert!(sealed.starts_with(b"k8s:enc:aescbc:v1:one:"));
    let opened = new.of("", "secrets").open(PATH, sealed.clone()).unwrap();
    assert_eq!((opened.plain, opened.stale), (plain.clone(), true));
    let again = new.of("", "secrets").seal(PATH, plain.clone()).unwrap();
    assert!(again.starts_with(b"k8s:enc:aescbc:v1:two:"));
    assert!(!new.of("", "secrets").open(PATH, again.clone()).unwrap().stale);
    assert!(new.of("", "secrets").open(PATH, plain.clone()).unwrap().stale, "plain text is read");

    let no_key = |under: &str| SealError::NoKey { path: PATH.into(), under: under.into() };
    assert_eq!(gone.of("", "secrets").open(PATH, sealed.clone()), Err(no_key("aescbc:v1:one")));
    assert_eq!(gone.of("", "secrets").open(PATH, plain.clone()), Err(no_key("plain text")));
    assert_eq!(Transformers::default().of("", "secrets").open(PATH, sealed), Err(no_key("aescbc:v1:one")));
    let opened = Transformers::default().of("", "secrets").open(PATH, plain.clone()).unwrap();
    assert_eq!((opened.plain, opened.stale), (plain, false));
}

#[test]
fn plain_text_may_come_first_to_leave_encryption() {
    let keys = [("one", KEY32)];
    let sealing = parse(&[("secrets", &[provider("secretbox", &keys)])]);
    let leaving = parse(&[("secrets", &[identity(), provider("secretbox", &keys)])]);
    let sealed = sealing.of("", "secrets").seal(PATH, "a".into()).unwrap();
    assert!(leaving.of("", "secrets").open(PATH, sealed).unwrap().stale);
    assert_eq!(leaving.of("", "secrets").seal(PATH, "a".into()).unwrap(), "a");
    assert!(!leaving.of("", "secrets").open(PATH, "a".into()).unwrap().stale);
}

#[test]
fn two_keys_of_one_name_are_both_tried() {
    let old = parse(&[("secrets", &[provider("aesgcm", &[("key", KEY32)])])]);
    let elements = [provider("aesgcm", &[("key", OTHER32)]), provider("aesgcm", &[("key", KEY32)])];
    let new = parse(&[("secrets", &elements)]);
    let sealed = old.of("", "secrets").seal(PATH, "a".into()).unwrap();
    assert!(new.of("", "secrets").open(PATH, sealed).unwrap().stale);
}

#[test]
fn what_aesgcm_seals_opens_in_its_place_only() {
    let transformers = parse(&[("secrets", &[provider("aesgcm", &[("key", KEY32)])])]);
    let secrets = transformers.of("", "secrets");
    let sealed = secrets.seal(PATH, "a".into()).unwrap();
    let elsewhere = "/registry/secrets/default/b";
    let changed = SealError::Changed { path: elsewhere.into(), under: "aesgcm:v1:key".into() };
    assert_eq!(secrets.open(elsewhere, sealed), Err(changed));
}

#[test]
fn the_nearest_rule_is_taken() {
    let kind = |name: &str| [provider("secretbox", &[(name, KEY32)])];
    let transformers = parse(&[
        ("secrets, widgets.example.com", &kind("named")),
        ("'*.'", &kind("core")),
        ("'*.example.com'", &kind("group")),
        ("secrets.example.com.other", &kind("other")),
        ("'*.*'", &kind("all")),
    ]);
    for (group, resource, expected) in [
        ("", "secrets", "named"),
        ("example.com", "widgets", "named"),
        ("", "configmaps", "core"),
        ("example.com", "gadgets", "group"),
        ("example.com.other", "secrets", "other"),
        ("apps", "deployments", "all"),
    ] {
        let sealed = transformers.of(group, resource).seal(PATH, "a".into()).unwrap();
        let prefix = format!("k8s:enc:secretbox:v1:{expected}:");
        assert!(sealed.starts_with(prefix.as_bytes()), "{resource}.{group} is not under {expected}");
    }
    let named = parse(&[("secrets", &kind("named"))]);
    assert_eq!(named.of("", "configmaps").seal(PATH, "a".into()).unwrap(), "a");
}

#[test]
fn providers_of_two_rules_for_one_resource_are_one_list() {
    let (one, two) = (provider("aescbc", &[("one", KEY32)]), provider("aescbc", &[("two", OTHER32)]));
    let only_two = parse(&[("secrets", std::slice::from_ref(&two))]);
    let both = parse(&[("secrets", &[one]), ("secrets", &[two])]);
    let sealed = only_two.of("", "secrets").seal(PATH, "a".into()).unwrap();
    assert!(both.of("", "secrets").open(PATH, sealed).unwrap().stale);
}

#[test]
fn a_mistake_is_named_and_a_key_never_is() {
    let good = || provider("aescbc", &[("one", KEY32)]);
    let rule = |resources: &str| file(&[(resources, &[good()])]);
    let with = |provider: String| file(&[("secrets", &[provider])]);
    for (text, expected) in [
        (String::new(), "is empty"),
        (" \n".to_owned(), "is empty"),
        ("a: [".to_owned(), "not as expected at line 1"),
        ("- secrets".to_owned(), "not as expected at line 1"),
        ("kind: EncryptionConfig".to_owned(), "is not a EncryptionConfiguration of"),
        (rule("secrets").replace("/v1", "/v2"), "is not a EncryptionConfiguration of"),
        (rule("secrets") + "more: 1\n", "not as expected at line 7"),
        (file(&[]).replace("resources:\n", ""), "has resources: at least one is needed"),
        (rule(""), "has resources[0].resources: at least one is needed"),
        (
            file(&[("secrets", &[])]).replace("providers:", "providers: []"),
            "resources[0].providers: at least one",
        ),
        (rule("Secrets"), "resources[0].resources[0] \"Secrets\": it has capital letters"),
        (rule("'*'"), "all there is is \"*.*\""),
        (rule("secrets, secrets"), "resources[0].resources[1] \"secrets\": it is named twice"),
        (rule("secrets, '*.'"), "it overlaps with \"secrets\""),
        (rule("'*.*', secrets"), "it overlaps with \"*.*\""),
        (rule("events.events.k8s.io"), "name \"events\" instead"),
        (rule("ingresses.extensions"), "no longer served"),
        (rule("'secrets.*'"), "a resource is of one group"),
        (rule("apiserveripinfo"), "not served by the API"),
        (file(&[("'*.*'", &[good()]), ("secrets", &[good()])]), "the earlier \"*.*\" hides it"),
        (file(&[("'*.a.b'", &[good()]), ("c.a.b", &[good()])]), "the earlier \"*.a.b\" hides it"),
        (with("{}".to_owned()), "providers[0]: it is none of"),
        (with("{ identity: {}, aescbc: { keys: [] } }".to_owned()), "it is more than one provider"),
        (with("kms: { name: a, endpoint: unix:///a }".to_owned()), "kms is not supported"),
        (with(provider("aescbc", &[])), "providers[0].aescbc.keys: at least one is needed"),
        (with(provider("aescbc", &[("''", KEY32)])), "aescbc.keys[0].name: it is needed"),
        (with(provider("aesgcm", &[("one", "''")])), "aesgcm.keys[0].secret: it is needed"),
        (with(provider("aesgcm", &[("one", "c2VjcmV0*")])), "aesgcm.keys[0].secret: it is not base64"),
        (with(provider("aesgcm", &[("one", "c2VjcmV0")])), "it has 6 bytes; it may have 16 or 24 or 32"),
        (with(provider("secretbox", &[("one", KEY16)])), "it has 16 bytes; it may have 32"),
        (with(format!("aescbc: {{ keys: {KEY32} }}")), "not as expected at line 6"),
        (with(format!("aescbc: {{ keys: [{{ {KEY32}: a }}] }}")), "not as expected at line 6"),
    ] {
        let error = Transformers::parse(text.as_bytes()).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}\nfor\n{text}");
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("MDEy") && !shown.contains("c2Vj"), "{shown}");
    }
}

#[test]
fn nothing_shows_a_key_or_what_it_seals() {
    let transformers = parse(&[("secrets", &all_kinds())]);
    let secrets = transformers.of("", "secrets");
    let opened = secrets.open(PATH, secrets.seal(PATH, "hidden".into()).unwrap());
    let shown = format!("{transformers:?} {secrets:?} {opened:?}");
    assert!(shown.contains("k8s:enc:aesgcm:v1:key:"), "{shown}");
    for secret in ["MDEy", "0123", "hidden", "[48, 49"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[test]
fn a_file_is_named_by_its_hash() {
    let text = file(&[("secrets", &[identity()])]);
    let hash = Transformers::parse(text.as_bytes()).unwrap().hash().to_owned();
    let other = Transformers::parse((text + "\n").as_bytes()).unwrap().hash().to_owned();
    assert!(hash.starts_with("sha256:") && hash.len() == 71, "{hash}");
    assert_ne!(hash, other);
}

#[tokio::test]
async fn a_changed_file_is_taken_up() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("encryption.yaml");
    assert!(follow(&path, Duration::from_millis(5)).await.is_err());
    let (one, two) = (file(&[("secrets", &[identity()])]), file(&[("'*.*'", &[identity()])]));
    std::fs::write(&path, &one).unwrap();
    let mut follower = follow(&path, Duration::from_millis(5)).await.unwrap();
    let hash = |text: &str| Transformers::parse(text.as_bytes()).unwrap().hash().to_owned();
    assert_eq!(follower.current().hash(), hash(&one));
    std::fs::write(&path, &two).unwrap();
    tokio::time::timeout(Duration::from_secs(60), follower.changed()).await.unwrap();
    assert_eq!(follower.current().hash(), hash(&two));
}

proptest! {
    #[test]
    fn what_is_sealed_opens_and_what_is_changed_does_not(plain: Vec<u8>, at: prop::sample::Index, bit in 0..8u8) {
        for kind in all_kinds() {
            let transformers = parse(&[("secrets", std::slice::from_ref(&kind))]);
            let secrets = transformers.of("", "secrets");
            let sealed = secrets.seal(PATH, plain.clone().into()).unwrap();
            prop_assert_eq!(&secrets.open(PATH, sealed.clone()).unwrap().plain, &plain);
            let mut changed = sealed.to_vec();
            let at = at.index(changed.len());
            changed[at] ^= 1u8 << bit;
            let opened = secrets.open(PATH, changed.into());
            // AES-CBC does not notice every change, but gives something else then.
            prop_assert!(opened.is_err() || (kind.starts_with("aescbc") && opened.unwrap().plain != plain));
        }
    }

    #[test]
    fn any_bytes_open_or_are_an_error(bytes: Vec<u8>, kind in 0..7usize) {
        let kind = all_kinds()[kind].clone();
        let name = kind.split(':').next().unwrap().to_owned();
        let transformers = parse(&[("secrets", &[kind, identity()])]);
        let sealed = [format!("k8s:enc:{name}:v1:key:").as_bytes(), &bytes].concat();
        for bytes in [bytes, sealed] {
            transformers.of("", "secrets").open(PATH, bytes.into()).ok();
        }
    }

    #[test]
    fn any_file_is_a_configuration_or_an_error(bytes: Vec<u8>, cut: prop::sample::Index) {
        Transformers::parse(&bytes).ok();
        let text = file(&[("secrets", &all_kinds())]);
        Transformers::parse(&text.as_bytes()[..cut.index(text.len())]).ok();
    }
}
