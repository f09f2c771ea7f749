//! Volumes mounted by the kernel, for as long as a value lives.
//!
//! The tools are the system's own (`mount`, `umount`, `mkfs.xfs`, `mkfs.btrfs`); a missing tool or a refusal
//! leaves the side out, with the reason.

use super::plan::{Failed, FileSystem};
use crate::timing::timed;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How often an unmount is tried again while something holds the mount, and how long after.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// A mount.
pub(super) struct Mount {
    dir: tempfile::TempDir,
    mounted: bool,
    /// Seconds that mounting took.
    pub(super) seconds: f64,
}

impl Mount {
    /// Mounts an image through a loop device.
    pub(super) fn new(image: &Path, file_system: FileSystem, options: &str) -> Result<Self, Failed> {
        if !rustix::process::geteuid().is_root() {
            return Err(Failed::LeftOut("mounting needs root".to_owned()));
        }
        let dir = tempfile::tempdir().map_err(|error| Failed::LeftOut(error.to_string()))?;
        let options =
            [&["loop"][..], &options.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>()]
                .concat()
                .join(",");
        let mut mount = Command::new("mount");
        mount.args(["-t", file_system.name(), "-o", &options]).arg(image).arg(dir.path());
        let (mounted, seconds) = timed(|| run(&mut mount));
        mounted.map_err(|failed| match failed {
            Failed::LeftOut(reason) => {
                let place = format!("{}: ", dir.path().display());
                Failed::LeftOut(reason.replace(&place, "").replace("mount: mount: ", "mount: "))
            }
            broken => broken,
        })?;
        let mount = Self { dir, mounted: true, seconds };
        mount.count();
        Ok(mount)
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Has ext4 count what its allocator does; a kernel that can't counts nothing, and the table shows that.
    fn count(&self) {
        let Some(device) = device_of(self.path()) else { return };
        let _ = std::fs::write(PathBuf::from("/sys/fs/ext4").join(device).join("mb_stats"), "1");
    }

    /// Unmounts; how many seconds that took.
    pub(super) fn unmount(mut self) -> Result<f64, Failed> {
        let (done, seconds) = timed(|| self.detach());
        done.map(|()| seconds)
    }

    fn detach(&mut self) -> Result<(), Failed> {
        let mut tries = TRIES;
        while self.mounted {
            match run(Command::new("umount").arg(self.dir.path())) {
                Ok(()) => self.mounted = false,
                Err(failed) if tries == 0 => return Err(failed),
                Err(_) => std::thread::sleep(PAUSE),
            }
            tries -= 1;
        }
        Ok(())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.detach().is_err() {
            let _ = run(Command::new("umount").arg("-l").arg(self.dir.path()));
        }
    }
}

/// The short name of the device mounted on a directory.
fn device_of(dir: &Path) -> Option<String> {
    let table = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let line = table.lines().rfind(|line| line.split(' ').nth(1) == dir.to_str())?;
    line.split(' ').next()?.rsplit('/').next().map(str::to_owned)
}

/// Makes an empty volume of a file system other than ext4 on a sparse file.
pub(super) fn make(image: &Path, file_system: FileSystem, size: u64) -> Result<(), Failed> {
    let fail = |error: std::io::Error| Failed::LeftOut(format!("{}: {error}", image.display()));
    std::fs::File::create(image).and_then(|file| file.set_len(size)).map_err(fail)?;
    let mut mkfs = Command::new(format!("mkfs.{}", file_system.name()));
    mkfs.arg(if file_system == FileSystem::Btrfs { "-fq" } else { "-q" }).arg(image);
    run(&mut mkfs)
}

/// Runs a tool; what it says when it fails is why a side is left out.
fn run(command: &mut Command) -> Result<(), Failed> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command.stdin(Stdio::null()).stdout(Stdio::null()).output();
    let done = done.map_err(|error| Failed::LeftOut(format!("{name}: {error}")))?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    let line = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("it failed and says nothing");
    Err(Failed::LeftOut(format!("{name}: {}", line.trim())))
}
