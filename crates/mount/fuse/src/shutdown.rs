//! Shuts down a volume that another process serves, by the `ioctl` that carries the mode.

use hectare_engine::Shutdown;
use rustix::fs::{Mode, OFlags, open};
use std::io;
use std::path::Path;

/// The adapter's `SHUTDOWN_BY`.
const COMMAND: rustix::ioctl::Opcode = rustix::ioctl::opcode::write::<u32>(b'X', 125);

/// Shuts down the mounted volume of `path`. With [`Shutdown::Flush`] the kernel first writes back what it
/// buffers.
///
/// # Errors
/// `ENOTTY` if that is no volume of ours, `EPERM` for users other than root, or the error of a write.
pub fn shut_down(path: &Path, how: Shutdown) -> io::Result<()> {
    let top = open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    let mode: u32 = match how {
        Shutdown::Flush => 0,
        Shutdown::FlushLog => 1,
        Shutdown::Cut => 2,
    };
    if how == Shutdown::Flush {
        rustix::fs::syncfs(&top)?;
    }
    #[allow(unsafe_code)]
    // SAFETY: the command reads four bytes, which `Setter` points it to, and writes none.
    unsafe {
        let command = rustix::ioctl::Setter::<COMMAND, u32>::new(mode);
        rustix::ioctl::ioctl(&top, command)?;
    }
    Ok(())
}
