//! Carries out, through a client, what `restow-core` decides.
//!
//! One resource's way: [`discovery`] finds it, [`cluster`] tells whether the API servers agree on it, [`pages`]
//! lists its metadata, [`rewrite`] sends a no-op patch for each object at the pace of [`throttle`],
//! [`migration`] keeps the progress and verifies, [`prune`] cuts down a CRD's storedVersions.

pub mod access;
mod aside;
mod changes;
pub mod chunks;
pub mod cluster;
mod confirm;
pub mod discovery;
mod health;
mod heard;
mod hold;
pub mod lookup;
pub mod membership;
pub mod migration;
pub mod pages;
pub mod prune;
pub mod rewrite;
mod sampling;
pub mod server;
pub mod stream;
pub mod survey;
pub mod throttle;
mod touch;
mod wire;
mod write;
