//! A mounted volume, served by threads of the test, and its oracles.
//!
//! Hazard: a program that another test starts holds this one's descriptors until it runs, so unmounting is
//! retried for a while.

use hectare_device::{Device, FileOptions, StatsDevice};
use hectare_engine::{OpenOptions, Overwrite, Volume};
use hectare_fuse::{MountOptions, Mounting, Operation, Operations, serve};
use hectare_mkfs::FormatOptions;
use hectare_oracle::fsck::Report;
use hectare_oracle::{KernelMount, Skip, What, assert_same, e2fsck, mke2fs, skip_part, until, walk};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};

/// Bytes in a MiB.
pub(crate) const MIB: u64 = 1 << 20;

/// The device that counts all data on its way to the image.
pub(crate) type Counted = StatsDevice<Arc<dyn Device>>;

/// A mounted volume.
pub(crate) struct Mount {
    scratch: tempfile::TempDir,
    pub(crate) image: PathBuf,
    pub(crate) dir: PathBuf,
    server: Option<JoinHandle<()>>,
    device: Option<Arc<Counted>>,
    operations: Arc<Operations>,
}

impl Mount {
    /// A fresh volume of our own format, mounted.
    pub(crate) fn new(size: u64, options: &str) -> Result<Self, Skip> {
        Self::formatted(size, &FormatOptions::default(), options)
    }

    /// A fresh volume, mounted.
    pub(crate) fn formatted(size: u64, format: &FormatOptions, options: &str) -> Result<Self, Skip> {
        let mut mount = Self::unmounted()?;
        fs::File::create(&mount.image).unwrap().set_len(size).unwrap();
        let device = Arc::new(FileOptions::new().write(true).open(&mount.image).unwrap());
        let open = OpenOptions::default();
        Volume::format(device, format, Overwrite::Refuse, open).unwrap().close().unwrap();
        mount.attach(options);
        Ok(mount)
    }

    /// A fresh volume that mke2fs made, mounted.
    pub(crate) fn by_mke2fs(arguments: &[&str], size: &str, options: &str) -> Result<Self, Skip> {
        let mut mount = Self::unmounted()?;
        mke2fs(arguments, &mount.image, size)?;
        mount.attach(options);
        Ok(mount)
    }

    /// A copy of an image, mounted.
    pub(crate) fn of(image: &Path, options: &str) -> Result<Self, Skip> {
        let mut mount = Self::unmounted()?;
        fs::copy(image, &mount.image).unwrap();
        mount.attach(options);
        Ok(mount)
    }

    fn unmounted() -> Result<Self, Skip> {
        if !hectare_oracle::is_root() || fs::File::options().read(true).open("/dev/fuse").is_err() {
            return Err(Skip::new("mounting needs root and /dev/fuse"));
        }
        let base = if Path::new("/dev/shm").is_dir() { "/dev/shm".into() } else { std::env::temp_dir() };
        let scratch = tempfile::tempdir_in(base).unwrap();
        let (image, dir) = (scratch.path().join("image"), scratch.path().join("dir"));
        fs::create_dir(&dir).unwrap();
        Ok(Self { scratch, image, dir, server: None, device: None, operations: Arc::default() })
    }

    /// Mounts the image with these options.
    pub(crate) fn attach(&mut self, list: &str) {
        let mut options = MountOptions::default();
        options.add(list).unwrap();
        let file = FileOptions::new().write(!options.read_only).open(&self.image).unwrap();
        let device = Arc::new(Counted::new(Arc::new(file)));
        self.device = Some(Arc::clone(&device));
        self.operations = Arc::default();
        let (dir, operations) = (self.dir.clone(), Arc::clone(&self.operations));
        let (sender, ready) = channel();
        self.server = Some(thread::spawn(move || {
            let volume = Volume::open(device, options.open_options()).unwrap();
            let ready = || sender.send(()).unwrap();
            let what = Mounting { source: "image", dir: &dir, options: &options };
            serve(volume, &what, None, operations, ready).unwrap();
        }));
        ready.recv().expect("it is mounted");
    }

    /// A path in the mounted volume.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A path beside the image, for what a test needs outside the volume.
    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// The device of the mounted volume.
    pub(crate) fn device(&self) -> Arc<Counted> {
        Arc::clone(self.device.as_ref().expect("it is mounted"))
    }

    /// The number of requests of a kind that the kernel has sent since it was mounted.
    pub(crate) fn requests(&self, operation: Operation) -> u64 {
        self.operations.snapshot().kinds[operation as usize].times.count()
    }

    /// The number of requests of all kinds.
    pub(crate) fn all_requests(&self) -> u64 {
        self.operations.snapshot().times().count()
    }

    /// Unmounts, and waits until the volume is closed.
    pub(crate) fn detach(&mut self) {
        if self.server.is_none() {
            return;
        }
        // A program that another test starts has a copy of every descriptor for a moment.
        until(|| {
            rustix::mount::unmount(&self.dir, rustix::mount::UnmountFlags::empty())
                != Err(rustix::io::Errno::BUSY)
        });
        let Some(server) = self.server.take() else { return };
        server.join().expect("it ended well");
        self.device = None;
    }

    /// Unmounts; the volume is clean, and the kernel's ext4 sees what was seen here.
    pub(crate) fn judge(self, name: &str) {
        self.judge_by(name, |report| report.clean);
    }

    /// As [`Mount::judge`], where extent trees may be larger than necessary: files with scattered writes
    /// leave such trees, the kernel's own too.
    pub(crate) fn judge_scattered(self, name: &str) {
        self.judge_by(name, Report::is_sound);
    }

    fn judge_by(mut self, name: &str, is_fine: impl Fn(&Report) -> bool) {
        let seen = walk(&self.dir);
        self.detach();
        match e2fsck(&self.image) {
            Ok(report) => assert!(is_fine(&report), "{}", report.output),
            Err(reason) => skip_part!(name, reason),
        }
        match KernelMount::read_only(&self.image, "") {
            Ok(kernel) => assert_same(&seen, &walk(kernel.path()), What::all()),
            Err(reason) => skip_part!(name, reason),
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.server.is_some() {
            let _ = rustix::mount::unmount(&self.dir, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

/// The `Mount`, or the end of a skipped test.
macro_rules! mounted {
    ($name:expr, $size:expr, $options:expr) => {
        match $crate::support::Mount::new($size, $options) {
            Ok(mount) => mount,
            Err(reason) => hectare_oracle::skip!($name, reason),
        }
    };
}
pub(crate) use mounted;

/// A tool of the host, or the end of a skipped test.
macro_rules! needed {
    ($name:expr, $tool:expr) => {
        match hectare_oracle::tool::need($tool) {
            Ok(tool) => tool,
            Err(reason) => hectare_oracle::skip!($name, reason),
        }
    };
}
pub(crate) use needed;
