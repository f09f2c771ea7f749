//! Fuzz target: any bytes as SELinux file contexts (regular expressions and labels) and their substitutions,
//! asked for the labels of paths that are a part of the input as well.

use crate::input::Input;
use hectare_populate::{FileContexts, Kind};
use hectare_units::Bytes;
use std::fs;
use std::path::PathBuf;

/// The most paths that one input asks for.
const PATHS_MAX: usize = 64;

pub(super) fn target(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let flags = input.byte();
    let parts: Vec<&[u8]> = input.rest().splitn(3, |byte| *byte == 0).collect();
    let part = |at: usize| parts.get(at).copied().unwrap_or_default();
    let file = place("contexts");
    let beside = place("contexts.subs");
    fs::write(&file, part(0)).expect("the temporary directory takes a file");
    if flags & 1 != 0 {
        fs::write(&beside, part(1)).expect("the temporary directory takes a file");
    }
    let read = FileContexts::read(&file);
    // What was read is in memory; the second file is not always there.
    let _ = (fs::remove_file(&file), fs::remove_file(&beside));
    let contexts = match read {
        Ok(contexts) => contexts,
        Err(error) => return assert!(!error.to_string().contains('\n'), "{error}"),
    };
    let kinds = [Kind::Directory, Kind::File { size: Bytes::ZERO }, Kind::Fifo];
    for path in part(2).split(|byte| *byte == b'\n').take(PATHS_MAX) {
        for kind in &kinds {
            let label = contexts.label(path, kind);
            assert_eq!(label, contexts.label(path, kind));
            assert!(label.is_none_or(|label| label.ends_with(b"\0")), "a label ends with a NUL");
        }
    }
}

/// A file of this process in memory, where there is room for it.
fn place(name: &str) -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    let folder = if memory.is_dir() { memory } else { std::env::temp_dir() };
    folder.join(format!("hectare-fuzz-{}-{name}", std::process::id()))
}
