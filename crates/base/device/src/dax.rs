//! An image on memory-backed storage, mapped: reading and writing is one copy, without a system call.
//!
//! The file lies on tmpfs, or on a file system that maps its storage directly (`dax`), where the mapping *is*
//! the storage. Each page has a lock, shared with few others (`stripes`), so that overlapping writes exclude
//! each other and a reader sees each 4 KiB of one write or of another, never of both; within an aligned MiB
//! that even holds for whole operations.
//!
//! A page is touched only if it is known to exist; everything else uses the slow path, through the file.
//! Windows of 2 MiB are tracked: a window in which the file has no hole (`survey`) is made *ready* at its
//! first use. One with holes becomes ready when much was written to it, by giving it all its pages; so a
//! large sparse image stays sparse where little is written.
//!
//! Hazards:
//! - *Signals.* Touching a page that can't be allocated or read kills the program (SIGBUS). A host without
//!   memory can't do that to ready windows, whose pages exist; all others get memory by system calls that
//!   can fail. Reading a hole would fill it, so that is not done either. A program that shortens the file or
//!   punches holes into it would, and is kept out by the lock all users of an image take (see
//!   [`FileOptions`]): it must be opened exclusively. Failing memory, or a swap that can't be read, kills,
//!   as it does any program.
//! - *Other writers.* Writes of other programs that ignore the lock are races, with undefined content.
//! - *Durability.* On tmpfs there is none, and flushing does nothing. On `dax` storage a flush is the file's.
//! - *Address space.* A file too long to be mapped uses the slow path.
//!
//! [`FileOptions`]: crate::FileOptions

mod mapping;
mod stripes;
mod survey;

use crate::device::{check_change, check_range, total_len};
use crate::{Device, Error, FileDevice, Operation, Reason, Result, Span};
use hectare_units::{Bytes, index_of};
use mapping::{Mapping, WINDOW_LEN};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, FallocateFlags, StatxAttributes, StatxFlags};
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stripes::{PAGE_LEN, PIECE_LEN, Stripes};
use survey::Survey;

/// The number of tmpfs (statfs(2), `linux/magic.h`).
const TMPFS: u32 = 0x0102_1994;

/// Of a window nothing is known yet.
const UNKNOWN: u8 = 0;
/// It has, or had, holes. Writes to it count up from here.
const SPARSE: u8 = 1;
/// Enough was written to it that it may be given all its pages.
const MUCH_WRITTEN: u8 = 16;
/// It has no holes.
const WHOLE: u8 = 254;
/// It has no holes, and its pages are in the page tables.
const READY: u8 = 255;

/// How much is zeroed or discarded at a time, while the whole device is locked: enough that a
/// sparse terabyte takes a few thousand calls, and little enough that filled memory is freed in some ten
/// milliseconds.
const PUNCH_LEN: u64 = 128 << 20;

/// A regular file that is mapped.
pub struct DaxDevice {
    file: FileDevice,
    storage: Storage,
    stripes: Stripes,
    /// Held while pages are looked for, made or taken out, and that is noted.
    survey: Mutex<Survey>,
}

/// What the file lies on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Storage {
    /// Memory of the host, and gone with it.
    Memory,
    /// Storage that is mapped directly.
    Direct,
    /// The host's page cache, before some disk.
    Cached,
}

impl DaxDevice {
    /// Maps an open file, for reading and writing as it is. The file should be open exclusively.
    ///
    /// # Errors
    /// If it does not lie on memory-backed storage, is no regular file, or is open for direct I/O.
    pub fn new(file: FileDevice) -> Result<Self> {
        let storage = storage_of(&file)?;
        if storage == Storage::Cached {
            let reason =
                "it does not lie on memory-backed storage (tmpfs, or a file system mounted with dax)";
            return Err(Error::new(file.name(), Operation::Open, None, Reason::Unsupported(reason)));
        }
        Self::map(file, storage)
    }

    /// Maps an open file wherever it lies: for comparisons, and for tests where there is nothing better. A
    /// disk that fails, or that is full, may then end the program.
    ///
    /// # Errors
    /// If it is no regular file, or is open for direct I/O.
    pub fn new_anywhere(file: FileDevice) -> Result<Self> {
        let storage = storage_of(&file)?;
        Self::map(file, storage)
    }

    fn map(file: FileDevice, storage: Storage) -> Result<Self> {
        let refuse = |why| Err(Error::new(file.name(), Operation::Open, None, Reason::Unsupported(why)));
        if file.is_block_device() {
            return refuse("a block device is not mapped, only a file is");
        }
        if file.is_direct() {
            return refuse("a mapped file is not to be open for direct I/O");
        }
        let stripes = Stripes::new(mapping_of(&file));
        Ok(Self { file, storage, stripes, survey: Mutex::default() })
    }

