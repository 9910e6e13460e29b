//! Reloads a configuration file that may change while the server runs.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::{sync::watch, task, time};

use super::{
    configuration::ConfigurationError,
    transformer::{Transformers, hash},
};

/// Why a configuration file cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The configuration is invalid.
    #[error("{}", path.display())]
    Configuration {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: ConfigurationError,
    },
}

/// The current configuration of a file that may change.
#[derive(Clone, Debug)]
pub struct Follower {
    current: watch::Receiver<Arc<Transformers>>,
}

impl Follower {
    /// The current configuration.
    pub fn current(&self) -> Arc<Transformers> {
        Arc::clone(&self.current.borrow())
    }

    /// Waits for a change since the last call; forever if the file is no longer followed.
    pub async fn changed(&mut self) {
        if self.current.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

impl From<Transformers> for Follower {
    /// A configuration that never changes.
    fn from(transformers: Transformers) -> Self {
        Self { current: watch::channel(Arc::new(transformers)).1 }
    }
}

/// Loads a configuration file, and reloads it periodically until all followers are dropped.
///
/// If a later version of the file cannot be loaded, the current configuration stays in use.
pub async fn follow(path: &Path, every: Duration) -> Result<Follower, LoadError> {
    let first = read(path.to_owned()).await.and_then(|file| load(path, &file))?;
    let (sender, current) = watch::channel(Arc::new(first));
    task::spawn(reload(path.to_owned(), every, sender));
    Ok(Follower { current })
}

async fn reload(path: PathBuf, every: Duration, current: watch::Sender<Arc<Transformers>>) {
    let mut refused = None;
    loop {
        tokio::select! {
            () = current.closed() => return,
            () = time::sleep(every) => {}
        }
        let file = read(path.clone()).await;
        let next = file.and_then(|file| next(&path, current.borrow().hash(), &file));
        match next {
            Ok(None) => refused = None,
            Ok(Some(transformers)) => {
                tracing::info!(hash = transformers.hash(), "reloaded the encryption configuration");
                refused = None;
                current.send_replace(Arc::new(transformers));
            }
            Err(error) => {
                let text = described(&error);
                // Logged once, not at every reload.
                if refused.as_ref() != Some(&text) {
                    tracing::error!(error = %text, "cannot reload the encryption configuration; keeping the current one");
                }
                refused = Some(text);
            }
        }
    }
}

/// The configuration to load in place of the one with this hash, if the file has changed.
fn next(path: &Path, current: &str, file: &[u8]) -> Result<Option<Transformers>, LoadError> {
    if hash(file) == current {
        return Ok(None);
    }
    load(path, file).map(Some)
}

fn load(path: &Path, file: &[u8]) -> Result<Transformers, LoadError> {
    let failed = |source| LoadError::Configuration { path: path.to_owned(), source };
    Transformers::parse(file).map_err(failed)
}

async fn read(path: PathBuf) -> Result<Vec<u8>, LoadError> {
    let file = path.clone();
    let read = task::spawn_blocking(move || fs::read(file)).await;
    read.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(|source| LoadError::Io { path, source })
}

fn described(error: &LoadError) -> String {
    match error {
        LoadError::Io { source, .. } => format!("{error}: {source}"),
        LoadError::Configuration { source, .. } => format!("{error}: {source}"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{load, next};

    #[test]
    fn only_a_changed_and_valid_file_is_loaded() {
        let path = Path::new("/etc/encryption.yaml");
        let file = b"apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n\
            resources: [{ resources: [secrets], providers: [{ identity: {} }] }]";
        let hash = load(path, file).unwrap().hash().to_owned();
        assert!(next(path, &hash, file).unwrap().is_none());
        assert_eq!(next(path, "sha256:another", file).unwrap().unwrap().hash(), hash);
        let error = next(path, &hash, b"kind: Wrong").unwrap_err();
        assert!(error.to_string().contains("/etc/encryption.yaml"), "{error}");
    }
}
