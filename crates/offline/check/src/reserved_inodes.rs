//! Inodes with a task: the journal, the orphans, the blocks reserved for growing.

use crate::context::Scan;
use crate::context::attributes::InodeAttributes;
use crate::context::claims::FileClusters;
use crate::map::numbers;
use crate::raw_inode::RawInode;
use crate::report::{Error, Problem, What};
use hectare_ext4::checksum::crc32c;
use hectare_ext4::error::Place;
use hectare_ext4::feature::{Compat, Incompat, RoCompat};
use hectare_ext4::inode::{InodeFlags, Kind};
use hectare_ext4::orphan::OrphanBlock;
use hectare_units::{BlockNr, Bytes, GroupNr, InodeNr, u64_of, usize_of};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a journal's superblock.
const JOURNAL_SUPER: usize = 1024;
/// The number every block of a journal's administration starts with.
const JOURNAL_MAGIC: u32 = 0xc03b_3998;
/// Features of a journal without which it can't be replayed: revoke, 64-bit, asynchronous commit, checksums
/// v2 and v3, fast commit.
const JOURNAL_KNOWN: u32 = 0x3f;
const JOURNAL_CHECKSUMS: u32 = 0x18;
/// The fewest blocks of a journal.
const JOURNAL_BLOCKS_MIN: u64 = 1024;
/// The slots of an inode's indirect map that name its first blocks.
const DIRECT: usize = 12;
/// The slot of an inode's indirect map that names a table of tables.
const DOUBLE: usize = 13;

