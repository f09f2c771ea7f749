//! How each set of extended attributes is stored: in the inode, in a block, or both.
//!
//! Equal sets are laid out once; inodes with equal sets share one attribute block, as the kernel's do, up to
//! the number of references the format allows. A tree can have a different set for each of a million files,
//! so only the part in the inode is kept; blocks are made again when they are written.

use crate::error::ShownPath;
use crate::image_error::ImageError as Error;
use crate::tree::{Tree, Xattr, XattrSetId};
use hectare_ext4::acl;
use hectare_ext4::superblock::SuperBlock;
use hectare_ext4::xattr::{self, Attr, Name, Placed};
use hectare_units::{BlockSize, usize_of};

/// One set, laid out.
struct Set {
    /// What goes into the on-disk inode.
    inode_area: Box<[u8]>,
    has_block: bool,
}

/// All sets of a tree.
pub(crate) struct Attributes {
    sets: Vec<Set>,
    /// Bytes for attributes in an inode.
    space: usize,
    block_size: BlockSize,
}

impl Attributes {
    /// Lays the sets of a tree out for a volume.
    ///
    /// # Errors
    /// If a set does not fit; the error names one file with that set.
    pub(crate) fn new(tree: &Tree, sb: &SuperBlock) -> Result<Self, Error> {
        let space =
            usize_of(sb.geometry().inode_size).saturating_sub(128 + usize::from(sb.want_extra_isize()));
        let mut all = Self { sets: Vec::new(), space, block_size: sb.geometry().block_size };
        all.sets.reserve_exact(tree.xattr_sets().len());
        for (index, set) in tree.xattr_sets().iter().enumerate() {
            let placed = all.place(set).map_err(|reason| {
                let owner = tree.ids().find(|id| tree.xattr_set(*id).is_some_and(|set| set.index() == index));
                let path = owner.map(|id| tree.path(id)).unwrap_or_default();
                Error::Attributes { path: ShownPath::new(&path), reason }
            })?;
            all.sets.push(Set { inode_area: placed.inode_area.into(), has_block: placed.block.is_some() });
        }
        Ok(all)
    }

    /// The part of a set that goes into the inode.
    pub(crate) fn inode_area(&self, id: XattrSetId) -> &[u8] {
        &self.sets[id.index()].inode_area
    }

    /// Whether a set needs a block.
    pub(crate) fn has_block(&self, id: XattrSetId) -> bool {
        self.sets[id.index()].has_block
    }

    /// The block of a set, its checksum and reference count still open.
    pub(crate) fn block(&self, tree: &Tree, set: usize) -> Option<Vec<u8>> {
        // It was placed before, so it can be placed now.
        self.place(&tree.xattr_sets()[set]).ok()?.block
    }

    /// Number of sets.
    pub(crate) fn len(&self) -> usize {
        self.sets.len()
    }

    fn place(&self, set: &[Xattr]) -> Result<Placed, String> {
        let mut attrs = Vec::with_capacity(set.len());
        for attribute in set {
            let shown = || ShownPath::new(&attribute.name);
            let name = Name::parse(&attribute.name).map_err(|error| format!("{}: {error}", shown()))?;
            let value =
                acl::to_stored(&name, &attribute.value).map_err(|error| format!("{}: {error}", shown()))?;
            if let Some(value) = value {
                attrs.push(Attr::new(name, value.into_owned()));
            }
        }
        xattr::layout(&attrs, self.space, Some(self.block_size)).map_err(|room| {
            format!(
                "they need {} bytes where an inode and a block have {} (larger blocks with -b, or \
                 larger inodes with -I, have more)",
                room.needed, room.room
            )
        })
    }
}
