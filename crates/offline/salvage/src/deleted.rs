//! Finds removed files.
//!
//! An inode that is freed loses its map. But the journal has copies of inode tables as they were before, in
//! transactions that were written back long ago and not overwritten since ([`OldBlocks`]). Of an inode that
//! is not in use now, or was used again, the newest copy that has content counts. A node of an extent tree
//! that belongs to nobody gives a file without a name, an owner or a size.
//!
//! The blocks of a removed file's map are taken from the journal as well: the newest copies before the inode
//! was written without its content. What lies at their places may be anything: a block that is freed while
//! it is in the log only is never written there, and one that was used again has other content.
//!
//! So is content that was journalled (`data=journal`, or the flag of a file): what is freed before it was
//! written back is in the log only. A copy in the log is whole, whatever lies at its place now.
//!
//! Of other content nothing says whether it is still there: what no file in use claims may have been used in
//! between.
//!
//! Hazard: the log is untrusted. A copy counts only if its checksum is right, or if it holds plausible
//! inodes.

use crate::log::OldBlocks;
use crate::map::{self, Mapped};
use crate::names::Names;
use crate::plausible::{self, Judged};
use crate::report::Deleted;
use crate::survey::{self, Node, Survey};
use crate::tree::Removed;
use crate::volume::Volume;
use crate::watch::Watch;
use hectare_ext4::dir;
use hectare_ext4::extent::Extent;
use hectare_ext4::inode::{Inode, Kind};
use hectare_units::{BlockNr, Blocks, InodeNr, LogicalBlock, TxnId, low32, u64_of, usize_of};
use std::collections::{HashMap, HashSet};

/// The magic number that a node of an extent tree begins with.
const NODE_MAGIC: [u8; 2] = [0x0a, 0xf3];
/// How many times the blocks of the device the content of removed files may be: more than one of them may
/// have had a block.
const REMOVED_MAX: u64 = 2;
/// Files without an inode that are kept.
const ORPHANS_MAX: usize = 100_000;

/// A copy of an inode in the log.
struct Copy {
    txn: TxnId,
    /// Where its slot lies, in bytes of the device.
    at: u64,
    inode: Inode,
}

/// What was found so far.
#[derive(Default)]
pub(crate) struct Search {
    old: OldBlocks,
    copies: HashMap<(InodeNr, u32), Copy>,
    orphans: Vec<(BlockNr, Mapped)>,
}

impl Search {
    /// Reads the whole log.
    pub(crate) fn read_log(
        &mut self,
        volume: &Volume,
        survey: &Survey,
        names: &mut Names,
        watch: &dyn Watch,
    ) {
        let old = OldBlocks::read(volume, watch);
        for (nr, copies) in old.all() {
            let table = table_of(volume, nr);
            // No metadata begins with the magic number of the journal.
            for copy in copies.iter().filter(|copy| !copy.escaped) {
                let block = volume.block(copy.place);
                match table {
                    Some((first, slots)) => {
                        self.read_slots(volume, survey, copy.txn, copy.place, &block, first, slots);
                    }
                    None => note_names(volume, names, &block),
                }
            }
        }
        self.old = old;
    }

    #[allow(clippy::too_many_arguments)] // a block of a table, with its place in the log and in the volume
    fn read_slots(
        &mut self,
        volume: &Volume,
        survey: &Survey,
        txn: TxnId,
        place: BlockNr,
        block: &[u8],
        first: InodeNr,
        slots: u32,
    ) {
        let size = volume.geometry().inode_size;
        let start = place.offset(volume.geometry().block_size).get();
        for (index, slot) in (0..slots).zip(block.chunks_exact(usize_of(size))) {
            let Some(nr) = first.get().checked_add(index).map(InodeNr::new) else { break };
            if nr < volume.sb.first_inode() {
                continue;
            }
            let Some(Judged { inode, doubt: None, .. }) = plausible::judge(slot, nr, &volume.sb) else {
                continue;
            };
            let has_content = match inode.kind() {
                Some(Kind::File) => inode.size > 0 && (inode.is_inline() || inode.sectors > 0),
                Some(Kind::Symlink) => true,
                _ => false,
            };
            if !has_content || !plausible::is_live(&inode) || is_in_use(volume, survey, nr, &inode) {
                continue;
            }
            let copy = Copy { txn, at: start + u64::from(index) * u64::from(size), inode };
            let key = (nr, copy.inode.generation);
            match self.copies.get(&key) {
                Some(known) if !txn.is_after(known.txn) => {}
                _ => drop(self.copies.insert(key, copy)),
            }
        }
    }

