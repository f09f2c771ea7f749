//! Lists a directory, in pieces, while it changes.
//!
//! Where records lie says nothing about what has been listed: a split moves half a leaf. So a directory that
//! has or can get an index is listed in the order of its names' hashes, `.` and `..` first, and a [`Cookie`]
//! is a point in that order. A directory that will stay a list (no `dir_index`, several blocks already, or an
//! unknown hash function) never moves records; it is listed in the order of the disk, and a cookie is a byte
//! offset.
//!
//! Guarantee: a name that is in the directory from the first call to the last is listed exactly once,
//! whatever is inserted and removed in between, also when the list becomes an index. A cookie has room for 47
//! bits of the hash. Of names that agree in all of these it counts how many remain, so a listing continues
//! correctly however many of those already listed are removed. Only if another name with these same 47 bits,
//! not listed yet, is inserted or removed can one of them be left out or listed twice.
//!
//! Memory: one leaf's entries, and those that share one major hash with its last. More than 59000 of the
//! latter are refused (only names made to collide get there).
//!
//! Hazard: entries that don't belong into their leaf would be listed in the wrong place, so they are corrupt.

use super::hash::DirHash;
use super::leaf::Leaf;
use super::tree::{Index, Path, each_block, load, lookup, open_index};
use super::{DirRead, Entry, FileType, Format, HashVersion, Hasher, Name, index};
use crate::checksum::crc32c;
use crate::{Corrupt, Unsupported};
use hectare_units::{InodeNr, LogicalBlock, index_of, low32, u64_of};
use std::ops::{ControlFlow, Range};

/// A point in a directory's listing; less than 2^63. 0 is the start.
///
/// Only a listing of the same directory can use it. It outlives the process: a directory that isn't changed
/// keeps its cookies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Cookie(u64);

impl Cookie {
    /// Before the first entry.
    pub const START: Self = Self(0);
    const AFTER_DOT: Self = Self(1);
    const AFTER_DOTS: Self = Self(2);

    /// Wraps a raw value, which may be any: it lists from wherever it points.
    #[must_use]
    pub const fn new(n: u64) -> Self {
        Self(n)
    }
    /// The raw value.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The point where `remaining` of the entries that share `key` are still to come.
    fn inside(key: u64, remaining: usize) -> Self {
        Self(key << 16 | (0xffff - u64_of(remaining)))
    }
    fn key(self) -> u64 {
        self.0 >> 16
    }
    fn remaining(self) -> usize {
        index_of(0xffff - (self.0 & 0xffff))
    }
}

/// Names that share a major hash, or a cookie's key, which are listed; more are refused. With the 5461 of one
/// more leaf these stay below 65533, so that no cookie of key 0 looks like those of the dots.
const ALIKE_MAX: usize = 59_000;

/// An entry of a listing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryRef<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The inode it leads to.
    pub inode: InodeNr,
    /// That inode's type, as the record says it.
    pub file_type: FileType,
    /// Where to continue after this entry.
    pub next: Cookie,
}

