//! Fuzz target: open a volume for writing, undamaged or damaged, run a short program on it, close it, walk
//! it ([`crate::written`]).

use crate::written::{self, Target};
use crate::{patch, script};

const TARGET: Target = Target { paths: script::PATHS, special: false, watches: false };

pub(super) fn target(bytes: &[u8]) {
    written::run(&TARGET, patch::decode(bytes), bytes);
}
