//! Permissions, access control lists and attribute namespaces against the kernel.

use crate::common::{close_clean, entries_of, format_bytes, in_memory, open_image, open_read_only, what};
use hectare_engine::{Access, Caller, Capabilities, Changes, Creation, Error, Kind, NewNode, XattrHow};
use hectare_ext4::acl::{Acl, Entry, Tag};
use hectare_oracle::compare::Times;
use hectare_oracle::{Combo, KernelMount, What, assert_clean, assert_same, skip, walk};
use hectare_units::InodeNr;
use rustix::fs::{CWD, FileType, Gid, Mode, Uid, XattrFlags};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// A sequence of numbers that look arbitrary.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn perm(&mut self) -> u8 {
        self.roll(8) as u8
    }

    fn acl(&mut self) -> Acl {
        let mut entries = vec![Entry { tag: Tag::UserObj, perm: self.perm() }];
        let users: Vec<u32> = (1001..1004).filter(|_| self.roll(2) == 0).collect();
        entries.extend(users.into_iter().map(|uid| Entry { tag: Tag::User(uid), perm: 0 }));
        entries.push(Entry { tag: Tag::GroupObj, perm: self.perm() });
        let groups: Vec<u32> = (2001..2004).filter(|_| self.roll(2) == 0).collect();
        entries.extend(groups.into_iter().map(|gid| Entry { tag: Tag::Group(gid), perm: 0 }));
        for entry in &mut entries {
            if matches!(entry.tag, Tag::User(_) | Tag::Group(_)) {
                entry.perm = self.perm();
            }
        }
        if entries.len() > 2 || self.roll(2) == 0 {
            entries.push(Entry { tag: Tag::Mask, perm: self.perm() });
        }
        entries.push(Entry { tag: Tag::Other, perm: self.perm() });
        Acl::new(entries).unwrap()
    }
}

/// The umask of this process.
fn umask() -> u16 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("Umask:")).unwrap();
    u16::from_str_radix(line["Umask:".len()..].trim(), 8).unwrap()
}

fn kernel_make(path: &Path, kind: FileType, mode: u32) {
    let mode = Mode::from_raw_mode(mode);
    match kind {
        FileType::Directory => rustix::fs::mkdir(path, mode).unwrap(),
        kind => rustix::fs::mknodat(CWD, path, kind, mode, 0).unwrap(),
    }
}

fn kernel_acl(path: &Path, name: &str, acl: &Acl) {
    rustix::fs::setxattr(path, name, &acl.to_xattr(), XattrFlags::empty()).unwrap();
}

