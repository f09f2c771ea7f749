//! A volume mounted by the kernel: a loop device and a mount, released when dropped.
//!
//! The loop device is detached right after mounting, which the kernel turns into "detach at the last close";
//! so a process that is killed leaves at most a mount, never a loop device without one.
//!
//! Hazards: unmounting retries while something (an indexer, a slow close) keeps the mount busy. After
//! unmounting, the kernel releases the image a moment later, and dropping waits for that: the image may be
//! checked, copied or mounted again as soon as the value is gone. Those of loop devices are in
//! [`loops`](crate::loops).

pub use crate::loops::Access;

use crate::e2fsprogs::try_mke2fs;
use crate::loops::{LoopDevice, can_attach, complain};
use crate::superblock::Summary;
use crate::tool::Said;
use crate::wait::{PATIENCE, PAUSE};
use crate::{Skip, locks, scratch, superblock, tool};
use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread::sleep;
use std::time::Instant;

/// A mounted image.
#[derive(Debug)]
#[must_use = "dropping it unmounts"]
pub struct KernelMount {
    image: PathBuf,
    device: LoopDevice,
    point: PathBuf,
    mounted: bool,
    /// A lock, if it was mounted unhurried.
    unsynced: Option<fs::File>,
}

/// Why an image is not mounted.
#[derive(Clone, Debug, thiserror::Error)]
pub enum MountError {
    /// Mounts can't be tried here.
    #[error(transparent)]
    Skip(#[from] Skip),
    /// The kernel refused; the text is the output of `mount` and the kernel log.
    #[error("the kernel refuses {image}: {said}")]
    Refused {
        /// The image.
        image: String,
        /// The output.
        said: String,
    },
}

impl KernelMount {
    /// Mounts an image for reading and writing, with mount options (empty for none) besides `noatime`.
    ///
    /// # Errors
    /// A [`Skip`] if not root, without loop devices, or if the kernel lacks a feature the image uses.
    ///
    /// # Panics
    /// If the kernel refuses the image for another reason: then the image is wrong.
    #[track_caller]
    pub fn new(image: &Path, options: &str) -> Result<Self, Skip> {
        Self::unless_refused(Self::attempt(image, Access::ReadWrite, options))
    }

    /// Mounts an image whose journal commits only on request, not every five seconds, nor when another test calls
    /// `sync(2)`: for tests that inspect what it left.
    ///
    /// # Errors
    /// As [`KernelMount::new`].
    ///
    /// # Panics
    /// As [`KernelMount::new`].
    #[track_caller]
    pub fn unhurried(image: &Path, options: &str) -> Result<Self, Skip> {
        let unsynced = locks::unsynced();
        let mut mount = Self::new(image, &["commit=300", options].join(","))?;
        mount.unsynced = Some(unsynced);
        Ok(mount)
    }

    /// Mounts an image for reading; no byte of it changes. A journal that needs recovery is refused, unless
    /// `options` has `noload`.
    ///
    /// # Errors
    /// As [`KernelMount::new`].
    ///
    /// # Panics
    /// As [`KernelMount::new`].
    #[track_caller]
    pub fn read_only(image: &Path, options: &str) -> Result<Self, Skip> {
        Self::unless_refused(Self::attempt(image, Access::ReadOnly, options))
    }

    #[track_caller]
    fn unless_refused(attempt: Result<Self, MountError>) -> Result<Self, Skip> {
        match attempt {
            Ok(mount) => Ok(mount),
            Err(MountError::Skip(skip)) => Err(skip),
            Err(refused @ MountError::Refused { .. }) => panic!("{refused}"),
        }
    }

    /// Mounts an image, distinguishing a refusal from a skip, for tests that expect to be refused.
    ///
    /// # Errors
    /// A skip or a refusal.
    ///
    /// # Panics
    /// If the directory for mount points can't be made.
    pub fn attempt(image: &Path, access: Access, options: &str) -> Result<Self, MountError> {
        can_mount()?;
        let image = image.canonicalize().map_err(|error| refusal(image, &error.to_string()))?;
        let device = LoopDevice::new(&image, access)?;
        let point = scratch::fresh("mount");
        fs::create_dir(&point).unwrap_or_else(|error| panic!("can't make {}: {error}", point.display()));
        let mut mount = Self { image, device, point, mounted: false, unsynced: None };
        let said = mount.mount(access, options)?; // dropped on failure, which detaches
        if said.succeeded() { Ok(mount) } else { Err(mount.refused(&said)) }
    }

    fn mount(&mut self, access: Access, options: &str) -> Result<Said, Skip> {
        let base = match access {
            Access::ReadWrite => "noatime",
            Access::ReadOnly => "ro",
        };
        let options = [base, options].join(",").trim_end_matches(',').to_owned();
        let said = tool::run(
            tool::need("mount")?
                .args(["-i", "-t", self.kind(), "-o", &options])
                .arg(self.device.path())
                .arg(&self.point),
        );
        if said.succeeded() {
            self.mounted = true;
            self.device.detach();
        }
        Ok(said)
    }

