//! Which states are alike: one stands for all that differ in nothing that can matter.
//!
//! Servers are interchangeable, so they are put in an order; the names of steps in a path follow that order. A life is
//! the present one or a former one. Of times only their order counts.

use k8s_openapi::api::apiserverinternal::v1alpha1::StorageVersionStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use restow_core::protocol::storage_version::ALL_EQUAL;

use super::rules::{Memory, NAMES, Persisted, Status, at_clock, clock_of, remember};
use super::state::{At, Change, Message, Pass, SERVERS, Server, State, Step, Version};

/// How what is named in one state is named in the one that stands for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Names {
    /// Where each server goes.
    to: [usize; SERVERS],
    /// The present life of each server.
    lives: [u8; SERVERS],
    /// The times that are spoken of.
    times: u32,
}

/// The present life of every server, and any former one.
const PRESENT: u8 = 1;
const FORMER: u8 = 0;

pub(crate) fn represent(state: &mut State, servers: usize) {
    forget(state);
    let names = Names {
        to: order(state, servers),
        lives: state.servers.map(|server| server.life),
        times: times(state),
    };
    for (old, mut server) in state.servers.into_iter().enumerate() {
        if let Some(lease) = &mut server.lease {
            lease.life = names.life(old, lease.life);
        }
        server.life = PRESENT;
        if let Step::Read(sight) = &mut server.step {
            sight.status = names.status(sight.status);
        }
        state.servers[names.to[old]] = server;
    }
    state.object = state.object.map(|status| names.status(status));
    for message in &mut state.network {
        match message {
            Message::Register { server, status, .. } => {
                *server = names.to[*server];
                *status = names.status(*status);
            }
            Message::Collect { change: Change::Update(status), .. } => *status = names.status(*status),
            Message::Collect { change: Change::Delete, .. } => {}
        }
    }
    for collecting in &mut state.collecting {
        collecting.server = names.to[collecting.server];
        collecting.read.status = names.status(collecting.read.status);
    }
    for write in &mut state.writes {
        write.server = names.to[write.server];
    }
    state.persisted = names.persisted(state.persisted);
}

/// What is never asked again.
fn forget(state: &mut State) {
    for server in state.servers.iter_mut().filter(|server| server.step == Step::Down) {
        server.version = Version::V1;
    }
    if let Some(run) = &mut state.run
        && matches!(run.at, At::Ended | At::Failed)
    {
        (run.pass, run.passes, run.shifted, run.rewritten) = (Pass::Verifying, 0, false, false);
        if let Some(mark) = &mut run.mark {
            mark.current = false;
        }
    }
}

/// Where each server goes, by what does not depend on its name.
fn order(state: &State, servers: usize) -> [usize; SERVERS] {
    let entries = state.object.unwrap_or_default().entries();
    let key = |index: usize| {
        let Server { step, version, lease, life } = state.servers[index];
        let step = match step {
            Step::Down => 0,
            Step::Member => 1,
            Step::Read(_) => 2,
            Step::Sent => 3,
            Step::Answered => 4,
            Step::Registered => 5,
        };
        let writes: Vec<_> = state.writes.iter().filter(|write| write.server == index).collect();
        let writes: Vec<_> = writes.iter().map(|write| (write.object, write.version)).collect();
        let collecting = state.collecting.iter().filter(|collecting| collecting.server == index).count();
        let sent =
            |message: &&Message| matches!(message, Message::Register { server, .. } if *server == index);
        let sent = state.network.iter().filter(sent).count();
        (
            step,
            version,
            lease.map(|lease| (lease.life == life, lease.age)),
            entries[index],
            writes,
            collecting,
            sent,
        )
    };
    let mut from: [usize; SERVERS] = std::array::from_fn(|index| index);
    from[..servers].sort_by_cached_key(|index| key(*index));
    let mut to = [0; SERVERS];
    for (new, old) in from.into_iter().enumerate() {
        to[old] = new;
    }
    to
}

