//! The licences of everything that is linked into a binary, which its packages must carry.
//!
//! All allowed licences (deny.toml) ask for their text and the names of the authors to be kept. Every crate
//! brings its own files; equal texts are written once, with the names of all crates that they are for.
//!
//! What it is not: a choice between licences. A crate under one or the other is listed with all its texts.

use super::{cargo_in, output};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// How names of such files begin, in capitals.
const BEGINNINGS: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// The notices of a package of the workspace, named as to cargo.
pub(super) fn of(sources: &Path, package: &[&str]) -> Result<String, String> {
    let mut tree = cargo_in(sources);
    tree.args(["tree", "--locked", "--edges", "normal", "--prefix", "none"]).args(package);
    let tree = output(tree.args(["--format", "{p}\t{l}"]))?;
    let mut metadata = cargo_in(sources);
    let metadata = output(metadata.args(["metadata", "--locked", "--format-version", "1"]))?;
    let metadata: Value =
        serde_json::from_str(&metadata).map_err(|error| format!("cargo metadata: {error}"))?;
    let folders = folders(&metadata);
    let mut crates = BTreeMap::new();
    for (name, licence) in linked(&tree) {
        let folder = folders.get(&name).ok_or(format!("cargo metadata has no {name}"))?;
        crates.insert(name, (licence, texts(folder)?));
    }
    Ok(written(&crates))
}

/// Crates from outside in the output of `cargo tree`: "name version" and the licence.
fn linked(tree: &str) -> BTreeSet<(String, String)> {
    let outside =
        tree.lines().filter_map(|line| line.split_once('\t')).filter(|(name, _)| !name.contains('/'));
    outside
        .map(|(name, licence)| {
            let mut words = name.split(' ');
            let (name, version) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let licence = licence.trim_end_matches(" (*)");
            (format!("{name} {}", version.trim_start_matches('v')), licence.to_owned())
        })
        .collect()
}

/// Where each crate's sources are.
fn folders(metadata: &Value) -> BTreeMap<String, PathBuf> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let folder = |package: &Value| {
        let text = |key: &str| package[key].as_str();
        let folder = Path::new(text("manifest_path")?).parent()?.to_owned();
        Some((format!("{} {}", text("name")?, text("version")?), folder))
    };
    packages.filter_map(folder).collect()
}

/// The texts of a crate's licences.
fn texts(folder: &Path) -> Result<Vec<String>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        if path.is_file() && BEGINNINGS.iter().any(|beginning| name.starts_with(beginning)) {
            paths.push(path);
        }
    }
    paths.sort();
    let read = |path: &PathBuf| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).replace('\r', ""));
    paths.iter().map(|path| read(path).map_err(failed)).collect()
}

/// One text of all.
fn written(crates: &BTreeMap<String, (String, Vec<String>)>) -> String {
    let mut text = "What is linked into this program or library besides its own code and the standard\n\
                    library of Rust (MIT OR Apache-2.0), with the licences, and then their texts.\n\n"
        .to_owned();
    let mut users: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, (licence, texts)) in crates {
        text.push_str(&format!("{name}: {licence}\n"));
        for one in texts {
            users.entry(one.trim()).or_default().push(name);
        }
    }
    // In the order of their first users.
    let mut users: Vec<_> = users.into_iter().collect();
    users.sort_by(|a, b| a.1.cmp(&b.1));
    for (one, names) in users {
        text.push_str(&format!("\n{}\n{}:\n\n{one}\n", "-".repeat(80), names.join(", ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_written_once() {
        let one = |texts: &[&str]| ("MIT".to_owned(), texts.iter().map(|&text| text.to_owned()).collect());
        let crates = BTreeMap::from([
            ("a 1".to_owned(), one(&["shared\n", "of a"])),
            ("b 2".to_owned(), one(&["shared"])),
        ]);
        let text = written(&crates);
        assert_eq!(text.matches("shared").count(), 1, "{text}");
        assert!(text.contains("\na 1, b 2:\n\nshared\n") && text.contains("\na 1:\n\nof a\n"), "{text}");
    }

    #[test]
    fn our_own_crates_need_no_notice() {
        let tree = "hectare-cli v0.1.0 (/somewhere)\tMIT OR Apache-2.0\nlog v0.4.1\tMIT\n\
                    log v0.4.1\tMIT (*)\nproc v1.0.0 (proc-macro)\tZlib\n";
        let found: Vec<_> = linked(tree).into_iter().collect();
        let pair = |name: &str, licence: &str| (name.to_owned(), licence.to_owned());
        assert_eq!(found, [pair("log 0.4.1", "MIT"), pair("proc 1.0.0", "Zlib")]);
    }
}
