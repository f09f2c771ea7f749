//! `hectare --version --verbose`: how this binary was built, and what it reads and writes.
//!
//! Two builds of the same sources by the same compiler print the same: no time, no commit, no name of a host.
//!
//! What it is not: `--version` alone, which the parser answers with one line.

use crate::failure::Outcome;
use crate::output::Output;
use crate::{os, store};
use hectare_ext4::feature::{Compat, Features, Incompat, RoCompat};
use std::ffi::OsString;

/// Whether a command line asks for it: both options and nothing else, in either order.
pub(crate) fn is_asked(arguments: &[OsString]) -> bool {
    let Some([one, other]) = arguments.get(1..) else { return false };
    let is_version = |word: &OsString| word == "--version" || word == "-V";
    (is_version(one) && other == "--verbose") || (is_version(other) && one == "--verbose")
}

pub(crate) fn print() -> Outcome {
    let mut out = Output::listing();
    for (name, value) in lines() {
        match name {
            "" => writeln!(out, "{value}")?,
            name => writeln!(out, "{name}: {value}")?,
        }
    }
    out.finish()
}

fn lines() -> Vec<(&'static str, String)> {
    let (written, read) = features();
    let mut lines = vec![
        ("", concat!("hectare ", env!("CARGO_PKG_VERSION")).to_owned()),
        ("compiler", env!("HECTARE_COMPILER").to_owned()),
        ("target", concat!(env!("HECTARE_TARGET"), ", ", env!("HECTARE_PROFILE")).to_owned()),
        ("features", built_with().join(" ")),
        ("ext4, written", written.join(" ")),
        ("ext4, read only", read.join(" ")),
    ];
    lines.extend(os::FUSE_PROTOCOL.map(|(major, minor)| ("FUSE", format!("{major}.{minor}"))));
    lines.extend(store::MANIFEST.map(|version| ("object stores, manifest", version.to_string())));
    lines
}

/// The features of the package that are on.
fn built_with() -> Vec<&'static str> {
    let known = [("store", store::MANIFEST.is_some())];
    let on: Vec<_> = known.into_iter().filter(|(_, on)| *on).map(|(name, _)| name).collect();
    if on.is_empty() { vec!["none"] } else { on }
}

/// The names of the features of volumes that can be written, and of those that can only be read.
fn features() -> (Vec<String>, Vec<String>) {
    let none = Features::default();
    let compat = Compat::all().iter().map(|compat| Features { compat, ..none });
    let incompat = Incompat::all().iter().map(|incompat| Features { incompat, ..none });
    let ro_compat = RoCompat::all().iter().map(|ro_compat| Features { ro_compat, ..none });
    let all = compat.chain(incompat).chain(ro_compat);
    let named = all.filter(|one| one.names().iter().all(|name| !name.starts_with("FEATURE_")));
    let readable = named.filter(|one| one.check_read().is_ok());
    let (written, read): (Vec<_>, Vec<_>) = readable.partition(|one| one.check_write().is_ok());
    let names = |list: Vec<Features>| list.iter().flat_map(Features::names).collect();
    (names(written), names(read))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_asked_for_by_both_options_alone() {
        let asks = |words: &[&str]| is_asked(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert!(asks(&["hectare", "--version", "--verbose"]));
        assert!(asks(&["hectare", "--verbose", "-V"]));
        for words in [
            &["hectare"][..],
            &["hectare", "--version"],
            &["hectare", "--verbose", "--verbose"],
            &["hectare", "ls", "--version", "--verbose"],
        ] {
            assert!(!asks(words), "{words:?}");
        }
    }

    #[test]
    fn features_of_volumes_are_told_apart_by_what_is_done_with_them() {
        let (written, read) = features();
        let has = |list: &[String], name: &str| list.iter().any(|one| one == name);
        assert!(has(&written, "extent") && has(&written, "bigalloc") && has(&read, "shared_blocks"));
        assert!(!has(&read, "extent") && !has(&written, "shared_blocks"));
        assert!(lines().iter().all(|(_, value)| !value.is_empty() && !value.contains('\n')));
    }
}
