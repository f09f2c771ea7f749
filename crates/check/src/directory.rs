//! Directories: every record of every block, after all inodes are known.
//!
//! Names are compared within their whole directory (in an index, where they can be), by a hash of 64 bits with a
//! key of this process; in a casefolded directory as they are folded.

use crate::context::Scan;
use crate::context::attributes::InodeAttributes;
use crate::context::directory::Directory;
use crate::context::inodes::Info;
use crate::htree::{Plan, Role};
use crate::raw_inode::RawInode;
use crate::records::{Record, records};
use crate::report::{Error, What};
use hectare_ext4::casefold::{self, Folding};
use hectare_ext4::dir::{self, Format};
use hectare_ext4::error::Place;
use hectare_ext4::extent::Extent;
use hectare_ext4::feature::Incompat;
use hectare_ext4::inline::Inline;
use hectare_ext4::inode::{InodeFlags, Kind};
use hectare_units::{Bytes, InodeNr, LogicalBlock, low32, u64_of};
use std::borrow::Cow;
use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// The shortest ciphertext of a name.
const CIPHERTEXT_MIN: usize = 16;
/// Names a set has room for that is kept for the next directory.
const KEPT_NAMES: usize = 1 << 12;

/// The names of the directory at hand.
///
/// In an indexed directory a name can be in one leaf only, that of its hash, unless its hash is where two
/// leaves meet. So most names are compared within their leaf, in a set that stays in the processor's caches.
#[derive(Default)]
struct Names {
    keys: RandomState,
    seen: HashSet<u64>,
    of_leaf: HashSet<u64>,
    /// The hashes of the leaf at hand.
    leaf: Option<(u32, u32)>,
}

impl Names {
    fn start(&mut self) {
        if self.seen.capacity() > KEPT_NAMES {
            self.seen = HashSet::new();
        } else {
            self.seen.clear();
        }
        self.leaf = None;
    }

    /// Begins a block.
    fn start_block(&mut self, role: Role) {
        self.of_leaf.clear();
        self.leaf = match role {
            Role::Leaf { low, high } => Some((low, high)),
            _ => None,
        };
    }

