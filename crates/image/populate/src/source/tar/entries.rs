//! The entries of an archive, one after the other, each with all that its headers say.
//!
//! Extension headers (pax records, GNU long names) are collected and given with the entry that they are for.
//! The user of an entry says where it ends ([`Entries::skip_to`]), because only the user knows what kinds of
//! entries have data.
//!
//! Hazard: a global extension header counts for every entry after it, so it is short and shared.
//!
//! What it is not: the meaning of entries. See [`tar`](super).

use super::cursor::Cursor;
use super::header::{BLOCK_LEN, Header};
use super::pax::Pax;
use crate::error::Error;
use std::borrow::Cow;

/// The longest extension (pax records, GNU long name) that is taken into memory. Sparse maps of a million
/// segments stay below it.
const EXTENSION_MAX: u64 = 64 << 20;
/// How far behind an end mark another archive is looked for; what writes archives fills up to 10 KiB, or to a
/// tape's record of at most 1 MiB.
const RECORD_MAX: u64 = 1 << 20;

/// One entry.
pub(super) struct Entry {
    /// Where its header lies; its data follows.
    pub(super) header_at: u64,
    pub(super) header: Header,
    /// Its extended records, global ones included.
    pub(super) pax: Pax,
    /// Its name, from an extension or its own header.
    pub(super) name: Vec<u8>,
    /// What it links to.
    pub(super) target: Vec<u8>,
}

/// Reads the entries of an archive.
pub(super) struct Entries {
    pub(super) cursor: Cursor,
    /// Where the next header lies.
    at: u64,
    global: Pax,
    local: Option<Pax>,
    long_name: Option<Vec<u8>>,
    long_target: Option<Vec<u8>>,
    count: u64,
    has_end_mark: bool,
    /// Whether there was an extended header of pax so far.
    is_pax: bool,
    has_more: bool,
}

impl Entries {
    pub(super) fn new(cursor: Cursor) -> Self {
        Self {
            at: cursor.start(),
            cursor,
            global: Pax::default(),
            local: None,
            long_name: None,
            long_target: None,
            count: 0,
            has_end_mark: false,
            is_pax: false,
            has_more: false,
        }
    }

    /// Goes back to the first entry.
    pub(super) fn restart(&mut self) {
        (self.at, self.count) = (self.cursor.start(), 0);
        (self.has_end_mark, self.is_pax, self.has_more) = (false, false, false);
        self.global = Pax::default();
    }

    /// Entries read so far, of whatever kind.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// Whether the end was marked, as it must be. Known once there are no more entries.
    pub(super) const fn has_end_mark(&self) -> bool {
        self.has_end_mark
    }

    /// Whether bytes that are not zero follow the end mark. Known once there are no more entries.
    pub(super) const fn has_more(&self) -> bool {
        self.has_more
    }

    /// How many bytes of data an entry has in the archive. A hard link of pax may have those of its file again;
    /// before pax it had their number, and no data.
    pub(super) fn stored(&self, entry: &Entry) -> Result<u64, Error> {
        let has_data = match entry.header.type_flag() {
            0 | b'0' | b'7' => !entry.name.ends_with(b"/"),
            b'1' => self.is_pax,
            b'D' | b'S' | b'V' => true,
            _ => false,
        };
        match entry.pax.size {
            _ if !has_data => Ok(0),
            Some(size) => Ok(size),
            None => entry.header.size().map_err(|reason| self.cursor.fault(entry.header_at, reason)),
        }
    }