    /// Looks at a block that belongs to nobody.
    pub(crate) fn take_block(
        &mut self,
        volume: &Volume,
        nr: BlockNr,
        block: &[u8],
        wanted: bool,
        budget: &mut u64,
    ) {
        if !wanted || !block.starts_with(&NODE_MAGIC) || self.orphans.len() >= ORPHANS_MAX {
            return;
        }
        if let Some(mapped) = map::of_orphan(volume, nr, block, budget).filter(|map| !map.extents.is_empty())
        {
            self.orphans.push((nr, mapped));
        }
    }

    /// The transaction after a copy in which its block of the inode table was written again: where the inode
    /// was removed, if the copy is the newest that has it.
    fn end_of(&self, volume: &Volume, nr: InodeNr, copy: &Copy) -> Option<TxnId> {
        let shift = volume.geometry().block_size.shift();
        let table = volume.slot_at(nr).map(|at| BlockNr::new(at >> shift));
        table.and_then(|table| self.old.next_after(table, copy.txn))
    }

    /// The blocks of a removed inode as its map was before the inode was written without them.
    fn old_map(&self, volume: &Volume, nr: InodeNr, copy: &Copy, budget: &mut u64) -> Mapped {
        let end = self.end_of(volume, nr, copy);
        let place = |nr: BlockNr| self.old.before(nr, end).unwrap_or(nr);
        let mut mapped = map::map_with(volume, nr, &copy.inode, budget, &|nr| volume.block(place(nr)));
        if copy.inode.kind() == Some(Kind::Symlink) {
            // Its target is metadata, too.
            mapped.extents.truncate(1);
            let target = |extent: &Extent| Extent { physical: place(extent.physical), len: 1, ..*extent };
            mapped.extents = mapped.extents.iter().map(target).collect();
        }
        mapped
    }

    /// Parts the extents of a removed file: those whose content lies at its place, and those whose content
    /// is in the log, there; with the blocks that are escaped in the log.
    fn part(&self, extents: &[Extent], end: Option<TxnId>) -> (Vec<Extent>, Vec<Extent>, Vec<LogicalBlock>) {
        let (mut in_place, mut in_log, mut escaped) = (Vec::new(), Vec::new(), Vec::new());
        for extent in extents {
            let mut rest = *extent;
            let range = extent.physical..extent.physical + Blocks::new(extent.len.into());
            let logged = self.old.content_before(range, end).filter(|_| !extent.unwritten);
            for (nr, copy) in logged {
                let before = low32((nr - rest.physical).get());
                if before > 0 {
                    in_place.push(Extent { len: before, ..rest });
                }
                let logical = LogicalBlock::new(rest.logical.get() + before);
                in_log.push(Extent { logical, len: 1, physical: copy.place, unwritten: false });
                if copy.escaped {
                    escaped.push(logical);
                }
                rest.logical = LogicalBlock::new(logical.get().wrapping_add(1));
                rest.physical = nr + Blocks::new(1);
                rest.len -= before + 1;
            }
            if rest.len > 0 {
                in_place.push(rest);
            }
        }
        (in_place, in_log, escaped)
    }

