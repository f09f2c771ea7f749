//! File handles, as NFS servers and backup programs keep them: they outlive the kernel's inode and the mount
//! itself, and never open another file that got the number.
//!
//! No safe library has the two system calls.

#![allow(unsafe_code)]

use crate::support::{MIB, mounted};
use hectare_oracle::{skip, until};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const LEN_MAX: usize = libc::MAX_HANDLE_SZ as usize;

/// The argument of the system calls: a `file_handle` with the maximum number of bytes.
#[repr(C)]
#[derive(Clone, PartialEq, Debug)]
struct Handle {
    len: libc::c_uint,
    kind: libc::c_int,
    bytes: [u8; LEN_MAX],
}

impl Handle {
    fn of(path: &Path) -> io::Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        let len = libc::c_uint::try_from(LEN_MAX).unwrap();
        let (mut handle, mut mount) = (Self { len, kind: 0, bytes: [0; LEN_MAX] }, 0);
        let to = (&raw mut handle).cast();
        // SAFETY: the path ends with a 0; the handle has the layout of `file_handle` and room for the `len`
        // bytes it says; both live until the call returns.
        let named = unsafe { libc::name_to_handle_at(libc::AT_FDCWD, path.as_ptr(), to, &raw mut mount, 0) };
        if named == 0 { Ok(handle) } else { Err(io::Error::last_os_error()) }
    }

    /// Opens it for reading, on the mount that a directory belongs to.
    fn open(&self, on: &Path) -> io::Result<File> {
        let (on, mut handle) = (File::open(on)?, self.clone());
        let from = (&raw mut handle).cast();
        // SAFETY: as above; the kernel only reads it.
        let opened =
            unsafe { libc::open_by_handle_at(on.as_raw_fd(), from, libc::O_RDONLY | libc::O_CLOEXEC) };
        if opened < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and nobody else's.
        Ok(unsafe { File::from_raw_fd(opened) })
    }
}

#[test]
fn a_handle_opens_its_file_again_and_no_other() {
    const NAME: &str = "handles::a_handle_opens_its_file_again_and_no_other";
    let mut mount = mounted!(NAME, 64 * MIB, "");
    fs::create_dir(mount.path("d")).unwrap();
    fs::write(mount.path("d/kept"), "kept").unwrap();
    fs::write(mount.path("d/gone"), "gone").unwrap();
    let handle = |path: &str| Handle::of(&mount.path(path));
    let (kept, gone) = match (handle("d/kept"), handle("d/gone")) {
        (Ok(kept), Ok(gone)) => (kept, gone),
        (refused, _) => skip!(NAME, refused.unwrap_err()),
    };
    let read = |handle: &Handle, on: &Path| {
        let mut text = String::new();
        handle.open(on).and_then(|mut file| file.read_to_string(&mut text)).map(|_| text)
    };
    assert_eq!(read(&kept, &mount.dir).unwrap(), "kept");
    // Its number is reused when the kernel has sent `FORGET` for this file.
    let number = fs::metadata(mount.path("d/gone")).unwrap().ino();
    fs::remove_file(mount.path("d/gone")).unwrap();
    let mut made = 0;
    until(|| {
        made += 1;
        let path = mount.path(&format!("d/other-{made}"));
        fs::write(&path, "other").unwrap();
        fs::metadata(&path).unwrap().ino() == number
    });
    assert_eq!(read(&gone, &mount.dir).unwrap_err().raw_os_error(), Some(libc::ESTALE));
    // Server and kernel know nothing of them any more.
    mount.detach();
    mount.attach("");
    assert_eq!(read(&kept, &mount.dir).unwrap(), "kept");
    assert_eq!(read(&gone, &mount.dir).unwrap_err().raw_os_error(), Some(libc::ESTALE));
    mount.judge(NAME);
}
