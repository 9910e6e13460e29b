//! What a seed stands for: a scene, and everything that goes wrong in it.

mod contents;
mod controllers;
mod draw;
mod event;
mod extras;
mod fault;
mod scene;

pub use contents::{COMPLETION_TIMEOUT, MISPLACED, Plan, QUIET, name};
pub use event::{Action, Effect, Event, Fault, Op, Span};
pub use scene::{GROUP, Scene, Setup};