#[test]
fn what_is_allowed_is_what_the_kernel_allows() {
    const CALLERS: [(u32, u32, &[u32]); 6] = [
        (0, 0, &[]),
        (1001, 2001, &[]),
        (1002, 2009, &[2002, 2003]),
        (1003, 2003, &[]),
        (1004, 2001, &[2004]),
        (1005, 2009, &[]),
    ];
    let image = hectare_oracle::scratch::fresh("permissions");
    if let Err(reason) = hectare_oracle::mke2fs(&["-t", "ext4"], &image, "16M") {
        skip!("permissions::what_is_allowed", reason);
    }
    let mount = match KernelMount::new(&image, "") {
        Ok(mount) => mount,
        Err(reason) => skip!("permissions::what_is_allowed", reason),
    };
    let mut dice = Dice(7);
    let count = 120;
    for n in 0..count {
        let path = mount.path().join(format!("n{n}"));
        let kind = if dice.roll(3) == 0 { FileType::Directory } else { FileType::RegularFile };
        kernel_make(&path, kind, 0o644);
        let (uid, gid) = (1001 + dice.roll(4) as u32, 2001 + dice.roll(4) as u32);
        rustix::fs::chown(&path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(dice.roll(0o1000) as u32)).unwrap();
        if dice.roll(3) > 0 {
            kernel_acl(&path, ACCESS, &dice.acl());
        }
    }
    // A line for each caller: for each node whether it may be read, written, executed.
    let script = format!(
        "n=0; while [ $n -lt {count} ]; do \
         for m in r w x; do [ -$m n$n ] && printf 1 || printf 0; done; n=$((n+1)); done"
    );
    let asked: Vec<String> = CALLERS
        .iter()
        .map(|(uid, gid, groups)| {
            let groups: Vec<String> = groups.iter().map(u32::to_string).collect();
            let groups = if groups.is_empty() {
                "--clear-groups".into()
            } else {
                format!("--groups={}", groups.join(","))
            };
            let output = Command::new("setpriv")
                .args([format!("--reuid={uid}"), format!("--regid={gid}"), groups])
                .args(["sh", "-c", &script])
                .current_dir(mount.path())
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        })
        .collect();
    mount.unmount();
    let volume = open_image(&image);
    let (mut allowed, mut refused) = (0, 0);
    for ((uid, gid, groups), theirs) in CALLERS.iter().zip(asked) {
        let caller = Caller::user(*uid, *gid, groups);
        let mut ours = String::new();
        for n in 0..count {
            let nr = volume.resolve(format!("n{n}"), false).unwrap();
            for access in [Access::READ, Access::WRITE, Access::EXECUTE] {
                match volume.permission(nr, &caller, access) {
                    Ok(()) => {
                        allowed += 1;
                        ours.push('1');
                    }
                    Err(Error::PermissionDenied) => {
                        refused += 1;
                        ours.push('0');
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        }
        assert_eq!(ours, theirs, "uid {uid}, gid {gid}");
    }
    assert!(allowed > 300 && refused > 300, "{allowed}, {refused}");
    volume.close().unwrap();
    drop(volume);
    assert_clean(&image).unwrap();
}

#[test]
fn access_control_lists_are_inherited_and_follow_the_mode_as_in_the_kernel() {
    let combo = Combo::named("ext4");
    let images = ["kernel", "engine"].map(|who| hectare_oracle::scratch::fresh(&format!("acls-{who}")));
    if let Err(reason) = hectare_oracle::mke2fs(&["-t", "ext4"], &images[0], "32M") {
        skip!("permissions::access_control_lists", reason);
    }
    fs::copy(&images[0], &images[1]).unwrap();
    let mount = match KernelMount::new(&images[0], "") {
        Ok(mount) => mount,
        Err(reason) => skip!("permissions::access_control_lists", reason),
    };
    let volume = open_image(&images[1]);
    let mut dice = Dice(11);
    for n in 0..40 {
        let (folder, name) = (mount.path().join(format!("d{n}")), format!("d{n}"));
        let mode = dice.roll(0o10000) as u32 & 0o7777;
        kernel_make(&folder, FileType::Directory, 0o755);
        let dir = volume.create_dir(&name, Creation::default()).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
        volume.change(dir, &Changes { permissions: Some(mode as u16), ..Changes::default() }).unwrap();
        for which in [DEFAULT, ACCESS] {
            if dice.roll(3) > 0 {
                let acl = dice.acl();
                kernel_acl(&folder, which, &acl);
                volume.set_xattr(dir, which, &acl.to_xattr(), XattrHow::Either).unwrap();
            }
        }
        for (m, kind) in [FileType::RegularFile, FileType::Directory, FileType::Fifo].into_iter().enumerate()
        {
            let (path, child) = (folder.join(format!("c{m}")), format!("c{m}"));
            let mode = dice.roll(0o1000) as u32;
            kernel_make(&path, kind, mode);
            let node = match kind {
                FileType::Directory => NewNode::Directory,
                FileType::Fifo => NewNode::Fifo,
                _ => NewNode::File,
            };
            let creation = Creation { permissions: mode as u16, umask: umask(), ..Creation::default() };
            let nr = volume.create(dir, child.as_bytes(), node, creation).unwrap();
            if dice.roll(2) == 0 {
                let mode = dice.roll(0o1000) as u32;
                fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
                volume.change(nr, &Changes { permissions: Some(mode as u16), ..Changes::default() }).unwrap();
            }
            if dice.roll(3) == 0 {
                let acl = dice.acl();
                kernel_acl(&path, ACCESS, &acl);
                volume.set_xattr(nr, ACCESS, &acl.to_xattr(), XattrHow::Either).unwrap();
            }
        }
        std::os::unix::fs::symlink("target", folder.join("link")).unwrap();
        volume.symlink("target", format!("{name}/link"), Creation::default()).unwrap();
    }
    let theirs = walk(mount.path());
    mount.unmount();
    volume.close().unwrap();
    drop(volume);
    assert_clean(&images[1]).unwrap();
    let compared = What { mtimes: Times::Ignored, ..what(&combo) };
    assert_same(&entries_of(&open_read_only(&images[1])), &theirs, compared);
    let mount = KernelMount::read_only(&images[1], "").unwrap();
    assert_same(&walk(mount.path()), &theirs, compared);
}

/// The kernel's results for setting, reading, listing and removing an attribute.
fn by_kernel(path: &Path, name: &str) -> [i32; 4] {
    let errno = |result: Result<(), rustix::io::Errno>| result.map_or_else(|e| e.raw_os_error(), |()| 0);
    let mut buffer = [0; 256];
    [
        errno(rustix::fs::lsetxattr(path, name, b"v", XattrFlags::empty())),
        errno(rustix::fs::lgetxattr(path, name, &mut buffer).map(drop)),
        rustix::fs::llistxattr(path, &mut buffer).map_or(-1, |len| i32::from(contains(&buffer[..len], name))),
        errno(rustix::fs::lremovexattr(path, name)),
    ]
}

fn contains(list: &[u8], name: &str) -> bool {
    list.split(|byte| *byte == 0).any(|found| found == name.as_bytes())
}

#[test]
fn attributes_are_whose_the_kernel_says() {
    let bytes = match format_bytes(&["-t", "ext4"], "8M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("permissions::attributes", reason),
    };
    let image = hectare_oracle::scratch::fresh("namespaces");
    fs::write(&image, &bytes).unwrap();
    let mount = match KernelMount::new(&image, "") {
        Ok(mount) => mount,
        Err(reason) => skip!("permissions::attributes", reason),
    };
    let held = in_memory(&bytes);
    let v = &held.volume;
    let names =
        ["user.a", "trusted.a", "security.a", "system.a", "other.a", "user.", "system.posix_acl_access"];
    let nodes = [
        ("file", FileType::RegularFile, NewNode::File),
        ("dir", FileType::Directory, NewNode::Directory),
        ("fifo", FileType::Fifo, NewNode::Fifo),
        ("link", FileType::Symlink, NewNode::Symlink(b"to")),
    ];
    for (name, kind, node) in nodes {
        let path = mount.path().join(name);
        match kind {
            FileType::Symlink => std::os::unix::fs::symlink("to", &path).unwrap(),
            kind => kernel_make(&path, kind, 0o644),
        }
        let nr = v.make(name, node, Creation::default()).unwrap();
        for attribute in names {
            // For a name that is invalid, and not for this node, the kernel reports the latter.
            if attribute == "user." && !matches!(kind, FileType::RegularFile | FileType::Directory) {
                continue;
            }
            let errno = |result: Result<(), Error>| result.map_or_else(|e| e.errno(), |()| 0);
            let root = Caller::ROOT;
            let set = errno(v.set_xattr_as(nr, attribute, b"v", XattrHow::Either, &root));
            let got = errno(v.get_xattr_as(nr, attribute, &root).map(drop));
            let listed = v.list_xattrs_as(nr, &root).unwrap().iter().any(|name| name == attribute.as_bytes());
            let removed = errno(v.remove_xattr_as(nr, attribute, &root));
            let theirs = by_kernel(&path, attribute);
            assert_eq!([set, got, i32::from(listed), removed], theirs, "{name}, {attribute}");
        }
    }
    mount.unmount();
    close_clean(&held);
}

#[test]
fn attributes_of_others_are_hidden_or_refused() {
    let bytes = match format_bytes(&["-t", "ext4"], "8M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("permissions::attributes_of_others", reason),
    };
    let held = in_memory(&bytes);
    let v = &held.volume;
    let file =
        v.make("file", NewNode::File, Creation { permissions: 0o640, umask: 0, uid: 7, gid: 9 }).unwrap();
    for name in ["user.a", "trusted.a", "security.a"] {
        v.set_xattr(file, name, b"v", XattrHow::Either).unwrap();
    }
    let callers = [Caller::user(7, 7, &[]), Caller::user(8, 9, &[]), Caller::user(8, 8, &[])];
    let errno = |result: Result<(), Error>| result.map_or_else(|e| e.errno(), |()| 0);
    let table: [(&str, [i32; 3], [i32; 3]); 4] = [
        ("user.a", [0, 0, 13], [0, 13, 13]),
        ("trusted.a", [61, 61, 61], [1, 1, 1]),
        ("security.a", [0, 0, 0], [1, 1, 1]),
        (ACCESS, [61, 61, 61], [0, 1, 1]),
    ];
    let plain = Acl::from_mode(0o640).to_xattr();
    for (name, reads, writes) in table {
        let value: &[u8] = if name == ACCESS { &plain } else { b"v" };
        let read = callers.map(|caller| errno(v.get_xattr_as(file, name, &caller).map(drop)));
        let set = callers.map(|caller| errno(v.set_xattr_as(file, name, value, XattrHow::Either, &caller)));
        assert_eq!((read, set), (reads, writes), "{name}");
    }
    assert_eq!(v.list_xattrs_as(file, &callers[0]).unwrap().len(), 2);
    assert_eq!(v.list_xattrs_as(file, &Caller::ROOT).unwrap().len(), 3);
    let sticky = v
        .make("sticky", NewNode::Directory, Creation { permissions: 0o1777, umask: 0, uid: 7, gid: 7 })
        .unwrap();
    assert_eq!(errno(v.set_xattr_as(sticky, "user.a", b"v", XattrHow::Either, &callers[1])), 1);
    assert_eq!(errno(v.set_xattr_as(sticky, "user.a", b"v", XattrHow::Either, &callers[0])), 0);
    close_clean(&held);
}

#[test]
fn writing_and_giving_away_take_privileges_as_in_the_kernel() {
    let image = hectare_oracle::scratch::fresh("privileges");
    if let Err(reason) = hectare_oracle::mke2fs(&["-t", "ext4"], &image, "16M") {
        skip!("permissions::writing", reason);
    }
    let mount = match KernelMount::new(&image, "") {
        Ok(mount) => mount,
        Err(reason) => skip!("permissions::writing", reason),
    };
    // Version 2 of a file capability: CAP_NET_RAW, permitted and effective.
    let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let modes = [0o6777, 0o6767, 0o4755, 0o2755, 0o2745, 0o2747, 0o644];
    let mut made = Vec::new();
    for mode in modes {
        for deed in ["write", "truncate", "chown", "chgrp"] {
            for (uid, gid) in [(0, 0), (1001, 2001), (1001, 2002)] {
                made.push((format!("{deed}-{mode:o}-{uid}-{gid}"), mode, deed, uid, gid));
            }
        }
    }
    for (name, mode, ..) in &made {
        let path = mount.path().join(name);
        fs::write(&path, b"content").unwrap();
        rustix::fs::chown(&path, Some(Uid::from_raw(1001)), Some(Gid::from_raw(2001))).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(*mode)).unwrap();
        rustix::fs::setxattr(&path, "security.capability", &capability, XattrFlags::empty()).unwrap();
    }
    let ours = hectare_oracle::scratch::fresh("privileges-engine");
    mount.unmount();
    fs::copy(&image, &ours).unwrap();
    let mount = KernelMount::new(&image, "").unwrap();
    let volume = open_image(&ours);
    for (name, _, deed, uid, gid) in &made {
        let script = match *deed {
            "write" => format!("printf x 1<>{name}"),
            "truncate" => format!("truncate -s 3 {name}"),
            "chown" => format!("chown 1001 {name}"),
            _ => format!("chgrp {gid} {name}"),
        };
        let output = Command::new("setpriv")
            .args([format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".into()])
            .args(["sh", "-c", &script])
            .current_dir(mount.path())
            .output()
            .unwrap();
        let caller = Caller::user(*uid, *gid, &[]);
        let nr = volume.resolve(name, false).unwrap();
        let file = volume.open_inode(nr).unwrap();
        let result = match *deed {
            // The shell could not open it.
            "write" | "truncate" if volume.permission(nr, &caller, Access::WRITE).is_err() => {
                Err(Error::PermissionDenied)
            }
            "write" => volume.drop_privileges(nr, &caller).and_then(|_| file.write_all_at(0, b"x")),
            "truncate" => volume.change_as(nr, &Changes { size: Some(3), ..Changes::default() }, &caller),
            "chown" => volume.change_as(nr, &Changes { uid: Some(1001), ..Changes::default() }, &caller),
            _ => volume.change_as(nr, &Changes { gid: Some(*gid), ..Changes::default() }, &caller),
        };
        assert_eq!(result.is_ok(), output.status.success(), "{name}: {result:?}, {output:?}");
    }
    let theirs = walk(mount.path());
    mount.unmount();
    volume.close().unwrap();
    drop(volume);
    assert_clean(&ours).unwrap();
    let compared = What { mtimes: Times::Ignored, ..what(&Combo::named("ext4")) };
    assert_same(&entries_of(&open_read_only(&ours)), &theirs, compared);
}

#[test]
fn changes_are_for_owners() {
    let bytes = match format_bytes(&["-t", "ext4"], "8M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("permissions::changes", reason),
    };
    let held = in_memory(&bytes);
    let v = &held.volume;
    let file =
        v.make("file", NewNode::File, Creation { permissions: 0o666, umask: 0, uid: 7, gid: 9 }).unwrap();
    let none = Changes::default();
    let refused = |changes: Changes, caller: Caller<'_>| {
        let result = v.change_as(file, &changes, &caller);
        assert!(matches!(result, Err(Error::NotPermitted(_))), "{changes:?}, {caller:?}: {result:?}");
    };
    let (owner, other) = (Caller::user(7, 9, &[10]), Caller::user(8, 9, &[10]));
    refused(Changes { permissions: Some(0o600), ..none }, other);
    refused(Changes { uid: Some(8), ..none }, owner);
    refused(Changes { gid: Some(11), ..none }, owner);
    refused(Changes { gid: Some(10), ..none }, other);
    v.change_as(file, &Changes { gid: Some(10), ..none }, &owner).unwrap();
    // Only members of the group can pass it on.
    v.change_as(file, &Changes { permissions: Some(0o2770), ..none }, &Caller::user(7, 9, &[])).unwrap();
    assert_eq!(v.stat(file).unwrap().permissions, 0o770);
    let giver = Caller { capabilities: Capabilities::CHOWN, ..other };
    v.change_as(file, &Changes { uid: Some(8), ..none }, &giver).unwrap();
    let found = v.stat(file).unwrap();
    assert_eq!((found.kind, found.uid, found.gid), (Kind::File, 8, 10));
    assert!(v.permission(InodeNr::new(12_345_678), &owner, Access::READ).is_err());
    close_clean(&held);
}
