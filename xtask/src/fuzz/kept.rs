//! What undamaged volumes became under the target `write`, judged by e2fsck.
//!
//! The target itself can only see what the engine sees. So its corpus, which holds a program for every path that was
//! found, is run once more with the resulting volumes kept, and each must be clean.

use super::{corpus_of, limited};
use crate::steps::quiet;
use hectare_oracle::tool;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Stdio;

/// Runs the corpus and e2fsck; whether every volume is clean. Without e2fsck nothing is judged, which is said.
pub(super) fn judge(program: &Path) -> bool {
    if tool("e2fsck").is_none() {
        println!("  SKIPPED e2fsck of what was written: it is not installed");
        return true;
    }
    let folder = std::env::temp_dir().join(format!("hectare-fuzz-kept-{}", std::process::id()));
    let judged = fs::create_dir_all(&folder).and_then(|()| all(program, &folder));
    let _ = fs::remove_dir_all(&folder); // a leftover in the temporary folder harms nobody
    match judged {
        Ok((volumes, wrong)) => {
            println!("  e2fsck of {volumes} volumes that were written: {wrong} wrong");
            wrong == 0
        }
        Err(error) => {
            eprintln!("can't judge what was written: {error}");
            false
        }
    }
}

fn all(program: &Path, folder: &Path) -> io::Result<(usize, usize)> {
    let (mut volumes, mut wrong) = (0, 0);
    for input in fs::read_dir(corpus_of("write"))? {
        let input = input?.path();
        // One at a time, so that there is no more than one volume to keep.
        limited(program)
            .arg(&input)
            .env("HECTARE_FUZZ_KEEP", folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        for volume in fs::read_dir(folder)? {
            let volume = volume?.path();
            volumes += 1;
            let clean =
                tool("e2fsck").is_some_and(|mut e2fsck| quiet(e2fsck.arg("-fn").arg(&volume)).is_some());
            if !clean {
                wrong += 1;
                println!("  e2fsck is not content with what became of {}", input.display());
            }
            fs::remove_file(&volume)?;
        }
    }
    Ok((volumes, wrong))
}
