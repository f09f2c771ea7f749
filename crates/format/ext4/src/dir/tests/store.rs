//! A directory in memory, names to fill it with, and a check of the whole tree.

use super::super::index::{NODE_BASE, ROOT_BASE, Root, Shape, Table};
use super::super::leaf::{Leaf, init_dots};
use super::super::*;
use crate::checksum::Seed;
use crate::{Corrupt, FormatError, Place};
use hectare_units::{InodeNr, LogicalBlock};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::rc::Rc;

pub(super) const OWN: InodeNr = InodeNr::new(40);
pub(super) const PARENT: InodeNr = InodeNr::new(2);

#[derive(Clone)]
pub(super) struct VecStore {
    pub(super) blocks: Vec<Option<Rc<[u8]>>>,
    pub(super) indexed: bool,
    pub(super) block_size: usize,
    /// Appending beyond this many blocks fails.
    pub(super) capacity: usize,
}

impl VecStore {
    pub(super) fn new(format: &Format) -> Self {
        let mut block = vec![0; format.block_size.len()];
        init_dots(&mut block, format, OWN, PARENT);
        Self::from_bytes(&block, format, false)
    }

    pub(super) fn from_bytes(bytes: &[u8], format: &Format, indexed: bool) -> Self {
        let block_size = format.block_size.len();
        let blocks = bytes.chunks(block_size).map(|block| Some(block.into())).collect();
        Self { blocks, indexed, block_size, capacity: usize::MAX }
    }

    /// All blocks one after another, with checksums.
    pub(super) fn sealed(&self, format: &Format, seed: Option<Seed>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (i, block) in self.blocks.iter().enumerate() {
            let at = LogicalBlock::new(i.try_into().unwrap());
            let mut block = block.as_ref().unwrap().to_vec();
            set_checksum(&mut block, format, seed, at, self.indexed, self.place(at)).unwrap();
            verify_block(&block, format, seed, at, self.indexed, self.place(at)).unwrap();
            bytes.extend(block);
        }
        bytes
    }
}

impl DirRead for VecStore {
    type Error = FormatError;
    type Block = Rc<[u8]>;

    fn block(&self, at: LogicalBlock) -> Result<Option<Rc<[u8]>>, FormatError> {
        Ok(self.blocks[at.get() as usize].clone())
    }
    fn blocks(&self) -> u32 {
        self.blocks.len().try_into().unwrap()
    }
    fn is_indexed(&self) -> bool {
        self.indexed
    }
    fn place(&self, at: LogicalBlock) -> Place {
        Place::FileBlock(OWN, at)
    }
}

impl DirWrite for VecStore {
    fn edit<R>(&mut self, at: LogicalBlock, f: impl FnOnce(&mut [u8]) -> R) -> Result<R, FormatError> {
        Ok(f(Rc::make_mut(self.blocks[at.get() as usize].as_mut().unwrap())))
    }
    fn append(&mut self) -> Result<LogicalBlock, FormatError> {
        if self.blocks.len() >= self.capacity {
            return Err(Corrupt::new("test volume", Place::Volume, "full").into());
        }
        self.blocks.push(Some(vec![0; self.block_size].into()));
        Ok(LogicalBlock::new(self.blocks() - 1))
    }
    fn set_indexed(&mut self, indexed: bool) -> Result<(), FormatError> {
        self.indexed = indexed;
        Ok(())
    }
}

pub(super) fn format(block_size: u64, checksums: bool, large_dir: bool) -> Format {
    Format {
        block_size: BlockSize::from_bytes(block_size).unwrap(),
        filetype: true,
        checksums,
        index: true,
        large_dir,
        hash_version: HashVersion::HalfMd4,
        hash_signedness: Signedness::Signed,
        hash_seed: [0x1111_2222, 0x3333_4444, 0x5555_6666, 0x7777_8888],
        opaque_names: false,
        folding: None,
    }
}

pub(super) fn name(bytes: &[u8]) -> Name<'_> {
    Name::new(bytes).unwrap()
}

pub(super) fn entry(bytes: &[u8], inode: u32) -> Entry<'_> {
    Entry { name: name(bytes), inode: InodeNr::new(inode), file_type: FileType::Regular }
}

/// Name `i` of a family in which all have one TEA hash, major and minor: flipping the top bits of two words
/// of the key at once doesn't change the cipher. `i` has 2 bits for every 16 of the `len` bytes.
pub(super) fn tea_twin(len: usize, i: u32) -> Vec<u8> {
    let mut name = vec![b'q'; len];
    for bit in 0..len / 8 {
        if i >> bit & 1 == 1 {
            name[bit * 8] ^= 0x80;
            name[bit * 8 + 4] ^= 0x80;
        }
    }
    name
}

pub(super) type Listing = BTreeMap<Vec<u8>, (u32, FileType)>;

/// One whole listing. Names that come twice are refused.
pub(super) fn list(store: &VecStore, format: &Format) -> Listing {
    let mut all = Listing::new();
    read_dir(store, format, Cookie::START, &mut |entry| {
        let before = all.insert(entry.name.to_vec(), (entry.inode.get(), entry.file_type));
        assert_eq!(before, None, "{:?} is listed twice", entry.name);
        ControlFlow::Continue(())
    })
    .unwrap();
    all
}

/// Walks the whole index and insists on what the module promises of it.
pub(super) fn check(store: &VecStore, format: &Format) {
    if !store.indexed {
        return;
    }
    let place = Place::Inode(OWN);
    let root = Root::parse(store.blocks[0].as_ref().unwrap(), format, place).unwrap();
    let hasher = format.hasher(HashVersion::from_code(root.hash_code).unwrap());
    let mut seen = vec![false; store.blocks.len()];
    check_block(store, format, &hasher, &mut seen, 0, root.node_levels + 1, (0, None));
    assert!(seen.iter().all(|seen| *seen), "a block is not in the index");
}

fn check_block(
    store: &VecStore,
    format: &Format,
    hasher: &Hasher,
    seen: &mut [bool],
    at: usize,
    levels: usize,
    (low, high): (u32, Option<u32>),
) {
    let place = Place::FileBlock(OWN, LogicalBlock::new(at.try_into().unwrap()));
    assert!(!std::mem::replace(&mut seen[at], true), "block {at} is in the index twice");
    let block = store.blocks[at].as_ref().unwrap();
    if levels == 0 {
        for record in Leaf::parse(block, format, place).unwrap().records() {
            let Some(entry) = record.unwrap().entry() else { continue };
            let hash = hasher.hash(entry.name.bytes()).major;
            assert!(
                hash >= low & !1 && high.is_none_or(|high| hash < high),
                "{entry:?} is in the wrong leaf"
            );
        }
        return;
    }
    if at != 0 {
        assert_eq!(Shape::of(block, LogicalBlock::new(1), true), Shape::Node);
    }
    let table = Table::parse(block, if at == 0 { ROOT_BASE } else { NODE_BASE }, format, place).unwrap();
    for i in 0..table.count() {
        let from = if i == 0 { low } else { table.hash(i) };
        let to = if i + 1 == table.count() { high } else { Some(table.hash(i + 1)) };
        assert!(to.is_none_or(|to| from <= to), "hashes out of order in block {at}");
        check_block(store, format, hasher, seen, table.child(i).get() as usize, levels - 1, (from, to));
    }
}
