//! Reads what a directory holds, whatever it looks like.
//!
//! Records that tile a block are believed. Where one is broken, its name is kept if that can be one, and
//! reading goes on at the first place from which sound records lead to the end of the block. Where only its name
//! is too long for it, the name is cut, and reading goes on behind the record. Index blocks
//! need no special treatment: to a reader of records they are empty.

use crate::directories::hashed_directory::{hash_of, is_hashed};
use crate::error::Error;
use crate::know::map::Map;
use crate::know::slot::Slot;
use crate::know::stored::Stored;
use crate::know::work::Work;
use hectare_check::{Record, records};
use hectare_ext4::inode::InodeFlags;
use hectare_units::{BlockNr, InodeNr};

/// Bytes before a record's name.
const HEADER: usize = 8;
/// Where `..` lies, behind `.`; nothing else can lie there.
const SECOND: usize = 12;
/// Bytes of the record that holds a block's checksum.
const TAIL: usize = 12;

/// What a directory holds.
#[derive(Default)]
pub(crate) struct Content {
    pub(crate) entries: Vec<Stored>,
    /// The inode that `.` names; 0 if it is not there.
    pub(crate) dot: u32,
    pub(crate) dot_dot: u32,
    /// The first thing that is wrong.
    pub(crate) broken: Option<String>,
}

impl Content {
    fn blame(&mut self, reason: impl Into<String>) {
        self.broken.get_or_insert_with(|| reason.into());
    }
}

