//! Directories: every record of every block, after all inodes are known.

use crate::context::attributes::InodeAttributes;
use crate::context::directory::{Directory, Inside};
use crate::context::inodes::Info;
use crate::context::reader::Reader;
use crate::context::{Scan, Volume};
use crate::htree::{Plan, Role};
use crate::progress::Step;
use crate::raw_inode::RawInode;
use crate::records::{Record, records};
use crate::report::{Error, Report, What};
use crate::threads::{self, Queue};
use hectare_ext4::casefold::{self, Folding};
use hectare_ext4::dir::{self, Format};
use hectare_ext4::error::Place;
use hectare_ext4::extent::Extent;
use hectare_ext4::feature::Incompat;
use hectare_ext4::inline::Inline;
use hectare_ext4::inode::{InodeFlags, Kind};
use hectare_units::{BlockNr, Bytes, InodeNr, LogicalBlock, low32, u64_of, usize_of};
use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes of a directory that are read at once, if its blocks lie together and are no larger.
const CHUNK: usize = 1 << 15;
/// The shortest ciphertext of a name.
const CIPHERTEXT_MIN: usize = 16;
impl Scan<'_> {
    /// Checks a directory's inode and remembers it for later.
    pub(crate) fn check_directory_inode(
        &mut self,
        nr: InodeNr,
        slot: RawInode<'_>,
        found: &InodeAttributes,
    ) -> Result<(), Error> {
        let (flags, size) = (slot.flags(), slot.size());
        let seed = self.volume.sb.seed().map(|seed| seed.inode(nr, slot.raw.i_generation.get()));
        let mut directory = Directory::new(nr, flags, seed);
        if flags.contains(InodeFlags::INLINE_DATA) {
            self.check_inline_size(nr, slot, found);
            self.check_block_count(nr, slot, found, 0);
            let tail = found.inline.clone().unwrap_or_default();
            directory.inline = Some(Box::new(Inside { head: *slot.block(), tail, size }));
        } else {
            let mapped = self.map(nr, slot, true)?;
            self.check_block_count(nr, slot, found, mapped.held.clusters);
            self.check_directory_size(nr, size, mapped.end);
            if mapped.unwritten {
                self.tell(What::Map, Place::Inode(nr), "a directory has unwritten blocks");
            }
            directory.runs = mapped.runs;
            directory.blocks = self.blocks_of(slot);
        }
        self.directories.push(directory);
        Ok(())
    }

    fn check_directory_size(&mut self, nr: InodeNr, size: u64, end: u64) {
        let sb = &self.volume.sb;
        let (bits, features) = (sb.geometry().block_size.shift(), sb.features());
        let spare = u64::from(sb.raw().s_prealloc_dir_blocks);
        let blocks = size >> bits;
        let whole = size & ((1 << bits) - 1) == 0;
        let too_large = blocks > 1 << (31 - bits) && !features.incompat.contains(Incompat::LARGEDIR);
        if size == 0 || !whole || too_large || blocks > end || end - blocks > spare {
            self.tell_inode(nr, format!("a directory of {size} bytes has {end} blocks"));
        }
    }

    /// Checks the content of all directories. False if several threads have found something.
    pub(crate) fn check_directories(&mut self) -> Result<bool, Error> {
        self.report.counts.directories = low32(u64_of(self.directories.len()));
        let Some(format) = self.volume.dirs else {
            self.report.leave("directories: their default hash is unknown");
            return Ok(true);
        };
        let report = std::mem::take(&mut self.report);
        let (before, options) = (report.extent(), &self.volume.options);
        let all = Queue::new(self.directories.len());
        let blocks = AtomicU64::new(self.volume.geometry().blocks_count.get());
        let mut first = Reader::new(self, &blocks, report);
        let other = |_| Reader::new(self, &blocks, Report::default());
        let mut others: Vec<Reader<'_>> = options.other_threads().map(other).collect();
        threads::each(&mut first, others.iter_mut(), &|reader| reader.read(&all, &format))?;
        let silent =
            first.report.extent() == before && others.iter().all(|other| other.report == Report::default());
        self.report = first.report;
        Ok(silent || !self.volume.options.has_others())
    }
}

