//! Fuzz target: directories that fold names, undamaged or with names, hashes and flags that are not as they should be,
//! are changed ([`crate::written`]).

use crate::patch;
use crate::written::{self, Target};

const BASES: &[&str] = &["casefold"];
const PATHS: &[&[u8]] = &[
    b"/",
    b"/fold",
    b"/FOLD",
    b"/fold/alpha",
    b"/fold/ALPHA",
    b"/Fold/Stra\xc3\x9fe",
    b"/fold/STRASSE",
    b"/fold/\xc3\xa9",
    b"/fold/e\xcc\x81",
    b"/fold/\xff\xfe",
    b"/fold/\xff\xFE\xc0",
    b"/fold/sub",
    b"/fold/SUB/x",
    b"/fold/sub/X",
    b"/d",
    b"/d/f00",
    b"/d/F01",
    b"/d/F123",
    b"/d/f19",
    b"/new",
    b"/New",
    b"/new/A",
    b"/new/a",
    b"/small",
];
const TARGET: Target = Target { paths: PATHS, special: true, watches: true };

pub(super) fn target(bytes: &[u8]) {
    written::run(&TARGET, patch::decode_aimed(bytes, BASES), bytes);
}
