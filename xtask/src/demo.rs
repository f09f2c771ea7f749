//! The demonstration: a real directory becomes a real ext4 image, which is checked and inspected.
//!
//! The directory is `DEMO_FROM`, or the host's documentation, or else the project's own crates. Nothing
//! outside `out/` is written, and no step needs root.
//!
//! The command is built as for tests: a release is three times as long to build, and faster than a demonstration needs.

use crate::setup;
use hectare_tools::steps::{cargo, root, shown, target_folder};
use hectare_tools::tool;
use std::path::{Path, PathBuf};
use std::process::Command;

const IMAGE: &str = "out/demo.img";

/// Runs the demonstration; returns whether every step succeeded.
pub(crate) fn run() -> bool {
    setup::for_demo();
    if !shown(cargo().args(["build", "--package", "hectare-cli"])) {
        return false;
    }
    if let Err(error) = fresh_output() {
        eprintln!("can't prepare {}: {error}", root().join("out").display());
        return false;
    }
    let folder = folder();
    let binary = target_folder().join("debug/hectare");
    let hectare = |words: &[&str]| {
        let mut command = Command::new(&binary);
        command.current_dir(root()).args(words);
        shown(&mut command)
    };
    let made = hectare(&["build", "--from", &folder.to_string_lossy(), IMAGE]);
    made && checked()
        && hectare(&["stat", &format!("{IMAGE}:/")])
        && hectare(&["info", IMAGE])
        && hectare(&["map", IMAGE, "-o", "out/demo.svg"])
        && hectare(&["map", IMAGE, "-o", "out/demo.png"])
        && hectare(&["freefrag", IMAGE])
        && said(&folder, &binary)
}

fn said(folder: &Path, binary: &Path) -> bool {
    println!("\n{} is now in {IMAGE}; its picture is out/demo.svg and out/demo.png", folder.display());
    println!("look into it: {} tree {IMAGE}:/", binary.display());
    true
}

fn fresh_output() -> std::io::Result<()> {
    std::fs::create_dir_all(root().join("out"))?;
    for file in ["demo.img", "demo.svg", "demo.png"] {
        match std::fs::remove_file(root().join("out").join(file)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn folder() -> PathBuf {
    if let Some(chosen) = std::env::var_os("DEMO_FROM").filter(|chosen| !chosen.is_empty()) {
        return chosen.into();
    }
    // Small container images have the directory but little in it.
    let documents = Path::new("/usr/share/doc");
    let many = std::fs::read_dir(documents).is_ok_and(|entries| entries.count() >= 10);
    if many { documents.to_owned() } else { root().join("crates") }
}

fn checked() -> bool {
    match tool("e2fsck") {
        Some(mut e2fsck) => shown(e2fsck.current_dir(root()).args(["-fn", IMAGE])),
        None => {
            eprintln!("SKIPPED the check by e2fsck: it is not installed");
            true
        }
    }
}
