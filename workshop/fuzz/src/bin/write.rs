//! Fuzz target: open a volume for writing, undamaged or damaged, run a short program on it, close it, walk
//! it ([`hectare_fuzz::written`]).
#![cfg_attr(feature = "libfuzzer", no_main)]

use hectare_fuzz::written::{self, Target};
use hectare_fuzz::{patch, script};

const TARGET: Target = Target { paths: script::PATHS, special: false, watches: false };

hectare_fuzz::target!(|bytes: &[u8]| written::run(&TARGET, patch::decode(bytes), bytes));
