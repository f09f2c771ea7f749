//! The library for C: `libhectare` and `hectare.h`.
//!
//! The functions are those of the crate `hectare`, one by one, in C's terms. What C can get wrong must not
//! reach Rust: a handle is a number in the clothes of a pointer ([`handles`]) and never followed, so that
//! one that was closed is an error and not a crash; a panic ends at the border ([`failure::guard`]); memory
//! that belongs to the caller is touched in [`memory`] alone.
//!
//! Hazards: what only C can promise stays a promise: that a pointer to a buffer leads to as many bytes as
//! it says, that text ends with NUL, and that callbacks may be called from several threads ([`device`]).
//!
//! It is not: an interface by inode numbers, or one for mounts.

mod build;
mod check;
mod device;
mod directory;
mod failure;
mod file;
mod handles;
mod make;
mod memory;
mod metadata;
mod names;
mod progress;
mod sync;
mod volume;
mod xattr;

pub use build::*;
pub use check::*;
pub use device::*;
pub use directory::*;
pub use failure::{hectare_errno, hectare_message};
pub use file::*;
pub use make::*;
pub use metadata::*;
pub use names::*;
pub use progress::hectare_progress_step;
pub use volume::*;
pub use xattr::*;

/// The version of this interface: another number is another interface.
pub const HECTARE_ABI: u32 = 0;

/// The version of the interface that the library has: a program that was compiled for another must not use
/// it.
#[allow(unsafe_code)] // C calls it by this name
#[unsafe(no_mangle)]
pub extern "C" fn hectare_abi() -> u32 {
    HECTARE_ABI
}
