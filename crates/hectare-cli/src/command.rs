//! The commands, one per file: arguments, help and implementation.

pub(crate) mod build;
pub(crate) mod cat;
pub(crate) mod chattr;
pub(crate) mod check;
pub(crate) mod chmod;
pub(crate) mod chown;
pub(crate) mod completions;
pub(crate) mod convert;
pub(crate) mod cp;
pub(crate) mod defrag;
pub(crate) mod described;
pub(crate) mod df;
pub(crate) mod diff;
pub(crate) mod disk;
pub(crate) mod du;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod find;
pub(crate) mod format_options;
pub(crate) mod freefrag;
pub(crate) mod identify;
pub(crate) mod info;
pub(crate) mod ln;
pub(crate) mod ls;
pub(crate) mod manual;
pub(crate) mod map;
pub(crate) mod mkdir;
pub(crate) mod mke2fs;
pub(crate) mod mkfs;
mod moved;
pub(crate) mod mv;
pub(crate) mod quota;
pub(crate) mod repair;
pub(crate) mod resize;
pub(crate) mod rm;
pub(crate) mod salvage;
pub(crate) mod serve;
pub(crate) mod sh;
pub(crate) mod stat;
#[cfg(feature = "store")]
pub(crate) mod store;
pub(crate) mod touch;
pub(crate) mod tree;
pub(crate) mod trim;
pub(crate) mod tune;
pub(crate) mod undo;
pub(crate) mod verity;
pub(crate) mod xattr;

#[cfg(all(target_os = "linux", not(hectare_portable)))]
mod for_linux;
#[cfg(not(all(target_os = "linux", not(hectare_portable))))]
mod not_here;

use crate::failure::Outcome;
#[cfg(not(all(target_os = "linux", not(hectare_portable))))]
use not_here as for_linux;

/// The command to run.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    Mkfs(mkfs::Arguments),
    Mke2fs(mke2fs::Arguments),
    #[command(name = "mkfs.xfs")]
    MkfsXfs(mkfs::xfs::Arguments),
    Build(Box<build::Arguments>),
    Export(export::Arguments),
    Convert(convert::Arguments),
    Disk(disk::Arguments),
    Diff(diff::Arguments),
    Ls(ls::Arguments),
    Tree(tree::Arguments),
    Find(find::Arguments),
    Du(du::Arguments),
    Df(df::Arguments),
    Stat(stat::Arguments),
    Cat(cat::Arguments),
    Cp(cp::Arguments),
    Mv(mv::Arguments),
    Rm(rm::Arguments),
    Mkdir(mkdir::Arguments),
    Ln(ln::Arguments),
    Touch(touch::Arguments),
    Chmod(chmod::Arguments),
    Chown(chown::Arguments),
    Chattr(chattr::Arguments),
    Xattr(xattr::Arguments),
    Quota(quota::Arguments),
    Verity(verity::Arguments),
    Sh(sh::Arguments),
    Identify(identify::Arguments),
    Info(info::Arguments),
    Tune(tune::Arguments),
    Check(check::Arguments),
    Salvage(salvage::Arguments),
    Resize(resize::Arguments),
    Repair(repair::Arguments),
    Undo(undo::Arguments),
    Freefrag(freefrag::Arguments),
    Map(map::Arguments),
    Trim(trim::Arguments),
    Defrag(defrag::Arguments),
    Explain(explain::Arguments),
    Serve(Box<serve::Arguments>),
    #[command(flatten)]
    ForLinux(for_linux::Command),
    #[command(flatten)]
    Moved(moved::Command),
    Completions(completions::Arguments),
    Manual(manual::Arguments),
}

impl Command {
    /// Whether it works on files inside an image, and can be one of several on an image that stays open.
    fn is_for_batches(&self) -> bool {
        matches!(
            self,
            Self::Ls(_)
                | Self::Tree(_)
                | Self::Find(_)
                | Self::Du(_)
                | Self::Stat(_)
                | Self::Cat(_)
                | Self::Cp(_)
                | Self::Mv(_)
                | Self::Rm(_)
                | Self::Mkdir(_)
                | Self::Ln(_)
                | Self::Touch(_)
                | Self::Chmod(_)
                | Self::Chown(_)
                | Self::Chattr(_)
                | Self::Xattr(_)
        )
    }

    /// Runs the command; `program` is the command line as a whole, for those that describe it.
    pub(crate) fn run(self, program: fn() -> clap::Command) -> Outcome {
        match self {
            Self::Mkfs(arguments) => mkfs::run(&arguments),
            Self::Mke2fs(arguments) => mke2fs::run(&arguments),
            Self::MkfsXfs(arguments) => mkfs::xfs::run(&arguments),
            Self::Build(arguments) => build::run(&arguments),
            Self::Export(arguments) => export::run(&arguments),
            Self::Convert(arguments) => convert::run(&arguments),
            Self::Disk(arguments) => disk::run(&arguments),
            Self::Diff(arguments) => diff::run(&arguments),
            Self::Ls(arguments) => ls::run(&arguments),
            Self::Tree(arguments) => tree::run(&arguments),
            Self::Find(arguments) => find::run(&arguments),
            Self::Du(arguments) => du::run(&arguments),
            Self::Df(arguments) => df::run(&arguments),
            Self::Stat(arguments) => stat::run(&arguments),
            Self::Cat(arguments) => cat::run(&arguments),
            Self::Cp(arguments) => cp::run(&arguments),
            Self::Mv(arguments) => mv::run(&arguments),
            Self::Rm(arguments) => rm::run(&arguments),
            Self::Mkdir(arguments) => mkdir::run(&arguments),
            Self::Ln(arguments) => ln::run(&arguments),
            Self::Touch(arguments) => touch::run(&arguments),
            Self::Chmod(arguments) => chmod::run(&arguments),
            Self::Chown(arguments) => chown::run(&arguments),
            Self::Chattr(arguments) => chattr::run(&arguments),
            Self::Xattr(arguments) => xattr::run(&arguments),
            Self::Quota(arguments) => quota::run(&arguments),
            Self::Verity(arguments) => verity::run(&arguments),
            Self::Sh(arguments) => sh::run(&arguments, program),
            Self::Identify(arguments) => identify::run(&arguments),
            Self::Info(arguments) => info::run(&arguments),
            Self::Tune(arguments) => tune::run(&arguments),
            Self::Check(arguments) => check::run(&arguments),
            Self::Salvage(arguments) => salvage::run(&arguments),
            Self::Resize(arguments) => resize::run(&arguments),
            Self::Repair(arguments) => repair::run(&arguments),
            Self::Undo(arguments) => undo::run(&arguments),
            Self::Freefrag(arguments) => freefrag::run(&arguments),
            Self::Map(arguments) => map::run(&arguments),
            Self::Trim(arguments) => trim::run(&arguments),
            Self::Defrag(arguments) => defrag::run(&arguments),
            Self::Explain(arguments) => explain::run(&arguments),
            Self::Serve(arguments) => serve::run(&arguments),
            Self::ForLinux(command) => command.run(),
            Self::Moved(command) => command.run(),
            Self::Completions(arguments) => completions::run(&arguments, program()),
            Self::Manual(arguments) => manual::run(&arguments, program()),
        }
    }
}
