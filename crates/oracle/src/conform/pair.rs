//! Two mounts of volumes that began as the same bytes: the program's and the kernel's.

use crate::killed::Ended;
use crate::mount::can_mount;
use crate::{KernelMount, Skip, is_root, mke2fs, tool};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Whether both can be mounted here.
pub(super) fn can_run() -> Result<(), Skip> {
    can_mount()?;
    if !is_root() || fs::File::open("/dev/fuse").is_err() {
        return Err(Skip::new("mounting needs root and /dev/fuse"));
    }
    tool::need("mke2fs").map(drop)
}

/// The two mounts; dropped, they are taken off.
pub(super) struct Pair {
    program: PathBuf,
    images: [PathBuf; 2],
    dir: PathBuf,
    kernel: Option<KernelMount>,
}

impl Pair {
    /// Makes a volume twice and mounts it, with options for the program and for the kernel.
    pub(super) fn new(
        program: &Path,
        folder: &Path,
        (args, size): (&[&str], &str),
        options: [&str; 2],
    ) -> Result<Self, Ended> {
        let images = ["ours", "kernels"].map(|name| folder.join(name).with_extension("img"));
        let told = |error: std::io::Error| Ended::Failed(format!("{}: {error}", folder.display()));
        let _ = fs::remove_file(&images[0]); // of the run before
        mke2fs(args, &images[0], size)?;
        fs::copy(&images[0], &images[1]).map_err(told)?;
        let dir = folder.join("dir");
        fs::create_dir_all(&dir).map_err(told)?;
        let mut pair = Self { program: program.into(), images, dir, kernel: None };
        pair.mount(options)?;
        Ok(pair)
    }

    fn mount(&mut self, [ours, kernels]: [&str; 2]) -> Result<(), Ended> {
        self.kernel = Some(KernelMount::new(&self.images[1], kernels)?);
        let ours = ["allow_other,noatime,suid,dev", ours].join(",");
        let ours = ours.trim_end_matches(',');
        self.run(&[
            "mount".as_ref(),
            "-o".as_ref(),
            ours.as_ref(),
            self.images[0].as_ref(),
            self.dir.as_ref(),
        ])
    }

    fn run(&self, words: &[&std::ffi::OsStr]) -> Result<(), Ended> {
        let said = tool::run(Command::new(&self.program).args(words));
        if said.succeeded() { Ok(()) } else { Err(said.report().into()) }
    }

    /// Unmounts both, and mounts them with other options.
    pub(super) fn again(mut self, options: [&str; 2]) -> Result<Self, Ended> {
        self.detach()?;
        self.mount(options)?;
        Ok(self)
    }

    fn detach(&mut self) -> Result<(), Ended> {
        if let Some(kernel) = self.kernel.take() {
            kernel.unmount();
            self.run(&["umount".as_ref(), self.dir.as_ref()])?;
        }
        Ok(())
    }

    /// The images, unmounted.
    pub(super) fn unmount(mut self) -> Result<[PathBuf; 2], Ended> {
        self.detach()?;
        Ok(self.images.clone())
    }

    /// Where the program's mount is.
    pub(super) fn ours(&self) -> &Path {
        &self.dir
    }

    /// Where the kernel's is.
    pub(super) fn kernels(&self) -> &Path {
        self.kernel.as_ref().map_or(&self.dir, KernelMount::path)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = self.detach();
    }
}
