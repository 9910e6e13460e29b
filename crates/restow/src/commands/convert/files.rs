//! Reads files of Kubernetes objects, as YAML or JSON.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::CliError;

/// An object and where it was read.
#[derive(Debug)]
pub(in crate::commands) struct Document {
    /// The file and the number of the document in it.
    pub(in crate::commands) place: String,
    pub(in crate::commands) value: Value,
}

/// Reads the only document of a file; - is stdin.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<T, CliError> {
    let text = text_of(path)?;
    serde_saphyr::from_str(&text).map_err(|error| wrong(path, &error))
}

/// Reads all documents of some files; - is stdin.
pub(in crate::commands) fn read_all(paths: &[PathBuf]) -> Result<Vec<Document>, CliError> {
    let mut documents = Vec::new();
    for path in paths {
        let text = text_of(path)?;
        let values: Vec<Value> = serde_saphyr::from_multiple(&text).map_err(|error| wrong(path, &error))?;
        let values = values.into_iter().enumerate().filter(|(_, value)| !value.is_null());
        documents.extend(values.map(|(index, value)| Document {
            place: format!("{}, document {}", name(path), index + 1),
            value,
        }));
    }
    Ok(documents)
}

/// What a file is called in messages.
fn name(path: &Path) -> String {
    if path == Path::new("-") { "stdin".to_owned() } else { path.display().to_string() }
}

fn text_of(path: &Path) -> Result<String, CliError> {
    let mut text = String::new();
    let read = if path == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).map(drop)
    } else {
        std::fs::read_to_string(path).map(|read| text = read)
    };
    read.map(|()| text).map_err(|error| CliError::failed(format!("cannot read {}: {error}", name(path))))
}

fn wrong(path: &Path, error: &serde_saphyr::Error) -> CliError {
    let error = error.to_string();
    CliError::failed(format!("{}: {}", name(path), error.trim_start_matches("error: ").trim_end()))
}
