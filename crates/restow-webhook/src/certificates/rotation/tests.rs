//! Tables of decisions, and the steps of one rotation.

use super::*;
use crate::certificates::rotation::model::Counter;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

fn at(days: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_hours(24 * days)
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn wanted() -> Wanted {
    Wanted { names: names(&["webhook.restow-system.svc"]), lifetimes: Lifetimes::default() }
}

fn authority(id: &str, role: Role, not_after: i64, leaves_until: Option<i64>) -> Authority<()> {
    let leaves_until = leaves_until.map(at);
    Authority { id: AuthorityId(id.to_owned()), not_after: at(not_after), role, leaves_until, material: () }
}

fn kept(authorities: Vec<Authority<()>>, signed_by: &str, not_after: i64) -> Kept<(), ()> {
    let leaf = Leaf {
        signed_by: AuthorityId(signed_by.to_owned()),
        not_after: at(not_after),
        names: wanted().names,
        material: (),
    };
    Kept { authorities, leaf }
}

fn trusted(duration: Duration) -> Seen {
    Seen { next_trusted_for: Some(duration), ..Seen::default() }
}

#[test]
fn the_next_step_follows_from_what_is_kept_and_seen() {
    use Role::{Next, Retired, Signing};
    let settle = wanted().lifetimes.settle;
    let (unseen, asked) = (Seen::default(), Seen { rotation_requested: true, ..Seen::default() });
    let stable = || kept(vec![authority("a", Signing, 365, Some(30))], "a", 30);
    let rotating = || {
        let authorities = vec![authority("a", Signing, 365, Some(270)), authority("b", Next, 610, None)];
        kept(authorities, "a", 270)
    };
    let retired = |until| {
        let authorities =
            vec![authority("a", Retired, 365, Some(until)), authority("b", Signing, 610, Some(280))];
        kept(authorities, "b", 280)
    };
    for (what, kept, seen, now, expected) in [
        ("fresh", stable(), unseen, at(1), Step::Keep),
        ("two thirds of the leaf's life are over", stable(), unseen, at(21), Step::RenewLeaf),
        ("not yet two thirds", stable(), unseen, at(20), Step::Keep),
        ("the leaf has expired, its authority not", stable(), unseen, at(100), Step::RenewLeaf),
        ("a user asks", stable(), asked, at(1), Step::Introduce),
        ("a user asks during a rotation", rotating(), asked, at(245), Step::Keep),
        (
            "two thirds of the authority's life are over",
            kept(vec![authority("a", Signing, 365, Some(270))], "a", 270),
            unseen,
            at(244),
            Step::Introduce,
        ),
        ("nobody knows who trusts the next one", rotating(), unseen, at(245), Step::Keep),
        ("it is trusted for too short a time", rotating(), trusted(settle - SECOND), at(245), Step::Keep),
        ("all trust it", rotating(), trusted(settle), at(245), Step::Switch),
        ("a leaf is renewed while the next one waits", rotating(), unseen, at(265), Step::RenewLeaf),
        ("the signing one has expired", rotating(), unseen, at(366), Step::Switch),
        ("the signing one has expired alone", stable(), unseen, at(366), Step::Replace),
        ("both have expired", rotating(), unseen, at(611), Step::Replace),
        ("a leaf of the retired one may be served", retired(270), unseen, at(269), Step::Keep),
        ("the retired one's leaves have just expired", retired(270), unseen, at(270), Step::Keep),
        ("they expired on every clock", retired(259), unseen, at(260), Step::Forget),
        (
            "the leaf ends with its authority",
            kept(vec![authority("a", Signing, 365, Some(365)), authority("b", Next, 700, None)], "a", 365),
            unseen,
            at(364),
            Step::Keep,
        ),
        (
            "the next one was never trusted and has expired",
            kept(vec![authority("a", Signing, 900, Some(640)), authority("b", Next, 610, None)], "a", 640),
            unseen,
            at(615),
            Step::Forget,
        ),
    ] {
        assert_eq!(next_step(Some(&kept), &wanted(), seen, now), expected, "{what}");
    }
    assert_eq!(next_step::<(), ()>(None, &wanted(), unseen, at(0)), Step::Create);
}

#[test]
fn a_leaf_without_a_wanted_name_is_renewed_and_keeps_its_other_names() {
    let mut mint = Counter::default();
    let before = carry_out(&mut mint, Step::Create, None, &wanted(), at(0)).unwrap().unwrap();
    let more = Wanted { names: names(&["127.0.0.1"]), ..wanted() };
    assert_eq!(next_step(Some(&before), &more, Seen::default(), at(0)), Step::RenewLeaf);
    let after = carry_out(&mut mint, Step::RenewLeaf, Some(before), &more, at(0)).unwrap().unwrap();
    assert_eq!(after.leaf.names, names(&["127.0.0.1", "webhook.restow-system.svc"]));
    for wanted in [wanted(), more] {
        assert_eq!(next_step(Some(&after), &wanted, Seen::default(), at(0)), Step::Keep);
    }
}

#[test]
fn a_rotation_overlaps_and_ends() {
    let mut mint = Counter::default();
    let mut kept = None;
    let mut steps = Vec::new();
    let mut now = at(0);
    // Every CRD is patched at once.
    let seen = trusted(HOUR);
    while now < at(300) {
        let step = next_step(kept.as_ref(), &wanted(), seen, now);
        if matches!(step, Step::Keep) {
            now += SignedDuration::from_hours(1);
            continue;
        }
        kept = carry_out(&mut mint, step, kept, &wanted(), now).unwrap();
        let (after, ids) = (kept.as_ref().unwrap(), |role| {
            let of = kept.as_ref().unwrap().authorities.iter().filter(move |one| one.role == role);
            of.map(|one| one.id.0.clone()).collect::<Vec<_>>().join(" ")
        });
        assert_eq!(after.leaf.signed_by.0, ids(Role::Signing));
        if step != Step::RenewLeaf {
            let day = now.duration_since(at(0)).as_hours() / 24;
            steps.push(format!(
                "{day}: {step:?}: {}|{}|{}",
                ids(Role::Next),
                ids(Role::Signing),
                ids(Role::Retired)
            ));
        }
    }
    let expected = ["0: Create: |1|", "243: Introduce: 2|1|", "243: Switch: |2|1", "270: Forget: |2|"]
        .map(str::to_owned);
    assert_eq!(steps, expected);
}

#[test]
fn the_last_leaf_of_an_authority_counts_even_if_lives_become_shorter() {
    let mut mint = Counter::default();
    let kept = carry_out(&mut mint, Step::Create, None, &wanted(), at(0)).unwrap();
    let short = Wanted { lifetimes: Lifetimes { leaf: DAY, ..Lifetimes::default() }, ..wanted() };
    let kept = carry_out(&mut mint, Step::RenewLeaf, kept, &short, at(0)).unwrap();
    let kept = carry_out(&mut mint, Step::Introduce, kept, &short, at(0)).unwrap();
    let kept = carry_out(&mut mint, Step::Switch, kept, &short, at(0)).unwrap().unwrap();
    assert_eq!(
        kept.authorities[0].leaves_until,
        Some(at(30)),
        "a replica may serve the first leaf for 30 days"
    );
}

#[test]
fn a_rotation_waits_while_too_many_authorities_are_kept() {
    let mut authorities = vec![authority("a", Role::Signing, 365, Some(30))];
    authorities.extend((1..MAX_AUTHORITIES).map(|n| authority(&n.to_string(), Role::Retired, 365, Some(30))));
    let asked = Seen { rotation_requested: true, ..Seen::default() };
    let mut kept = kept(authorities, "a", 30);
    assert_eq!(next_step(Some(&kept), &wanted(), asked, at(0)), Step::Keep);
    kept.authorities.pop();
    assert_eq!(next_step(Some(&kept), &wanted(), asked, at(0)), Step::Introduce);
}
