//! The model: which steps there are from a state, and where they lead.

use std::sync::LazyLock;

use restow_core::protocol::request::ResourcePath;
use restow_core::protocol::write_gate::{RequestSource, exception};
use restow_core::resource::inventory::Origin;
use stateright::{Model, Property};

use super::bug::Bug;
use super::likeness;
use super::properties;
use super::rules::{Seen, Silent};
use super::scene::Scene;
use super::state::{Age, Message, Server, State, Step, Version};

/// One step of anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A server's process starts and becomes a member.
    Start(usize, Version),
    /// A server is shut down in order: no write is under way, and its Lease is deleted.
    Stop(usize),
    /// A server's process dies.
    Crash(usize),
    /// A server is silent for so long that its own tenure is over.
    Pause(usize),
    /// And for so long that others take it for gone.
    Expire(usize),
    /// A server whose tenure is over becomes a member again.
    Rejoin(usize),
    /// A server reads the StorageVersion, or makes it.
    Read(usize),
    /// A server reads the members, unless that fails, and sends its registration.
    Register { server: usize, blind: bool },
    /// A server has had no answer; its request may still arrive.
    GiveUp(usize),
    /// A server whose writes have drained takes the definition's new version.
    Drain(usize),
    /// A server reads the definition once more, and lets writes in if it is still the one that was registered.
    Enable(usize),
    /// A request arrives.
    Deliver(usize),
    /// A request arrives, and will again.
    Repeat(usize),
    /// A collector in this server reads the entries.
    ReadEntries(usize),
    /// A collector reads the members, and sends what it decides; one server's Lease may be misread.
    Collect { index: usize, misread: Option<usize> },
    /// A user's write passes a server's gate.
    Write { server: usize, object: usize },
    /// It is stored.
    Store(usize),
    /// The trigger looks at the resource.
    Look,
    /// The trigger looks at the resource, and dies after so many steps of what follows.
    LookCut(usize),
    /// The migrator looks at the agreement.
    Check,
    /// The migrator lists the objects.
    List,
    /// The migrator rewrites the next object through a server; the answer may be lost.
    Patch { server: usize, lost: bool },
    /// The list is refused to the migrator, and the migration fails.
    Refuse,
    /// The migrator's process dies, and goes on from its checkpoint.
    Resume,
    /// The pruner looks at storedVersions.
    Prune,
    /// The definition is given another storage version.
    Redefine(Version),
}

/// The protocol in a scene, right or with one bug.
#[derive(Clone)]
pub(crate) struct Protocol {
    pub(crate) scene: Scene,
    pub(crate) bug: Option<Bug>,
}

impl Protocol {
    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// What the migrator and the trigger can see.
    pub(crate) fn seen(&self, state: &State) -> Seen {
        let registered = |server: &&Server| server.step == Step::Registered;
        let one = state.servers.iter().find(registered).map(|server| server.version);
        let one = one.filter(|_| self.has(Bug::OneServersWord) || self.has(Bug::WrittenSinceSkipped));
        Seen {
            object: state.object,
            ages: state.ages(),
            generation: state.definition.map(|definition| definition.generation),
            aggregated: state.definition.is_none(),
            one,
            blind_between: self.has(Bug::BetweenLooksUnasked),
        }
    }

    /// The version that a look at the servers finds them agreed on.
    pub(crate) fn agreed(&self, state: &State) -> Result<Version, Silent> {
        Seen { one: None, ..self.seen(state) }.agreed()
    }

    /// Whether a user's write through this server would begin.
    pub(crate) fn may_write(&self, server: &Server) -> bool {
        static TARGET: LazyLock<Option<ResourcePath>> =
            LazyLock::new(|| ResourcePath::parse("/apis/example.com/v1/namespaces/x/widgets"));
        let origin = if self.scene.custom { Origin::Custom } else { Origin::BuiltIn };
        let registered = match self.bug {
            Some(Bug::ServedBeforeRegistered) => server.step != Step::Down && server.stands(),
            Some(Bug::GateOutlivesTenure) => server.step == Step::Registered,
            _ => server.step == Step::Registered && server.stands(),
        };
        let passes = || exception(RequestSource::Network, "POST", TARGET.as_ref(), |_| origin).is_some();
        // A custom resource passes the gate, and is written only while its own handler is enabled.
        server.step != Step::Down && (registered || (!self.scene.custom && passes()))
    }

    /// A time later than all that are spoken of.
    pub(crate) fn clock(&self, state: &State) -> u8 {
        u8::try_from(u32::BITS - likeness::times(state).leading_zeros()).unwrap()
    }

