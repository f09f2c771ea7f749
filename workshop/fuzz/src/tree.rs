//! Stores in memory for the algorithms over several blocks: extent trees, indirect maps, directories.
//!
//! Any block number leads to an existing block, so that pointers to nowhere don't end the walk of a tree of
//! arbitrary bytes early. Like the real stores, they return blocks that are held while they are read and
//! copied when they are changed.

use crate::input::Input;
use crate::patch;
use hectare_ext4::casefold::Folding;
use hectare_ext4::dir::{DirRead, DirWrite, Format, HashVersion, Signedness};
use hectare_ext4::dir::{Entry, FileType, Insert, Name, insert, leaf};
use hectare_ext4::error::{Corrupt, FormatError, Place, Unsupported};
use hectare_ext4::extent::{self, Extent, ROOT_LEN, TreeGeometry, TreeRead, TreeWrite, check_block};
use hectare_units::{BlockNr, BlockSize, Blocks, InodeNr, LogicalBlock, index_of, u64_of};
use std::rc::Rc;

/// Blocks that a store lets itself grow by.
const GROWTH_MAX: usize = 64;
const INODE: InodeNr = InodeNr::new(12);
const FIRST: u64 = 100;

/// Nodes of an extent tree, or tables of an indirect map.
#[derive(Clone)]
pub struct Nodes {
    root: [u8; ROOT_LEN],
    nodes: Vec<Rc<[u8]>>,
    node_len: usize,
    verifies: bool,
    /// Nodes that may still be had.
    budget: usize,
}

impl Nodes {
    /// A root, and nodes of `node_len` bytes cut from what follows; at least one.
    #[must_use]
    pub fn new(root: [u8; ROOT_LEN], bytes: &[u8], node_len: usize, verifies: bool) -> Self {
        let whole = |part: &[u8]| {
            let mut node = part.to_vec();
            node.resize(node_len, 0);
            node.into()
        };
        let mut nodes: Vec<Rc<[u8]>> = bytes.chunks(node_len).map(whole).collect();
        if nodes.is_empty() {
            nodes.push(whole(&[]));
        }
        Self { root, nodes, node_len, verifies, budget: GROWTH_MAX }
    }

    fn index(&self, nr: BlockNr) -> usize {
        index_of(nr.get().saturating_sub(FIRST) % u64_of(self.nodes.len()))
    }

    /// A tree that maps `count` extents, and then what an input makes of its bytes.
    #[must_use]
    pub fn grown(count: u8, node_len: usize, verifies: bool, input: &mut Input<'_>) -> Self {
        let mut tree = Self::new(extent::empty_root(), &[], node_len, false);
        tree.budget = usize::MAX;
        tree.nodes.clear();
        for i in 0..u32::from(count) {
            // In an order that splits nodes in the middle too.
            let at = i * 37 % u32::from(count);
            let physical = BlockNr::new(9000 + 5 * u64::from(at));
            let logical = LogicalBlock::new(4 * at);
            // The multiplier may hit a block twice; that one is refused, which is as good.
            let _ = extent::insert(&mut tree, Extent { logical, len: 2, physical, unwritten: i % 3 == 0 });
        }
        let mut bytes: Vec<u8> = tree.root.to_vec();
        tree.nodes.iter().for_each(|node| bytes.extend_from_slice(node));
        patch::scatter(&mut bytes, input);
        let mut root = [0; ROOT_LEN];
        root.copy_from_slice(&bytes[..ROOT_LEN]);
        Self::new(root, &bytes[ROOT_LEN..], node_len, verifies)
    }

    /// The node that a block number leads to.
    #[must_use]
    pub fn table(&self, nr: BlockNr) -> Rc<[u8]> {
        Rc::clone(&self.nodes[self.index(nr)])
    }

    /// All nodes.
    #[must_use]
    pub fn all(&self) -> &[Rc<[u8]>] {
        &self.nodes
    }

    fn full() -> Corrupt {
        Corrupt::new("the store", Place::Volume, "it is full")
    }
}

impl TreeRead for Nodes {
    type Error = Corrupt;
    type Node = Rc<[u8]>;

    fn root(&self) -> [u8; ROOT_LEN] {
        self.root
    }

    fn node(&self, nr: BlockNr) -> Result<Rc<[u8]>, Corrupt> {
        let node = self.table(nr);
        if self.verifies {
            check_block(&node, nr, &self.geometry(), None)?;
        }
        Ok(node)
    }

    fn geometry(&self) -> TreeGeometry {
        TreeGeometry {
            block_size: BlockSize::KIB1,
            first_data_block: BlockNr::new(1),
            blocks_count: Blocks::new(1 << 20),
            inode: INODE,
        }
    }
}

impl TreeWrite for Nodes {
    fn edit_root<R>(&mut self, change: impl FnOnce(&mut [u8]) -> R) -> R {
        change(&mut self.root)
    }

    fn edit<R>(&mut self, nr: BlockNr, change: impl FnOnce(&mut [u8]) -> R) -> Result<R, Corrupt> {
        let at = self.index(nr);
        let node = &mut self.nodes[at];
        assert_eq!(Rc::strong_count(node), 1, "a node is held while it is changed");
        Ok(change(Rc::make_mut(node)))
    }

