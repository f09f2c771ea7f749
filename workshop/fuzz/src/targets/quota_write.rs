//! Fuzz target: a volume with quotas, and values in inodes of their own that count there, undamaged or with quota files
//! that lie ([`crate::written`]).

use crate::patch;
use crate::written::{self, Target};

const BASES: &[&str] = &["quota"];
const PATHS: &[&[u8]] = &[
    b"/",
    b"/small",
    b"/hard",
    b"/medium",
    b"/sparse",
    b"/d",
    b"/d/f00",
    b"/d/f01",
    b"/d/new",
    b"/attrs",
    b"/attrs/one",
    b"/attrs/many",
    b"/attrs/acl",
    b"/attrs/large",
    b"/attrs/large",
    b"/links/slow",
    b"/new",
    b"/new/x",
    b"/new/y",
];
const TARGET: Target = Target { paths: PATHS, special: true, watches: true };

pub(super) fn target(bytes: &[u8]) {
    written::run(&TARGET, patch::decode_aimed(bytes, BASES), bytes);
}