    /// Whether this is a step that everybody takes by themselves when nothing goes wrong any more.
    pub(crate) fn is_expected(state: &State, action: Action) -> bool {
        match action {
            Action::Expire(server) => state.servers[server].step == Step::Down,
            Action::Register { blind, .. } => !blind,
            Action::Collect { misread, .. } => misread.is_none(),
            Action::Patch { lost, .. } => !lost,
            Action::Start(..)
            | Action::Stop(_)
            | Action::Crash(_)
            | Action::Pause(_)
            | Action::GiveUp(_)
            | Action::Repeat(_)
            | Action::Write { .. }
            | Action::LookCut(_)
            | Action::Resume
            | Action::Refuse
            | Action::Redefine(_) => false,
            _ => true,
        }
    }

    /// Forgets what can make no difference any more, so that states are alike that go on alike.
    ///
    /// What is conditioned on a StorageVersion that has changed fails for sure: whoever waits for it begins anew.
    fn settle(&self, state: &mut State) {
        let unconditional =
            [Bug::UnconditionalRegistration, Bug::UnconditionalDelete, Bug::UnconditionalCollection];
        if !unconditional.iter().any(|bug| self.has(*bug)) {
            for server in &mut state.servers {
                if matches!(server.step, Step::Read(sight) if !sight.current) {
                    server.step = Step::Member;
                }
            }
            let conflict_is_final = self.has(Bug::ConflictIsFinal);
            for message in &state.network {
                if let Message::Register { server, current: false, awaited: true, .. } = message
                    && !conflict_is_final
                {
                    state.servers[*server].step = Step::Member;
                }
            }
            state.network.retain(|message| match message {
                Message::Register { current, .. } | Message::Collect { current, .. } => *current,
            });
            state.collecting.retain(|collecting| collecting.read.current);
        }
        likeness::represent(state, self.scene.servers);
        state.network.sort();
        state.collecting.sort();
        state.writes.sort();
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        self.scene.starts()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for server in 0..self.scene.servers {
            self.server_actions(state, server, actions);
        }
        self.network_actions(state, actions);
        if self.scene.migrator {
            self.migration_actions(state, actions);
        }
        if let Some(definition) = state.definition
            && state.budget.redefinitions > 0
        {
            let other = Version::BOTH.into_iter().filter(|version| *version != definition.version);
            actions.extend(other.map(Action::Redefine));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        self.take(&mut state, action);
        self.settle(&mut state);
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}

impl Protocol {
    fn take(&self, state: &mut State, action: Action) {
        match action {
            Action::Start(server, version) => self.start(state, server, version),
            Action::Stop(server) => self.stop(state, server),
            Action::Crash(server) => self.crash(state, server),
            Action::Pause(server) => {
                state.budget.faults -= 1;
                self.age(state, server, Age::Late);
            }
            Action::Expire(server) => self.age(state, server, Age::Expired),
            Action::Rejoin(server) => self.join(state, server),
            Action::Read(server) => {
                self.read(state, server);
                if self.scene.coarse {
                    self.register(state, server, false);
                    self.deliver_last(state);
                }
            }
            Action::Register { server, blind } => self.register(state, server, blind),
            Action::GiveUp(server) => {
                state.budget.faults -= 1;
                self.give_up(state, server);
            }
            Action::Drain(server) => self.drain(state, server),
            Action::Enable(server) => self.enable(state, server),
            Action::Deliver(index) => {
                let message = state.network.remove(index);
                self.deliver(state, message);
            }
            Action::Repeat(index) => {
                state.budget.faults -= 1;
                let message = state.network[index];
                if let Message::Register { awaited, .. } = &mut state.network[index] {
                    *awaited = false;
                }
                self.deliver(state, message);
            }
            Action::ReadEntries(server) => {
                self.read_entries(state, server);
                if self.scene.coarse {
                    self.collect(state, 0, None);
                    self.deliver_last(state);
                }
            }
            Action::Collect { index, misread } => self.collect(state, index, misread),
            Action::Write { server, object } => self.write(state, server, object),
            Action::Store(index) => self.store(state, index),
            Action::Look => self.look(state, usize::MAX),
            Action::LookCut(steps) => {
                state.budget.faults -= 1;
                self.look(state, steps);
            }
            Action::Check => self.check(state),
            Action::List => self.list(state),
            Action::Patch { server, lost } => self.patch(state, server, lost),
            Action::Resume => self.resume(state),
            Action::Refuse => self.refuse(state),
            Action::Prune => self.prune(state),
            Action::Redefine(version) => {
                state.budget.redefinitions -= 1;
                if let Some(definition) = &mut state.definition {
                    definition.version = version;
                    definition.generation += 1;
                    definition.stored[version as usize] = true;
                }
            }
        }
    }
}
