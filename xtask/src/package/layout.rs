//! What lies where in the packages: one list, for Debian and for systems with rpm.
//!
//! The systems differ in few places (the directory of libraries, that of zsh's completions, changelogs and
//! licences), and those are marked by [`Family`] here, so that nothing is in one kind of package and is
//! forgotten in the other.

use super::build::{Built, COMMAND, Program, SHELLS};
use super::{Facts, notices};
use flate2::{Compression, GzBuilder};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Which systems a package is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Family {
    Debian,
    Rpm,
}

/// Which package.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Package {
    Command,
    Lab,
    Library,
    Development,
}

/// All packages.
pub(super) const PACKAGES: [Package; 4] =
    [Package::Command, Package::Lab, Package::Library, Package::Development];

impl Package {
    pub(super) const fn name(self, family: Family) -> &'static str {
        match (self, family) {
            (Self::Command, _) => "hectare",
            (Self::Lab, _) => "hectare-lab",
            (Self::Library, _) => "libhectare0",
            (Self::Development, Family::Debian) => "libhectare-dev",
            (Self::Development, Family::Rpm) => "libhectare-devel",
        }
    }

    /// One line.
    pub(super) const fn summary(self) -> &'static str {
        match self {
            Self::Command => "make, read, change, check and mount ext4 volumes without root",
            Self::Lab => "measure, age and compare ext4 volumes",
            Self::Library => "ext2, ext3 and ext4 volumes from user space (library for C)",
            Self::Development => "ext2, ext3 and ext4 volumes from user space (development files)",
        }
    }

    /// More lines.
    pub(super) const fn description(self) -> &'static str {
        match self {
            Self::Command => {
                "Makes real ext2, ext3 and ext4 volumes of image files and block devices,\n\
                 fills, reads, changes, checks and repairs them, and mounts them by FUSE.\n\
                 Root, loop devices and the kernel's file system are not needed. What it\n\
                 writes, e2fsck finds clean and Linux mounts."
            }
            Self::Lab => {
                "Runs workloads on volumes by Hectare and in any directory, brings volumes to\n\
                 the state of long use, and repeats published experiments."
            }
            Self::Library => {
                "Programs open volumes in image files, on block devices or in storage of\n\
                 their own, and use them by calls like those of POSIX, without mounting."
            }
            Self::Development => {
                "Header, static library, a file for pkg-config, and examples of programs\n\
                 that use libhectare."
            }
        }
    }
}

/// What an entry is.
#[derive(Clone, Debug)]
pub(super) enum What {
    /// A copy of a file.
    Copy(PathBuf),
    /// A file of these bytes.
    Bytes(Vec<u8>),
    /// A symbolic link.
    Link(String),
}

/// A file of a package; directories follow from the paths.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// From the root of the system, without the slash before it.
    pub(super) path: String,
    pub(super) mode: u32,
    pub(super) what: What,
}

/// Names in sbin by which mount(8) and umount(8) call the command, and the command whose page is theirs.
const HELPERS: [(&str, &str); 4] = [
    ("mount.hectare", "hectare-mount"),
    ("mount.fuse.hectare", "hectare-mount"),
    ("mount.fuseblk.hectare", "hectare-mount"),
    ("umount.fuse.hectare", "hectare-umount"),
];

/// The files of a package, sorted by path.
pub(super) fn entries(
    package: Package,
    family: Family,
    facts: &Facts,
    built: &Built,
) -> Result<Vec<Entry>, String> {
    let mut list = List { entries: Vec::new(), family };
    match package {
        Package::Command => list.command(facts, &built.command)?,
        Package::Lab => list.program("hectare-lab", &built.lab)?,
        Package::Library => list.library(built),
        Package::Development => list.development(facts, built)?,
    }
    list.documents(package, facts)?;
    list.entries.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(list.entries)
}

/// Where libraries lie on a system, without the slash before it.
pub(super) fn library_folder(family: Family) -> String {
    match family {
        Family::Debian => format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH),
        Family::Rpm => "usr/lib64".to_owned(),
    }
}

struct List {
    entries: Vec<Entry>,
    family: Family,
}

impl List {
    fn add(&mut self, path: impl Into<String>, mode: u32, what: What) {
        self.entries.push(Entry { path: path.into(), mode, what });
    }

    fn copy(&mut self, path: impl Into<String>, mode: u32, from: impl Into<PathBuf>) {
        self.add(path, mode, What::Copy(from.into()));
    }

