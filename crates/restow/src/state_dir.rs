//! Progress on disk, so that a run that was killed can be resumed.
//!
//! Each resource of a cluster has a state file, which is replaced after each page, and a file of quarantined objects, which
//! only grows. The state has the length of the second file, so that lines of an unfinished page do not count.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};

use restow_core::controller::object_name;
use restow_core::resource::name::GroupResource;
use restow_core::rewrite::progress::{Phase, Progress, Quarantined};
use restow_migrate::migration::Journal;
use serde::{Deserialize, Serialize};

use crate::error::CliError;

/// The format version of the state file; other versions are refused.
const FORM: u32 = 1;

/// The longest part of a file name that identifies the resource.
const LONGEST_STEM: usize = 230;

/// The content of the state file of one resource.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Saved {
    restow: u32,
    server: String,
    quarantine_bytes: u64,
    /// The run that it belongs to; resources that were requested together have the same.
    #[serde(default)]
    pub(crate) run: String,
    pub(crate) progress: Progress,
}

impl Saved {
    pub(crate) fn is_unfinished(&self) -> bool {
        self.progress.phase != Phase::Done
    }
}

/// The newest state of an unfinished run.
pub(crate) fn newest_unfinished<'a>(saved: impl Iterator<Item = &'a Saved>) -> Option<&'a Saved> {
    saved.filter(|saved| saved.is_unfinished()).max_by_key(|saved| saved.progress.updated)
}

/// The directory of one cluster's state.
pub(crate) struct StateDir(PathBuf);

/// The state of one resource, locked against other runs.
pub(crate) struct ResourceState {
    state: PathBuf,
    quarantine: PathBuf,
    server: String,
    quarantine_bytes: u64,
    /// The run whose progress is saved.
    pub(crate) run: String,
    _lock: File,
}

/// Why the state cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StateError {
    #[error("another restow process is migrating {0}; wait for it, or stop it")]
    Locked(GroupResource),
    #[error("cannot use {path}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{0} is not a state file of this version of restow; delete it to start over with that resource")]
    Unreadable(PathBuf),
}

impl From<StateError> for CliError {
    fn from(error: StateError) -> Self {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
        let failure = Self::failed(format!("{error}{cause}"));
        match error {
            // In another directory, two runs of one resource could run concurrently.
            StateError::Locked(_) => failure,
            _ => failure.hint("use --state-dir DIR to keep the progress elsewhere"),
        }
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> StateError {
    let path = path.to_owned();
    move |source| StateError::Io { path, source }
}

impl StateDir {
    /// The directory of a cluster, in the given directory or the default one of the user.
    pub(crate) fn open(given: Option<&Path>, cluster: &str) -> Result<Self, StateError> {
        let base = given.map(Path::to_owned).unwrap_or_else(default_dir);
        let dir = base.join(cluster);
        fs::create_dir_all(&dir).map_err(at(&dir))?;
        Ok(Self(dir))
    }

    /// The state files of unfinished runs, and those of resources that the newest of these runs has finished. A file that
    /// cannot be read is an error, because it may belong to an unfinished run.
    pub(crate) fn unfinished(&self) -> Result<Vec<(PathBuf, Progress)>, StateError> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.0).map_err(at(&self.0))? {
            let path = entry.map_err(at(&self.0))?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let saved = read(&path)?;
            found.push((path, saved));
        }
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        let newest = newest_unfinished(found.iter().map(|(_, saved)| saved)).map(|saved| saved.run.clone());
        found.retain(|(_, saved)| saved.is_unfinished() || newest.as_ref() == Some(&saved.run));
        Ok(found.into_iter().map(|(path, saved)| (path, saved.progress)).collect())
    }

    /// Opens and locks the state of one resource for this run.
    pub(crate) fn resource(&self, name: &GroupResource, server: &str) -> Result<ResourceState, StateError> {
        // A name may be as long as a file name, and the suffixes of the files follow.
        let stem = object_name::within(&name.to_string(), LONGEST_STEM);
        let lock_path = self.0.join(format!("{stem}.lock"));
        let lock = File::create(&lock_path).map_err(at(&lock_path))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => StateError::Locked(name.clone()),
            TryLockError::Error(source) => StateError::Io { path: lock_path, source },
        })?;
        Ok(ResourceState {
            state: self.0.join(format!("{stem}.json")),
            quarantine: self.0.join(format!("{stem}.quarantine.jsonl")),
            server: server.to_owned(),
            quarantine_bytes: 0,
            run: String::new(),
            _lock: lock,
        })
    }
}

/// The progress of complete runs on a cluster, if it can be read.
pub(crate) fn finished(given: Option<&Path>, cluster: &str) -> Vec<Progress> {
    let dir = given.map(Path::to_owned).unwrap_or_else(default_dir).join(cluster);
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
    let states = paths.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    let saved = states.filter_map(|path| read(&path).ok());
    saved.filter(|saved| !saved.is_unfinished()).map(|saved| saved.progress).collect()
}

