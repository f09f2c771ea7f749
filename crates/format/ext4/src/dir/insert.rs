//! Inserts a name into a directory: the list grows, becomes an index, and the index grows.
//!
//! Every step that grows the directory adds one block and then makes edits that can't run out of space: the
//! leaf that a one-block list is moved to, the second half of a full leaf or index node, the node that takes
//! over a full root's table. After each of them the directory is consistent, so an insertion that fails for
//! want of space halfway leaves a sound directory behind. After a split of index blocks the path from the
//! root is looked up anew instead of being repaired.
//!
//! Before all that comes a [`search`], which changes nothing: one walk over the leaf finds that the name
//! isn't there and where it fits. A caller with more to do before the name can go in, such as making its
//! inode, does it between the search and [`insert_at`], and doesn't begin where the name is taken.
//!
//! Hazard: names of one hash may need more than one leaf. A split inside such a run sets the continuation
//! bit; a split beside it is preferred where both halves fit.

use super::index::{self, IndexEntry, NODE_BASE, ROOT_BASE, Root, Table};
use super::leaf::{self, Leaf, Packer};
use super::record::{self, Scan};
use super::tree::{
    FoundEntry, Frame, Index, Path, each_block, find_continued, found, load, lookup, open_index_to_write,
};
use super::{DirRead, DirWrite, Entry, Format, Name};
use crate::{Corrupt, Place};
use hectare_units::{InodeNr, LogicalBlock};
use std::ops::ControlFlow;

/// How many different blocks one insertion may edit or add: the root, an old and a new node on each of two
/// levels, an old and a new leaf, and the node that is added when the index grows a level.
pub const INSERT_BLOCKS_MAX: u32 = 8;

/// How an insertion ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Insert {
    /// The name is in.
    Done,
    /// The name was there already; nothing has changed. [`insert_at`] never returns this.
    Exists,
    /// The index, or the directory, is as large as this volume's features allow (`ENOSPC`). The name is not
    /// in.
    IndexFull,
}

/// What the search for a name that is to be put in came to.
#[derive(Clone, Debug)]
pub enum Search<B> {
    /// The name is there.
    Found(FoundEntry),
    /// It isn't, and this is where [`insert_at`] can put it.
    Absent(Spot<B>),
}

/// Where a name that isn't in a directory goes. Of use until the directory is next changed, for that name
/// only.
#[derive(Clone, Debug)]
pub struct Spot<B> {
    /// The block and the record in it whose slack is enough; `None` if space must be made.
    room: Option<(LogicalBlock, B, usize)>,
}

/// Looks for `name`, and for where it goes if it isn't there. Nothing is changed.
///
/// # Errors
/// The store's, [`Corrupt`] where the directory is, [`Unsupported`](crate::Unsupported) if its index can't be
/// kept right.
pub fn search<S: DirRead>(store: &S, format: &Format, name: Name<'_>) -> Result<Search<S::Block>, S::Error> {
    if store.blocks() == 0 {
        // No name can be added either, and what it would lead to is made first.
        return Err(Corrupt::new("directory", store.place(LogicalBlock::ZERO), "it has no blocks").into());
    }
    match open_index_to_write(store, format)? {
        Some((index, root)) => search_indexed(store, format, &index, root, name),
        None => search_listed(store, format, name),
    }
}

fn search_listed<S: DirRead>(
    store: &S,
    format: &Format,
    name: Name<'_>,
) -> Result<Search<S::Block>, S::Error> {
    let mut room = None;
    let there = each_block(store, 0, |at, block| {
        match Leaf::parse(&block, format, store.place(at))?.scan(name)? {
            Scan::Found(record) => {
                return Ok(found(at, &record).map_or(ControlFlow::Continue(()), ControlFlow::Break));
            }
            Scan::Absent { room: Some(offset) } if room.is_none() => room = Some((at, block, offset)),
            Scan::Absent { .. } => {}
        }
        Ok(ControlFlow::Continue(()))
    })?;
    if there.is_none() && room.is_none() && store.blocks() == 1 && format.index {
        check_convertible(store, format, name)?;
    }
    Ok(there.map_or(Search::Absent(Spot { room }), Search::Found))
}