    /// The next entry; its user skips its data. `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, Error> {
        while !self.cursor.is_at_end(self.at) {
            let header = self.cursor.header(self.at)?;
            if header.is_end() {
                self.has_end_mark = true;
                self.refuse_unfinished()?;
                return self.refuse_another().map(|()| None);
            }
            if !header.checksum_matches() {
                return Err(self.fault("the checksum of a header is wrong"));
            }
            self.is_pax |= matches!(header.type_flag(), b'x' | b'X' | b'g');
            match header.type_flag() {
                b'x' | b'X' => {
                    let records = self.extension(&header)?;
                    let mut local = self.global.clone();
                    local.read(&records).map_err(|reason| self.fault(reason))?;
                    self.local = Some(local);
                }
                b'g' => {
                    let records = self.extension(&header)?;
                    let mut global = std::mem::take(&mut self.global);
                    global.read(&records).map_err(|reason| self.fault(reason))?;
                    global.check_global().map_err(|reason| self.fault(reason))?;
                    self.global = global;
                }
                b'L' => self.long_name = Some(self.long_string(&header)?),
                b'K' => self.long_target = Some(self.long_string(&header)?),
                _ => return Ok(Some(self.entry(header))),
            }
        }
        self.refuse_unfinished().map(|()| None)
    }

    fn entry(&mut self, header: Header) -> Entry {
        let mut pax = self.local.take().unwrap_or_else(|| self.global.clone());
        let (long_name, long_target) = (self.long_name.take(), self.long_target.take());
        let name = pax.sparse.name.take().or(pax.path.take()).or(long_name).unwrap_or_else(|| header.name());
        let target = pax.linkpath.take().or(long_target).unwrap_or_else(|| header.link_name());
        self.count += 1;
        let header_at = self.at;
        self.at += BLOCK_LEN;
        Entry { header_at, header, pax, name, target }
    }

    /// The current entry's data ends at `end`.
    pub(super) fn skip_to(&mut self, end: u64) -> Result<(), Error> {
        self.cursor.require(end, "the data of a file")?;
        // Headers lie at whole blocks from the start of the archive on.
        let start = self.cursor.start();
        let next = start + (end - start).next_multiple_of(BLOCK_LEN);
        // Nothing is lost where just the padding of the last file is missing, as `umoci insert` leaves it out.
        self.at = if self.cursor.require(next, "").is_ok() { next } else { self.cursor.end() };
        Ok(())
    }

    /// An error at the next header.
    pub(super) fn fault(&self, reason: impl Into<Cow<'static, str>>) -> Error {
        self.cursor.fault(self.at, reason)
    }

    /// Refuses another archive behind the end mark, and notes whether there is anything else.
    fn refuse_another(&mut self) -> Result<(), Error> {
        let mut at = self.at + BLOCK_LEN;
        while at < self.at.saturating_add(RECORD_MAX) && self.cursor.require(at + BLOCK_LEN, "").is_ok() {
            let header = self.cursor.header(at)?;
            if !header.is_end() && header.checksum_matches() {
                let reason = "another archive follows: give each as a source of its own";
                return Err(self.cursor.fault(at, reason));
            }
            self.has_more |= !header.is_end();
            at += BLOCK_LEN;
        }
        Ok(())
    }

    /// Refuses to end after an extension header, whose entry must follow.
    fn refuse_unfinished(&self) -> Result<(), Error> {
        match self.local.is_some() || self.long_name.is_some() || self.long_target.is_some() {
            true => Err(self.cursor.truncated("an entry, of which only the extension header is there")),
            false => Ok(()),
        }
    }

    /// The data of an extension header; moves on to the next header.
    fn extension(&mut self, header: &Header) -> Result<Vec<u8>, Error> {
        let size = header.size().map_err(|reason| self.fault(reason))?;
        if size > EXTENSION_MAX {
            return Err(self.fault("an extension header is longer than 64 MiB"));
        }
        let bytes = self.cursor.bytes(self.at + BLOCK_LEN, size, "an extension header")?;
        self.at += BLOCK_LEN + size.next_multiple_of(BLOCK_LEN);
        Ok(bytes)
    }

    fn long_string(&mut self, header: &Header) -> Result<Vec<u8>, Error> {
        let mut bytes = self.extension(header)?;
        if let Some(nul) = bytes.iter().position(|byte| *byte == 0) {
            bytes.truncate(nul);
        }
        Ok(bytes)
    }
}
