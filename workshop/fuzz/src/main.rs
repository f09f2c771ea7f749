//! The fuzz targets as a program: `fuzz TARGET ...` runs one of them ([`hectare_fuzz::smoke`]).
//!
//! With the feature `libfuzzer` the program is the one target that `HECTARE_FUZZ_TARGET` names when it is
//! compiled: libFuzzer looks at the counters of a whole program after each input, so it should have few.
#![cfg_attr(feature = "libfuzzer", no_main)]

hectare_fuzz::count_heap!();

#[cfg(not(feature = "libfuzzer"))]
fn main() -> std::process::ExitCode {
    hectare_fuzz::smoke::main()
}

#[cfg(feature = "libfuzzer")]
const TARGET: hectare_fuzz::targets::Target =
    hectare_fuzz::targets::named(env!("HECTARE_FUZZ_TARGET")).expect("it names a target");

#[cfg(feature = "libfuzzer")]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    hectare_fuzz::measure::bounded(bytes.len(), || TARGET(bytes));
});
