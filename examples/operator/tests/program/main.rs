//! The program as processes, on a real kube-apiserver and on the embedded one, with just the permissions that it prints. The
//! tests judge by the stored bytes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, clippy::disallowed_methods)]

mod pages;
mod program;
mod servers;
mod upgrade;