    fn link(&mut self, path: impl Into<String>, target: impl Into<String>) {
        self.add(path, 0o777, What::Link(target.into()));
    }

    fn command(&mut self, facts: &Facts, command: &Program) -> Result<(), String> {
        for (name, page) in HELPERS {
            self.link(format!("usr/sbin/{name}"), "../bin/hectare");
            self.link(format!("usr/share/man/man8/{name}.8.gz"), format!("../man1/{page}.1.gz"));
        }
        self.program("hectare", command)?;
        self.copy("usr/share/doc/hectare/README.md", 0o644, facts.sources.join("README.md"));
        let documents = facts.sources.join("docs");
        for file in files_below(&documents)? {
            self.copy(format!("usr/share/doc/hectare/docs/{file}"), 0o644, documents.join(&file));
        }
        Ok(())
    }

    /// A program, with its pages and completions.
    fn program(&mut self, name: &str, program: &Program) -> Result<(), String> {
        self.copy(format!("usr/bin/{name}"), 0o755, &program.binary);
        for page in files_below(&program.pages)? {
            let bytes = read(&program.pages.join(&page))?;
            self.add(format!("usr/share/man/man1/{page}.gz"), 0o644, What::Bytes(compressed(&bytes)?));
        }
        for shell in SHELLS {
            let place = match (shell, self.family) {
                ("bash", _) => format!("bash-completion/completions/{name}"),
                ("zsh", Family::Debian) => format!("zsh/vendor-completions/_{name}"),
                ("zsh", Family::Rpm) => format!("zsh/site-functions/_{name}"),
                _ => format!("fish/vendor_completions.d/{name}.fish"),
            };
            self.copy(format!("usr/share/{place}"), 0o644, program.completions.join(shell));
        }
        Ok(())
    }

    fn library(&mut self, built: &Built) {
        let folder = library_folder(self.family);
        // Debian wants no shared library to be executable, rpm needs it to find what the library requires.
        let mode = if self.family == Family::Debian { 0o644 } else { 0o755 };
        self.copy(format!("{folder}/libhectare.so.0"), mode, &built.shared);
    }

    fn development(&mut self, facts: &Facts, built: &Built) -> Result<(), String> {
        let folder = library_folder(self.family);
        self.link(format!("{folder}/libhectare.so"), "libhectare.so.0");
        self.copy(format!("{folder}/libhectare.a"), 0o644, &built.archive);
        let interface = facts.sources.join("crates/bind/capi");
        self.copy("usr/include/hectare.h", 0o644, interface.join("include/hectare.h"));
        let template = String::from_utf8_lossy(&read(&interface.join("hectare.pc.in"))?).into_owned();
        let text = template
            .replace("@LIBDIR@", &format!("/{folder}"))
            .replace("@INCLUDEDIR@", "/usr/include")
            .replace("@VERSION@", &facts.version);
        self.add(format!("{folder}/pkgconfig/hectare.pc"), 0o644, What::Bytes(text.into_bytes()));
        let documents = format!("usr/share/doc/{}", Package::Development.name(self.family));
        self.copy(format!("{documents}/library.md"), 0o644, facts.sources.join("docs/library.md"));
        let examples = interface.join("examples");
        for file in files_below(&examples)? {
            self.copy(format!("{documents}/examples/{file}"), 0o644, examples.join(&file));
        }
        Ok(())
    }

    /// What every package has: changelog, licence, and the licences of what is linked into it.
    fn documents(&mut self, package: Package, facts: &Facts) -> Result<(), String> {
        let name = package.name(self.family);
        let folder = format!("usr/share/doc/{name}");
        let changes = compressed(&read(&facts.sources.join("CHANGELOG.md"))?)?;
        self.add(format!("{folder}/changelog.gz"), 0o644, What::Bytes(changes));
        let linked = match package {
            Package::Command => &COMMAND[..],
            Package::Lab => &["-p", "hectare-lab"],
            Package::Library | Package::Development => &["-p", "hectare-capi"],
        };
        let notices = compressed(notices::of(&facts.sources, linked)?.as_bytes())?;
        self.add(format!("{folder}/NOTICES.gz"), 0o644, What::Bytes(notices));
        match self.family {
            Family::Debian => {
                let changes = compressed(changelog(package, facts).as_bytes())?;
                self.add(format!("{folder}/changelog.Debian.gz"), 0o644, What::Bytes(changes));
                let copyright = copyright(&read(&facts.sources.join("LICENSE-MIT"))?)?;
                self.add(format!("{folder}/copyright"), 0o644, What::Bytes(copyright.into_bytes()));
            }
            Family::Rpm => {
                for file in ["LICENSE-MIT", "LICENSE-APACHE"] {
                    let path = format!("usr/share/licenses/{name}/{file}");
                    self.copy(path, 0o644, facts.sources.join(file));
                }
            }
        }
        Ok(())
    }
}