/// The default directory of the user for the state of restow.
pub(crate) fn default_dir() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/".into()));
    match std::env::var_os("XDG_STATE_HOME").filter(|dir| !dir.is_empty()) {
        Some(dir) => PathBuf::from(dir).join("restow"),
        None => home().join(".local/state/restow"),
    }
}

fn read(path: &Path) -> Result<Saved, StateError> {
    let text = fs::read(path).map_err(at(path))?;
    match serde_json::from_slice::<Saved>(&text) {
        Ok(saved) if saved.restow == FORM => Ok(saved),
        _ => Err(StateError::Unreadable(path.to_owned())),
    }
}

impl ResourceState {
    /// What the last run saved, if there was one; lines of an unfinished page are removed.
    pub(crate) fn load(&mut self) -> Result<Option<Saved>, StateError> {
        if !self.state.exists() {
            return Ok(None);
        }
        let saved = read(&self.state)?;
        self.quarantine_bytes = saved.quarantine_bytes;
        if let Ok(file) = OpenOptions::new().write(true).open(&self.quarantine) {
            let length = file.metadata().map_err(at(&self.quarantine))?.len();
            // A run that was killed while it started over leaves it shorter.
            self.quarantine_bytes = saved.quarantine_bytes.min(length);
            file.set_len(self.quarantine_bytes).map_err(at(&self.quarantine))?;
        }
        Ok(Some(saved))
    }

    /// Starts over with these quarantined objects.
    pub(crate) fn reset(&mut self, left: &[Quarantined]) -> Result<(), StateError> {
        let text = lines(left);
        replace(&self.quarantine, &text).map_err(at(&self.quarantine))?;
        self.quarantine_bytes = text.len() as u64;
        Ok(())
    }

