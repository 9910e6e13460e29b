//! The server in its own process: handlers, lists, watches, controllers, start and stop.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, clippy::disallowed_methods)]

mod access;
mod basics;
mod cleanup;
mod definitions;
mod encryption;
mod events;
mod garbage;
mod life;
mod lists;
mod memory;
mod namespaces;
mod noise;
mod participation;
mod watches;
mod webhook;
