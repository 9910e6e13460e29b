//! The contents of a plan.

use std::time::Duration;

use super::event::{Action, Event, Span};
use super::scene::{Scene, Setup};

/// After this time no new fault starts, and restow has to finish.
pub const QUIET: Duration = Duration::from_secs(120);
/// How long restow may take to finish after that.
pub const COMPLETION_TIMEOUT: Duration = Duration::from_secs(1800);

/// A plan: the scene of a run, and everything that goes wrong in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The seed that it was drawn from.
    pub seed: u64,
    /// What kind of cluster it is, and what goes wrong in it.
    pub scene: Scene,
    /// The number of objects at the start.
    pub objects: usize,
    /// The page size of lists.
    pub page: u32,
    /// How many times users create, change or delete an object.
    pub users: u32,
    /// The setup of the controllers, in their scenes.
    pub setup: Option<Setup>,
    /// What goes wrong.
    pub events: Vec<Event>,
    /// Whether the old version is no longer served.
    pub retired: bool,
    /// Whether an object is stored under a key that is not its name.
    pub misplaced: bool,
}

impl Plan {
    /// How many API servers there are.
    pub fn servers(&self) -> usize {
        self.setup.map_or_else(|| self.scene.servers(), |setup| setup.servers)
    }

    /// When the last timed event is over.
    pub fn ends(&self) -> Duration {
        let over = |event: &Event| match event {
            Event::At(at, action) => at + action.takes(),
            Event::Fault(_) => 0,
        };
        Duration::from_millis(self.events.iter().map(over).max().unwrap_or_default())
    }

    /// After this time no new fault starts.
    pub fn quiet(&self) -> Duration {
        QUIET.max(self.ends())
    }

    /// Whether the storage version, a key or a server changes during the run.
    pub fn moves(&self) -> bool {
        let moving = |event: &Event| matches!(event, Event::At(_, action) if !matches!(action, Action::Kill));
        self.events.iter().any(moving)
    }

    /// Whether writes of this object are refused forever.
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

/// The name of an object that is stored under another key. The key sorts before all names, so a look-up by name does not find
/// it.
pub const MISPLACED: &str = "z-00";
