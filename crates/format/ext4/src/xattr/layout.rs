//! Writing attributes: which go in the inode and which in the block, and the bytes of both.
//!
//! The inode is filled first, because reading it costs nothing: `system.data` must be there; the encryption
//! context, security labels, capabilities and ACLs are read with every use of the file and come next; then
//! the rest, in the order of names, whatever still fits. What is left goes to the block. If the block can't
//! take it all, the fullest possible inode is searched for, so that a list that fits in any way is never
//! refused. The result depends only on the set of attributes, not on the order of the list.

use super::raw::{self, END, INODE_HEADER, MAGIC};
use super::{Attr, Index, Name, Value, aligned, block_hash, entry_hash};
use hectare_units::{BlockSize, low8, low16, low32, u64_of};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32};

/// Where a list of attributes went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    /// The bytes behind the inode's fixed fields, exactly as many as there is space; all zero without
    /// attributes.
    pub inode_area: Vec<u8>,
    /// The attribute block, if one is needed: used by one inode, hashes set, its checksum not yet
    /// (see [`seal`](super::seal)).
    pub block: Option<Vec<u8>>,
}

/// The attributes don't fit (`ENOSPC`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the extended attributes take {needed} bytes, there is room for {room}")]
pub struct NoRoom {
    /// Bytes that entries and values take.
    pub needed: usize,
    /// Bytes that inode and block have for them; more than `needed` if no split fits both.
    pub room: usize,
}

/// Places attributes in `inode_space` bytes of an inode and, where `block_size` allows one, a block.
///
/// The names must be distinct. Values in inodes of their own keep their entries; none are made.
///
/// # Errors
/// If they don't fit.
pub fn layout(attrs: &[Attr], inode_space: usize, block_size: Option<BlockSize>) -> Result<Placed, NoRoom> {
    let split = Split::of(attrs, inode_space, block_size)?;
    let inode_area = inode_area(&split.inode, inode_space);
    let block = block_size.filter(|_| !split.block.is_empty()).map(|size| block(split.block, size));
    Ok(Placed { inode_area, block })
}

/// Whether placing these attributes takes a block; what [`layout`] would do, without making the bytes.
///
/// # Errors
/// If they don't fit.
pub fn needs_block(
    attrs: &[Attr],
    inode_space: usize,
    block_size: Option<BlockSize>,
) -> Result<bool, NoRoom> {
    Split::of(attrs, inode_space, block_size).map(|split| !split.block.is_empty())
}

/// Which attributes go where.
struct Split<'a> {
    inode: Vec<&'a Attr>,
    block: Vec<&'a Attr>,
}

impl<'a> Split<'a> {
    fn of(attrs: &'a [Attr], inode_space: usize, block_size: Option<BlockSize>) -> Result<Self, NoRoom> {
        let inode_room = (inode_space & !3).saturating_sub(INODE_HEADER + END);
        let block_room = block_size.map_or(0, |size| size.len() - size_of::<raw::Header>() - END);
        let needed: usize = attrs.iter().map(cost).sum();
        let no_room = NoRoom { needed, room: inode_room + block_room };
        if needed > no_room.room {
            return Err(no_room);
        }
        let mut order: Vec<&Attr> = attrs.iter().collect();
        order.sort_by(|a, b| rank(&a.name).cmp(&rank(&b.name)).then_with(|| a.name.cmp(&b.name)));

        let split = Self::first_fit(&order, inode_room);
        if split.fits(block_room) {
            return Ok(split);
        }
        let split = Self::fullest(&order, inode_room).ok_or(no_room)?;
        if split.fits(block_room) { Ok(split) } else { Err(no_room) }
    }

