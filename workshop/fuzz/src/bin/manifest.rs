//! The manifest of a volume in an object store, and its tables: parsed, and written again as they were.
#![cfg_attr(feature = "libfuzzer", no_main)]

hectare_fuzz::target!(|bytes: &[u8]| {
    let _ = hectare_store::digest(bytes);
});