impl Reader<'_> {
    /// Reads directories while there are any. Several threads stop when one has found something.
    fn read(&mut self, all: &Queue, format: &Format) -> Result<(), Error> {
        let scan = self.scan;
        let (before, has_others) = (self.report.extent(), scan.volume.options.has_others());
        while let Some((at, directory)) = all.next().and_then(|at| Some((at, scan.directories.get(at)?))) {
            self.names.start();
            self.any_directory(directory, format)?;
            (scan.volume.watch)(Step::Directories, u64_of(at) + 1, u64_of(scan.directories.len()));
            if has_others && self.report.extent() != before {
                all.stop();
            }
        }
        Ok(())
    }

    fn any_directory(&mut self, directory: &Directory, format: &Format) -> Result<(), Error> {
        if let Some(inside) = &directory.inline {
            self.inline_directory(directory, inside);
            return Ok(());
        }
        let opaque_names = directory.is_encrypted();
        let folds = directory.flags.contains(InodeFlags::CASEFOLD) && !opaque_names;
        let folding = if folds { Folding::of(&self.scan.volume.sb).ok().flatten() } else { None };
        self.directory(directory, &Format { opaque_names, folding, ..*format })
    }

    fn directory(&mut self, directory: &Directory, format: &Format) -> Result<(), Error> {
        let runs = self.scan.runs.get(directory.runs.clone()).unwrap_or_default();
        let mapped: u64 = runs.iter().map(|run| u64::from(run.len)).sum();
        let last = runs.last().map_or(0, Extent::end);
        let dense = mapped == last && mapped >= u64::from(directory.blocks);
        if !dense {
            self.tell(What::Directory, Place::Inode(directory.nr), "it has holes");
        }
        if !self.can_be_read(directory, runs) {
            return Ok(());
        }
        let plan = if directory.is_indexed() && dense { self.read_index(directory, format)? } else { None };
        runs.iter().try_for_each(|run| self.directory_run(directory, format, run, plan.as_ref()))
    }

    /// Checks the blocks of an extent, some of which are read at once.
    fn directory_run(
        &mut self,
        directory: &Directory,
        format: &Format,
        run: &Extent,
        plan: Option<&Plan>,
    ) -> Result<(), Error> {
        let size = self.scan.volume.geometry().block_size.len();
        let mut some = std::mem::take(&mut self.some);
        some.resize(size.max(CHUNK), 0);
        let end = run.len.min(directory.blocks.saturating_sub(run.logical.get()));
        let mut done = 0;
        while done < end {
            let count = usize_of(end - done).min(some.len() / size);
            let blocks = &mut some[..count * size];
            let first = BlockNr::new(run.physical.get() + u64::from(done));
            self.scan.volume.read(first, blocks)?;
            for block in blocks.chunks_exact(size) {
                let at = LogicalBlock::new(run.logical.get() + done);
                self.directory_block(directory, format, block, at, plan);
                done += 1;
            }
        }
        self.some = some;
        Ok(())
    }

    /// Whether a directory's content is checked: not if a block is in it twice, or if it and those before
    /// it have more blocks than the volume. Shared blocks were reported when their maps were walked.
    fn can_be_read(&mut self, directory: &Directory, runs: &[Extent]) -> bool {
        let range = |run: &Extent| (run.physical.get(), run.physical.get() + u64::from(run.len));
        let mut ranges: Vec<(u64, u64)> = runs.iter().map(range).collect();
        ranges.sort_unstable();
        let once = ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0);
        let mapped: u64 = runs.iter().map(|run| u64::from(run.len)).sum();
        let blocks = mapped.min(directory.blocks.into());
        let left = |left: u64| left.checked_sub(blocks);
        let can = once && self.blocks.fetch_update(Relaxed, Relaxed, left).is_ok();
        if !can {
            self.report.leave("directories with blocks that are in them twice, or in others, too");
        }
        can
    }

    fn directory_block(
        &mut self,
        directory: &Directory,
        format: &Format,
        block: &[u8],
        at: LogicalBlock,
        plan: Option<&Plan>,
    ) {
        let place = Place::FileBlock(directory.nr, at);
        let indexed = directory.is_indexed();
        if let Err(corrupt) = dir::verify_block(block, format, directory.seed, at, indexed, place) {
            self.tell_corrupt(What::Directory, corrupt);
        }
        let role = plan.map_or(Role::Unknown, |plan| plan.role(at));
        let looks_like_node = indexed && block.get(..4) == Some(&[0; 4]) && {
            let mut all = records(block, block.len());
            all.next().is_some() && all.next().is_none()
        };
        let is_index = match role {
            Role::Root | Role::Node => true,
            Role::Leaf { .. } => false,
            Role::Unknown => indexed && (at == LogicalBlock::ZERO || looks_like_node),
        };
        let tail = if format.checksums && !is_index { 12 } else { 0 };
        let block = &block[..block.len() - tail];
        let span = match (role, plan) {
            (Role::Leaf { low, high }, Some(plan)) => {
                let span = self.names.start_leaf((low, high), &plan.hasher, block);
                span.map(|span| ((low, high), span))
            }
            _ => {
                self.names.start_block();
                None
            }
        };
        let (mut count, mut used) = (0, 0);
        for record in records(block, block.len()) {
            let record = match record {
                Ok(record) => record,
                Err(byte) => {
                    self.tell(What::Directory, place, format!("no sound record starts at byte {byte}"));
                    break;
                }
            };
            let first = at == LogicalBlock::ZERO && count < 2;
            count += 1;
            if first {
                self.dot(directory, &record, place, count == 2);
            } else if record.inode != 0 {
                self.entry(directory, &record, place, used);
                used += 1;
            }
        }
        if at == LogicalBlock::ZERO && count < 2 {
            self.tell(What::Directory, place, "it lacks . or ..");
        }
        if let Some(((low, high), (least, most))) = span
            && (least < low || most > high)
        {
            let reason = format!(
                "its names hash to {least:#010x} to {most:#010x}, outside {low:#010x} to {high:#010x}"
            );
            self.tell(What::Index, place, reason);
        }
    }

    /// The first two records: `.` and `..`.
    fn dot(&mut self, directory: &Directory, record: &Record<'_>, place: Place, second: bool) {
        let name: &[u8] = if second { b".." } else { b"." };
        if record.name != name || record.inode == 0 || record.after != Some(0) {
            let reason = if second { ".. is not in its place" } else { ". is not in its place" };
            self.tell(What::Directory, place, reason);
            return;
        }
        if !second && record.inode != directory.nr.get() {
            self.tell(What::Directory, place, format!(". leads to inode {}", record.inode));
        }
        if second {
            directory.set_dot_dot(record.inode);
        }
        self.check_type(record, Some(Kind::Directory), place);
        self.scan.inodes.add_name(record.inode);
    }

    /// Whether a directory takes only names of the encoding, and this is none.
    fn is_malformed(&self, directory: &Directory, name: &[u8]) -> bool {
        let folds = directory.flags.contains(InodeFlags::CASEFOLD) && !directory.is_encrypted();
        let folding = if folds { Folding::of(&self.scan.volume.sb).ok().flatten() } else { None };
        folding.is_some_and(|folding| folding.strict) && casefold::fold(name).is_none()
    }

    /// An entry, the `nth` in use of its block.
    fn entry(&mut self, directory: &Directory, record: &Record<'_>, place: Place, nth: usize) {
        let shown = record.name.escape_ascii();
        let encrypted = directory.is_encrypted();
        let illegal = record.name.iter().any(|byte| matches!(byte, 0 | b'/'));
        if record.name.is_empty() || matches!(record.name, b"." | b"..") || (illegal && !encrypted) {
            self.tell(What::Directory, place, format!("\"{shown}\" at byte {} is no name", record.at));
        } else if encrypted && record.name.len() < CIPHERTEXT_MIN {
            self.tell(What::Directory, place, format!("\"{shown}\" is too short for an encrypted name"));
        } else if self.is_malformed(directory, record.name) {
            self.tell(What::Directory, place, format!("\"{shown}\" is not of the volume's encoding"));
        } else if !self.names.add(&comparable(self.scan.volume, directory, record.name), nth) {
            self.tell(What::Directory, place, format!("\"{shown}\" is there twice"));
        }
        let Some(info) = self.scan.inodes.get(record.inode) else {
            let reason = format!("\"{shown}\" leads to inode {}, not in use", record.inode);
            self.tell(What::Directory, place, reason);
            self.report.digest.unread.extend(self.scan.unread_group(InodeNr::new(record.inode)));
            return;
        };
        if info.nameless || record.inode == InodeNr::ROOT.get() {
            self.tell(What::Directory, place, format!("\"{shown}\" leads to inode {}", record.inode));
            return;
        }
        self.check_type(record, info.kind, place);
        if encrypted && matches!(info.kind, Some(Kind::File | Kind::Directory | Kind::Symlink)) {
            self.check_encryption(directory, &info, record, place);
        }
        self.note_entry(directory, &info, record, place);
    }

    /// What an encrypted name leads to is encrypted, by the same policy.
    fn check_encryption(&mut self, directory: &Directory, info: &Info, record: &Record<'_>, place: Place) {
        let nr = record.inode;
        let policy = self.scan.inodes.get(directory.nr.get()).map_or(0, |info| info.policy);
        if !info.encrypted {
            let reason = format!("an encrypted name leads to inode {nr}, which is not");
            self.tell(What::Directory, place, reason);
        } else if info.policy != policy && info.policy != 0 && policy != 0 {
            let shown = record.name.escape_ascii();
            let reason = format!("\"{shown}\" leads to inode {nr}, of another policy");
            self.tell(What::Directory, place, reason);
        }
    }

    fn note_entry(&mut self, directory: &Directory, info: &Info, record: &Record<'_>, place: Place) {
        self.scan.inodes.add_name(record.inode);
        let Some(index) = info.directory.checked_sub(1) else { return };
        let Some(child) = self.scan.directories.get(usize_of(index)) else { return };
        if !child.add_parent(directory.nr) {
            let shown = record.name.escape_ascii();
            let reason = format!("\"{shown}\" is a second name of directory {}", record.inode);
            self.tell(What::Tree, place, reason);
        }
    }

    /// The stored type is that of the inode, or 0 for one that is not known.
    fn check_type(&mut self, record: &Record<'_>, kind: Option<Kind>, place: Place) {
        let stores = self.scan.volume.sb.features().incompat.contains(Incompat::FILETYPE);
        let expected = if stores { kind.map_or(0, code) } else { 0 };
        if record.file_type != expected && record.file_type != 0 {
            let shown = record.name.escape_ascii();
            let reason = format!("\"{shown}\" has the type {} where {expected} is right", record.file_type);
            self.tell(What::Directory, place, reason);
        }
    }

    /// A directory inside its inode: no `.` and `..`, but the parent's number.
    fn inline_directory(&mut self, directory: &Directory, inside: &Inside) {
        let Inside { head, tail, size } = inside;
        let place = Place::Inode(directory.nr);
        self.scan.inodes.add_name(directory.nr.get());
        match Inline::new(head, Some(tail), Bytes::new(*size), place).and_then(|inline| inline.parent()) {
            Ok(parent) => directory.set_dot_dot(parent.get()),
            Err(corrupt) => self.tell_corrupt(What::Directory, corrupt),
        }
        self.scan.inodes.add_name(directory.dot_dot());
        for row in [head.get(4..).unwrap_or_default(), tail] {
            self.names.start_block();
            for record in records(row, row.len()) {
                match record {
                    Ok(record) if record.inode != 0 => self.entry(directory, &record, place, 0),
                    Ok(_) => {}
                    Err(byte) => {
                        self.tell(What::Directory, place, format!("no sound record starts at byte {byte}"));
                    }
                }
            }
        }
    }
}

/// What two names have in common that can't both be in a directory.
fn comparable<'a>(volume: &Volume<'_>, directory: &Directory, name: &'a [u8]) -> Cow<'a, [u8]> {
    let folds = directory.flags.contains(InodeFlags::CASEFOLD) && !directory.is_encrypted();
    let known = folds && Folding::of(&volume.sb).is_ok_and(|folding| folding.is_some());
    let folded = if known { casefold::fold(name) } else { None };
    folded.map_or(Cow::Borrowed(name), Cow::Owned)
}

/// The type a record stores for a kind.
const fn code(kind: Kind) -> u8 {
    match kind {
        Kind::File => 1,
        Kind::Directory => 2,
        Kind::CharDevice => 3,
        Kind::BlockDevice => 4,
        Kind::Fifo => 5,
        Kind::Socket => 6,
        Kind::Symlink => 7,
    }
}
