//! A fresh copy of an image, so that every contender and every round of a comparison can start from the same
//! bytes.
//!
//! The copy lies beside the image, so that it is on the same file system, and is removed when dropped. Where
//! the host can share blocks between files (`FICLONE`: XFS, Btrfs, bcachefs) it costs next to nothing; else
//! data is copied, and holes stay holes. So an aged image of 100 GiB, which holds a few MiB of metadata, is
//! copied in a moment.
//!
//! The image is locked as by any reader while it is copied: an image in use by a writer is refused. Free
//! space is checked before anything is copied, and an unfinished copy is removed. Hazard: a copy stays behind
//! when the process is killed; its name ends in `.fresh`.

use hectare_device::FileOptions;
use hectare_tools::error::{Error, Result};
use hectare_units::{index_of, u64_of};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Bytes copied at a time.
const PIECE: u64 = 1 << 20;
/// Bytes of what `st_blocks` counts.
const SECTOR: u64 = 512;

/// A copy of an image that is removed when it is dropped.
#[derive(Debug)]
pub struct FreshCopy {
    file: NamedTempFile,
    shared: bool,
}

impl FreshCopy {
    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Whether it shares its blocks with the image, so that nothing was copied.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        self.shared
    }
}

/// Copies an image into its own directory.
///
/// # Errors
/// One line that names the image: it is no regular file, is in use, can't be read, or there is no room for
/// what it holds.
pub fn fresh_copy(image: &Path) -> Result<FreshCopy> {
    let fail = |reason: &dyn ToString| Error::at(image.display().to_string(), reason.to_string());
    if !std::fs::metadata(image).map_err(|error| fail(&error))?.is_file() {
        return Err(fail(&"a fresh copy is made of an image in a file only"));
    }
    let lock = FileOptions::new().open(image).map_err(|error| Error::Invalid(error.to_string()))?;
    let copied = copy(image).map_err(|error| fail(&error));
    drop(lock);
    copied
}

fn copy(image: &Path) -> io::Result<FreshCopy> {
    let source = File::open(image)?;
    let directory = match image.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    let stem = image.file_name().unwrap_or_default().to_string_lossy().into_owned() + ".";
    let file = tempfile::Builder::new().prefix(&stem).suffix(".fresh").tempfile_in(&directory)?;
    let shared = rustix::fs::ioctl_ficlone(file.as_file(), &source).is_ok();
    if !shared {
        check_room(&source, &directory)?;
        copy_data(&source, file.as_file())?;
    }
    Ok(FreshCopy { file, shared })
}

fn check_room(source: &File, directory: &Path) -> io::Result<()> {
    let needed = source.metadata()?.blocks() * SECTOR;
    let stat = rustix::fs::statvfs(directory)?;
    let room = stat.f_bavail.saturating_mul(stat.f_frsize);
    if needed <= room {
        return Ok(());
    }
    let what = format!("a fresh copy takes {needed} bytes, and {room} are free in {}", directory.display());
    Err(io::Error::other(what))
}

/// Copies what is data; a file is as long as the other in the end.
fn copy_data(source: &File, copy: &File) -> io::Result<()> {
    let len = source.metadata()?.len();
    copy.set_len(len)?;
    let mut piece = vec![0; index_of(PIECE)];
    let mut at = 0;
    while let Some((start, end)) = next_data(source, at, len)? {
        at = start;
        while at < end {
            let now = &mut piece[..index_of((end - at).min(PIECE))];
            source.read_exact_at(now, at)?;
            copy.write_all_at(now, at)?;
            at += u64_of(now.len());
        }
    }
    Ok(())
}

/// The first run of data at or after a byte; everything, on a file system that does not know holes.
fn next_data(file: &File, at: u64, len: u64) -> io::Result<Option<(u64, u64)>> {
    let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None), // a hole up to the end
        Err(Errno::INVAL | Errno::NOTSUP) => return Ok((at < len).then_some((at, len))),
        Err(errno) => return Err(errno.into()),
    };
    let end = rustix::fs::seek(file, SeekFrom::Hole(start))?.min(len);
    Ok((start < end).then_some((start, end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sparse image: data at its start, in its middle and at its end, on no round offsets.
    fn image(folder: &Path) -> PathBuf {
        let image = folder.join("disk.img");
        let file = File::create(&image).unwrap();
        file.set_len(64 << 20).unwrap();
        for (at, byte) in [(0, 1), ((20 << 20) + 7, 2), ((64 << 20) - 3, 3)] {
            file.write_all_at(&[byte; 3], at).unwrap();
        }
        image
    }

    #[test]
    fn a_copy_has_the_same_bytes_and_holes_and_goes() {
        let folder = tempfile::tempdir().unwrap();
        let image = image(folder.path());
        let copy = fresh_copy(&image).unwrap();
        let place = copy.path().to_owned();
        assert!(place.parent() == Some(folder.path()) && place != image);
        assert_eq!(std::fs::read(&place).unwrap(), std::fs::read(&image).unwrap());
        assert!(std::fs::metadata(&place).unwrap().blocks() * SECTOR < 8 << 20, "holes stay holes");
        // Changes to the copy do not reach the image.
        File::options().write(true).open(&place).unwrap().write_all_at(&[9], 0).unwrap();
        assert_eq!(std::fs::read(&image).unwrap()[0], 1);
        drop(copy);
        assert!(!place.exists());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn runs_of_data_are_copied_without_sharing_too() {
        let folder = tempfile::tempdir().unwrap();
        let image = image(folder.path());
        let other = folder.path().join("copy");
        let copy = File::create(&other).unwrap();
        copy_data(&File::open(&image).unwrap(), &copy).unwrap();
        assert_eq!(std::fs::read(&other).unwrap(), std::fs::read(&image).unwrap());
        assert!(copy.metadata().unwrap().blocks() * SECTOR < 8 << 20, "holes stay holes");
        copy_data(&File::open("/dev/null").unwrap(), &copy).unwrap();
        assert_eq!(copy.metadata().unwrap().len(), 0);
    }

    #[test]
    fn what_cannot_be_copied_is_named_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        for (path, reason) in
            [(folder.path().join("none"), "No such file"), (folder.path().into(), "in a file only")]
        {
            let refused = fresh_copy(&path).unwrap_err().to_string();
            assert!(refused.contains(reason) && refused.contains(&*path.display().to_string()), "{refused}");
        }
        let image = image(folder.path());
        let written = FileOptions::new().write(true).open(&image).unwrap();
        let refused = fresh_copy(&image).unwrap_err().to_string();
        assert!(refused.contains("disk.img") && refused.contains("using it"), "{refused}");
        drop(written);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_image_that_holds_more_than_there_is_room_for_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let source = File::open(image(folder.path())).unwrap();
        assert!(check_room(&source, folder.path()).is_ok());
        // No file can be made in /proc: nothing is free there.
        let refused = check_room(&source, Path::new("/proc")).unwrap_err().to_string();
        assert!(refused.contains("and 0 are free in /proc"), "{refused}");
    }
}
