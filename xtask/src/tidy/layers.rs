//! The layers of the workspace: which crate may depend on which.
//!
//! The crates are in groups, one a folder of `crates/`. Arrows point down only, between groups and inside each, for
//! tests as well: a test that needs a higher layer belongs there. The workshop stands on the layers, and none of them
//! on it; but tests of any crate may use the oracle, which uses none.

use super::{Finding, Severity};
use hectare_tools::steps::root;
use hectare_tools::workspace::{Dependency, Package, packages};

/// The groups, which are folders of `crates/`, and their crates by the names of their folders: from the lowest to the
/// highest. The last group stands for `crates/` itself.
const GROUPS: [(&str, &[&str]); 9] = [
    ("base", &["units", "device", "host"]),
    ("format", &["partition", "ext4", "probe", "xfs"]),
    ("core", &["alloc", "mmp", "journal", "mkfs", "engine"]),
    ("offline", &["check", "salvage", "resize", "tune", "repair"]),
    ("image", &["lvm", "disk", "identify", "populate", "disk-build", "export"]),
    ("mount", &["fuse", "monitor"]),
    ("remote", &["nbd", "store"]),
    ("", &["hectare", "hectare-cli"]),
    ("bind", &["capi", "python"]),
];
const ORACLE: &str = "hectare-oracle";
/// What the oracle stands on.
const TOOLS: &str = "hectare-tools";
/// The first group that may choose an async runtime, a command-line parser or an opaque error type.
const FIRST_FRONT: &str = "mount";
const FRONT_ONLY: [&str; 8] =
    ["tokio", "async-std", "smol", "futures", "clap", "anyhow", "eyre", "indicatif"];

/// Findings about all manifests.
pub(super) fn check() -> Vec<Finding> {
    match packages() {
        Some(packages) => packages.iter().flat_map(check_package).collect(),
        None => vec![finding("Cargo.toml", "cargo metadata fails on the workspace".into())],
    }
}

fn finding(file: &str, message: String) -> Finding {
    Finding { file: file.into(), line: 1, severity: Severity::Error, message }
}

/// A crate's place among the layers, and its group's; none for the workshop and `xtask`.
fn rank(name: &str) -> Option<(usize, usize)> {
    let folder = match name {
        "hectare" | "hectare-cli" => name,
        _ => name.strip_prefix("hectare-")?,
    };
    let of_group = |(group, (_, crates)): (usize, &(&str, &[&str]))| {
        crates.iter().position(|known| *known == folder).map(|place| (group, place))
    };
    GROUPS.iter().enumerate().find_map(of_group)
}

fn check_package(package: &Package) -> Vec<Finding> {
    let name = package.name.as_str();
    let expected = rank(name).map(|(group, place)| {
        let (group, crates) = GROUPS[group];
        let folder = ["crates", group, crates[place]].into_iter().filter(|part| !part.is_empty());
        folder.collect::<Vec<_>>().join("/") + "/Cargo.toml"
    });
    let is_layer = package.manifest.starts_with("crates/");
    if is_layer && expected.as_deref() != Some(&*package.manifest) {
        let message = format!("{name} is in no group of that folder (xtask/src/tidy/layers.rs)");
        return vec![finding(&package.manifest, message)];
    }
    let complaint = |dependency: &Dependency| complaint_about(name, dependency);
    let complaints = package.dependencies.iter().filter_map(complaint);
    complaints.map(|message| finding(&package.manifest, message)).collect()
}

fn complaint_about(name: &str, dependency: &Dependency) -> Option<String> {
    let (own, other) = (rank(name), dependency.name.as_str());
    if name == ORACLE || name == TOOLS {
        let uses_layer = dependency.is_inside && !(name == ORACLE && other == TOOLS);
        return uses_layer.then(|| format!("{name} judges the layers and may not use {other}"));
    }
    let own = own?; // the workshop and xtask may use all
    if !dependency.is_inside {
        let front = GROUPS.iter().position(|(group, _)| *group == FIRST_FRONT);
        let banned = Some(own.0) < front && !dependency.is_dev && FRONT_ONLY.contains(&other);
        return banned.then(|| format!("{name} may not use {other}: only {FIRST_FRONT} and above may"));
    }
    match rank(other) {
        Some(below) if below < own => None,
        Some(_) => Some(format!("{name} may not use {other}: arrows point down only")),
        None if other == ORACLE && dependency.is_dev => None,
        None => Some(format!("{name} may not use {other}: of the workshop only {ORACLE}, and in tests only")),
    }
}

/// One line per crate: what it depends on from outside; and how many packages the lock file has.
pub(super) fn budget() -> Vec<String> {
    let mut lines = Vec::new();
    for package in packages().unwrap_or_default() {
        let outside = package.dependencies.iter().filter(|d| !d.is_inside && !d.is_dev);
        let mut names: Vec<&str> = outside.map(|d| d.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        lines.push(format!("{}: {} dependencies: {}", package.name, names.len(), names.join(" ")));
    }
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).unwrap_or_default();
    let locked = lock.lines().filter(|line| line.starts_with("source = ")).count();
    lines.push(format!("all together: {locked} packages from outside in Cargo.lock"));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(name: &str, other: &str, in_tests: bool, inside: bool) -> bool {
        let dependency =
            Dependency { name: other.into(), required: "*".to_owned(), is_dev: in_tests, is_inside: inside };
        complaint_about(name, &dependency).is_some()
    }

    #[test]
    fn arrows_point_down_only() {
        assert!(!complaint("hectare-engine", "hectare-mkfs", false, true));
        assert!(complaint("hectare-mkfs", "hectare-engine", false, true));
        assert!(complaint("hectare-mkfs", "hectare-engine", true, true));
        assert!(complaint("hectare-populate", "hectare-nbd", false, true), "a higher group");
        assert!(!complaint("hectare-units", ORACLE, true, true));
        assert!(complaint("hectare-units", ORACLE, false, true));
        assert!(complaint("hectare-cli", "hectare-lab", true, true), "the workshop");
        assert!(complaint(ORACLE, "hectare-units", false, true));
        assert!(!complaint(ORACLE, TOOLS, false, true) && complaint(TOOLS, ORACLE, false, true));
        assert!(!complaint("hectare-hunts", "hectare", false, true));
    }

    #[test]
    fn core_crates_choose_no_front_end_library() {
        assert!(complaint("hectare-engine", "anyhow", false, false));
        assert!(!complaint("hectare-engine", "anyhow", true, false));
        assert!(!complaint("hectare", "clap", false, false));
        assert!(complaint("hectare-populate", "indicatif", false, false));
    }

    #[test]
    fn a_package_without_a_group_or_in_another_folder_is_found() {
        let package = |name: &str, manifest: &str| Package {
            name: name.into(),
            version: String::new(),
            manifest: manifest.into(),
            is_published: false,
            has: [true; 2],
            has_repository: false,
            dependencies: Vec::new(),
        };
        assert_eq!(check_package(&package("hectare-new", "crates/new/Cargo.toml")).len(), 1);
        assert_eq!(check_package(&package("hectare-ext4", "crates/core/ext4/Cargo.toml")).len(), 1);
        assert!(check_package(&package("hectare-ext4", "crates/format/ext4/Cargo.toml")).is_empty());
        assert!(check_package(&package("hectare-new", "workshop/new/Cargo.toml")).is_empty());
    }
}
