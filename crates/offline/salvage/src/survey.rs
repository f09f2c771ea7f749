//! Finds all inodes that were in use, and which blocks they claim.
//!
//! The tables are read in the order of the disk. The map of each inode is read once here, to know which
//! blocks belong to somebody, and again when its content is.
//!
//! Content is bounded: if files claim more blocks in all than [`CONTENT_MAX`] times those of the device,
//! those that claim most are left out, by name. On a sound volume, and on one with a few wrong maps, none
//! is.
//!
//! Memory: some hundred bytes for each inode in use and 16 for each extent; both are bounded by what the
//! device can hold.

use crate::map::{self, Mapped};
use crate::plausible::{self, Judged};
use crate::volume::Volume;
use crate::watch::{Step, Watch};
use hectare_ext4::extent::Extent;
use hectare_ext4::feature::RoCompat;
use hectare_ext4::inode::{InodeFlags, Kind};
use hectare_units::{InodeNr, index_of, low32, u64_of, usize_of};
use std::ops::Range;

/// Bytes of a table that are read at once.
const STEP: u64 = 1 << 20;
/// How many times the blocks of the device may be claimed in all.
const CLAIMED_MAX: u64 = 8;

/// How many times the blocks of the device the content of all files may be: twice leaves room for wrong maps.
const CONTENT_MAX: u64 = 2;
/// Likewise of a volume whose files share blocks on purpose.
const SHARED_MAX: u64 = CLAIMED_MAX;

/// Something that comes out.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// Its number; `None` for what has none.
    pub(crate) nr: Option<InodeNr>,
    /// Where its slot lies, in bytes of the device; `None` for a directory of which only names are left, and
    /// for a file of which only the map is.
    pub(crate) slot: Option<u64>,
    pub(crate) kind: Kind,
    /// Links that its inode counts.
    pub(crate) links: u16,
    /// The block where its content begins; 0 if it has none.
    pub(crate) first_block: u64,
    /// Blocks of its content that follow one another from there.
    pub(crate) first_run: u32,
    /// Blocks of its content.
    pub(crate) blocks: u64,
    /// Whether its content does not come out: it would be more than the device can hold, or its map has no
    /// end.
    pub(crate) is_left_out: bool,
    /// The map of a file without an inode, and of one that was removed; others have it in their inodes.
    pub(crate) extents: Option<Box<[Extent]>>,
    /// Whether it was removed.
    pub(crate) is_removed: bool,
    pub(crate) doubts: Vec<String>,
}

/// A directory that is to be read.
pub(crate) struct Dir {
    pub(crate) node: usize,
    pub(crate) judged: Judged,
    pub(crate) extents: Vec<Extent>,
}

/// A run of blocks that belongs to a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Claim {
    pub(crate) start: u64,
    pub(crate) len: u32,
    pub(crate) node: u32,
}

/// The owner of blocks that no file has: tables and the journal.
pub(crate) const FORMAT: u32 = u32::MAX;

/// All inodes in use.
#[derive(Default)]
pub(crate) struct Survey {
    /// Those with inodes in the order of their numbers; then what was found besides.
    pub(crate) nodes: Vec<Node>,
    /// How many have inodes.
    in_order: usize,
    pub(crate) dirs: Vec<Dir>,
    /// In the order of blocks, once all are known.
    pub(crate) claims: Vec<Claim>,
    /// Nodes of maps that may still be read.
    pub(crate) budget: u64,
    /// Blocks that may still be claimed.
    room: u64,
}

