//! Reads an archive at any offset, with a window for the usual case of small files one after the other.

use super::header::{BLOCK_LEN, Header};
use super::offset;
use crate::error::{Error, ShownPath};
use hectare_device::os::FileExt;
use hectare_units::{Bytes, index_of};
use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::ops::Range;

/// Holds the headers of some hundred small files; larger files are skipped, not read.
const WINDOW_LEN: u64 = 64 << 10;
/// What a corrupt length may make us allocate before bytes have been seen.
const PIECE_LEN: usize = 1 << 20;

pub(super) struct Cursor {
    file: File,
    /// The bytes of the file that are the archive; all offsets are the file's.
    range: Range<u64>,
    shown: ShownPath,
    window: Vec<u8>,
    window_at: u64,
}

impl Cursor {
    pub(super) fn new(file: File, range: Range<u64>, shown: ShownPath) -> Self {
        Self { file, range, shown, window: Vec::new(), window_at: 0 }
    }

    /// Where the archive starts.
    pub(super) const fn start(&self) -> u64 {
        self.range.start
    }

    /// Where the archive ends.
    pub(super) const fn end(&self) -> u64 {
        self.range.end
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.range.start == self.range.end
    }

    /// The file, unless the archive is only a part of it.
    pub(super) fn whole_file(&self) -> Option<File> {
        let len = self.file.metadata().ok()?.len();
        if self.range == (0..len) { self.file.try_clone().ok() } else { None }
    }

    /// An error at offset `at`.
    pub(super) fn fault(&self, at: u64, reason: impl Into<Cow<'static, str>>) -> Error {
        Error::Archive {
            archive: self.shown.clone(),
            at: Bytes::new(at - self.range.start),
            reason: reason.into(),
        }
    }

    /// Checks that the archive reaches up to `end`.
    pub(super) fn require(&self, end: u64, inside: &'static str) -> Result<(), Error> {
        if end <= self.range.end { Ok(()) } else { Err(self.truncated(inside)) }
    }

    /// The error for an archive that ends too early.
    pub(super) fn truncated(&self, inside: &'static str) -> Error {
        Error::Truncated {
            archive: self.shown.clone(),
            at: Bytes::new(self.range.end - self.range.start),
            inside: inside.into(),
        }
    }

    /// Whether the archive ends just there.
    pub(super) fn is_at_end(&self, at: u64) -> bool {
        at == self.range.end
    }

    /// The header at `at`.
    pub(super) fn header(&mut self, at: u64) -> Result<Header, Error> {
        self.block(at, "a header").map(|block| Header::new(&block))
    }

    /// The block at `at`.
    pub(super) fn block(&mut self, at: u64, inside: &'static str) -> Result<[u8; 512], Error> {
        self.require(at.saturating_add(BLOCK_LEN), inside)?;
        let inside_window = at >= self.window_at
            && at + BLOCK_LEN <= self.window_at.saturating_add(offset(self.window.len()));
        if !inside_window {
            self.window.resize(index_of(WINDOW_LEN.min(self.range.end - at)), 0);
            self.window_at = at;
            let read = self.file.read_exact_at(&mut self.window, at);
            if let Err(cause) = read {
                self.window.clear();
                return Err(self.unreadable(cause));
            }
        }
        let start = index_of(at - self.window_at);
        let mut block = [0u8; 512];
        block.copy_from_slice(&self.window[start..start + 512]);
        Ok(block)
    }

    /// `len` bytes from `at`; the caller has bounded `len`.
    pub(super) fn bytes(&mut self, at: u64, len: u64, inside: &'static str) -> Result<Vec<u8>, Error> {
        self.require(at.saturating_add(len), inside)?;
        let len = index_of(len);
        let mut bytes = Vec::new();
        while bytes.len() < len {
            let done = bytes.len();
            bytes.resize(len.min(done + PIECE_LEN), 0);
            let read = self.file.read_exact_at(&mut bytes[done..], at + offset(done));
            read.map_err(|cause| self.unreadable(cause))?;
        }
        Ok(bytes)
    }

    fn unreadable(&self, cause: io::Error) -> Error {
        match cause.kind() {
            io::ErrorKind::UnexpectedEof => {
                Error::Changed { path: self.shown.clone(), what: "it became shorter" }
            }
            _ => Error::io(self.shown.clone(), "read", cause),
        }
    }
}
