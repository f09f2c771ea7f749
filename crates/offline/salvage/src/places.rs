//! Where the inode tables lie: as the group descriptors say, or their copies, or as the geometry implies.
//!
//! A descriptor whose checksum is right, or that its copy agrees with, is believed. Otherwise every place
//! that a descriptor, a copy, a neighbour or the layout of mke2fs names is a candidate, and the one where
//! most inodes are plausible is taken.
//!
//! Memory: as many groups as the device can have, and one flex group more: a superblock may claim any number.

use crate::plausible;
use crate::source::Source;
use hectare_ext4::geometry::Geometry;
use hectare_ext4::group::{GroupDesc, GroupFlags, raw_of};
use hectare_ext4::superblock::SuperBlock;
use hectare_mkfs::Layout;
use hectare_probe::backup_desc;
use hectare_units::{BlockNr, Blocks, Bytes, GroupNr, index_of, join32, usize_of};

/// Blocks of a candidate that are looked at.
const SAMPLED: u32 = 64;
/// Broken descriptors that are named one by one.
const NAMED_MAX: usize = 20;

/// An inode table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Table {
    pub(crate) group: GroupNr,
    /// Its first block.
    pub(crate) at: BlockNr,
    /// Slots from its start that may have been used.
    pub(crate) used: u32,
}

/// The tables of all groups, in the order of groups, and what is wrong with descriptors; `first` is the place of
/// the first table, if that is known otherwise.
pub(crate) fn tables(source: &Source, sb: &SuperBlock, first: Option<BlockNr>) -> (Vec<Table>, Vec<String>) {
    let geometry = sb.geometry();
    let mut finder = Finder { source, sb, layout: Layout::new(geometry.clone(), 0, false).ok() };
    let (mut tables, mut notes): (Vec<Table>, Vec<String>) = (Vec::new(), Vec::new());
    let mut broken = 0;
    let mut block = Vec::new();
    for nr in 0..groups_there(geometry, source.len()) {
        if nr % geometry.descs_per_block() == 0 {
            block = finder.desc_block(nr / geometry.descs_per_block());
        }
        let at = usize_of(nr % geometry.descs_per_block() * geometry.desc_size);
        let slot = block.get(at..at + usize_of(geometry.desc_size)).unwrap_or_default();
        let (table, doubt) = match first.filter(|_| nr == 0) {
            Some(at) => (Table { group: GroupNr::new(0), at, used: geometry.inodes_per_group }, None),
            None => finder.table(GroupNr::new(nr), slot, tables.last()),
        };
        tables.push(table);
        if let Some(doubt) = doubt {
            broken += 1;
            if broken <= NAMED_MAX {
                notes.push(doubt);
            }
        }
    }
    if broken > NAMED_MAX {
        notes.push(format!("{broken} group descriptors are broken"));
    }
    (tables, notes)
}

/// Groups that the device can have anything of.
fn groups_there(geometry: &Geometry, device: u64) -> u32 {
    let blocks = device >> geometry.block_size.shift();
    let whole = blocks / u64::from(geometry.blocks_per_group());
    let more = u64::from(geometry.flex_groups().min(1 << 10)) + 1;
    u32::try_from(whole + more).unwrap_or(u32::MAX).min(geometry.groups())
}

struct Finder<'a> {
    source: &'a Source,
    sb: &'a SuperBlock,
    layout: Option<Layout>,
}

impl Finder<'_> {
    fn read(&self, at: Bytes, block: &mut [u8]) -> bool {
        self.source.read(at.get(), block).is_empty()
    }

    fn desc_block(&self, index: u32) -> Vec<u8> {
        let geometry = self.sb.geometry();
        let mut block = vec![0; geometry.block_size.len()];
        self.read(geometry.desc_block(index).offset(geometry.block_size), &mut block);
        block
    }

    fn table(&mut self, group: GroupNr, slot: &[u8], before: Option<&Table>) -> (Table, Option<String>) {
        let geometry = self.sb.geometry();
        let all = geometry.inodes_per_group;
        let has_checksums = self.sb.features().group_checksums() && !self.sb.ignores_checksums();
        let parsed = GroupDesc::parse(slot, group, self.sb);
        if let Ok(desc) = &parsed
            && has_checksums
        {
            let unused = desc.itable_unused.min(all);
            let is_unused = desc.flags.contains(GroupFlags::INODE_UNINIT);
            let used = if is_unused { 0 } else { all - unused };
            return (Table { group, at: desc.inode_table, used }, None);
        }
        let backup = backup_desc(self.sb, group, |at, block| self.read(at, block));
        let (own, copy) = (parsed.as_ref().ok(), backup.as_ref());
        if let (Some(own), Some(copy)) = (own, copy)
            && own.inode_table == copy.inode_table
        {
            return (Table { group, at: own.inode_table, used: all }, None);
        }
        let raw = raw_of(slot);
        let raw_place = BlockNr::new(join32(raw.bg_inode_table_lo.get(), raw.bg_inode_table_hi.get()));
        let narrow_place = BlockNr::new(raw.bg_inode_table_lo.get().into());
        let next =
            before.and_then(|table| table.at.checked_add(Blocks::new(geometry.itable_blocks().into())));
        let computed = self.layout.as_ref().and_then(|layout| layout.cursor().meta(group).ok());
        let candidates = [
            copy.map(|desc| desc.inode_table),
            own.map(|desc| desc.inode_table),
            computed.map(|meta| meta.inode_table),
            next,
            Some(raw_place),
            Some(narrow_place),
        ];
        let best = candidates
            .into_iter()
            .flatten()
            .filter(|at| at.get() > u64::from(geometry.first_data_block))
            .map(|at| (self.plausible_in(group, at), at))
            .reduce(|best, other| if other.0 > best.0 { other } else { best });
        let Some((_, at)) = best else { return (Table { group, at: BlockNr::new(0), used: 0 }, None) };
        let alone = has_checksums || own.is_none();
        let doubt = alone.then(|| match parsed {
            Err(corrupt) => corrupt.to_string(),
            Ok(_) => format!("the descriptor of group {group} is not believed"),
        });
        (Table { group, at, used: all }, doubt)
    }

    /// Plausible inodes in the first blocks of a table that would lie there.
    fn plausible_in(&self, group: GroupNr, at: BlockNr) -> usize {
        let geometry = self.sb.geometry();
        let blocks = geometry.itable_blocks().min(SAMPLED);
        let end = at.get().checked_add(blocks.into());
        if end.is_none_or(|end| end > geometry.blocks_count.get()) {
            return 0;
        }
        let mut bytes = vec![0; index_of(u64::from(blocks) * geometry.block_size.bytes().get())];
        self.source.read(at.offset(geometry.block_size).get(), &mut bytes);
        let slots = (0..geometry.inodes_per_group).zip(bytes.chunks_exact(usize_of(geometry.inode_size)));
        let judged = slots
            .filter_map(|(index, slot)| plausible::judge(slot, geometry.inode_at(group, index), self.sb));
        judged.map(|judged| if judged.is_proved { 4 } else { 1 }).sum()
    }
}
