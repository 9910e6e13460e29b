//! The controllers: migrations as objects, and the storage versions that call for them.
//!
//! Each is a thin loop around decisions of `restow-core` and the engine of `restow-migrate`.
