//! The server from inside its process: its handlers, its lists and watches, and its life.

mod basics;
mod definitions;
mod encryption;
mod lists;
mod memory;
mod migration;
mod watches;
