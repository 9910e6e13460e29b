//! The name of this program and its purpose, both from the name of its file.

use std::path::PathBuf;

/// The command that starts this program, for hints: `restow`, or `kubectl restow`.
pub(crate) fn program() -> &'static str {
    let name = std::env::args_os().next().map(PathBuf::from);
    match name.as_ref().and_then(|path| path.file_stem()?.to_str()) {
        Some(name) if name.starts_with("kubectl-") || name.starts_with("kubectl_") => "kubectl restow",
        _ => "restow",
    }
}

/// The words to complete, if kubectl started this program as `kubectl_complete-restow`.
pub(crate) fn words_to_complete() -> Option<Vec<String>> {
    let mut words = std::env::args_os();
    let name = PathBuf::from(words.next()?);
    let completes = name.file_stem()?.to_str()?.starts_with("kubectl_complete");
    completes.then(|| words.map(|word| word.to_string_lossy().into_owned()).collect())
}

/// The name and version of this program.
pub(crate) fn version() -> String {
    format!("restow {}", env!("CARGO_PKG_VERSION"))
}
