//! Formats ext4 and XFS volumes: a plan first, then its execution.
//!
//! [`FormatOptions`] are what `mke2fs` takes, with its defaults. [`Plan::new`] turns them and a size into a
//! value that knows where everything will lie and can render any part of it; [`execute()`] carries a plan out
//! with several threads, each structure written once, in final form. What fills the volume is a [`Contents`]:
//! the empty volume's root directory, or a whole tree of files whose inodes and blocks are thus part of the
//! first write. [`probe()`] reports what a device already holds, so that nothing is overwritten by mistake.
//!
//! The top level is ext4; [`xfs`] has the same shape for XFS, and shares probing and writing.
//!
//! Hazards: a format destroys what was there, so callers probe before they execute; and everything here must
//! agree with what `e2fsck` and the kernel compute from the superblock alone.
//!
//! Not here: filling a volume after it was made (the engine), and reading source trees (populate).

mod blockmap;
mod contents;
mod error;
mod execute;
mod geometry;
mod journal;
mod large;
mod layout;
mod occupied;
mod option_parser;
mod options;
mod overhead;
mod plan;
mod ranges;
mod run;
mod space;
mod superblock;
mod system_inodes;
mod write;
mod writer;
pub mod xfs;

pub use contents::{Contents, Empty, GroupUse, set_bits};
pub use error::{Error, Result};
pub use execute::{execute, lay_down, wipe};
pub use geometry::{Note, Shape, shape, whole_pages};
pub use hectare_ext4::superblock::OnError;
pub use hectare_probe::{Found, What, probe};
pub use layout::{Cursor, GroupMeta, Layout};
pub use occupied::refuse_occupied;
pub use option_parser::{apply_extended, parse_features, parse_size, parse_uuid};
pub use options::{FeatureEdit, FormatOptions, FsType, InodeCount, ResizeLimit, Usage};
pub use overhead::{Capacity, Overhead, capacity, overhead};
pub use plan::{Chunk, Counts, Payload, Plan, Sink, Write};
pub use run::{Run, Step, Watch};
pub use space::{FreeRange, Space};
