//! What can go wrong: faults of requests, and things that happen to the cluster or to restow.

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Lists a page of objects.
    List,
    /// Writes an object.
    Write,
    /// Reads an object.
    Read,
    /// Reads the CRD, StorageVersions or what [`Members`](Self::Members) reads.
    Look,
    /// Reads identity Leases.
    Members,
    /// Reads discovery.
    Discover,
    /// Reads metrics, which show the encryption configuration.
    Metrics,
    /// Writes the CRD.
    Prune,
    /// Reads or writes StorageStates.
    State,
    /// Reads or writes StorageVersionMigrations.
    Migration,
    /// Reads or writes the Lease of the controllers.
    Lease,
    /// Writes an Event.
    Event,
}

/// How long a fault lasts after its first effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// For this many requests.
    Times(u32),
    /// For this many milliseconds.
    Millis(u64),
    /// Until the end.
    Always,
}

/// What a fault does to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It is answered with a Status of this code and an unknown reason.
    Status(u16),
    /// It is answered with HTML and this code, as a proxy does.
    Text(u16),
    /// It is answered with 200 and `{}`.
    Empty,
    /// It is answered with 200 and a Status.
    Success,
    /// It is answered with 200 and another document.
    Foreign,
    /// Only the first half of the answer arrives.
    Half,
    /// It is answered with the previous page again.
    Repeat,
    /// A page that is not the first is answered with an empty last page.
    Short,
    /// The answer is delayed by this many milliseconds.
    Late(u64),
    /// The connection is cut before the server receives the request.
    Cut,
    /// The connection is cut after the server has carried out the request.
    Lost,
}

/// A fault of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The requests that it affects.
    pub op: Op,
    /// Only requests of this object; for metrics, of this server.
    pub object: Option<usize>,
    /// How many requests pass before the first one is affected.
    pub skip: u32,
    /// How long it lasts.
    pub span: Span,
    /// What it does to them.
    pub effect: Effect,
}

/// Something that happens to the cluster or to restow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The CRD gets this storage version.
    Store(&'static str),
    /// restow is killed and started again with `--resume`.
    Kill,
    /// A server is stopped, and started after this many milliseconds.
    Restart(usize, u64),
    /// A server is frozen for this many milliseconds.
    Freeze(usize, u64),
    /// The wall clocks are off by this many seconds.
    Skew(i64),
    /// A server encrypts with the second key.
    Rotate(usize),
    /// A server encrypts with the first key again.
    RotateBack(usize),
    /// A replica of the controllers is killed, and started after this many milliseconds.
    Down(usize, u64),
    /// A replica of the controllers is frozen for this many milliseconds.
    Pause(usize, u64),
    /// A user creates a migration.
    Migrate,
    /// A user deletes all unfinished migrations.
    Abort,
    /// A user suspends all unfinished migrations for this many milliseconds.
    Suspend(u64),
}

impl Action {
    /// How long it takes, in milliseconds.
    pub(super) fn takes(self) -> u64 {
        match self {
            Self::Restart(_, millis)
            | Self::Freeze(_, millis)
            | Self::Down(_, millis)
            | Self::Pause(_, millis)
            | Self::Suspend(millis) => millis,
            _ => 0,
        }
    }
}

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A fault of requests.
    Fault(Fault),
    /// An action at a time, in milliseconds.
    At(u64, Action),
}

impl Event {
    /// Whether a key is changed.
    pub fn is_rotation(&self) -> bool {
        matches!(self, Self::At(_, Action::Rotate(_) | Action::RotateBack(_)))
    }
}
