//! Tries packages: what is in them, and what happens where they are installed.
//!
//! The .deb packages are installed in a new minimal Debian, where pages are rendered, completions loaded,
//! the examples of docs/install.md run (they mount), a volume is mounted by fstab and a program uses the
//! library; when they are purged, every file must be as before. The .rpm packages must have the same files
//! with the same content.
//!
//! What it is not: a test of the command. One of it is installed, and it was built once.

use super::build::Built;
use super::chroot::Chroot;
use super::layout::{Family, PACKAGES, Package, library_folder};
use super::{Ended, Facts, Made, output, pack, same, step};
use hectare_tools::tool::need;
use hectare_tools::walk::try_walk;
use std::collections::BTreeMap;
use std::fs;
use std::ops::AddAssign;
use std::path::{Path, PathBuf};

/// The largest command that a package may have, in bytes.
const SIZE_MAX: u64 = 10 << 20;

/// What checks gave.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) passed: usize,
    pub(super) failed: Vec<String>,
    pub(super) skipped: Vec<(String, String)>,
}

impl AddAssign for Outcome {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.skipped.extend(other.skipped);
    }
}

impl Outcome {
    /// Takes the result of one check, and prints it.
    pub(super) fn take(&mut self, name: &str, result: Result<(), Ended>) {
        match result {
            Ok(()) => {
                println!("ok      {name}");
                self.passed += 1;
            }
            Err(Ended::Skipped(reason)) => self.skipped.push((name.to_owned(), reason)),
            Err(Ended::Failed(reason)) => self.failed.push(format!("{name}: {reason}")),
        }
    }

    /// Prints what was skipped and what failed, and the numbers. Where all is required, skips are failures.
    pub(super) fn print(&mut self) {
        println!();
        if !hectare_tools::ended::may_skip() {
            let skipped = self.skipped.drain(..);
            self.failed.extend(skipped.map(|(name, reason)| format!("{name} would be skipped: {reason}")));
        }
        for (name, reason) in &self.skipped {
            println!("skipped {name}: {reason}");
        }
        for failure in &self.failed {
            println!("FAILED {failure}");
        }
        println!("{} passed, {} failed, {} skipped", self.passed, self.failed.len(), self.skipped.len());
    }
}

/// Runs all checks.
pub(super) fn run(facts: &Facts, built: &Built, made: &Made, work: &Path) -> Outcome {
    let mut outcome = Outcome::default();
    outcome.take("the same bytes when they are packed again", packed_again(facts, built, made, work));
    outcome.take("the size of the command", size(&built.command.binary));
    let debs: Vec<PathBuf> = made.files.iter().filter(|path| is(path, "deb")).cloned().collect();
    let rpms: Vec<PathBuf> = made.files.iter().filter(|path| is(path, "rpm")).cloned().collect();
    if !debs.is_empty() {
        outcome.take("lintian", lintian(&debs));
        outcome += installed(facts, &debs);
    }
    if !rpms.is_empty() {
        outcome.take("rpm reads its packages", read_by_rpm(&rpms));
    }
    if !debs.is_empty() && !rpms.is_empty() {
        outcome.take("the same files in .deb and .rpm", same_files(&debs, &rpms, work));
    }
    outcome
}

fn is(path: &Path, kind: &str) -> bool {
    path.extension().is_some_and(|extension| extension == kind)
}

fn packed_again(facts: &Facts, built: &Built, made: &Made, work: &Path) -> Result<(), Ended> {
    let again = pack(facts, built, work, &work.join("again"))?;
    same(&made.files, &again.files)
}

/// Whether a command is small enough.
pub(super) fn size(command: &Path) -> Result<(), Ended> {
    let size = fs::metadata(command).map_err(|error| format!("{}: {error}", command.display()))?.len();
    println!("the command has {size} bytes");
    if size <= SIZE_MAX {
        return Ok(());
    }
    Err(format!("{size} bytes are more than {SIZE_MAX}").into())
}

fn lintian(debs: &[PathBuf]) -> Result<(), Ended> {
    let mut lintian = need("lintian")?;
    // As root it works all the same; without the option it complains.
    lintian.args(["--allow-root", "--fail-on", "error", "--tag-display-limit", "0"]);
    // The project publishes no address. Those who publish packages set theirs.
    if std::env::var_os("DEBEMAIL").is_none() {
        lintian.args(["--suppress-tags", "bogus-mail-host,bogus-mail-host-in-debian-changelog"]);
    }
    step(lintian.args(debs))?;
    Ok(())
}