/// Returns an error if the only block of a list, which has no room for a name as it lies, can neither be packed
/// for it nor become an index: what the name would lead to is made before [`insert_at`] finds that out.
fn check_convertible<S: DirRead>(store: &S, format: &Format, name: Name<'_>) -> Result<(), S::Error> {
    let place = store.place(LogicalBlock::ZERO);
    let block = load(store, LogicalBlock::ZERO)?;
    let entries = used(&block, format, place)?;
    let is_packed = total_space(&entries) + record::space(name.bytes().len()) <= format.leaf_end();
    if !is_packed {
        let _ = dots_first(&entries, place)?;
    }
    Ok(())
}

fn search_indexed<S: DirRead>(
    store: &S,
    format: &Format,
    index: &Index,
    root: S::Block,
    name: Name<'_>,
) -> Result<Search<S::Block>, S::Error> {
    // The dots aren't where their hashes say.
    if name.is_dot()
        && let Some(found) = lookup(store, format, name)?
    {
        return Ok(Search::Found(found));
    }
    let hash = index.hasher.hash(name.bytes()).major;
    let mut path = Path::probe(store, format, index, root, hash)?;
    let at = path.leaf;
    let block = load(store, at)?;
    let scan = Leaf::parse(&block, format, store.place(at))?.scan(name)?;
    let there = match scan {
        Scan::Found(record) => found(at, &record),
        Scan::Absent { .. } => find_continued(store, format, &mut path, hash, name)?,
    };
    let room = match scan {
        Scan::Absent { room: Some(offset) } => Some((at, block, offset)),
        Scan::Absent { room: None } => {
            // Its entries are about to be moved.
            used(&block, format, store.place(at))?;
            None
        }
        Scan::Found(_) => None,
    };
    Ok(there.map_or(Search::Absent(Spot { room }), Search::Found))
}

/// Puts `entry` in, unless its name is there.
///
/// # Errors
/// The store's (what [`append`](DirWrite::append) says when the volume is full comes through here, with the
/// directory still sound), [`Corrupt`] where the directory is, [`Unsupported`](crate::Unsupported) if its
/// index can't be kept right.
pub fn insert<S: DirWrite>(store: &mut S, format: &Format, entry: &Entry<'_>) -> Result<Insert, S::Error> {
    match search(store, format, entry.name)? {
        Search::Found(_) => Ok(Insert::Exists),
        Search::Absent(spot) => insert_at(store, format, spot, entry),
    }
}

/// Puts `entry` where a [`search`] for its name found that it goes. The directory has not changed since.
///
/// # Errors
/// As [`insert()`].
pub fn insert_at<S: DirWrite>(
    store: &mut S,
    format: &Format,
    spot: Spot<S::Block>,
    entry: &Entry<'_>,
) -> Result<Insert, S::Error> {
    match spot.room {
        Some((at, block, offset)) => {
            let place = store.place(at);
            store.edit_read(at, block, |block| leaf::put_at(block, format, place, entry, offset))??;
            Ok(Insert::Done)
        }
        None => insert_growing(store, format, entry),
    }
}

/// Puts the entry in where it has no room yet.
fn insert_growing<S: DirWrite>(
    store: &mut S,
    format: &Format,
    entry: &Entry<'_>,
) -> Result<Insert, S::Error> {
    if let Some((index, _)) = open_index_to_write(store, format)? {
        return insert_indexed(store, format, index, entry);
    }
    let only_block = match store.blocks() {
        0 => {
            let place = store.place(LogicalBlock::ZERO);
            return Err(Corrupt::new("directory", place, "it has no blocks").into());
        }
        blocks => blocks == 1,
    };
    // An order by hash, which the cookies of such a directory promise, lets its records move.
    if only_block && format.index && repack(store, format, LogicalBlock::ZERO, entry)? {
        return Ok(Insert::Done);
    }
    if store.blocks() >= format.blocks_max() {
        return Ok(Insert::IndexFull);
    }
    if only_block && format.index {
        let index = convert(store, format)?;
        return insert_indexed(store, format, index, entry);
    }
    let at = store.append()?;
    store.edit(at, |block| {
        let mut packer = Packer::new(block, format);
        packer.push(entry);
        packer.finish();
    })?;
    Ok(Insert::Done)
}

