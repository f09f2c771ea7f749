//! Packages for Debian and systems made from it, by Debian's own programs.
//!
//! `dpkg-deb` writes the archive, `dpkg-shlibdeps` looks up which packages the binaries need, and at which
//! versions, on this machine: so packages made on Debian 12 are for Debian 12 and newer.
//!
//! The maintainer is `DEBFULLNAME <DEBEMAIL>`, as for other tools of Debian; without them the project, which
//! publishes no address, is named with one that leads nowhere.

use super::build::Built;
use super::layout::{Entry, Family, PACKAGES, Package, entries};
use super::stage::{dated, stage};
use super::{Ended, Facts, output, step};
use hectare_tools::tool::need;
use std::fs;
use std::path::{Path, PathBuf};

/// Writes the packages into a directory; their paths.
pub(super) fn write(facts: &Facts, built: &Built, work: &Path, out: &Path) -> Result<Vec<PathBuf>, Ended> {
    let stages = work.join("deb");
    fresh(&stages)?;
    let needs = |path: &Path| needed(&stages, path);
    let mut files = Vec::new();
    for package in PACKAGES {
        let name = package.name(Family::Debian);
        let root = stages.join(name);
        let entries = entries(package, Family::Debian, facts, built)?;
        stage(&entries, &root, facts.epoch)?;
        let depends = match package {
            Package::Command => needs(&built.command.binary)?,
            Package::Lab => needs(&built.lab.binary)?,
            Package::Library => needs(&built.shared)?,
            Package::Development => format!("libhectare0 (= {}-1)", facts.version),
        };
        describe(package, facts, &entries, &root, &depends)?;
        let file = out.join(format!("{name}_{}-1_{}.deb", facts.version, architecture()?));
        let mut deb = need("dpkg-deb")?;
        // The compressor's threads share the data out, which shows in the bytes.
        deb.env("SOURCE_DATE_EPOCH", facts.epoch.to_string()).env("DPKG_DEB_THREADS_MAX", "1");
        step(deb.args(["--root-owner-group", "-Zxz", "--build"]).arg(&root).arg(&file))?;
        files.push(file);
    }
    Ok(files)
}

/// Makes a directory anew.
pub(super) fn fresh(folder: &Path) -> Result<(), String> {
    let _ = fs::remove_dir_all(folder); // absent at first
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

/// Debian's name of this processor.
pub(super) fn architecture() -> Result<&'static str, String> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => Err(format!("Debian's name for {other} is not known here: add it in deb.rs")),
    }
}

/// Which packages a binary needs. The program wants to be in a directory with a source package.
fn needed(stages: &Path, binary: &Path) -> Result<String, Ended> {
    let source = stages.join("source");
    let control = source.join("debian/control");
    fs::create_dir_all(source.join("debian")).map_err(|error| format!("{}: {error}", source.display()))?;
    fs::write(&control, "Source: hectare\n\nPackage: hectare\nArchitecture: any\n")
        .map_err(|error| format!("{}: {error}", control.display()))?;
    let mut shlibdeps = need("dpkg-shlibdeps")?;
    let said = output(shlibdeps.current_dir(&source).arg("-O").arg(format!("-e{}", binary.display())))?;
    let depends = said.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    Ok(depends.ok_or(format!("dpkg-shlibdeps does not say what {} needs", binary.display()))?.to_owned())
}

/// Writes the package's description, and what dpkg does for it.
fn describe(
    package: Package,
    facts: &Facts,
    entries: &[Entry],
    root: &Path,
    depends: &str,
) -> Result<(), Ended> {
    let folder = root.join("DEBIAN");
    fresh(&folder)?;
    let mut files =
        vec![("control", control(package, facts, depends, size(root)?)?), ("md5sums", sums(entries, root)?)];
    if package == Package::Library {
        files.push(("shlibs", format!("libhectare 0 libhectare0 (>= {}-1)\n", facts.version)));
        files.push(("triggers", "activate-noawait ldconfig\n".to_owned()));
    }
    for (name, text) in files {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        dated(&path, facts.epoch)?;
    }
    dated(&folder, facts.epoch)?;
    dated(root, facts.epoch)?;
    Ok(())
}

/// Installed size in KiB: each file counts whole KiB, everything else one.
fn size(root: &Path) -> Result<u64, String> {
    let entries =
        hectare_tools::walk::try_walk(root).map_err(|error| format!("{}: {error}", root.display()))?;
    let one = |entry: &hectare_tools::Entry| match entry.kind {
        hectare_tools::Kind::File => entry.size.div_ceil(1024),
        _ => 1,
    };
    Ok(entries.iter().filter(|entry| !entry.path.starts_with(b"DEBIAN")).map(one).sum())
}

fn sums(entries: &[Entry], root: &Path) -> Result<String, Ended> {
    let mut sums = need("md5sum")?;
    let files = entries.iter().filter(|entry| !matches!(entry.what, super::layout::What::Link(_)));
    Ok(output(sums.current_dir(root).args(files.map(|entry| &entry.path)))?)
}

fn control(package: Package, facts: &Facts, depends: &str, size: u64) -> Result<String, String> {
    let (section, alike, more) = match package {
        Package::Command => ("admin", "foreign", "Recommends: fuse3\n"),
        Package::Lab => ("admin", "foreign", ""),
        Package::Library => ("libs", "same", ""),
        Package::Development => ("libdevel", "same", ""),
    };
    let description: String = package.description().lines().map(|line| format!(" {line}\n")).collect();
    Ok(format!(
        "Package: {}\nSource: hectare\nVersion: {}-1\nArchitecture: {}\nMaintainer: {}\n\
         Installed-Size: {size}\nDepends: {depends}\n{more}Section: {section}\n\
         Priority: optional\nMulti-Arch: {alike}\nDescription: {}\n{description}",
        package.name(Family::Debian),
        facts.version,
        architecture()?,
        facts.maintainer,
        package.summary(),
    ))
}

#[cfg(test)]
mod tests {
    use super::super::tests::facts;
    use super::*;

    #[test]
    fn a_description_has_every_field_once_and_no_address_of_a_place() {
        for package in PACKAGES {
            let text = control(package, &facts(), "libc6 (>= 2.36)", 17).unwrap();
            for field in ["Package", "Version", "Architecture", "Maintainer", "Depends", "Description"] {
                assert_eq!(text.matches(&format!("\n{field}: ")).count(), usize::from(field != "Package"));
            }
            assert!(text.ends_with('\n') && !text.contains("\n\n") && !text.contains("://"), "{text}");
            assert!(text.lines().all(|line| line.len() < 80), "{text}");
        }
    }
}