    /// The removed files, the most promising first.
    pub(crate) fn finish(
        self,
        volume: &Volume,
        survey: &Survey,
        names: &Names,
    ) -> (Vec<Removed>, Vec<Deleted>) {
        let mut found: Vec<(Removed, Deleted)> = Vec::new();
        let mut nodes: HashSet<BlockNr> = HashSet::new();
        let mut budget = volume.blocks_there();
        let mut copies: Vec<_> = self.copies.iter().collect();
        copies.sort_by_key(|(key, _)| *key);
        for (&(nr, _), copy) in copies {
            let mapped = self.old_map(volume, nr, copy, &mut budget);
            nodes.extend(mapped.nodes.iter().copied());
            let Some(kind) = copy.inode.kind() else { continue };
            let (size, modified) = (copy.inode.size, copy.inode.mtime.seconds);
            let (in_place, in_log, escaped) = match kind {
                Kind::File => self.part(&mapped.extents, self.end_of(volume, nr, copy)),
                _ => (mapped.extents.clone(), Vec::new(), Vec::new()),
            };
            let (mut node, deleted) = candidate(survey, &mapped, &in_place, Some(nr), kind, (size, modified));
            if !in_log.is_empty() {
                node.doubts.push(format!("{} of its blocks come from the journal", in_log.len()));
            }
            let mut extents = [in_place, in_log].concat();
            extents.sort_by_key(|extent| extent.logical);
            node.slot = Some(copy.at);
            node.links = copy.inode.links;
            node.extents = Some(extents.into());
            let name = names.removed.get(&nr).map(|(_, name)| name.clone());
            found.push((Removed { node, name, escaped }, deleted));
        }
        let below = self.orphans.iter().flat_map(|(_, mapped)| mapped.nodes.iter().skip(1));
        nodes.extend(below.copied());
        let shift = volume.geometry().block_size.shift();
        for (nr, mapped) in self.orphans.into_iter().filter(|(nr, _)| !nodes.contains(nr)) {
            let end = mapped.extents.last().map_or(0, |extent| extent.end() << shift);
            let extents = &mapped.extents;
            let (mut node, deleted) = candidate(survey, &mapped, extents, None, Kind::File, (end, 0));
            (node.first_block, node.first_run) = (nr.get(), 0);
            node.doubts.push("only its map was found: its size is that of its blocks".into());
            node.extents = Some(mapped.extents.into());
            found.push((Removed { node, name: None, escaped: Vec::new() }, deleted));
        }
        found.sort_by_key(|(_, deleted)| std::cmp::Reverse(deleted.free_percent));
        let room = volume.blocks_there().saturating_mul(REMOVED_MAX);
        survey::leave_out(found.iter_mut().map(|(removed, _)| &mut removed.node), room);
        found.into_iter().unzip()
    }
}

/// A node of the tree, and how promising it is: of its blocks those `in_place` may have been used again.
fn candidate(
    survey: &Survey,
    mapped: &Mapped,
    in_place: &[Extent],
    nr: Option<InodeNr>,
    kind: Kind,
    (size, modified): (u64, i64),
) -> (Node, Deleted) {
    let (all, owned) = (map::blocks(&mapped.extents), survey.owned(in_place));
    let free_percent = (100 * (all - owned.min(all))).checked_div(all).unwrap_or(100);
    let mut doubts = vec![format!("it was removed; {free_percent}% of its space is not in use now")];
    doubts.extend(mapped.doubts.iter().cloned());
    let (first_block, first_run) = survey::first_run(&mapped.extents);
    let node = Node {
        nr,
        slot: None,
        kind,
        links: 1,
        first_block,
        first_run,
        blocks: all,
        is_left_out: mapped.is_cut,
        extents: None,
        is_removed: true,
        doubts,
    };
    let inode = nr.map(InodeNr::get);
    (node, Deleted { path: String::new(), inode, size, modified, free_percent, doubts: Vec::new() })
}

/// Whether an inode is in use now as the file that a copy is of.
fn is_in_use(volume: &Volume, survey: &Survey, nr: InodeNr, copy: &Inode) -> bool {
    if survey.find(nr).is_none() {
        return false;
    }
    volume.inode(nr).is_some_and(|now| {
        let same = (now.inode.generation, now.inode.kind()) == (copy.generation, copy.kind());
        same && now.inode.crtime == copy.crtime
    })
}

/// The first inode in a block of an inode table, and how many there are.
fn table_of(volume: &Volume, nr: BlockNr) -> Option<(InodeNr, u32)> {
    let after = volume.tables.partition_point(|table| table.at <= nr);
    let table = volume.tables.get(after.checked_sub(1)?)?;
    let geometry = volume.geometry();
    let into = nr.get() - table.at.get();
    if into >= u64::from(geometry.itable_blocks()) {
        return None;
    }
    let per_block = geometry.inodes_per_block();
    let index = low32(into) * per_block;
    Some((geometry.inode_at(table.group, index), per_block.min(geometry.inodes_per_group - index)))
}

/// Remembers the names in a block, if it is one of a directory.
fn note_names(volume: &Volume, names: &mut Names, block: &[u8]) {
    let leaf = dir::leaf::Leaf::parse(block, &volume.format, hectare_ext4::Place::Volume);
    let Ok(leaf) = leaf else { return };
    let records: Vec<_> = leaf.records().collect();
    if records.iter().any(Result::is_err) || u64_of(records.len()) < 2 {
        return;
    }
    for record in records.into_iter().flatten() {
        let Some(inode) = record.inode.filter(|_| !matches!(record.name, b"." | b"..")) else { continue };
        names.removed.entry(inode).or_insert((None, record.name.into()));
    }
}
