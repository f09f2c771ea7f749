//! The sandbox: what a server gives up before it reads an image.
//!
//! An image is untrusted, and its server needs little: the image's descriptor, which is open by then, the
//! FUSE device, and a directory for its control socket. So it gives up every capability, also root's, and the
//! way to gain one by executing a program (`PR_SET_NO_NEW_PRIVS`); and Landlock, where it is supported,
//! denies access to all other files, to the network except for sockets that are bound already, and to
//! executing programs at all.
//!
//! The server of a volume on another machine may connect to the port of that machine's server, for it has to make
//! lost connections again. Landlock knows ports only: a compromised one may connect to that port of any host.
//!
//! What is needed later and can't be done in the sandbox is left to the [privileged
//! helper](crate::privileged_helper).
//!
//! Hazard: all this is per thread and inherited by the threads that it starts. So it must come before the
//! first of them: [`confine`] refuses otherwise.

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, NetPort, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use log::info;
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};
use std::io;
use std::path::Path;

/// The newest set of rights that is requested; older kernels apply what they have.
const RIGHTS: ABI = ABI::V6;
/// Devices that are opened, or reopened, while serving.
const DEVICES: [&str; 3] = [crate::event_loop::DEVICE, "/dev/null", "/dev/cpu_dma_latency"];
/// The kernel's information about this process, about processors, and about mounts.
const TOLD: [&str; 2] = ["/proc", "/sys"];
const THREADS: &str = "/proc/self/task";

/// How much of the file system is denied.
#[derive(PartialEq, Eq, Debug)]
pub struct Confined(RulesetStatus);

impl Confined {
    /// Logs what has been given up.
    pub fn log(self) {
        let landlock = match self.0 {
            RulesetStatus::FullyEnforced => "all",
            RulesetStatus::PartiallyEnforced => "partially, as far as the kernel supports it",
            RulesetStatus::NotEnforced => "not supported by this kernel",
        };
        info!(landlock; "this process has no capabilities and gets none");
    }
}

/// Gives up what a server does not need; `control` is the directory for its control socket, `port` that of the
/// server that has the volume, if it is on another machine.
///
/// # Errors
/// If this process has other threads already, or the kernel refuses.
pub fn confine(control: Option<&Path>, port: Option<u16>) -> io::Result<Confined> {
    if std::fs::read_dir(THREADS).is_ok_and(|threads| threads.count() > 1) {
        return Err(io::Error::other("privileges can't be given up once there are other threads"));
    }
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    set_no_new_privs(true)?;
    close_files(control, port).map(Confined).map_err(io::Error::other)
}

fn close_files(control: Option<&Path>, port: Option<u16>) -> Result<RulesetStatus, RulesetError> {
    let all = AccessFs::from_all(RIGHTS);
    let closed = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .handle_access(AccessNet::from_all(RIGHTS))?
        .scope(Scope::from_all(RIGHTS))?
        .create()?;
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    let socket = AccessFs::MakeSock | AccessFs::RemoveFile;
    // To name source locations in this program, should it panic.
    let program = std::env::current_exe().ok();
    let closed = DEVICES.iter().try_fold(closed, |closed, path| open(closed, path.as_ref(), device))?;
    let closed = TOLD
        .iter()
        .map(Path::new)
        .chain(program.as_deref())
        .try_fold(closed, |closed, path| open(closed, path, AccessFs::ReadFile | AccessFs::ReadDir))?;
    let closed = match control {
        Some(folder) => open(closed, folder, socket)?,
        None => closed,
    };
    let closed = match port {
        Some(port) => closed.add_rule(NetPort::new(port, AccessNet::ConnectTcp))?,
        None => closed,
    };
    Ok(closed.restrict_self()?.ruleset)
}

/// Permits access to what is at or below a path, if it exists.
fn open(
    closed: RulesetCreated,
    path: &Path,
    access: landlock::BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    let Ok(place) = PathFd::new(path) else { return Ok(closed) };
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(RIGHTS) };
    closed.add_rule(PathBeneath::new(place, access))
}
