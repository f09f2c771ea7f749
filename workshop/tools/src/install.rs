//! Installs Debian's packages that jobs need and the host lacks, if allowed.
//!
//! Invariants: nothing is removed, replaced, upgraded or downgraded for it. apt is asked first what it would do
//! (`--simulate`); what would touch an installed package is not asked of it, and the real run has `--no-remove`
//! beside. Where all packages can't be had together they are tried one by one. What is added and how much that is
//! is printed before. `HECTARE_NO_INSTALL=1` forbids installing.
//!
//! A tool that stays absent is either *skipped* (this user may not install, or this Debian does not have it: what
//! needs it is skipped by name) or *missing* (it was to be had, and could not be installed), with apt's reason.

use crate::steps::{quiet, shown};
use crate::tool::{Said, is_root, run, tool};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// A program, or a file by its path, and its Debian package; `a|b` where the package has another name in other
/// releases of Debian.
pub type Tool = (&'static str, &'static str);

/// The state of the tools after an attempt to install them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Installed {
    /// Absent, and nobody could or might install them: the tool, its package, the reason.
    pub skipped: Vec<(Tool, String)>,
    /// Absent although this Debian has the package and this user may install: likewise.
    pub missing: Vec<(Tool, String)>,
}

impl Installed {
    /// Prints what is absent, the missing apart from the skipped.
    pub fn print(&self) {
        for ((name, package), reason) in &self.skipped {
            println!("absent: {name} (Debian package {package}): {reason}; what needs it is skipped");
        }
        for ((name, package), reason) in &self.missing {
            eprintln!("MISSING: {name} (Debian package {package}): {reason}");
        }
    }
}

/// Installs what the host lacks of these.
#[must_use]
pub fn install(tools: &[Tool]) -> Installed {
    let absent = absent(tools);
    if absent.is_empty() {
        return Installed::default();
    }
    let apt = match Apt::allowed() {
        Ok(apt) => apt,
        Err(reason) => {
            let skipped = absent.into_iter().map(|tool| (tool, reason.to_owned())).collect();
            return Installed { skipped, ..Installed::default() };
        }
    };
    // Without the option, lists that can't be fetched are a warning and success.
    let has_lists = shown(apt.command().args(["-o", "APT::Update::Error-Mode=any", "update"]));
    if !has_lists {
        eprintln!("apt-get update failed: the package lists may be old");
    }
    let known = |tool: &Tool| tool.1.split('|').find(|package| is_known(package));
    let refused = apt.add(&absent.iter().filter_map(known).collect());
    let mut result = Installed::default();
    for tool in self::absent(tools) {
        let reason = match known(&tool) {
            Some(package) => {
                refused.get(package).map_or("its package is installed, without it", String::as_str)
            }
            None if has_lists => {
                result.skipped.push((tool, "this Debian does not have the package".to_owned()));
                continue;
            }
            None => "apt-get update failed: no list has the package",
        };
        result.missing.push((tool, reason.to_owned()));
    }
    result
}

fn absent(tools: &[Tool]) -> Vec<Tool> {
    tools.iter().copied().filter(|(name, _)| !is_there(name)).collect()
}

/// Whether there is a program of that name, or a file of that path.
fn is_there(name: &str) -> bool {
    if name.starts_with('/') { Path::new(name).exists() } else { tool(name).is_some() }
}

/// Whether this Debian has a package that can be installed.
fn is_known(package: &str) -> bool {
    let Some(mut cache) = tool("apt-cache") else { return false };
    let said = quiet(cache.args(["policy", package]));
    let text = said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned()).unwrap_or_default();
    text.lines().any(|line| line.trim().starts_with("Candidate:") && !line.ends_with("(none)"))
}

