//! Reads directories and archives into one tree, and makes an image of it.
//!
//! [`Tree::build`] takes ordered sources (layers) and gives a [`Tree`]: every name, kind, owner, mode, time,
//! extended attribute, hard link and hole, but no file data; data stays where it is and is opened through
//! [`Tree::opener`]. So the exact size of an image is known before a byte of data is read.
//!
//! Invariants: a tree depends on its sources and options only, never on thread timing or on the order in
//! which a directory is listed. Children are sorted by the bytes of their names; node ids are given out in
//! one fixed order. Names are bytes and need not be UTF-8.
//!
//! [`Image::plan`] lays a tree out in a volume of a given size, or of the smallest that holds it, and
//! [`Image::write`] writes it. [`Image::on_demand`] makes a device of it that reads files when they are asked
//! for.
//!
//! Hazards: a source directory can change between the scan and the copy. The data read is compared with the
//! scan, and a difference is [`Error::Changed`]. An archive is untrusted input: any bytes give a tree or an
//! error.

mod error;
mod handle;
mod image;
mod image_error;
mod layout;
mod like;
mod on_demand;
mod progress;
mod source;
mod time;
mod tree;
mod write;

pub use error::{Error, ShownPath};
pub use image::{Explanation, Image, Part, Size, reproducible};
pub use image_error::ImageError;
pub use like::{Like, OldInode};
pub use on_demand::OnDemand;
pub use progress::{Progress, Quiet};
pub use source::{
    Addition, Content, Excludes, FileContexts, ModeChange, Opener, Options, Platform, Reference, Source, Spec,
};
pub use time::Timestamp;
pub use tree::{Children, Kind, Meta, NodeId, Segment, Segments, Totals, Tree, Xattr, XattrSetId};
