//! What API servers do, in the order in which the library does it, and what becomes of them.

use super::bug::Bug;
use super::protocol::{Action, Protocol};
use super::rules::{self, Registrant, Status};
use super::state::{Age, Lease, Message, Sight, State, Step, Version, Write};

/// How many writes are under way at most.
const WRITES: usize = 2;

impl Protocol {
    pub(crate) fn server_actions(&self, state: &State, server: usize, actions: &mut Vec<Action>) {
        let own = &state.servers[server];
        let faults = state.budget.faults > 0;
        if own.step == Step::Down {
            let one = state.definition.map(|definition| definition.version);
            let may = |version: &Version| one.is_none_or(|one| one == *version);
            actions
                .extend(Version::BOTH.into_iter().filter(may).map(|version| Action::Start(server, version)));
            if own.lease.is_some_and(|lease| lease.age != Age::Expired) {
                actions.push(Action::Expire(server));
            }
            return;
        }
        let idle = !state.writes.iter().any(|write| write.server == server);
        if state.budget.restarts > 0 && idle {
            actions.push(Action::Stop(server));
        }
        if faults {
            actions.push(Action::Crash(server));
        }
        match own.lease.map(|lease| lease.age) {
            Some(Age::Fresh) if faults => actions.push(Action::Pause(server)),
            // The store answers a write sooner than a third of a Lease's duration.
            Some(Age::Late) if idle || self.has(Bug::WriteOutlivesLease) => {
                actions.push(Action::Expire(server))
            }
            _ => {}
        }
        let has_time = own.lease.is_none() && self.has(Bug::RegisteredBeforeMember);
        if !own.stands() && !has_time {
            actions.push(Action::Rejoin(server));
        }
        self.registration_actions(state, server, actions);
        if self.may_write(own) && state.budget.writes > 0 && state.writes.len() < WRITES {
            actions.extend((0..self.scene.objects).map(|object| Action::Write { server, object }));
        }
    }

    fn registration_actions(&self, state: &State, server: usize, actions: &mut Vec<Action>) {
        let own = &state.servers[server];
        let faults = state.budget.faults > 0;
        let lags = state.definition.is_some_and(|definition| definition.version != own.version);
        // A write under way is under way in the old version.
        let drained = self.has(Bug::Undrained) || !state.writes.iter().any(|write| write.server == server);
        match own.step {
            Step::Member if !lags || drained => actions.push(Action::Read(server)),
            Step::Read(_) => {
                actions.push(Action::Register { server, blind: false });
                if faults {
                    actions.push(Action::Register { server, blind: true });
                }
            }
            Step::Sent if faults && awaits(state, server) => actions.push(Action::GiveUp(server)),
            Step::Answered => actions.push(Action::Enable(server)),
            Step::Registered if lags && drained => actions.push(Action::Drain(server)),
            _ => {}
        }
    }

    pub(crate) fn start(&self, state: &mut State, server: usize, version: Version) {
        state.servers[server].version = version;
        self.join(state, server);
    }

    /// Becomes a member, in a new life.
    pub(crate) fn join(&self, state: &mut State, server: usize) {
        forget_answer(state, server);
        let own = &mut state.servers[server];
        own.life += 1;
        own.step = Step::Member;
        let lease = Lease { life: own.life, age: Age::Fresh };
        own.lease = (!self.has(Bug::RegisteredBeforeMember)).then_some(lease);
    }

    pub(crate) fn stop(&self, state: &mut State, server: usize) {
        state.budget.restarts -= 1;
        leave(state, server);
        state.servers[server].lease = None;
    }

    pub(crate) fn crash(&self, state: &mut State, server: usize) {
        state.budget.faults -= 1;
        leave(state, server);
        // What it has sent to the store is stored before its next life has registered, or never.
        if !self.has(Bug::WriteOutlivesLife) {
            state.writes.retain(|write| write.server != server);
        }
    }

    pub(crate) fn age(&self, state: &mut State, server: usize, age: Age) {
        if let Some(lease) = &mut state.servers[server].lease {
            lease.age = age;
        }
    }

    pub(crate) fn read(&self, state: &mut State, server: usize) {
        if let Some(definition) = state.definition {
            state.servers[server].version = definition.version;
        }
        if state.object.is_none() {
            state.put(Some(Status::NONE));
        }
        let status = state.object.unwrap_or_default();
        state.servers[server].step = Step::Read(Sight { status, current: true });
    }

    pub(crate) fn register(&self, state: &mut State, server: usize, blind: bool) {
        if blind {
            state.budget.faults -= 1;
        }
        let clock = self.clock(state);
        let mut ages = state.ages();
        if self.has(Bug::RegisteredBeforeMember) {
            ages[server] = Some(Age::Fresh);
        }
        let own = &mut state.servers[server];
        let Step::Read(read) = own.step else { return };
        let life = Some(own.life).filter(|_| !self.has(Bug::NoTraceOfALife));
        let registrant = Registrant { server, version: own.version, life, clock };
        let ages = Some(ages).filter(|_| !blind);
        match rules::register(read.status, ages, registrant) {
            None => own.step = Step::Member,
            Some(status) => {
                own.step = Step::Sent;
                let current = read.current;
                state.network.push(Message::Register { server, current, status, awaited: true });
            }
        }
    }

    pub(crate) fn give_up(&self, state: &mut State, server: usize) {
        forget_answer(state, server);
        state.servers[server].step = Step::Member;
    }

    pub(crate) fn drain(&self, state: &mut State, server: usize) {
        let own = &mut state.servers[server];
        if let Some(definition) = state.definition {
            own.version = definition.version;
        }
        if !self.has(Bug::CustomNeverRegistered) {
            own.step = Step::Member;
        }
    }

    pub(crate) fn enable(&self, state: &mut State, server: usize) {
        let own = &mut state.servers[server];
        let lags = state.definition.is_some_and(|definition| definition.version != own.version);
        own.step = if lags { Step::Member } else { Step::Registered };
    }

    pub(crate) fn write(&self, state: &mut State, server: usize, object: usize) {
        state.budget.writes -= 1;
        let version = state.servers[server].version;
        state.writes.push(Write { server, object, version });
    }

    pub(crate) fn store(&self, state: &mut State, index: usize) {
        let write = state.writes.remove(index);
        self.stored(state, write.object, write.version);
    }

    /// An object is stored, by a user's write or the migrator's.
    pub(crate) fn stored(&self, state: &mut State, object: usize, version: Version) {
        if self.agreed(state).is_ok_and(|agreed| agreed != version) {
            state.ghost.late_write = true;
        }
        state.store(object, version);
    }
}

fn awaits(state: &State, server: usize) -> bool {
    state.network.iter().any(
        |message| matches!(message, Message::Register { server: of, awaited: true, .. } if *of == server),
    )
}

fn forget_answer(state: &mut State, server: usize) {
    for message in &mut state.network {
        if let Message::Register { server: of, awaited, .. } = message
            && *of == server
        {
            *awaited = false;
        }
    }
}

/// The process ends, and what it has sent goes on.
fn leave(state: &mut State, server: usize) {
    forget_answer(state, server);
    state.collecting.retain(|collecting| collecting.server != server);
    state.servers[server].step = Step::Down;
}
