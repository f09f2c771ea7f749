//! The header of a quota file: what it is, the grace periods, and where its lists begin.

use super::{BlockIndex, Kind, QuotaRead, QuotaWrite, corrupt, set_u32, u32_at};
use crate::error::Unsupported;

/// The version of the format: records of 72 bytes.
const VERSION: u32 = 1;
/// How long a soft limit may be exceeded, unless the file says otherwise: 7 days.
const GRACE: u32 = 7 * 24 * 3600;

/// What the header says beside the file's kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Info {
    /// For how many seconds the soft limit of space may be exceeded.
    pub space_grace: u32,
    /// The same for inodes.
    pub inode_grace: u32,
    /// Flags, which mean nothing in files of this format.
    pub(super) flags: u32,
    /// Blocks in use or on a list: all before this one.
    pub(super) blocks: u32,
    /// The first block without a use; 0 for none.
    pub(super) free_block: u32,
    /// The first leaf with room; 0 for none.
    pub(super) free_leaf: u32,
}

impl Info {
    /// That of a tree of an empty root.
    #[must_use]
    pub const fn empty() -> Self {
        Self { space_grace: GRACE, inode_grace: GRACE, flags: 0, blocks: 2, free_block: 0, free_leaf: 0 }
    }

    /// Reads the header of a file.
    ///
    /// # Errors
    /// [`Corrupt`](crate::Corrupt) or [`Unsupported`] with what is wrong, and where.
    pub fn read<F: QuotaRead + ?Sized>(file: &F) -> Result<Self, F::Error> {
        let wrong = |what: String| Err(corrupt(file, BlockIndex::HEADER, what).into());
        if file.len() < 2 {
            return wrong(format!("it has {} blocks of 1 KiB, and a tree needs two", file.len()));
        }
        let block = file.block(BlockIndex::HEADER)?;
        let (magic, version) = (u32_at(&block, 0), u32_at(&block, 4));
        if magic != file.kind().magic() {
            return wrong(format!("its magic is {magic:#010x}, not {:#010x}", file.kind().magic()));
        }
        if version != VERSION {
            let what = format!("{} has version {version} of the format, not 1", file.kind().structure());
            return Err(Unsupported(what).into());
        }
        let info = Self {
            space_grace: u32_at(&block, 8),
            inode_grace: u32_at(&block, 12),
            flags: u32_at(&block, 16),
            blocks: u32_at(&block, 20),
            free_block: u32_at(&block, 24),
            free_leaf: u32_at(&block, 28),
        };
        if !(2..=file.len()).contains(&info.blocks) {
            return wrong(format!("it counts {} blocks, and the file has {}", info.blocks, file.len()));
        }
        for (list, first) in [("unused blocks", info.free_block), ("leaves with room", info.free_leaf)] {
            if first != 0 && !info.has_node(first) {
                return wrong(format!("its list of {list} begins with block {first} of {}", info.blocks));
            }
        }
        Ok(info)
    }

    /// Writes the header.
    ///
    /// # Errors
    /// As [`QuotaWrite::edit`].
    pub fn write<F: QuotaWrite + ?Sized>(&self, file: &mut F) -> Result<(), F::Error> {
        let kind = file.kind();
        file.edit(BlockIndex::HEADER, |block| self.render(kind, block))
    }

    /// Writes the header into the first block of a file, of at least 32 bytes.
    ///
    /// # Panics
    /// If it is shorter.
    pub fn render(&self, kind: Kind, block: &mut [u8]) {
        let fields = [
            kind.magic(),
            VERSION,
            self.space_grace,
            self.inode_grace,
            self.flags,
            self.blocks,
            self.free_block,
            self.free_leaf,
        ];
        for (nr, field) in fields.into_iter().enumerate() {
            set_u32(block, 4 * nr, field);
        }
    }

    /// Whether a block may be a node below the root, a leaf, or on a list.
    pub(super) const fn has_node(&self, nr: u32) -> bool {
        nr > BlockIndex::ROOT.get() && nr < self.blocks
    }
}
