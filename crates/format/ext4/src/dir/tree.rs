//! Finds, removes and replaces names in a whole directory, indexed or not.
//!
//! Hazards: an index from a hostile image may lead anywhere. A descent takes at most as many steps as the
//! format has levels, a walk along leaves that share a hash visits at most as many leaves as the directory
//! has blocks, and every child is checked to lie inside the directory. Nothing depends on the hashes being in
//! order.
//!
//! A directory whose index can't be used (an unknown hash function, or a volume without `dir_index`) is read
//! as a list, which every directory also is, and refused for writing.

use super::index::{self, NODE_BASE, ROOT_BASE, Root, Table};
use super::{DirRead, DirWrite, FileType, Format, HashVersion, Hasher, Name, leaf, record::Record};
use crate::{Corrupt, Unsupported};
use hectare_units::{InodeNr, LogicalBlock, low32, u64_of};
use std::ops::ControlFlow;

/// Holes a directory may have before it is called corrupt; sound ones have none.
const HOLES_MAX: u32 = 1 << 16;

/// Where a record lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryPosition {
    /// The block of the directory.
    pub block: LogicalBlock,
    /// The byte inside that block.
    pub offset: u32,
}

/// What a name leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundEntry {
    /// The inode.
    pub inode: InodeNr,
    /// Its type, as the record says it.
    pub file_type: FileType,
    /// Where the record lies, until the directory is next changed.
    pub at: EntryPosition,
}

/// Finds `name`.
///
/// # Errors
/// The store's, and [`Corrupt`] where the directory is.
pub fn lookup<S: DirRead>(
    store: &S,
    format: &Format,
    name: Name<'_>,
) -> Result<Option<FoundEntry>, S::Error> {
    match open_index(store, format)? {
        Some((index, root)) if !name.is_dot() => lookup_indexed(store, format, &index, root, name),
        _ => lookup_listed(store, format, name),
    }
}

/// Removes `name`, and returns what it led to. `.` and `..` are never removed: for them this is `None`.
///
/// # Errors
/// The store's, [`Corrupt`] where the directory is, [`Unsupported`] if its index can't be kept right.
pub fn remove<S: DirWrite>(
    store: &mut S,
    format: &Format,
    name: Name<'_>,
) -> Result<Option<FoundEntry>, S::Error> {
    open_index_to_write(store, format)?;
    if name.is_dot() {
        return Ok(None);
    }
    let Some(found) = lookup(store, format, name)? else { return Ok(None) };
    let place = store.place(found.at.block);
    store.edit(found.at.block, |block| leaf::remove(block, format, place, found.at.offset))??;
    Ok(Some(found))
}

/// Points `name`, which may be `..`, to another inode, and returns what it led to before. `None`, and nothing
/// changed, if there is no such name.
///
/// # Errors
/// The store's, [`Corrupt`] where the directory is, [`Unsupported`] if its index can't be kept right.
pub fn replace<S: DirWrite>(
    store: &mut S,
    format: &Format,
    name: Name<'_>,
    inode: InodeNr,
    file_type: FileType,
) -> Result<Option<FoundEntry>, S::Error> {
    open_index_to_write(store, format)?;
    let Some(found) = lookup(store, format, name)? else { return Ok(None) };
    let place = store.place(found.at.block);
    store.edit(found.at.block, |block| {
        leaf::set_target(block, format, place, found.at.offset, inode, file_type)
    })??;
    Ok(Some(found))
}