    fn allocate(&mut self, _goal: BlockNr) -> Result<BlockNr, Corrupt> {
        self.budget = self.budget.checked_sub(1).ok_or_else(Self::full)?;
        self.nodes.push(vec![0; self.node_len].into());
        Ok(BlockNr::new(FIRST + u64_of(self.nodes.len() - 1)))
    }

    fn free(&mut self, _nr: BlockNr) -> Result<(), Corrupt> {
        Ok(())
    }
}

/// A directory's blocks.
#[derive(Clone)]
pub struct Directory {
    /// The blocks, holes included.
    pub blocks: Vec<Option<Rc<[u8]>>>,
    /// The inode's index flag.
    pub indexed: bool,
    block_len: usize,
    capacity: usize,
}

impl Directory {
    /// Blocks cut from bytes; a block that begins with 0xff everywhere in its first 8 bytes is a hole.
    #[must_use]
    pub fn new(bytes: &[u8], format: &Format, indexed: bool) -> Self {
        let block_len = format.block_size.len();
        let block = |part: &[u8]| {
            let mut block = part.to_vec();
            block.resize(block_len, 0);
            (!block.starts_with(&[0xff; 8])).then(|| block.into())
        };
        let blocks: Vec<_> = bytes.chunks(block_len).map(block).collect();
        let capacity = blocks.len() + GROWTH_MAX;
        Self { blocks, indexed, block_len, capacity }
    }

    /// A directory of `count` names, and then what an input makes of its bytes.
    #[must_use]
    pub fn grown(count: usize, format: &Format, input: &mut Input<'_>) -> Self {
        let mut block = vec![0; format.block_size.len()];
        leaf::init_dots(&mut block, format, INODE, InodeNr::ROOT);
        let mut dir = Self::new(&block, format, false);
        for i in 0..count {
            let text = format!("{}{i}", "name".repeat(1 + i % 50));
            let name = Name::new(text.as_bytes()).expect("a good name");
            let entry = Entry { name, inode: InodeNr::new(20), file_type: FileType::Regular };
            let done = insert(&mut dir, format, &entry).expect("a sound directory takes a name");
            assert_eq!(done, Insert::Done);
        }
        let mut bytes: Vec<u8> = dir.blocks.iter().flatten().flat_map(|block| block.to_vec()).collect();
        patch::scatter(&mut bytes, input);
        Self::new(&bytes, format, dir.indexed)
    }

    fn index(at: LogicalBlock) -> usize {
        index_of(u64::from(at.get()))
    }
}

impl DirRead for Directory {
    type Error = FormatError;
    type Block = Rc<[u8]>;

    fn block(&self, at: LogicalBlock) -> Result<Option<Rc<[u8]>>, FormatError> {
        // Beyond the end is what no caller may ask for.
        Ok(self.blocks[Self::index(at)].clone())
    }

    fn blocks(&self) -> u32 {
        u32::try_from(self.blocks.len()).expect("inputs are small")
    }

    fn is_indexed(&self) -> bool {
        self.indexed
    }

    fn place(&self, at: LogicalBlock) -> Place {
        Place::FileBlock(INODE, at)
    }
}

impl DirWrite for Directory {
    fn edit<R>(&mut self, at: LogicalBlock, f: impl FnOnce(&mut [u8]) -> R) -> Result<R, FormatError> {
        let place = self.place(at);
        let block = self.blocks[Self::index(at)].as_mut();
        let block = block.ok_or_else(|| Corrupt::new("directory", place, "a hole is to be changed"))?;
        Ok(f(Rc::make_mut(block)))
    }

    fn append(&mut self) -> Result<LogicalBlock, FormatError> {
        if self.blocks.len() >= self.capacity {
            return Err(Unsupported("the store is full".to_owned()).into());
        }
        self.blocks.push(Some(vec![0; self.block_len].into()));
        Ok(LogicalBlock::new(self.blocks() - 1))
    }

    fn set_indexed(&mut self, indexed: bool) -> Result<(), FormatError> {
        self.indexed = indexed;
        Ok(())
    }
}

/// A form of directories, from a byte.
#[must_use]
pub fn dir_format(flags: u8) -> Format {
    let versions = [HashVersion::HalfMd4, HashVersion::Tea, HashVersion::Legacy, HashVersion::HalfMd4];
    Format {
        block_size: BlockSize::KIB1,
        filetype: flags & 1 == 0,
        checksums: flags & 2 != 0,
        index: flags & 4 == 0,
        large_dir: flags & 8 != 0,
        hash_version: versions[usize::from(flags >> 4 & 3)],
        hash_signedness: if flags & 64 == 0 { Signedness::Signed } else { Signedness::Unsigned },
        hash_seed: [0x1111_2222, 0x3333_4444, 0x5555_6666, 0x7777_8888],
        opaque_names: flags & 128 != 0,
        // Unsigned hashes of names that are no ciphertext are also of folded ones.
        folding: (flags & 192 == 64).then_some(Folding { strict: false }),
    }
}
