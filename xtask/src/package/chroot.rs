//! A root directory to try packages in: a new minimal Debian, or nothing at all.
//!
//! Every call has namespaces of its own for mounts and processes: when it ends, the kernel kills what it has
//! started and unmounts what it has mounted, so that nothing is left on this machine, however it ends. What
//! is kept from call to call are the files.

use super::{Ended, output};
use hectare_tools::Kind;
use hectare_tools::job_folder::{Scratch, with_path};
use hectare_tools::steps::shown;
use hectare_tools::tool::is_root;
use hectare_tools::tool::need;
use hectare_tools::walk::try_walk;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Runs the words after the directory in it, with devices, processes and `/sys` in their places, and `/run`
/// in memory, as on every system that runs.
const ENTER: &str = "mount --rbind /dev \"$0/dev\" && mount -t proc proc \"$0/proc\" && \
                     mount --rbind /sys \"$0/sys\" && mount -t tmpfs run \"$0/run\" && exec \"$@\"";
/// Where programs are found, here and there.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A root directory, removed when dropped.
pub(super) struct Chroot(Scratch);

impl Chroot {
    /// Makes a minimal Debian of this machine's release, with more packages.
    pub(super) fn debian(more: &[&str]) -> Result<Self, Ended> {
        let mut mmdebstrap = need("mmdebstrap")?;
        let chroot = Self::new()?;
        mmdebstrap.args(["--quiet", "--variant=minbase", "--mode=root", "--format=directory"]);
        mmdebstrap.arg(format!("--include={}", more.join(","))).arg(release()?).arg(chroot.path());
        if shown(&mut mmdebstrap) {
            Ok(chroot)
        } else {
            Err("mmdebstrap can't make a Debian".to_owned().into())
        }
    }

    /// Makes one with nothing but places for mounts.
    pub(super) fn empty() -> Result<Self, Ended> {
        let chroot = Self::new()?;
        for name in ["dev", "mnt", "proc", "run", "sys"] {
            fs::create_dir(chroot.path().join(name)).map_err(with_path(chroot.path()))?;
        }
        Ok(chroot)
    }

    fn new() -> Result<Self, Ended> {
        if !is_root() {
            return Err(Ended::Skipped("a root directory to try packages in needs root".to_owned()));
        }
        need("unshare")?;
        Ok(Self(Scratch::new(&std::env::temp_dir(), "hectare-chroot")?))
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Runs a script by the shell in it, and returns what it prints.
    pub(super) fn sh(&self, script: &str) -> Result<String, String> {
        self.run(&["chroot", &self.path().to_string_lossy(), "/bin/sh", "-euc", script])
    }

    /// Runs a script by this machine's shell, with its path as `$0` and its mounts in place.
    pub(super) fn beside(&self, script: &str) -> Result<String, String> {
        self.run(&["sh", "-euc", script, &self.path().to_string_lossy()])
    }

    fn run(&self, words: &[&str]) -> Result<String, String> {
        let mut unshare = need("unshare").map_err(|skip| skip.to_string())?;
        unshare.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-euc", ENTER]).arg(self.path());
        unshare.args(words).env_clear().env("PATH", PATH).env("HOME", "/root").env("LC_ALL", "C.UTF-8");
        output(&mut unshare)
    }

    /// Every file in it, in words that differ if it does.
    pub(super) fn files(&self) -> Result<BTreeMap<String, String>, String> {
        let entries = try_walk(self.path()).map_err(|error| format!("{}: {error}", self.path().display()))?;
        let line = |entry: hectare_tools::Entry| {
            let path = String::from_utf8_lossy(&entry.path).into_owned();
            let size = if entry.kind == Kind::Directory { 0 } else { entry.size };
            let digest: String = entry.digest.iter().map(|byte| format!("{byte:02x}")).collect();
            let target = entry.target.escape_ascii();
            let owner = format!("{}:{}", entry.uid, entry.gid);
            (path, format!("{:?} {:o} {owner} {size} {target} {digest}", entry.kind, entry.mode))
        };
        Ok(entries.into_iter().map(line).collect())
    }
}

/// The name of this machine's release of Debian.
fn release() -> Result<String, Ended> {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let value = |key: &str| {
        let mut values = text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        values.next().map(|value| value.trim_matches('"').to_owned())
    };
    match (value("ID").as_deref(), value("VERSION_CODENAME")) {
        (Some("debian"), Some(name)) => Ok(name),
        _ => Err(Ended::Skipped("this machine runs no release of Debian to make another of".to_owned())),
    }
}
