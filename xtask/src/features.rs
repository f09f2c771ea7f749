//! The features of the crate `hectare`: that each set compiles, and that a reader links little.
//!
//! `cargo xtask features` checks the sets one by one; `tidy` only counts what a reader depends on, which costs
//! nothing.

use hectare_tools::steps::{cargo, quiet, shown};
use std::collections::BTreeSet;

/// The sets that are checked: those that users are likely to ask for, and each feature in one of them.
const SETS: [&[&str]; 6] = [
    &["--no-default-features"],
    &["--no-default-features", "--features", "mkfs"],
    &["--no-default-features", "--features", "check,disk,nbd"],
    &["--no-default-features", "--features", "admin"],
    &["--no-default-features", "--features", "build,fuse"],
    &["--all-features"],
];

/// Packages that a reader may depend on, itself included; and those that it must not, whatever their number.
const READER_MAX: usize = 48;
const READER_NEVER: [&str; 16] = [
    "hectare-check",
    "hectare-disk",
    "hectare-disk-build",
    "hectare-export",
    "hectare-fuse",
    "hectare-host",
    "hectare-identify",
    "hectare-mkfs",
    "hectare-nbd",
    "hectare-oracle",
    "hectare-populate",
    "hectare-repair",
    "hectare-resize",
    "hectare-store",
    "hectare-tune",
    "hectare-xfs",
];

/// Whether a set compiles: without warnings, where clippy is there.
fn compiles(set: &[&str]) -> bool {
    let has_clippy = quiet(cargo().args(["clippy", "--version"])).is_some();
    let verb = if has_clippy { "clippy" } else { "check" };
    let denied: &[&str] = if has_clippy { &["--", "-D", "warnings"] } else { &[] };
    shown(cargo().args([verb, "--quiet", "--package", "hectare", "--lib"]).args(set).args(denied))
}

/// Whether the smallest set compiles: code that only other features use gives warnings there.
pub(crate) fn reader_compiles() -> bool {
    compiles(SETS[0])
}

/// `cargo xtask features`: the sets compile.
pub(crate) fn run() -> bool {
    let sound = SETS.iter().filter(|set| compiles(set)).count();
    let complaints = complaints();
    complaints.iter().for_each(|complaint| eprintln!("{complaint}"));
    sound == SETS.len() && complaints.is_empty()
}

/// What is wrong with the dependencies of a reader.
pub(crate) fn complaints() -> Vec<String> {
    match reader() {
        Some(packages) => complaints_about(&packages),
        None => vec!["cargo tree fails on the package hectare".to_owned()],
    }
}

fn complaints_about(packages: &BTreeSet<String>) -> Vec<String> {
    let never = READER_NEVER.iter().filter(|name| packages.contains(**name));
    let mut complaints: Vec<String> =
        never.map(|name| format!("a reader depends on {name}: leave it to a feature of hectare")).collect();
    if packages.len() > READER_MAX {
        complaints.push(format!(
            "a reader depends on {} packages, more than {READER_MAX}: {}",
            packages.len(),
            packages.iter().cloned().collect::<Vec<_>>().join(" ")
        ));
    }
    complaints
}

/// The packages that `hectare` links without features, itself included; those that run in the compiler, too.
fn reader() -> Option<BTreeSet<String>> {
    let mut tree = cargo();
    tree.args(["tree", "--offline", "--package", "hectare", "--no-default-features"]);
    tree.args(["--edges", "normal", "--prefix", "none", "--format", "{p}"]);
    let output = quiet(&mut tree)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Some(text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_reader_must_not_have_is_named() {
        let packages = |names: &[&str]| names.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
        assert!(complaints_about(&packages(&["hectare", "hectare-engine", "libc"])).is_empty());
        assert!(complaints_about(&packages(&["hectare", "hectare-mkfs"]))[0].contains("hectare-mkfs"));
        let many: BTreeSet<String> = (0..=READER_MAX).map(|n| format!("p{n:03}")).collect();
        assert!(complaints_about(&many)[0].contains("p000 p001"));
    }

    #[test]
    fn the_tree_is_read() {
        let reader = reader().unwrap();
        assert!(reader.contains("hectare") && reader.contains("hectare-engine"), "{reader:?}");
    }
}