/// Moves the records of block `at` together and puts the entry behind them, if that makes enough room.
fn repack<S: DirWrite>(
    store: &mut S,
    format: &Format,
    at: LogicalBlock,
    entry: &Entry<'_>,
) -> Result<bool, S::Error> {
    let copy = load(store, at)?.to_vec();
    let mut entries = used(&copy, format, store.place(at))?;
    entries.push(*entry);
    if total_space(&entries) > format.leaf_end() {
        return Ok(false);
    }
    write_leaf(store, format, at, &entries)?;
    Ok(true)
}

/// The entries of a leaf.
fn used<'a>(block: &'a [u8], format: &Format, place: Place) -> Result<Vec<Entry<'a>>, Corrupt> {
    let mut entries = Vec::new();
    for record in Leaf::parse(block, format, place)?.records() {
        entries.extend(record?.entry());
    }
    Ok(entries)
}

fn space(entry: &Entry<'_>) -> usize {
    record::space(entry.name.bytes().len())
}

fn total_space(entries: &[Entry<'_>]) -> usize {
    entries.iter().map(space).sum()
}

fn write_leaf<S: DirWrite>(
    store: &mut S,
    format: &Format,
    at: LogicalBlock,
    entries: &[Entry<'_>],
) -> Result<(), S::Error> {
    store.edit(at, |block| {
        let mut packer = Packer::new(block, format);
        for entry in entries {
            packer.push(entry);
        }
        packer.finish();
    })
}

/// Turns a list of one block into an index with one leaf.
fn convert<S: DirWrite>(store: &mut S, format: &Format) -> Result<Index, S::Error> {
    let root = LogicalBlock::ZERO;
    let place = store.place(root);
    let copy = load(store, root)?.to_vec();
    let entries = used(&copy, format, place)?;
    let FirstBlock { dots, others } = dots_first(&entries, place)?;
    let leaf = store.append()?;
    write_leaf(store, format, leaf, others)?;
    let info = Root { hash_code: format.hash_version.code(), node_levels: 0 };
    store.edit(root, |block| {
        index::init_root(block, format, dots, info, &[IndexEntry { hash: 0, child: leaf }]);
    })?;
    store.set_indexed(true)?;
    Ok(Index { node_levels: 0, hasher: format.hasher(format.hash_version) })
}

/// The entries of a directory's first block, if it starts with the two dots.
struct FirstBlock<'e, 'a> {
    dots: (InodeNr, InodeNr),
    others: &'e [Entry<'a>],
}

fn dots_first<'e, 'a>(entries: &'e [Entry<'a>], place: Place) -> Result<FirstBlock<'e, 'a>, Corrupt> {
    let wrong =
        || Corrupt::new("directory block", place, "it does not start with . and .. and hold them once");
    let [dot, dot_dot, others @ ..] = entries else { return Err(wrong()) };
    let in_place = dot.name == Name::DOT && dot_dot.name == Name::DOT_DOT;
    let once = !others.iter().any(|entry| entry.name.is_dot());
    let dots = (dot.inode, dot_dot.inode);
    if in_place && once { Ok(FirstBlock { dots, others }) } else { Err(wrong()) }
}

fn insert_indexed<S: DirWrite>(
    store: &mut S,
    format: &Format,
    mut index: Index,
    entry: &Entry<'_>,
) -> Result<Insert, S::Error> {
    let hash = index.hasher.hash(entry.name.bytes()).major;
    loop {
        let root = load(store, LogicalBlock::ZERO)?;
        let path = Path::probe(store, format, &index, root, hash)?;
        let leaf = path.leaf;
        let (block, place) = (load(store, leaf)?, store.place(leaf));
        // Where a list has just become an index, its dots have left room.
        if let Scan::Absent { room: Some(offset) } = Leaf::parse(&block, format, place)?.scan(entry.name)? {
            store.edit_read(leaf, block, |block| leaf::put_at(block, format, place, entry, offset))??;
            return Ok(Insert::Done);
        }
        drop(block);
        if repack(store, format, leaf, entry)? {
            return Ok(Insert::Done);
        }
        if store.blocks() >= format.blocks_max() {
            return Ok(Insert::IndexFull);
        }
        // Full blocks at the end of the path; the one above them can take one entry more.
        let full = path.frames.iter().rev().take_while(|frame| frame.is_full).count();
        match path.frames.len() - full {
            above if full == 0 => {
                split_leaf(store, format, &index, leaf, &path.frames[above - 1], entry)?;
                return Ok(Insert::Done);
            }
            0 if path.frames.len() == format.levels_max() => return Ok(Insert::IndexFull),
            0 => {
                add_level(store, format, &path.frames[0])?;
                index.node_levels += 1;
            }
            // Each split makes room one level further down, so this ends after as many turns as there are
            // levels.
            above => split_node(store, format, &path.frames[above - 1], &path.frames[above])?,
        }
    }
}

