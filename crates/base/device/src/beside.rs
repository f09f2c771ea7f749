//! What lies beside a file: its directory, and hidden names of files under construction.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The directory a path lies in.
pub(crate) fn parent_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// The directory a path lies in, opened so that it can be made durable; `None` if the host does not open
/// directories, as Windows doesn't, or it may not be read.
pub(crate) fn parent_dir(path: &Path) -> Option<File> {
    File::open(parent_of(path)).ok()
}

/// Makes something under a hidden name beside the final one. Names that exist are passed over: a process that was
/// killed left them, and numbers of processes come again.
pub(crate) fn under_hidden_name<T>(
    path: &Path,
    make: impl Fn(&Path) -> io::Result<T>,
) -> io::Result<(PathBuf, T)> {
    loop {
        let hidden = hidden_name(path);
        match make(&hidden) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return Ok((hidden, made?)),
        }
    }
}

/// A name beside the final one that is unique in this and all other processes that run.
pub(crate) fn hidden_name(path: &Path) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    // The final name is left out: with it, a name near the limit of 255 bytes would become too long.
    path.with_file_name(format!(".hectare-{}-{count}", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Processes in containers have the same numbers again and again.
    #[test]
    fn regression_names_that_a_killed_process_left_are_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.img");
        let left: Vec<PathBuf> = (0..3).map(|_| hidden_name(&path)).collect();
        let next = left[2].file_name().unwrap().to_str().unwrap().rsplit('-').next().unwrap();
        let next: u32 = next.parse().unwrap();
        for number in next + 1..next + 40 {
            let name = format!(".hectare-{}-{number}", std::process::id());
            fs::write(folder.path().join(name), "left").unwrap();
        }
        let make = |hidden: &Path| File::create_new(hidden).map(drop);
        let (hidden, ()) = under_hidden_name(&path, make).unwrap();
        assert_eq!(fs::metadata(hidden).unwrap().len(), 0);
    }
}