/// Shows the entries from `cookie` on, until `visit` breaks off or there are no more. An entry on which
/// `visit` breaks off has been shown; to have it again, continue from the `next` of the one before.
///
/// # Errors
/// The store's, [`Corrupt`] where the directory is, [`Unsupported`] where too many names collide. Entries
/// shown before an error are right.
pub fn read_dir<S: DirRead>(
    store: &S,
    format: &Format,
    cookie: Cookie,
    visit: &mut dyn FnMut(EntryRef<'_>) -> ControlFlow<()>,
) -> Result<(), S::Error> {
    let index = open_index(store, format)?;
    let one_block = format.index && !store.is_indexed() && store.blocks() == 1;
    if index.is_none() && !one_block {
        return list_by_offset(store, format, cookie, visit);
    }
    if list_dots(store, format, cookie, visit)?.is_break() {
        return Ok(());
    }
    let hasher = index.as_ref().map_or_else(|| format.hasher(format.hash_version), |(index, _)| index.hasher);
    let mut batch = Batch { hasher, items: Vec::new(), names: Vec::new() };
    match index {
        Some(index) => list_leaves(store, format, index, &mut batch, cookie, visit),
        None => {
            batch.add(store, format, LogicalBlock::ZERO)?;
            batch.sort();
            _ = batch.show(batch.items.len(), cookie, visit);
            Ok(())
        }
    }
}

/// The byte offset of a record, as a cookie of a listing in the order of the disk.
fn offset_cookie(format: &Format, at: LogicalBlock, within: usize) -> Cookie {
    Cookie(at.offset(format.block_size).get() + u64_of(within))
}

fn list_by_offset<S: DirRead>(
    store: &S,
    format: &Format,
    cookie: Cookie,
    visit: &mut dyn FnMut(EntryRef<'_>) -> ControlFlow<()>,
) -> Result<(), S::Error> {
    let indexed = store.is_indexed();
    let Ok(first) = u32::try_from(cookie.0 >> format.block_size.shift()) else { return Ok(()) };
    each_block(store, first, |at, block| {
        for record in index::records(&block, format, at, indexed, store.place(at))? {
            let record = record?;
            let Some(Entry { name, inode, file_type }) = record.entry() else { continue };
            // A record before the cookie has been listed, or was merged with one that has.
            if offset_cookie(format, at, record.offset) < cookie {
                continue;
            }
            let next = offset_cookie(format, at, record.offset + record.len);
            if visit(EntryRef { name: name.bytes(), inode, file_type, next }).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(())
}

fn list_dots<S: DirRead>(
    store: &S,
    format: &Format,
    cookie: Cookie,
    visit: &mut dyn FnMut(EntryRef<'_>) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, S::Error> {
    for (name, next) in [(Name::DOT, Cookie::AFTER_DOT), (Name::DOT_DOT, Cookie::AFTER_DOTS)] {
        if cookie >= next {
            continue;
        }
        if let Some(found) = lookup(store, format, name)? {
            let entry = EntryRef { name: name.bytes(), inode: found.inode, file_type: found.file_type, next };
            if visit(entry).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }
    Ok(ControlFlow::Continue(()))
}

fn list_leaves<S: DirRead>(
    store: &S,
    format: &Format,
    (index, root): (Index, S::Block),
    batch: &mut Batch,
    cookie: Cookie,
    visit: &mut dyn FnMut(EntryRef<'_>) -> ControlFlow<()>,
) -> Result<(), S::Error> {
    // The upper 31 bits of a key are a major hash without its bit 0.
    let from = low32(cookie.key() >> 16).saturating_mul(2);
    let mut path = Path::probe(store, format, &index, root, from)?;
    for _ in 0..store.blocks() {
        let (leaf, low) = (path.leaf, path.low);
        let added = batch.add(store, format, leaf)?;
        let next = path.advance(store, format)?;
        batch.check_range(added, low, next).map_err(|what| misplaced(store, leaf, what))?;
        if next.is_some_and(|next| next & !1 == low & !1) {
            // One hash fills leaf after leaf: none of its names can be put in order before all are there.
            batch.check_alike(store, leaf)?;
            continue;
        }
        batch.sort();
        let complete = batch.below(next);
        if batch.show(complete, cookie, visit).is_break() || next.is_none() {
            return Ok(());
        }
        batch.drop_first(complete);
    }
    Err(misplaced(store, path.leaf, "it names more leaves than there are").into())
}

fn misplaced<S: DirRead>(store: &S, at: LogicalBlock, what: &'static str) -> Corrupt {
    Corrupt::new("directory index", store.place(at), what)
}

/// Entries collected to be put in order.
struct Batch {
    hasher: Hasher,
    items: Vec<Item>,
    names: Vec<u8>,
}

struct Item {
    hash: DirHash,
    inode: InodeNr,
    file_type: FileType,
    name: Range<usize>,
}

impl Item {
    /// The 47 bits of the hash that a cookie holds.
    fn key(&self) -> u64 {
        u64::from(self.hash.major >> 1) << 16 | u64::from(self.hash.minor >> 16)
    }
}

impl Batch {
    /// Collects the entries of a leaf, the dots aside; says from where on in `items`.
    fn add<S: DirRead>(
        &mut self,
        store: &S,
        format: &Format,
        at: LogicalBlock,
    ) -> Result<Range<usize>, S::Error> {
        let start = self.items.len();
        let block = load(store, at)?;
        for record in Leaf::parse(&block, format, store.place(at))?.records() {
            let Some(Entry { name, inode, file_type }) = record?.entry() else { continue };
            if name.is_dot() {
                if at != LogicalBlock::ZERO {
                    return Err(misplaced(store, at, "a leaf holds . or ..").into());
                }
                continue;
            }
            let from = self.names.len();
            self.names.extend_from_slice(name.bytes());
            let hash = self.hash(name.bytes());
            self.items.push(Item { hash, inode, file_type, name: from..self.names.len() });
        }
        Ok(start..self.items.len())
    }

    /// The hash that orders a listing. The legacy function has no minor hash; another takes its place.
    fn hash(&self, name: &[u8]) -> DirHash {
        let hash = self.hasher.hash(name);
        match self.hasher.version() {
            HashVersion::Legacy => DirHash { minor: crc32c(!0, name), ..hash },
            HashVersion::HalfMd4 | HashVersion::Tea => hash,
        }
    }

    /// Whether the entries just added belong into a leaf from `low` up to the next leaf's `high`.
    fn check_range(&self, added: Range<usize>, low: u32, high: Option<u32>) -> Result<(), &'static str> {
        if high.is_some_and(|high| high < low) {
            return Err("its hashes are out of order");
        }
        let right = self.items[added].iter().all(|item| {
            // `high` itself belongs here only if the next leaf continues it, which its bit 0 says.
            item.hash.major >= low & !1 && high.is_none_or(|high| item.hash.major < high)
        });
        if right { Ok(()) } else { Err("the leaf holds a name whose hash belongs elsewhere") }
    }

    fn check_alike<S: DirRead>(&self, store: &S, at: LogicalBlock) -> Result<(), Unsupported> {
        if self.items.len() <= ALIKE_MAX {
            return Ok(());
        }
        let place = store.place(at);
        Err(Unsupported(format!("listing the directory {place}: more than {ALIKE_MAX} names hash alike")))
    }

    fn sort(&mut self) {
        let names = &self.names;
        self.items.sort_by(|a, b| {
            let order = a.hash.cmp(&b.hash);
            order.then_with(|| names[a.name.clone()].cmp(&names[b.name.clone()]))
        });
    }

    /// How many of the sorted entries come before everything that the leaves from `high` on can hold.
    fn below(&self, high: Option<u32>) -> usize {
        high.map_or(self.items.len(), |high| self.items.partition_point(|item| item.hash.major < high & !1))
    }

    /// Shows those of the first `count` sorted entries that come after `cookie`.
    fn show(
        &self,
        count: usize,
        cookie: Cookie,
        visit: &mut dyn FnMut(EntryRef<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        for alike in self.items[..count].chunk_by(|a, b| a.key() == b.key()) {
            let key = alike[0].key();
            if key < cookie.key() {
                continue;
            }
            let wanted = if key == cookie.key() { cookie.remaining() } else { alike.len() };
            let listed = alike.len().saturating_sub(wanted);
            for (i, item) in alike.iter().enumerate().skip(listed) {
                let next = Cookie::inside(key, alike.len() - 1 - i);
                visit(EntryRef {
                    name: &self.names[item.name.clone()],
                    inode: item.inode,
                    file_type: item.file_type,
                    next,
                })?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Forgets the first `count` entries.
    fn drop_first(&mut self, count: usize) {
        self.items.drain(..count);
        let names = std::mem::take(&mut self.names);
        for item in &mut self.items {
            let from = self.names.len();
            self.names.extend_from_slice(&names[item.name.clone()]);
            item.name = from..self.names.len();
        }
    }
}
