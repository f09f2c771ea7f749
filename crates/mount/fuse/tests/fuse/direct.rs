//! Asynchronous direct I/O (`io_submit` on `O_DIRECT`, as databases and virtual machines do it).
//!
//! No safe library has the system calls.

#![allow(unsafe_code)]

use crate::support::{MIB, mounted};
use rustix::io::Errno;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::ptr::{null_mut, slice_from_raw_parts_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// The alignment of memory and offsets for direct I/O.
const ALIGN: usize = 4096;

/// `struct iocb` of `include/uapi/linux/aio_abi.h` on a little-endian machine.
#[repr(C)]
#[derive(Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    descriptor: u32,
    buffer: u64,
    len: u64,
    at: i64,
    reserved: u64,
    flags: u32,
    event_descriptor: u32,
}

/// `struct io_event` of the same.
#[repr(C)]
#[derive(Default)]
struct Event {
    data: u64,
    of: u64,
    result: i64,
    more: i64,
}

/// Memory for direct I/O.
struct Aligned(*mut [u8]);

impl Aligned {
    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, ALIGN).unwrap()
    }

    fn new(len: usize) -> Self {
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc_zeroed(Self::layout(len)) };
        assert!(!start.is_null());
        Self(slice_from_raw_parts_mut(start, len))
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: this is the only pointer to the memory, which is initialized and lives as long as `self`.
        unsafe { &mut *self.0 }
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout.
        unsafe { dealloc(self.0.cast(), Self::layout(self.0.len())) }
    }
}

/// A context of asynchronous I/O.
struct Aio(libc::c_ulong);

impl Aio {
    fn new() -> Self {
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes one word to `context`.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, 4, &raw mut context) };
        assert_eq!(made, 0, "{}", io::Error::last_os_error());
        Self(context)
    }

    /// Writes all bytes at an offset, and waits for completion; returns the kernel's result.
    fn write(&self, file: &File, bytes: &mut Aligned, at: u64) -> Result<usize, Errno> {
        const PWRITE: u16 = 1; // IOCB_CMD_PWRITE
        let mut control = Iocb {
            opcode: PWRITE,
            descriptor: u32::try_from(file.as_raw_fd()).unwrap(),
            buffer: bytes.bytes().as_mut_ptr() as u64,
            len: bytes.bytes().len() as u64,
            at: i64::try_from(at).unwrap(),
            ..Iocb::default()
        };
        let mut list = [&raw mut control];
        // SAFETY: the list has one entry, and what it points at lives until the call returns; the bytes live
        // until the write has ended, which is waited for below.
        let submitted = unsafe { libc::syscall(libc::SYS_io_submit, self.0, 1, list.as_mut_ptr()) };
        assert_eq!(submitted, 1, "{}", io::Error::last_os_error());
        let (mut event, forever) = (Event::default(), null_mut::<libc::timespec>());
        // SAFETY: there is room for the one event that is asked for; no time is given.
        let ended = unsafe { libc::syscall(libc::SYS_io_getevents, self.0, 1, 1, &raw mut event, forever) };
        assert_eq!(ended, 1, "{}", io::Error::last_os_error());
        usize::try_from(event.result)
            .map_err(|_| Errno::from_raw_os_error(i32::try_from(-event.result).unwrap()))
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        // SAFETY: the context is this one's, and nothing is under way in it.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

/// A file open for direct writing.
fn direct(path: &std::path::Path) -> File {
    File::options().write(true).create(true).custom_flags(libc::O_DIRECT).open(path).unwrap()
}

/// The kernel dropped its pages before such a write and not after: a concurrent reader kept the old bytes.
#[test]
fn regression_buffered_readers_see_what_asynchronous_direct_writes_wrote() {
    const NAME: &str = "direct::regression_buffered_readers_see_what_asynchronous_direct_writes_wrote";
    const LEN: usize = 640 << 10;
    const ROUNDS: usize = 400;
    for options in ["", "writeback"] {
        let mount = mounted!(NAME, 64 * MIB, options);
        let (file, mut bytes, aio) = (direct(&mount.path("f")), Aligned::new(LEN), Aio::new());
        let (reader, done) = (File::open(mount.path("f")).unwrap(), AtomicBool::new(false));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut bytes = vec![0; LEN];
                    while !done.load(Ordering::Relaxed) {
                        let _ = reader.read_at(&mut bytes, 0);
                    }
                });
            }
            let (mut seen, mut stale) = (vec![0; LEN], 0);
            for value in (1..=250_u8).cycle().take(ROUNDS) {
                bytes.bytes().fill(value);
                let written = aio.write(&file, &mut bytes, 0);
                let read = reader.read_exact_at(&mut seen, 0);
                stale += usize::from(!seen.iter().all(|byte| *byte == value));
                if (written, read.is_ok()) != (Ok(LEN), true) {
                    done.store(true, Ordering::Relaxed);
                    panic!("{written:?}");
                }
            }
            done.store(true, Ordering::Relaxed);
            assert_eq!(stale, 0, "of {ROUNDS} ({options})");
        });
        drop((file, reader));
        mount.judge(NAME);
    }
}

/// Any error of such a write was `EIO`.
#[test]
fn regression_asynchronous_direct_writes_hear_that_the_volume_is_full() {
    const NAME: &str = "direct::regression_asynchronous_direct_writes_hear_that_the_volume_is_full";
    let mount = mounted!(NAME, 16 * MIB, "");
    let (mut bytes, aio) = (Aligned::new(512 << 10), Aio::new());
    let file = direct(&mount.path("f"));
    file.set_len(64 * MIB).unwrap();
    let refused = (0..128).find_map(|n| aio.write(&file, &mut bytes, n * (MIB / 2)).err());
    assert_eq!(refused, Some(Errno::NOSPC));
    drop(file);
    fs::remove_file(mount.path("f")).unwrap();
    mount.judge(NAME);
}
