//! The state of everything: what is stored, what the processes know, what is on its way.

use super::rules::{Persisted, Status};

/// How many API servers there are at most.
pub(crate) const SERVERS: usize = 3;
/// How many objects are stored at most.
pub(crate) const OBJECTS: usize = 2;

/// A version of the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Version {
    V1,
    V2,
}

impl Version {
    pub(crate) const BOTH: [Self; 2] = [Self::V1, Self::V2];
}

/// How old the last renewal of a Lease is.
///
/// Others drop a server when its Lease has expired; the server itself stops at two thirds of that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Age {
    Fresh,
    Late,
    Expired,
}

/// An identity Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Lease {
    /// The life of the server that holds it.
    pub(crate) life: u8,
    pub(crate) age: Age,
}

/// The StorageVersion as somebody has read it.
///
/// Of its resourceVersion nothing counts but whether it is still the same: an older one never comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Sight {
    pub(crate) status: Status,
    pub(crate) current: bool,
}

/// How far a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Step {
    /// No process.
    Down,
    /// It holds its Lease.
    Member,
    /// It has read the StorageVersion.
    Read(Sight),
    /// It waits for the answer to its registration.
    Sent,
    /// It has registered a custom resource, and is to read the definition once more.
    Answered,
    /// It has registered, and writes are let in.
    Registered,
}

/// One API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Server {
    pub(crate) step: Step,
    /// The version it stores in.
    pub(crate) version: Version,
    pub(crate) life: u8,
    pub(crate) lease: Option<Lease>,
}

impl Server {
    /// Whether its tenure stands, by its own clock.
    pub(crate) fn stands(&self) -> bool {
        self.lease == Some(Lease { life: self.life, age: Age::Fresh })
    }
}

/// What a collector has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Change {
    Update(Status),
    Delete,
}

/// A request on its way to the StorageVersion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Message {
    /// A server's registration, computed from what it has read.
    Register { server: usize, current: bool, status: Status, awaited: bool },
    /// A collector's decision, on condition of what it has read.
    Collect { current: bool, change: Change },
}

/// What a collector knows between reading entries and reading members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Collecting {
    /// The server it runs in.
    pub(crate) server: usize,
    pub(crate) read: Sight,
    /// The members, where they were read first, which is wrong.
    pub(crate) members: Option<u8>,
}

/// A write that has passed a server's gate and is not stored yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Write {
    pub(crate) server: usize,
    pub(crate) object: usize,
    pub(crate) version: Version,
}

/// A CustomResourceDefinition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Definition {
    pub(crate) version: Version,
    pub(crate) generation: u8,
    /// `status.storedVersions`, by version.
    pub(crate) stored: [bool; 2],
}

/// The agreement that a pass stands under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Mark {
    /// Whether the StorageVersion is still the same.
    pub(crate) current: bool,
    pub(crate) generation: Option<u8>,
}

/// Where a migration is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum At {
    /// It was made, and waits for agreement.
    Made,
    /// The agreement is looked at before a pass.
    Check,
    /// The objects are to be listed.
    List,
    /// The objects are written in turn; those that are as they were when listed.
    Page { next: usize, as_listed: [bool; OBJECTS] },
    /// The agreement is looked at after a pass.
    Recheck,
    /// It has ended.
    Ended,
    /// It has failed.
    Failed,
}

/// What a pass is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Pass {
    Rewriting,
    Verifying,
}

/// A migration, with what its checkpoint keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Run {
    /// What tells it apart from the one that is to be made.
    pub(crate) name: &'static str,
    pub(crate) version: Version,
    pub(crate) at: At,
    pub(crate) pass: Pass,
    pub(crate) passes: u8,
    pub(crate) mark: Option<Mark>,
    pub(crate) shifted: bool,
    /// Whether this pass rewrote anything.
    pub(crate) rewritten: bool,
    pub(crate) verified: bool,
}

impl Run {
    pub(crate) fn made(name: &'static str, version: Version) -> Self {
        Self {
            name,
            version,
            at: At::Made,
            pass: Pass::Rewriting,
            passes: 0,
            mark: None,
            shifted: false,
            rewritten: false,
            verified: false,
        }
    }
}

/// What may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    /// Crashes, pauses, lost answers, repeated requests, unreadable Leases.
    pub(crate) faults: u8,
    /// Servers that are shut down in order.
    pub(crate) restarts: u8,
    /// Users' writes.
    pub(crate) writes: u8,
    /// Changes of the definition.
    pub(crate) redefinitions: u8,
}

/// What must never have happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Ghost {
    /// An object was stored in another version than all agreed on.
    pub(crate) late_write: bool,
    /// The state was refined, or storedVersions pruned, while an object was stored in another version.
    pub(crate) early_refinement: bool,
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) servers: [Server; SERVERS],
    /// The StorageVersion object.
    pub(crate) object: Option<Status>,
    pub(crate) network: Vec<Message>,
    pub(crate) collecting: Vec<Collecting>,
    pub(crate) definition: Option<Definition>,
    pub(crate) stored: [Option<Version>; OBJECTS],
    pub(crate) writes: Vec<Write>,
    /// The StorageState.
    pub(crate) persisted: Persisted,
    pub(crate) run: Option<Run>,
    pub(crate) budget: Budget,
    pub(crate) ghost: Ghost,
}

impl State {
    /// The ages of all Leases, as everybody can read them.
    pub(crate) fn ages(&self) -> [Option<Age>; SERVERS] {
        self.servers.map(|server| server.lease.map(|lease| lease.age))
    }

    /// Whether every stored object is of one of these versions.
    pub(crate) fn is_stored_in(&self, version: Version) -> bool {
        self.stored.iter().flatten().all(|stored| *stored == version)
    }

    /// Writes the StorageVersion. Where nothing changes its resourceVersion stays; else what was read of it is old.
    pub(crate) fn put(&mut self, object: Option<Status>) {
        if self.object == object {
            return;
        }
        self.object = object;
        for server in &mut self.servers {
            if let Step::Read(sight) = &mut server.step {
                sight.current = false;
            }
        }
        for message in &mut self.network {
            match message {
                Message::Register { current, .. } | Message::Collect { current, .. } => *current = false,
            }
        }
        for collecting in &mut self.collecting {
            collecting.read.current = false;
        }
        if let Some(mark) = self.run.as_mut().and_then(|run| run.mark.as_mut()) {
            mark.current = false;
        }
    }

    /// Stores an object. Writes of it that are on their way were computed from what it was, and fail.
    pub(crate) fn store(&mut self, object: usize, version: Version) {
        self.stored[object] = Some(version);
        self.writes.retain(|write| write.object != object);
        if let Some(Run { at: At::Page { as_listed, .. }, .. }) = &mut self.run {
            as_listed[object] = false;
        }
    }
}
