//! The file of restow's own API server.

use std::path::{Path, PathBuf};

use restow_store::file;

use super::reader::{Source, SourceError};
use crate::meter::Meter;

/// The data directory of `restow apiserver`, which must not be running.
#[derive(Clone, Debug)]
pub struct DataDir {
    dir: PathBuf,
}

impl DataDir {
    /// The store in this directory, or in the directory `store` below it.
    pub fn new(dir: &Path) -> Self {
        let below = dir.join("store");
        Self { dir: if below.is_dir() { below } else { dir.to_owned() } }
    }
}

impl Source for DataDir {
    fn name(&self) -> String {
        self.dir.display().to_string()
    }

    fn read(&self, meter: &Meter, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64, SourceError> {
        Ok(file::inspect(&self.dir, &mut |key, value| {
            meter.add(1);
            visit(key.as_bytes(), value);
        })?)
    }
}
