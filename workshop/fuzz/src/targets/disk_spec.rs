//! Fuzz target: any text as the description of a disk, in TOML or as files of `repart.d`.

use crate::input::Input;
use hectare_disk_build::{Disk, Environment, Identity, Spec};
use std::num::NonZeroUsize;
use std::path::Path;

/// What names files of the host, which are no part of an input.
const FILES: [&str; 5] = ["spec", "contexts", "file", "format", "boot-code"];

pub(super) fn target(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let is_toml = input.byte() & 1 == 0;
    let Ok(text) = std::str::from_utf8(input.rest()) else { return };
    let root = Path::new("/nonexistent");
    let spec = if is_toml {
        if text.contains("spec") || text.contains("contexts") {
            return;
        }
        Spec::parse(&root.join("disk.toml"), text)
    } else {
        if text.contains("CopyFiles") {
            return;
        }
        let files: Vec<_> =
            text.split('\0').map(str::to_owned).map(|text| ("a.conf".to_owned(), text)).collect();
        Spec::from_repart_texts(&files, root)
    };
    let spec = match spec {
        Ok(spec) => spec,
        Err(error) => return one_line(&error),
    };
    if FILES.iter().any(|word| text.to_ascii_lowercase().contains(word)) || text.contains("CopyBlocks") {
        return;
    }
    let env = Environment {
        threads: NonZeroUsize::MIN,
        epoch: Some(0),
        identity: Identity::Content,
        replaces: None,
        open: &|_| Err("no source".to_owned()),
        warn: &|_| {},
    };
    match Disk::plan(spec, &env) {
        Ok(disk) => assert!(disk.size().get() > 0),
        Err(error) => one_line(&error),
    }
}

fn one_line(error: &hectare_disk_build::Error) {
    let text = error.to_string();
    assert!(!text.contains('\n') && !text.is_empty(), "{text}");
}
