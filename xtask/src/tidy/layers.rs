//! The layers of the workspace: which crate may depend on which.
//!
//! Arrows point down only, for tests as well: a test that needs a higher layer belongs there. The oracle is
//! no layer: tests of any crate may use it, and it uses none.

use super::{Finding, Severity};
use crate::steps::root;
use crate::workspace::{Dependency, Package, packages};

/// From the lowest to the highest.
pub(crate) const LAYERS: [&str; 33] = [
    "hectare-units",
    "hectare-device",
    "hectare-host",
    "hectare-nbd",
    "hectare-partition",
    "hectare-lvm",
    "hectare-alloc",
    "hectare-alloc-virtual",
    "hectare-ext4",
    "hectare-mmp",
    "hectare-probe",
    "hectare-disk",
    "hectare-identify",
    "hectare-journal",
    "hectare-xfs",
    "hectare-check",
    "hectare-mkfs",
    "hectare-salvage",
    "hectare-resize",
    "hectare-tune",
    "hectare-populate",
    "hectare-disk-build",
    "hectare-engine",
    "hectare-repair",
    "hectare-export",
    "hectare-fuse",
    "hectare-store",
    "hectare-lab",
    "hectare-monitor",
    "hectare",
    "hectare-capi",
    "hectare-cli",
    "hectare-python",
];
const ORACLE: &str = "hectare-oracle";
/// Those that no layer uses, and that may use any.
const JOBS: [&str; 2] = ["xtask", "hectare-fuzz"];
/// The first layer that may choose an async runtime, a command-line parser or an opaque error type.
const FIRST_FRONT: &str = "hectare-fuse";
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

fn rank(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| *layer == name)
}

fn check_package(package: &Package) -> Vec<Finding> {
    let name = package.name.as_str();
    let own = rank(name);
    if own.is_none() && name != ORACLE && !JOBS.contains(&name) {
        return vec![finding(&package.manifest, format!("{name} is in no layer: give it one in tidy"))];
    }
    let complaint = |dependency: &Dependency| complaint_about(name, own, dependency);
    let complaints = package.dependencies.iter().filter_map(complaint);
    complaints.map(|message| finding(&package.manifest, message)).collect()
}

fn complaint_about(name: &str, own: Option<usize>, dependency: &Dependency) -> Option<String> {
    let other = dependency.name.as_str();
    if JOBS.contains(&name) {
        return None;
    }
    if !dependency.is_inside {
        let is_core = own < rank(FIRST_FRONT);
        let banned = is_core && !dependency.is_dev && FRONT_ONLY.contains(&other);
        return banned.then(|| format!("{name} may not use {other}: only {FIRST_FRONT} and above may"));
    }
    if name == ORACLE {
        return Some(format!("{ORACLE} judges the layers and may not use {other}"));
    }
    if other == ORACLE {
        return (!dependency.is_dev).then(|| format!("{name} may use {ORACLE} in tests only"));
    }
    match (own, rank(other)) {
        (Some(own), Some(below)) if below < own => None,
        _ => Some(format!("{name} may not use {other}: arrows point down only")),
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
        complaint_about(name, rank(name), &dependency).is_some()
    }

    #[test]
    fn arrows_point_down_only() {
        assert!(!complaint("hectare-engine", "hectare-mkfs", false, true));
        assert!(complaint("hectare-mkfs", "hectare-engine", false, true));
        assert!(complaint("hectare-mkfs", "hectare-engine", true, true));
        assert!(!complaint("hectare-units", ORACLE, true, true));
        assert!(complaint("hectare-units", ORACLE, false, true));
        assert!(complaint(ORACLE, "hectare-units", false, true));
        assert!(!complaint(JOBS[0], "hectare", false, true));
    }

    #[test]
    fn core_crates_choose_no_front_end_library() {
        assert!(complaint("hectare-engine", "anyhow", false, false));
        assert!(!complaint("hectare-engine", "anyhow", true, false));
        assert!(!complaint("hectare", "clap", false, false));
        assert!(complaint("hectare-populate", "indicatif", false, false));
    }

    #[test]
    fn a_package_without_a_layer_is_found() {
        let package = Package {
            name: "new".into(),
            version: String::new(),
            manifest: "m".into(),
            is_published: false,
            has: [true; 2],
            has_repository: false,
            dependencies: Vec::new(),
        };
        assert_eq!(check_package(&package).len(), 1);
    }
}