    /// The file below.
    #[must_use]
    pub fn file(&self) -> &FileDevice {
        &self.file
    }

    /// Whether the pages of a piece may be touched; `write` if that is about to change them. The caller holds
    /// their stripes, one of which gave it the mapping.
    fn is_ready(&self, mapping: &Mapping, piece: Span, write: bool) -> bool {
        let window = mapping.window_at(piece);
        window.is_some_and(|state| state.load(Ordering::Acquire) == READY || self.look(mapping, piece, write))
    }

    /// Finds out whether a window is ready, or makes it so, if it is time for that.
    #[cold]
    fn look(&self, mapping: &Mapping, piece: Span, write: bool) -> bool {
        let Some(state) = mapping.window_at(piece) else { return false };
        let window = mapping.window_span(piece.at);
        if state.load(Ordering::Relaxed) == UNKNOWN {
            self.survey.lock().advance(self.file.file(), mapping, window.at.get() + window.len.get());
        }
        let seen = state.load(Ordering::Relaxed);
        if (SPARSE..MUCH_WRITTEN).contains(&seen) {
            let counted = if write { (seen + weight(piece)).min(MUCH_WRITTEN) } else { seen };
            // A concurrent thread counts too, or has found out more.
            let _ = state.compare_exchange(seen, counted, Ordering::Relaxed, Ordering::Relaxed);
            if counted < MUCH_WRITTEN {
                return false;
            }
        }
        let _survey = self.survey.lock();
        let ready = match state.load(Ordering::Relaxed) {
            READY => return true,
            WHOLE => self.populate(mapping, window),
            MUCH_WRITTEN => self.fill(window) && self.populate(mapping, window),
            _ => false,
        };
        state.store(if ready { READY } else { SPARSE }, Ordering::Release);
        ready
    }

    /// Maps the pages of a window that has them; false if that fails.
    fn populate(&self, mapping: &Mapping, window: Span) -> bool {
        // Cached pages would all be read for that and, taken to be changed, written again.
        self.storage == Storage::Cached || mapping.populate(window)
    }

    /// Gives the file all pages of a range; false if there is no room for them.
    fn fill(&self, span: Span) -> bool {
        let (mode, at, len) = (FallocateFlags::KEEP_SIZE, span.at.get(), span.len.get());
        rustix::io::retry_on_intr(|| rustix::fs::fallocate(self.file.file(), mode, at, len)).is_ok()
    }

    fn write_piece(&self, piece: Span, data: &[u8]) -> Result<()> {
        let held = self.stripes.exclude(piece);
        if self.is_ready(held.mapping(), piece, true) {
            held.copy_in(piece.at, data);
            return Ok(());
        }
        self.file.write_at(piece.at, data)
    }

    /// Does something through the file that may take pages out of it, in steps, each alone with its range.
    fn punch(&self, span: Span, work: impl Fn(&FileDevice, Span) -> Result<()>) -> Result<()> {
        for step in span.pieces(PUNCH_LEN) {
            let held = self.stripes.exclude(step);
            let _still = self.survey.lock();
            let result = work(&self.file, step);
            held.mapping().windows_in(step).for_each(|state| state.store(SPARSE, Ordering::Release));
            result?;
        }
        Ok(())
    }
}

/// How much a write counts towards [`MUCH_WRITTEN`]: something, and enough for what fills the window.
fn weight(piece: Span) -> u8 {
    let filled = piece.len.get() * u64::from(MUCH_WRITTEN) / WINDOW_LEN;
    u8::try_from(filled + 1).unwrap_or(MUCH_WRITTEN).min(MUCH_WRITTEN)
}

/// Finds out what a file lies on.
fn storage_of(file: &FileDevice) -> Result<Storage> {
    let fail = |errno| Error::errno(file.name(), Operation::Open, None, errno);
    let system = rustix::fs::fstatfs(file.file()).map_err(fail)?;
    if crate::os::magic_of(&system) == TMPFS {
        return Ok(Storage::Memory);
    }
    let stat = rustix::fs::statx(file.file(), "", AtFlags::EMPTY_PATH, StatxFlags::empty());
    let direct = stat.is_ok_and(|stat| stat.stx_attributes.contains(StatxAttributes::DAX));
    Ok(if direct { Storage::Direct } else { Storage::Cached })
}

fn mapping_of(file: &FileDevice) -> Arc<Mapping> {
    Arc::new(Mapping::new(file.file(), file.len(), !file.is_read_only()))
}