/// Reads all tables.
pub(crate) fn survey(volume: &Volume, watch: &dyn Watch) -> Survey {
    let blocks = volume.blocks_there();
    let mut survey = Survey { budget: blocks, room: blocks.saturating_mul(CLAIMED_MAX), ..Survey::default() };
    let geometry = volume.geometry();
    let (block, slot_len) = (geometry.block_size.bytes().get(), u64::from(geometry.inode_size));
    let all: u64 = volume.tables.iter().map(|table| u64::from(table.used)).sum();
    let mut done = 0;
    let mut buffer = Vec::new();
    for table in &volume.tables {
        let start = table.at.get().saturating_mul(block);
        if table.at.get() > 0 {
            let len = geometry.itable_blocks();
            survey.claims.push(Claim { start: table.at.get(), len, node: FORMAT });
        }
        let per_step = low32(STEP / slot_len).max(1);
        for first in (0..table.used).step_by(usize_of(per_step)) {
            let count = per_step.min(table.used - first);
            let at = start.saturating_add(u64::from(first) * slot_len);
            if at >= volume.source.len() {
                break;
            }
            buffer.resize(index_of(u64::from(count) * slot_len), 0);
            volume.source.read(at, &mut buffer);
            for (index, slot) in (first..first + count).zip(buffer.chunks_exact(index_of(slot_len))) {
                let nr = geometry.inode_at(table.group, index);
                let at = at + u64::from(index - first) * slot_len;
                if let Some(judged) = plausible::judge(slot, nr, &volume.sb) {
                    survey.take(volume, nr, at, judged);
                }
            }
            watch.advance(Step::Inodes, done + u64::from(first + count), all);
        }
        done += u64::from(table.used);
    }
    survey.nodes.sort_by_key(|node| node.nr);
    survey.in_order = survey.nodes.len();
    let times = match volume.sb.features().ro_compat.contains(RoCompat::SHARED_BLOCKS) {
        true => SHARED_MAX,
        false => CONTENT_MAX,
    };
    leave_out(&mut survey.nodes, blocks.saturating_mul(times));
    survey
}

/// What the doubt about a file that is left out says.
pub(crate) const LEFT_OUT: &str = "are left out";

/// Leaves out the files that claim most, so that all others have no more than `room` blocks of content.
pub(crate) fn leave_out<'n>(nodes: impl IntoIterator<Item = &'n mut Node>, mut room: u64) {
    let mut files: Vec<&mut Node> = nodes.into_iter().filter(|node| node.kind == Kind::File).collect();
    files.sort_by_key(|node| node.blocks);
    for node in files {
        match room.checked_sub(node.blocks) {
            Some(left) if !node.is_left_out => room = left,
            _ => {
                node.is_left_out = true;
                let blocks = node.blocks;
                node.doubts
                    .push(format!("its {blocks} blocks {LEFT_OUT}: all files claim more than there can be"));
            }
        }
    }
}

impl Survey {
    fn take(&mut self, volume: &Volume, nr: InodeNr, at: u64, judged: Judged) {
        if !judged.may_live() {
            return;
        }
        let is_format = nr < volume.sb.first_inode() && nr != InodeNr::ROOT
            || is_of_format(volume, nr)
            || judged.inode.flags.contains(InodeFlags::EA_INODE);
        let mut mapped = map::map(volume, nr, &judged.inode, &mut self.budget);
        if is_format {
            self.claim(FORMAT, &mapped);
            return;
        }
        let Some(kind) = judged.inode.kind() else { return };
        let mut doubts: Vec<String> = judged.doubt.iter().cloned().collect();
        if !plausible::is_live(&judged.inode) {
            doubts.push("its number of links or its time of removal says that it was removed".into());
        }
        doubts.append(&mut mapped.doubts);
        let (first_block, first_run) = first_run(&mapped.extents);
        let (blocks, is_left_out) = (map::blocks(&mapped.extents), mapped.is_cut);
        let links = judged.inode.links;
        // Claims are by number until the nodes are in order.
        self.claim(nr.get(), &mapped);
        if kind == Kind::Directory {
            self.dirs.push(Dir { node: usize_of(nr.get()), judged, extents: mapped.extents });
        }
        let slot = Some(at);
        self.nodes.push(Node {
            nr: Some(nr),
            slot,
            kind,
            links,
            first_block,
            first_run,
            blocks,
            is_left_out,
            extents: None,
            is_removed: false,
            doubts,
        });
    }

    fn claim(&mut self, node: u32, mapped: &Mapped) {
        let wanted = map::blocks(&mapped.extents).saturating_add(u64_of(mapped.nodes.len()));
        let Some(left) = self.room.checked_sub(wanted) else { return };
        self.room = left;
        let data = mapped.extents.iter().map(|extent| (extent.physical.get(), extent.len));
        let nodes = mapped.nodes.iter().map(|nr| (nr.get(), 1));
        self.claims.extend(data.chain(nodes).map(|(start, len)| Claim { start, len, node }));
    }

