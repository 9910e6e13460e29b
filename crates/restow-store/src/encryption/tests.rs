//! Encryption at rest, without a server.

use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;

use super::{EncryptionError, Transformers, follow};

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
fn the_first_key_encrypts_and_any_key_decrypts() {
    let (first, second) = ([("one", KEY32)], [("two", OTHER32), ("one", KEY32)]);
    let old = parse(&[("secrets", &[provider("aescbc", &first)])]);
    let new = parse(&[("secrets", &[provider("aescbc", &second), identity()])]);
    let gone = parse(&[("secrets", &[provider("aescbc", &second[..1])])]);
    let plain = Bytes::from_static(b"{\"kind\":\"Secret\"}");

    let encrypted = old.of("", "secrets").encrypt(PATH, plain.clone()).unwrap();
    assert!(encrypted.starts_with(b"k8s:enc:aescbc:v1:one:"));
    let decrypted = new.of("", "secrets").decrypt(PATH, encrypted.clone()).unwrap();
    assert_eq!((decrypted.plain, decrypted.stale), (plain.clone(), true));
    let again = new.of("", "secrets").encrypt(PATH, plain.clone()).unwrap();
    assert!(again.starts_with(b"k8s:enc:aescbc:v1:two:"));
    assert!(!new.of("", "secrets").decrypt(PATH, again.clone()).unwrap().stale);
    assert!(new.of("", "secrets").decrypt(PATH, plain.clone()).unwrap().stale, "plain text is read");

    let no_key = |under: &str| EncryptionError::NoKey { path: PATH.into(), under: under.into() };
    assert_eq!(gone.of("", "secrets").decrypt(PATH, encrypted.clone()), Err(no_key("aescbc:v1:one")));
    assert_eq!(gone.of("", "secrets").decrypt(PATH, plain.clone()), Err(no_key("plain text")));
    assert_eq!(
        Transformers::default().of("", "secrets").decrypt(PATH, encrypted),
        Err(no_key("aescbc:v1:one"))
    );
    let decrypted = Transformers::default().of("", "secrets").decrypt(PATH, plain.clone()).unwrap();
    assert_eq!((decrypted.plain, decrypted.stale), (plain, false));
}

#[test]
fn identity_as_the_first_provider_ends_encryption() {
    let keys = [("one", KEY32)];
    let encrypting = parse(&[("secrets", &[provider("secretbox", &keys)])]);
    let leaving = parse(&[("secrets", &[identity(), provider("secretbox", &keys)])]);
    let encrypted = encrypting.of("", "secrets").encrypt(PATH, "a".into()).unwrap();
    assert!(leaving.of("", "secrets").decrypt(PATH, encrypted).unwrap().stale);
    assert_eq!(leaving.of("", "secrets").encrypt(PATH, "a".into()).unwrap(), "a");
    assert!(!leaving.of("", "secrets").decrypt(PATH, "a".into()).unwrap().stale);
}

#[test]
fn two_keys_with_the_same_name_are_both_tried() {
    let old = parse(&[("secrets", &[provider("aesgcm", &[("key", KEY32)])])]);
    let elements = [provider("aesgcm", &[("key", OTHER32)]), provider("aesgcm", &[("key", KEY32)])];
    let new = parse(&[("secrets", &elements)]);
    let encrypted = old.of("", "secrets").encrypt(PATH, "a".into()).unwrap();
    assert!(new.of("", "secrets").decrypt(PATH, encrypted).unwrap().stale);
}

#[test]
fn an_aesgcm_value_decrypts_only_under_its_own_path() {
    let transformers = parse(&[("secrets", &[provider("aesgcm", &[("key", KEY32)])])]);
    let secrets = transformers.of("", "secrets");
    let encrypted = secrets.encrypt(PATH, "a".into()).unwrap();
    let elsewhere = "/registry/secrets/default/b";
    let changed = EncryptionError::Changed { path: elsewhere.into(), under: "aesgcm:v1:key".into() };
    assert_eq!(secrets.decrypt(elsewhere, encrypted), Err(changed));
}

