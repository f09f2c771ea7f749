//! Requests to a mounted volume as a whole: its label, and shutdown.

use crate::support::{MIB, Mount, mounted, needed};
use hectare_fuse::shut_down;
use hectare_oracle::tool::run;
use hectare_oracle::{assert_clean, skip_part};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::thread;

const EXT4_IOC_SHUTDOWN: u32 = 0x8004_587d;
const FS_IOC_GETFSLABEL: u32 = 0x8100_9431;
const FS_IOC_SETFSLABEL: u32 = 0x4100_9432;
const FITRIM: u32 = 0xc018_5879;

/// A command with an argument of up to 256 bytes; returns the argument afterwards.
#[allow(unsafe_code)]
fn control(mount: &Mount, command: u32, argument: [u8; 256]) -> Result<[u8; 256], Errno> {
    let (dir, mut argument) = (fs::File::open(&mount.dir).unwrap(), argument);
    // SAFETY: none of the commands moves more bytes than the argument has.
    match unsafe { libc::ioctl(dir.as_raw_fd(), command.into(), &raw mut argument) } {
        0 => Ok(argument),
        _ => Err(Errno::from_raw_os_error(std::io::Error::last_os_error().raw_os_error().unwrap())),
    }
}

fn padded(text: &[u8]) -> [u8; 256] {
    std::array::from_fn(|at| text.get(at).copied().unwrap_or(0))
}

#[test]
fn the_label_is_told_and_set() {
    const NAME: &str = "control::the_label_is_told_and_set";
    let mut mount = mounted!(NAME, 64 * MIB, "");
    assert_eq!(control(&mount, FS_IOC_GETFSLABEL, [1; 256]), Ok([0; 256]));
    control(&mount, FS_IOC_SETFSLABEL, padded(b"sixteen-letters!")).unwrap();
    assert_eq!(control(&mount, FS_IOC_GETFSLABEL, [1; 256]), Ok(padded(b"sixteen-letters!")));
    assert_eq!(control(&mount, FS_IOC_SETFSLABEL, padded(b"seventeen letters")), Err(Errno::INVAL));
    mount.detach();
    match hectare_oracle::tool::need("e2label") {
        Ok(mut e2label) => {
            assert_eq!(run(e2label.arg(&mount.image)).expect_success().stdout.trim(), "sixteen-letters!");
        }
        Err(reason) => skip_part!(NAME, reason),
    }
    mount.attach("");
    assert_eq!(control(&mount, FS_IOC_GETFSLABEL, [1; 256]), Ok(padded(b"sixteen-letters!")));
    mount.judge(NAME);
}

/// Every operation fails, whatever the mode; closing writes nothing; and the volume recovers.
#[test]
fn a_volume_that_is_shut_down_fails_and_recovers() {
    const NAME: &str = "control::a_volume_that_is_shut_down_fails_and_recovers";
    drop(needed!(NAME, "e2fsck"));
    use hectare_engine::Shutdown;
    let modes = [None, Some(Shutdown::Flush), Some(Shutdown::FlushLog), Some(Shutdown::Cut)];
    for (mode, options) in modes.into_iter().flat_map(|mode| [(mode, ""), (mode, "nowriteback")]) {
        let mut mount = mounted!(NAME, 64 * MIB, options);
        fs::write(mount.path("synced"), "kept").unwrap();
        fs::File::open(mount.path("synced")).unwrap().sync_all().unwrap();
        fs::create_dir(mount.path("made")).unwrap();
        let mut open = fs::File::create(mount.path("open")).unwrap();
        match mode {
            None => drop(control(&mount, EXT4_IOC_SHUTDOWN, [0; 256]).unwrap()),
            Some(how) => shut_down(&mount.dir, how).unwrap(),
        }
        let io_error = |result: std::io::Result<()>| {
            assert_eq!(result.unwrap_err().raw_os_error(), Some(Errno::IO.raw_os_error()), "{mode:?}");
        };
        io_error(fs::create_dir(mount.path("late")));
        io_error(fs::read(mount.path("open")).map(drop));
        io_error(fs::remove_file(mount.path("synced")));
        io_error(open.write_all(b"late").and_then(|()| open.sync_all()));
        drop(open);
        let written = fs::read(&mount.image).unwrap();
        mount.detach();
        assert!(fs::read(&mount.image).unwrap() == written, "{mode:?}: closing wrote");
        mount.attach("");
        assert_eq!(fs::read(mount.path("synced")).unwrap(), b"kept", "{mode:?}");
        let survives = mode != Some(Shutdown::Cut);
        assert_eq!(mount.path("made").exists(), survives, "{mode:?}");
        assert!(!mount.path("late").exists());
        mount.detach();
        assert_clean(&mount.image).unwrap();
    }
}

/// Being user 0 was enough: root of a container shut the volume of its host down.
#[test]
fn regression_root_without_capabilities_is_refused() {
    const NAME: &str = "control::regression_root_without_capabilities_is_refused";
    let mount = mounted!(NAME, 64 * MIB, "allow_other");
    let tried = thread::scope(|scope| {
        // Capabilities are a thread's.
        let without = || {
            let none = CapabilitySet::empty();
            let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
            set_capabilities(None, sets).unwrap();
            [FS_IOC_SETFSLABEL, EXT4_IOC_SHUTDOWN, FITRIM].map(|command| control(&mount, command, [0; 256]))
        };
        scope.spawn(without).join().unwrap()
    });
    assert_eq!(tried.map(|result| result.err()), [Some(Errno::PERM); 3]);
    control(&mount, FS_IOC_SETFSLABEL, padded(b"mine")).unwrap();
    // Nor is one that has them all, in a user namespace of its own.
    fs::write(mount.path("f"), "").unwrap();
    let mut unshare = needed!(NAME, "unshare");
    let in_own_users = run(unshare.args(["--user", "--map-root-user", "chattr", "+i"]).arg(mount.path("f")));
    assert!(in_own_users.stderr.contains("not permitted"), "{}", in_own_users.report());
    fs::remove_file(mount.path("f")).unwrap();
    mount.judge(NAME);
}
