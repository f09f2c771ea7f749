//! Fuzz target: files with block maps, undamaged or with maps that lie, are written to, cut, punched and converted
//! ([`crate::written`]).

use crate::patch;
use crate::written::{self, Target};

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

pub(super) fn target(bytes: &[u8]) {
    written::run(&TARGET, patch::decode_aimed(bytes, BASES), bytes);
}
