//! The four servers: each on a fresh image of its own, mounted and unmounted.
//!
//! All but the kernel run in the foreground as children of this process, so that their end is seen.

use super::Stage;
use hectare_fuse::{MountOptions, serve_null};
use hectare_oracle::mount::KernelMount;
use hectare_oracle::{e2fsck, tool};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The timeout for mounting and unmounting.
const PATIENCE: Duration = Duration::from_secs(120);
const SIZE: &str = "8G";

/// The server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Side {
    Hectare,
    Fuse2fs,
    Kernel,
    Null,
}

impl Side {
    pub(super) const ALL: [Self; 4] = [Self::Hectare, Self::Fuse2fs, Self::Kernel, Self::Null];

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Hectare => "hectare",
            Self::Fuse2fs => "fuse2fs",
            Self::Kernel => "kernel",
            Self::Null => "null",
        }
    }
}

/// A mounted image.
pub(super) struct Mounted {
    side: Side,
    image: PathBuf,
    dir: PathBuf,
    /// The server, unless it is the kernel.
    child: Option<Child>,
    /// Released when this value is dropped.
    _kernel: Option<KernelMount>,
}

impl Mounted {
    /// Makes an image on a stage and mounts it there; `options` are for hectare.
    pub(super) fn new(side: Side, options: &str, stage: &Stage) -> Result<Self, String> {
        let (binary, folder) = (stage.binary.as_path(), stage.scratch.path());
        let (image, dir) = (folder.join("image"), folder.join("mnt"));
        let _ = fs::remove_file(&image);
        fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let made = Command::new(binary).args(["mkfs", "-q", "-m", "0"]).arg(&image).arg(SIZE).status();
        if !made.is_ok_and(|status| status.success()) {
            return Err("hectare mkfs failed".into());
        }
        let mut command = match side {
            Side::Kernel => {
                let mount = KernelMount::new(&image, "").map_err(|skip| skip.to_string())?;
                let dir = mount.path().to_owned();
                return Ok(Self { side, image, dir, child: None, _kernel: Some(mount) });
            }
            Side::Hectare => {
                let mut command = Command::new(binary);
                command.args(["mount", "--foreground", "-o", options]).arg(&image).arg(&dir);
                command
            }
            Side::Fuse2fs => {
                let mut command = tool("fuse2fs").ok_or("fuse2fs is not installed")?;
                command.arg("-f").arg(&image).arg(&dir);
                command
            }
            Side::Null => {
                let program = std::env::current_exe().map_err(|error| error.to_string())?;
                let mut command = Command::new(program);
                command.args(["mount", "null"]).arg(&dir);
                command
            }
        };
        let before = device_of(&dir);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let child = Some(child.map_err(|error| format!("{}: {error}", side.title()))?);
        let mut mounted = Self { side, image, dir, child, _kernel: None };
        wait_for(|| device_of(&mounted.dir) != before || mounted.has_ended());
        if device_of(&mounted.dir) == before || mounted.has_ended() {
            return Err(format!("{}: not mounted", side.title()));
        }
        Ok(mounted)
    }

    pub(super) const fn title(&self) -> &'static str {
        self.side.title()
    }

    pub(super) fn path(&self) -> &Path {
        &self.dir
    }

    fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None)))
    }

    /// Unmounts, waits until the image is closed, and checks ours.
    pub(super) fn end(mut self) -> Result<(), String> {
        if self.child.is_none() {
            return Ok(());
        }
        take_off(&self.dir);
        if !wait_for(|| self.has_ended()) {
            return Err(format!("{}: it does not end", self.side.title()));
        }
        if self.side != Side::Hectare {
            return Ok(());
        }
        let report = e2fsck(&self.image).map_err(|skip| skip.to_string())?;
        if report.is_sound() { Ok(()) } else { Err(format!("e2fsck finds it broken:\n{}", report.output)) }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !self.has_ended()
            && let Some(child) = &mut self.child
        {
            take_off(&self.dir);
            let _ = child.kill(); // it may have ended
            let _ = child.wait();
        }
        let _ = fs::remove_file(&self.image); // the directory is removed, too
    }
}

fn take_off(dir: &Path) {
    let _ = tool("umount").map(|mut umount| umount.arg(dir).status()); // a mount that stays times out
}

fn device_of(dir: &Path) -> Option<u64> {
    fs::metadata(dir).ok().map(|found| found.dev())
}

fn wait_for(mut what: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    while !what() {
        if began.elapsed() > PATIENCE {
            return false;
        }
        sleep(Duration::from_millis(5));
    }
    true
}

/// Serves the file system that keeps nothing until it is unmounted.
pub(super) fn be_null(dir: &Path) -> bool {
    let served = serve_null(dir, &MountOptions::default(), || ());
    served.inspect_err(|error| eprintln!("null: {error}")).is_ok()
}