/// An apt-get that may install.
struct Apt(Vec<&'static str>);

impl Apt {
    /// The command line of an apt-get that may install, or why there is none.
    fn allowed() -> Result<Self, &'static str> {
        if std::env::var("HECTARE_NO_INSTALL").is_ok_and(|value| value == "1") {
            return Err("HECTARE_NO_INSTALL=1");
        }
        if tool("apt-get").is_none() {
            return Err("there is no apt-get");
        }
        if is_root() {
            return Ok(Self(vec!["apt-get"]));
        }
        let may = tool("sudo").is_some_and(|mut sudo| quiet(sudo.args(["-n", "true"])).is_some());
        may.then(|| Self(vec!["sudo", "-n", "env", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C", "apt-get"]))
            .ok_or("neither root nor sudo without a password")
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.0[0]);
        command.env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C").args(&self.0[1..]);
        // Without a network this must fail soon, not after minutes.
        command.args(["-q", "-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20"]);
        command
    }

    fn installing(&self, packages: &BTreeSet<&str>) -> Command {
        let mut command = self.command();
        command.args(["install", "--no-install-recommends", "--no-remove", "--no-upgrade"]).args(packages);
        command
    }

    /// Installs packages together, or those of them that can be had one by one; the others with the reason.
    fn add<'a>(&self, packages: &BTreeSet<&'a str>) -> BTreeMap<&'a str, String> {
        match self.add_together(packages) {
            Ok(()) => BTreeMap::new(),
            Err(reason) if packages.len() == 1 => packages.iter().map(|one| (*one, reason.clone())).collect(),
            Err(reason) => {
                println!("not all at once: {reason}");
                let one_by_one = packages.iter().filter_map(|package| {
                    let refused = self.add_together(&BTreeSet::from([*package])).err()?;
                    Some((*package, refused))
                });
                one_by_one.collect()
            }
        }
    }

    fn add_together(&self, packages: &BTreeSet<&str>) -> Result<(), String> {
        if packages.is_empty() {
            return Ok(());
        }
        let plan = run(self.installing(packages).arg("--simulate"));
        acceptable(&plan)?;
        let announced = run(self.installing(packages).args(["--print-uris", "--yes"]));
        let size = announced.stdout.lines().filter(|line| line.contains("B of ") && !line.starts_with('\''));
        println!("installing {}", packages.iter().copied().collect::<Vec<_>>().join(" "));
        size.for_each(|line| println!("  {line}"));
        let said = run(self.installing(packages).arg("--yes"));
        if said.succeeded() { Ok(()) } else { Err(reason_of(&said)) }
    }
}

/// Whether a simulated run only adds packages; if not, why not.
fn acceptable(plan: &Said) -> Result<(), String> {
    if !plan.succeeded() {
        return Err(reason_of(plan));
    }
    let touched = plan.stdout.lines().find_map(|line| {
        let mut words = line.split(' ');
        match (words.next(), words.next(), words.next()) {
            (Some("Remv"), Some(name), _) => Some(format!("apt would remove {name}")),
            (Some("Inst"), Some(name), Some(old)) if old.starts_with('[') => {
                Some(format!("apt would replace {name} {old}"))
            }
            _ => None,
        }
    });
    touched.map_or(Ok(()), Err)
}

/// What apt says for itself, in a line: what depends on what, else its errors.
fn reason_of(said: &Said) -> String {
    let lines = || said.stdout.lines().chain(said.stderr.lines()).map(str::trim);
    let depends = lines().find(|line| line.contains("Depends:") || line.contains("Conflicts:"));
    let error = lines().find(|line| line.starts_with("E:"));
    depends.or(error).unwrap_or("apt-get failed without a reason").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(exit: i32, stdout: &str) -> Said {
        Said { line: String::new(), exit: Some(exit), stdout: stdout.to_owned(), stderr: String::new() }
    }

    #[test]
    fn a_plan_that_touches_an_installed_package_is_refused() {
        assert_eq!(acceptable(&said(0, "Inst fio (3.33-3 Debian:12 [amd64])\nConf fio (3.33-3)\n")), Ok(()));
        let removes = acceptable(&said(0, "Remv qemu-utils [1:10.0.2]\nInst fio (3.33-3)\n"));
        assert_eq!(removes, Err("apt would remove qemu-utils".to_owned()));
        let replaces = acceptable(&said(0, "Inst qemu-utils [1:10.0.2] (1:7.2 Debian:12 [amd64])\n"));
        assert_eq!(replaces, Err("apt would replace qemu-utils [1:10.0.2]".to_owned()));
        let unmet =
            " qemu-system-x86 : Depends: qemu-system-common (> 1:7.2) but it is not installable\nE: Unable\n";
        assert!(acceptable(&said(100, unmet)).unwrap_err().starts_with("qemu-system-x86 : Depends:"));
    }

    #[test]
    fn what_is_there_is_not_installed() {
        assert_eq!(install(&[("sh", "dash")]), Installed::default());
        assert!(absent(&[("/hectare-no-such-file", "none"), ("sh", "dash")]).len() == 1);
    }
}
