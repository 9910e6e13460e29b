//! A model of replicas, the Secret and CRDs: whatever reads late and writes late, every leaf that is served verifies in
//! every CRD. The decisions are the real ones.

use std::convert::Infallible;

use proptest::prelude::*;
use restow_clock::Instant;

use super::*;
use crate::certificates::trust::{CrdTrust, Trust};

/// Makes authorities that are numbers.
#[derive(Default)]
pub(super) struct Counter(u32);

impl Mint for Counter {
    type Authority = ();
    type Leaf = ();
    type Error = Infallible;

    fn authority(&mut self, _: Timestamp, _: Timestamp) -> Result<(AuthorityId, ()), Infallible> {
        self.0 += 1;
        Ok((AuthorityId(self.0.to_string()), ()))
    }

    fn leaf(&mut self, (): &(), _: &BTreeSet<String>, _: Timestamp, _: Timestamp) -> Result<(), Infallible> {
        Ok(())
    }

    fn retire(&mut self, (): &mut ()) {}
}

type Certificates = Kept<(), ()>;
const REPLICAS: usize = 2;
const CRDS: usize = 3;

/// One thing that happens. Replicas and CRDs are numbers.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// Time passes, in minutes.
    Pass(u16),
    /// A replica reads the Secret, and serves its leaf.
    Read(usize),
    /// A replica writes what it decided from what it read last.
    Write(usize),
    /// A replica starts again, with nothing in memory.
    Restart(usize),
    /// A user asks for a rotation.
    Ask,
    /// A replica reads the Secret and the CRDs, to learn whom they trust.
    Observe(usize),
    /// A replica reads a CRD, to register or update it.
    ReadCrd(usize, usize),
    /// It then reads the Secret for it.
    ReadBundle(usize),
    /// It then writes the CRD, if nobody else did meanwhile.
    WriteCrd(usize),
    /// A user edits a CRD.
    Edit(usize),
}

fn event() -> impl Strategy<Value = Event> {
    let (replica, crd) = (0..REPLICAS, 0..CRDS);
    prop_oneof![
        2 => (1u16..60 * 24).prop_map(Event::Pass),
        4 => replica.clone().prop_map(Event::Read),
        4 => replica.clone().prop_map(Event::Write),
        1 => replica.clone().prop_map(Event::Restart),
        1 => Just(Event::Ask),
        4 => replica.clone().prop_map(Event::Observe),
        6 => (replica.clone(), crd.clone()).prop_map(|(replica, crd)| Event::ReadCrd(replica, crd)),
        6 => replica.clone().prop_map(Event::ReadBundle),
        6 => replica.prop_map(Event::WriteCrd),
        1 => crd.prop_map(Event::Edit),
    ]
}

#[derive(Clone, Default)]
struct Crd {
    version: u32,
    /// Whether a replica announced that it will register it.
    announced: bool,
    /// Whom it trusts, once it calls the webhook.
    trusts: Option<BTreeSet<AuthorityId>>,
}

#[derive(Default)]
struct Replica {
    /// What it read last, with the version of the Secret.
    view: Option<(u32, Option<Certificates>)>,
    serves: Option<(AuthorityId, Timestamp)>,
    trust: Trust,
    /// The CRD that it works on, as it read it, and the authorities that it will write.
    at_work: Option<(usize, Crd, Option<BTreeSet<AuthorityId>>)>,
}

struct World {
    now: Timestamp,
    start: Instant,
    mint: Counter,
    wanted: Wanted,
    version: u32,
    secret: Option<Certificates>,
    asked: bool,
    crds: [Crd; CRDS],
    replicas: [Replica; REPLICAS],
}

fn ids(kept: &Certificates) -> BTreeSet<AuthorityId> {
    kept.authorities.iter().map(|authority| authority.id.clone()).collect()
}