/// The times that are spoken of, as bits.
pub(crate) fn times(state: &State) -> u32 {
    let sent = state.network.iter().filter_map(|message| match message {
        Message::Register { status, .. } | Message::Collect { change: Change::Update(status), .. } => {
            Some(*status)
        }
        Message::Collect { change: Change::Delete, .. } => None,
    });
    let read = state.servers.iter().filter_map(|server| match server.step {
        Step::Read(sight) => Some(sight.status),
        _ => None,
    });
    let collecting = state.collecting.iter().map(|collecting| collecting.read.status);
    let all = state.object.into_iter().chain(sent).chain(read).chain(collecting).filter_map(since);
    all.chain(agreed_since(state.persisted)).fold(0, |times, clock| times | 1 << clock)
}

fn since(status: Status) -> Option<u8> {
    thread_local!(static KNOWN: Memory<Status, Option<u8>> = Memory::default());
    remember(&KNOWN, status, || super::rules::since(&*status.read()?).map(clock_of))
}

fn agreed_since(persisted: Persisted) -> Option<u8> {
    thread_local!(static KNOWN: Memory<Persisted, Option<u8>> = Memory::default());
    remember(&KNOWN, persisted, || persisted.read()?.agreed_since.as_ref().map(|time| clock_of(time.0)))
}

impl Names {
    fn life(&self, server: usize, life: u8) -> u8 {
        if life == self.lives[server] { PRESENT } else { FORMER }
    }

    fn time(&self, time: &Time) -> Time {
        let earlier = self.times & ((1 << clock_of(time.0)) - 1);
        Time(at_clock(u8::try_from(earlier.count_ones()).unwrap()))
    }

    fn status(&self, status: Status) -> Status {
        thread_local!(static KNOWN: Memory<(Status, Names), Status> = Memory::default());
        remember(&KNOWN, (status, *self), || match status.read() {
            None => status,
            Some(before) => Status::new(self.rename(&before)),
        })
    }

    fn rename(&self, status: &StorageVersionStatus) -> StorageVersionStatus {
        let mut status = status.clone();
        let server = |id: &str| NAMES.iter().position(|name| *name == id).unwrap();
        for entry in status.storage_versions.iter_mut().flatten() {
            entry.api_server_id = NAMES[self.to[server(&entry.api_server_id)]].to_owned();
        }
        if let Some(entries) = &mut status.storage_versions {
            // No rule goes by their order.
            entries.sort_by(|one, other| one.api_server_id.cmp(&other.api_server_id));
        }
        for condition in
            status.conditions.iter_mut().flatten().filter(|condition| condition.type_ == ALL_EQUAL)
        {
            if let Some((what, last)) = condition.message.rsplit_once("; ") {
                let (holder, registered) = last.split_once(' ').unwrap();
                let (id, life) = holder.split_once('_').unwrap();
                let life = self.life(server(id), life.parse().unwrap());
                condition.message = format!("{what}; {}_{life} {registered}", NAMES[self.to[server(id)]]);
            }
            // Since when they disagree is never asked.
            let disagree = condition.status != "True";
            let time = |time: &Time| if disagree { Time(at_clock(0)) } else { self.time(time) };
            condition.last_transition_time = condition.last_transition_time.as_ref().map(time);
        }
        status
    }

    fn persisted(&self, persisted: Persisted) -> Persisted {
        thread_local!(static KNOWN: Memory<(Persisted, u32), Persisted> = Memory::default());
        remember(&KNOWN, (persisted, self.times), || match persisted.read() {
            None => persisted,
            Some(before) => {
                let mut after = (*before).clone();
                after.agreed_since = after.agreed_since.as_ref().map(|time| self.time(time));
                // However often it was tried before, the pause is over.
                let retries = after.replaced_migrations.filter(|_| after.pending_migration.is_some());
                after.replaced_migrations = retries.map(|_| 1);
                Persisted::new(after)
            }
        })
    }
}
