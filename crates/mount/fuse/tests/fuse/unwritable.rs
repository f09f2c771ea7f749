//! Files that can't be written: opening one for writing fails, before the kernel's cache takes
//! data that can't be kept.

use crate::support::{Mount, needed};
use hectare_oracle::tool::run;
use hectare_oracle::{KernelMount, Skip, debugfs_write, mke2fs, skip, skip_part};
use rustix::fs::{FallocateFlags, Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use std::fs;
use std::path::{Path, PathBuf};

/// What can't be written, and the error of every attempt.
const NAMES: [(&str, Errno); 2] = [("sealed", Errno::PERM), ("secret", Errno::OPNOTSUPP)];
const SMALL: &[u8] = b"old content\n";

/// A volume with a file of each form.
fn made(image: &Path) -> Result<(), Skip> {
    let mut tune2fs = hectare_oracle::tool::need("tune2fs")?;
    mke2fs(&["-t", "ext4", "-O", "^extents,^64bit,inline_data"], image, "64M")?;
    let kernel = KernelMount::new(image, "")?;
    fs::write(kernel.path().join("mapped"), vec![b'o'; 20_000]).unwrap();
    kernel.unmount();
    let _ = run(tune2fs.args(["-O", "extents,verity,encrypt"]).arg(image)).expect_success();
    let kernel = KernelMount::new(image, "")?;
    fs::write(kernel.path().join("inline"), SMALL).unwrap();
    for name in ["sealed", "secret", "plain"] {
        fs::write(kernel.path().join(name), vec![b'o'; 20_000]).unwrap();
    }
    kernel.unmount();
    debugfs_write(image, &["sif sealed flags 0x180000", "sif secret flags 0x80800"])?;
    Ok(())
}

/// Everything that would change a file's content, by name.
fn attempts(path: &Path, plain: &Path) -> Vec<(&'static str, Result<(), Errno>)> {
    let open = |flags: OFlags| rustix::fs::open(path, flags, Mode::empty());
    let c_path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: the path is a string that lives on.
    #[allow(unsafe_code)]
    let truncated = unsafe { libc::truncate(c_path.as_ptr(), 3) };
    let truncated = if truncated == 0 {
        Ok(())
    } else {
        Err(Errno::from_raw_os_error(std::io::Error::last_os_error().raw_os_error().unwrap()))
    };
    let copied = open(OFlags::WRONLY).and_then(|target| {
        let source = rustix::fs::open(plain, OFlags::RDONLY, Mode::empty())?;
        rustix::fs::copy_file_range(source, None, target, None, 10).map(drop)
    });
    let allocated =
        open(OFlags::RDWR).and_then(|file| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, 100_000));
    vec![
        ("O_WRONLY", open(OFlags::WRONLY).map(drop)),
        ("O_RDWR", open(OFlags::RDWR).map(drop)),
        ("O_APPEND", open(OFlags::WRONLY | OFlags::APPEND).map(drop)),
        ("O_TRUNC", open(OFlags::RDONLY | OFlags::TRUNC).map(drop)),
        ("truncate", truncated),
        ("copy_file_range", copied),
        ("fallocate", allocated),
    ]
}

/// `echo more >> f` returned 0, the bytes showed, and were gone after unmounting.
#[test]
fn regression_files_that_can_not_be_written_are_not_opened_for_writing() {
    const NAME: &str = "unwritable::regression_files_that_can_not_be_written_are_not_opened_for_writing";
    drop(needed!(NAME, "tune2fs"));
    for options in ["", "nowriteback", "data=journal"] {
        let image = hectare_oracle::scratch::fresh("unwritable");
        if let Err(reason) = made(&image) {
            skip!(NAME, reason);
        }
        let mut mount = match Mount::of(&image, options) {
            Ok(mount) => mount,
            Err(reason) => skip!(NAME, reason),
        };
        for (name, error) in NAMES {
            let before = fs::metadata(mount.path(name)).unwrap().len();
            for (what, found) in attempts(&mount.path(name), &mount.path("plain")) {
                assert_eq!(found, Err(error), "{name}, {what}, {options}");
            }
            assert_eq!(fs::metadata(mount.path(name)).unwrap().len(), before, "{name}");
        }
        // Attributes of the inode alone can be changed, and the rest of the volume.
        for (name, _) in NAMES {
            let path = mount.path(name);
            rustix::fs::chmod(&path, Mode::from_raw_mode(0o600)).unwrap();
            rustix::fs::setxattr(&path, "user.k", b"v", XattrFlags::empty()).unwrap();
        }
        fs::write(mount.path("plain"), "new").unwrap();
        // Files of forms that are no extents are written like others.
        for (name, old) in [("inline", SMALL), ("mapped", &[b'o'; 20_000])] {
            let mut file = fs::File::options().append(true).open(mount.path(name)).unwrap();
            std::io::Write::write_all(&mut file, &[b'n'; 9000]).unwrap();
            assert!(fs::read(mount.path(name)).unwrap() == [old, &[b'n'; 9000]].concat(), "{name}");
        }
        mount.detach();
        // The flags of files that no kernel sealed or encrypted here are cleared before it is judged.
        let plain = ["sif sealed flags 0x80000", "sif secret flags 0x80000"];
        debugfs_write(&mount.image, &plain).unwrap();
        hectare_oracle::assert_clean(&mount.image).unwrap();
    }
}

/// They were mounted for writing, and no file could be made on them.
#[test]
fn regression_volumes_without_extents_are_written() {
    const NAME: &str = "unwritable::regression_volumes_without_extents_are_written";
    for kind in ["ext2", "ext3"] {
        let image = hectare_oracle::scratch::fresh("no-extents");
        let made = mke2fs(&["-t", kind], &image, "16M").and_then(|()| {
            let kernel = KernelMount::new(&image, "")?;
            fs::write(kernel.path().join("f"), SMALL).unwrap();
            kernel.unmount();
            Ok(())
        });
        if let Err(reason) = made {
            skip!(NAME, reason);
        }
        let mut mount = match Mount::of(&image, "") {
            Ok(mount) => mount,
            Err(reason) => skip!(NAME, reason),
        };
        fs::write(mount.path("new"), [b'n'; 90_000]).unwrap();
        fs::write(mount.path("f"), "more").unwrap();
        mount.detach();
        hectare_oracle::assert_clean(&mount.image).unwrap();
        let kernel = match KernelMount::read_only(&mount.image, "") {
            Ok(kernel) => kernel,
            Err(reason) => skip!(NAME, reason),
        };
        assert_eq!(fs::read(kernel.path().join("f")).unwrap(), b"more");
        assert!(fs::read(kernel.path().join("new")).unwrap() == [b'n'; 90_000], "{kind}");
    }
}

/// A file opened without a request is written through, so that every write has its answer.
#[test]
fn files_that_are_opened_unasked_are_written_through() {
    const NAME: &str = "unwritable::files_that_are_opened_unasked_are_written_through";
    let image: PathBuf = hectare_oracle::scratch::fresh("unasked");
    if let Err(reason) = made(&image) {
        skip_part!(NAME, reason);
        return;
    }
    let mount = match Mount::of(&image, "noopen") {
        Ok(mount) => mount,
        Err(reason) => skip!(NAME, reason),
    };
    let mut refused = 0;
    for (name, _) in NAMES {
        let found = fs::File::options().write(true).open(mount.path(name));
        refused +=
            usize::from(found.and_then(|mut file| std::io::Write::write_all(&mut file, b"x")).is_err());
    }
    assert_eq!(refused, NAMES.len());
}
