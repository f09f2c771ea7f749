//! What the fuzz targets share.
//!
//! A fuzzer that flips bits of an image gets no further than the first checksum. So the targets that open a
//! whole volume take their input as a list of small changes ([`patch`]) to one of a few tiny volumes made by
//! mke2fs ([`bases`]), and then have every checksum set right again ([`repair`]): what the engine sees is a
//! volume that is wrong, but well sealed, as an attacker would make it. [`walk`] does everything that reading
//! can do, and [`script`] everything that writing can
//! ([`written`] runs it).
//!
//! The targets themselves are the programs in `src/bin`, one each. None of them needs a sanitizer: what is
//! looked for are panics (assertions and overflow checks are on), hangs, and amplification: memory and time
//! out of proportion to the input ([`measure`]). `cargo hunt fuzz` builds and runs them with libFuzzer.
//! Without the feature `libfuzzer`, which that sets, a target runs the files it is given, or for some seconds
//! changes to its kept inputs ([`smoke`], [`kept`]); the tests of this package do the latter.

pub mod archive;
pub mod bases;
pub mod disks;
pub mod input;
pub mod kept;
pub mod measure;
pub mod patch;
pub mod repair;
pub mod requests;
pub mod script;
pub mod smoke;
pub mod tree;
pub mod walk;
pub mod written;

#[cfg(feature = "libfuzzer")]
#[doc(hidden)]
pub use libfuzzer_sys;

/// The body of a target: what it does with the bytes of one input, within the limits of [`measure`].
#[cfg(feature = "libfuzzer")]
#[macro_export]
macro_rules! target {
    (|$bytes:ident: &[u8]| $body:expr) => {
        $crate::count_heap!();

        $crate::libfuzzer_sys::fuzz_target!(|$bytes: &[u8]| {
            $crate::measure::bounded($bytes.len(), || $body);
        });
    };
}

/// The body of a target: what it does with the bytes of one input, within the limits of [`measure`]. The
/// program does it as its command line says ([`smoke::main`]).
#[cfg(not(feature = "libfuzzer"))]
#[macro_export]
macro_rules! target {
    (|$bytes:ident: &[u8]| $body:expr) => {
        $crate::count_heap!();

        fn target($bytes: &[u8]) {
            $body
        }

        fn main() -> std::process::ExitCode {
            $crate::smoke::main(target)
        }
    };
}