    /// The node of an inode.
    pub(crate) fn find(&self, nr: InodeNr) -> Option<usize> {
        self.nodes.get(..self.in_order)?.binary_search_by_key(&Some(nr), |node| node.nr).ok()
    }

    /// Puts directories and claims in order, and notes what claims the same blocks.
    pub(crate) fn settle(&mut self, volume: &Volume) {
        for dir in &mut self.dirs {
            let nr = InodeNr::new(low32(u64_of(dir.node)));
            dir.node = self.nodes.binary_search_by_key(&Some(nr), |node| node.nr).unwrap_or_default();
        }
        self.dirs.sort_by_key(|dir| dir.extents.first().map_or(0, |extent| extent.physical.get()));
        self.claims.sort_unstable();
        if volume.sb.features().ro_compat.contains(RoCompat::SHARED_BLOCKS) {
            return;
        }
        let (mut end, mut owner) = (0, FORMAT);
        let mut shared: Vec<(u32, u32, u64)> = Vec::new();
        for claim in &self.claims {
            let last = claim.start.saturating_add(claim.len.into());
            if claim.start < end && claim.node != owner {
                shared.push((claim.node, owner, claim.start));
            }
            if last > end {
                (end, owner) = (last, claim.node);
            }
        }
        for (one, other, block) in shared {
            for (node, with) in [(one, other), (other, one)] {
                let with = if with == FORMAT { "the format".to_owned() } else { format!("inode {with}") };
                let found = InodeNr::from_disk(node).filter(|_| node != FORMAT).and_then(|nr| self.find(nr));
                let Some(node) = found.and_then(|at| self.nodes.get_mut(at)) else { continue };
                if node.doubts.len() < 16 {
                    node.doubts.push(format!("block {block} belongs to {with}, too"));
                }
            }
        }
    }

    /// Blocks of content that come out.
    pub(crate) fn content_blocks(&self) -> u64 {
        let kept = self.nodes.iter().filter(|node| node.kind == Kind::File && !node.is_left_out);
        kept.map(|node| node.blocks).sum()
    }

    /// The blocks that belong to nobody, in order.
    pub(crate) fn unowned(&self, first: u64, end: u64) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        if first >= end {
            return gaps; // a device that was cut off before its first block
        }
        let mut at = first;
        for claim in &self.claims {
            if claim.start > at {
                gaps.push(at..claim.start.min(end));
            }
            at = at.max(claim.start.saturating_add(claim.len.into()));
            if at >= end {
                break;
            }
        }
        if at < end {
            gaps.push(at..end);
        }
        gaps
    }

    /// Of some blocks, how many belong to somebody.
    pub(crate) fn owned(&self, extents: &[Extent]) -> u64 {
        let mut owned = 0;
        for extent in extents {
            let (start, end) = (extent.physical.get(), extent.physical.get() + u64::from(extent.len));
            // Claims are at most 2^32 blocks long, and rarely overlap: those before the extent that reach
            // into it are found by a short walk back.
            let from = self.claims.partition_point(|claim| claim.start < start);
            let before = self.claims[..from].last();
            let before = before.map_or(0, |claim| claim.start.saturating_add(claim.len.into()));
            let mut at = start.max(before.min(end));
            owned += at - start;
            for claim in self.claims[from..].iter().take_while(|claim| claim.start < end) {
                let last = claim.start.saturating_add(claim.len.into()).min(end);
                let begin = claim.start.max(at);
                owned += last.saturating_sub(begin);
                at = at.max(last);
            }
        }
        owned
    }
}

/// Where content begins, and how many blocks follow one another from there; 0 and 0 if there is none.
pub(crate) fn first_run(extents: &[Extent]) -> (u64, u32) {
    extents.first().map_or((0, 0), |extent| (extent.physical.get(), extent.len))
}

/// Whether the superblock names an inode as one of the format's own.
fn is_of_format(volume: &Volume, nr: InodeNr) -> bool {
    use hectare_ext4::quota::Kind as Quota;
    let sb = &volume.sb;
    let quotas = Quota::ALL.into_iter().filter_map(|kind| sb.quota_inode(kind));
    sb.journal_inode().into_iter().chain(sb.orphan_file_inode()).chain(quotas).any(|own| own == nr)
}