impl Device for DaxDevice {
    fn name(&self) -> &str {
        self.file.name()
    }

    fn len(&self) -> Bytes {
        self.file.len()
    }

    fn read_at(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        let span = Span::new(at, Bytes::of(buf.len()));
        check_range(self, Operation::Read, span)?;
        let mut rest = buf;
        for piece in span.pieces(PIECE_LEN) {
            let (target, after) = rest.split_at_mut(index_of(piece.len.get()));
            let held = self.stripes.share(piece);
            if self.is_ready(held.mapping(), piece, false) {
                held.copy_out(piece.at, target);
            } else {
                self.file.read_at(piece.at, target)?;
            }
            rest = after;
        }
        Ok(())
    }

    fn write_at(&self, at: Bytes, data: &[u8]) -> Result<()> {
        let span = Span::new(at, Bytes::of(data.len()));
        check_change(self, Operation::Write, span)?;
        let mut rest = data;
        for piece in span.pieces(PIECE_LEN) {
            let (source, after) = rest.split_at(index_of(piece.len.get()));
            self.write_piece(piece, source)?;
            rest = after;
        }
        Ok(())
    }

    fn write_all_at(&self, at: Bytes, parts: &[IoSlice<'_>]) -> Result<()> {
        let span = Span::new(at, total_len(parts));
        check_change(self, Operation::Write, span)?;
        let (mut next, mut skip) = (0, 0);
        for piece in span.pieces(PIECE_LEN) {
            let held = self.stripes.exclude(piece);
            let ready = self.is_ready(held.mapping(), piece, true);
            let mut done = Bytes::ZERO;
            while done < piece.len {
                let part = &parts[next][skip..];
                let now = &part[..part.len().min(index_of((piece.len - done).get()))];
                if ready {
                    held.copy_in(piece.at + done, now);
                } else {
                    self.file.write_at(piece.at + done, now)?;
                }
                done += Bytes::of(now.len());
                (next, skip) = if now.len() == part.len() { (next + 1, 0) } else { (next, skip + now.len()) };
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        if self.storage == Storage::Memory { Ok(()) } else { self.file.flush() }
    }

    fn zero(&self, at: Bytes, len: Bytes) -> Result<()> {
        let span = Span::new(at, len);
        check_change(self, Operation::Zero, span)?;
        let zeros = [0; 4096];
        let ragged = |span: Span| {
            span.pieces(PAGE_LEN)
                .try_for_each(|piece| self.write_piece(piece, &zeros[..index_of(piece.len.get())]))
        };
        let Some(inner) = span.inner_aligned(PAGE_LEN) else { return ragged(span) };
        let head = inner.at - at;
        ragged(Span::new(at, head))?;
        self.punch(inner, |file, step| file.zero(step.at, step.len))?;
        ragged(Span::new(inner.at + inner.len, len - head - inner.len))
    }

    fn discard(&self, at: Bytes, len: Bytes) -> Result<()> {
        let span = Span::new(at, len);
        check_change(self, Operation::Discard, span)?;
        let Some(inner) = span.inner_aligned(PAGE_LEN) else { return Ok(()) };
        self.punch(inner, |file, step| file.discard(step.at, step.len))
    }

    fn resize(&self, len: Bytes) -> Result<()> {
        let mut held = self.stripes.exclude_all();
        self.file.resize(len)?;
        *self.survey.lock() = Survey::default();
        held.replace(&mapping_of(&self.file));
        Ok(())
    }

    fn is_zeroed(&self) -> bool {
        self.file.is_zeroed()
    }

    fn is_read_only(&self) -> bool {
        self.file.is_read_only()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileOptions, Overwrite};

    #[test]
    fn a_window_is_ready_once_it_was_written_from_front_to_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let file =
            FileOptions::new().write(true).create(&path, Bytes::new(2 * WINDOW_LEN), Overwrite::Refuse);
        let device = DaxDevice::new_anywhere(file.unwrap()).unwrap();
        let is_ready = |at: u64| {
            let piece = Span::new(Bytes::new(at), Bytes::new(4096));
            let held = device.stripes.share(piece);
            held.mapping().window_at(piece).unwrap().load(Ordering::Relaxed) == READY
        };
        let half = vec![7; index_of(WINDOW_LEN / 2)];
        for at in [0, WINDOW_LEN / 2] {
            assert!(!is_ready(at), "half of it is a hole");
            device.write_at(Bytes::new(at), &half).unwrap();
        }
        assert!(is_ready(0));
        device.write_at(Bytes::new(WINDOW_LEN), &half[..4096]).unwrap();
        assert!(!is_ready(WINDOW_LEN), "a little is written to a window of holes");
    }
}
