//! Fuzz target: a disk image as any bytes, or a sound one of each format with changes.

use crate::disks::{Disk, all};
use crate::input::Input;
use hectare_device::{Device, FileDevice, FileOptions};
use hectare_disk::{Backing, Format};
use hectare_units::{Bytes, index_of, u64_of};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::OnceLock;

/// A directory that is not there: an image in it can name nothing that is.
const NOWHERE: &str = "/nonexistent/image";
const READS: u64 = 24;
const LEN_MAX: usize = 4096;

pub(super) fn target(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (which, flags) = (usize::from(input.byte()), input.byte());
    let disk = match which % (all().len() + 1) {
        0 => Disk::of(input.rest()),
        n => all()[n - 1].changed(&mut input, flags & 1 == 0),
    };
    let writes = flags & 2 != 0;
    let file = put(&disk);
    let Some(format) = Format::of(&open(file, writes)).expect("memory can be read") else { return };
    match hectare_disk::open(open(file, writes), Path::new(NOWHERE), format, Backing::Beside) {
        Ok(disk) => exercise(&*disk, writes),
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
}

/// The image as a file, the same one each time.
fn put(disk: &Disk) -> &'static File {
    static FILE: OnceLock<File> = OnceLock::new();
    let file = FILE.get_or_init(|| {
        rustix::fs::memfd_create("image", rustix::fs::MemfdFlags::CLOEXEC).expect("memory can be had").into()
    });
    file.set_len(0).and_then(|()| file.set_len(disk.len)).expect("memory can be had");
    for (at, bytes) in &disk.parts {
        file.write_all_at(bytes, *at).expect("memory can be had");
    }
    file
}

fn open(file: &File, write: bool) -> FileDevice {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    FileOptions::new().write(write).exclusive(false).open(path).expect("it can be opened again")
}

fn exercise(disk: &dyn Device, writes: bool) {
    let len = disk.len().get();
    let mut buf = [0; LEN_MAX];
    let mut at = 0;
    for turn in 0..READS {
        if at >= len {
            break;
        }
        let part = Bytes::new(u64_of(LEN_MAX).min(len - at));
        let _ = disk.read_at(Bytes::new(at), &mut buf[..index_of(part.get())]);
        let Ok(extent) = disk.extent_at(Bytes::new(at), Bytes::new(len - at)) else { break };
        assert!(extent.len > Bytes::ZERO && extent.len.get() <= len - at, "{extent:?} of {}", len - at);
        if writes && turn % 3 == 0 {
            let _ = disk.write_at(Bytes::new(at), &buf[..index_of(part.get().min(700))]);
        }
        at += extent.len.get();
    }
    if let Some(last) = len.checked_sub(1) {
        let _ = disk.read_at(Bytes::new(last), &mut buf[..1]);
        let _ = disk.read_at(Bytes::new(len / 2), &mut buf[..1]);
    }
    assert!(disk.read_at(disk.len(), &mut [0]).is_err());
    if writes {
        let _ = disk.zero(Bytes::ZERO, Bytes::new(len.min(100_000)));
        let _ = disk.flush();
    }
}