#[test]
fn the_most_specific_rule_applies() {
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
        let encrypted = transformers.of(group, resource).encrypt(PATH, "a".into()).unwrap();
        let prefix = format!("k8s:enc:secretbox:v1:{expected}:");
        assert!(encrypted.starts_with(prefix.as_bytes()), "{resource}.{group} is not under {expected}");
    }
    let named = parse(&[("secrets", &kind("named"))]);
    assert_eq!(named.of("", "configmaps").encrypt(PATH, "a".into()).unwrap(), "a");
}

#[test]
fn the_providers_of_two_rules_for_one_resource_are_combined() {
    let (one, two) = (provider("aescbc", &[("one", KEY32)]), provider("aescbc", &[("two", OTHER32)]));
    let only_two = parse(&[("secrets", std::slice::from_ref(&two))]);
    let both = parse(&[("secrets", &[one]), ("secrets", &[two])]);
    let encrypted = only_two.of("", "secrets").encrypt(PATH, "a".into()).unwrap();
    assert!(both.of("", "secrets").decrypt(PATH, encrypted).unwrap().stale);
}

#[test]
fn an_error_names_the_field_and_never_a_key() {
    let good = || provider("aescbc", &[("one", KEY32)]);
    let rule = |resources: &str| file(&[(resources, &[good()])]);
    let with = |provider: String| file(&[("secrets", &[provider])]);
    for (text, expected) in [
        (String::new(), "is empty"),
        (" \n".to_owned(), "is empty"),
        ("a: [".to_owned(), "cannot parse the encryption configuration at line 1"),
        ("- secrets".to_owned(), "cannot parse the encryption configuration at line 1"),
        ("kind: EncryptionConfig".to_owned(), "is not a EncryptionConfiguration of"),
        (rule("secrets").replace("/v1", "/v2"), "is not a EncryptionConfiguration of"),
        (rule("secrets") + "more: 1\n", "cannot parse the encryption configuration at line 7"),
        (file(&[]).replace("resources:\n", ""), "invalid: resources: at least one is required"),
        (rule(""), "invalid: resources[0].resources: at least one is required"),
        (
            file(&[("secrets", &[])]).replace("providers:", "providers: []"),
            "resources[0].providers: at least one",
        ),
        (rule("Secrets"), "resources[0].resources[0] \"Secrets\": it must be lowercase"),
        (rule("'*'"), "\"*.*\" for everything"),
        (rule("secrets, secrets"), "resources[0].resources[1] \"secrets\": duplicate"),
        (rule("secrets, '*.'"), "it overlaps with \"secrets\""),
        (rule("'*.*', secrets"), "it overlaps with \"*.*\""),
        (rule("events.events.k8s.io"), "name \"events\" instead"),
        (rule("ingresses.extensions"), "no longer served"),
        (rule("'secrets.*'"), "a wildcard group needs a wildcard resource"),
        (rule("apiserveripinfo"), "not served by the API"),
        (file(&[("'*.*'", &[good()]), ("secrets", &[good()])]), "the earlier \"*.*\" covers it already"),
        (file(&[("'*.a.b'", &[good()]), ("c.a.b", &[good()])]), "the earlier \"*.a.b\" covers it already"),
        (with("{}".to_owned()), "providers[0]: it must be one of"),
        (with("{ identity: {}, aescbc: { keys: [] } }".to_owned()), "it has more than one provider"),
        (with("kms: { name: a, endpoint: unix:///a }".to_owned()), "kms is not supported"),
        (with(provider("aescbc", &[])), "providers[0].aescbc.keys: at least one is required"),
        (with(provider("aescbc", &[("''", KEY32)])), "aescbc.keys[0].name: it is required"),
        (with(provider("aesgcm", &[("one", "''")])), "aesgcm.keys[0].secret: it is required"),
        (with(provider("aesgcm", &[("one", "c2VjcmV0*")])), "aesgcm.keys[0].secret: it is not valid base64"),
        (with(provider("aesgcm", &[("one", "c2VjcmV0")])), "it has 6 bytes, but must have 16 or 24 or 32"),
        (with(provider("secretbox", &[("one", KEY16)])), "it has 16 bytes, but must have 32"),
        (with(format!("aescbc: {{ keys: {KEY32} }}")), "cannot parse the encryption configuration at line 6"),
        (
            with(format!("aescbc: {{ keys: [{{ {KEY32}: a }}] }}")),
            "cannot parse the encryption configuration at line 6",
        ),
    ] {
        let error = Transformers::parse(text.as_bytes()).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}\nfor\n{text}");
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("MDEy") && !shown.contains("c2Vj"), "{shown}");
    }
}

