//! Inserts pages into a memory-backed file without its lock.
//!
//! `pwrite` holds the inode's lock while the kernel takes a page, copies into it and puts it into the file,
//! so on tmpfs, where a write is nothing else, threads filling one image run one at a time. The kernel has
//! another way to give a file a missing page: `UFFDIO_COPY` of userfaultfd(2), made for moving the memory of
//! running machines. It copies whole pages into a mapping of the file and never takes that lock. Measured for
//! 64 KiB of fresh pages: 24 us of one processor as with `pwrite`, but side by side on two; through an
//! ordinary mapping (populate, then copy) it is 43 us, because each page is cleared before it is filled.
//!
//! A file is mapped in windows of [`WINDOW_LEN`], of which at most 2^[`SLOTS_SHIFT`] exist at a time: a
//! sparse file may be longer than the address space. Pages in a mapping count as the program's own memory, so
//! whenever [`HELD_MAX`] of them were put, all are taken out of the mappings; they stay in the file.
//!
//! Hazards:
//! - *Touching the mapping.* No code does: it has no access rights, and only the kernel puts pages into it.
//!   So a file that is shortened, or a host without memory, cannot end in a signal; the copy just stops, as
//!   it does at the first page that exists already. The rest is left to `pwrite`, which succeeds or reports
//!   the error. Nothing in here is an error.
//! - *Half a page.* Only whole pages are put, so bytes beside the range are never made up, and a page is
//!   seen by readers either absent (zeros) or filled. Holes punched meanwhile take pages out of mapping and
//!   file alike.
//! - *A fork.* The descriptor refers to the address space it was made in, even in a child. So a child leaves
//!   it alone.
//! - *Write-back.* A page written through a mapping may fail to reach a disk long after. Hence memory-backed
//!   files only. Their time of modification is left to the writes beside these.

use crate::Span;
use hectare_units::{Bytes, index_of, u64_of};
use parking_lot::RwLock;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use rustix::mm::{Advice, MapFlags, ProtFlags, UserfaultfdFlags};
use rustix::process::Pid;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The number of tmpfs (statfs(2), `linux/magic.h`).
const TMPFS: u32 = 0x0102_1994;

/// How much of the file one mapping covers: large beside a write, small beside the address space.
const WINDOW_LEN: u64 = 64 << 20;

/// How many mappings there are at most: 64, 4 GiB together. With 16, files that 32 threads append to, each in
/// a room of its own, pushed each other's windows out and were 6 % slower than in one common room.
const SLOTS_SHIFT: u32 = 6;

/// How often a window is missed before another one makes room for it. Mapping and unmapping were measured to
/// take 4 us, less than a fresh write of 16 KiB, but other threads that change the address space wait
/// meanwhile.
const MISSES: u32 = 4;

/// How many bytes of pages the mappings hold at most, and as many for each thread that puts some meanwhile.
/// Taking pages out costs what unmapping them would. Divides [`WINDOW_LEN`].
const HELD_MAX: u64 = 4 << 20;

/// Shorter writes are not worth the call: most are to pages that are there.
const LEN_MIN: usize = 16 << 10;

/// Puts pages into a file that has not got them.
pub(super) struct FreshPages {
    fault: OwnedFd,
    /// The size of a page in bytes, a power of two.
    page: u64,
    owner: Pid,
    slots: [WindowSlot; 1 << SLOTS_SHIFT],
    /// Bytes of pages put since the mappings were emptied.
    held: AtomicU64,
    refused: AtomicBool,
}

/// Where the windows whose numbers leave a certain remainder are mapped.
#[derive(Default)]
struct WindowSlot {
    window: RwLock<Option<Window>>,
    misses: AtomicU32,
}

impl FreshPages {
    /// For a regular file open for writing; `None` where the host cannot do it or it would not pay.
    pub(super) fn new(file: &File) -> Option<Self> {
        let system = rustix::fs::fstatfs(file).ok()?;
        let block = rustix::fs::fstat(file).ok()?.st_blksize;
        // tmpfs reports the size of a page; a larger one for the file means that `pwrite` takes huge pages.
        let page = u64::try_from(system.f_bsize).ok().filter(|page| page.is_power_of_two())?;
        if crate::os::magic_of(&system) != TMPFS || u64::try_from(block) != Ok(page) {
            return None;
        }
        Some(Self {
            fault: open_fault().ok()?,
            page,
            owner: rustix::process::getpid(),
            slots: std::array::from_fn(|_| WindowSlot::default()),
            held: AtomicU64::new(0),
            refused: AtomicBool::new(false),
        })
    }

