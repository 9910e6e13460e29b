//! What a seed stands for: a scene, and everything that goes wrong in it.

mod controllers;

use std::fmt;
use std::time::Duration;

use fastrand::Rng;

pub use controllers::Setup;

/// After so long nothing new goes wrong, and restow has to come to an end.
pub const QUIET: Duration = Duration::from_secs(120);
/// How long that may take.
pub const PATIENCE: Duration = Duration::from_secs(1800);

/// The group of custom resources in a simulation.
pub const GROUP: &str = "sim.example";

/// Who takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scene {
    /// One API server; a custom resource has a new storage version.
    Single,
    /// Two API servers on one store.
    Pair,
    /// One API server whose handlers follow a definition later than its discovery (kubernetes#130235).
    Lagging,
    /// Two API servers; the encryption key of Secrets is changed on one after the other.
    Keys,
    /// The controllers, in one process or in two; a custom resource has a new storage version.
    Controllers,
    /// The controllers, in one process or in two; the encryption key of Secrets is changed forth and back.
    Rotation,
}

impl Scene {
    /// Those in which the command line drives the engine.
    pub const ALL: [Self; 4] = [Self::Single, Self::Pair, Self::Lagging, Self::Keys];
    /// Those in which the controllers do.
    pub const CONTROLLERS: [Self; 2] = [Self::Controllers, Self::Rotation];

    /// Whether Secrets are encrypted, and their key is changed.
    pub fn encrypts(self) -> bool {
        matches!(self, Self::Keys | Self::Rotation)
    }

    /// The resource that is migrated, as its plural.
    pub fn plural(self) -> &'static str {
        if self.encrypts() { "secrets" } else { "boats" }
    }

    /// Where its objects are stored, when custom resources are of this group.
    pub fn prefix(self, group: &str) -> String {
        if self.encrypts() { "/registry/secrets/".to_owned() } else { format!("/registry/{group}/boats/") }
    }

    /// How many API servers there are.
    pub fn servers(self) -> usize {
        if self == Self::Single { 1 } else { 2 }
    }
}

impl fmt::Display for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Single => "single",
            Self::Pair => "pair",
            Self::Lagging => "lagging",
            Self::Keys => "keys",
            Self::Controllers => "controllers",
            Self::Rotation => "rotation",
        })
    }
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A page of objects.
    List,
    /// An object, to be written.
    Write,
    /// An object, to be read.
    Read,
    /// The definition, StorageVersions, and all that [`Members`](Self::Members) are.
    Look,
    /// Identity Leases.
    Members,
    /// What is served.
    Discover,
    /// Metrics, which tell the encryption configuration.
    Metrics,
    /// The definition, to be written.
    Prune,
    /// StorageStates.
    State,
    /// StorageVersionMigrations.
    Migration,
    /// The Lease of the controllers.
    Lease,
    /// An Event.
    Event,
}

/// How long a fault lasts from its first effect on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// For so many requests.
    Times(u32),
    /// For so long, in milliseconds.
    Millis(u64),
    /// To the end.
    Always,
}

/// What is done to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It is answered by a Status of this code, with a reason of its own.
    Status(u16),
    /// It is answered by a page of text with this code, as a proxy does.
    Text(u16),
    /// It is answered 200 and an empty object.
    Empty,
    /// It is answered 200 and a Status.
    Success,
    /// It is answered 200 and an object of another kind.
    Foreign,
    /// The answer is cut in half.
    Half,
    /// The answer to the last such request is given once more.
    Repeat,
    /// A page that others came before is answered by an empty list that says it is the last.
    Short,
    /// It takes so many milliseconds more.
    Late(u64),
    /// The connection is cut before the server has the request.
    Cut,
    /// The connection is cut when the server has done what was asked.
    Lost,
}

/// Something wrong with requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// With which.
    pub op: Op,
    /// Only those of this object; of metrics, those of this server.
    pub object: Option<usize>,
    /// How many pass before the first is hit.
    pub skip: u32,
    /// How long.
    pub span: Span,
    /// What is done to them.
    pub effect: Effect,
}

