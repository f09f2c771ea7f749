//! Object stores as devices: volumes as chunk objects under a manifest ([`StoreDevice`]), and images that
//! are one object, for reading ([`ImageDevice`]).
//!
//! A volume at a prefix has these objects:
//!
//! | object | what it is | how it changes |
//! |---|---|---|
//! | `manifest` | length, sizes, which tables and patches there are ([`manifest`]) | by conditional put only |
//! | `lock` | the one writer, with a lease ([`lease`]) | by conditional put only |
//! | `objects/SESSION/NUMBER` | a chunk, a table, a list of tables, a patch | never; deleted when superseded |
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
//! Without the feature `client` there are only addresses and the formats, which need none of its
//! dependencies.
//!
//! What this crate is not: a file system, or a database's disk. Each flush costs at least two round trips.

// What only the client uses of the formats.
#![cfg_attr(not(feature = "client"), allow(dead_code))]

mod address;
#[cfg(feature = "client")]
mod bucket;
#[cfg(feature = "client")]
mod cache;
#[cfg(feature = "client")]
mod cache_file;
mod codec;
#[cfg(feature = "client")]
mod connect;
#[cfg(feature = "client")]
mod cost;
#[cfg(feature = "client")]
mod directory_store;
#[cfg(feature = "client")]
mod draw;
mod error;
#[cfg(feature = "client")]
mod fetch;
#[cfg(feature = "client")]
mod file_lock;
mod fuzz;
#[cfg(feature = "client")]
mod garbage;
#[cfg(feature = "client")]
mod image;
#[cfg(feature = "client")]
mod lease;
mod manifest;
mod note;
#[cfg(feature = "client")]
mod open;
#[cfg(feature = "client")]
mod options;
mod patch;
#[cfg(feature = "client")]
mod patches;
#[cfg(feature = "client")]
mod runtime;
#[cfg(feature = "client")]
mod staged;
#[cfg(feature = "client")]
mod volume;
#[cfg(feature = "client")]
mod write_log;

pub use address::{Address, Place};
#[cfg(feature = "client")]
pub use bucket::Bucket;
#[cfg(feature = "client")]
pub use cost::Cost;
#[cfg(feature = "client")]
pub use directory_store::DirectoryStore;
pub use error::{Error, Result};
pub use fuzz::digest;
#[cfg(feature = "client")]
pub use garbage::{Swept, sweep};
#[cfg(feature = "client")]
pub use image::ImageDevice;
pub use manifest::VERSION_PATCHED as MANIFEST_VERSION;
#[cfg(feature = "client")]
pub use open::{Kind, Opened, Summary, create, kind_of, open, summary};
#[cfg(feature = "client")]
pub use options::{DEFAULT_CHUNK, Options};
#[cfg(feature = "client")]
pub use volume::StoreDevice;
