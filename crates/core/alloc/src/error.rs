//! Errors of reserving and giving back space.

use hectare_units::{ClusterNr, GroupNr};

/// Why an operation of the allocator failed. `E` is the error of the [`GroupSource`](crate::GroupSource).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AllocError<E> {
    /// No run of the least acceptable length is left for this caller.
    #[error("no space left on the volume")]
    NoSpace,
    /// The bitmap of a group could not be loaded.
    #[error(transparent)]
    Source(E),
    /// A group's bitmap does not hold as many free clusters as its descriptor says.
    #[error("group {group} announces {announced} free clusters, its bitmap has {counted}")]
    Miscounted {
        /// The group.
        group: GroupNr,
        /// Free clusters as announced by [`GroupSource::free_hint`](crate::GroupSource::free_hint).
        announced: u32,
        /// Free clusters counted in the bitmap.
        counted: u32,
    },
    /// A cluster was freed that is not in use: it is free, or already freed, or only reserved.
    #[error("cluster {cluster} is freed but is not in use")]
    NotInUse {
        /// The first such cluster.
        cluster: ClusterNr,
    },
    /// A cluster was to be marked used while a reservation or an uncommitted free holds it.
    #[error("cluster {cluster} is marked used while it is reserved or being freed")]
    InFlight {
        /// The first such cluster.
        cluster: ClusterNr,
    },
    /// A run that does not lie inside the volume.
    #[error("cluster {cluster} is beyond the end of the volume ({total} clusters)")]
    Outside {
        /// Where the run starts.
        cluster: ClusterNr,
        /// Clusters of the volume.
        total: u64,
    },
}

impl<E> AllocError<E> {
    /// Whether a request was refused because no group that can be loaded has the space: then space that is given
    /// back may help. Of [`Allocator::reserve`](crate::Allocator::reserve) and what reserves by it.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::NoSpace | Self::Source(_) | Self::Miscounted { .. })
    }
}
