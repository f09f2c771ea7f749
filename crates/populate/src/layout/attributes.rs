//! How each set of extended attributes is stored: in the inode, in a block, or both.
//!
//! Equal sets are laid out once; inodes with equal sets share one attribute block, as the kernel's do, up to the number
//! of references the format allows.

use crate::error::ShownPath;
use crate::image::ImageError as Error;
use crate::tree::{Tree, Xattr, XattrSetId};
use hectare_ext4::acl;
use hectare_ext4::superblock::SuperBlock;
use hectare_ext4::xattr::{self, Attr, Name};
use hectare_units::usize_of;

/// One set, laid out.
pub(crate) struct SetLayout {
    /// What goes into the inode's slot.
    pub(crate) inode_area: Vec<u8>,
    /// What goes into a block, its checksum and reference count still open.
    pub(crate) block: Option<Vec<u8>>,
}

/// All sets of a tree.
pub(crate) struct Attributes {
    sets: Vec<SetLayout>,
}

impl Attributes {
    /// Lays the sets of a tree out for a volume.
    ///
    /// # Errors
    /// If a set does not fit, naming one file that has it.
    pub(crate) fn new(tree: &Tree, sb: &SuperBlock) -> Result<Self, Error> {
        let space =
            usize_of(sb.geometry().inode_size).saturating_sub(128 + usize::from(sb.want_extra_isize()));
        let sets = tree.xattr_sets().iter().enumerate();
        let sets = sets.map(|(index, set)| {
            lay_out(set, space, sb).map_err(|reason| {
                let owner = tree.ids().find(|id| tree.xattr_set(*id).is_some_and(|set| set.index() == index));
                let path = owner.map(|id| tree.path(id)).unwrap_or_default();
                Error::Attributes { path: ShownPath::new(&path), reason }
            })
        });
        Ok(Self { sets: sets.collect::<Result<_, _>>()? })
    }

    /// A set's layout.
    pub(crate) fn get(&self, id: XattrSetId) -> &SetLayout {
        &self.sets[id.index()]
    }

    /// The layout of the set with this index.
    pub(crate) fn by_index(&self, index: usize) -> &SetLayout {
        &self.sets[index]
    }

    /// Number of sets.
    pub(crate) fn len(&self) -> usize {
        self.sets.len()
    }
}

fn lay_out(set: &[Xattr], space: usize, sb: &SuperBlock) -> Result<SetLayout, String> {
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
    let placed = xattr::layout(&attrs, space, Some(sb.geometry().block_size)).map_err(|room| {
        format!(
            "they need {} bytes where an inode and a block have {} (larger blocks with -b, or larger inodes with -I, \
             have more)",
            room.needed, room.room
        )
    })?;
    Ok(SetLayout { inode_area: placed.inode_area, block: placed.block })
}