impl Work<'_> {
    /// Reads a directory.
    pub(crate) fn read_directory(&self, slot: &Slot) -> Result<Content, Error> {
        if slot.has(InodeFlags::INLINE_DATA) {
            return Ok(self.read_inline(slot));
        }
        let map = self.read_map(slot)?;
        let mut content = Content::default();
        self.judge_map(slot, &map, &mut content);
        let encrypted = slot.has(InodeFlags::ENCRYPT);
        for extent in &map.extents {
            for i in 0..extent.len {
                let at = u64::from(extent.logical.get()) + u64::from(i);
                let block = self.block(BlockNr::new(extent.physical.get() + u64::from(i)))?;
                self.read_records(&block, at == 0, (encrypted, is_hashed(slot)), &mut content)?;
            }
        }
        if content.dot != slot.nr.get() {
            content.blame("its . is missing or leads elsewhere");
        }
        Ok(content)
    }

    /// The entries of each block of a directory, with its place in the directory and on the volume; content in
    /// the inode is in block 0.
    pub(crate) fn entries_by_block(&self, slot: &Slot) -> Result<Vec<(u64, u64, Vec<Stored>)>, Error> {
        if slot.has(InodeFlags::INLINE_DATA) {
            return Ok(vec![(0, 0, self.read_inline(slot).entries)]);
        }
        let kind = (slot.has(InodeFlags::ENCRYPT), is_hashed(slot));
        let mut all = Vec::new();
        for extent in &self.read_map(slot)?.extents {
            for i in (0..extent.len).map(u64::from) {
                let (logical, physical) = (u64::from(extent.logical.get()) + i, extent.physical.get() + i);
                let mut content = Content::default();
                self.read_records(&self.block(BlockNr::new(physical))?, logical == 0, kind, &mut content)?;
                all.push((logical, physical, content.entries));
            }
        }
        Ok(all)
    }

    /// A directory has whole, written blocks and no holes.
    fn judge_map(&self, slot: &Slot, map: &Map, content: &mut Content) {
        let shift = self.geometry().block_size.shift();
        let (size, end) = (slot.view().size(), map.end());
        let spare = u64::from(self.sb.raw().s_prealloc_dir_blocks);
        let blocks = size >> shift;
        if map.blocks() != end || map.extents.iter().any(|extent| extent.unwritten) {
            content.blame("it has holes or unwritten blocks");
        } else if size == 0 || size & ((1 << shift) - 1) != 0 || blocks > end || end - blocks > spare {
            content.blame(format!("it has {size} bytes and {end} blocks"));
        }
    }

    fn read_records(
        &self,
        block: &[u8],
        first: bool,
        (encrypted, hashed): (bool, bool),
        content: &mut Content,
    ) -> Result<(), Error> {
        let mut at_start = first;
        let second_is_directory = first && self.is_directory_at(block, SECOND)?;
        let add = |content: &mut Content, record: &Record<'_>, at_start: bool| {
            if at_start && record.at == 0 && record.name == b"." {
                content.dot = record.inode;
            } else if at_start && content.dot_dot == 0 && record.name == b".." {
                content.dot_dot = record.inode;
            } else if at_start && content.dot_dot == 0 && record.at == SECOND && second_is_directory {
                content.dot_dot = record.inode;
                content.blame("its .. has another name");
            } else if record.inode != 0 {
                content.entries.push(Stored {
                    name: record.name.to_vec(),
                    inode: record.inode,
                    file_type: record.file_type,
                    hash: if hashed {
                        hash_of(block, record.at, record.name.len(), block.len())
                    } else {
                        None
                    },
                });
            }
        };
        let strict = self.sb.seed().is_some();
        let mut from = 0;
        let mut end = block.len();
        let whole = records(block, block.len()).all(|record| record.is_ok());
        if !whole && strict {
            end -= TAIL;
        }
        while from < end {
            let mut broken = None;
            for record in records(&block[from..end], end - from) {
                match record {
                    Ok(mut record) => {
                        record.at += from;
                        add(content, &record, at_start);
                    }
                    Err(byte) => broken = Some(from + byte),
                }
            }
            let Some(byte) = broken else { break };
            content.blame(format!("a broken record at byte {byte} of a block"));
            if let Some((record, next)) = self.too_long_name_at(block, byte, end, encrypted) {
                add(content, &record, at_start);
                from = next;
                continue;
            }
            let next = match self.name_at(block, byte, end, encrypted) {
                Some(record) => {
                    add(content, &record, at_start);
                    byte + (HEADER + record.name.len()).next_multiple_of(4)
                }
                None => byte + 4,
            };
            at_start &= next < 48;
            from = self.next_sound(block, next, end, encrypted);
        }
        Ok(())
    }

    /// Whether the number at the start of a record is that of a directory.
    fn is_directory_at(&self, block: &[u8], at: usize) -> Result<bool, Error> {
        let nr =
            block.get(at..).and_then(|record| record.first_chunk().map(|four| u32::from_le_bytes(*four)));
        Ok(self.inodes.get(nr.unwrap_or(0))?.is_some_and(|info| info.is_directory()))
    }

    /// The record at a byte whose length is broken, if it names something all the same.
    fn name_at<'b>(&self, block: &'b [u8], at: usize, end: usize, encrypted: bool) -> Option<Record<'b>> {
        let [i0, i1, i2, i3, _, _, len, file_type] = *block.get(at..end)?.first_chunk::<HEADER>()?;
        let inode = u32::from_le_bytes([i0, i1, i2, i3]);
        let name = block.get(at + HEADER..end)?.get(..usize::from(len))?;
        let record = Record { at, inode, file_type, name, after: None };
        self.can_be(&record, encrypted).then_some(record)
    }

    /// The record at a byte whose name is said to be longer than the record, with as much of the name as there
    /// is, and where the next one lies; `None` if that is none.
    fn too_long_name_at<'b>(
        &self,
        block: &'b [u8],
        at: usize,
        end: usize,
        encrypted: bool,
    ) -> Option<(Record<'b>, usize)> {
        let [i0, i1, i2, i3, l0, l1, name_len, file_type] = *block.get(at..end)?.first_chunk::<HEADER>()?;
        let next = at + usize::from(u16::from_le_bytes([l0, l1]));
        let room = block.get(at + HEADER..next).filter(|room| room.len() < usize::from(name_len))?;
        if room.is_empty() || !next.is_multiple_of(4) || next > end {
            return None;
        }
        let follows = |record: &Record<'_>| record.inode == 0 || self.can_be(record, encrypted);
        let follower = records(&block[next..end], end - next).next();
        if next < end && !follower?.is_ok_and(|record| follows(&record)) {
            return None;
        }
        let len = if encrypted { None } else { room.iter().position(|byte| *byte == 0) };
        let name = &room[..len.unwrap_or(room.len())];
        let record = Record { at, inode: u32::from_le_bytes([i0, i1, i2, i3]), file_type, name, after: None };
        self.can_be(&record, encrypted).then_some((record, next))
    }

    fn can_be(&self, record: &Record<'_>, encrypted: bool) -> bool {
        let known = (1..=self.geometry().inodes_count()).contains(&record.inode);
        let named =
            !record.name.is_empty() && (encrypted || !record.name.iter().any(|b| matches!(b, 0 | b'/')));
        known && named && record.file_type < 8
    }

    /// The first place from `at` on from which records lead to the end, or several sound ones to the next that is
    /// broken; the end if there is none.
    fn next_sound(&self, block: &[u8], at: usize, end: usize, encrypted: bool) -> usize {
        let known = |nr: u32| (1..=self.geometry().inodes_count()).contains(&nr);
        let sound = |from: &usize| {
            let (mut used, mut is_first_used) = (0, false);
            let all = records(&block[*from..end], end - from).all(|record| match record {
                Ok(record) if record.inode == 0 => true,
                Ok(record) if self.can_be(&record, encrypted) => {
                    used += 1;
                    is_first_used |= record.at == 0;
                    true
                }
                // With zeros in its name, say, which is mended later.
                Ok(record) => used > 0 && known(record.inode) && !record.name.is_empty(),
                Err(_) => false,
            });
            all && used > 0 || is_first_used && used > 1
        };
        (at..end.saturating_sub(HEADER)).step_by(4).find(sound).unwrap_or(end)
    }

    /// A directory inside its inode.
    fn read_inline(&self, slot: &Slot) -> Content {
        let mut content = Content::default();
        let tail = self.inline_tail(slot).unwrap_or_default();
        let head = slot.block();
        let encrypted = slot.has(InodeFlags::ENCRYPT);
        content.dot = slot.nr.get();
        content.dot_dot = head.first_chunk().map_or(0, |four| u32::from_le_bytes(*four));
        for row in [&head[4..], &tail] {
            let mut from = 0;
            while from < row.len() {
                let mut broken = None;
                for record in records(&row[from..], row.len() - from) {
                    match record {
                        Ok(record) if record.inode != 0 => content.entries.push(stored(&record)),
                        Ok(_) => {}
                        Err(byte) => broken = Some(from + byte),
                    }
                }
                let Some(byte) = broken else { break };
                content.blame(format!("a broken record at byte {byte} of its inode"));
                let cut = self.too_long_name_at(row, byte, row.len(), encrypted);
                let known = match cut {
                    Some((record, next)) => {
                        from = next;
                        Some(record)
                    }
                    None => {
                        from = row.len();
                        self.name_at(row, byte, row.len(), encrypted)
                    }
                };
                content.entries.extend(known.map(|record| stored(&record)));
            }
        }
        if InodeNr::from_disk(content.dot_dot).is_none() {
            content.blame("its parent is inode 0");
        }
        if slot.view().size() != hectare_units::u64_of(60 + tail.len()) {
            content.blame("its size is not that of its records");
        }
        content
    }
}

/// An entry without a hash.
fn stored(record: &Record<'_>) -> Stored {
    let Record { inode, file_type, name, .. } = *record;
    Stored { name: name.to_vec(), inode, file_type, hash: None }
}
