//! Formats ext4 volumes: a plan first, then its execution.
//!
//! [`FormatOptions`] are what `mke2fs` takes, with its defaults. [`Plan::new`] turns them and a size into a
//! value that knows where everything will lie and can render any part of it; [`execute`](execute::execute)
//! carries a plan out with several threads. What fills the volume is a [`Contents`].
//!
//! Hazard: everything here must agree with what `e2fsck` and the kernel compute from the superblock alone.
//!
//! Not here: the names of all this, which the crate has at its root.

mod contents;
pub(crate) mod execute;
mod geometry;
mod journal;
mod journal_device;
mod large;
mod layout;
mod limits;
mod mount_defaults;
mod note;
mod option_parser;
mod options;
mod overhead;
mod plan;
mod ranges;
mod space;
mod superblock;
mod system_inodes;

pub use contents::{Contents, Empty, GroupUse, count_inode, set_bits};
pub use geometry::{Shape, shape, whole_pages};
pub use journal::{default_blocks as default_journal_blocks, orphan_blocks};
pub use journal_device::{external_journal, join_journal, leave_journal, make_journal_device};
pub use layout::{Cursor, GroupMeta, Layout};
pub use mount_defaults::MountDefaults;
pub use note::Note;
pub use option_parser::{apply_extended, parse_features};
pub use options::{FeatureEdit, FormatOptions, FsType, InodeCount, JournalDeviceId, ResizeLimit, Usage};
pub use overhead::{Capacity, Overhead, capacity, overhead};
pub use plan::{Chunk, Counts, Plan};
pub use space::{FreeRange, Space};
