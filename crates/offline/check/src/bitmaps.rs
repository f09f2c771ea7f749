//! Bitmaps and counts: compares them with the findings of the walk.

use crate::bits::{Bits, all_set_from, count_ones, is_set};
use crate::context::Scan;
use crate::progress::Step;
use crate::report::{Error, Problem, What};
use hectare_ext4::error::Place;
use hectare_ext4::geometry::Geometry;
use hectare_ext4::group::{GroupDesc, GroupFlags};
use hectare_ext4::inode::Kind;
use hectare_units::{BlockNr, GroupNr, OutOfMemory, u64_of, usize_of};

/// Differences of one bitmap that are named.
const NAMED_MAX: usize = 4;

/// What the groups count together.
#[derive(Default)]
struct Totals {
    clusters: u64,
    free_clusters: u64,
    inodes: u64,
    free_inodes: u64,
}

impl Scan<'_> {
    /// Compares bitmaps, descriptors and superblock with what was found.
    pub(crate) fn check_bitmaps(&mut self) -> Result<(), Error> {
        if self.claims.incomplete {
            self.report.leave("block bitmaps and counts of free blocks: some maps are broken");
        }
        let mut totals = Totals::default();
        let mut bitmap = self.buffer();
        for nr in (0..self.volume.geometry().groups()).map(GroupNr::new) {
            let Some(desc) = self.groups.get(nr.index()).cloned() else { continue };
            if !self.claims.incomplete {
                self.check_block_bitmap(nr, &desc, &mut bitmap, &mut totals)?;
            }
            self.check_inode_bitmap(nr, &desc, &mut bitmap, &mut totals)?;
            (self.volume.watch)(Step::Bitmaps, u64::from(nr.get()) + 1, u64_of(self.groups.len()));
        }
        self.give_back(bitmap);
        self.report.counts.clusters_used = totals.clusters;
        self.report.counts.inodes_used = u32::try_from(totals.inodes).unwrap_or(u32::MAX);
        self.check_totals(&totals);
        Ok(())
    }

    fn check_block_bitmap(
        &mut self,
        nr: GroupNr,
        desc: &GroupDesc,
        bitmap: &mut [u8],
        totals: &mut Totals,
    ) -> Result<(), Error> {
        let volume = self.volume;
        let geometry = volume.geometry();
        let clusters = geometry.clusters_in(nr);
        let start = u64::from(nr.get()) * u64::from(geometry.clusters_per_group);
        let expected = self.claims.bits.slice(start, u64::from(clusters));
        let used = count_ones(&expected, clusters);
        totals.clusters += u64::from(used);
        totals.free_clusters += u64::from(clusters - used);
        if self.group_flag(desc, GroupFlags::BLOCK_UNINIT) {
            if own_metadata(self.volume.geometry(), nr, desc)?.slice(0, u64::from(clusters)) != expected {
                let reason = "the group is marked as holding only its own metadata, which is wrong";
                self.tell(What::BlockBitmap, Place::Group(nr), reason);
            }
        } else {
            volume.read(desc.block_bitmap, bitmap)?;
            if let Err(corrupt) = desc.verify_block_bitmap(bitmap, nr, &volume.sb) {
                self.tell_corrupt(What::BlockBitmap, corrupt);
            }
            let name = |bit| {
                let cluster = hectare_units::ClusterNr::new(start + u64::from(bit));
                geometry.cluster_start(cluster).get()
            };
            self.compare(What::BlockBitmap, nr, (&expected, bitmap), clusters, "block", &name);
        }
        if desc.free_clusters != clusters - used {
            let reason = format!("it counts {} free clusters, {} are", desc.free_clusters, clusters - used);
            self.tell(What::Counts, Place::Group(nr), reason);
        }
        Ok(())
    }

    fn check_inode_bitmap(
        &mut self,
        nr: GroupNr,
        desc: &GroupDesc,
        bitmap: &mut [u8],
        totals: &mut Totals,
    ) -> Result<(), Error> {
        let volume = self.volume;
        let geometry = volume.geometry();
        let per_group = geometry.inodes_per_group;
        let mut expected = vec![0u8; usize_of(per_group.div_ceil(8))];
        let mut take = |index: u32| expected[usize_of(index / 8)] |= 1 << (index % 8);
        let mut directories = 0;
        let first = geometry.inode_at(nr, 0).get();
        for (number, info) in self.inodes.used(first..=first + (per_group - 1)) {
            directories += u32::from(info.kind == Some(Kind::Directory));
            take(number - first);
        }
        if nr.get() == 0 {
            // Reserved inodes are in use, even if none was ever written.
            (0..per_group.min(volume.sb.first_inode().get() - 1)).for_each(take);
        }
        let used = count_ones(&expected, per_group);
        totals.inodes += u64::from(used);
        let free = per_group.saturating_sub(used);
        totals.free_inodes += u64::from(free);
        if !self.group_flag(desc, GroupFlags::INODE_UNINIT) {
            volume.read(desc.inode_bitmap, bitmap)?;
            if let Err(corrupt) = desc.verify_inode_bitmap(bitmap, nr, &volume.sb) {
                self.tell_corrupt(What::InodeBitmap, corrupt);
            }
            let name = |bit| u64::from(geometry.inode_at(nr, bit).get());
            self.compare(What::InodeBitmap, nr, (&expected, bitmap), per_group, "inode", &name);
        }
        if desc.free_inodes != free {
            self.tell(
                What::Counts,
                Place::Group(nr),
                format!("it counts {} free inodes, {free} are", desc.free_inodes),
            );
        }
        if desc.used_dirs != directories {
            let reason = format!("it counts {} directories and has {directories}", desc.used_dirs);
            self.tell(What::Counts, Place::Group(nr), reason);
        }
        Ok(())
    }

    /// Compares a bitmap with what it should be, and its padding with ones.
    fn compare(
        &mut self,
        what: What,
        nr: GroupNr,
        (expected, found): (&[u8], &[u8]),
        bits: u32,
        noun: &str,
        name: &dyn Fn(u32) -> u64,
    ) {
        let whole = usize_of(bits / 8);
        let same = expected.get(..whole) == found.get(..whole);
        let differs = |bit: &u32| is_set(expected, *bit) != is_set(found, *bit);
        if !same || (bits / 8 * 8..bits).any(|bit| differs(&bit)) {
            let all: Vec<u32> = (0..bits).filter(differs).collect();
            let shown: Vec<String> = all
                .iter()
                .take(NAMED_MAX)
                .map(|bit| format!("{}{noun} {}", if is_set(expected, *bit) { '+' } else { '-' }, name(*bit)))
                .collect();
            let more = if all.len() > NAMED_MAX {
                format!(" and {} more", all.len() - NAMED_MAX)
            } else {
                String::new()
            };
            self.tell(
                what,
                Place::Group(nr),
                format!("it differs from what is in use: {}{more}", shown.join(", ")),
            );
        }
        if !all_set_from(found, bits) {
            self.tell(what, Place::Group(nr), "its padding is not all ones");
        }
    }

    /// The superblock's summary is put right whenever a volume is opened, so it is no problem.
    fn check_totals(&mut self, totals: &Totals) {
        let sb = &self.volume.sb;
        let mut notes = Vec::new();
        let free = sb.free_blocks().get() >> sb.geometry().cluster_ratio_shift;
        if free != totals.free_clusters && !self.claims.incomplete {
            notes.push(format!("it counts {free} free clusters, {} are", totals.free_clusters));
        }
        let free = u64::from(sb.raw().s_free_inodes_count.get());
        if free != totals.free_inodes {
            notes.push(format!("it counts {free} free inodes, {} are", totals.free_inodes));
        }
        let note =
            |reason: String| Problem { what: What::Superblock, place: Place::Volume, reason: reason.into() };
        self.report.notes.extend(notes.into_iter().map(note));
    }
}

/// The block bitmap of a group that was never initialised: its own metadata.
///
/// # Errors
/// If the system refuses the memory.
pub fn own_metadata(geometry: &Geometry, nr: GroupNr, desc: &GroupDesc) -> Result<Bits, OutOfMemory> {
    let mut bits = Bits::new(u64::from(geometry.clusters_in(nr)))?;
    let first = geometry.first_block(nr).get();
    let end = first + u64::from(geometry.blocks_in(nr));
    let shift = geometry.cluster_ratio_shift;
    let one = |block: BlockNr| (block.get(), block.get() + 1);
    let table = desc.inode_table.get();
    for (from, to) in [
        (first, first + u64::from(geometry.base_meta_blocks(nr))),
        one(desc.block_bitmap),
        one(desc.inode_bitmap),
        (table, table + u64::from(geometry.itable_blocks())),
    ] {
        let (from, to) = (from.max(first), to.min(end));
        if from < to {
            let _ = bits.claim((from - first) >> shift..((to - 1 - first) >> shift) + 1);
        }
    }
    Ok(bits)
}
