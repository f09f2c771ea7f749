//! Files that take long to make and never change: made once, and kept in the directory `fixtures` of cargo's target
//! directory for all test processes and later runs. `cargo clean` removes them.
//!
//! A fixture is a file with notes on it beside, which begin with the digests of both. Its name ends with a digest of
//! all that decides what it becomes; another version replaces the one before. It is made under a lock, for which
//! others wait, and published by renaming, the notes last. What is found is read and compared with its digest: a
//! fixture that was changed is made again.
//!
//! Hazard: a user who may not write there (root's target directory) makes them for one process only.

use crate::entry::Content;
use crate::{scratch, walk};
use rustix::fs::{Access, SeekFrom};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A fixture's file, read-only, and the notes on it.
pub(crate) type Fixture = (PathBuf, Vec<u8>);

/// A fixture by its name and by all that decides what it becomes; made by `make`, which writes the file at the path
/// that it is given and returns the notes.
///
/// # Errors
/// Those of `make`.
///
/// # Panics
/// If it can't be kept.
#[track_caller]
pub(crate) fn fixture<E>(
    name: &str,
    version: &str,
    make: impl FnOnce(&Path) -> Result<Vec<u8>, E>,
) -> Result<Fixture, E> {
    let file = folder().join(format!("{name}-{}", hash(version)));
    if let Some(found) = found(&file) {
        return Ok(found);
    }
    let lock = File::create(folder().join(format!("{name}.lock"))).and_then(|lock| {
        lock.lock()?;
        Ok(lock)
    });
    let _lock = lock.unwrap_or_else(|error| panic!("can't lock {}: {error}", file.display()));
    if let Some(found) = found(&file) {
        return Ok(found); // another process has made it meanwhile
    }
    let fresh = scratch::fresh(name);
    let notes = make(&fresh)?;
    let kept = forget(name).and_then(|()| publish(&fresh, &notes, &file));
    kept.unwrap_or_else(|error| panic!("can't keep {}: {error}", file.display()));
    Ok((file, notes))
}

/// Sixteen digits for a text.
pub(crate) fn hash(text: &str) -> String {
    Content::of(text.as_bytes())[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `CARGO_TARGET_DIR/fixtures`: the target directory is the one above the running program that cargo has tagged.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let program = std::env::current_exe().unwrap_or_default();
        let tagged = program.ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file());
        let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
        let folder = tagged.map_or_else(usual, Path::to_owned).join("fixtures");
        let usable =
            fs::create_dir_all(&folder).is_ok() && rustix::fs::access(&folder, Access::WRITE_OK).is_ok();
        if usable { folder } else { scratch::folder().to_owned() }
    })
}

/// A path whose name is a file's with something behind it.
fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

fn notes_of(file: &Path) -> PathBuf {
    beside(file, ".notes")
}

/// A fixture that is there, unless it is not as it was made.
fn found(file: &Path) -> Option<Fixture> {
    let all = fs::read(notes_of(file)).ok()?;
    let (digest_of_file, rest) = all.split_first_chunk::<32>()?;
    let (digest_of_notes, notes) = rest.split_first_chunk::<32>()?;
    let whole = Content::of(notes) == *digest_of_notes && walk::content(file).ok()? == *digest_of_file;
    whole.then(|| (file.to_owned(), notes.to_vec()))
}

/// Removes what an older version made under a name.
fn forget(name: &str) -> io::Result<()> {
    for entry in fs::read_dir(folder())? {
        let entry = entry?;
        let found = entry.file_name().to_string_lossy().into_owned();
        let hash = found.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
        let hash = hash.map(|rest| rest.split('.').next().unwrap_or_default());
        if hash.is_some_and(|hash| hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Moves a new file to its place, and writes the notes.
fn publish(fresh: &Path, notes: &[u8], file: &Path) -> io::Result<()> {
    let unnamed = beside(file, ".new");
    copy(fresh, &unnamed)?;
    fs::remove_file(fresh)?;
    fs::set_permissions(&unnamed, Permissions::from_mode(0o444))?;
    let all = [&walk::content(&unnamed)?[..], &Content::of(notes), notes].concat();
    fs::rename(&unnamed, file)?;
    fs::write(&unnamed, all)?;
    fs::rename(&unnamed, notes_of(file))
}

/// Copies a file, holes as holes.
///
/// # Errors
/// If it can't be copied.
pub(crate) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (File::open(from)?, File::create(to)?);
    to.set_len(from.metadata()?.len())?;
    let (mut at, mut buffer) = (0, vec![0; 1 << 20]);
    while let Ok(start) = rustix::fs::seek(&from, SeekFrom::Data(at)) {
        let end = rustix::fs::seek(&from, SeekFrom::Hole(start))?;
        at = start;
        while at < end {
            let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
            from.read_exact_at(&mut buffer[..want], at)?;
            to.write_all_at(&buffer[..want], at)?;
            at += want as u64;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::convert::Infallible;

    #[test]
    fn a_fixture_is_made_once_and_again_if_it_was_changed_or_is_another() {
        let name = format!("test-{}", std::process::id());
        let made = Cell::new(0);
        let get = |version: &str| {
            let make = |path: &Path| {
                made.set(made.get() + 1);
                fs::write(path, version).unwrap();
                Ok::<_, Infallible>(b"noted".to_vec())
            };
            fixture(&name, version, make).unwrap()
        };
        let (one, notes) = get("one");
        assert_eq!((get("one"), made.get()), ((one.clone(), notes), 1));
        let writable = || fs::set_permissions(&one, Permissions::from_mode(0o644)).unwrap();
        writable();
        fs::write(&one, "won").unwrap();
        let (again, _) = get("one");
        assert_eq!((fs::read(again).unwrap().as_slice(), made.get()), (&b"one"[..], 2));
        fs::write(notes_of(&one), "cut").unwrap();
        assert_eq!((get("one").1.as_slice(), made.get()), (&b"noted"[..], 3));
        let (two, _) = get("two");
        assert!(!one.exists() && !notes_of(&one).exists());
        assert_eq!((fs::read(two).unwrap().as_slice(), made.get()), (&b"two"[..], 4));
        forget(&name).unwrap();
        fs::remove_file(folder().join(format!("{name}.lock"))).unwrap();
    }
}
