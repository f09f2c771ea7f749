//! Object stores as devices: volumes as chunk objects under a manifest ([`StoreDevice`]), and images that
//! are one object, for reading ([`ImageDevice`]).
//!
//! A volume at a prefix has these objects:
//!
//! | object | what it is | how it changes |
//! |---|---|---|
//! | `manifest` | length, sizes, and which tables there are ([`manifest`]) | by conditional put only |
//! | `lock` | the one writer, with a lease ([`lease`]) | by conditional put only |
//! | `objects/SESSION/NUMBER` | a chunk of bytes, or a table of chunks | never; deleted when superseded |
//!
//! Invariants:
//! - An object's name is never used twice: a session draws 64 random bits and counts up. So a request of a
//!   writer that is long gone, done late, can neither overwrite nor delete what a manifest refers to.
//! - A manifest refers only to objects whose put was acknowledged before the manifest's own put was sent.
//! - The manifest's put has the version of the manifest it replaces as its condition. Of two writers one
//!   fails.
//!
//! Hazards: what a store returns is a stranger's. Lengths are bounded before memory is taken, every object
//! has a checksum in what refers to it. Messages never have credentials: those come from the environment,
//! and queries of addresses, which may be signatures, are cut out.
//!
//! What this crate is not: a file system, or a database's disk. Each flush costs at least three round trips.

mod address;
mod bucket;
mod cache;
mod codec;
mod connect;
mod cost;
mod directory_store;
mod error;
mod garbage;
mod image;
mod lease;
mod manifest;
mod open;
mod options;
mod runtime;
mod staged;
mod volume;
mod write_log;

pub use address::{Address, Place};
pub use bucket::Bucket;
pub use cost::Cost;
pub use directory_store::DirectoryStore;
pub use error::{Error, Result};
pub use garbage::{Swept, sweep};
pub use image::ImageDevice;
pub use manifest::digest;
pub use open::{Kind, Opened, Summary, create, kind_of, open, summary};
pub use options::{DEFAULT_CHUNK, Options};
pub use volume::StoreDevice;
