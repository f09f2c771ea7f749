//! The ext4 on-disk format.

pub mod checksum;
pub mod error;

pub use error::{Corrupt, FormatError, Place, Unsupported};