fn read_by_rpm(rpms: &[PathBuf]) -> Result<(), Ended> {
    // A directory of its own, else keys and packages of this machine would be looked up.
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    for path in rpms {
        let rpm = |words: &[&str]| -> Result<String, Ended> {
            let mut rpm = need("rpm")?;
            rpm.arg("--dbpath").arg(folder.path()).args(words).arg(path);
            Ok(output(&mut rpm)?)
        };
        let checked = rpm(&["--checksig", "--verbose"])?;
        if checked.contains("BAD") || !checked.contains("digest: OK") {
            return Err(checked.into());
        }
        println!("{}: requires {}", path.display(), rpm(&["-qp", "--requires"])?.replace('\n', "; "));
    }
    Ok(())
}

/// Compares the content of the two kinds of packages, where the systems' places are the same.
fn same_files(debs: &[PathBuf], rpms: &[PathBuf], work: &Path) -> Result<(), Ended> {
    for ((deb, rpm), package) in debs.iter().zip(rpms).zip(PACKAGES) {
        let folders = [work.join("of-deb"), work.join("of-rpm")];
        for folder in &folders {
            super::deb::fresh(folder)?;
        }
        step(need("dpkg-deb")?.arg("-x").arg(deb).arg(&folders[0]))?;
        step(need("bsdtar")?.arg("-xpf").arg(rpm).arg("-C").arg(&folders[1]))?;
        let [of_deb, of_rpm] = [(&folders[0], Family::Debian), (&folders[1], Family::Rpm)]
            .map(|(folder, family)| content(folder, family, package));
        let (of_deb, of_rpm) = (of_deb?, of_rpm?);
        if of_deb != of_rpm {
            return Err(differences(&of_deb, &of_rpm).join("\n").into());
        }
        println!("{}: {} files", package.name(Family::Debian), of_deb.len());
    }
    Ok(())
}

