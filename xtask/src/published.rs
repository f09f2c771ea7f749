//! The workspace as packages of a registry: `cargo xtask package-crates [--verify]`.
//!
//! The job packages every crate that is to be published, as `cargo publish` would, and lists the sizes. With
//! `--verify` it unpacks them beside each other and checks that they compile without anything else of the
//! repository: a file that an include list leaves out is found so, at the cost of one `cargo check`.
//!
//! What can be seen in the manifests alone is checked by `tidy`, always ([`complaints`]).

use hectare_tools::steps::{cargo, quiet, root, shown, target_folder};
use hectare_tools::workspace::{Package, packages};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Bytes of a package at most: what is larger has something in it that nobody needs.
const BYTES_MAX: u64 = 1 << 20;
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// `cargo xtask package-crates [--verify]`.
pub(crate) fn run(words: &[&str]) -> bool {
    let verifies = match words {
        [] => false,
        ["--verify"] => true,
        _ => {
            eprintln!("usage: cargo xtask package-crates [--verify]");
            return false;
        }
    };
    let complaints = complaints();
    complaints.iter().for_each(|(file, complaint)| eprintln!("{file}: {complaint}"));
    let Some(packages) = packages().map(|all| published(&all)) else { return false };
    let mut package = cargo();
    package.args(["package", "--quiet", "--allow-dirty", "--no-verify", "--offline"]);
    package.args(packages.iter().flat_map(|one| ["--package", &one.name]));
    complaints.is_empty() && shown(&mut package) && sizes(&packages) && (!verifies || verify(&packages))
}

/// Whether cargo can package crates that depend on each other together: since 1.90.
pub(crate) fn can_package() -> bool {
    let said = quiet(cargo().arg("--version"));
    let said = said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned()).unwrap_or_default();
    let minor = said.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
    said.starts_with("cargo 1.") && minor.is_some_and(|minor| minor >= 90)
}

/// Prints how large the packages are; false if one is too large.
fn sizes(packages: &[Package]) -> bool {
    let (mut all, mut is_small) = (0, true);
    for package in packages {
        let file = target_folder().join("package").join(format!("{}.crate", package.stem()));
        let Ok(found) = fs::metadata(&file) else {
            eprintln!("{}: it was not made", file.display());
            return false;
        };
        println!("{:>8} {}", found.len(), package.stem());
        all += found.len();
        if found.len() > BYTES_MAX {
            eprintln!("{}: more than {BYTES_MAX} bytes: does its include list name too much?", package.name);
            is_small = false;
        }
    }
    println!("{all:>8} in {} packages", packages.len());
    is_small
}

/// Checks the packages, unpacked beside each other.
fn verify(packages: &[Package]) -> bool {
    let unpacked = target_folder().join("package/unpacked");
    let _ = fs::remove_dir_all(&unpacked); // not there at first
    if let Err(error) = fs::create_dir_all(&unpacked) {
        eprintln!("{}: {error}", unpacked.display());
        return false;
    }
    for package in packages {
        let file = target_folder().join("package").join(format!("{}.crate", package.stem()));
        if !shown(Command::new("tar").arg("-xf").arg(file).arg("-C").arg(&unpacked)) {
            return false;
        }
        // The whole has one.
        let _ = fs::remove_file(unpacked.join(package.stem()).join("Cargo.lock"));
    }
    let manifest = fs::write(unpacked.join("Cargo.toml"), workspace_of(packages));
    let lock = fs::copy(root().join("Cargo.lock"), unpacked.join("Cargo.lock"));
    if let Err(error) = manifest.and(lock) {
        eprintln!("{}: {error}", unpacked.display());
        return false;
    }
    let mut check = cargo();
    check.current_dir(&unpacked).env("CARGO_TARGET_DIR", target_folder());
    shown(check.args(["check", "--quiet", "--workspace"])) && fs::remove_dir_all(unpacked).is_ok()
}

/// The manifest of a workspace of unpacked packages, which take each other from it.
fn workspace_of(packages: &[Package]) -> String {
    let members: Vec<String> = packages.iter().map(|package| format!("{:?}", package.stem())).collect();
    let patch =
        packages.iter().map(|package| format!("{} = {{ path = {:?} }}\n", package.name, package.stem()));
    format!(
        "[workspace]\nresolver = \"3\"\nmembers = [{}]\n\n[patch.crates-io]\n{}",
        members.join(", "),
        patch.collect::<String>()
    )
}