    /// In order, into the inode what still fits there.
    fn first_fit(order: &[&'a Attr], inode_room: usize) -> Self {
        let mut free = inode_room;
        let (inode, block) = order.iter().partition(|attr| {
            let fits = cost(attr) <= free;
            free -= if fits { cost(attr) } else { 0 };
            fits
        });
        Self { inode, block }
    }

    /// The choice that leaves the fewest bytes for the block: every reachable fill of the inode is tried, in
    /// steps of one aligned word. `None` if what must be in the inode doesn't fit there.
    fn fullest(order: &[&'a Attr], inode_room: usize) -> Option<Self> {
        let pinned: usize = order.iter().filter(|attr| must_be_in_inode(attr)).map(|attr| cost(attr)).sum();
        let words = inode_room.checked_sub(pinned)? / 4;
        // For each fill, the last attribute that led to it; an earlier fill never depends on a later
        // attribute.
        let mut last: Vec<Option<usize>> = vec![None; words + 1];
        for (i, attr) in order.iter().enumerate().filter(|(_, attr)| !must_be_in_inode(attr)) {
            let step = cost(attr) / 4;
            for fill in (step..=words).rev() {
                if last[fill].is_none() && (fill == step || last[fill - step].is_some()) {
                    last[fill] = Some(i);
                }
            }
        }
        let mut chosen = vec![false; order.len()];
        let mut fill = (0..=words).rev().find(|fill| last[*fill].is_some()).unwrap_or(0);
        while let Some(i) = last[fill].filter(|_| fill > 0) {
            chosen[i] = true;
            fill -= cost(order[i]) / 4;
        }
        let in_inode = |i: usize| chosen[i] || must_be_in_inode(order[i]);
        let (inode, block): (Vec<usize>, Vec<usize>) = (0..order.len()).partition(|i| in_inode(*i));
        let pick = |indices: Vec<usize>| indices.into_iter().map(|i| order[i]).collect();
        Some(Self { inode: pick(inode), block: pick(block) })
    }

    fn fits(&self, block_room: usize) -> bool {
        let in_block: usize = self.block.iter().map(|attr| cost(attr)).sum();
        in_block <= block_room && !self.block.iter().any(|attr| must_be_in_inode(attr))
    }
}

/// The order in which attributes are put into the inode.
fn rank(name: &Name) -> u8 {
    match name.index() {
        Index::SYSTEM if name.suffix() == b"data" => 0,
        Index::ENCRYPTION => 1,
        Index::SECURITY | Index::ACL_ACCESS | Index::ACL_DEFAULT => 2,
        _ => 3,
    }
}

fn must_be_in_inode(attr: &Attr) -> bool {
    rank(&attr.name) == 0
}

/// Bytes an attribute takes, entry and value.
fn cost(attr: &Attr) -> usize {
    aligned(size_of::<raw::Entry>() + attr.name.suffix().len())
        .saturating_add(aligned(inline_value(attr).len()))
}

/// The bytes to store beside the entry; none for a value in an inode of its own.
fn inline_value(attr: &Attr) -> &[u8] {
    match &attr.value {
        Value::Inline(bytes) => bytes,
        Value::Inode { .. } => &[],
    }
}

/// The hash an entry carries: a value in an inode of its own is verified by it, so that one is kept;
/// otherwise only entries in a block have one.
fn hash_of(attr: &Attr, area: AreaKind) -> u32 {
    match (&attr.value, area) {
        (Value::Inode { hash, .. }, _) => *hash,
        (Value::Inline(_), AreaKind::Inode) => 0,
        (Value::Inline(value), AreaKind::Block) => entry_hash(attr.name.suffix(), value),
    }
}

/// Which of the two areas is written.
#[derive(Clone, Copy)]
enum AreaKind {
    Inode,
    Block,
}

fn inode_area(attrs: &[&Attr], space: usize) -> Vec<u8> {
    let mut area = vec![0; space];
    if !attrs.is_empty() {
        let (header, body) = area.split_at_mut(INODE_HEADER);
        header.copy_from_slice(&MAGIC.to_le_bytes());
        fill(attrs, body, 0, AreaKind::Inode);
    }
    area
}

fn block(mut attrs: Vec<&Attr>, size: BlockSize) -> Vec<u8> {
    attrs.sort_by(|a, b| a.name.cmp(&b.name));
    let mut block = vec![0; size.len()];
    fill(&attrs, &mut block, size_of::<raw::Header>(), AreaKind::Block);
    let header = raw::Header {
        h_magic: U32::new(MAGIC),
        h_refcount: U32::new(1),
        h_blocks: U32::new(1),
        h_hash: U32::new(block_hash(attrs.iter().map(|attr| hash_of(attr, AreaKind::Block)))),
        h_checksum: U32::ZERO,
        h_reserved: [U32::ZERO; 3],
    };
    block[..size_of::<raw::Header>()].copy_from_slice(header.as_bytes());
    block
}

/// Writes entries from `first` on and values downwards from the last aligned byte; value offsets count from
/// the start of `area`. The caller has made sure that it all fits.
fn fill(attrs: &[&Attr], area: &mut [u8], first: usize, kind: AreaKind) {
    let (mut entry_at, mut value_at) = (first, area.len() & !3);
    for attr in attrs {
        let (suffix, value) = (attr.name.suffix(), inline_value(attr));
        value_at -= aligned(value.len());
        area[value_at..value_at + value.len()].copy_from_slice(value);
        let entry = raw_entry(attr, value_at, hash_of(attr, kind));
        let name_at = entry_at + size_of::<raw::Entry>();
        area[entry_at..name_at].copy_from_slice(entry.as_bytes());
        area[name_at..name_at + suffix.len()].copy_from_slice(suffix);
        entry_at = name_at + aligned(suffix.len());
    }
}

fn raw_entry(attr: &Attr, value_at: usize, hash: u32) -> raw::Entry {
    let (inode, size) = match &attr.value {
        Value::Inline(value) => (0, low32(u64_of(value.len()))),
        Value::Inode { inode, size, .. } => (inode.get(), *size),
    };
    // A value without bytes lies nowhere, which is written as offset 0.
    let value_at = if inline_value(attr).is_empty() { 0 } else { low16(u64_of(value_at)) };
    raw::Entry {
        e_name_len: low8(u64_of(attr.name.suffix().len())),
        e_name_index: attr.name.index().get(),
        e_value_offs: U16::new(value_at),
        e_value_inum: U32::new(inode),
        e_value_size: U32::new(size),
        e_hash: U32::new(hash),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Area, collect, find};
    use super::*;
    use crate::error::Place;
    use hectare_units::InodeNr;
    use proptest::prelude::*;

    const SIZES: [BlockSize; 3] = [BlockSize::KIB1, BlockSize::KIB4, BlockSize::KIB64];

    fn attr(name: &str, len: usize) -> Attr {
        Attr::new(Name::parse(name.as_bytes()).unwrap(), vec![b'v'; len])
    }

    fn read(placed: &Placed) -> Vec<Attr> {
        let inode = Area::in_inode(&placed.inode_area, Place::Volume).unwrap();
        let block = placed.block.as_ref().map(|block| Area::in_block(block, Place::Volume).unwrap());
        for area in inode.iter().chain(&block) {
            area.check_hashes().unwrap();
        }
        collect(inode, block)
    }

    fn sorted(mut attrs: Vec<Attr>) -> Vec<Attr> {
        attrs.sort_by(|a, b| a.name.cmp(&b.name));
        attrs
    }

    fn in_inode(placed: &Placed, name: &str) -> bool {
        let area = Area::in_inode(&placed.inode_area, Place::Volume).unwrap();
        area.is_some_and(|area| area.find(&Name::parse(name.as_bytes()).unwrap()).is_some())
    }

    #[test]
    fn no_attributes_leave_zeros() {
        let placed = layout(&[], 96, Some(BlockSize::KIB4)).unwrap();
        assert_eq!(placed, Placed { inode_area: vec![0; 96], block: None });
    }

    #[test]
    fn security_and_acls_come_before_the_rest() {
        let attrs =
            [attr("user.a", 40), attr("security.capability", 20), attr("system.posix_acl_access", 28)];
        let placed = layout(&attrs, 96 + 16, Some(BlockSize::KIB4)).unwrap();
        assert!(in_inode(&placed, "security.capability") && in_inode(&placed, "system.posix_acl_access"));
        assert!(!in_inode(&placed, "user.a"));
        assert_eq!(sorted(read(&placed)), sorted(attrs.to_vec()));
        assert_eq!(needs_block(&attrs, 96 + 16, Some(BlockSize::KIB4)), Ok(true));
        assert_eq!(needs_block(&attrs, 256, Some(BlockSize::KIB4)), Ok(false));
    }

    #[test]
    fn inline_data_stays_in_the_inode_or_nowhere() {
        let attrs = [attr("system.data", 60), attr("security.selinux", 30)];
        let placed = layout(&attrs, 96, Some(BlockSize::KIB4)).unwrap();
        assert!(in_inode(&placed, "system.data") && !in_inode(&placed, "security.selinux"));
        assert!(layout(&[attr("system.data", 72)], 96, Some(BlockSize::KIB4)).is_err());
    }

    #[test]
    fn the_last_byte_counts() {
        // Inode: 4 mark + 20 entry + 4 end. Block: 32 header + 20 entry + 4 end.
        for (space, len, fits) in [(128, 100, true), (128, 101, false), (130, 100, true)] {
            assert_eq!(layout(&[attr("user.a", len)], space, None).is_ok(), fits, "{space} {len}");
        }
        for (len, fits) in [(968, true), (969, false)] {
            assert_eq!(layout(&[attr("user.a", len)], 0, Some(BlockSize::KIB1)).is_ok(), fits, "{len}");
        }
        assert!(layout(&[attr("user.a", 0)], 28, None).is_ok());
        assert!(layout(&[attr("user.a", 0)], 27, None).is_err());
        assert!(layout(&[attr("user.a", 0)], 0, None).is_err());
    }

    #[test]
    fn a_list_that_fits_somehow_is_not_refused() {
        // They take 40, 100 and 948 bytes; the inode has room for 100 and the block for 988. First fit would
        // put the first in the inode and leave 1048 to the block.
        let attrs = [attr("user.a", 20), attr("user.bb", 80), attr("user.ccc", 928)];
        let placed = layout(&attrs, 4 + 100 + 4, Some(BlockSize::KIB1)).unwrap();
        assert!(in_inode(&placed, "user.bb") && placed.block.is_some());
    }

    #[test]
    fn values_in_other_inodes_keep_their_entries() {
        let value = Value::Inode { inode: InodeNr::new(77), size: 70_000, hash: 0x1234_5678 };
        let attrs = vec![Attr { name: Name::parse(b"user.big").unwrap(), value }, attr("user.small", 3)];
        for space in [0, 40, 96] {
            let placed = layout(&attrs, space, Some(BlockSize::KIB1)).unwrap();
            assert_eq!(sorted(read(&placed)), sorted(attrs.clone()), "{space}");
        }
    }

    fn attrs() -> impl Strategy<Value = Vec<Attr>> {
        let prefix = prop::sample::select(vec!["user.", "trusted.", "security."]);
        let suffix = prop::collection::vec(1u8.., 1..40);
        let value = prop::collection::vec(any::<u8>(), 0..120);
        let one = (prefix, suffix, value).prop_map(|(prefix, suffix, value)| {
            Attr::new(Name::parse(&[prefix.as_bytes(), &suffix].concat()).unwrap(), value)
        });
        let acl = prop::collection::vec(any::<u8>(), 0..60)
            .prop_map(|value| Attr::new(Name::parse(b"system.posix_acl_access").unwrap(), value));
        prop::collection::vec(prop_oneof![8 => one, 1 => acl], 0..20).prop_map(|all| {
            let mut distinct: Vec<Attr> = Vec::new();
            for attr in all {
                if find(&distinct, &attr.name).is_none() {
                    distinct.push(attr);
                }
            }
            distinct
        })
    }

    proptest! {
        #![proptest_config(crate::testing::cases("xattr::layout", 256))]

        #[test]
        fn what_is_placed_is_read_back(
            list in attrs(),
            space in 0usize..600,
            size in prop::option::of(prop::sample::select(SIZES.to_vec())),
        ) {
            let total: usize = list.iter().map(cost).sum();
            match layout(&list, space, size) {
                Ok(placed) => {
                    prop_assert_eq!(placed.inode_area.len(), space);
                    prop_assert_eq!(needs_block(&list, space, size), Ok(placed.block.is_some()));
                    prop_assert_eq!(sorted(read(&placed)), sorted(list.clone()));
                    let mut reversed = list;
                    reversed.reverse();
                    prop_assert_eq!(layout(&reversed, space, size).unwrap(), placed);
                }
                Err(no_room) => {
                    prop_assert_eq!(no_room.needed, total);
                    let block_room = size.map_or(0, |size| size.len() - 36);
                    prop_assert!(total > block_room, "the block alone could take them");
                    prop_assert!(total > space.saturating_sub(11), "the inode alone could take them");
                }
            }
        }

        #[test]
        fn nothing_is_refused_that_fits(
            lens in prop::collection::vec(0usize..300, 1..9),
            space in 0usize..700,
        ) {
            let named = (0u32..).zip(&lens).map(|(n, len)| attr(&format!("user.{n}"), *len));
            let list: Vec<Attr> = named.collect();
            let inode_room = (space & !3).saturating_sub(8);
            let split_fits = |chosen: u32| {
                let (mut inode, mut block) = (0, 0);
                for (n, attr) in (0..).zip(&list) {
                    *(if chosen >> n & 1 == 1 { &mut inode } else { &mut block }) += cost(attr);
                }
                inode <= inode_room && block <= 1024 - 36
            };
            let possible = (0..1u32 << list.len()).any(split_fits);
            prop_assert_eq!(layout(&list, space, Some(BlockSize::KIB1)).is_ok(), possible);
        }

        #[test]
        fn damage_never_panics(
            list in attrs(),
            space in 0usize..300,
            hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        ) {
            let Ok(mut placed) = layout(&list, space, Some(BlockSize::KIB1)) else { return Ok(()) };
            for bytes in placed.block.iter_mut().chain([&mut placed.inode_area]) {
                // Most of what matters is near the front.
                let reach = bytes.len().min(160);
                for (at, byte) in hits.iter().filter(|_| reach > 0) {
                    bytes[at.index(reach)] = *byte;
                }
            }
            let inode = Area::in_inode(&placed.inode_area, Place::Volume).ok().flatten();
            let block = placed.block.as_ref().and_then(|block| Area::in_block(block, Place::Volume).ok());
            let read = collect(inode, block);
            let stored: usize = read.iter().map(|attr| inline_value(attr).len()).sum();
            prop_assert!(stored <= space + 1024, "more was read than is stored");
            let _ = inode.map(|area| area.check_hashes());
            let _ = layout(&read, space, Some(BlockSize::KIB1));
        }

        #[test]
        fn random_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            for (to, from) in bytes.iter_mut().zip([0, 0, 2, 0xea, 1, 0, 0, 0, 1, 0, 0, 0]) {
                *to = from;
            }
            let inode = Area::in_inode(&bytes, Place::Volume).ok().flatten();
            let _ = collect(inode, Area::in_block(&bytes, Place::Volume).ok());
        }
    }
}