impl Scan<'_> {
    /// Reads the orphan list and the orphan file, so that the inodes named there are judged as orphans.
    pub(crate) fn read_orphan_list(&mut self) -> Result<(), Error> {
        let sb = &self.volume.sb;
        let mut bytes = vec![0; usize_of(sb.geometry().inode_size)];
        let mut next = sb.last_orphan();
        while let Some(nr) = next {
            if !self.add_orphan(nr, "the orphan list") || !self.read_slot(nr, &mut bytes)? {
                break;
            }
            next = RawInode::new(&bytes).and_then(|slot| InodeNr::from_disk(slot.dtime()));
        }
        let sb = &self.volume.sb;
        let features = *sb.features();
        let has_file = features.compat.contains(Compat::ORPHAN_FILE);
        if has_file && !features.compat.contains(Compat::HAS_JOURNAL) {
            self.tell(What::Orphans, Place::Volume, "there is an orphan file, but no journal");
        }
        if features.ro_compat.contains(RoCompat::ORPHAN_PRESENT) && !has_file {
            self.tell(What::Orphans, Place::Volume, "orphan_present is set, but there is no orphan file");
        }
        let sb = &self.volume.sb;
        if has_file {
            let Some(nr) = sb.orphan_file_inode() else {
                self.tell(What::Orphans, Place::Volume, "the superblock names no orphan file");
                return Ok(());
            };
            if !self.read_slot(nr, &mut bytes)? {
                self.tell(What::Orphans, Place::Inode(nr), "there is no such inode for the orphan file");
            } else if let Some(slot) = RawInode::new(&bytes) {
                self.read_orphan_file(nr, slot)?;
            }
        }
        Ok(())
    }

    /// Reads an inode's slot; false if there is no such inode.
    fn read_slot(&self, nr: InodeNr, bytes: &mut [u8]) -> Result<bool, Error> {
        let geometry = self.volume.geometry();
        let Some((group, index)) = geometry.inode_slot(nr) else { return Ok(false) };
        let Some(desc) = self.groups.get(group.index()) else { return Ok(false) };
        let within = Bytes::new(u64::from(index) * u64::from(geometry.inode_size));
        self.volume.device.read_at(desc.inode_table.offset(geometry.block_size) + within, bytes)?;
        Ok(true)
    }

    /// Notes an orphan; false if it can't be one, or was met before.
    fn add_orphan(&mut self, nr: InodeNr, place: &'static str) -> bool {
        let sb = &self.volume.sb;
        if nr < sb.first_inode() || nr.get() > sb.geometry().inodes_count() {
            self.tell(What::Orphans, Place::Volume, format!("{place} names inode {nr}, which can't be"));
            return false;
        }
        if !Arc::make_mut(&mut self.orphans).set.insert(nr.get()) {
            self.tell(What::Orphans, Place::Inode(nr), format!("{place} names it twice"));
            return false;
        }
        if !self.volume.options.allow_orphans {
            self.tell(What::Orphans, Place::Inode(nr), format!("it is in {place}, which was not processed"));
        }
        true
    }

    fn read_orphan_file(&mut self, nr: InodeNr, slot: RawInode<'_>) -> Result<(), Error> {
        let mapped = self.map(nr, slot, true)?;
        Arc::make_mut(&mut self.orphans).file = Some(mapped.held.clusters);
        let blocks = self.blocks_of(slot);
        if mapped.end != u64::from(blocks) || mapped.unwritten {
            self.tell(What::Orphans, Place::Inode(nr), "the orphan file has holes or unwritten blocks");
        }
        let seed = self.volume.sb.seed().map(|seed| seed.inode(nr, slot.raw.i_generation.get()));
        let mut block = self.buffer();
        for at in mapped.runs.clone() {
            let Some(run) = self.runs.get(at).copied() else { break };
            for i in 0..u64::from(run.len) {
                let at = BlockNr::new(run.physical.get() + i);
                self.volume.read(at, &mut block)?;
                match OrphanBlock::new(&block, at, seed) {
                    Ok(orphans) => {
                        if seed.is_none() && orphans.stored_checksum() != 0 {
                            let reason = "the orphan file has a checksum, on a volume without them";
                            self.tell(What::Orphans, Place::Block(at), reason);
                        }
                        orphans.orphans().for_each(|(_, nr)| {
                            self.add_orphan(nr, "the orphan file");
                        });
                    }
                    Err(corrupt) => self.tell_corrupt(What::Orphans, corrupt),
                }
            }
        }
        self.give_back(block);
        self.runs.truncate(mapped.runs.start);
        let present = self.volume.sb.features().ro_compat.contains(RoCompat::ORPHAN_PRESENT);
        if present && self.orphans.set.is_empty() && !self.volume.options.allow_orphans {
            self.tell(What::Orphans, Place::Volume, "orphan_present is set, but the orphan file is empty");
        }
        if !present && !self.orphans.set.is_empty() && self.volume.sb.last_orphan().is_none() {
            self.tell(
                What::Orphans,
                Place::Volume,
                "the orphan file is not empty, but orphan_present is not set",
            );
        }
        Ok(())
    }

    /// The orphan file was walked before; what is left is its block count.
    pub(crate) fn check_orphan_file(&mut self, nr: InodeNr, slot: RawInode<'_>) -> Result<(), Error> {
        let clusters = self.orphans.file.unwrap_or_default();
        self.check_block_count(nr, slot, &InodeAttributes::default(), clusters);
        Ok(())
    }

    /// Checks the journal's inode and the journal's own superblock.
    pub(crate) fn check_journal(&mut self, nr: InodeNr, slot: RawInode<'_>) -> Result<(), Error> {
        let mapped = self.map(nr, slot, true)?;
        self.check_block_count(nr, slot, &InodeAttributes::default(), mapped.held.clusters);
        self.check_written_end(nr, slot, mapped.written_end);
        self.check_large(nr, slot);
        let blocks = u64::from(self.blocks_of(slot));
        let whole = self.blocks_without_hole(&mapped.runs);
        if blocks < JOURNAL_BLOCKS_MIN || whole < blocks {
            let reason =
                format!("its size is {} bytes, {whole} blocks are there before the first hole", slot.size());
            self.tell(What::Journal, Place::Inode(nr), reason);
        }
        let mut block = self.buffer();
        if self.read_file_block(&mapped.runs, 0, &mut block)? {
            match (self.wrong_journal(&block, blocks), aborted_by(&block)) {
                (Some(reason), _) => self.tell(What::Journal, Place::Inode(nr), reason),
                (None, Some(errno)) => self.note_aborted(nr, errno),
                (None, None) => {}
            }
        } else {
            self.tell(What::Journal, Place::Inode(nr), "it has no first block");
        }
        self.give_back(block);
        self.runs.truncate(mapped.runs.start);
        Ok(())
    }

    /// A file of 2 GiB or more needs a feature, also one with a task.
    pub(crate) fn check_large(&mut self, nr: InodeNr, slot: RawInode<'_>) {
        if slot.kind() == Some(Kind::File)
            && slot.size() > i64::from(i32::MAX).cast_unsigned()
            && !self.volume.sb.features().ro_compat.contains(RoCompat::LARGE_FILE)
        {
            self.tell_inode(nr, "it is larger than 2 GiB, which needs the feature large_file");
        }
    }

    /// Blocks of a file from its first to the first that is not mapped.
    fn blocks_without_hole(&self, runs: &Range<usize>) -> u64 {
        let runs = self.runs.get(runs.clone()).unwrap_or_default();
        runs.iter().fold(0, |end, run| match u64::from(run.logical.get()) == end {
            true => end + u64::from(run.len),
            false => end,
        })
    }

    /// The next mount takes it for an error of the volume, and clears it. `e2fsck -fn` names it, and ends with 0.
    fn note_aborted(&mut self, nr: InodeNr, errno: i32) {
        let reason =
            format!("it was aborted by error {errno}, which the next mount takes for one of the volume");
        let (what, place) = (What::Journal, Place::Inode(nr));
        self.report.notes.push(Problem { what, place, reason: reason.into() });
    }

    /// What is wrong with a journal's superblock. All numbers there are big-endian.
    pub(super) fn wrong_journal(&self, block: &[u8], blocks: u64) -> Option<String> {
        let bytes = block.get(..JOURNAL_SUPER)?;
        let word = |at: usize| match bytes.get(at..at + 4) {
            Some([a, b, c, d]) => u32::from_be_bytes([*a, *b, *c, *d]),
            _ => 0,
        };
        if word(0) != JOURNAL_MAGIC || !matches!(word(4), 3 | 4) {
            return Some(format!("its superblock starts with {:#010x}, type {}", word(0), word(4)));
        }
        if word(0x0c) != self.volume.geometry().block_size.get() {
            return Some(format!("its blocks have {} bytes", word(0x0c)));
        }
        if u64::from(word(0x10)) > blocks || word(0x14) == 0 {
            return Some(format!(
                "it claims {} of its {blocks} blocks for the log, from block {}",
                word(0x10),
                word(0x14)
            ));
        }
        if word(4) == 4 && word(0x40) > 1 {
            return Some(format!("its superblock claims {} users", word(0x40)));
        }
        let features = if word(4) == 4 { word(0x28) } else { 0 };
        if features & !JOURNAL_KNOWN != 0 {
            return Some(format!("it has the unknown features {:#x}", features & !JOURNAL_KNOWN));
        }
        if word(4) == 4 && word(0x2c) != 0 {
            return Some(format!("it has the unknown features {:#x} for reading only", word(0x2c)));
        }
        if features & JOURNAL_CHECKSUMS != 0 {
            let (before, after) = bytes.split_at(0xfc);
            let expected = crc32c(crc32c(crc32c(!0, before), &[0; 4]), after.get(4..)?);
            if word(0xfc) != expected {
                return Some(format!(
                    "its checksum is {:#010x}, its content gives {expected:#010x}",
                    word(0xfc)
                ));
            }
        }
        let to_be_replayed = self.volume.sb.features().incompat.contains(Incompat::RECOVER);
        (word(0x1c) != 0 && !to_be_replayed)
            .then(|| "it is not empty, but the superblock does not say needs_recovery".to_owned())
    }

    /// Checks the inode that holds the descriptor blocks kept for growing: its table of tables names these
    /// blocks in group 0, and each of them names its copies. They are claimed with the groups' metadata.
    /// Numbers that lead elsewhere on the volume are only noted: nothing but growing uses them.
    pub(crate) fn check_resize_inode(&mut self, nr: InodeNr, slot: RawInode<'_>) -> Result<(), Error> {
        let volume = self.volume;
        let geometry = volume.geometry();
        let numbers: Vec<u32> = numbers(slot.block()).collect();
        let double = numbers.get(DOUBLE).copied().unwrap_or(0);
        let others = numbers.iter().filter(|number| **number != 0).count() - usize::from(double != 0);
        if others > 0 {
            self.tell(What::ResizeInode, Place::Inode(nr), "it has blocks beside its table");
        }
        if slot.flags().intersects(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA) {
            self.tell(
                What::ResizeInode,
                Place::Inode(nr),
                "it has the flag extents or inline_data, but needs a block map",
            );
        }
        if slot.size() > slot.size_max(geometry.block_size) {
            let reason = format!("its size {} is more than its map can hold", slot.size());
            self.tell(What::ResizeInode, Place::Inode(nr), reason);
        }
        self.check_large(nr, slot);
        let mut count = u64_of(others);
        if double == 0 {
            if geometry.reserved_gdt_blocks > 0 {
                self.note_resize(nr, "it has no table");
            }
        } else if !volume.holds(u64::from(double)) {
            self.tell(What::ResizeInode, Place::Inode(nr), format!("its table lies at block {double}"));
        } else {
            let at = BlockNr::new(u64::from(double));
            self.claim_block(nr, at, &mut FileClusters::default());
            let (named, end) = self.check_resize_table(nr, at)?;
            count += 1 + named;
            if end.saturating_sub(1) << volume.geometry().block_size.shift() > slot.size() {
                let reason = format!("its size is {}, but its blocks extend to {end}", slot.size());
                self.tell(What::ResizeInode, Place::Inode(nr), reason);
            }
        }
        self.check_block_count(nr, slot, &InodeAttributes::default(), count);
        Ok(())
    }

    /// Counts the blocks that the table names, and those which these name; and gives where they end in the
    /// inode.
    fn check_resize_table(&mut self, nr: InodeNr, at: BlockNr) -> Result<(u64, u64), Error> {
        let volume = self.volume;
        let geometry = volume.geometry();
        let (mut table, mut copies) = (self.buffer(), self.buffer());
        volume.read(at, &mut table)?;
        let per = geometry.block_size.get() / 4;
        let (start, kept) = (geometry.desc_blocks(), geometry.reserved_gdt_blocks);
        let first = geometry.super_block(GroupNr::new(0)).get() + 1;
        let backups: Vec<u64> = (1..geometry.groups())
            .map(GroupNr::new)
            .filter(|group| geometry.has_super(*group))
            .map(|group| u64::from(group.get()) * u64::from(geometry.blocks_per_group()))
            .collect();
        let (mut count, mut end, mut right, mut outside) = (0, 0, true, None);
        for (i, number) in (0..per).zip(numbers(&table)) {
            let index = if i >= start % per { i - start % per } else { i + per - start % per };
            let expected = if index < kept { first + u64::from(start + index) } else { 0 };
            right &= u64::from(number) == expected;
            if number == 0 {
                continue;
            }
            count += 1;
            if !volume.holds(u64::from(number)) {
                outside = Some(number);
                continue;
            }
            volume.read(BlockNr::new(u64::from(number)), &mut copies)?;
            let before = u64_of(DIRECT) + u64::from(per) * (1 + u64::from(i));
            for (i, copy) in numbers(&copies).enumerate() {
                end = if copy == 0 { end } else { before + u64_of(i) + 1 };
                right &= u64::from(copy) == backups.get(i).map_or(0, |backup| expected + backup);
                count += u64::from(copy != 0);
                if copy != 0 && !volume.holds(u64::from(copy)) {
                    outside = Some(copy);
                }
            }
        }
        self.give_back(table);
        self.give_back(copies);
        if let Some(number) = outside {
            let reason = format!("it names block {number}, outside the volume");
            self.tell(What::ResizeInode, Place::Inode(nr), reason);
        } else if !right {
            self.note_resize(nr, "it names other blocks than those kept for growing");
        }
        Ok((count, end))
    }

    fn note_resize(&mut self, nr: InodeNr, reason: &'static str) {
        let problem = Problem { what: What::ResizeInode, place: Place::Inode(nr), reason: reason.into() };
        self.report.notes.push(problem);
    }
}

/// The error by which a journal was aborted, as its superblock says.
fn aborted_by(superblock: &[u8]) -> Option<i32> {
    let errno = i32::from_be_bytes(*superblock.get(0x20..)?.first_chunk()?);
    Some(errno).filter(|errno| *errno != 0)
}
