//! Formats ext4 and XFS volumes: a plan first, then its execution.
//!
//! [`FormatOptions`] are what `mke2fs` takes, with its defaults. [`Plan::new`] turns them and a size into a
//! value that knows where everything will lie and can render any part of it; [`execute()`] carries a plan out
//! with several threads, each structure written once, in final form. What fills the volume is a [`Contents`]:
//! the empty volume's root directory, or a whole tree of files whose inodes and blocks are thus part of the
//! first write. [`probe()`] reports what a device already holds, so that nothing is overwritten by mistake.
//!
//! The names at the top level are those of ext4 (`ext4`); [`xfs`] has the same shape for XFS. Both share
//! probing and writing (`executor`).
//!
//! Hazards: a format destroys what was there, so callers probe before they execute; and everything here must
//! agree with what `e2fsck` and the kernel compute from the superblock alone.
//!
//! Not here: filling a volume after it was made (the engine), and reading source trees (populate).

mod derived;
mod error;
mod executor;
mod ext4;
mod occupied;
mod progress;
mod values;
mod write;
pub mod xfs;

pub use derived::Derivation;
pub use error::{Error, Result};
pub use ext4::execute::{clear, execute, lay_down};
pub use ext4::{
    Capacity, Chunk, Contents, Counts, Cursor, Empty, FeatureEdit, FormatOptions, FreeRange, FsType,
    GroupMeta, GroupUse, InodeCount, JournalDeviceId, Layout, MountDefaults, Note, Overhead, Plan,
    ResizeLimit, Shape, Space, Usage, apply_extended, capacity, count_inode, default_journal_blocks,
    external_journal, join_journal, leave_journal, make_journal_device, orphan_blocks, overhead,
    parse_features, set_bits, shape, whole_pages,
};
pub use hectare_ext4::superblock::OnError;
pub use hectare_probe::{Found, What, probe};
pub use occupied::refuse_occupied;
pub use progress::{Run, Step, Watch};
pub use values::{parse_size, parse_uuid, source_date_epoch};
pub use write::{Payload, Sink, Write};
