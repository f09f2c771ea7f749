//! Sums over flex groups, which placing an inode reads instead of walking the groups.
//!
//! Also remembers which groups served directories whose own are full ([`Recent`]).
//!
//! The sums of a flex group are made on first use, from its descriptors, and kept up to date since. They feed
//! heuristics: each number is exact, but two of them read one after the other need not be consistent. Free
//! clusters are those of the last commit. Those of the volume are not added up from them ([`super::totals`]);
//! its number of directories is estimated from the flex groups with sums and the inodes in use elsewhere.
//!
//! Invariant: a descriptor changes only when the sums of its flex group exist, and they are made before its
//! lock is taken ([`Sums`] is the proof). So nothing changes while they are made.
//!
//! A flex group here is at most 2^[`FLEX_MAX_SHIFT`] groups: a volume may declare all its groups one flex
//! group, and scanning one has to stay cheap.

use super::totals::Free;
use hectare_ext4::geometry::Geometry;
use hectare_ext4::group::GroupDesc;
use hectare_units::{GroupNr, InodeNr, OnceTable, high32, join32, low32, u64_of, usize_of};
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// log2 of the most groups that are treated as one for placement.
const FLEX_MAX_SHIFT: u32 = 7;

/// log2 of the number of groups in a flex group.
fn flex_shift(geometry: &Geometry) -> u32 {
    geometry.flex_shift.min(FLEX_MAX_SHIFT)
}

/// The number of groups in a flex group, here and for the allocator: it loads them together and gives them
/// one size class.
pub(crate) fn flex_groups(geometry: &Geometry) -> u32 {
    1 << flex_shift(geometry)
}

/// The counts of a flex group: what is free, and its directories.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct FlexCounts {
    pub(crate) free_inodes: u32,
    pub(crate) free_clusters: u64,
    pub(crate) directories: u32,
}

/// The counts of one flex group, on a cache line of their own.
#[derive(Default)]
#[repr(align(64))]
struct Flex {
    free_inodes: AtomicU32,
    directories: AtomicU32,
    free_clusters: AtomicU64,
}

impl Flex {
    /// Sums the descriptors of its groups, `None` for a broken one.
    // Nothing here can overflow on a valid volume: inodes and clusters were counted to be within their
    // groups. Directories were not, so they are added with saturation.
    fn of(descs: impl Iterator<Item = Option<GroupDesc>>) -> Self {
        let mut flex = Self::default();
        for desc in descs.flatten() {
            let add = |to: &mut AtomicU32, n: u32| *to.get_mut() = to.get_mut().saturating_add(n);
            add(&mut flex.free_inodes, desc.free_inodes);
            add(&mut flex.directories, desc.used_dirs);
            *flex.free_clusters.get_mut() += u64::from(desc.free_clusters);
        }
        flex
    }
}

/// The flex groups of a volume, and the counts of those used so far.
pub(crate) struct FlexTable {
    shift: u32,
    groups: u32,
    inodes_per_group: u32,
    flexes: OnceTable<Flex>,
    /// The number of groups in flex groups with sums.
    seen: AtomicU32,
    /// Directories in them.
    directories: AtomicU32,
    /// Of the volume, like the next.
    free_clusters: AtomicU64,
    free_inodes: AtomicU64,
    /// The free inodes assumed to be in flex groups without sums. Wraps where the total was too low.
    unseen_inodes: AtomicU64,
}

impl FlexTable {
    /// For a volume whose totals are yet to be set.
    pub(super) fn new(geometry: &Geometry) -> Self {
        let (shift, groups) = (flex_shift(geometry), geometry.groups());
        Self {
            shift,
            groups,
            inodes_per_group: geometry.inodes_per_group,
            flexes: OnceTable::new(groups.div_ceil(1 << shift)),
            seen: AtomicU32::new(0),
            directories: AtomicU32::new(0),
            free_clusters: AtomicU64::new(0),
            free_inodes: AtomicU64::new(0),
            unseen_inodes: AtomicU64::new(0),
        }
    }

    /// Sets what is free on the volume, before any flex group has sums.
    pub(super) fn set_totals(&mut self, free: Free) {
        *self.free_clusters.get_mut() = free.clusters;
        *self.free_inodes.get_mut() = free.inodes;
        *self.unseen_inodes.get_mut() = free.inodes;
    }

    /// Flex groups of the volume.
    pub(crate) fn count(&self) -> u32 {
        self.groups.div_ceil(self.size())
    }

    /// Groups of a flex group; the last may have fewer.
    pub(crate) fn size(&self) -> u32 {
        1 << self.shift
    }