/// The packaging's own history, which begins anew with each version.
fn changelog(package: Package, facts: &Facts) -> String {
    let (name, Facts { version, maintainer, date, .. }) = (package.name(Family::Debian), facts);
    format!(
        "{name} ({version}-1) unstable; urgency=medium\n\n  * What has changed for users is in \
         changelog.gz.\n\n -- {maintainer}  {date}\n"
    )
}

/// Debian's file of licences; the text of the MIT licence names the holders.
fn copyright(mit: &[u8]) -> Result<String, String> {
    let mit = String::from_utf8_lossy(mit);
    let (holders, text) = mit
        .split_once("Copyright (c) ")
        .and_then(|(_, rest)| rest.split_once('\n'))
        .ok_or("LICENSE-MIT has no line 'Copyright (c) ...'")?;
    let text: String = text.trim().lines().map(indented).collect();
    Ok(format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: hectare\n\
         Comment: What is linked into the binaries is listed, with its licences, in NOTICES.gz.\n\n\
         Files: *\nCopyright: {holders}\nLicense: Expat or Apache-2.0\n\n\
         License: Expat\n{text}\n\
         License: Apache-2.0\n On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.\n"
    ))
}

/// A line of a text in a field.
fn indented(line: &str) -> String {
    if line.trim().is_empty() { " .\n".to_owned() } else { format!(" {line}\n") }
}

/// gzip without a time or a name.
pub(super) fn compressed(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut encoder = GzBuilder::new().write(Vec::new(), Compression::best());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).map_err(|error| format!("gzip: {error}"))
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Paths of the files below a directory, relative to it, sorted.
fn files_below(folder: &Path) -> Result<Vec<String>, String> {
    let mut files = Vec::new();
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name =
            entry.file_name().into_string().map_err(|name| format!("{} is no text", name.display()))?;
        if entry.path().is_dir() {
            files.extend(files_below(&entry.path())?.into_iter().map(|file| format!("{name}/{file}")));
        } else {
            files.push(name);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::super::tests::facts;
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_link_of_a_package_leads_into_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["pages", "completions"] {
            fs::create_dir(path(name)).unwrap();
        }
        for name in ["hectare.1", "hectare-mount.1", "hectare-umount.1"] {
            fs::write(path("pages").join(name), name).unwrap();
        }
        let (pages, completions) = (path("pages"), path("completions"));
        let mut list = List { entries: Vec::new(), family: Family::Debian };
        list.command(&facts(), &Program { binary: path("a"), pages, completions }).unwrap();
        let paths: BTreeSet<&str> = list.entries.iter().map(|entry| entry.path.as_str()).collect();
        assert_eq!(paths.len(), list.entries.len(), "no path is there twice");
        let links = list.entries.iter().filter_map(|entry| match &entry.what {
            What::Link(target) => Some((&entry.path, target)),
            _ => None,
        });
        let mut count = 0;
        for (path, target) in links {
            let parent = Path::new(path).parent().and_then(Path::parent).unwrap();
            let to = parent.join(target.strip_prefix("../").unwrap());
            assert!(paths.contains(to.to_str().unwrap()), "{path} leads to {target}");
            count += 1;
        }
        assert_eq!(count, 2 * HELPERS.len());
    }

    #[test]
    fn the_licence_names_its_holders_and_has_no_empty_lines() {
        let text = copyright(b"MIT License\n\nCopyright (c) 2026 Them\n\nOne.\n\nTwo.\n").unwrap();
        assert!(text.contains("\nCopyright: 2026 Them\n") && text.contains("\n One.\n .\n Two.\n"), "{text}");
        assert!(copyright(b"nothing").is_err());
    }

    #[test]
    fn compressed_files_have_no_time() {
        let bytes = compressed(b"text").unwrap();
        assert_eq!(bytes[..8], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0]);
    }
}