/// Something that happens to the cluster or to restow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// The definition stores this version from now on.
    Store(&'static str),
    /// restow is killed and started again, to resume.
    Kill,
    /// A server is stopped, and started after so many milliseconds.
    Restart(usize, u64),
    /// A server does nothing for so many milliseconds, and goes on as if nothing had happened.
    Freeze(usize, u64),
    /// The wall clocks are off by so many seconds.
    Skew(i64),
    /// A server encrypts with the second key.
    Rotate(usize),
    /// A server encrypts with the first key again.
    RotateBack(usize),
    /// A replica of the controllers is killed, and started after so many milliseconds.
    Down(usize, u64),
    /// A replica of the controllers does not run for so many milliseconds, and goes on as if nothing had happened.
    Pause(usize, u64),
    /// A user creates a migration.
    Migrate,
    /// A user deletes all migrations that have not ended.
    Abort,
    /// A user suspends all migrations that have not ended, for so many milliseconds.
    Suspend(u64),
}

impl Deed {
    /// How long it takes, in milliseconds.
    fn takes(self) -> u64 {
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

/// One thing that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// On the way of requests.
    Fault(Fault),
    /// At a time, in milliseconds.
    At(u64, Deed),
}

impl Event {
    /// Whether a key is changed.
    pub fn is_rotation(&self) -> bool {
        matches!(self, Self::At(_, Deed::Rotate(_) | Deed::RotateBack(_)))
    }
}

/// A run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What it was made from.
    pub seed: u64,
    /// Who takes part.
    pub scene: Scene,
    /// How many objects there are at first.
    pub objects: usize,
    /// How many objects a page has.
    pub page: u32,
    /// How often users create, change or delete one.
    pub users: u32,
    /// How the controllers are set up, in their scenes.
    pub setup: Option<Setup>,
    /// What goes wrong.
    pub events: Vec<Event>,
    /// Whether the old version is no longer served.
    pub retired: bool,
    /// Whether an object is stored under a key that is not its name.
    pub misplaced: bool,
}

impl Plan {
    /// The plan of a seed, in this scene or in one of its own choice.
    pub fn new(seed: u64, scene: Option<Scene>) -> Self {
        let mut rng = Rng::with_seed(seed);
        let own = Scene::ALL[rng.usize(..Scene::ALL.len())];
        let scene = scene.unwrap_or(own);
        if Scene::CONTROLLERS.contains(&scene) {
            return controllers::plan(seed, scene, &mut rng);
        }
        let objects = rng.usize(4..13);
        let page = rng.u32(2..6);
        let users = rng.u32(0..40);
        let mut events: Vec<Event> =
            (0..rng.u32(0..5)).map(|_| Event::Fault(fault(&mut rng, scene))).collect();
        if scene == Scene::Keys {
            let (first, second) = (rng.u64(..4000), rng.u64(..15_000));
            let which = rng.usize(..2);
            events.push(Event::At(first, Deed::Rotate(which)));
            events.push(Event::At(second, Deed::Rotate(1 - which)));
        }
        for _ in 0..rng.u32(0..4) {
            // Most steps of a run come right after its definition has settled.
            let at = if rng.bool() { rng.u64(5_800..8_000) } else { rng.u64(..40_000) };
            let deed = deed(&mut rng, scene);
            events.push(Event::At(at, deed));
            // Forth and back is the hardest to notice.
            if let Deed::Store(version) = deed
                && rng.u8(..3) > 0
            {
                let other = if version == "v1" { "v2" } else { "v1" };
                events.push(Event::At(at + rng.u64(20..2000), Deed::Store(other)));
            }
        }
        let mut plan =
            Self { seed, scene, objects, page, users, setup: None, events, retired: false, misplaced: false };
        crate::extras::add(&mut plan);
        plan
    }

    /// How many API servers there are.
    pub fn servers(&self) -> usize {
        self.setup.map_or_else(|| self.scene.servers(), |setup| setup.servers)
    }

    /// When the last event that has a time is over.
    pub fn ends(&self) -> Duration {
        let over = |event: &Event| match event {
            Event::At(at, deed) => at + deed.takes(),
            Event::Fault(_) => 0,
        };
        Duration::from_millis(self.events.iter().map(over).max().unwrap_or_default())
    }

    /// After so long nothing new goes wrong.
    pub fn quiet(&self) -> Duration {
        QUIET.max(self.ends())
    }