    /// The flex group that a group belongs to.
    pub(crate) fn of(&self, group: GroupNr) -> u32 {
        group.get() >> self.shift
    }

    /// The groups of a flex group.
    pub(crate) fn groups(&self, flex: u32) -> Range<u32> {
        let first = flex << self.shift;
        first..first.saturating_add(self.size()).min(self.groups)
    }

    /// The sums of a flex group, if they were made.
    pub(super) fn sums(&self, flex: u32) -> Option<Sums<'_>> {
        Some(Sums { table: self, flex: self.flexes.get(flex)? })
    }

    /// Like [`Self::sums`], but makes them if they don't exist.
    pub(super) fn make_sums(&self, flex: u32, desc: impl Fn(GroupNr) -> Option<GroupDesc>) -> Sums<'_> {
        let made = self.flexes.get_or_init(flex, || {
            let made = Flex::of(self.groups(flex).map(GroupNr::new).map(desc));
            self.note_made(&made, low32(u64_of(self.groups(flex).len())));
            made
        });
        Sums { table: self, flex: made }
    }

    /// Adds the counts of a flex group to those of the volume. Once all are known, a wrong total is
    /// corrected.
    fn note_made(&self, flex: &Flex, groups: u32) {
        self.directories.fetch_add(flex.directories.load(Relaxed), Relaxed);
        self.unseen_inodes.fetch_sub(flex.free_inodes.load(Relaxed).into(), Relaxed);
        // The thread that makes the last one sees what the others have subtracted.
        if self.seen.fetch_add(groups, Ordering::AcqRel) + groups == self.groups {
            self.free_inodes.fetch_sub(self.unseen_inodes.load(Relaxed), Relaxed);
        }
    }

    /// Free inodes of the volume.
    pub(super) fn free_inodes(&self) -> u64 {
        not_below_0(&self.free_inodes)
    }

    /// Free clusters of the volume.
    pub(crate) fn free_clusters(&self) -> u64 {
        not_below_0(&self.free_clusters)
    }

    /// Directories of the volume: those in flex groups with sums, and the same share of the inodes in use
    /// elsewhere.
    pub(crate) fn directories(&self) -> u64 {
        let (known, seen) = (u64::from(self.directories.load(Relaxed)), self.seen.load(Relaxed));
        let inodes = |groups: u32| u64::from(groups) * u64::from(self.inodes_per_group);
        let unseen_free = not_below_0(&self.unseen_inodes);
        let unseen_used = inodes(self.groups - seen).saturating_sub(unseen_free);
        let seen_used = inodes(seen).saturating_sub(self.free_inodes().saturating_sub(unseen_free));
        known.saturating_add(known.saturating_mul(unseen_used) / seen_used.max(1))
    }
}

/// A total that may have been too low at first, and so have wrapped.
fn not_below_0(total: &AtomicU64) -> u64 {
    u64::try_from(total.load(Relaxed).cast_signed()).unwrap_or(0)
}

/// The sums of one flex group. Its mutators are called under the lock of the descriptor that changes.
#[derive(Clone, Copy)]
pub(super) struct Sums<'a> {
    table: &'a FlexTable,
    flex: &'a Flex,
}