/// The files and links of an unpacked package, by the paths that they have on Debian; without what only one
/// of the systems has.
fn content(folder: &Path, family: Family, package: Package) -> Result<BTreeMap<String, String>, String> {
    let entries = try_walk(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let files = entries.into_iter().filter(|entry| entry.kind != hectare_tools::Kind::Directory);
    let file = |entry: hectare_tools::Entry| {
        let path = String::from_utf8_lossy(&entry.path).into_owned();
        let only_one = ["copyright", "changelog.Debian.gz"].iter().any(|name| path.ends_with(name))
            || path.starts_with("usr/share/licenses/");
        // The mode of shared libraries differs, too, and the path to them in pkg-config's file.
        let digest = if path.ends_with(".pc") { String::new() } else { format!("{:?}", entry.digest) };
        (!only_one).then(|| {
            let target = String::from_utf8_lossy(&entry.target).into_owned();
            (on_debian(&path, family, package), format!("{target} {digest}"))
        })
    };
    Ok(files.filter_map(file).collect())
}

fn on_debian(path: &str, family: Family, package: Package) -> String {
    if family == Family::Debian {
        return path.to_owned();
    }
    let documents = |family| format!("usr/share/doc/{}/", package.name(family));
    path.replace(&library_folder(Family::Rpm), &library_folder(Family::Debian))
        .replace("zsh/site-functions", "zsh/vendor-completions")
        .replace(&documents(Family::Rpm), &documents(Family::Debian))
}

/// What is only before, only after, or different.
fn differences(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<String> {
    let gone = before.iter().filter(|(path, _)| !after.contains_key(*path));
    let gone = gone.map(|(path, _)| format!("missing: {path}"));
    let new = after.iter().filter_map(|(path, now)| match before.get(path) {
        None => Some(format!("new: {path}")),
        Some(then) if then != now => Some(format!("changed: {path}: {then} became {now}")),
        Some(_) => None,
    });
    gone.chain(new).collect()
}

/// The name under which all that needs a Debian is skipped.
const INSTALLED: &str = "the packages in a new Debian";

/// Installs the packages in a Debian, uses what they bring, and purges them.
fn installed(facts: &Facts, debs: &[PathBuf]) -> Outcome {
    let mut outcome = Outcome::default();
    let chroot = match prepared(debs) {
        Ok(chroot) => chroot,
        Err(ended) => {
            outcome.take(INSTALLED, Err(ended));
            return outcome;
        }
    };
    let before = chroot.files();
    let mut said = |name: &str, result: Result<String, String>| {
        let fine = result.is_ok();
        outcome.take(&format!("{INSTALLED}: {name}"), result.map(|_| ()).map_err(Ended::Failed));
        fine
    };
    if !said("dpkg installs them", chroot.sh("dpkg -i /packages/*.deb 2>&1")) {
        return outcome;
    }
    said("every manual page is rendered without a warning", chroot.sh(PAGES));
    said("bash completes commands and options", chroot.sh(COMPLETIONS));
    said("the examples of docs/install.md", examples(&facts.sources).and_then(|text| chroot.sh(&text)));
    said("mount by type and by fstab, umount, remount", chroot.sh(MOUNTS));
    said("a program with the shared library", program(facts, &chroot));
    let names = PACKAGES.map(|package| package.name(Family::Debian)).join(" ");
    said("dpkg purges them", chroot.sh(&format!("dpkg --purge {names} 2>&1")));
    let left = before.and_then(|before| Ok(traces(&before, &chroot.files()?)));
    let left = left.and_then(|left| if left.is_empty() { Ok(String::new()) } else { Err(left.join("\n")) });
    said("nothing is left", left);
    outcome
}

/// A Debian with the packages in `/packages`.
fn prepared(debs: &[PathBuf]) -> Result<Chroot, Ended> {
    let chroot = Chroot::debian(&["bash-completion", "man-db"])?;
    let folder = chroot.path().join("packages");
    fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for deb in debs {
        let name = deb.file_name().unwrap_or_default();
        fs::copy(deb, folder.join(name)).map_err(|error| format!("{}: {error}", deb.display()))?;
    }
    Ok(chroot)
}

const PAGES: &str = "
pages=0
for page in /usr/share/man/man1/hectare*.1.gz /usr/share/man/man8/*hectare.8.gz; do
    said=$(MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 -Z $page 2>&1 >/dev/null)
    test -z \"$said\" || { echo \"$page: $said\" >&2; exit 1; }
    pages=$((pages + 1))
done
test $pages -gt 40
man -P cat 1 hectare-build | grep -q -e '--from'
man -P cat 8 mount.hectare | grep -q 'fuse.hectare'
";

const COMPLETIONS: &str = "
cat > /tmp/complete <<'END'
. /usr/share/bash-completion/bash_completion
_completion_loader hectare
how=$(complete -p hectare) || exit 1
how=${how#*-F }
words() {
    COMP_WORDS=(\"$@\") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    ${how%% *} hectare \"${@: -1}\" hectare
}
words hectare che; [ \"${COMPREPLY[*]}\" = check ] || { echo \"che: ${COMPREPLY[*]}\" >&2; exit 1; }
words hectare build --expl
[ \"${COMPREPLY[*]}\" = --explain-size ] || { echo \"--expl: ${COMPREPLY[*]}\" >&2; exit 1; }
END
bash /tmp/complete
rm /tmp/complete
";

const MOUNTS: &str = "
cd /tmp
mkdir tree /mnt/disk
echo content > tree/file
hectare build --from tree --free 4M disk.img >/dev/null
for kind in hectare fuse.hectare; do
    mount -t $kind /tmp/disk.img /mnt/disk
    grep -q ' /mnt/disk fuse' /proc/mounts
    test \"$(cat /mnt/disk/file)\" = content
    echo $kind > /mnt/disk/$kind
    umount /mnt/disk
    test \"$(hectare cat disk.img:/$kind)\" = $kind
done
cp -p /etc/fstab /tmp/fstab 2>/dev/null || echo > /tmp/fstab
echo '/tmp/disk.img /mnt/disk fuse.hectare noauto 0 0' >> /etc/fstab
mount /mnt/disk
test \"$(cat /mnt/disk/fuse.hectare)\" = fuse.hectare
mount -o remount,ro /mnt/disk
if touch /mnt/disk/new 2>/dev/null; then exit 1; fi
umount /mnt/disk
hectare check disk.img
cat /tmp/fstab > /etc/fstab
rm -r tree disk.img fstab /mnt/disk
";

/// The blocks of shell commands in docs/install.md, as one script that works in a directory of its own.
fn examples(sources: &Path) -> Result<String, String> {
    let path = sources.join("docs/install.md");
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let blocks = blocks(&text);
    if blocks.is_empty() {
        return Err(format!("{} has no block of shell commands", path.display()));
    }
    Ok(format!("mkdir /tmp/examples\ncd /tmp/examples\n{blocks}cd /\nrm -r /tmp/examples\n"))
}

fn blocks(markdown: &str) -> String {
    let mut blocks = String::new();
    let mut inside = false;
    for line in markdown.lines() {
        match line {
            "```sh" => inside = true,
            "```" => inside = false,
            line if inside => blocks.push_str(&format!("{line}\n")),
            _ => {}
        }
    }
    blocks
}

/// Builds an example on this machine with what the development package has installed, and runs it there.
fn program(facts: &Facts, chroot: &Chroot) -> Result<String, String> {
    let root = chroot.path();
    let found = |name: &str| need(name).map_err(|skip| skip.to_string());
    let libraries = root.join(library_folder(Family::Debian)).join("pkgconfig");
    let mut config = found("pkg-config")?;
    config.env("PKG_CONFIG_SYSROOT_DIR", root).env("PKG_CONFIG_LIBDIR", libraries);
    let flags = output(config.args(["--cflags", "--libs", "hectare"]))?;
    let mut compiler = found("cc")?;
    compiler.arg(facts.sources.join("crates/bind/capi/examples/list.c")).arg("-o").arg(root.join("tmp/list"));
    step(compiler.args(flags.split_whitespace()))?;
    let said = chroot.sh(
        "cd /tmp\nmkdir tree\necho content > tree/file\nhectare build --from tree disk.img >/dev/null\n\
         ./list disk.img / /file\nrm -r tree disk.img list\n",
    )?;
    let right = said.contains(" file\n") && said.ends_with("content\n");
    if right { Ok(said) } else { Err(format!("list printed:\n{said}")) }
}

/// What belongs to dpkg, ldconfig and man-db, which note that they were called.
const NOTES: [&str; 5] =
    ["var/lib/dpkg/", "var/log/dpkg.log", "var/cache/man/", "var/cache/ldconfig/", "etc/ld.so.cache"];

/// What is not as before.
fn traces(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<String> {
    let kept = |files: &BTreeMap<String, String>| {
        let mut files = files.clone();
        files.retain(|path, _| !NOTES.iter().any(|note| path.starts_with(note)));
        files
    };
    differences(&kept(before), &kept(after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(list: &[(&str, &str)]) -> BTreeMap<String, String> {
        list.iter().map(|&(path, what)| (path.to_owned(), what.to_owned())).collect()
    }

    #[test]
    fn what_is_left_is_seen_and_notes_of_dpkg_are_not() {
        let before = files(&[("etc/a", "1"), ("etc/b", "1"), ("var/log/dpkg.log", "1")]);
        let after = files(&[("etc/a", "2"), ("usr/c", "1"), ("var/log/dpkg.log", "2")]);
        let expected = ["missing: etc/b", "changed: etc/a: 1 became 2", "new: usr/c"];
        assert_eq!(traces(&before, &after), expected);
        assert!(traces(&before, &before).is_empty());
    }

    #[test]
    fn blocks_of_shell_commands_are_found() {
        assert_eq!(blocks("a\n```sh\nls\n```\nb\n```\nno\n```\n```sh\ncat\n```\n"), "ls\ncat\n");
        assert!(examples(&hectare_tools::steps::root()).unwrap().contains("mount -t hectare"));
    }

    #[test]
    fn paths_of_rpm_become_those_of_debian() {
        let found = on_debian("usr/share/doc/libhectare-devel/a", Family::Rpm, Package::Development);
        assert_eq!(found, "usr/share/doc/libhectare-dev/a");
        let folder = library_folder(Family::Debian);
        assert_eq!(on_debian("usr/lib64/b", Family::Rpm, Package::Library), format!("{folder}/b"));
    }
}