    /// Why it is not mounted: a skip if the kernel can't mount such a volume, else the image is wrong.
    fn refused(&self, said: &Said) -> MountError {
        let text = format!("{}\n{}", said.report(), self.kernel_log());
        let denied = said.stderr.contains("ermission denied") || said.stderr.contains("must be superuser");
        if denied || said.stderr.contains("unknown filesystem type") {
            return Skip::new(format!("mounting is not possible here: {}", said.stderr.trim())).into();
        }
        let summary = superblock::read(&self.image);
        let optional = summary.as_ref().map(Summary::optional_in_kernels).unwrap_or_default();
        if optional.is_empty() || summary.is_ok_and(|summary| mounts_new(&summary)) {
            return refusal(&self.image, &text);
        }
        let reason = self.kernel_log().lines().last().map(without_age).unwrap_or_default();
        let features = optional.join(", ");
        Skip::new(format!("this kernel does not mount volumes with {features}{reason}")).into()
    }

    fn is_mountable(image: &Path) -> Result<bool, Skip> {
        let device = LoopDevice::new(image, Access::ReadWrite)?;
        let point = scratch::fresh("mount");
        fs::create_dir(&point).map_err(|error| Skip::new(format!("{}: {error}", point.display())))?;
        let mut mount = Self { image: image.to_owned(), device, point, mounted: false, unsynced: None };
        mount.mount(Access::ReadWrite, "").map(|said| said.succeeded())
    }

    /// The type of file system by the image's first bytes: XFS, else ext4.
    fn kind(&self) -> &'static str {
        let mut magic = [0; 4];
        let read = fs::File::open(&self.image).and_then(|mut file| file.read_exact(&mut magic));
        if read.is_ok() && magic == *b"XFSB" { "xfs" } else { "ext4" }
    }

    /// Where the volume is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.point
    }

    /// The loop device.
    #[must_use]
    pub fn device(&self) -> &Path {
        self.device.path()
    }

    /// The bytes of the image while it is mounted, as they were at one moment. The kernel may write blocks back
    /// during a read (any `sync` on the machine makes it), which would mix old blocks with a new log. So the
    /// image is read until two reads agree.
    ///
    /// # Panics
    /// If it can't be read, or changes all the time.
    #[track_caller]
    #[must_use]
    pub fn image_at_rest(&self) -> Vec<u8> {
        let read =
            || fs::read(&self.image).unwrap_or_else(|error| panic!("{}: {error}", self.image.display()));
        let mut before = read();
        for _ in 0..100 {
            let now = read();
            if now == before {
                return now;
            }
            before = now;
        }
        panic!("{} changes all the time", self.image.display());
    }

    /// Unmounts and detaches now, instead of at the end of the scope.
    ///
    /// # Panics
    /// If that fails.
    pub fn unmount(self) {
        drop(self);
    }

    /// The kernel log's last lines about the device; empty where it can't be read.
    fn kernel_log(&self) -> String {
        let Some(mut dmesg) = tool("dmesg") else { return String::new() };
        let log = tool::run(&mut dmesg).stdout;
        let name =
            self.device.path().file_name().map(|n| format!("({})", n.to_string_lossy())).unwrap_or_default();
        let lines: Vec<&str> = log.lines().rev().filter(|line| line.contains(&name)).take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    fn release(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        while self.mounted {
            let said = tool::run(tool::need("umount").map_err(|s| s.0)?.arg("-i").arg(&self.point));
            if said.succeeded() {
                self.mounted = false;
            } else if Instant::now() > deadline {
                tool::run(tool::need("umount").map_err(|s| s.0)?.arg("-l").arg(&self.point));
                return Err(format!("{} stays busy: {}", self.point.display(), said.report()));
            } else {
                sleep(PAUSE);
            }
        }
        self.device.release()?;
        fs::remove_dir(&self.point).map_err(|error| format!("can't remove {}: {error}", self.point.display()))
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        if let Err(problem) = self.release() {
            complain(&problem);
        }
    }
}

/// Whether the kernel mounts a new volume that has what is optional in this one: tried once for each set.
fn mounts_new(like: &Summary) -> bool {
    static KNOWN: LazyLock<Mutex<HashMap<Vec<String>, bool>>> = LazyLock::new(Mutex::default);
    let arguments = like.arguments();
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let before = known().get(&arguments).copied();
    before.unwrap_or_else(|| {
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let image = scratch::fresh("optional");
        let made = try_mke2fs(&words, &image, "256M").is_ok_and(|said| said.succeeded());
        let mounts = made && KernelMount::is_mountable(&image).unwrap_or(false);
        let _ = fs::remove_file(&image); // the scratch directory is removed anyway
        known().insert(arguments, mounts);
        mounts
    })
}

