//! Brings everything plausible out of a damaged volume.
//!
//! A volume in use trusts its structures, and stops at the first that is broken. Here nothing leads to
//! anything else by itself: inodes are found in the inode tables, wherever these must lie, and not through
//! names; names are found in directories, and in blocks that look like those of directories that are lost.
//! Both are put together to one tree ([`Salvage`]), which a caller copies out.
//!
//! - *The same parsers.* Every structure is read with those of the format (`hectare-ext4`); what they refuse
//!   is left out, or taken field by field, with a *doubt* that says why.
//! - *No end before the end.* What can't be read is zeros, and a doubt. Only where there is no superblock,
//!   and nothing that it can be inferred from, is that an error.
//! - *Hostile volumes.* Names are made fit for any directory, circles are cut, and all work, memory and
//!   output is bounded by the size of the device: a block of a directory counts once, all maps together read
//!   no more nodes than there are blocks, a file names each block once, and the content of all files is at
//!   most twice that of the device. What is left out for that is named ([`Salvage::left_out`]).
//! - *Order.* The tables are read in the order of the disk. Where each file begins is known before any is
//!   read ([`Salvage::place`]), and what lies close together can be read at once ([`Salvage::read_ahead`]).
//!
//! With [`Options::deleted`], removed files are found as well: in old copies of inode tables that the
//! journal still has, and in extent trees that belong to nobody.
//!
//! What this is not: a repair. Nothing is written to the device, and what comes out is as good as the doubts
//! say. Content has no checksums: nothing shows that it was overwritten.

mod attributes;
mod content;
mod deleted;
mod inferred;
mod log;
mod map;
mod names;
mod node;
mod open;
mod options;
mod places;
mod plausible;
mod report;
mod salvage;
mod source;
mod survey;
mod tree;
mod volume;
mod watch;

pub use content::{AHEAD_MAX, File};
pub use hectare_ext4::inode::{DeviceNumber, Kind};
pub use hectare_ext4::time::Timestamp;
pub use hectare_probe::WhichSuperblock;
pub use node::{Metadata, NodeId};
pub use options::{Error, Options};
pub use report::{Deleted, Doubtful, Report, Unreadable};
pub use salvage::Salvage;
pub use watch::{Step, Watch};