#[test]
fn debug_output_shows_no_key_and_no_plain_text() {
    let transformers = parse(&[("secrets", &all_kinds())]);
    let secrets = transformers.of("", "secrets");
    let decrypted = secrets.decrypt(PATH, secrets.encrypt(PATH, "hidden".into()).unwrap());
    let shown = format!("{transformers:?} {secrets:?} {decrypted:?}");
    assert!(shown.contains("k8s:enc:aesgcm:v1:key:"), "{shown}");
    for secret in ["MDEy", "0123", "hidden", "[48, 49"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[test]
fn the_hash_covers_the_whole_file() {
    let text = file(&[("secrets", &[identity()])]);
    let hash = Transformers::parse(text.as_bytes()).unwrap().hash().to_owned();
    let other = Transformers::parse((text + "\n").as_bytes()).unwrap().hash().to_owned();
    assert!(hash.starts_with("sha256:") && hash.len() == 71, "{hash}");
    assert_ne!(hash, other);
}

#[tokio::test]
async fn a_changed_file_is_reloaded() {
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
            let encrypted = secrets.encrypt(PATH, plain.clone().into()).unwrap();
            prop_assert_eq!(&secrets.decrypt(PATH, encrypted.clone()).unwrap().plain, &plain);
            let mut changed = encrypted.to_vec();
            let at = at.index(changed.len());
            changed[at] ^= 1u8 << bit;
            let decrypted = secrets.decrypt(PATH, changed.into());
            // AES-CBC does not notice every change, but gives something else then.
            prop_assert!(decrypted.is_err() || (kind.starts_with("aescbc") && decrypted.unwrap().plain != plain));
        }
    }

    #[test]
    fn any_bytes_open_or_are_an_error(bytes: Vec<u8>, kind in 0..7usize) {
        let kind = all_kinds()[kind].clone();
        let name = kind.split(':').next().unwrap().to_owned();
        let transformers = parse(&[("secrets", &[kind, identity()])]);
        let encrypted = [format!("k8s:enc:{name}:v1:key:").as_bytes(), &bytes].concat();
        for bytes in [bytes, encrypted] {
            transformers.of("", "secrets").decrypt(PATH, bytes.into()).ok();
        }
    }

    #[test]
    fn any_file_is_a_configuration_or_an_error(bytes: Vec<u8>, cut: prop::sample::Index) {
        Transformers::parse(&bytes).ok();
        let text = file(&[("secrets", &all_kinds())]);
        Transformers::parse(&text.as_bytes()[..cut.index(text.len())]).ok();
    }
}

#[test]
fn values_of_a_kms_plugin_are_recognized_for_inspection() {
    let kms =
        |version: &str| format!("{{ kms: {{ {version}name: vault, endpoint: unix:///run/kms.sock }} }}");
    for (version, prefix) in [("", "k8s:enc:kms:v1:vault:"), ("apiVersion: v2, ", "k8s:enc:kms:v2:vault:")] {
        let file = file(&[("secrets", &[kms(version), identity()])]);
        assert!(Transformers::parse(file.as_bytes()).is_err(), "a server could not read them");
        let transformers = Transformers::parse_to_inspect(file.as_bytes()).unwrap();
        let secrets = transformers.of("", "secrets");
        assert!(secrets.is_current(format!("{prefix}x").as_bytes()));
        assert!(!secrets.is_current(b"k8s:enc:kms:v1:other:x") && !secrets.is_current(b"{}"));
        assert!(secrets.reveal("/registry/secrets/a/b", format!("{prefix}x").as_bytes()).is_err());
        assert_eq!(secrets.reveal("/registry/secrets/a/b", b"{}").unwrap(), None);
        assert!(transformers.of("", "pods").is_current(b"{}"));
    }
}