    /// The same with much more of what known defects need to show; not every such plan can be finished yet.
    pub fn dense(seed: u64, scene: Option<Scene>) -> Self {
        let mut plan = Self::new(seed, scene);
        match plan.setup {
            Some(setup) => crate::extras::thicken_controllers(&mut plan, setup),
            None => crate::extras::thicken(&mut plan),
        }
        plan
    }

    /// Whether what is stored, or who stores it, changes in the course.
    pub fn moves(&self) -> bool {
        let moving = |event: &Event| matches!(event, Event::At(_, deed) if !matches!(deed, Deed::Kill));
        self.events.iter().any(moving)
    }

    /// Whether a write of this object is refused to the end.
    pub fn is_refused(&self, name: &str) -> bool {
        let refused = |event: &Event| match event {
            Event::Fault(fault) if fault.span == Span::Always => {
                fault.object.is_some_and(|object| self::name(object) == name)
            }
            _ => false,
        };
        self.is_misplaced(name) || self.events.iter().any(refused)
    }

    /// Whether an object is stored under a key that is not its name.
    pub fn is_misplaced(&self, name: &str) -> bool {
        self.misplaced && name == MISPLACED
    }
}

/// The name of an object.
pub fn name(object: usize) -> String {
    format!("o-{object:02}")
}

/// The name of an object that is stored under another key; its key sorts before all names, so that a look-up by its name
/// does not come upon it.
pub const MISPLACED: &str = "z-00";

/// The codes that a webhook may answer with for one object, whatever they should mean.
const DENIALS: [u16; 12] = [400, 401, 403, 404, 409, 410, 418, 422, 429, 500, 503, 504];
/// What a server in trouble, or what stands before it, answers to anything.
const TROUBLE: [u16; 8] = [302, 401, 408, 429, 500, 502, 503, 504];

fn fault(rng: &mut Rng, scene: Scene) -> Fault {
    let ops =
        [Op::List, Op::List, Op::Write, Op::Write, Op::Write, Op::Read, Op::Look, Op::Discover, Op::Metrics];
    let op = ops[rng.usize(..if scene == Scene::Keys { 9 } else { 8 })];
    fault_of(rng, op)
}

fn fault_of(rng: &mut Rng, op: Op) -> Fault {
    let within = if rng.bool() { 3 } else { 12 };
    let skip = rng.u32(..within);
    let object = (op == Op::Write && rng.u8(..3) > 0).then(|| rng.usize(..12));
    // An admission webhook that denies one object does so for ever.
    if op == Op::Write && object.is_some() && rng.bool() {
        let code = DENIALS[rng.usize(..DENIALS.len())];
        return Fault { op, object, skip: 0, span: Span::Always, effect: Effect::Status(code) };
    }
    let span = if rng.bool() { Span::Times(rng.u32(1..4)) } else { Span::Millis(rng.u64(200..20_000)) };
    let trouble = TROUBLE[rng.usize(..TROUBLE.len())];
    let effect = match rng.u8(..12) {
        0..3 => Effect::Status(trouble),
        3 => Effect::Text(if rng.bool() { trouble } else { 404 }),
        4 => Effect::Empty,
        5 => Effect::Success,
        6 => Effect::Foreign,
        7 => Effect::Half,
        8 if op == Op::List => Effect::Repeat,
        8 | 9 => Effect::Late(rng.u64(100..90_000)),
        10 => Effect::Cut,
        _ => Effect::Lost,
    };
    Fault { op, object, skip, span, effect }
}

fn deed(rng: &mut Rng, scene: Scene) -> Deed {
    let server = rng.usize(..scene.servers());
    match (rng.u8(..8), scene) {
        (0..2, _) => Deed::Kill,
        (2, _) => Deed::Skew(rng.i64(-20..20)),
        (3, Scene::Single | Scene::Pair) => Deed::Restart(server, rng.u64(100..20_000)),
        (4, Scene::Pair | Scene::Keys) => Deed::Freeze(server, rng.u64(1000..60_000)),
        (5 | 6, Scene::Single | Scene::Pair | Scene::Lagging) => {
            Deed::Store(if rng.bool() { "v1" } else { "v2" })
        }
        _ => Deed::Kill,
    }
}
