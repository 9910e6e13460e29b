//! Fixture folders: objects in files, and snapshots of them in every other version.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use restow_convert::{Convertible, causes};
use serde_json::Value;

use crate::compare::{text_difference, yaml};
use crate::failures::{Failure, Failures};
use crate::object::version_of;

/// The environment variable that makes [`Fixtures::check`] write the snapshots instead of comparing them.
pub const UPDATE: &str = "RESTOW_UPDATE_SNAPSHOTS";

/// A folder with a folder for each version, which has the objects of that version:
///
/// ```text
/// fixtures/v1beta1/nightly.yaml          an object that you write
/// fixtures/v1beta1/nightly.to-v1.yaml    what it becomes in v1: written by the test, read by you
/// fixtures/v1/weekly.yaml
/// fixtures/v1/weekly.to-v1beta1.yaml
/// ```
///
/// A snapshot is the whole object, with the annotation that keeps what the version cannot express. If the conversion
/// fails, the snapshot is a comment with the error. Run the test with `RESTOW_UPDATE_SNAPSHOTS=1` to write snapshots, and
/// read `git diff`.
#[derive(Clone, Debug)]
pub struct Fixtures {
    folder: PathBuf,
    update: bool,
}

impl Fixtures {
    /// The fixtures in a folder, such as `concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures")`.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            update: std::env::var_os(UPDATE).is_some_and(|value| !value.is_empty()),
        }
    }

    /// Whether snapshots are written instead of compared. The default is what the environment says.
    #[must_use]
    pub fn update(mut self, update: bool) -> Self {
        self.update = update;
        self
    }

    /// Converts each object to every other version that has a folder, and back, and compares the results with the snapshots.
    ///
    /// # Errors
    /// Snapshots that are missing, differ or belong to no object; objects that do not come back as they were; files that
    /// cannot be read.
    pub fn check(&self, converter: &dyn Convertible) -> Result<(), Failures> {
        let mut checked =
            Checked { folder: &self.folder, update: self.update, objects: 0, failures: Vec::new() };
        match self.versions() {
            Ok(versions) => {
                for version in &versions {
                    checked.version(converter, version, &versions);
                }
                if checked.objects == 0 {
                    checked.fail(&self.folder, "there are no objects in it: put some into VERSION/NAME.yaml");
                }
            }
            Err(error) => checked.fail(&self.folder, format!("cannot be read: {error}")),
        }
        Failures::unless_empty(
            format!("{} objects in {}", checked.objects, self.folder.display()),
            checked.failures,
        )
    }

    fn versions(&self) -> std::io::Result<Vec<String>> {
        let mut versions = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                versions.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        versions.sort_by(|one, other| restow_convert::version_order(one, other));
        Ok(versions)
    }
}

struct Checked<'a> {
    folder: &'a Path,
    update: bool,
    objects: usize,
    failures: Vec<Failure>,
}

impl Checked<'_> {
    fn fail(&mut self, path: &Path, detail: impl Into<String>) {
        let name = path.strip_prefix(self.folder).ok().filter(|rest| !rest.as_os_str().is_empty());
        self.failures.push(Failure::new(name.unwrap_or(path).display().to_string(), detail));
    }

    fn version(&mut self, converter: &dyn Convertible, version: &str, versions: &[String]) {
        let folder = self.folder.join(version);
        let names = match file_names(&folder) {
            Ok(names) => names,
            Err(error) => return self.fail(&folder, format!("cannot be read: {error}")),
        };
        let (snapshots, objects): (BTreeSet<_>, BTreeSet<_>) =
            names.into_iter().partition(|name| name.contains(".to-"));
        let mut used = BTreeSet::new();
        for name in &objects {
            self.objects += 1;
            let path = folder.join(name);
            let object = match read(&path, version) {
                Ok(object) => object,
                Err(why) => {
                    self.fail(&path, why);
                    continue;
                }
            };
            for to in versions.iter().filter(|to| *to != version) {
                let snapshot = format!("{}.to-{to}.yaml", name.trim_end_matches(".yaml"));
                self.object(converter, &object, to, &folder.join(&snapshot));
                used.insert(snapshot);
            }
        }
        for stale in snapshots.difference(&used) {
            let path = folder.join(stale);
            match self.update {
                true => drop(fs::remove_file(path)),
                false => self.fail(&path, format!("belongs to no object; remove it, or set {UPDATE}=1")),
            }
        }
    }

    fn object(&mut self, converter: &dyn Convertible, object: &Value, to: &str, snapshot: &Path) {
        let found = match converter.convert(object.clone(), to) {
            Ok(there) => {
                let from = version_of(object).unwrap_or_default();
                match converter.convert(there.clone(), from) {
                    Ok(back) => {
                        if let Some(shown) = crate::compare::difference(object, &back) {
                            self.fail(
                                snapshot,
                                format!("it comes back changed (- before, + after)\n{shown}"),
                            );
                        }
                    }
                    Err(error) => {
                        self.fail(snapshot, format!("it cannot be converted back: {}", causes(&error)))
                    }
                }
                yaml(&there)
            }
            Err(error) => format!("# cannot be converted: {}\n", causes(&error)),
        };
        if self.update {
            if let Err(error) = fs::write(snapshot, found) {
                self.fail(snapshot, format!("cannot be written: {error}"));
            }
            return;
        }
        match fs::read_to_string(snapshot) {
            Ok(expected) => {
                if let Some(shown) = text_difference(&expected, &found) {
                    self.fail(
                        snapshot,
                        format!(
                            "the result differs (- snapshot, + result); to accept it, set {UPDATE}=1\n{shown}"
                        ),
                    );
                }
            }
            Err(error) => self.fail(snapshot, format!("{error}; to write it, set {UPDATE}=1\n{found}")),
        }
    }
}

/// The names of the YAML files in a folder.
fn file_names(folder: &Path) -> std::io::Result<Vec<String>> {
    let names = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<std::io::Result<Vec<_>>>()?;
    names.retain(|name| name.ends_with(".yaml"));
    Ok(names)
}

fn read(path: &Path, version: &str) -> Result<Value, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let object: Value = serde_saphyr::from_str(&text).map_err(|error| format!("not YAML: {error}"))?;
    match version_of(&object) {
        Some(found) if found == version => Ok(object),
        found => {
            Err(format!("it is in the folder {version}, but its version is {}", found.unwrap_or("missing")))
        }
    }
}
