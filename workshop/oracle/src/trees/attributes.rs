//! Owners, modes, times, ACLs and other attributes.
//!
//! Binary forms are those of the kernel's interface: `posix_acl_xattr.h` (version 2) for ACLs, `capability.h`
//! (revision 2) for capabilities.

use super::Random;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, lchown};
use std::path::Path;

fn set(path: &Path, name: &str, value: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::lsetxattr(path, name, value, XattrFlags::empty())?)
}

/// The value of `system.posix_acl_access` or `_default`: tag, permission bits, id for each entry.
#[must_use]
pub fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

/// The value of `security.capability` with this many permitted capabilities, effective.
#[must_use]
pub fn capabilities(permitted: u32) -> Vec<u8> {
    [0x0200_0001, permitted, 0, 0, 0].iter().flat_map(|word: &u32| word.to_le_bytes()).collect()
}

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const NO_ID: u32 = u32::MAX;

fn sample_acl(named: u32) -> Vec<u8> {
    let mut entries = vec![(USER_OBJ, 6, NO_ID)];
    entries.extend((0..named).map(|i| (USER, 5, 1000 + i)));
    entries.extend([(GROUP_OBJ, 4, NO_ID), (GROUP, 7, 70_000), (MASK, 7, NO_ID), (OTHER, 0, NO_ID)]);
    acl(&entries)
}

pub(super) fn unprivileged(folder: &Path, random: &mut Random) -> io::Result<()> {
    // A value may fill at most one block: 900 bytes fit the smallest.
    for size in [0, 1, 3, 4, 5, 40, 100, 300, 900] {
        let file = folder.join(format!("value-{size}"));
        fs::write(&file, "content")?;
        set(&file, "user.value", &random.bytes(size))?;
    }
    for count in [2, 5, 12] {
        let file = folder.join(format!("count-{count}"));
        fs::write(&file, "content")?;
        for i in (0..count).rev() {
            set(&file, &format!("user.name-{i}"), format!("value {i}").as_bytes())?;
        }
    }
    for i in 0..6 {
        let file = folder.join(format!("same-{i}")); // equal attributes may share one block
        fs::write(&file, "")?;
        set(&file, "user.shared", &[7; 500])?;
    }
    let long = folder.join("long-name");
    fs::write(&long, "")?;
    set(&long, &format!("user.{}", "n".repeat(250)), b"long")?;
    acls(folder)
}

fn acls(folder: &Path) -> io::Result<()> {
    for named in [1, 3, 20] {
        let file = folder.join(format!("acl-{named}"));
        fs::write(&file, "guarded")?;
        set(&file, "system.posix_acl_access", &sample_acl(named))?;
        let dir = folder.join(format!("acl-dir-{named}"));
        fs::create_dir(&dir)?;
        set(&dir, "system.posix_acl_default", &sample_acl(named))?;
        fs::write(dir.join("heir"), "")?; // inherits
        set(&dir, "user.note", b"directory")?;
    }
    Ok(())
}

pub(super) fn privileged(folder: &Path, random: &mut Random) -> io::Result<()> {
    for (uid, gid) in [(0, 0), (1000, 1000), (65_534, 65_535), (65_536, 70_000), (u32::MAX - 1, 12)] {
        let file = folder.join(format!("owned-{uid}-{gid}"));
        fs::write(&file, "owned")?;
        lchown(&file, Some(uid), Some(gid))?;
    }
    std::os::unix::fs::symlink("x", folder.join("owned-link"))?;
    lchown(folder.join("owned-link"), Some(77), Some(78))?;
    for bit in [0, 10, 21] {
        let file = folder.join(format!("capable-{bit}"));
        fs::write(&file, "#!/bin/true\n")?;
        set(&file, "security.capability", &capabilities(1 << bit))?;
        set(&file, "trusted.note", &random.bytes(30))?;
    }
    let all = folder.join("everything");
    fs::write(&all, "x")?;
    lchown(&all, Some(5), Some(6))?; // before capabilities, which a change of owner drops
    set(&all, "user.a", b"1")?;
    set(&all, "trusted.b", b"2")?;
    set(&all, "security.capability", &capabilities(1))?;
    set(&all, "system.posix_acl_access", &sample_acl(2))
}

pub(super) fn modes(folder: &Path) -> io::Result<()> {
    // Without these, only root could read it back.
    let (file_bits, dir_bits) = if crate::is_root() { (0, 0) } else { (0o400, 0o700) };
    for mode in [0o000, 0o001, 0o644, 0o755, 0o777, 0o1777, 0o2755, 0o4755, 0o6711, 0o7777, 0o400] {
        let file = folder.join(format!("file-{mode:04o}"));
        fs::write(&file, "mode")?;
        fs::set_permissions(&file, Permissions::from_mode(mode | file_bits))?;
        let dir = folder.join(format!("dir-{mode:04o}"));
        fs::create_dir(&dir)?;
        fs::set_permissions(&dir, Permissions::from_mode(mode | dir_bits))?;
    }
    Ok(())
}

fn set_time(path: &Path, atime: (i64, u32), mtime: (i64, u32)) -> io::Result<()> {
    let time = |(secs, nanos): (i64, u32)| Timespec { tv_sec: secs, tv_nsec: nanos.into() };
    let times = Timestamps { last_access: time(atime), last_modification: time(mtime) };
    Ok(rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Times at every edge of ext4's 34-bit seconds: the range is -2^31 to 2^34 - 2^31 - 1. The kernel's ext4
/// stores no nanoseconds in its first and last second, so a value to be read back must have none there.
pub(super) fn times(folder: &Path) -> io::Result<()> {
    let edges = [-(1 << 31), -1, 0, 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 33) + 5];
    let last = (1 << 34) - (1 << 31) - 1;
    for (i, secs) in edges.into_iter().chain([last]).enumerate() {
        let at_the_end = secs == -(1 << 31) || secs == last;
        for nanos in [0, 1, 123_456_789, 999_999_999].into_iter().filter(|nanos| *nanos == 0 || !at_the_end) {
            let file = folder.join(format!("time-{i}-{nanos}"));
            fs::write(&file, "time")?;
            set_time(&file, (secs, nanos), (secs, nanos))?;
        }
    }
    set_time(folder, (1_000_000_000, 5), (1_000_000_000, 6))
}

/// Sets the times of a directory and everything below it, to the years 2001 to 2033.
pub(super) fn stamp(folder: &Path, random: &mut Random) -> io::Result<()> {
    let mut names: Vec<_> = fs::read_dir(folder)?.collect::<io::Result<_>>()?;
    names.sort_by_key(fs::DirEntry::file_name);
    for entry in names {
        if entry.file_type()?.is_dir() {
            stamp(&entry.path(), random)?;
        } else {
            stamp_one(&entry.path(), random)?;
        }
    }
    stamp_one(folder, random)
}

pub(super) fn stamp_one(path: &Path, random: &mut Random) -> io::Result<()> {
    let mut time =
        || (1_000_000_000 + i64::from(random.below32(1_000_000_000)), random.below32(1_000_000_000));
    let (atime, mtime) = (time(), time());
    set_time(path, atime, mtime)
}
