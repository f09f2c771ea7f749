//! Brings everything plausible out of a damaged volume.
//!
//! A volume in use trusts its structures, and stops at the first that is broken. Here nothing leads to
//! anything else by itself: inodes are found in the inode tables, wherever these must lie, and not through
//! names; names are found in directories, and in blocks that look like those of directories that are lost.
//! Both are put together to one tree ([`Salvage`]), which a caller copies out.
//!
//! - *The same parsers.* Every structure is read with those of the format (`hectare-ext4`); what they refuse
//!   is left out, or taken field by field, with a *doubt* that says why.
//! - *No end before the end.* What can't be read is zeros, and a doubt. Only where there is no superblock,
//!   and nothing that it can be inferred from, is that an error.
//! - *Hostile volumes.* Names are made fit for any directory, circles are cut, and all work, memory and
//!   output is bounded by the size of the device: a block of a directory counts once, all maps together read
//!   no more nodes than there are blocks, a file names each block once, and the content of all files is at
//!   most twice that of the device. What is left out for that is named ([`Salvage::left_out`]).
//! - *Order.* The tables are read in the order of the disk. Where each file begins is known before any is
//!   read ([`Salvage::place`]), and what lies close together can be read at once ([`Salvage::read_ahead`]).
//!
//! With [`Options::deleted`], removed files are found as well: in old copies of inode tables that the
//! journal still has, and in extent trees that belong to nobody.
//!
//! What this is not: a repair. Nothing is written to the device, and what comes out is as good as the doubts
//! say. Content has no checksums: nothing shows that it was overwritten.

mod attributes;
mod content;
mod deleted;
mod inferred;
mod log;
mod map;
mod names;
mod places;
mod plausible;
mod report;
mod source;
mod survey;
mod tree;
mod volume;

pub use content::{AHEAD_MAX, File};
pub use hectare_ext4::inode::{DeviceNumber, Kind};
pub use hectare_ext4::time::Timestamp;
pub use hectare_probe::WhichSuperblock;
pub use report::{Deleted, Doubtful, Report, Unreadable};

use hectare_device::Device;
use hectare_units::{Bytes, InodeNr};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tree::Tree;
use volume::Volume;

/// How a volume is salvaged.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The superblock to go by; the first that is usable, if none is given.
    pub superblock: Option<WhichSuperblock>,
    /// Don't replay the journal.
    pub no_journal: bool,
    /// Find removed files as well.
    pub deleted: bool,
}

/// Why nothing can be salvaged.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// There is no usable superblock; with what is wrong with the first.
    #[error("no superblock is usable, nor any copy of it: {0}")]
    NoSuperblock(String),
    /// The volume uses something that is not handled.
    #[error("{0}")]
    Unsupported(String),
}

/// How many times the bytes of the device the values of attributes with inodes of their own may be in all:
/// many files may share one.
const VALUES_MAX: u64 = 8;

/// What is being done before anything can be copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Reading inode tables.
    Inodes,
    /// Reading directories.
    Names,
    /// Reading the journal for removed files.
    Log,
    /// Reading the blocks that belong to nobody.
    Scan,
}

/// Is informed of the progress.
pub trait Watch {
    /// So much of a step is done, in a unit of its own.
    fn advance(&self, step: Step, done: u64, all: u64);
}

/// Something in the tree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(usize);

impl NodeId {
    /// A number that no other node of the tree has.
    #[must_use]
    pub fn get(self) -> u64 {
        hectare_units::u64_of(self.0)
    }
}

/// What is known of a node beside its content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metadata {
    /// What it is.
    pub kind: Kind,
    /// Permissions and set-id bits.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group of owners.
    pub gid: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Names that it has in the tree.
    pub links: u64,
    /// Which device a device node stands for.
    pub device: DeviceNumber,
    /// Bytes of content of a file.
    pub size: u64,
    /// Its inode's number, if it has one.
    pub inode: Option<InodeNr>,
}

/// A damaged volume, and the tree of what can be had of it.
pub struct Salvage {
    volume: Volume,
    tree: Tree,
    content_len: u64,
    deleted: Vec<(usize, Deleted)>,
    /// Bytes of attributes with inodes of their own that may still be read.
    value_room: AtomicU64,
    /// What was found doubtful while content was read.
    found: Mutex<BTreeMap<usize, Vec<String>>>,
}

impl Salvage {
    /// Finds out what there is. Reads metadata, and where something is missing, all that belongs to nobody.
    ///
    /// # Errors
    /// If there is no superblock, or one of a volume that can't be read.
    pub fn survey(device: Arc<dyn Device>, options: &Options, watch: &dyn Watch) -> Result<Self, Error> {
        let volume = Volume::open(device, options)?;
        let mut survey = survey::survey(&volume, watch);
        survey.settle(&volume);
        let mut names = names::read(&volume, &mut survey, options.deleted, watch);
        let mut removed = deleted::Search::default();
        if options.deleted {
            removed.read_log(&volume, &survey, &mut names, watch);
        }
        if options.deleted || misses_names(&survey, &names) {
            let mut budget = survey.budget;
            names::scan(&volume, &mut survey, &mut names, watch, &mut |nr, block| {
                removed.take_block(&volume, nr, block, options.deleted, &mut budget);
            });
        }
        let (removed, ranked) = removed.finish(&volume, &survey, &names);
        let content_len = survey.content_blocks() << volume.geometry().block_size.shift();
        let tree = tree::build(survey, names, removed);
        let first = tree.nodes.len() - ranked.len();
        let deleted = (first..).zip(ranked).collect();
        let value_room = AtomicU64::new(volume.source.len().saturating_mul(VALUES_MAX));
        Ok(Self { volume, tree, content_len, deleted, value_room, found: Mutex::default() })
    }

    /// The root directory.
    #[must_use]
    pub fn root(&self) -> NodeId {
        NodeId(self.tree.root)
    }

    /// What a directory holds, in the order in which the content lies on the device.
    pub fn children(&self, node: NodeId) -> impl ExactSizeIterator<Item = (&[u8], NodeId)> {
        let children = self.tree.children.get(&node.0).map_or(&[][..], Vec::as_slice);
        children.iter().map(|(name, child)| (&**name, NodeId(*child)))
    }

    /// The path of a node from the root; the first, if it has several.
    #[must_use]
    pub fn path(&self, node: NodeId) -> Vec<u8> {
        self.tree.path(node.0)
    }

    /// Bytes of the device.
    #[must_use]
    pub fn device_len(&self) -> Bytes {
        Bytes::new(self.volume.source.len())
    }

    /// Bytes of content in all, without holes.
    #[must_use]
    pub fn content_len(&self) -> Bytes {
        Bytes::new(self.content_len)
    }

    /// Every node with a name, each once, in no order.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.tree.places.keys().copied().map(NodeId)
    }

    /// Adds a doubt about a node.
    fn doubt(&self, node: usize, what: String) {
        let mut found = self.found.lock();
        let doubts = found.entry(node).or_default();
        if doubts.len() < 16 && !doubts.contains(&what) {
            doubts.push(what);
        }
    }
}

/// Whether anything in use has no name, or a name leads to nothing.
fn misses_names(survey: &survey::Survey, names: &names::Names) -> bool {
    let named: std::collections::HashSet<usize> = names.entries.iter().map(|entry| entry.child).collect();
    let root = survey.find(InodeNr::ROOT);
    let nameless = (0..survey.nodes.len()).any(|at| Some(at) != root && !named.contains(&at));
    root.is_none() || nameless
}
