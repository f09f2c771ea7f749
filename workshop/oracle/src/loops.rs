//! A loop device over an image, detached when dropped.
//!
//! Hazards: loop devices are shared by the machine and the search for a free one races, so attaching retries.
//! The kernel releases an image a moment after the last close, and dropping waits for that.

use crate::wait::{PATIENCE, PAUSE};
use crate::{Skip, is_root, tool};
use std::fs;
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

/// An image as a block device.
#[derive(Debug)]
#[must_use = "dropping it detaches"]
pub struct LoopDevice {
    image: PathBuf,
    path: PathBuf,
    /// Whether the kernel was asked to free it at its last close. Once it is free another process may attach its
    /// own image, which asking again would detach.
    detached: AtomicBool,
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
        can_attach()?;
        // As in the kernel's report of its devices.
        let image = image.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", image.display()));
        let path = attach(&image, access, sector)?;
        Ok(Self { image, path, detached: AtomicBool::new(false) })
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
        Path::new(backing.trim_end_matches('\n')) == self.image
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

fn attach(image: &Path, access: Access, sector: u32) -> Result<PathBuf, Skip> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut losetup = tool::need("losetup")?;
        losetup.args(["--find", "--show", "--sector-size", &sector.to_string()]);
        if access == Access::ReadOnly {
            losetup.arg("--read-only");
        }
        let said = tool::run(losetup.arg(image));
        if said.succeeded() {
            return Ok(PathBuf::from(said.stdout.trim()));
        }
        let raced = said.stderr.contains("busy") || said.stderr.contains("temporarily unavailable");
        if !raced || Instant::now() > deadline {
            return Err(Skip::new(format!("no loop device to be had: {}", said.stderr.trim())));
        }
        sleep(PAUSE);
    }
}
