//! Jobs of `cargo xtask` that take too long for `make test`: `cargo hunt explore`, `cargo hunt wheel`.
//!
//! They draw nothing, so `--seed N`, which every hunt has, changes nothing.

use hectare_tools::ended::Exit;
use hectare_tools::steps::{cargo, parsed, shown, understood};

/// The schedule explorers of the allocator, whether its sources have changed or not.
pub(crate) fn explore(words: &[&str]) -> Exit {
    job("explore", "usage: cargo hunt explore [--seed N]", words)
}

/// The tests of the Python package on the wheel that users install.
pub(crate) fn wheel(words: &[&str]) -> Exit {
    job("python", "usage: cargo hunt wheel [--seed N]", words)
}

fn job(name: &str, usage: &str, words: &[&str]) -> Exit {
    if understood(parse(words), usage).is_none() {
        return Exit::Usage;
    }
    shown(cargo().args(["run", "--quiet", "--package", "xtask", "--", name])).into()
}

fn parse(words: &[&str]) -> Result<(), String> {
    match words {
        [] => Ok(()),
        ["--seed", seed] => parsed::<u64>("--seed", seed).map(|_| ()),
        _ => Err("only a seed can be given".to_owned()),
    }
}