    /// Adds a name, with its hash in the index; false if it is there.
    fn add(&mut self, name: &[u8], hash: Option<u32>) -> bool {
        let key = self.keys.hash_one(name);
        let is_inside = self.leaf.zip(hash).is_some_and(|((low, high), hash)| low < hash && hash < high);
        if is_inside { self.of_leaf.insert(key) } else { self.seen.insert(key) }
    }
}

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
            directory.inline = Some((*slot.block(), tail, size));
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
        let index = low32(u64_of(self.directories.len()));
        if let Some(info) = self.inodes.get_mut(nr.get()) {
            info.directory = index;
        }
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

    /// Checks the content of all directories.
    pub(crate) fn check_directories(&mut self) -> Result<(), Error> {
        self.report.counts.directories = low32(u64_of(self.directories.len()));
        let Some(format) = self.volume.dirs else {
            self.report.leave("directories: their default hash is unknown");
            return Ok(());
        };
        let mut names = Names::default();
        for at in 0..self.directories.len() {
            let Some(place) = self.directories.get_mut(at) else { break };
            let absent = Directory::new(place.nr, InodeFlags::empty(), None);
            let mut directory = std::mem::replace(place, absent);
            names.start();
            if directory.inline.is_some() {
                self.inline_directory(&mut directory, &mut names);
            } else {
                let opaque_names = directory.is_encrypted();
                let folds = directory.flags.contains(InodeFlags::CASEFOLD) && !opaque_names;
                let folding = if folds { Folding::of(&self.volume.sb).ok().flatten() } else { None };
                let format = Format { opaque_names, folding, ..format };
                self.directory(&mut directory, &format, &mut names)?;
            }
            if let Some(place) = self.directories.get_mut(at) {
                // Its parent was noted in its absence if it names itself.
                directory.parent = directory.parent.max(place.parent);
                *place = directory;
            }
        }
        Ok(())
    }

    fn directory(
        &mut self,
        directory: &mut Directory,
        format: &Format,
        names: &mut Names,
    ) -> Result<(), Error> {
        let runs = self.runs.get(directory.runs.clone()).unwrap_or_default().to_vec();
        let mapped: u64 = runs.iter().map(|run| u64::from(run.len)).sum();
        let last = runs.last().map_or(0, Extent::end);
        let dense = mapped == last && mapped >= u64::from(directory.blocks);
        if !dense {
            self.tell(What::Directory, Place::Inode(directory.nr), "it has holes");
        }
        if !self.can_be_read(directory, &runs) {
            return Ok(());
        }
        let plan = if directory.is_indexed() && dense { self.read_index(directory, format)? } else { None };
        let mut block = self.buffer();
        for run in &runs {
            for i in 0..run.len {
                let Some(at) = run.logical.checked_add(i) else { break };
                let Some(physical) = run.block_of(at).filter(|_| at.get() < directory.blocks) else { break };
                self.volume.read(physical, &mut block)?;
                self.directory_block(directory, format, &block, at, plan.as_ref(), names);
            }
        }
        self.give_back(block);
        Ok(())
    }

    /// Whether a directory's content is checked: not if a block is in it twice, or if it and those before
    /// it have more blocks than the volume. Shared blocks were reported when their maps were walked.
    fn can_be_read(&mut self, directory: &Directory, runs: &[Extent]) -> bool {
        let mut ranges: Vec<(u64, u64)> =
            runs.iter().map(|run| (run.physical.get(), run.physical.get() + u64::from(run.len))).collect();
        ranges.sort_unstable();
        let once = ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0);
        let mapped: u64 = runs.iter().map(|run| u64::from(run.len)).sum();
        let left = self.directory_blocks.checked_sub(mapped.min(directory.blocks.into())).filter(|_| once);
        match left {
            Some(left) => self.directory_blocks = left,
            None => self.report.leave("directories with blocks that are in them twice, or in others, too"),
        }
        left.is_some()
    }

    fn directory_block(
        &mut self,
        directory: &mut Directory,
        format: &Format,
        block: &[u8],
        at: LogicalBlock,
        plan: Option<&Plan>,
        names: &mut Names,
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
        names.start_block(role);
        let (mut hashes, mut count) = (None::<(u32, u32)>, 0);
        for record in records(block, block.len() - tail) {
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
                let hash = plan.map(|plan| plan.hasher.hash(record.name).major);
                self.entry(directory, &record, place, (&mut *names, hash));
                if let Some(hash) = hash {
                    let (low, high) = hashes.unwrap_or((hash, hash));
                    hashes = Some((low.min(hash), high.max(hash)));
                }
            }
        }
        if at == LogicalBlock::ZERO && count < 2 {
            self.tell(What::Directory, place, "it lacks . or ..");
        }
        if let (Role::Leaf { low, high }, Some((least, most))) = (role, hashes)
            && (least < low || most > high)
        {
            let reason = format!(
                "its names hash to {least:#010x} to {most:#010x}, outside {low:#010x} to {high:#010x}"
            );
            self.tell(What::Index, place, reason);
        }
    }

    /// The first two records: `.` and `..`.
    fn dot(&mut self, directory: &mut Directory, record: &Record<'_>, place: Place, second: bool) {
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
            directory.dot_dot = record.inode;
        }
        self.check_type(record, Some(Kind::Directory), place);
        if let Some(info) = self.inodes.get_mut(record.inode) {
            info.refs = info.refs.saturating_add(1);
        }
    }

    /// What two names have in common that can't both be in a directory.
    fn comparable<'a>(&self, directory: &Directory, name: &'a [u8]) -> Cow<'a, [u8]> {
        let folds = directory.flags.contains(InodeFlags::CASEFOLD) && !directory.is_encrypted();
        let known = folds && Folding::of(&self.volume.sb).is_ok_and(|folding| folding.is_some());
        let folded = if known { casefold::fold(name) } else { None };
        folded.map_or(Cow::Borrowed(name), Cow::Owned)
    }

    /// Whether a directory takes only names of the encoding, and this is none.
    fn is_malformed(&self, directory: &Directory, name: &[u8]) -> bool {
        let folds = directory.flags.contains(InodeFlags::CASEFOLD) && !directory.is_encrypted();
        let folding = if folds { Folding::of(&self.volume.sb).ok().flatten() } else { None };
        folding.is_some_and(|folding| folding.strict) && casefold::fold(name).is_none()
    }

    fn entry(
        &mut self,
        directory: &mut Directory,
        record: &Record<'_>,
        place: Place,
        (names, hash): (&mut Names, Option<u32>),
    ) {
        let shown = record.name.escape_ascii();
        let encrypted = directory.is_encrypted();
        let illegal = record.name.iter().any(|byte| matches!(byte, 0 | b'/'));
        if record.name.is_empty() || matches!(record.name, b"." | b"..") || (illegal && !encrypted) {
            self.tell(What::Directory, place, format!("\"{shown}\" at byte {} is no name", record.at));
        } else if encrypted && record.name.len() < CIPHERTEXT_MIN {
            self.tell(What::Directory, place, format!("\"{shown}\" is too short for an encrypted name"));
        } else if self.is_malformed(directory, record.name) {
            self.tell(What::Directory, place, format!("\"{shown}\" is not of the volume's encoding"));
        } else if !names.add(&self.comparable(directory, record.name), hash) {
            self.tell(What::Directory, place, format!("\"{shown}\" is there twice"));
        }
        let Some(info) = self.inodes.get(record.inode).copied().filter(|info| info.used) else {
            self.tell(
                What::Directory,
                place,
                format!("\"{shown}\" leads to inode {}, not in use", record.inode),
            );
            return;
        };
        if info.hidden || info.holds_value || record.inode == InodeNr::ROOT.get() {
            self.tell(What::Directory, place, format!("\"{shown}\" leads to inode {}", record.inode));
            return;
        }
        self.check_type(record, info.kind, place);
        let can_be = matches!(info.kind, Some(Kind::File | Kind::Directory | Kind::Symlink));
        if encrypted && can_be && !info.encrypted {
            self.tell(
                What::Directory,
                place,
                format!("an encrypted name leads to inode {}, which is not", record.inode),
            );
        }
        let policy = self.inodes.get(directory.nr.get()).map_or(0, |info| info.policy);
        let differs = info.policy != policy && info.policy != 0 && policy != 0;
        if encrypted && can_be && info.encrypted && differs {
            let reason = format!("\"{shown}\" leads to inode {}, of another policy", record.inode);
            self.tell(What::Directory, place, reason);
        }
        self.note_entry(directory, &info, record, place);
    }

    fn note_entry(&mut self, directory: &mut Directory, info: &Info, record: &Record<'_>, place: Place) {
        if let Some(info) = self.inodes.get_mut(record.inode) {
            info.refs = info.refs.saturating_add(1);
        }
        let Some(index) = info.directory.checked_sub(1) else { return };
        let Some(child) = self.directories.get_mut(hectare_units::usize_of(index)) else { return };
        if child.parent == 0 {
            child.parent = directory.nr.get();
        } else {
            let shown = record.name.escape_ascii();
            self.tell(
                What::Tree,
                place,
                format!("\"{shown}\" is a second name of directory {}", record.inode),
            );
        }
    }

    /// The stored type is that of the inode, or 0 for one that is not known.
    fn check_type(&mut self, record: &Record<'_>, kind: Option<Kind>, place: Place) {
        let stores = self.volume.sb.features().incompat.contains(Incompat::FILETYPE);
        let expected = if stores { kind.map_or(0, code) } else { 0 };
        if record.file_type != expected && record.file_type != 0 {
            let shown = record.name.escape_ascii();
            let reason = format!("\"{shown}\" has the type {} where {expected} is right", record.file_type);
            self.tell(What::Directory, place, reason);
        }
    }

    /// A directory inside its inode: no `.` and `..`, but the parent's number.
    fn inline_directory(&mut self, directory: &mut Directory, names: &mut Names) {
        let Some((head, tail, size)) = directory.inline.take() else { return };
        let place = Place::Inode(directory.nr);
        if let Some(info) = self.inodes.get_mut(directory.nr.get()) {
            info.refs = info.refs.saturating_add(1);
        }
        match Inline::new(&head, Some(&tail), Bytes::new(size), place).and_then(|inline| inline.parent()) {
            Ok(parent) => directory.dot_dot = parent.get(),
            Err(corrupt) => self.tell_corrupt(What::Directory, corrupt),
        }
        if let Some(info) = self.inodes.get_mut(directory.dot_dot) {
            info.refs = info.refs.saturating_add(1);
        }
        for row in [head.get(4..).unwrap_or_default(), &tail] {
            for record in records(row, row.len()) {
                match record {
                    Ok(record) if record.inode != 0 => {
                        self.entry(directory, &record, place, (&mut *names, None));
                    }
                    Ok(_) => {}
                    Err(byte) => {
                        self.tell(What::Directory, place, format!("no sound record starts at byte {byte}"));
                    }
                }
            }
        }
    }
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
