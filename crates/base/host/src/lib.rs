//! Access to directory trees of the host, without being led out of them.
//!
//! A walk of a directory that others may change (a source of an image, the target of a copy) reaches
//! everything below its top through [`open_below`] or a [`Walk`]: no symbolic link is followed on the way, no
//! `..` leads out, and a directory that is reopened must be the same one, by device and inode. A walk keeps a
//! bounded number of directories open however deep the tree is.
//!
//! Metadata comes from the C library, not from the kernel ([`stat`]), so that programs which emulate root
//! (fakeroot, pseudo) are believed; [`pretence`] returns whether one is in effect.
//!
//! Hazards: the top itself is opened as its user named it, links included. Between a lookup of a name and
//! opening it the name may change: compare [`Stat::identity`] of the opened file.
//!
//! A source of an image is read through [`Folder`], which works on any host; [`losses`] says what of files is not
//! read there. Walks and links to be written are for Linux only.
//!
//! What it is not: it knows nothing of volumes.

#[cfg(all(target_os = "linux", not(hectare_portable)))]
mod beneath;
mod fakeroot;
mod folder;
mod stat;
mod user_namespace;
#[cfg(all(target_os = "linux", not(hectare_portable)))]
mod walk;

#[cfg(all(target_os = "linux", not(hectare_portable)))]
pub use beneath::open_below;
pub use fakeroot::{Pretence, pretence};
pub use folder::{Attribute, AttributeReader, Folder, Listing, data_of, free_space, losses, open_file};
#[cfg(all(target_os = "linux", not(hectare_portable)))]
pub use stat::stat;
#[cfg(not(all(target_os = "linux", not(hectare_portable))))]
pub use stat::stat_of;
pub use stat::{FileType, Identity, Stat, Time, stat_open};
pub use user_namespace::is_foreign_owner;
#[cfg(all(target_os = "linux", not(hectare_portable)))]
pub use walk::{Dir, Walk, replaced};