fn published(packages: &[Package]) -> Vec<Package> {
    packages.iter().filter(|package| package.is_published).cloned().collect()
}

/// What keeps packages from being published, with the manifest that it is about.
pub(crate) fn complaints() -> Vec<(String, String)> {
    let Some(packages) = packages() else {
        return vec![("Cargo.toml".to_owned(), "cargo metadata fails on the workspace".to_owned())];
    };
    let names = published(&packages).into_iter().map(|package| package.name).collect();
    let mut complaints = Vec::new();
    for package in packages.iter().filter(|package| package.is_published) {
        let text = fs::read_to_string(root().join(&package.manifest)).unwrap_or_default();
        let folder = root().join(Path::new(&package.manifest).parent().unwrap_or(Path::new("")));
        let mut found = complaints_about(package, &names);
        if !text.lines().any(|line| line.starts_with("include")) {
            found.push("it has no list of what is packaged: add include.workspace = true".to_owned());
        }
        for licence in LICENCES.iter().filter(|licence| !folder.join(licence).is_file()) {
            found.push(format!("{licence} is not beside it: make a link to the repository's"));
        }
        complaints.extend(found.into_iter().map(|complaint| (package.manifest.clone(), complaint)));
    }
    complaints
}

fn complaints_about(package: &Package, published: &BTreeSet<String>) -> Vec<String> {
    let mut complaints = Vec::new();
    for (field, has) in ["description", "license"].iter().zip(package.has) {
        if !has {
            complaints.push(format!("it has no {field}, which a registry demands"));
        }
    }
    if package.has_repository {
        complaints.push("it names a repository, and there is none to be named yet".to_owned());
    }
    for other in package.dependencies.iter().filter(|other| other.is_inside) {
        let (name, is_versioned) = (&other.name, other.required != "*");
        if !published.contains(name) {
            if !other.is_dev {
                complaints.push(format!("it depends on {name}, which is not published"));
            } else if is_versioned {
                complaints.push(format!("{name} is not published: give its dependency no version"));
            }
        } else if other.required != format!("^{}", package.version) {
            complaints.push(format!("{name} needs the version {:?} beside its path", package.version));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_tools::workspace::Dependency;

    #[test]
    fn what_a_registry_would_refuse_is_named() {
        let dependency = |name: &str, required: &str, is_dev| Dependency {
            name: name.to_owned(),
            required: required.to_owned(),
            is_dev,
            is_inside: true,
        };
        let package = |dependencies| Package {
            name: "a".to_owned(),
            version: "0.1.0".to_owned(),
            manifest: "crates/a/Cargo.toml".to_owned(),
            is_published: true,
            has: [true, true],
            has_repository: false,
            dependencies,
        };
        let published = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        let about = |package: &Package| complaints_about(package, &published);
        let sound = [dependency("b", "^0.1.0", false), dependency("oracle", "*", true)];
        assert!(about(&package(sound.to_vec())).is_empty());
        for (wrong, what) in [
            (dependency("b", "*", false), "needs the version"),
            (dependency("b", "^0.2.0", true), "needs the version"),
            (dependency("oracle", "*", false), "not published"),
            (dependency("oracle", "^0.1.0", true), "no version"),
        ] {
            let found = about(&package(vec![wrong]));
            assert!(found.len() == 1 && found[0].contains(what), "{found:?}");
        }
        let bare = Package { has: [false, true], has_repository: true, ..package(vec![]) };
        assert_eq!(about(&bare).len(), 2);
    }

    #[test]
    fn unpacked_packages_take_each_other() {
        let package = Package {
            name: "hectare-units".to_owned(),
            version: "0.1.0".to_owned(),
            manifest: String::new(),
            is_published: true,
            has: [true; 2],
            has_repository: false,
            dependencies: vec![],
        };
        let manifest: toml::Table = workspace_of(&[package]).parse().unwrap();
        assert_eq!(manifest["workspace"]["members"][0].as_str(), Some("hectare-units-0.1.0"));
        let patch = &manifest["patch"]["crates-io"]["hectare-units"]["path"];
        assert_eq!(patch.as_str(), Some("hectare-units-0.1.0"));
    }
}
