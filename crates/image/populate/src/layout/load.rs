//! The content of a volume, as far as it does not depend on the volume's size: computed once, used at every
//! size that the search tries.

use super::attributes::Attributes;
use super::inline::InlineNodes;
use super::kept::Kept;
use crate::error::ShownPath;
use crate::image_error::ImageError as Error;
use crate::tree::{Kind, NodeId, Tree};
use hectare_ext4::dir::{self, Fill, Format};
use hectare_ext4::superblock::SuperBlock;
use hectare_ext4::verity::{Algorithm, Params};
use hectare_units::low32;

/// The name of the directory that every volume has.
pub(crate) const LOST_AND_FOUND: &[u8] = b"lost+found";

/// Bytes of the blocks that fs-verity hashes, unless the volume's are smaller: as the tool fsverity.
const VERITY_BLOCK: u32 = 4096;

/// A tree with the sizes of its directories and the layout of its attributes.
pub(crate) struct Load<'t> {
    pub(crate) tree: &'t Tree,
    pub(crate) attributes: Attributes,
    pub(crate) format: Format,
    /// The tree's own lost+found: an empty directory that the formatter's stands in for.
    pub(crate) stand_in: Option<NodeId>,
    /// What lies in inodes.
    inline: InlineNodes,
    /// Blocks of each directory, by node.
    directories: Vec<u32>,
    /// What is kept of an old image.
    pub(crate) kept: Option<Kept>,
    /// How files that are to be sealed are hashed.
    pub(crate) verity: Params,
}

impl<'t> Load<'t> {
    /// Computes what `tree` takes in volumes like that of `sb`, whatever their size.
    ///
    /// # Errors
    /// If attributes or a directory can't be stored; the error names the file.
    pub(crate) fn new(tree: &'t Tree, sb: &SuperBlock) -> Result<Self, Error> {
        let stand_in = own_lost_and_found(tree)?;
        let attributes = Attributes::new(tree, sb)?;
        if let Some(id) = stand_in
            && tree
                .xattr_set(id)
                .is_some_and(|set| attributes.has_block(set) || attributes.values_of(set).len() > 0)
        {
            let reason = "lost+found has room in its inode only; larger inodes (-I 256) have more".to_owned();
            return Err(Error::Attributes { path: ShownPath::new(LOST_AND_FOUND), reason });
        }
        let inline = InlineNodes::new(tree, &attributes, sb).map_err(hectare_ext4::FormatError::from)?;
        let format = Format::of(sb).map_err(hectare_ext4::FormatError::from)?;
        let block = sb.geometry().block_size.get().min(VERITY_BLOCK);
        let verity = Params::new(Algorithm::Sha256, block, &[]).expect("blocks of volumes can be hashed");
        let mut load =
            Self { tree, attributes, format, stand_in, inline, directories: Vec::new(), kept: None, verity };
        load.directories = load.directory_sizes()?;
        Ok(load)
    }

    /// Blocks that a directory takes; 0 for other nodes.
    pub(crate) fn directory_blocks(&self, id: NodeId) -> u32 {
        self.directories[id.index()]
    }

    /// Whether a node's content lies in its inode.
    pub(crate) fn is_inline(&self, id: NodeId) -> bool {
        self.inline.has(id)
    }

    /// Files whose content lies in their inodes.
    pub(crate) fn inline_files(&self) -> usize {
        self.inline.files(self.tree)
    }

    /// Whether the root directory needs an entry for lost+found beside those of the tree.
    pub(crate) fn adds_lost_and_found(&self) -> bool {
        self.stand_in.is_none()
    }

    /// Inodes the tree needs beside the formatter's and the root's.
    pub(crate) fn inodes(&self) -> u64 {
        let nodes = self.tree.len() - 1 - usize::from(self.stand_in.is_some());
        hectare_units::u64_of(nodes + self.attributes.values().len())
    }

    fn directory_sizes(&self) -> Result<Vec<u32>, Error> {
        let tree = self.tree;
        let mut sizes = vec![0; tree.len()];
        for id in tree.ids().filter(|id| matches!(tree.kind(*id), Kind::Directory)) {
            if Some(id) == self.stand_in || self.is_inline(id) {
                continue;
            }
            let extra = (id == NodeId::ROOT && self.adds_lost_and_found()).then_some(LOST_AND_FOUND);
            let names = tree.children(id).map(|(name, _)| name).chain(extra);
            let names = names.map(|name| dir::Name::new(name).expect("a tree's names can be in a directory"));
            let blocks = dir::blocks_needed(names, &self.format, Fill::DEFAULT).map_err(|error| {
                Error::Directory { path: ShownPath::new(&tree.path(id)), reason: error.to_string() }
            })?;
            sizes[id.index()] = low32(blocks.get()); // a directory has at most 2^32 blocks
        }
        Ok(sizes)
    }
}

/// The tree's own `/lost+found`. One that is empty is replaced by the volume's.
fn own_lost_and_found(tree: &Tree) -> Result<Option<NodeId>, Error> {
    let Some((_, id)) = tree.children(NodeId::ROOT).find(|(name, _)| *name == LOST_AND_FOUND) else {
        return Ok(None);
    };
    let reason = match tree.kind(id) {
        Kind::Directory if tree.children(id).len() == 0 => return Ok(Some(id)),
        Kind::Directory => {
            "every volume has a directory of that name for what a check finds, and this one is not empty; \
             leave it out with --exclude /lost+found"
        }
        _ => "every volume has a directory of that name; leave this one out with --exclude /lost+found",
    };
    Err(Error::Directory { path: ShownPath::new(&tree.path(id)), reason: reason.into() })
}
