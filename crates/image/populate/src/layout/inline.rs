//! Which nodes have their content in their inodes (`inline_data`), and that content.
//!
//! A file or directory lies in its inode if it fits beside the attributes that are there. That is
//! known before any data is read; the content of files is read with all other data and kept until inodes are
//! made. The root directory stays in blocks, as the formatter makes it, and so do files that share blocks. Long
//! links do, too: e2fsck (1.47) overlooks the attribute block of a link in its inode, and counts none for quotas.

use super::attributes::Attributes;
use super::file_type::file_type;
use crate::tree::{Kind, NodeId, Tree};
use hectare_ext4::feature::Incompat;
use hectare_ext4::inline::{self, Rows};
use hectare_ext4::superblock::SuperBlock;
use hectare_ext4::{Corrupt, Place};
use hectare_units::{Bytes, InodeNr};
use parking_lot::Mutex;
use std::collections::HashMap;

/// The nodes whose content lies in their inodes.
#[derive(Default)]
pub(crate) struct InlineNodes {
    /// By node; empty if there are none.
    which: Vec<bool>,
}

impl InlineNodes {
    /// Finds them in a tree.
    ///
    /// # Errors
    /// Never for attributes that were just laid out.
    pub(crate) fn new(tree: &Tree, attributes: &Attributes, sb: &SuperBlock) -> Result<Self, Corrupt> {
        if !sb.features().incompat.contains(Incompat::INLINE_DATA) {
            return Ok(Self::default());
        }
        let rooms = (0..attributes.len())
            .map(|set| inline::room(attributes.area(set), Place::Volume))
            .collect::<Result<Vec<_>, _>>()?;
        let plain = inline::room(&attributes.empty_area(), Place::Volume)?;
        let room = |id| tree.xattr_set(id).map_or(plain, |set| rooms[set.index()]);
        let fits = |id: NodeId| room(id).is_some_and(|room| is_inline(tree, id, room));
        Ok(Self { which: tree.ids().map(fits).collect() })
    }

    /// Whether a node's content lies in its inode.
    pub(crate) fn has(&self, id: NodeId) -> bool {
        self.which.get(id.index()).copied().unwrap_or(false)
    }

    /// How many there are.
    pub(crate) fn files(&self, tree: &Tree) -> usize {
        tree.ids().filter(|id| self.has(*id) && matches!(tree.kind(*id), Kind::File { .. })).count()
    }
}

/// Whether the content of a node fits so many bytes of its inode.
fn is_inline(tree: &Tree, id: NodeId, room: usize) -> bool {
    match tree.kind(id) {
        Kind::File { size } => {
            let shares = tree.first_equal(id).is_some() || tree.has_equals(id);
            size > Bytes::ZERO && size <= Bytes::of(room) && !shares && !tree.is_sealed(id)
        }
        Kind::Directory => {
            // Twelve bytes are the smallest record.
            id != NodeId::ROOT
                && tree.children(id).len() <= room / 12
                && rows(tree, id, InodeNr::ROOT, &mut |_| InodeNr::ROOT, false).content().len() <= room
        }
        _ => false,
    }
}

/// The entries of a directory.
pub(super) fn rows(
    tree: &Tree,
    id: NodeId,
    parent: InodeNr,
    inode_of: &mut dyn FnMut(NodeId) -> InodeNr,
    filetype: bool,
) -> Rows {
    let mut rows = Rows::empty(parent);
    for (name, child) in tree.children(id) {
        let code = if filetype { file_type(&tree.kind(child)).code() } else { 0 };
        rows.insert(name, inode_of(child), code);
    }
    rows
}

/// The content of files that lies in their inodes, as it was read.
#[derive(Default)]
pub(crate) struct InlineContents {
    pub(super) files: Mutex<HashMap<NodeId, Box<[u8]>>>,
}

impl InlineContents {
    /// Keeps the content of a file.
    pub(crate) fn put(&self, id: NodeId, bytes: Vec<u8>) {
        self.files.lock().insert(id, bytes.into());
    }

    /// How many are kept.
    pub(crate) fn len(&self) -> usize {
        self.files.lock().len()
    }
}
