//! Files that only their owner may read, written atomically.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The mode: only the owner may read and write.
const OWNER_ONLY: u32 = 0o600;

/// Creates or replaces a file.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let beside = write_beside(path, content)?;
    fs::rename(&beside, path).inspect_err(|_| remove(&beside))
}

/// Reads a file, or creates it if it is missing. Concurrent callers all get the same content.
pub fn read_or_make<E: From<io::Error>>(
    path: &Path,
    make: impl FnOnce() -> Result<String, E>,
) -> Result<String, E> {
    match read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        found => return Ok(found?),
    }
    let beside = write_beside(path, make()?.as_bytes())?;
    let linked = fs::hard_link(&beside, path);
    remove(&beside);
    match linked {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error.into()),
        _ => Ok(read(path)?),
    }
}

/// Reads a file, and restricts it to its owner.
fn read(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mode = file.metadata()?.permissions().mode();
    if mode & 0o077 != 0 {
        tracing::warn!(path = %path.display(), "the file was readable by others; restricted it to its owner");
        file.set_permissions(Permissions::from_mode(OWNER_ONLY))?;
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// Opens a file to append to it.
pub(crate) fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(OWNER_ONLY).open(path)
}

fn write_beside(path: &Path, content: &[u8]) -> io::Result<PathBuf> {
    let mut name = path.file_name().ok_or(ErrorKind::InvalidInput)?.to_owned();
    name.push(format!(".{:016x}", fastrand::u64(..)));
    let beside = path.with_file_name(name);
    let mut file = OpenOptions::new().create_new(true).write(true).mode(OWNER_ONLY).open(&beside)?;
    let written = file.write_all(content).and_then(|()| file.sync_all());
    written.inspect_err(|_| remove(&beside))?;
    Ok(beside)
}

fn remove(path: &Path) {
    // A leftover file is private and has a unique name.
    let _ = fs::remove_file(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn files_are_private_and_replaced_atomically() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        replace(&path, b"one").unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("two", 0o600));
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let found = read_or_make(&path, || -> io::Result<String> { panic!("it is there") }).unwrap();
        assert_eq!((found.as_str(), mode(&path)), ("two", 0o600));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn concurrent_creators_of_a_file_get_the_same_content() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let made: Vec<String> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|n| {
                    scope.spawn({
                        let path = &path;
                        move || read_or_make(path, || io::Result::Ok(n.to_string())).unwrap()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(made.iter().all(|text| *text == made[0]), "{made:?}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_write_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        assert!(replace(&dir.path().join("none/file"), b"").is_err());
        assert!(read_or_make(&dir.path().join("f"), || Err(io::Error::other("no"))).is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
