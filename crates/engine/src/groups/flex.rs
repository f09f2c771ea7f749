//! Sums over flex groups, and where directories were served from: what placing an inode looks at instead of
//! walking the groups.
//!
//! The sums are made once, from all descriptors, and kept up with every change since. They are heuristics'
//! food: each number is exact, two of them read one after the other need not fit together. Free clusters are
//! those of the last commit.
//!
//! A flex group here is at most 2^[`FLEX_MAX_SHIFT`] groups: a volume may declare all its groups one flex
//! group, and looking through one has to stay cheap.

use hectare_ext4::geometry::Geometry;
use hectare_ext4::group::GroupDesc;
use hectare_units::{GroupNr, InodeNr, high32, join32, low32, usize_of};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// log2 of the most groups that are placed into as one.
const FLEX_MAX_SHIFT: u32 = 7;

/// log2 of the groups that are taken for a flex group.
fn flex_shift(geometry: &Geometry) -> u32 {
    geometry.flex_shift.min(FLEX_MAX_SHIFT)
}

/// Groups that are taken for a flex group, here and by the allocator: it loads them together and gives them
/// one size class.
pub(crate) fn flex_groups(geometry: &Geometry) -> u32 {
    1 << flex_shift(geometry)
}

/// What a flex group has left, and what is in it.
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

/// The counts of every flex group, and of the volume.
pub(crate) struct FlexTable {
    shift: u32,
    groups: u32,
    flexes: Box<[Flex]>,
    free_clusters: AtomicU64,
    directories: AtomicU32,
}

impl FlexTable {
    /// From the descriptors of all groups in order, `None` for a broken one.
    pub(super) fn new(geometry: &Geometry, descs: impl Iterator<Item = Option<GroupDesc>>) -> Self {
        let shift = flex_shift(geometry);
        let groups = geometry.groups();
        let count = usize_of(groups.div_ceil(1 << shift));
        let mut table = Self {
            shift,
            groups,
            flexes: std::iter::repeat_with(Flex::default).take(count).collect(),
            free_clusters: AtomicU64::new(0),
            directories: AtomicU32::new(0),
        };
        for (nr, desc) in (0..groups).zip(descs) {
            if let Some(desc) = desc {
                table.add(GroupNr::new(nr), &desc);
            }
        }
        table
    }

    // Nothing here can overflow on a volume that is one: inodes and clusters were counted to be within their
    // groups. Directories were not, so they are added as far as they go.
    fn add(&mut self, group: GroupNr, desc: &GroupDesc) {
        let flex = &mut self.flexes[usize_of(group.get() >> self.shift)];
        *flex.free_inodes.get_mut() = flex.free_inodes.get_mut().saturating_add(desc.free_inodes);
        *flex.directories.get_mut() = flex.directories.get_mut().saturating_add(desc.used_dirs);
        *flex.free_clusters.get_mut() += u64::from(desc.free_clusters);
        *self.directories.get_mut() = self.directories.get_mut().saturating_add(desc.used_dirs);
        *self.free_clusters.get_mut() += u64::from(desc.free_clusters);
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

    /// What a flex group has.
    pub(crate) fn counts(&self, flex: u32) -> FlexCounts {
        let flex = &self.flexes[usize_of(flex)];
        FlexCounts {
            free_inodes: flex.free_inodes.load(Relaxed),
            free_clusters: flex.free_clusters.load(Relaxed),
            directories: flex.directories.load(Relaxed),
        }
    }

    /// Free inodes of the volume, by a walk over the flex groups.
    pub(super) fn free_inodes(&self) -> u32 {
        self.flexes.iter().map(|flex| flex.free_inodes.load(Relaxed)).fold(0, u32::saturating_add)
    }

    /// Free clusters of the volume.
    pub(crate) fn free_clusters(&self) -> u64 {
        self.free_clusters.load(Relaxed)
    }

    /// Directories of the volume.
    pub(crate) fn directories(&self) -> u32 {
        self.directories.load(Relaxed)
    }

    fn at(&self, group: GroupNr) -> &Flex {
        &self.flexes[usize_of(group.get() >> self.shift)]
    }

    /// To be called under the lock of the group's descriptor, as the next three.
    pub(super) fn inode_taken(&self, group: GroupNr, directory: bool) {
        self.at(group).free_inodes.fetch_sub(1, Relaxed);
        if directory {
            self.at(group).directories.fetch_add(1, Relaxed);
            self.directories.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn inode_freed(&self, group: GroupNr) {
        self.at(group).free_inodes.fetch_add(1, Relaxed);
    }

    pub(super) fn directory_freed(&self, group: GroupNr) {
        self.at(group).directories.fetch_sub(1, Relaxed);
        self.directories.fetch_sub(1, Relaxed);
    }

    pub(super) fn clusters_changed(&self, group: GroupNr, from: u32, to: u32) {
        // Adding wraps, as two's complement: the sums stay right.
        let by = u64::from(to).wrapping_sub(u64::from(from));
        self.at(group).free_clusters.fetch_add(by, Relaxed);
        self.free_clusters.fetch_add(by, Relaxed);
    }
}

/// Directories remembered at a time.
const RECENT: u32 = 1024;

/// Which group the last inode made in a directory came from, where it was not the directory's own: so that a
/// directory that has outgrown its group does not look for a place again with every file. Directories that
/// share a place here forget each other, which only costs a search.
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
        assert_eq!(volume.geometry().groups(), 512);
        volume.write_file("file", &[1; 3000], Creation::default()).unwrap();
        let loaded = volume.allocator.loaded_groups();
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
        let (groups, geometry) = (&volume.groups, volume.geometry());
        let descs = (0..geometry.groups()).map(|nr| groups.desc(GroupNr::new(nr)).ok());
        let (kept, fresh) = (groups.flex(), FlexTable::new(geometry, descs));
        for flex in 0..fresh.count() {
            assert_eq!(kept.counts(flex), fresh.counts(flex), "flex group {flex}");
        }
        assert_eq!(kept.free_clusters(), fresh.free_clusters());
        assert_eq!(kept.directories(), fresh.directories());
        assert_eq!(groups.free_inodes(), volume.statfs().unwrap().free_inodes);
        assert_eq!(kept.directories(), 2 + 2 * 26, "the root, lost+found and those made");
    }
}