    /// Writes as many of the first bytes of `data` as are whole pages that the file has not got, and says how
    /// many that were. The range must lie inside the file.
    pub(super) fn put(&self, file: &File, at: u64, data: &[u8]) -> usize {
        let unfit = data.len() < LEN_MIN || !at.is_multiple_of(self.page);
        if unfit || self.refused.load(Ordering::Relaxed) || rustix::process::getpid() != self.owner {
            return 0;
        }
        let whole = u64_of(data.len()) / self.page * self.page;
        let mut done = 0;
        for piece in Span::new(Bytes::new(at), Bytes::new(whole)).pieces(HELD_MAX) {
            let part = &data[done..done + index_of(piece.len.get())];
            let put = self.put_piece(file, piece.at.get(), part);
            self.count(u64_of(put));
            done += put;
            if put < part.len() {
                break;
            }
        }
        done
    }

    /// Counts bytes that were put; when there are too many, the mappings are emptied.
    fn count(&self, put: u64) {
        let before = self.held.fetch_add(put, Ordering::Relaxed);
        if before < HELD_MAX && before + put >= HELD_MAX {
            // Before: what is put meanwhile may stay, and is counted for the next time.
            self.held.store(0, Ordering::Relaxed);
            self.slots.iter().filter_map(|slot| slot.window.try_read()).for_each(|window| {
                if let Some(window) = &*window {
                    window.empty();
                }
            });
        }
    }

    /// Puts a range inside one window.
    fn put_piece(&self, file: &File, at: u64, data: &[u8]) -> usize {
        let number = at / WINDOW_LEN;
        // Streams of files lie at multiples of round numbers; multiplied by 2^64 over the golden ratio, such
        // numbers spread.
        let slot = &self.slots[index_of(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SLOTS_SHIFT))];
        if let Some(window) = slot.window.read().as_ref().filter(|window| window.number == number) {
            return window.put(&self.fault, at, data);
        }
        if slot.misses.fetch_add(1, Ordering::Relaxed) < MISSES {
            return 0;
        }
        let Some(mut held) = slot.window.try_write() else { return 0 };
        slot.misses.store(0, Ordering::Relaxed);
        *held = None;
        match Window::map(file, &self.fault, number) {
            Ok(window) => held.insert(window).put(&self.fault, at, data),
            Err(_) => {
                self.refused.store(true, Ordering::Relaxed);
                0
            }
        }
    }
}

/// A part of the file in the address space, for the kernel alone.
struct Window {
    number: u64,
    /// The address of its first byte; a number, since nothing is ever accessed through it.
    address: usize,
    /// Whether pages may have been put since it was emptied.
    holds: AtomicBool,
}

impl Window {
    #[allow(unsafe_code)] // no safe wrappers of these calls exist
    fn map(file: &File, fault: &OwnedFd, number: u64) -> rustix::io::Result<Self> {
        let len = index_of(WINDOW_LEN);
        let start = number.checked_mul(WINDOW_LEN).ok_or(Errno::OVERFLOW)?;
        // SAFETY: the kernel picks an address that nothing else uses, and without access rights no reference
        // into the mapping can come to be.
        let base = unsafe {
            let (rights, shared) = (ProtFlags::empty(), MapFlags::SHARED | MapFlags::NORESERVE);
            rustix::mm::mmap(std::ptr::null_mut(), len, rights, shared, file, start)?
        };
        // From here on dropping it unmaps.
        let window = Self { number, address: base.expose_provenance(), holds: AtomicBool::new(false) };
        let range = FaultRange { start: u64_of(window.address), len: WINDOW_LEN };
        let mut register = FaultRegister { range, mode: MODE_MISSING, calls: 0 };
        // SAFETY: the opcode is UFFDIO_REGISTER and the value is laid out as its `struct uffdio_register`;
        // the range is the mapping just made.
        unsafe { ioctl(fault, Updater::<REGISTER, FaultRegister>::new(&mut register))? };
        Ok(window)
    }