impl Sums<'_> {
    pub(super) fn counts(&self) -> FlexCounts {
        FlexCounts {
            free_inodes: self.flex.free_inodes.load(Relaxed),
            free_clusters: self.flex.free_clusters.load(Relaxed),
            directories: self.flex.directories.load(Relaxed),
        }
    }

    pub(super) fn inode_taken(&self, directory: bool) {
        self.flex.free_inodes.fetch_sub(1, Relaxed);
        self.table.free_inodes.fetch_sub(1, Relaxed);
        if directory {
            self.flex.directories.fetch_add(1, Relaxed);
            self.table.directories.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn inode_freed(&self) {
        self.flex.free_inodes.fetch_add(1, Relaxed);
        self.table.free_inodes.fetch_add(1, Relaxed);
    }

    pub(super) fn directory_freed(&self) {
        self.flex.directories.fetch_sub(1, Relaxed);
        self.table.directories.fetch_sub(1, Relaxed);
    }

    pub(super) fn clusters_changed(&self, from: u32, to: u32) {
        // The addition wraps, in two's complement: the sums stay right.
        let by = u64::from(to).wrapping_sub(u64::from(from));
        self.flex.free_clusters.fetch_add(by, Relaxed);
        self.table.free_clusters.fetch_add(by, Relaxed);
    }
}

/// Directories remembered at a time.
const RECENT: u32 = 1024;

/// Which group the last inode made in a directory came from, where it was not the directory's own: so that a
/// directory that has outgrown its group does not search again for every file. Directories that share an
/// entry here overwrite each other's, which only costs a search.
pub(crate) struct Recent {
    /// The directory's number in the high half, the group in the low one; 0 for none.
    places: Box<[AtomicU64]>,
}

impl Default for Recent {
    fn default() -> Self {
        Self { places: std::iter::repeat_with(AtomicU64::default).take(usize_of(RECENT)).collect() }
    }
}

impl Recent {
    fn place(&self, directory: InodeNr) -> &AtomicU64 {
        &self.places[usize_of(directory.get() % RECENT)]
    }

    /// The group remembered for a directory.
    pub(crate) fn get(&self, directory: InodeNr) -> Option<GroupNr> {
        let place = self.place(directory).load(Relaxed);
        (high32(place) == directory.get()).then(|| GroupNr::new(low32(place)))
    }

    /// Remembers a group for a directory.
    pub(crate) fn set(&self, directory: InodeNr, group: GroupNr) {
        let place = join32(group.get(), directory.get());
        if self.place(directory).load(Relaxed) != place {
            self.place(directory).store(place, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Creation, OpenOptions, Volume};
    use hectare_device::MemoryDevice;
    use std::sync::Arc;

    #[test]
    fn a_directory_is_remembered_until_another_takes_its_place() {
        let recent = Recent::default();
        let (a, b) = (InodeNr::new(2), InodeNr::new(2 + RECENT));
        assert_eq!(recent.get(a), None);
        recent.set(a, GroupNr::new(7));
        assert_eq!((recent.get(a), recent.get(b)), (Some(GroupNr::new(7)), None));
        recent.set(b, GroupNr::new(0));
        assert_eq!((recent.get(a), recent.get(b)), (None, Some(GroupNr::new(0))));
    }

    #[test]
    fn a_flex_group_of_the_whole_volume_is_not_loaded_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        // Without checksums no bitmap is known without reading it.
        let features = "^has_journal,^metadata_csum,^uninit_bg,^resize_inode";
        let args = ["-t", "ext4", "-b", "1024", "-O", features, "-g", "256", "-G", "512", "-N", "2048"];
        if let Err(reason) = hectare_oracle::mke2fs(&args, &image, "128M") {
            hectare_oracle::skip!("flex::a_flex_group_of_the_whole_volume", reason);
        }
        let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(&image).unwrap()));
        let volume = Volume::open(device, OpenOptions::default()).unwrap();
        assert_eq!(volume.superblock().geometry().groups(), 512);
        volume.write_file("file", &[1; 3000], Creation::default()).unwrap();
        let loaded = volume.core().state.allocator.loaded_groups();
        assert!((1..=2 << FLEX_MAX_SHIFT).contains(&loaded), "{loaded} of 512 groups are loaded");
    }

    #[test]
    fn the_sums_stay_those_of_the_descriptors() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        let args = ["-t", "ext4", "-b", "1024", "-O", "^has_journal", "-g", "1024", "-G", "4"];
        if let Err(reason) = hectare_oracle::mke2fs(&args, &image, "32M") {
            hectare_oracle::skip!("flex::the_sums_stay_those_of_the_descriptors", reason);
        }
        let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(&image).unwrap()));
        let volume = Volume::open(device, OpenOptions::default()).unwrap();
        let creation = Creation::default();
        for n in 0..40 {
            volume.create_dir(format!("dir-{n}"), creation).unwrap();
            for file in 0..20 {
                volume.write_file(format!("dir-{n}/{file}"), &[1; 3000], creation).unwrap();
            }
            volume.create_dir(format!("dir-{n}/sub"), creation).unwrap();
        }
        for n in (0..40).step_by(3) {
            volume.remove_dir_all(format!("dir-{n}")).unwrap();
        }
        volume.sync().unwrap();
        let (groups, geometry) = (&volume.core().state.groups, volume.superblock().geometry());
        let (kept, fresh) = (groups.flex(), FlexTable::new(geometry));
        let mut free = Free::default();
        for flex in 0..fresh.count() {
            let counts = fresh.make_sums(flex, |group| groups.desc(group).ok()).counts();
            assert_eq!(groups.flex_counts(flex).unwrap(), counts, "flex group {flex}");
            free.clusters += counts.free_clusters;
            free.inodes += u64::from(counts.free_inodes);
        }
        assert_eq!((kept.free_clusters(), kept.free_inodes()), (free.clusters, free.inodes));
        assert_eq!(kept.directories(), fresh.directories());
        assert_eq!(kept.directories(), 2 + 2 * 26, "the root, lost+found and those made");
    }
}
