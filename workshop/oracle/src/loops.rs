//! A loop device over an image, detached when dropped.
//!
//! Tests run in many processes at once, and the kernel's search for a free device races. So tests have numbers of
//! their own, and a lock for each, which is held from before an image is attached until it is free again: no two
//! test processes ever use a number at once.
//!
//! Hazards: the kernel releases an image a moment after the last close, and dropping waits for that. A killed
//! test may leave a device in use, and others than tests may take one: such a number is passed over.

use crate::wait::{PATIENCE, PAUSE};
use crate::{Skip, is_root, locks, tool};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Instant;

/// Whether the kernel may write to the image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Mounted for reading and writing, without access-time updates.
    ReadWrite,
    /// The loop device itself is read-only: not one byte of the image can change.
    ReadOnly,
}

/// The numbers that tests use: so large that programs which search for a free device find others first.
const NUMBERS: Range<u32> = 1000..1256;

/// An image as a block device.
#[derive(Debug)]
#[must_use = "dropping it detaches"]
pub struct LoopDevice {
    image: PathBuf,
    path: PathBuf,
    /// Whether the kernel was asked to free it at its last close. Once it is free another process may attach its
    /// own image, which asking again would detach.
    detached: AtomicBool,
    /// Held until the device is free.
    _lock: File,
}

impl LoopDevice {
    /// Attaches an image.
    ///
    /// # Errors
    /// A [`Skip`] if not root, or without loop devices.
    ///
    /// # Panics
    /// If there is no such image.
    pub fn new(image: &Path, access: Access) -> Result<Self, Skip> {
        Self::with_sectors(image, access, 512)
    }

    /// Attaches an image as a device with sectors of this many bytes.
    ///
    /// # Errors
    /// As [`Self::new`].
    ///
    /// # Panics
    /// As [`Self::new`].
    pub fn with_sectors(image: &Path, access: Access, sector: u32) -> Result<Self, Skip> {
        let sector = sector.to_string();
        let mut words = vec!["--sector-size", &sector];
        words.extend((access == Access::ReadOnly).then_some("--read-only"));
        Self::attach(image, &words)
    }

    /// Attaches an image, read-only, as a device with sectors of this many bytes and has the kernel look for
    /// partitions.
    ///
    /// # Errors
    /// As [`Self::new`].
    ///
    /// # Panics
    /// As [`Self::new`].
    pub fn with_partitions(image: &Path, sector: u32) -> Result<Self, Skip> {
        Self::attach(image, &["--read-only", "--partscan", "--sector-size", &sector.to_string()])
    }

    fn attach(image: &Path, words: &[&str]) -> Result<Self, Skip> {
        can_attach()?;
        // As in the kernel's report of its devices.
        let image = image.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", image.display()));
        for number in NUMBERS {
            let lock = locks::named(&format!("loop{number}"));
            if lock.try_lock().is_err() {
                continue;
            }
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let mut losetup = tool::need("losetup")?;
            losetup.args(words).args([&path, &image]);
            let mut said = tool::run(&mut losetup);
            if !said.succeeded() && make_node(&path, number) {
                said = tool::run(&mut losetup);
            }
            if said.succeeded() {
                return Ok(Self { image, path, detached: AtomicBool::new(false), _lock: lock });
            }
            if !said.stderr.contains("busy") {
                return Err(Skip::new(format!("no loop device to be had: {}", said.stderr.trim())));
            }
        }
        Err(Skip::new("all loop devices of the tests are in use"))
    }

    /// The device.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Detaches the image, now or at the last close; does nothing after it has.
    pub(crate) fn detach(&self) {
        if !self.detached.load(Ordering::Relaxed)
            && let Some(mut losetup) = tool("losetup")
        {
            let said = tool::run(losetup.arg("-d").arg(&self.path));
            self.detached.store(said.succeeded(), Ordering::Relaxed);
        }
    }

    /// Whether the device still holds the image.
    fn is_attached(&self) -> bool {
        let Some(name) = self.path.file_name() else { return false };
        let file = Path::new("/sys/block").join(name).join("loop/backing_file");
        let backing = fs::read_to_string(file).unwrap_or_default();
        let backing = backing.trim_end_matches('\n');
        Path::new(backing.strip_suffix(" (deleted)").unwrap_or(backing)) == self.image
    }

    /// Detaches the image and waits until it is free.
    pub(crate) fn release(&self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        while self.is_attached() {
            if Instant::now() > deadline {
                return Err(format!("{} keeps {}", self.path.display(), self.image.display()));
            }
            self.detach();
            sleep(PAUSE / 10);
        }
        Ok(())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Err(problem) = self.release() {
            complain(&problem);
        }
    }
}

/// Reports a problem during cleanup, by a panic unless there is one already.
pub(crate) fn complain(problem: &str) {
    assert!(std::thread::panicking(), "{problem}");
    eprintln!("{problem}");
}

/// Whether this process may attach images at all.
///
/// # Errors
/// A [`Skip`] that says what is missing.
pub fn can_attach() -> Result<(), Skip> {
    if !is_root() {
        return Err(Skip::new("loop devices need root"));
    }
    if !Path::new("/dev/loop-control").exists() {
        return Err(Skip::new("there are no loop devices"));
    }
    tool::need("losetup").map(drop)
}

/// Makes the node of a device that losetup had the kernel add, where nothing else does; returns whether it did.
fn make_node(path: &Path, number: u32) -> bool {
    let device = fs::read_to_string(format!("/sys/block/loop{number}/dev")).unwrap_or_default();
    let numbers = device.trim().split_once(':').map(|(major, minor)| (major.parse(), minor.parse()));
    let Some((Ok(major), Ok(minor))) = numbers else { return false };
    mknodat(CWD, path, FileType::BlockDevice, Mode::RUSR | Mode::WUSR, makedev(major, minor)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip;

    #[test]
    fn devices_in_use_at_once_differ() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        File::create(&image).unwrap().set_len(1 << 20).unwrap();
        let devices: Result<Vec<_>, Skip> =
            (0..3).map(|_| LoopDevice::new(&image, Access::ReadOnly)).collect();
        let devices = match devices {
            Ok(devices) => devices,
            Err(reason) => skip!("loops::devices_in_use_at_once_differ", reason),
        };
        let mut paths: Vec<_> = devices.iter().map(LoopDevice::path).collect();
        paths.dedup();
        assert_eq!(paths.len(), 3);
        fs::remove_file(&image).unwrap();
        assert!(devices.iter().all(LoopDevice::is_attached));
        let (first, others) = devices.split_first().unwrap();
        first.release().unwrap();
        assert!(!first.is_attached() && others.iter().all(LoopDevice::is_attached));
    }
}
