//! Provides the loop device of a `fuseblk` mount.
//!
//! The kernel mounts `fuseblk` on a block device only, which it keeps for the mount alone. An image gets a
//! loop device for that ([`attach`]). Nothing is read or written through it: the server uses the image
//! itself. The loop device shows the kernel, and all programs that check, which image is in use: they refuse
//! to mount, check or format it meanwhile.
//!
//! Invariant: it is removed with its last user (`LO_FLAGS_AUTOCLEAR`): after the descriptor given here is
//! closed, that is the mount, in whatever way it ends.
//!
//! Facts: loop(4) and `include/uapi/linux/loop.h`.

use hectare_device::MOUNT_KEY;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, ioctl};
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use zerocopy::{FromZeros, IntoBytes};

const CONTROL: &str = "/dev/loop-control";
const LOOP_CTL_GET_FREE: Opcode = 0x4c82;
const LOOP_CONFIGURE: Opcode = 0x4c0a;
const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
/// How often to retry with the next device when another program was quicker to take one.
const TRIES: u32 = 16;
/// The bytes of a file's name that a device remembers, including the final NUL.
const NAME_MAX: usize = 64;

/// `struct loop_config`, including `struct loop_info64`.
#[derive(FromZeros, IntoBytes)]
#[repr(C)]
struct Config {
    fd: u32,
    block_size: u32,
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; NAME_MAX],
    crypt_name: [u8; NAME_MAX],
    encrypt_key: [u8; 32],
    init: [u64; 2],
    reserved: [u64; 8],
}

struct GetFree;

// SAFETY: the request takes no argument and touches no memory; what it returns is the number.
#[allow(unsafe_code)]
unsafe impl Ioctl for GetFree {
    type Output = u32;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        LOOP_CTL_GET_FREE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(number: IoctlOutput, _: *mut c_void) -> rustix::io::Result<u32> {
        u32::try_from(number).map_err(|_| Errno::RANGE)
    }
}

/// A loop device on an image, removed when its last descriptor is closed and nothing is mounted on it.
pub(crate) struct LoopDevice {
    pub(crate) path: PathBuf,
    _open: OwnedFd,
}

/// Attaches a loop device to an image. It does not share the descriptor, whose locks it would keep.
///
/// # Errors
/// If there are none, or this process may not use them.
pub(crate) fn attach(image: BorrowedFd<'_>, name: &str, read_only: bool) -> io::Result<LoopDevice> {
    let access = if read_only { OFlags::RDONLY } else { OFlags::RDWR };
    let anew = format!("/proc/self/fd/{}", image.as_raw_fd());
    let image = open(anew, access | OFlags::CLOEXEC, Mode::empty())?;
    let control = open(CONTROL, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| named(Path::new(CONTROL), errno))?;
    for _ in 0..TRIES {
        // SAFETY: see `GetFree`.
        #[allow(unsafe_code)]
        let number = unsafe { ioctl(&control, GetFree) }.map_err(|errno| named(Path::new(CONTROL), errno))?;
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let taken = open(&path, access | OFlags::CLOEXEC, Mode::empty())
            .and_then(|device| configure(&device, &image, name, read_only).map(|()| device));
        match taken {
            Ok(device) => return Ok(LoopDevice { path, _open: device }),
            // Another program was quicker, or is just releasing it.
            Err(Errno::BUSY | Errno::NXIO) => {}
            Err(errno) => return Err(named(&path, errno)),
        }
    }
    Err(named(Path::new(CONTROL), Errno::BUSY))
}

fn configure(device: &OwnedFd, image: &OwnedFd, name: &str, read_only: bool) -> rustix::io::Result<()> {
    let mut config = Config::new_zeroed();
    config.fd = u32::try_from(image.as_raw_fd()).map_err(|_| Errno::BADF)?;
    config.flags = LO_FLAGS_AUTOCLEAR | if read_only { LO_FLAGS_READ_ONLY } else { 0 };
    for (to, from) in
        config.file_name.iter_mut().take(NAME_MAX - 1).zip(MOUNT_KEY.bytes().chain(name.bytes()))
    {
        *to = from;
    }
    // SAFETY: the request reads a `struct loop_config` from where the argument points, which `Config` is, and
    // writes nothing; it lives until the request returns.
    #[allow(unsafe_code)]
    unsafe {
        ioctl(device, Setter::<LOOP_CONFIGURE, Config>::new(config))
    }
}

fn named(path: &Path, errno: Errno) -> io::Error {
    let error = io::Error::from(errno);
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// The file under a loop device, as the kernel knows it; `None` for other devices, and without `/sys`.
pub(crate) fn image_of((major, minor): (u32, u32)) -> Option<PathBuf> {
    let mut name = std::fs::read(format!("/sys/dev/block/{major}:{minor}/loop/backing_file")).ok()?;
    if name.last() == Some(&b'\n') {
        name.pop();
    }
    Some(std::os::unix::ffi::OsStringExt::from_vec(name)).map(|name: std::ffi::OsString| name.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_is_as_long_as_the_kernels() {
        assert_eq!(size_of::<Config>(), 304);
    }
}
