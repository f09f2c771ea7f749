//! Makes the inode of a node.

use super::Volume;
use super::load::Load;
use super::placed::Layout;
use crate::time::Timestamp as TreeTime;
use crate::tree::{Kind as NodeKind, NodeId};
use hectare_ext4::feature::RoCompat;
use hectare_ext4::inode::{BLOCK_BYTES, DeviceNumber, Inode, InodeFlags, Kind};
use hectare_ext4::time::Timestamp;
use hectare_ext4::{extent, indirect};
use hectare_units::{Blocks, low16, u64_of};

/// The most links an inode counts; a directory with more has 1 (`dir_nlink`).
pub(crate) const LINKS_MAX: u32 = 65_000;

/// Everything an inode is made from.
pub(crate) struct Inodes<'a> {
    pub(crate) load: &'a Load<'a>,
    pub(crate) volume: Volume<'a>,
    pub(crate) layout: &'a Layout,
    /// Creation time of nodes whose source has none.
    pub(crate) now: Timestamp,
}

impl Inodes<'_> {
    /// The inode of a node.
    pub(crate) fn get(&self, id: NodeId) -> Inode {
        let (tree, geometry) = (self.load.tree, self.volume.sb.geometry());
        let meta = tree.meta(id);
        let kind = tree.kind(id);
        let mut inode = Inode::new(format_kind(&kind).mode_bits() | meta.mode, self.now, 0, self.volume.sb);
        inode.uid = meta.uid;
        inode.gid = meta.gid;
        inode.atime = time(meta.atime);
        inode.mtime = time(meta.mtime);
        inode.ctime = time(meta.ctime);
        inode.crtime = meta.crtime.map_or(self.now, time);
        if let Some(old) =
            self.load.kept.as_ref().and_then(|kept| kept.old(id)).filter(|old| old.mtime == inode.mtime)
        {
            inode.atime = old.atime;
        }
        inode.links = self.links(id, &kind);
        inode.sectors = self.layout.blocks(id, geometry).bytes(geometry.block_size).get() >> 9;
        inode.file_acl = self.layout.attribute_block(id);
        if let Some(set) = tree.xattr_set(id) {
            inode.xattr_area_mut().copy_from_slice(self.load.attributes.inode_area(set));
        }
        self.fill(&mut inode, id, &kind);
        inode
    }

    fn fill(&self, inode: &mut Inode, id: NodeId, kind: &NodeKind<'_>) {
        let block_size = self.volume.sb.geometry().block_size;
        match kind {
            NodeKind::Directory => {
                let blocks = self.layout.content_blocks(id);
                inode.size = blocks.bytes(block_size).get();
                inode.flags.set(InodeFlags::INDEX, blocks > Blocks::ONE && self.load.format.index);
                self.map(inode, id);
            }
            NodeKind::File { size } => {
                inode.size = size.get();
                self.map(inode, id);
            }
            NodeKind::Symlink { target } => {
                inode.size = u64_of(target.len());
                if target.len() < BLOCK_BYTES {
                    inode.block[..target.len()].copy_from_slice(target);
                } else {
                    self.map(inode, id);
                }
            }
            NodeKind::CharDevice { major, minor } | NodeKind::BlockDevice { major, minor } => {
                inode.set_device_number(DeviceNumber { major: *major, minor: *minor });
            }
            NodeKind::Fifo | NodeKind::Socket => {}
        }
    }

    /// The map's root. Its nodes below are written with the data; both come from the same build.
    fn map(&self, inode: &mut Inode, id: NodeId) {
        inode.flags.set(InodeFlags::EXTENTS, self.volume.has_extents());
        inode.block = self.built_map(id).root;
    }

    /// The map of a node, built.
    pub(crate) fn built_map(&self, id: NodeId) -> extent::Built {
        let block_size = self.volume.sb.geometry().block_size;
        let seed = self.volume.sb.seed().map(|seed| seed.inode(self.volume.inode_of(id), 0));
        let mut nodes = self.layout.map_nodes(id).iter();
        let mut next = || *nodes.next().expect("the layout took as many nodes as the map has");
        let extents: Vec<_> = self.layout.extents(id).collect();
        if !self.volume.has_extents() {
            return indirect::build(&extents, block_size, &mut next);
        }
        extent::build(&extents, block_size, seed, &mut next)
    }

    fn links(&self, id: NodeId, kind: &NodeKind<'_>) -> u16 {
        let adds = id == NodeId::ROOT && self.load.adds_lost_and_found();
        let links = self.load.tree.links(id) + u32::from(adds);
        let counted = matches!(kind, NodeKind::Directory) && links > LINKS_MAX;
        let unlimited = self.volume.sb.features().ro_compat.contains(RoCompat::DIR_NLINK);
        if counted && unlimited { 1 } else { low16(links.into()) }
    }
}

fn format_kind(kind: &NodeKind<'_>) -> Kind {
    match kind {
        NodeKind::Directory => Kind::Directory,
        NodeKind::File { .. } => Kind::File,
        NodeKind::Symlink { .. } => Kind::Symlink,
        NodeKind::CharDevice { .. } => Kind::CharDevice,
        NodeKind::BlockDevice { .. } => Kind::BlockDevice,
        NodeKind::Fifo => Kind::Fifo,
        NodeKind::Socket => Kind::Socket,
    }
}

fn time(time: TreeTime) -> Timestamp {
    Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds }
}
