//! Folders of the host, used without being led out of them.
//!
//! Whoever walks a folder that others may change (a source of an image, the target of a copy) reaches
//! everything below its top through [`open_below`] or a [`Walk`]: no symbolic link is followed on the way, no
//! `..` leads out, and a directory that is opened again must be the one it was, by device and inode. A walk
//! keeps a bounded number of directories open however deep the tree is.
//!
//! Metadata is asked of the C library, not of the kernel ([`stat`]), so that programs which pretend to be
//! root (fakeroot, pseudo) are believed; [`pretence`] says whether one is in effect.
//!
//! Hazards: the top itself is opened as its user named it, links included. Between looking at a name and
//! opening it the name may come to mean something else: compare [`Stat::identity`] of what was opened.
//!
//! What it is not: it reads no content and knows nothing of volumes.

mod beneath;
mod fakeroot;
mod stat;
mod walk;

pub use beneath::open_below;
pub use fakeroot::{Pretence, pretence};
pub use stat::{Identity, Stat, Time, stat, stat_open};
pub use walk::{Dir, Walk, replaced};
