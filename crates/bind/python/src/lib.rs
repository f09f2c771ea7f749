//! The native half of the Python package `hectare`: the library's operations, with bytes for paths.
//!
//! The other half is in `python/hectare`: names and types that Python's users know (`open`, `os.stat_result`,
//! paths, fsspec) are made there, of what is here. This half has what only Rust can do: calling the library
//! with the interpreter's lock released, keeping handles safe, and turning errors into `OSError`.
//!
//! Invariants:
//! - *The interpreter's lock is released* in every call that may read or write an image
//!   ([`guard::Held::run`]),   and no lock of ours is held while it is taken again, so the two can't wait
//!   for each other.
//! - *A handle that is closed, or that came along in a fork, gives an exception* ([`guard`]): nothing
//!   crashes, and   a child process never writes what its parent has cached.
//!
//! Not here: command lines, defaults and conveniences.

mod buffer;
mod build;
mod check;
mod failure;
mod file;
mod guard;
mod stat;
mod volume;
mod watched;

/// The module `hectare._native`.
#[pyo3::pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use crate::build::{build, mkfs, parse_size, source_date_epoch};
    #[pymodule_export]
    use crate::check::check;
    #[pymodule_export]
    use crate::file::File;
    #[pymodule_export]
    use crate::volume::Volume;
}