    /// The quarantined objects, one by one.
    pub(crate) fn left(&self) -> io::Result<impl Iterator<Item = Quarantined> + use<>> {
        let lines = match File::open(&self.quarantine) {
            Ok(file) => Some(BufReader::new(file).lines()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(lines
            .into_iter()
            .flatten()
            .map_while(Result::ok)
            .filter_map(|line| serde_json::from_str(&line).ok()))
    }

    /// The file that lists them.
    pub(crate) fn left_path(&self) -> &Path {
        &self.quarantine
    }

    /// Saves the progress, and the quarantined objects of the last page.
    pub(crate) fn write(&mut self, progress: &Progress, left: &[Quarantined]) -> io::Result<()> {
        let all = progress.counts.quarantined + progress.verify.quarantined;
        if all == left.len() as u64 && self.quarantine_bytes > 0 {
            // A pass started over: objects named before are named again if they are quarantined again.
            self.reset(left).map_err(io::Error::other)?;
        } else if !left.is_empty() {
            let text = lines(left);
            let mut file = OpenOptions::new().create(true).append(true).open(&self.quarantine)?;
            file.write_all(&text)?;
            file.sync_data()?;
            self.quarantine_bytes += text.len() as u64;
        }
        let saved = Saved {
            restow: FORM,
            server: self.server.clone(),
            quarantine_bytes: self.quarantine_bytes,
            run: self.run.clone(),
            progress: progress.clone(),
        };
        replace(&self.state, &serde_json::to_vec_pretty(&saved)?)
    }
}

impl Journal for ResourceState {
    async fn save(&mut self, progress: &Progress, left: &[Quarantined]) -> io::Result<()> {
        self.write(progress, left)
    }

    fn can_save_after_stop(&self) -> bool {
        true
    }
}

/// Saves nothing, for dry runs.
pub(crate) struct NoJournal(pub(crate) Vec<Quarantined>);

impl Journal for NoJournal {
    async fn save(&mut self, _: &Progress, left: &[Quarantined]) -> io::Result<()> {
        self.0.extend_from_slice(left);
        Ok(())
    }
}

fn lines(left: &[Quarantined]) -> Vec<u8> {
    left.iter()
        .flat_map(|object| [serde_json::to_vec(object).unwrap_or_default(), b"\n".to_vec()])
        .flatten()
        .collect()
}

/// Replaces a file atomically.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(text)?;
    file.sync_data()?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn progress() -> Progress {
        Progress::new(GroupResource::parse("widgets.example.com"), "v2", "x", Timestamp::default())
    }

    fn bad(name: &str) -> Quarantined {
        Quarantined {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            uid: "u".to_owned(),
            reason: "Invalid".to_owned(),
            message: "no".to_owned(),
        }
    }

    #[test]
    fn lines_of_an_unfinished_page_do_not_count() -> Result<(), Box<dyn std::error::Error>> {
        let temp = tempfile::tempdir()?;
        let dir = StateDir::open(Some(temp.path()), "c")?;
        let name = GroupResource::parse("widgets.example.com");
        {
            let mut state = dir.resource(&name, "s")?;
            assert!(state.load()?.is_none());
            state.write(&progress(), &[bad("a")])?;
            // Killed between the two writes of the next page.
            OpenOptions::new().append(true).open(&state.quarantine)?.write_all(&lines(&[bad("b")]))?;
        }
        let mut state = dir.resource(&name, "s")?;
        assert_eq!(state.load()?.map(|saved| saved.progress), Some(progress()));
        assert_eq!(state.left()?.map(|object| object.name).collect::<Vec<_>>(), ["a"]);
        let unfinished: Vec<_> =
            dir.unfinished()?.into_iter().map(|(_, progress)| progress.resource).collect();
        assert_eq!(unfinished, std::slice::from_ref(&name));
        state.reset(&[])?;
        state.write(&Progress { phase: Phase::Done, ..progress() }, &[])?;
        assert_eq!(state.left()?.count(), 0);
        assert!(dir.unfinished()?.is_empty());
        Ok(())
    }

    #[test]
    fn a_resumed_run_includes_what_it_has_finished() -> Result<(), Box<dyn std::error::Error>> {
        let temp = tempfile::tempdir()?;
        let dir = StateDir::open(Some(temp.path()), "c")?;
        for (name, run, phase, second) in [
            ("left.example.com", "new", Phase::Done, 5),
            ("stopped.example.com", "new", Phase::Verifying, 6),
            ("before.example.com", "old", Phase::Rewriting, 3),
            ("finished.example.com", "old", Phase::Done, 2),
        ] {
            let resource = GroupResource::parse(name);
            let mut state = dir.resource(&resource, "s")?;
            state.run = run.to_owned();
            let updated = Timestamp::from_second(second)?;
            state.write(&Progress { resource, phase, updated, ..progress() }, &[])?;
        }
        let found = dir.unfinished()?.into_iter().map(|(_, progress)| progress.resource.to_string());
        let expected = ["before.example.com", "left.example.com", "stopped.example.com"];
        assert_eq!(found.collect::<Vec<_>>(), expected);
        Ok(())
    }

    #[test]
    fn objects_are_named_as_the_last_pass_left_them() -> Result<(), Box<dyn std::error::Error>> {
        let temp = tempfile::tempdir()?;
        let dir = StateDir::open(Some(temp.path()), "c")?;
        let mut state = dir.resource(&GroupResource::parse("widgets.example.com"), "s")?;
        let quarantined = |quarantined| {
            let mut progress = progress();
            progress.begin_verifying();
            progress.verify.quarantined = quarantined;
            progress
        };
        for (total, left, expected) in [
            (1, vec!["a"], "a"),
            (1, vec![], "a"),
            (2, vec!["b"], "a b"),
            // The pass starts over.
            (0, vec![], ""),
            (1, vec!["b"], "b"),
            (1, vec!["b"], "b"),
        ] {
            let left: Vec<Quarantined> = left.into_iter().map(bad).collect();
            state.write(&quarantined(total), &left)?;
            let named: Vec<String> = state.left()?.map(|object| object.name).collect();
            assert_eq!(named.join(" "), expected, "{total}");
        }
        // Killed while it started over.
        fs::write(&state.quarantine, "")?;
        state.load()?;
        assert_eq!(fs::metadata(&state.quarantine)?.len(), 0);
        Ok(())
    }

    #[test]
    fn the_longest_name_of_a_resource_has_files_of_its_own() -> Result<(), Box<dyn std::error::Error>> {
        let temp = tempfile::tempdir()?;
        let dir = StateDir::open(Some(temp.path()), "c")?;
        let longest = format!("widgets.{}", "a.".repeat(122));
        let mut states = Vec::new();
        for end in ["b", "c"] {
            let resource = GroupResource::parse(&format!("{longest}{end}"));
            let mut state = dir.resource(&resource, "s")?;
            state.write(&Progress { resource, ..progress() }, &[bad("a")])?;
            states.push(state);
        }
        assert_eq!(dir.unfinished()?.len(), 2);
        Ok(())
    }

    #[test]
    fn two_runs_of_one_resource_are_refused() -> Result<(), Box<dyn std::error::Error>> {
        let temp = tempfile::tempdir()?;
        let dir = StateDir::open(Some(temp.path()), "c")?;
        let name = GroupResource::parse("widgets.example.com");
        let _first = dir.resource(&name, "s")?;
        assert!(matches!(dir.resource(&name, "s"), Err(StateError::Locked(_))));
        Ok(())
    }

    #[test]
    fn a_foreign_file_is_refused() -> Result<(), Box<dyn std::error::Error>> {
        let temp = tempfile::tempdir()?;
        let dir = StateDir::open(Some(temp.path()), "c")?;
        let mut state = dir.resource(&GroupResource::parse("widgets.example.com"), "s")?;
        fs::write(&state.state, "{}")?;
        assert!(matches!(state.load(), Err(StateError::Unreadable(_))));
        assert!(matches!(dir.unfinished(), Err(StateError::Unreadable(_))), "it may be of an unfinished run");
        Ok(())
    }
}
