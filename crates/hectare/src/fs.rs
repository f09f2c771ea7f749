//! Files of a volume, in the shape of `std::fs`.
//!
//! What are functions there are methods of [`Volume`](crate::Volume) here (`volume.read("/x")`); the types
//! have the names and the methods that `std` gives them, so that a program for directories of the host is
//! one for volumes after a change of its imports. What `std` has for Unix alone (modes, owners, reads at an
//! offset) are plain methods.
//!
//! Differences from `std`: a new file or directory belongs to the owner that the volume was opened with
//! ([`VolumeOptions::owner`](crate::VolumeOptions::owner)), and there is no umask: modes are 0644 and 0755
//! if not given. A file is not copied onto itself, which `std` does by emptying it. No permissions are
//! checked: who can open the image may read and write all of it.

mod attributes;
mod dir_builder;
mod file;
mod functions;
mod made;
mod metadata;
mod open_options;
mod read_dir;
mod walk;

pub use dir_builder::DirBuilder;
pub use file::File;
pub use metadata::{FileTimes, FileType, Metadata, Permissions};
pub use open_options::OpenOptions;
pub use read_dir::{DirEntry, ReadDir};
pub use walk::Walk;
