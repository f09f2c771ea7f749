//! Fuzz target: files with block maps, undamaged or with maps that lie, are written to, cut, punched and converted
//! ([`hectare_fuzz::written`]).
#![cfg_attr(feature = "libfuzzer", no_main)]

use hectare_fuzz::patch;
use hectare_fuzz::written::{self, Target};

const BASES: &[&str] = &["ext2", "ext3", "inline-old"];
const PATHS: &[&[u8]] = &[
    b"/sparse",
    b"/sparse",
    b"/medium",
    b"/small",
    b"/d/f00",
    b"/new",
    b"/new",
    b"/y",
    b"/d",
    b"/links/slow",
    b"/attrs/many",
    b"/x",
];
const TARGET: Target = Target { paths: PATHS, special: true, watches: true };

hectare_fuzz::target!(|bytes: &[u8]| written::run(&TARGET, patch::decode_aimed(bytes, BASES), bytes));
