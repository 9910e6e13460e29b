//! Why the lab has no programs to run.

use std::io;

/// Why there are no programs to run.
#[derive(Debug, thiserror::Error)]
pub enum AssetsError {
    /// There are neither programs nor a Go tool to build them.
    #[error("no KUBEBUILDER_ASSETS and no `go` on the PATH to build the control plane with")]
    Unavailable,
    /// `KUBEBUILDER_ASSETS` is set and lacks a program.
    #[error("KUBEBUILDER_ASSETS is {dir} and has no {program} in it")]
    Incomplete {
        /// The folder named by the variable.
        dir: String,
        /// The missing program.
        program: &'static str,
    },
    /// There is no directory for the cache.
    #[error("none of RESTOW_LAB_CACHE, XDG_CACHE_HOME and HOME is set: nowhere to keep the built programs")]
    NoCache,
    /// Go ran and failed.
    #[error("building {program} failed: {reason}")]
    Build {
        /// The program that was being built.
        program: &'static str,
        /// How `go build` ended.
        reason: String,
    },
    /// The cache could not be read or written.
    #[error("{step} in the lab's cache")]
    Io {
        /// The step that failed.
        step: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
}
