//! Checks the htree of a directory: every index block, and which hashes each leaf may hold.
//!
//! A directory with an index names each of its blocks but the root once, in order of hashes, all leaves at
//! the same depth. An index that breaks a rule is reported, and the leaves are then read without it.

use crate::context::directory::Directory;
use crate::context::reader::Reader;
use crate::report::{Error, What};
use hectare_ext4::dir::{Format, HashVersion, Hasher};
use hectare_ext4::error::Place;
use hectare_ext4::inode::InodeFlags;
use hectare_units::{LogicalBlock, memory, usize_of};

/// Where the root's own fields and its table start, and a node's table.
const INFO: usize = 24;
const ROOT_BASE: usize = 32;
const NODE_BASE: usize = 8;
/// Bytes of an entry, and of what holds the checksum.
const ENTRY: usize = 8;
const TAIL: usize = 8;
const BLOCK_MASK: u32 = 0x0fff_ffff;

/// What a block of an indexed directory is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// The index does not say.
    Unknown,
    /// Block 0.
    Root,
    /// An index block.
    Node,
    /// Names of these hashes, both ends included.
    Leaf { low: u32, high: u32 },
}

/// A sound index.
pub(crate) struct Plan {
    roles: Vec<Role>,
    pub(crate) hasher: Hasher,
}

impl Plan {
    pub(crate) fn role(&self, at: LogicalBlock) -> Role {
        self.roles.get(usize_of(at.get())).copied().unwrap_or(Role::Unknown)
    }
}

/// A walk over an index.
struct Walk<'a> {
    directory: &'a Directory,
    roles: Vec<Role>,
    checksums: bool,
}

/// What is wrong with an index, and in which block.
type Wrong = (LogicalBlock, String);

impl Reader<'_> {
    /// Reads a directory's index, all of whose blocks are there; returns `None`, and reports a problem, if it
    /// is corrupt or can't be judged.
    pub(crate) fn read_index(
        &mut self,
        directory: &Directory,
        format: &Format,
    ) -> Result<Option<Plan>, Error> {
        let mut root = self.block();
        if !self.scan.read_file_block(&directory.runs, 0, &mut root)? {
            return Ok(None);
        }
        let result = self.walk_index(directory, format, &root)?;
        let (hasher, roles) = match result {
            Ok(found) => found,
            Err((at, reason)) => {
                self.tell(What::Index, Place::FileBlock(directory.nr, at), reason);
                return Ok(None);
            }
        };
        if directory.flags.contains(InodeFlags::CASEFOLD) && format.folding.is_none() {
            return Ok(None); // hashes of encrypted folded names are not judged
        }
        Ok(hasher.map(|hasher| Plan { roles, hasher }))
    }

    #[expect(clippy::type_complexity, reason = "used once")]
    fn walk_index(
        &mut self,
        directory: &Directory,
        format: &Format,
        root: &[u8],
    ) -> Result<Result<(Option<Hasher>, Vec<Role>), Wrong>, Error> {
        let zero = LogicalBlock::ZERO;
        let [r0, r1, r2, r3, hash, info_len, levels, flags] =
            match root.get(INFO..).and_then(<[u8]>::first_chunk) {
                Some(info) => *info,
                None => return Ok(Err((zero, "it is too short".into()))),
            };
        let levels_max = if format.large_dir { 2 } else { 1 };
        if [r0, r1, r2, r3] != [0; 4] || info_len != 8 || levels > levels_max || flags & 1 != 0 {
            let reason = format!("its info of {info_len} bytes says {levels} levels, flags {flags:#04x}");
            return Ok(Err((zero, reason)));
        }
        let siphash = 6;
        let hasher = match HashVersion::from_code(hash) {
            Ok(version) => Some(format.hasher(version)),
            Err(_) if hash == siphash && directory.flags.contains(InodeFlags::CASEFOLD) => None,
            Err(what) => return Ok(Err((zero, what.0))),
        };
        let roles = memory::filled(Role::Unknown, usize_of(directory.blocks))?;
        let mut walk = Walk { directory, roles, checksums: format.checksums };
        if let Some(role) = walk.roles.first_mut() {
            *role = Role::Root;
        }
        if let Err(wrong) = self.index_table(&mut walk, zero, root, levels, (0, u32::MAX))? {
            return Ok(Err(wrong));
        }
        match walk.roles.iter().position(|role| *role == Role::Unknown) {
            Some(at) => Ok(Err((zero, format!("no entry leads to block {at}")))),
            None => Ok(Ok((hasher, walk.roles))),
        }
    }

    /// One table and what it leads to; recursion is bounded by the levels.
    fn index_table(
        &mut self,
        walk: &mut Walk<'_>,
        at: LogicalBlock,
        block: &[u8],
        levels: u8,
        (low, high): (u32, u32),
    ) -> Result<Result<(), Wrong>, Error> {
        let entries = match table(block, at, walk.checksums) {
            Ok(entries) => entries,
            Err(reason) => return Ok(Err((at, reason))),
        };
        for (i, (hash, child)) in entries.iter().enumerate() {
            let start = if i == 0 { low } else { hash & !1 };
            let end = entries.get(i + 1).map_or(high, |(next, _)| next & !1);
            if start > end || start < low || end > high {
                return Ok(Err((at, format!("entry {i} of hash {hash:#010x} is out of order"))));
            }
            let Some(role) = walk.roles.get_mut(usize_of(*child)).filter(|role| **role == Role::Unknown)
            else {
                return Ok(Err((
                    at,
                    format!("entry {i} leads to block {child}, beyond the end or led to twice"),
                )));
            };
            if levels == 0 {
                *role = Role::Leaf { low: start, high: end };
                continue;
            }
            *role = Role::Node;
            let mut below = self.block();
            let child = LogicalBlock::new(*child);
            let inner = if self.scan.read_file_block(&walk.directory.runs, child.get(), &mut below)? {
                self.index_table(walk, child, &below, levels - 1, (start, end))?
            } else {
                Err((child, "it is a hole".into()))
            };
            if inner.is_err() {
                return Ok(inner);
            }
        }
        Ok(Ok(()))
    }
}

/// The entries of the table in an index block: hash (without meaning in the first) and block.
fn table(block: &[u8], at: LogicalBlock, checksums: bool) -> Result<Vec<(u32, u32)>, String> {
    let base = if at == LogicalBlock::ZERO { ROOT_BASE } else { NODE_BASE };
    let half = |at: usize| match block.get(at..at + 2) {
        Some([a, b]) => u16::from_le_bytes([*a, *b]),
        _ => 0,
    };
    let word = |at: usize| u32::from(half(at)) | u32::from(half(at + 2)) << 16;
    if base == NODE_BASE {
        let len = usize::from(half(4));
        let spans = len == block.len() || (block.len() == 1 << 16 && matches!(len, 0 | 65535));
        if word(0) != 0 || !spans {
            return Err("it is no index block".into());
        }
    }
    let fits = (block.len() - base - if checksums { TAIL } else { 0 }) / ENTRY;
    let (limit, count) = (usize::from(half(base)), usize::from(half(base + 2)));
    if limit != fits || count == 0 || count > limit {
        return Err(format!("it has {count} entries of at most {limit}, where {fits} fit"));
    }
    let entry = |i: usize| (word(base + i * ENTRY), word(base + i * ENTRY + 4) & BLOCK_MASK);
    Ok((0..count).map(entry).collect())
}
