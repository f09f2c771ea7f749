//! The content of a volume outside of it: as a tar archive, as a layer or an OCI image, and as what differs
//! between two volumes.
//!
//! All of these walk trees in an order that depends on nothing but names, with names sorted by their bytes
//! ([`Names`]). So the same content gives the same bytes, wherever it lies on its volume, and two trees are
//! compared in one pass ([`Comparison`]).
//!
//! An error ends an export: an archive that lacks a file must not look like one that has all. What an archive
//! can't hold by its nature, a socket, is reported and left out.
//!
//! Hazards: a volume may be corrupt or hostile. Walks end, memory is bounded by what a sound volume of its
//! size could have, and so is the data of an archive; names can't leave the directory, since the engine
//! refuses those with a slash. Programs that unpack an archive of a hostile volume must still take care, as
//! with any archive from it.

mod compare;
mod compression;
mod content;
mod digest;
mod entries;
mod error;
mod export;
mod file;
mod links;
mod names;
mod oci;
pub mod tar;
mod tree;
mod walk;
mod zstd_frames;

pub use compare::{Change, Comparison, Difference, Ignored, What};
pub use compression::{Compression, Packer};
pub use entries::Observer;
pub use error::Error;
pub use export::{export, export_layer};
pub use file::NewFile;
pub use names::{Entry, MET_TWICE, Names, TOO_MANY, is_room_for};
pub use oci::{Config, ImageOptions, Place, export_image};
pub use tree::Tree;
