//! A panic while a request is answered: the request gets an error, all others continue, and all changes end.

use crate::support::MIB;
use hectare_device::{Device, FaultDevice, MemoryDevice, Operation, Rule};
use hectare_engine::{OpenOptions, Overwrite, Volume};
use hectare_fuse::{MountOptions, Mounting, serve};
use hectare_mkfs::FormatOptions;
use hectare_oracle::{fsck, is_root, skip, until};
use hectare_units::Bytes;
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

#[track_caller]
fn assert_io(result: &io::Result<()>, what: &str) {
    let errno = result.as_ref().err().and_then(io::Error::raw_os_error);
    assert_eq!(errno, Some(Errno::IO.raw_os_error()), "{what}: {result:?}");
}

#[test]
fn regression_after_a_panic_a_mount_answers_and_changes_nothing() {
    const NAME: &str = "panics::after_a_panic_a_mount_answers_and_changes_nothing";
    if !is_root() || fs::File::options().read(true).open("/dev/fuse").is_err() {
        skip!(NAME, "mounting needs root and /dev/fuse");
    }
    for struck in [Operation::Write, Operation::Flush] {
        let memory = Arc::new(MemoryDevice::new(Bytes::new(16 * MIB)));
        let device = Arc::new(FaultDevice::new(Arc::clone(&memory)));
        let shared = || Arc::clone(&device) as Arc<dyn Device>;
        let open =
            OpenOptions { commit_interval: None, cache_bytes: 0, cache_inodes: 0, ..Default::default() };
        let format = FormatOptions::default();
        Volume::format(shared(), &format, Overwrite::Refuse, open.clone()).unwrap().close().unwrap();
        // Little of what it needs is in memory.
        let volume = Volume::open(shared(), open).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("dir");
        fs::create_dir(&dir).unwrap();
        let (sender, ready) = channel();
        let at = dir.clone();
        let server = thread::spawn(move || {
            let mut options = MountOptions::default();
            // No commit of earlier changes, while the panic is reported.
            options.add("nowriteback,commit=60").unwrap();
            let what = Mounting { source: "image", dir: &at, options: &options };
            serve(volume, &what, None, Arc::default(), || sender.send(()).unwrap())
        });
        ready.recv().expect("it is mounted");
        fs::write(dir.join("before"), b"before").unwrap();
        fs::File::open(dir.join("before")).unwrap().sync_all().unwrap();
        device.add(Rule::panic().on(&[struck]).times(1));
        let change = || {
            fs::create_dir(dir.join("new"))?;
            fs::write(dir.join("new/file"), vec![1; 100_000])?;
            fs::File::open(dir.join("new/file"))?.sync_all()
        };
        assert_io(&change(), &format!("{struck:?}, who asked"));
        assert_eq!(device.strikes(), 1, "{struck:?}");
        assert_io(&fs::create_dir(dir.join("another")), &format!("{struck:?}, afterwards"));
        for _ in 0..20 {
            assert_eq!(fs::read(dir.join("before")).unwrap(), b"before", "{struck:?}");
        }
        until(|| unmount(&dir, UnmountFlags::empty()) != Err(Errno::BUSY));
        server.join().expect("no thread has died").unwrap_err();
        let image = folder.path().join("image");
        fs::write(&image, memory.to_vec()).unwrap();
        let report = match fsck::e2fsck_with(&image, &["-fy"]) {
            Ok(report) => report,
            Err(reason) => skip!(NAME, reason),
        };
        assert!(report.questions.is_empty(), "{struck:?}: {}", report.output);
        let again = Volume::open(memory as Arc<dyn Device>, OpenOptions::read_only()).unwrap();
        assert_eq!(again.read("before").unwrap(), b"before");
        assert!(again.read("new/file").is_err(), "{struck:?}: half of it would be there");
    }
}
