//! I/O past the host's page cache (`O_DIRECT`), for requests of any alignment.
//!
//! The kernel accepts a direct request only if its offset, its length and the memory are aligned. Others go
//! through an aligned buffer; a write that covers a unit in part reads the unit first and writes it
//! whole.
//!
//! Hazard: such a read-modify-write races with every concurrent change of the rest of the unit, and would
//! undo it. So partial writes exclude all other changes of the device for as long as they take, while
//! aligned ones (all that a file system does in practice) only share a lock.

use super::FileKind;
use crate::scratch::{SCRATCH_ALIGN, SCRATCH_LEN, with_scratch};
use crate::{Error, Operation, Reason, Result, Span};
use hectare_units::{Bytes, index_of, u64_of, usize_of};
use parking_lot::{RwLock, RwLockReadGuard};
use rustix::fs::{AtFlags, StatxFlags};
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;

/// The assumed unit where the kernel doesn't report it (before Linux 6.1): no disk has larger sectors.
const UNIT_DEFAULT: u32 = 4096;

/// The rules of direct I/O on one file.
pub(super) struct Direct {
    /// Offsets and lengths must be multiples of this; a power of two.
    unit: u32,
    /// Addresses in memory must be multiples of this; a power of two.
    memory: usize,
    /// Shared by changes of whole units, exclusive for changes of parts.
    partial: RwLock<()>,
}

impl Direct {
    /// Asks the kernel for the rules.
    pub(super) fn new(file: BorrowedFd<'_>, kind: FileKind) -> Self {
        let sector = match kind {
            FileKind::Block(topology) => topology.logical_sector,
            FileKind::Regular => UNIT_DEFAULT,
        };
        let told = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
            .ok()
            .filter(|stat| stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0)
            .map(|stat| (stat.stx_dio_offset_align, stat.stx_dio_mem_align));
        let usable = |n: &u32| n.is_power_of_two() && usize_of(*n) <= SCRATCH_ALIGN;
        let unit = told.map(|(unit, _)| unit).filter(usable).unwrap_or(sector);
        let memory = told.map(|(_, memory)| memory).filter(usable).map_or(SCRATCH_ALIGN, usize_of);
        Self { unit, memory, partial: RwLock::new(()) }
    }

    /// What offsets and lengths must be multiples of.
    pub(super) fn unit(&self) -> u32 {
        self.unit
    }

    /// Refuses a length whose last bytes could never be written directly.
    pub(super) fn check_len(&self, name: &str, operation: Operation, len: Bytes) -> Result<()> {
        if len.get().is_multiple_of(u64::from(self.unit)) {
            return Ok(());
        }
        Err(Error::new(name, operation, None, Reason::Unaligned(self.unit)))
    }

    /// Keeps partial writes out while whole units are changed.
    pub(super) fn share(&self) -> RwLockReadGuard<'_, ()> {
        self.partial.read()
    }

    fn units(&self, at: u64, len: usize) -> bool {
        let mask = u64::from(self.unit) - 1;
        (at | u64_of(len)) & mask == 0
    }

    /// Whether the kernel takes the parts as they are.
    pub(super) fn takes(&self, span: Span, parts: &[IoSlice<'_>]) -> bool {
        let fits = |part: &IoSlice<'_>| self.units(0, part.len()) && self.in_memory(part);
        self.units(span.at.get(), 0) && parts.iter().all(fits)
    }

    /// Whether the kernel takes the parts copied into one scratch buffer.
    pub(super) fn takes_gathered(&self, span: Span) -> bool {
        let len = span.len.get();
        len <= u64_of(SCRATCH_LEN) && self.units(span.at.get(), index_of(len))
    }

    fn in_memory(&self, buf: &[u8]) -> bool {
        buf.as_ptr().align_offset(self.memory) == 0
    }

    /// The pieces of a range that fit a scratch buffer, each with the whole units around it.
    fn windows(&self, at: u64, len: usize) -> impl Iterator<Item = (Span, Span)> {
        let unit = u64::from(self.unit);
        Span::new(Bytes::new(at), Bytes::of(len)).pieces(u64_of(SCRATCH_LEN)).map(move |piece| {
            let start = piece.at.get() / unit * unit;
            let end = (piece.at.get() + piece.len.get()).next_multiple_of(unit);
            (piece, Span::new(Bytes::new(start), Bytes::new(end - start)))
        })
    }

    /// Reads a range that lies inside the file.
    pub(super) fn read(&self, file: &File, at: u64, buf: &mut [u8]) -> io::Result<()> {
        if self.units(at, buf.len()) && self.in_memory(buf) {
            return file.read_exact_at(buf, at);
        }
        with_scratch(|scratch| {
            let mut rest = buf;
            for (piece, window) in self.windows(at, rest.len()) {
                let whole = &mut scratch[..index_of(window.len.get())];
                file.read_exact_at(whole, window.at.get())?;
                let (target, after) = rest.split_at_mut(index_of(piece.len.get()));
                let skip = index_of(piece.at.get() - window.at.get());
                target.copy_from_slice(&whole[skip..skip + target.len()]);
                rest = after;
            }
            Ok(())
        })
    }

    /// Writes a range that lies inside the file.
    pub(super) fn write(&self, file: &File, at: u64, data: &[u8]) -> io::Result<()> {
        if !self.units(at, data.len()) {
            return self.write_partial(file, at, data);
        }
        let _shared = self.share();
        if self.in_memory(data) {
            return file.write_all_at(data, at);
        }
        with_scratch(|scratch| {
            let mut at = at;
            for part in data.chunks(SCRATCH_LEN) {
                scratch[..part.len()].copy_from_slice(part);
                file.write_all_at(&scratch[..part.len()], at)?;
                at += u64_of(part.len());
            }
            Ok(())
        })
    }

    fn write_partial(&self, file: &File, at: u64, data: &[u8]) -> io::Result<()> {
        let _exclusive = self.partial.write();
        let unit = usize_of(self.unit);
        with_scratch(|scratch| {
            let mut rest = data;
            for (piece, window) in self.windows(at, data.len()) {
                let whole = &mut scratch[..index_of(window.len.get())];
                let skip = index_of(piece.at.get() - window.at.get());
                let (source, after) = rest.split_at(index_of(piece.len.get()));
                let last = whole.len() - unit;
                if skip > 0 {
                    file.read_exact_at(&mut whole[..unit], window.at.get())?;
                }
                if skip + source.len() < whole.len() && (last > 0 || skip == 0) {
                    file.read_exact_at(&mut whole[last..], window.at.get() + u64_of(last))?;
                }
                whole[skip..skip + source.len()].copy_from_slice(source);
                file.write_all_at(whole, window.at.get())?;
                rest = after;
            }
            Ok(())
        })
    }

    /// Writes several buffers to one place, through one buffer, so that their borders need not be aligned.
    pub(super) fn write_gathered(&self, file: &File, at: u64, parts: &[IoSlice<'_>]) -> io::Result<()> {
        with_scratch(|scratch| {
            let (mut at, mut filled) = (at, 0);
            for part in parts {
                let mut rest: &[u8] = part;
                while !rest.is_empty() {
                    let (now, after) = rest.split_at(rest.len().min(scratch.len() - filled));
                    scratch[filled..filled + now.len()].copy_from_slice(now);
                    filled += now.len();
                    rest = after;
                    if filled == scratch.len() {
                        self.write(file, at, scratch)?;
                        at += u64_of(filled);
                        filled = 0;
                    }
                }
            }
            self.write(file, at, &scratch[..filled])
        })
    }
}