    /// Puts pages until one is there already or something else is in the way; how many bytes that were.
    #[allow(unsafe_code)] // no safe wrapper of this ioctl exists
    fn put(&self, fault: &OwnedFd, at: u64, data: &[u8]) -> usize {
        let mut copy = FaultCopy {
            target: u64_of(self.address) + at % WINDOW_LEN,
            source: u64_of(data.as_ptr().expose_provenance()),
            len: u64_of(data.len()),
            mode: MODE_DONT_WAKE,
            copied: 0,
        };
        self.holds.store(true, Ordering::Relaxed);
        // SAFETY: the opcode is UFFDIO_COPY and the value is laid out as its `struct uffdio_copy`. The kernel
        // reads `data`, which is borrowed meanwhile, and writes into our window: `at` is in it, and the
        // caller keeps to one window. The window stays mapped while `self` is borrowed.
        let whole = unsafe { ioctl(fault.as_fd(), Updater::<COPY, FaultCopy>::new(&mut copy)) };
        // When interrupted, it fails with EAGAIN and says how far it came; otherwise `copied` is an errno
        // below zero.
        let copied = usize::try_from(copy.copied).unwrap_or(0).min(data.len());
        if whole.is_ok() { data.len() } else { copied }
    }
}

impl Window {
    /// Takes the pages out of the mapping. They stay in the file, and are not missing there.
    #[allow(unsafe_code)] // no safe wrapper of this call exists
    fn empty(&self) {
        if !self.holds.swap(false, Ordering::Relaxed) {
            return;
        }
        // SAFETY: the range is the mapping this value stands for; nothing points into it, and the pages of a
        // shared mapping are the file's.
        let result = unsafe {
            let base = std::ptr::with_exposed_provenance_mut(self.address);
            rustix::mm::madvise(base, index_of(WINDOW_LEN), Advice::LinuxDontNeed)
        };
        debug_assert_eq!(result, Ok(()), "a whole mapping can always be emptied");
    }
}

impl Drop for Window {
    #[allow(unsafe_code)] // no safe wrapper of this call exists
    fn drop(&mut self) {
        // SAFETY: the range is the mapping this value stands for; nothing points into it.
        let result = unsafe {
            let base = std::ptr::with_exposed_provenance_mut(self.address);
            rustix::mm::munmap(base, index_of(WINDOW_LEN))
        };
        debug_assert_eq!(result, Ok(()), "a whole mapping can always be unmapped");
    }
}

// The interface of `linux/userfaultfd.h`, see ioctl_userfaultfd(2).

/// `UFFD_USER_MODE_ONLY`: without privilege; faults of the kernel itself are not ours to serve, nor any
/// other.
const USER_MODE_ONLY: u32 = 1;
/// `UFFD_API`, the only version there is.
const API_VERSION: u64 = 0xaa;
/// `UFFD_FEATURE_MISSING_SHMEM`: works on tmpfs (Linux 4.11).
const FEATURE_SHMEM: u64 = 1 << 5;
/// `UFFD_FEATURE_SIGBUS`: a stray access to a window kills instead of waiting forever (Linux 4.14).
const FEATURE_SIGBUS: u64 = 1 << 7;
/// `UFFDIO_REGISTER_MODE_MISSING`.
const MODE_MISSING: u64 = 1;
/// `UFFDIO_COPY_MODE_DONTWAKE`: no thread waits for these pages.
const MODE_DONT_WAKE: u64 = 1;

const API: Opcode = opcode::read_write::<FaultApi>(0xaa, 0x3f);
const REGISTER: Opcode = opcode::read_write::<FaultRegister>(0xaa, 0x00);
const COPY: Opcode = opcode::read_write::<FaultCopy>(0xaa, 0x03);

/// `struct uffdio_api`.
#[repr(C)]
struct FaultApi {
    version: u64,
    features: u64,
    calls: u64,
}

/// `struct uffdio_range`.
#[repr(C)]
struct FaultRange {
    start: u64,
    len: u64,
}

/// `struct uffdio_register`.
#[repr(C)]
struct FaultRegister {
    range: FaultRange,
    mode: u64,
    calls: u64,
}

/// `struct uffdio_copy`.
#[repr(C)]
struct FaultCopy {
    target: u64,
    source: u64,
    len: u64,
    mode: u64,
    /// Bytes copied, or an errno value negated.
    copied: i64,
}

