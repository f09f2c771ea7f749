//! Checks with e2fsck the resulting volumes of undamaged ones under a target that writes.
//!
//! The target itself can only see what the engine sees. So its corpus, which holds a program for every path
//! that was found, is run once more with the resulting volumes kept, and each must be clean.

use super::{artifacts_of, corpus_of, limited};
use hectare_oracle::tool;
use hectare_tools::ended::may_skip;
use hectare_tools::steps::quiet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Inputs per run; their volumes, up to 2 MiB each, lie in the temporary directory meanwhile.
const BATCH: usize = 200;

/// Runs the corpus and e2fsck; returns whether there are volumes, and every one is clean. Without e2fsck
/// nothing is checked, which is reported, and fails where all is required.
pub(super) fn judge(programs: &Path, target: &str) -> bool {
    if tool("e2fsck").is_none() {
        println!("  SKIPPED e2fsck of what was written: it is not installed");
        return may_skip();
    }
    let folder = std::env::temp_dir().join(format!("hectare-fuzz-kept-{}", std::process::id()));
    let judged = fs::create_dir_all(&folder).and_then(|()| all(programs, target, &folder));
    let _ = fs::remove_dir_all(&folder); // a leftover in the temporary directory is harmless
    match judged {
        Ok((volumes, wrong)) => {
            println!("  e2fsck of {volumes} volumes that were written: {wrong} wrong");
            volumes > 0 && wrong == 0
        }
        Err(error) => {
            eprintln!("can't judge what was written: {error}");
            false
        }
    }
}

fn all(programs: &Path, target: &str, folder: &Path) -> io::Result<(usize, usize)> {
    let inputs: Vec<PathBuf> =
        fs::read_dir(corpus_of(target))?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    let (mut volumes, mut wrong) = (0, 0);
    for some in inputs.chunks(BATCH) {
        let status = limited(&programs.join(target))
            .args(some)
            .env("HECTARE_FUZZ_KEEP", folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        if !status.success() {
            return Err(io::Error::other(format!("{target} ended with {status} on inputs of its corpus")));
        }
        for volume in fs::read_dir(folder)? {
            let volume = volume?;
            volumes += 1;
            if !is_clean(&volume.path()) {
                wrong += 1;
                let kept = artifacts_of(target).join(volume.file_name());
                fs::copy(volume.path(), &kept)?;
                println!("  e2fsck finds {} wrong", kept.display());
            }
            fs::remove_file(volume.path())?;
        }
    }
    Ok((volumes, wrong))
}

fn is_clean(volume: &Path) -> bool {
    tool("e2fsck").is_some_and(|mut e2fsck| quiet(e2fsck.arg("-fn").arg(volume)).is_some())
}
