//! Packages for Fedora, SUSE and other systems with rpm, by rpm's own program.
//!
//! `rpmbuild` writes them from a specification that is made here; it finds by itself which libraries, and
//! which versions of their symbols, the binaries need. The packages are made at once.
//!
//! Hazard: what rpmbuild does depends on the configuration of the machine. What would change bytes is set
//! explicitly (time, host, compression, digests), and what would change files is switched off (stripping,
//! debug packages, links by build ID).

use super::build::Built;
use super::deb::fresh;
use super::layout::{Entry, Family, PACKAGES, Package, What, entries};
use super::stage::{own_folders, stage};
use super::{Ended, Facts, step};
use hectare_tools::tool::need;
use std::fs;
use std::path::{Path, PathBuf};

/// What rpmbuild must not take from the machine.
const DEFINED: [(&str, &str); 13] = [
    ("_build_id_links", "none"),
    ("_buildhost", "localhost"),
    ("_binary_payload", "w6.xzdio"),
    ("_binary_filedigest_algorithm", "8"),
    ("_missing_doc_files_terminate_build", "1"),
    ("_rpmfilename", "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm"),
    ("_unpackaged_files_terminate_build", "1"),
    ("__os_install_post", "%{nil}"),
    ("clamp_mtime_to_source_date_epoch", "1"),
    ("debug_package", "%{nil}"),
    ("source_date_epoch_from_changelog", "0"),
    ("use_source_date_epoch_as_buildtime", "1"),
    ("vendor", "%{nil}"),
];

/// Writes the packages into a directory; their paths.
pub(super) fn write(facts: &Facts, built: &Built, work: &Path, out: &Path) -> Result<Vec<PathBuf>, Ended> {
    let mut rpmbuild = need("rpmbuild")?;
    let top = work.join("rpm");
    fresh(&top)?;
    let mut all = Vec::new();
    let mut lists = Vec::new();
    for package in PACKAGES {
        let entries = entries(package, Family::Rpm, facts, built)?;
        lists.push((package, list(&entries, package)));
        all.extend(entries);
    }
    let staged = top.join("staged");
    stage(&all, &staged, facts.epoch)?;
    let spec = top.join("hectare.spec");
    fs::write(&spec, specification(facts, &staged, &lists))
        .map_err(|error| format!("{}: {error}", spec.display()))?;
    rpmbuild.env("SOURCE_DATE_EPOCH", facts.epoch.to_string()).arg("-bb").arg("--quiet");
    for (name, value) in DEFINED {
        rpmbuild.arg("--define").arg(format!("{name} {value}"));
    }
    rpmbuild.arg("--define").arg(format!("_topdir {}", top.display()));
    rpmbuild.arg("--define").arg(format!("_rpmdir {}", out.display()));
    step(rpmbuild.arg("--target").arg(std::env::consts::ARCH).arg(&spec))?;
    let file = |package: Package| {
        let name = package.name(Family::Rpm);
        out.join(format!("{name}-{}-1.{}.rpm", facts.version, std::env::consts::ARCH))
    };
    Ok(PACKAGES.map(file).into())
}

/// The lines of a package's files.
fn list(entries: &[Entry], package: Package) -> String {
    let name = package.name(Family::Rpm);
    let folders = own_folders(entries, name).into_iter();
    let folders = folders.map(|path| format!("%dir %attr(0755, root, root) \"/{}\"\n", path.display()));
    let files = entries.iter().map(|Entry { path, mode, what }| {
        let kind = match path.strip_prefix("usr/share/").and_then(|rest| rest.split_once('/')) {
            Some(("doc" | "man", _)) => "%doc ",
            Some(("licenses", _)) => "%license ",
            _ => "",
        };
        match what {
            What::Link(_) => format!("{kind}\"/{path}\"\n"),
            _ => format!("{kind}%attr(0{mode:o}, root, root) \"/{path}\"\n"),
        }
    });
    folders.chain(files).collect()
}

/// The specification, with each package's list of files.
fn specification(facts: &Facts, staged: &Path, lists: &[(Package, String)]) -> String {
    let (version, staged) = (&facts.version, staged.display());
    let licence = "MIT OR Apache-2.0";
    let mut text = format!(
        "Name: hectare\nVersion: {version}\nRelease: 1\nSummary: {}\nLicense: {licence}\n\
         Recommends: fuse3\n\n%description\n{}\n\n",
        Package::Command.summary(),
        Package::Command.description(),
    );
    for package in [Package::Lab, Package::Library, Package::Development] {
        let name = package.name(Family::Rpm);
        let requires = match package {
            Package::Development => "Requires: libhectare0%{?_isa} = %{version}-%{release}\n",
            _ => "",
        };
        text.push_str(&format!(
            "%package -n {name}\nSummary: {}\nLicense: {licence}\n{requires}\n%description -n {name}\n{}\n\n",
            package.summary(),
            package.description(),
        ));
    }
    text.push_str(&format!(
        "%install\nmkdir -p \"%{{buildroot}}\"\ncp -a \"{staged}/.\" \"%{{buildroot}}/\"\n\n"
    ));
    for (package, list) in lists {
        text.push_str(&format!("%files -n {}\n{list}\n", package.name(Family::Rpm)));
    }
    // Systems without triggers on files, such as SUSE, need both.
    text.push_str("%post -n libhectare0 -p /sbin/ldconfig\n\n%postun -n libhectare0 -p /sbin/ldconfig\n");
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::facts;
    use super::*;

    #[test]
    fn each_file_is_listed_with_its_mode_and_kind() {
        let entry = |path: &str, mode, what| Entry { path: path.to_owned(), mode, what };
        let entries = [
            entry("usr/bin/a", 0o755, What::Bytes(Vec::new())),
            entry("usr/sbin/b", 0o777, What::Link("../bin/a".to_owned())),
            entry("usr/share/doc/hectare/c", 0o644, What::Bytes(Vec::new())),
            entry("usr/share/licenses/hectare/d", 0o644, What::Bytes(Vec::new())),
        ];
        let text = list(&entries, Package::Command);
        let expected = "%dir %attr(0755, root, root) \"/usr/share/doc/hectare\"\n\
                        %dir %attr(0755, root, root) \"/usr/share/licenses/hectare\"\n\
                        %attr(0755, root, root) \"/usr/bin/a\"\n\
                        \"/usr/sbin/b\"\n\
                        %doc %attr(0644, root, root) \"/usr/share/doc/hectare/c\"\n\
                        %license %attr(0644, root, root) \"/usr/share/licenses/hectare/d\"\n";
        assert_eq!(text, expected);
        let lists = [(Package::Command, text)];
        let text = specification(&facts(), Path::new("/staged"), &lists);
        assert!(text.contains(expected) && text.starts_with("Name: hectare\nVersion: 1.2.3\n"), "{text}");
        assert!(!text.contains("://"), "{text}");
    }
}
