//! Fuzz target: files and directories inside their inodes, undamaged or with lengths that lie, are changed and grow out
//! of them ([`crate::written`]).

use crate::patch;
use crate::written::{self, Target};

const BASES: &[&str] = &["inline", "inline-old"];
const PATHS: &[&[u8]] = &[
    b"/",
    b"/small",
    b"/hard",
    b"/d",
    b"/d/f00",
    b"/d/f01",
    b"/d/new",
    b"/a",
    b"/a/b",
    b"/a/b/c",
    b"/a/b/c/x",
    b"/a/b/new",
    b"/a/b/..",
    b"/attrs",
    b"/attrs/one",
    b"/attrs/many",
    b"/attrs/acl",
    b"/links",
    b"/links/fast",
    b"/links/new",
    b"/new",
    b"/new/x",
    b"/medium",
];
const TARGET: Target = Target { paths: PATHS, special: true, watches: true };

pub(super) fn target(bytes: &[u8]) {
    written::run(&TARGET, patch::decode_aimed(bytes, BASES), bytes);
}
