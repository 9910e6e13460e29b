//! Certificates that are written to a Secret and read again, and Secrets that cannot be used.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::SignedDuration;

use super::*;
use crate::certificates::issue::Issuing;
use crate::certificates::rotation::{Lifetimes, Step, Wanted, carry_out};
use crate::certificates::x509::fingerprints;

const NAME: &str = "webhook.restow-system.svc";

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn wanted() -> Wanted {
    let names = [NAME, "127.0.0.1", "::1"].map(str::to_owned);
    Wanted { names: BTreeSet::from(names), lifetimes: Lifetimes::default() }
}

fn after(step: Step, kept: Option<Certificates>) -> Certificates {
    let mut mint = Issuing { skew: Duration::from_secs(3600) };
    carry_out(&mut mint, step, kept, &wanted(), now()).unwrap().unwrap()
}

fn own(secret: &Secret) -> Certificates {
    match read(secret, false).unwrap() {
        Found::Own(kept) => *kept,
        other => panic!("{other:?}"),
    }
}

fn roles(kept: &Certificates) -> Vec<(AuthorityId, Role, bool)> {
    kept.authorities.iter().map(|one| (one.id.clone(), one.role, one.material.key.is_some())).collect()
}

#[test]
fn what_is_kept_is_read_as_it_was_written() {
    let kept = after(Step::Create, None);
    let mut secret = create("restow-system", "webhook", &kept).unwrap();
    secret.data.as_mut().unwrap().insert("theirs".to_owned(), ByteString(b"stays".to_vec()));
    let mut kept = own(&secret);
    for step in [Step::Introduce, Step::Switch, Step::Introduce, Step::RenewLeaf, Step::Switch] {
        kept = after(step, Some(kept));
        fill(&mut secret, &kept).unwrap();
        let again = own(&secret);
        assert_eq!(roles(&again), roles(&kept));
        assert_eq!((&again.leaf.names, again.leaf.not_after), (&wanted().names, kept.leaf.not_after));
        let untils =
            |kept: &Certificates| kept.authorities.iter().map(|one| one.leaves_until).collect::<Vec<_>>();
        assert_eq!(untils(&again), untils(&kept));
    }
    let keys: Vec<_> = roles(&kept).iter().map(|(_, role, key)| (*role, *key)).collect();
    assert_eq!(keys, [(Role::Retired, false), (Role::Retired, false), (Role::Signing, true)]);
    assert_eq!(secret.data.unwrap()["theirs"].0, b"stays");
}

#[test]
fn clients_accept_the_leaf_under_its_names_until_it_expires() {
    let kept = after(Step::Create, None);
    let chain = certificates(kept.leaf.material.chain.as_bytes()).unwrap();
    let trusted = bundle(&kept);
    let hour = SignedDuration::from_hours(1);
    for (name, at, expected) in [
        (NAME, now(), true),
        ("127.0.0.1", now(), true),
        ("::1", now(), true),
        ("example.com", now(), false),
        (NAME, now() - hour, true),
        (NAME, now() - hour * 24 * 365, true),
        (NAME, kept.leaf.not_after, true),
        (NAME, kept.leaf.not_after + hour, false),
    ] {
        assert_eq!(verifies(trusted.as_bytes(), &chain, name, at), expected, "{name} at {at}");
    }
    let other = after(Step::Create, None);
    assert!(!verifies(bundle(&other).as_bytes(), &chain, NAME, now()), "another authority");
}

#[test]
fn both_leaves_of_a_rotation_verify_in_the_bundle_of_every_step() {
    let stable = after(Step::Create, None);
    let introduced = after(Step::Introduce, Some(stable.clone()));
    let switched = after(Step::Switch, Some(introduced.clone()));
    for trusted in [&introduced, &switched].map(bundle) {
        for leaf in [&stable, &introduced, &switched].map(|kept| &kept.leaf.material.chain) {
            let chain = certificates(leaf.as_bytes()).unwrap();
            assert!(verifies(trusted.as_bytes(), &chain, NAME, now()));
        }
        assert_eq!(fingerprints(trusted.as_bytes()).len(), 2);
    }
}

#[test]
fn a_damaged_secret_is_told_from_a_good_one() {
    let (kept, other) = (after(Step::Create, None), after(Step::Create, None));
    let good = create("restow-system", "webhook", &kept).unwrap();
    let foreign = create("restow-system", "webhook", &other).unwrap();
    let with = |key: &str, value: Option<&[u8]>| {
        let mut secret = good.clone();
        let data = secret.data.as_mut().unwrap();
        match value {
            Some(value) => data.insert(key.to_owned(), ByteString(value.to_vec())),
            None => data.remove(key),
        };
        secret
    };
    let theirs = |key: &str| foreign.data.as_ref().unwrap()[key].0.clone();
    for (secret, expected) in [
        (with(AUTHORITIES, None), "it has no authorities.json"),
        (with(CHAIN, None), "it has no tls.crt"),
        (with(KEY, Some(b"")), "it has no tls.key"),
        (with(CHAIN, Some(b"no PEM")), "its tls.crt cannot be used"),
        (with(CHAIN, Some(&[0xff])), "its tls.crt is not text"),
        (
            with(AUTHORITIES, Some(b"[]")),
            "its authorities.json must have exactly one signing authority, and has 0",
        ),
        (with(AUTHORITIES, Some(b"{")), "its authorities.json cannot be read"),
        (with(CHAIN, Some(&theirs(CHAIN))), "its tls.crt is not signed by its signing authority"),
    ] {
        match read(&secret, false).unwrap() {
            Found::Damaged(error) => assert_eq!(error.to_string(), expected),
            other => panic!("{expected}: {other:?}"),
        }
    }
}

#[test]
fn a_secret_without_the_label_is_somebody_elses() {
    let kept = after(Step::Create, None);
    let mut secret = create("restow-system", "webhook", &kept).unwrap();
    assert!(matches!(read(&secret, true).unwrap(), Found::Foreign(_)), "the user says so");
    secret.metadata.labels = None;
    let Found::Foreign(foreign) = read(&secret, false).unwrap() else { panic!("its own") };
    assert_eq!(foreign.bundle, Some(bundle(&kept)));
    secret.data = None;
    assert_eq!(read(&secret, false).unwrap_err().to_string(), "it has no tls.crt");
}

#[test]
fn keys_are_not_shown() {
    let kept = after(Step::Create, None);
    let shown = format!("{kept:?}");
    assert!(!shown.contains("PRIVATE") && !shown.contains("BEGIN"), "{shown}");
}

#[test]
fn a_secret_of_restow_that_lost_its_label_is_told_from_one_of_somebody_else() {
    let mut secret = create("restow-system", "webhook", &after(Step::Create, None)).unwrap();
    let unlabelled = |secret: &Secret| match read(secret, false).unwrap() {
        Found::Foreign(foreign) => Some(foreign.unlabelled),
        _ => None,
    };
    assert_eq!(unlabelled(&secret), None);
    secret.metadata.labels = None;
    assert_eq!(unlabelled(&secret), Some(true));
    secret.data.as_mut().unwrap().remove(AUTHORITIES);
    assert_eq!(unlabelled(&secret), Some(false));
}
