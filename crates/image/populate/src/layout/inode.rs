//! Makes the inode of a node.

use super::attributes::OutsideValue;
use super::inline::{InlineContents, rows};
use super::load::Load;
use super::placed::Layout;
use super::volume::Volume;
use crate::time::Timestamp as TreeTime;
use crate::tree::{Kind as NodeKind, NodeId};
use hectare_ext4::feature::RoCompat;
use hectare_ext4::inode::{BLOCK_BYTES, DeviceNumber, Inode, InodeFlags, Kind};
use hectare_ext4::time::Timestamp;
use hectare_ext4::{Place, extent, indirect, inline, xattr};
use hectare_units::{Blocks, index_of, low16, u64_of, usize_of};

/// The most links an inode counts; a directory with more has 1 (`dir_nlink`).
pub(crate) const LINKS_MAX: u32 = 65_000;

/// The generation of inodes that hold attribute values. It differs from that of all others, so that no time
/// of theirs makes them look like Lustre's, which have their user's.
const HOLDER_GENERATION: u32 = 1;

/// Everything an inode is made from.
pub(crate) struct Inodes<'a> {
    pub(crate) load: &'a Load<'a>,
    pub(crate) volume: Volume<'a>,
    pub(crate) layout: &'a Layout,
    /// The content of files that lies in their inodes.
    pub(crate) inline: &'a InlineContents,
    /// Creation time of nodes whose source has none.
    pub(crate) now: Timestamp,
}

impl Inodes<'_> {
    /// The inode of a node.
    pub(crate) fn get(&self, id: NodeId) -> Inode {
        let (tree, geometry) = (self.load.tree, self.volume.sb.geometry());
        if let Some(value) = self.volume.value_of(id) {
            return self.holder(id, &self.load.attributes.values()[usize_of(value)]);
        }
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
            let area = inode.xattr_area_mut();
            area.copy_from_slice(self.load.attributes.inode_area(set));
            xattr::renumber_in_inode(area, |nr| self.volume.value_number(nr));
            // A value counts for every inode that has it.
            let cluster = geometry.cluster_bytes();
            let values = self.load.attributes.values_of(set);
            let clusters: u64 = values.map(|value| u64_of(value.bytes.len()).div_ceil(cluster)).sum();
            inode.sectors += clusters * (cluster >> 9);
        }
        self.fill(&mut inode, id, &kind);
        inode
    }

    /// The inode that holds an attribute's value.
    fn holder(&self, id: NodeId, value: &OutsideValue) -> Inode {
        let (sb, owner) = (self.volume.sb, Inode::new(0, self.now, 0, self.volume.sb));
        let mut inode = xattr::new_holder(&owner, value.hash, self.now, HOLDER_GENERATION, sb);
        xattr::set_users(&mut inode, value.users);
        inode.size = u64_of(value.bytes.len());
        inode.sectors = self.layout.blocks(id, sb.geometry()).bytes(sb.geometry().block_size).get() >> 9;
        self.map(&mut inode, id);
        inode
    }

    /// Puts the content of a node into its inode. A file that was not read yet gets zeros: until then only
    /// sizes count.
    fn fill_inline(&self, inode: &mut Inode, id: NodeId, kind: &NodeKind<'_>) {
        let (tree, volume): (_, Volume<'_>) = (self.load.tree, self.volume);
        let place = Place::Inode(volume.inode_of(id));
        let stored = match kind {
            NodeKind::File { size } => match self.inline.files.lock().get(&id) {
                Some(bytes) => inline::store(inode, bytes, place),
                None => inline::store(inode, &vec![0; index_of(size.get())], place),
            },
            _ => {
                let (parent, filetype) = (volume.inode_of(tree.parent(id)), self.load.format.filetype);
                let rows = rows(tree, id, parent, &mut |child| volume.inode_of(child), filetype);
                inline::store(inode, rows.content(), place)
            }
        };
        assert_eq!(stored, Ok(true), "what was found to fit the inode does");
    }

    fn fill(&self, inode: &mut Inode, id: NodeId, kind: &NodeKind<'_>) {
        if self.load.is_inline(id) {
            return self.fill_inline(inode, id, kind);
        }
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
                inode.flags.set(InodeFlags::VERITY, self.load.tree.is_sealed(id));
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
        let seed =
            self.volume.sb.seed().map(|seed| seed.inode(self.volume.inode_of(id), self.generation(id)));
        let mut nodes = self.layout.map_nodes(id).iter();
        let mut next = || *nodes.next().expect("the layout took as many nodes as the map has");
        let extents: Vec<_> = self.layout.extents(id).collect();
        if !self.volume.has_extents() {
            return indirect::build(&extents, block_size, &mut next);
        }
        extent::build(&extents, block_size, seed, &mut next)
    }

    fn generation(&self, id: NodeId) -> u32 {
        self.volume.value_of(id).map_or(0, |_| HOLDER_GENERATION)
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
