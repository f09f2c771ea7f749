//! The two mounts, of volumes that began as the same bytes: the program's and the kernel's.

use crate::kill_test::{Ended, Server};
use hectare_oracle::fsck::e2fsck;
use hectare_oracle::mount::can_mount;
use hectare_oracle::{KernelMount, Skip, is_root, mke2fs, tool};
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

/// The two mounts; unmounted when dropped.
pub(super) struct Pair {
    program: PathBuf,
    images: [PathBuf; 2],
    dir: PathBuf,
    kernel: Option<KernelMount>,
    server: Option<Server>,
    options: [String; 2],
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
        let mut pair = Self {
            program: program.into(),
            images,
            dir,
            kernel: None,
            server: None,
            options: options.map(Into::into),
        };
        pair.mount()?;
        Ok(pair)
    }

    fn mount(&mut self) -> Result<(), Ended> {
        self.kernel = Some(KernelMount::new(&self.images[1], &self.options[1])?);
        self.serve()
    }

    fn serve(&mut self) -> Result<(), Ended> {
        let options = ["allow_other,noatime,suid,dev", &self.options[0]].join(",");
        let options = options.trim_end_matches(',');
        self.server = Some(Server::new(&self.program, &self.images[0], &self.dir, options)?);
        Ok(())
    }

    fn run(&self, words: &[&std::ffi::OsStr]) -> Result<(), Ended> {
        let said = tool::run(Command::new(&self.program).args(words));
        if said.succeeded() { Ok(()) } else { Err(said.report().into()) }
    }

    /// Unmounts both, and mounts them read-only.
    pub(super) fn read_only(mut self) -> Result<Self, Ended> {
        self.options = ["ro"; 2].map(Into::into);
        self.again()?;
        Ok(self)
    }

    /// Unmounts both, and remounts them.
    pub(super) fn again(&mut self) -> Result<(), Ended> {
        self.detach()?;
        self.mount()
    }

    /// Makes everything durable.
    pub(super) fn sync(&self) -> Result<(), Ended> {
        self.run(&["sync".as_ref(), self.dir.as_ref()])
    }

    /// Has the kernel's journal write everything home, which freezing does.
    pub(super) fn checkpoint_kernels(&self) -> Result<(), Ended> {
        for how in ["-f", "-u"] {
            let said = tool::run(Command::new("fsfreeze").arg(how).arg(self.kernels()));
            if !said.succeeded() {
                return Err(said.report().into());
            }
        }
        Ok(())
    }

    /// Kills the program, has the kernel recover its volume, and mounts that again.
    pub(super) fn kill(&mut self) -> Result<(), Ended> {
        if let Some(server) = self.server.take() {
            server.kill(&self.dir)?;
        }
        KernelMount::new(&self.images[0], "")?.unmount();
        let report = e2fsck(&self.images[0])?;
        if !report.is_sound() {
            return Err(format!("after it was killed: {}", report.output).into());
        }
        self.serve()
    }

    fn detach(&mut self) -> Result<(), Ended> {
        if let Some(kernel) = self.kernel.take() {
            kernel.unmount();
        }
        if let Some(server) = self.server.take() {
            server.unmount(&self.program, &self.dir)?;
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