/// Whether the directory holds nothing but `.` and `..`.
///
/// # Errors
/// The store's, and [`Corrupt`] where the directory is.
pub fn is_empty<S: DirRead>(store: &S, format: &Format) -> Result<bool, S::Error> {
    let indexed = store.is_indexed();
    let found = each_block(store, 0, |at, block| {
        for record in index::records(&block, format, at, indexed, store.place(at))? {
            if record?.entry().is_some_and(|entry| !entry.name.is_dot()) {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found.is_none())
}

/// An index that can be used.
pub(super) struct Index {
    pub(super) node_levels: usize,
    pub(super) hasher: Hasher,
}

/// An index and the block of its root.
pub(super) type Opened<S> = Option<(Index, <S as DirRead>::Block)>;

/// The directory's index, if it has one and its hash function is known.
pub(super) fn open_index<S: DirRead>(store: &S, format: &Format) -> Result<Opened<S>, S::Error> {
    if !format.index || !store.is_indexed() {
        return Ok(None);
    }
    let block = load(store, LogicalBlock::ZERO)?;
    let root = Root::parse(&block, format, store.place(LogicalBlock::ZERO))?;
    let Ok(version) = HashVersion::from_code(root.hash_code) else { return Ok(None) };
    Ok(Some((Index { node_levels: root.node_levels, hasher: format.hasher(version) }, block)))
}

/// The directory's index, if it has one. One that can't be kept right is an error.
pub(super) fn open_index_to_write<S: DirRead>(store: &S, format: &Format) -> Result<Opened<S>, S::Error> {
    if !store.is_indexed() {
        return Ok(None);
    }
    let place = store.place(LogicalBlock::ZERO);
    if !format.index {
        let reason = format!("writing to the indexed directory {place} of a volume without dir_index");
        return Err(Unsupported(reason).into());
    }
    let block = load(store, LogicalBlock::ZERO)?;
    let root = Root::parse(&block, format, place)?;
    let version = HashVersion::from_code(root.hash_code)
        .map_err(|what| Unsupported(format!("writing to the directory {place}: {what}")))?;
    Ok(Some((Index { node_levels: root.node_levels, hasher: format.hasher(version) }, block)))
}

/// A block that something refers to, so that it must exist.
pub(super) fn load<S: DirRead>(store: &S, at: LogicalBlock) -> Result<S::Block, S::Error> {
    let missing = |reason: &'static str| Corrupt::new("directory", store.place(at), reason);
    if at.get() >= store.blocks() {
        return Err(missing("the block lies beyond its end").into());
    }
    store.block(at)?.ok_or_else(|| missing("the block is a hole").into())
}

/// Shows the blocks from `first` on until `visit` breaks off. Holes are passed over.
pub(super) fn each_block<S: DirRead, T>(
    store: &S,
    first: u32,
    mut visit: impl FnMut(LogicalBlock, S::Block) -> Result<ControlFlow<T>, S::Error>,
) -> Result<Option<T>, S::Error> {
    let mut holes = 0;
    for at in (first..store.blocks()).map(LogicalBlock::new) {
        match store.block(at)? {
            Some(block) => {
                if let ControlFlow::Break(found) = visit(at, block)? {
                    return Ok(Some(found));
                }
            }
            None if holes < HOLES_MAX => holes += 1,
            None => {
                let reason = format!("it has more than {HOLES_MAX} holes");
                return Err(Corrupt::new("directory", store.place(at), reason).into());
            }
        }
    }
    Ok(None)
}

/// What a used record leads to.
pub(super) fn found(at: LogicalBlock, record: &Record<'_>) -> Option<FoundEntry> {
    let at = EntryPosition { block: at, offset: low32(u64_of(record.offset)) };
    record.inode.map(|inode| FoundEntry { inode, file_type: record.file_type, at })
}

fn lookup_listed<S: DirRead>(
    store: &S,
    format: &Format,
    name: Name<'_>,
) -> Result<Option<FoundEntry>, S::Error> {
    let indexed = store.is_indexed();
    each_block(store, 0, |at, block| {
        let records = index::records(&block, format, at, indexed, store.place(at))?;
        Ok(match records.find_name(name)?.and_then(|record| found(at, &record)) {
            Some(found) => ControlFlow::Break(Some(found)),
            // The dots are in block 0 or nowhere.
            None if name.is_dot() => ControlFlow::Break(None),
            None => ControlFlow::Continue(()),
        })
    })
    .map(Option::flatten)
}

fn lookup_indexed<S: DirRead>(
    store: &S,
    format: &Format,
    index: &Index,
    root: S::Block,
    name: Name<'_>,
) -> Result<Option<FoundEntry>, S::Error> {
    let hash = index.hasher.hash(name.bytes()).major;
    let mut path = Path::probe(store, format, index, root, hash)?;
    let at = path.leaf;
    let block = load(store, at)?;
    if let Some(record) = leaf::Leaf::parse(&block, format, store.place(at))?.find(name)? {
        return Ok(found(at, &record));
    }
    find_continued(store, format, &mut path, hash, name)
}

/// Looks for `name` in the leaves after the one a path leads to, as far as they continue its hash.
pub(super) fn find_continued<S: DirRead>(
    store: &S,
    format: &Format,
    path: &mut Path,
    hash: u32,
    name: Name<'_>,
) -> Result<Option<FoundEntry>, S::Error> {
    for _ in 0..store.blocks() {
        // Names of this hash continue in the next leaf only if that one says so.
        if path.next_low() != Some(hash | 1) || path.advance(store, format)?.is_none() {
            return Ok(None);
        }
        let at = path.leaf;
        let block = load(store, at)?;
        if let Some(record) = leaf::Leaf::parse(&block, format, store.place(at))?.find(name)? {
            return Ok(found(at, &record));
        }
    }
    Err(Corrupt::new("directory index", store.place(path.leaf), "it names more leaves than there are").into())
}

/// A step of the way from the root to a leaf.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    /// The index block.
    pub(super) at: LogicalBlock,
    /// The entry of its table that was followed.
    pub(super) position: usize,
    /// Whether its table is full.
    pub(super) is_full: bool,
    /// The hash of the entry after that one, if there is one.
    next: Option<u32>,
}

impl Frame {
    /// Where this block's table starts; only block 0 is a root.
    pub(super) fn base(&self) -> usize {
        base_of(self.at)
    }
}

fn base_of(at: LogicalBlock) -> usize {
    if at == LogicalBlock::ZERO { ROOT_BASE } else { NODE_BASE }
}

/// The way from the root to a leaf: different blocks, all of them inside the directory.
#[derive(Debug)]
pub(super) struct Path {
    /// The index blocks, root first; never empty.
    pub(super) frames: Vec<Frame>,
    /// The leaf.
    pub(super) leaf: LogicalBlock,
    /// The hash from which the leaf starts, with its continuation bit; 0 for the first leaf.
    pub(super) low: u32,
}

impl Path {
    /// The way to the first leaf that can hold names of `hash`.
    pub(super) fn probe<S: DirRead>(
        store: &S,
        format: &Format,
        index: &Index,
        root: S::Block,
        hash: u32,
    ) -> Result<Self, S::Error> {
        let mut path = Self { frames: Vec::with_capacity(3), leaf: LogicalBlock::ZERO, low: 0 };
        path.descend_in(store, format, root, |table| table.search(hash))?;
        for _ in 0..index.node_levels {
            path.descend(store, format, |table| table.search(hash))?;
        }
        Ok(path)
    }

    /// The hash from which the next leaf starts, with its continuation bit; `None` after the last leaf.
    pub(super) fn next_low(&self) -> Option<u32> {
        self.frames.iter().rev().find_map(|frame| frame.next)
    }

    /// Advances to the next leaf and returns the hash it starts from, with its continuation bit. After the
    /// last leaf, `None`, and the path can't be used any more.
    pub(super) fn advance<S: DirRead>(
        &mut self,
        store: &S,
        format: &Format,
    ) -> Result<Option<u32>, S::Error> {
        let levels = self.frames.len();
        while self.frames.pop_if(|frame| frame.next.is_none()).is_some() {}
        let Some(frame) = self.frames.pop() else { return Ok(None) };
        self.leaf = frame.at;
        self.descend(store, format, |_| frame.position + 1)?;
        while self.frames.len() < levels {
            self.descend(store, format, |_| 0)?;
        }
        Ok(Some(self.low))
    }

    /// Reads the index block in `leaf` and follows the entry that `choose` picks.
    fn descend<S: DirRead>(
        &mut self,
        store: &S,
        format: &Format,
        choose: impl FnOnce(&Table<'_>) -> usize,
    ) -> Result<(), S::Error> {
        let block = load(store, self.leaf)?;
        self.descend_in(store, format, block, choose)
    }

    /// Descends from a block that was read already.
    fn descend_in<S: DirRead>(
        &mut self,
        store: &S,
        format: &Format,
        block: S::Block,
        choose: impl FnOnce(&Table<'_>) -> usize,
    ) -> Result<(), S::Error> {
        let at = self.leaf;
        let table = Table::parse(&block, base_of(at), format, store.place(at))?;
        let position = choose(&table).min(table.count() - 1);
        if position > 0 {
            self.low = table.hash(position);
        }
        self.leaf = table.child(position);
        let next = (position + 1 < table.count()).then(|| table.hash(position + 1));
        self.frames.push(Frame { at, position, is_full: table.is_full(), next });
        if self.frames.iter().any(|frame| frame.at == self.leaf) {
            let reason = "an index block lies below itself";
            return Err(Corrupt::new("directory index", store.place(at), reason).into());
        }
        Ok(())
    }
}
