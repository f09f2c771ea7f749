//! Formats XFS volumes: a plan first, then its execution, as for ext4.
//!
//! [`FormatOptions`] are what `mkfs.xfs` takes, with the defaults of xfsprogs 6.1; [`parse`] reads them from
//! its words. [`Plan::new`] turns them and a size into a [`hectare_xfs::Volume`], and renders the writes of
//! any range of allocation groups on demand, each structure once and in final form: the free list is filled,
//! the trees of free space are already net of it. [`execute()`] carries a plan out with several threads.
//!
//! Hazards: the geometry rules follow the observed choices of `mkfs.xfs`; where a reader recomputes something
//! (the place of the root directory, the room that a log leaves), the rule is in [`hectare_xfs::Volume`].
//!
//! Not here: realtime sections, external logs, populating a volume.

mod execute;
mod geometry;
mod group;
mod option_parser;
mod options;
mod plan;

pub use execute::execute;
pub use geometry::Note;
pub use option_parser::parse;
pub use options::{FormatOptions, GroupSize, LogSize, StripeOption};
pub use plan::Plan;
