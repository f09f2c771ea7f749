//! Where the groups come from, as the allocator sees it.
//!
//! What is known of a group without its bitmap comes with a page of group infos (`groups`), its bitmap when
//! the group is first needed. What it is not: storage. A source may read a device, a copy in memory, or
//! nothing.

use crate::error::AllocError;
use hectare_units::{Clusters, GroupNr};
use std::ops::Range;

/// Where the bitmaps of the groups come from.
///
/// Its functions are called with locks of groups held or before any thread has the allocator; none may call
/// back into it.
pub trait GroupSource: Send + Sync {
    /// Why a bitmap can't be loaded.
    type Error: std::error::Error + Send + Sync + 'static;

    /// The durable bitmap of a group, as last rendered: bit `i % 64` of word `i / 64` is 1 if cluster `i` of
    /// the group is used. Bits beyond the group's end should be 1; they are ignored.
    ///
    /// A group is loaded on first touch, and again if it is needed after it was
    /// [evicted](crate::Allocator::evict).
    ///
    /// # Errors
    /// Whatever keeps the bitmap from being read; it fails the operation that needed the group.
    fn load(&self, group: GroupNr) -> Result<Vec<u64>, Self::Error>;

    /// Free clusters of a group by its descriptor, known without reading the bitmap. A bitmap that turns out
    /// to hold another number fails with [`AllocError::Miscounted`].
    fn free_hint(&self, group: GroupNr) -> u32;

    /// Free clusters of all groups, if that is known without asking each. `None`: the hints are summed when
    /// the allocator is made. A total that is not their sum is corrected before a request is refused space
    /// because of it.
    fn free_total(&self) -> Option<Clusters> {
        None
    }

    /// How many neighbours' hints cost the price of one. They are requested together, from
    /// a multiple of this (or of a power of two next to it) on.
    fn together(&self) -> u32 {
        1
    }

    /// Prepares what the other functions return about some groups without I/O. Called before any of them, but
    /// for [`count_free`](Self::count_free), is called for a group.
    ///
    /// # Errors
    /// Whatever keeps it from being read; it fails the operation that needed one of the groups, and is tried
    /// again by the next.
    fn prepare(&self, groups: Range<u32>) -> Result<(), Self::Error> {
        let _ = groups;
        Ok(())
    }

    /// The sum of the hints of some groups, for which nothing is to be kept in memory: they may be all.
    ///
    /// # Errors
    /// Whatever keeps them from being read.
    fn count_free(&self, groups: Range<u32>) -> Result<u64, Self::Error> {
        Ok(groups.map(|group| u64::from(self.free_hint(GroupNr::new(group)))).sum())
    }

    /// A group turned out to be of no use, for that reason; it fails the operation that needed it. Called
    /// with the group's lock held, each time it is needed.
    fn unusable(&self, _group: GroupNr, _error: &AllocError<Self::Error>) {}

    /// Clusters in the group that hold the volume's own fixed metadata (superblock copies, descriptors,
    /// bitmaps, inode tables). A group in which nothing else is in use counts as wholly free. Asked when the
    /// group is loaded.
    fn own_metadata(&self, group: GroupNr) -> u32 {
        let _ = group;
        0
    }

    /// Whether loading the group reads from the device. If not, its bitmap holds the volume's own metadata
    /// only.
    fn needs_io(&self, group: GroupNr) -> bool {
        let _ = group;
        true
    }

    /// The bitmaps of several groups, for sources that can read them in one go. Groups may be left out.
    fn load_many(&self, groups: Range<u32>) -> Loaded<Self::Error> {
        groups.map(GroupNr::new).map(|group| (group, self.load(group))).collect()
    }
}

/// Groups, and the bitmap of each or why it can't be loaded.
pub type Loaded<E> = Vec<(GroupNr, Result<Vec<u64>, E>)>;