/// The text of a kernel log line, without the seconds since boot: the same reason every time.
fn without_age(line: &str) -> String {
    let text = line.split_once("] ").map_or(line, |(_, text)| text);
    let text = text.split_once("): ").map_or(text, |(_, text)| text); // nor which loop device it was
    format!(": {text}")
}

fn refusal(image: &Path, said: &str) -> MountError {
    MountError::Refused { image: image.display().to_string(), said: said.to_owned() }
}

/// Whether this process may mount at all.
///
/// # Errors
/// A [`Skip`] that says what is missing.
pub fn can_mount() -> Result<(), Skip> {
    can_attach()?;
    for name in ["mount", "umount"] {
        tool::need(name)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{assert_clean, mke2fs, skip};

    fn volume(folder: &Path) -> Result<PathBuf, Skip> {
        let image = folder.join("image");
        mke2fs(&["-t", "ext4"], &image, "16M")?;
        can_mount()?;
        Ok(image)
    }

    fn is_attached_anywhere(image: &Path) -> bool {
        let devices = fs::read_dir("/sys/block").unwrap().flatten();
        let mut files = devices.filter_map(|d| fs::read_to_string(d.path().join("loop/backing_file")).ok());
        files.any(|file| Path::new(file.trim_end()) == image)
    }

    #[test]
    fn what_is_written_is_there_after_mounting_again_and_nothing_is_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        let image = match volume(folder.path()) {
            Ok(image) => image,
            Err(reason) => skip!("mount::what_is_written_is_there", reason),
        };
        let mount = KernelMount::new(&image, "").unwrap();
        fs::write(mount.path().join("file"), "hello").unwrap();
        let point = mount.path().to_owned();
        mount.unmount();
        assert!(!point.exists() && !is_attached_anywhere(&image));
        assert_clean(&image).unwrap();

        let before = fs::read(&image).unwrap();
        let mount = KernelMount::read_only(&image, "").unwrap();
        assert_eq!(fs::read(mount.path().join("file")).unwrap(), b"hello");
        assert!(fs::write(mount.path().join("file"), "no").is_err());
        drop(mount);
        assert_eq!(fs::read(&image).unwrap(), before, "a read-only mount changed the image");
    }

    #[test]
    fn a_panic_unmounts() {
        let folder = tempfile::tempdir().unwrap();
        let image = match volume(folder.path()) {
            Ok(image) => image,
            Err(reason) => skip!("mount::a_panic_unmounts", reason),
        };
        let panicked = std::panic::catch_unwind(|| {
            let _mount = KernelMount::new(&image, "").unwrap();
            panic!("on purpose");
        });
        assert!(panicked.is_err());
        assert!(!is_attached_anywhere(&image));
    }

    #[test]
    fn a_busy_mount_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let image = match volume(folder.path()) {
            Ok(image) => image,
            Err(reason) => skip!("mount::a_busy_mount_is_waited_for", reason),
        };
        let mount = KernelMount::new(&image, "").unwrap();
        let open = fs::File::create(mount.path().join("open")).unwrap();
        let closer = std::thread::spawn(move || {
            sleep(std::time::Duration::from_millis(200));
            drop(open);
        });
        mount.unmount();
        closer.join().unwrap();
        assert!(!is_attached_anywhere(&image));
    }

    #[test]
    fn a_broken_volume_with_an_optional_feature_is_refused_and_not_skipped() {
        let test = "mount::a_broken_volume_with_an_optional_feature";
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        let features = ["-t", "ext4", "-O", "orphan_file"];
        let made = mke2fs(&features, &image, "16M").and_then(|()| KernelMount::new(&image, "").map(drop));
        if let Err(reason) = made {
            skip!(test, reason);
        }
        // Neither group descriptors nor their backups are right.
        let descriptors: Vec<&str> = vec!["set_block_group 0 inode_table 0", "set_block_group 0 checksum 1"];
        crate::debugfs_write(&image, &descriptors).unwrap();
        match KernelMount::attempt(&image, Access::ReadWrite, "") {
            Err(MountError::Refused { .. }) => {}
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_broken_image_is_refused_and_not_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        fs::write(&image, vec![0; 1 << 20]).unwrap();
        match KernelMount::attempt(&image, Access::ReadWrite, "") {
            Err(MountError::Skip(reason)) => skip!("mount::a_broken_image_is_refused", reason),
            Err(MountError::Refused { said, .. }) => assert!(said.contains("mount"), "{said}"),
            Ok(_) => panic!("zeros were mounted"),
        }
        assert!(!is_attached_anywhere(&image));
    }
}
