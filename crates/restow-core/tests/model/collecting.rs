//! The way of requests to the StorageVersion, and collectors, of which two may lead for a while.

use super::bug::Bug;
use super::protocol::{Action, Protocol};
use super::rules;
use super::state::{Age, Change, Collecting, Lease, Message, Sight, State, Step};

/// How many requests are on their way at most, of those that may come to anything.
const MESSAGES: usize = 4;

impl Protocol {
    pub(crate) fn network_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for index in 0..state.network.len() {
            actions.push(Action::Deliver(index));
            if state.budget.faults > 0 {
                actions.push(Action::Repeat(index));
            }
        }
        for index in 0..state.writes.len() {
            actions.push(Action::Store(index));
        }
        if !self.has(Bug::NoCollector) {
            self.collecting_actions(state, actions);
        }
    }

    fn collecting_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let Some(object) = state.object else { return };
        let misreads = self.has(Bug::UnreadLeaseIsDeath) && state.budget.faults > 0;
        // Where there is nothing to collect yet, a later look finds it as well.
        let entries = object.entries();
        let gone = |server: usize| entries[server].is_some() && !rules::is_live(state.ages(), server);
        let garbage = entries.iter().all(Option::is_none) || (0..entries.len()).any(gone);
        let early = self.has(Bug::MembersBeforeEntries) || misreads;
        let room = state.collecting.len() < self.scene.collectors && state.network.len() < MESSAGES;
        if (garbage || early) && room {
            let up = |server: &usize| {
                state.servers[*server].step != Step::Down
                    && !state.collecting.iter().any(|collecting| collecting.server == *server)
            };
            actions.extend((0..self.scene.servers).filter(up).map(Action::ReadEntries));
        }
        for index in 0..state.collecting.len() {
            actions.push(Action::Collect { index, misread: None });
            if misreads {
                let misread = |server| Action::Collect { index, misread: Some(server) };
                actions.extend((0..self.scene.servers).map(misread));
            }
        }
    }

    pub(crate) fn read_entries(&self, state: &mut State, server: usize) {
        let read = Sight { status: state.object.unwrap_or_default(), current: true };
        let live = |server: &usize| rules::is_live(state.ages(), *server);
        let mask = || (0..self.scene.servers).filter(live).fold(0, |mask, server| mask | 1 << server);
        let members = self.has(Bug::MembersBeforeEntries).then(mask);
        state.collecting.push(Collecting { server, read, members });
    }

    pub(crate) fn collect(&self, state: &mut State, index: usize, misread: Option<usize>) {
        if misread.is_some() {
            state.budget.faults -= 1;
        }
        let clock = self.clock(state);
        let Collecting { server, mut read, members } = state.collecting.remove(index);
        let mut ages = state.ages();
        if let Some(members) = members {
            for (server, age) in ages.iter_mut().enumerate() {
                *age = (members & (1 << server) != 0).then_some(Age::Fresh);
            }
            // The entries come after.
            let Some(status) = state.object else { return };
            read = Sight { status, current: true };
        }
        if let Some(change) = rules::collect(read.status, ages, server, misread, clock) {
            state.network.push(Message::Collect { current: read.current, change });
        }
    }

    /// What was just sent arrives at once.
    pub(crate) fn deliver_last(&self, state: &mut State) {
        if let Some(message) = state.network.pop() {
            self.deliver(state, message);
        }
    }

    /// A request arrives: it is carried out if what it was computed from is still what there is.
    pub(crate) fn deliver(&self, state: &mut State, message: Message) {
        let there = state.object.is_some();
        match message {
            Message::Register { server, current, status, awaited } => {
                let done = there && (current || self.has(Bug::UnconditionalRegistration));
                if done {
                    state.put(Some(status));
                }
                if awaited {
                    self.answer(state, server, done);
                }
            }
            Message::Collect { current, change: Change::Update(status) } => {
                if there && (current || self.has(Bug::UnconditionalCollection)) {
                    state.put(Some(status));
                }
            }
            Message::Collect { current, change: Change::Delete } => {
                if there && (current || self.has(Bug::UnconditionalDelete)) {
                    state.put(None);
                }
            }
        }
    }

    fn answer(&self, state: &mut State, server: usize, done: bool) {
        let own = &mut state.servers[server];
        own.step = match done {
            true if self.scene.custom && !self.has(Bug::EnabledUnasked) => Step::Answered,
            true => Step::Registered,
            false => Step::Member,
        };
        if self.has(Bug::RegisteredBeforeMember) && own.lease.is_none() {
            own.lease = Some(Lease { life: own.life, age: Age::Fresh });
        }
    }
}