impl World {
    fn new(settle: Duration) -> Self {
        // Leaves are short-lived, so that retired authorities are forgotten within a run.
        let leaf = Duration::from_secs(2 * 24 * 3600);
        let lifetimes = Lifetimes { settle, leaf, ..Lifetimes::default() };
        Self {
            now: Timestamp::UNIX_EPOCH,
            start: Instant::now(),
            mint: Counter::default(),
            wanted: Wanted { names: BTreeSet::from(["webhook".to_owned()]), lifetimes },
            version: 0,
            secret: None,
            asked: false,
            crds: Default::default(),
            replicas: Default::default(),
        }
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Pass(minutes) => self.now += SignedDuration::from_mins(minutes.into()),
            Event::Read(replica) => self.read(replica),
            Event::Write(replica) => self.write(replica),
            Event::Restart(replica) => self.replicas[replica] = Replica::default(),
            Event::Ask => self.asked = true,
            Event::Observe(replica) => self.observe(replica),
            Event::ReadCrd(replica, crd) => {
                self.replicas[replica].at_work = Some((crd, self.crds[crd].clone(), None));
            }
            Event::ReadBundle(replica) => {
                let bundle = self.secret.as_ref().map(ids);
                if let (Some((_, _, known)), Some(bundle)) = (&mut self.replicas[replica].at_work, bundle) {
                    *known = Some(bundle);
                }
            }
            Event::WriteCrd(replica) => self.write_crd(replica),
            Event::Edit(crd) => self.crds[crd].version += 1,
        }
    }

    fn read(&mut self, replica: usize) {
        let replica = &mut self.replicas[replica];
        replica.view = Some((self.version, self.secret.clone()));
        if let Some(kept) = &self.secret {
            replica.serves = Some((kept.leaf.signed_by.clone(), kept.leaf.not_after));
        }
    }

    fn write(&mut self, index: usize) {
        let replica = &mut self.replicas[index];
        let Some((version, kept)) = replica.view.take() else { return };
        let next = kept.as_ref().and_then(|kept| kept.next());
        let seen = Seen {
            next_trusted_for: next.and_then(|next| replica.trust.lasting(&next.id)),
            rotation_requested: self.asked,
        };
        let step = next_step(kept.as_ref(), &self.wanted, seen, self.now);
        let Ok(kept) = carry_out(&mut self.mint, step, kept, &self.wanted, self.now);
        if version == self.version && step != Step::Keep {
            self.version += 1;
            self.secret = kept;
            self.asked &= step != Step::Introduce;
            self.read(index);
        }
    }

    fn observe(&mut self, replica: usize) {
        let Some(kept) = &self.secret else { return };
        let calls = |crd: &&Crd| crd.announced || crd.trusts.is_some();
        let trust = |crd: &Crd| CrdTrust {
            name: "a CRD".to_owned(),
            authorities: crd.trusts.clone().unwrap_or_default(),
        };
        let crds = self.crds.iter().filter(calls).map(trust).collect();
        let elapsed = Duration::try_from(self.now.duration_since(Timestamp::UNIX_EPOCH)).unwrap();
        self.replicas[replica].trust.observe(self.start + elapsed, &ids(kept), crds);
    }

    fn write_crd(&mut self, replica: usize) {
        let Some((crd, read, bundle)) = self.replicas[replica].at_work.take() else { return };
        let Some(bundle) = bundle.filter(|_| self.crds[crd].version == read.version) else { return };
        let crd = &mut self.crds[crd];
        crd.version += 1;
        // It is announced first. Whoever observes the CRDs then knows that it has to trust the next authority.
        if read.announced {
            crd.trusts = Some(bundle);
        } else {
            crd.announced = true;
        }
    }

    /// Every leaf that is served and valid verifies in every CRD that calls the webhook.
    fn every_leaf_verifies(&self) -> Result<(), TestCaseError> {
        for (signed_by, not_after) in self.replicas.iter().filter_map(|replica| replica.serves.as_ref()) {
            for trusted in self.crds.iter().filter_map(|crd| crd.trusts.as_ref()) {
                let verifies = trusted.contains(signed_by) || *not_after <= self.now;
                prop_assert!(verifies, "a leaf of {signed_by} is served, and a CRD trusts only {trusted:?}");
            }
        }
        Ok(())
    }

    /// One fair round: everybody reads and does what it has to.
    fn round(&mut self) {
        for replica in 0..REPLICAS {
            for crd in 0..CRDS {
                for event in
                    [Event::ReadCrd(replica, crd), Event::ReadBundle(replica), Event::WriteCrd(replica)]
                {
                    self.happens(event);
                }
            }
            for event in
                [Event::Observe(replica), Event::Read(replica), Event::Write(replica), Event::Pass(10)]
            {
                self.happens(event);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn every_served_leaf_verifies_in_every_crd_whoever_is_late(
        events in prop::collection::vec(event(), 0..600),
        settle_minutes in prop_oneof![Just(0u64), Just(5), Just(600)],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _entered = runtime.enter();
        let mut world = World::new(Duration::from_secs(60 * settle_minutes));
        for event in events {
            world.happens(event);
            world.every_leaf_verifies()?;
        }
        // When everybody gets its turn, a rotation that is asked for completes.
        let before = world.secret.as_ref().and_then(|kept| kept.signing().map(|signing| signing.id.clone()));
        world.happens(Event::Ask);
        let mut rounds = 0;
        let after = |world: &World| {
            let kept = world.secret.as_ref().filter(|kept| !world.asked && kept.next().is_none());
            kept.and_then(|kept| kept.signing().map(|signing| signing.id.clone()))
        };
        while after(&world).is_none() || after(&world) == before {
            rounds += 1;
            prop_assert!(rounds < 200, "the rotation does not end");
            world.round();
            world.every_leaf_verifies()?;
        }
    }
}
