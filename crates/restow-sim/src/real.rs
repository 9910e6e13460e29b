//! Runs the same plans on real control planes: etcd and kube-apiserver as processes, and the restow binary.
//!
//! The lab carries out the plan: a proxy does what [`crate::layer`] does in the simulation, SIGKILL ends restow, and SIGSTOP
//! freezes a server. The oracle is the same; it reads a watch on etcd. A plan does not replay exactly here, and these parts
//! differ from the simulation:
//!
//! - Clocks are the machine's own: [`Action::Skew`](crate::plan::Action::Skew) does nothing.
//! - [`Scene::Lagging`](crate::plan::Scene::Lagging) is one server, whose handlers lag as they really do.
//! - A server takes up a new encryption key as kube-apiserver does: within a minute of a change of its file when the
//!   seed is even, by a restart when it is odd.
//! - Answers are late, and servers frozen, for 20 seconds at most: restow waits longer than that for any answer, so
//!   that more of it would make only the run longer.

mod actions;
mod encryption;
mod limits;
mod process;
mod proxy;
mod run;
mod share;
mod world;

pub use share::{is_real, run_all, summary};