/// A descriptor that speaks for the faults of this address space.
#[allow(unsafe_code)] // no safe wrappers of these calls exist
fn open_fault() -> rustix::io::Result<OwnedFd> {
    let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::from_bits_retain(USER_MODE_ONLY);
    // SAFETY: the descriptor is used for nothing but our own windows.
    let fault = unsafe { rustix::mm::userfaultfd(flags)? };
    let features = FEATURE_SHMEM | FEATURE_SIGBUS;
    let mut api = FaultApi { version: API_VERSION, features, calls: 0 };
    // SAFETY: the opcode is UFFDIO_API and the value is laid out as its `struct uffdio_api`.
    unsafe { ioctl(&fault, Updater::<API, FaultApi>::new(&mut api))? };
    Ok(fault)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    const PAGE: u64 = 4096;

    /// An unnamed file in `/dev/shm`, sparse, if pages can be put into it here.
    pub(in super::super) fn memory_backed_file(len: u64) -> Option<File> {
        let made = tempfile::tempfile_in("/dev/shm").ok().filter(|file| FreshPages::new(file).is_some());
        let Some(file) = made else {
            eprintln!("skipped: no memory-backed files, or userfaultfd is not allowed");
            return None;
        };
        file.set_len(len).unwrap();
        Some(file)
    }

    fn bytes(seed: u8, len: u64) -> Vec<u8> {
        (0..len).map(|n| (n / 7).to_le_bytes()[0] ^ (n >> 8).to_le_bytes()[0] ^ seed).collect()
    }

    fn read(file: &File, at: u64, len: u64) -> Vec<u8> {
        let mut found = vec![0xee; index_of(len)];
        file.read_exact_at(&mut found, at).unwrap();
        found
    }

    fn punch(file: &File, at: u64, len: u64) {
        use rustix::fs::{FallocateFlags, fallocate};
        fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, len).unwrap();
    }

    /// Puts until the window is mapped.
    fn put_mapped(fresh: &FreshPages, file: &File, at: u64, data: &[u8]) -> u64 {
        let tries = (0..=MISSES).map(|_| fresh.put(file, at, data));
        u64_of(tries.max().unwrap_or_default())
    }

    #[test]
    fn pages_that_are_missing_are_put_and_no_others() {
        let Some(file) = memory_backed_file(1 << 20) else { return };
        let fresh = FreshPages::new(&file).unwrap();
        let data = bytes(1, 10 * PAGE);
        assert_eq!(fresh.put(&file, 0, &data), 0, "a window is not mapped for one write");
        assert_eq!(put_mapped(&fresh, &file, 0, &data), 10 * PAGE);
        assert!(read(&file, 0, 11 * PAGE) == [&data[..], &[0; 4096]].concat());
        // There already; then one in the middle; then an offset and a length that are not of whole pages.
        assert_eq!(fresh.put(&file, 0, &bytes(2, 10 * PAGE)), 0);
        file.write_all_at(&[3; 10], 24 * PAGE).unwrap();
        assert_eq!(u64_of(fresh.put(&file, 20 * PAGE, &data)), 4 * PAGE);
        assert!(read(&file, 20 * PAGE, 4 * PAGE) == data[..index_of(4 * PAGE)]);
        assert_eq!(read(&file, 24 * PAGE, 10), [3; 10]);
        assert_eq!(fresh.put(&file, 40 * PAGE + 1, &data), 0);
        assert_eq!(u64_of(fresh.put(&file, 40 * PAGE, &data[..20_000])), 4 * PAGE);
        assert!(read(&file, 44 * PAGE, PAGE) == [0; 4096], "no half pages");
        assert!(read(&file, 0, 10 * PAGE) == data);
    }

    #[test]
    fn what_a_hole_took_out_can_be_put_again() {
        let Some(file) = memory_backed_file(1 << 20) else { return };
        let fresh = FreshPages::new(&file).unwrap();
        assert_eq!(put_mapped(&fresh, &file, 0, &bytes(1, 8 * PAGE)), 8 * PAGE);
        punch(&file, PAGE, 5 * PAGE);
        assert!(read(&file, PAGE, 5 * PAGE).iter().all(|byte| *byte == 0));
        let again = bytes(2, 5 * PAGE);
        assert_eq!(u64_of(fresh.put(&file, PAGE, &again)), 5 * PAGE);
        assert!(read(&file, PAGE, 5 * PAGE) == again);
    }

    #[test]
    fn a_file_that_somebody_shortened_takes_nothing_and_nobody_is_killed() {
        let Some(file) = memory_backed_file(1 << 20) else { return };
        let fresh = FreshPages::new(&file).unwrap();
        assert_eq!(put_mapped(&fresh, &file, 0, &bytes(1, 16 * PAGE)), 16 * PAGE);
        file.set_len(4 * PAGE + 100).unwrap();
        assert_eq!(fresh.put(&file, 8 * PAGE, &bytes(2, 4 * PAGE)), 0);
        assert_eq!(fresh.put(&file, 6 * PAGE, &bytes(2, 16 * PAGE)), 0);
        assert_eq!(file.metadata().unwrap().len(), 4 * PAGE + 100);
        file.set_len(1 << 20).unwrap();
        assert!(read(&file, 4 * PAGE + 100, 12 * PAGE).iter().all(|byte| *byte == 0));
    }

    /// KiB of pages of files in the mappings of this process (`RssShmem`).
    fn mapped_kib() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssShmem:")).unwrap();
        line.trim_end_matches("kB").trim().parse().unwrap()
    }

    #[test]
    fn few_pages_count_as_the_programs_memory_and_those_taken_out_are_not_missing() {
        let Some(file) = memory_backed_file(256 << 20) else { return };
        let fresh = FreshPages::new(&file).unwrap();
        let piece = bytes(5, 256 << 10);
        let (all, mut most) = ((96_u64 << 20) / u64_of(piece.len()), 0);
        for at in (0..all).map(|n| n * u64_of(piece.len())) {
            if fresh.put(&file, at, &piece) == 0 {
                file.write_all_at(&piece, at).unwrap();
            }
            most = most.max(mapped_kib());
        }
        // Other tests of this process put pages at the same time, but few.
        assert!((1024..12 << 10).contains(&most), "{most} KiB");
        assert!((0..all).all(|n| read(&file, n * u64_of(piece.len()), u64_of(piece.len())) == piece));
        assert_eq!(fresh.put(&file, 16 << 20, &bytes(6, 64 << 10)), 0, "the pages are there");
        assert!(read(&file, 16 << 20, u64_of(piece.len())) == piece);
    }

    #[test]
    fn windows_make_room_for_each_other_over_an_exabyte() {
        let Some(file) = memory_backed_file(1 << 60) else { return };
        let fresh = FreshPages::new(&file).unwrap();
        let places: Vec<u64> = (0..100).map(|n| (n * n * n) << 40).chain([(1 << 60) - 8 * PAGE]).collect();
        let data = |at: u64| bytes((at >> 40).to_le_bytes()[0], 8 * PAGE);
        for at in &places {
            assert_eq!(put_mapped(&fresh, &file, *at, &data(*at)), 8 * PAGE, "at {at}");
        }
        assert!(places.iter().all(|at| read(&file, *at, 8 * PAGE) == data(*at)));
        assert!(fresh.slots.iter().filter(|slot| slot.window.read().is_some()).count() > 8);
    }

    #[test]
    fn a_write_over_the_border_of_windows_fills_both() {
        let Some(file) = memory_backed_file(1 << 30) else { return };
        let fresh = FreshPages::new(&file).unwrap();
        assert_eq!(put_mapped(&fresh, &file, 0, &bytes(1, 4 * PAGE)), 4 * PAGE);
        assert_eq!(put_mapped(&fresh, &file, WINDOW_LEN, &bytes(1, 4 * PAGE)), 4 * PAGE);
        let at = 2 * WINDOW_LEN - 8 * PAGE;
        let data = bytes(2, 16 * PAGE);
        // The second window is not mapped yet: what is put stops at the border.
        assert_eq!(u64_of(fresh.put(&file, at, &data)), 8 * PAGE);
        assert_eq!(put_mapped(&fresh, &file, 2 * WINDOW_LEN, &data[index_of(8 * PAGE)..]), 8 * PAGE);
        assert!(read(&file, at, 16 * PAGE) == data);
        let at = WINDOW_LEN - 8 * PAGE;
        punch(&file, at, 16 * PAGE);
        assert_eq!(u64_of(fresh.put(&file, at, &data)), 16 * PAGE);
        assert!(read(&file, at, 16 * PAGE) == data);
    }

    #[test]
    fn a_file_on_a_disk_takes_none() {
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let disk = rustix::fs::fstatfs(&file).is_ok_and(|fs| crate::os::magic_of(&fs) != TMPFS);
        assert!(!disk || FreshPages::new(&file).is_none());
    }
}
