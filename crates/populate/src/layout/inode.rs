//! A node's inode, as it is written.

use super::Volume;
use super::attributes::Attributes;
use super::place::Layout;
use crate::time::Timestamp as TreeTime;
use crate::tree::{Kind as NodeKind, NodeId, Tree};
use hectare_ext4::extent;
use hectare_ext4::feature::RoCompat;
use hectare_ext4::inode::{BLOCK_BYTES, DeviceNumber, Inode, InodeFlags, Kind};
use hectare_ext4::time::Timestamp;
use hectare_units::{low16, u64_of};

/// The most links an inode counts; a directory with more has 1 (`dir_nlink`).
pub(crate) const LINKS_MAX: u32 = 65_000;

/// Everything an inode is made from.
pub(crate) struct Inodes<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) volume: Volume<'a>,
    pub(crate) layout: &'a Layout,
    pub(crate) attributes: &'a Attributes,
    /// Creation time of nodes whose source has none, and change time where nothing else is known.
    pub(crate) now: Timestamp,
}

impl Inodes<'_> {
    /// The inode of a node.
    pub(crate) fn get(&self, id: NodeId) -> Inode {
        let meta = self.tree.meta(id);
        let kind = self.tree.kind(id);
        let mut inode = Inode::new(format_kind(&kind).mode_bits() | meta.mode, self.now, 0, self.volume.sb);
        inode.uid = meta.uid;
        inode.gid = meta.gid;
        inode.atime = time(meta.atime);
        inode.mtime = time(meta.mtime);
        inode.ctime = time(meta.ctime);
        inode.crtime = meta.crtime.map_or(self.now, time);
        inode.links = self.links(id, &kind);
        inode.sectors = self.layout.blocks(id).bytes(self.volume.sb.geometry().block_size).get() >> 9;
        inode.file_acl = self.layout.attribute_block(id);
        if let Some(set) = self.tree.xattr_set(id) {
            inode.xattr_area_mut().copy_from_slice(&self.attributes.get(set).inode_area);
        }
        self.fill(&mut inode, id, &kind);
        inode
    }

    fn fill(&self, inode: &mut Inode, id: NodeId, kind: &NodeKind<'_>) {
        let block_size = self.volume.sb.geometry().block_size;
        match kind {
            NodeKind::Directory => {
                let extents = self.layout.extents(id);
                let blocks: u64 = extents.iter().map(|extent| u64::from(extent.len)).sum();
                inode.size = blocks << block_size.shift();
                inode.flags.set(InodeFlags::INDEX, blocks > 1 && self.has_index());
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

    fn has_index(&self) -> bool {
        self.volume.sb.features().compat.contains(hectare_ext4::feature::Compat::DIR_INDEX)
    }

    /// The map's root. Its nodes below are written with the data; both come from the same build.
    fn map(&self, inode: &mut Inode, id: NodeId) {
        inode.flags |= InodeFlags::EXTENTS;
        inode.block = self.built_map(id).root;
    }

    /// The map of a node, built.
    pub(crate) fn built_map(&self, id: NodeId) -> extent::Built {
        let block_size = self.volume.sb.geometry().block_size;
        let seed = self.volume.sb.seed().map(|seed| seed.inode(self.volume.inode_of(id), 0));
        let mut nodes = self.layout.map_nodes(id).iter();
        let mut next = || *nodes.next().expect("the layout took as many nodes as the map has");
        extent::build(self.layout.extents(id), block_size, seed, &mut next)
    }

    fn links(&self, id: NodeId, kind: &NodeKind<'_>) -> u16 {
        let links = self.tree.links(id);
        let links = if id == NodeId::ROOT { links + 1 } else { links }; // lost+found
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