/// Splits a full leaf in two by hash, the new entry included.
fn split_leaf<S: DirWrite>(
    store: &mut S,
    format: &Format,
    index: &Index,
    leaf: LogicalBlock,
    parent: &Frame,
    entry: &Entry<'_>,
) -> Result<(), S::Error> {
    let copy = load(store, leaf)?.to_vec();
    let mut hashed: Vec<(u32, Entry<'_>)> = used(&copy, format, store.place(leaf))?
        .into_iter()
        .chain([*entry])
        .map(|entry| (index.hasher.hash(entry.name.bytes()).major, entry))
        .collect();
    hashed.sort_by_key(|(hash, _)| *hash);
    let at = split_point(&hashed, format.leaf_end());
    let continued = u32::from(hashed[at - 1].0 == hashed[at].0);
    let hash = hashed[at].0 | continued;
    let entries: Vec<Entry<'_>> = hashed.into_iter().map(|(_, entry)| entry).collect();
    let child = store.append()?;
    write_leaf(store, format, child, &entries[at..])?;
    write_leaf(store, format, leaf, &entries[..at])?;
    add_entry(store, format, parent, IndexEntry { hash, child })
}

/// Where to split sorted entries so that both parts fit a leaf: between different hashes if that is possible,
/// and then as evenly as possible.
///
/// Such a point exists: what overfills a leaf of at least 1000 bytes has at least four entries of at most 264
/// bytes.
fn split_point(hashed: &[(u32, Entry<'_>)], capacity: usize) -> usize {
    let total: usize = hashed.iter().map(|(_, entry)| space(entry)).sum();
    let mut first = 0;
    let cuts = hashed.windows(2).enumerate().filter_map(|(i, pair)| {
        first += space(&pair[0].1);
        let fits = first <= capacity && total - first <= capacity;
        fits.then_some((pair[0].0 == pair[1].0, first.abs_diff(total - first), i + 1))
    });
    cuts.min().map_or(hashed.len() / 2, |(_, _, at)| at)
}

/// Puts `entry` behind the one that `frame` followed.
fn add_entry<S: DirWrite>(
    store: &mut S,
    format: &Format,
    frame: &Frame,
    entry: IndexEntry,
) -> Result<(), S::Error> {
    let mut entries = table_entries(store, format, frame)?;
    entries.insert(frame.position + 1, entry);
    store.edit(frame.at, |block| index::put_entries(block, frame.base(), format, &entries))
}

fn table_entries<S: DirWrite>(
    store: &S,
    format: &Format,
    frame: &Frame,
) -> Result<Vec<IndexEntry>, S::Error> {
    let block = load(store, frame.at)?;
    Ok(Table::parse(&block, frame.base(), format, store.place(frame.at))?.entries())
}

/// Moves the upper half of a full node into a new one.
fn split_node<S: DirWrite>(
    store: &mut S,
    format: &Format,
    parent: &Frame,
    node: &Frame,
) -> Result<(), S::Error> {
    let mut lower = table_entries(store, format, node)?;
    let upper = lower.split_off(lower.len() / 2);
    let child = store.append()?;
    store.edit(child, |block| index::init_node(block, format, &upper))?;
    store.edit(node.at, |block| index::put_entries(block, NODE_BASE, format, &lower))?;
    add_entry(store, format, parent, IndexEntry { hash: upper[0].hash, child })
}

/// Moves the full root's table into a new node, the root's only child.
fn add_level<S: DirWrite>(store: &mut S, format: &Format, root: &Frame) -> Result<(), S::Error> {
    let place = store.place(root.at);
    let node_levels = Root::parse(&load(store, root.at)?, format, place)?.node_levels;
    let entries = table_entries(store, format, root)?;
    let child = store.append()?;
    store.edit(child, |block| index::init_node(block, format, &entries))?;
    store.edit(root.at, |block| {
        index::put_entries(block, ROOT_BASE, format, &[IndexEntry { hash: 0, child }]);
        index::set_node_levels(block, node_levels + 1);
    })
}
