//! The inputs kept with the project, copied to and from the fuzzer's corpus.
//!
//! An empty corpus begins with the kept inputs. `cargo hunt fuzz keep` brings new findings back: libFuzzer
//! selects the inputs of the corpus that reach what the kept ones don't, and the shortest of these are added.

use super::{INPUT_MAX, corpus_of, limited};
use hectare_fuzz::kept;
use hectare_tools::steps::root;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// The most inputs that are kept of a target.
const KEPT_MAX: usize = 60;
/// The longest input that is kept: the file is text for people's version control.
const LEN_MAX: usize = 1024;

/// Where the kept inputs of a target are.
pub(super) fn file_of(target: &str) -> PathBuf {
    root().join("workshop/fuzz/kept").join(target)
}

/// Puts the kept inputs into an empty corpus.
pub(super) fn plant(target: &str, corpus: &Path) -> io::Result<()> {
    if super::files(corpus) > 0 { Ok(()) } else { unpack(target, corpus) }
}

/// Adds inputs from the corpora of the targets; returns whether that worked.
pub(super) fn add(folder: &Path, targets: &[&str]) -> bool {
    let added = targets.iter().try_for_each(|target| {
        let count = one(&folder.join(target), target)?;
        println!("{target:<12} {count:>4} inputs added");
        Ok::<(), io::Error>(())
    });
    added.inspect_err(|error| eprintln!("can't keep inputs: {error}")).is_ok()
}

fn one(program: &Path, target: &str) -> io::Result<usize> {
    let merged = tempfile::tempdir()?;
    unpack(target, merged.path())?;
    let before = names(merged.path())?;
    let status = limited(program)
        .arg("-merge=1")
        .arg(format!("-max_len={INPUT_MAX}"))
        .arg(merged.path())
        .arg(corpus_of(target))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    if !status.success() {
        return Err(io::Error::other(format!("merging the corpus of {target} failed: {status}")));
    }
    let found = names(merged.path())?.into_iter().filter(|name| !before.contains(name));
    let mut found: Vec<Vec<u8>> = found.map(fs::read).collect::<io::Result<_>>()?;
    found.retain(|input| input.len() <= LEN_MAX);
    found.sort_by_key(Vec::len);
    found.truncate(KEPT_MAX.saturating_sub(before.len()));
    kept::add(&file_of(target), &found)?;
    Ok(found.len())
}

fn unpack(target: &str, folder: &Path) -> io::Result<()> {
    let inputs = kept::read(&file_of(target))?;
    (0..)
        .zip(inputs)
        .try_for_each(|(n, input): (usize, _)| fs::write(folder.join(format!("kept-{n}")), input))
}

fn names(folder: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
}
