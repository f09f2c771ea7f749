//! Attribute values in inodes of their own (`ea_inode`): made, shared, replaced and freed by the kernel and
//! by us in turn, and what is wrong with them on broken volumes.

use crate::common::{
    InMemory, close_clean, format_bytes, in_memory, in_memory_with, open_image, pattern, save,
};
use hectare_engine::{Caller, Changes, Creation, Error, Metadata, NewNode, OpenOptions, RenameMode, Volume};
use hectare_engine::{Capabilities, XattrHow};
use hectare_oracle::{KernelMount, Skip, assert_clean, debugfs_write, skip, xattr};
use hectare_units::InodeNr;
use std::fs;
use std::path::{Path, PathBuf};

const ROOT: InodeNr = InodeNr::ROOT;

/// Volumes that differ in where attributes and values lie: room in the inode, blocks, clusters, checksums.
pub(crate) const VOLUMES: [&[&str]; 7] = [
    &["-t", "ext4", "-b", "4096", "-O", "ea_inode"],
    &["-t", "ext4", "-b", "1024", "-O", "ea_inode"],
    &["-t", "ext4", "-b", "4096", "-I", "128", "-O", "ea_inode,metadata_csum_seed"],
    &["-t", "ext4", "-b", "1024", "-I", "128", "-O", "ea_inode,^metadata_csum"],
    &["-t", "ext4", "-b", "2048", "-I", "512", "-O", "ea_inode,orphan_file"],
    &["-t", "ext4", "-b", "1024", "-O", "ea_inode,bigalloc,^resize_inode", "-C", "8192", "-N", "2048"],
    &["-t", "ext4", "-b", "4096", "-O", "ea_inode,^has_journal"],
];

/// Fails unless a volume that the kernel has changed is clean, but for counts of users that are too high.
///
/// The kernel (6.18) counts a value once too often where an inode without attributes gets a block that others
/// have already; e2fsck finds that, and corrects it. Once the last user is gone, such a value stays for good:
/// e2fsck finds an inode that nothing names.
#[track_caller]
pub(crate) fn settle(image: &Path) {
    let report = hectare_oracle::e2fsck(image).unwrap();
    if report.clean {
        return;
    }
    let counts = |line: &String| line.contains("Extended attribute inode") && line.contains("ref count");
    let left = |line: &String| line == "Connect to /lost+found? no";
    assert!(report.questions.iter().all(|line| counts(line) || left(line)), "{}", report.output);
    for nr in report.output.lines().filter_map(|line| line.strip_prefix("Unattached inode ")) {
        assert!(is_value(image, nr), "{}", report.output);
    }
    let _ = hectare_oracle::fsck::e2fsck_with(image, &["-fy"]).unwrap();
    assert_clean(image).unwrap();
}

/// Whether an inode has the flag of one that holds a value.
fn is_value(image: &Path, nr: &str) -> bool {
    let said = hectare_oracle::debugfs(image, &[&format!("stat <{nr}>")]).unwrap();
    let flags = said.split("Flags: 0x").nth(1).and_then(|rest| rest.split_whitespace().next());
    flags.is_some_and(|flags| u32::from_str_radix(flags, 16).unwrap() & 0x20_0000 != 0)
}

/// An empty volume in a file.
pub(crate) fn image(folder: &Path, args: &[&str]) -> Result<PathBuf, Skip> {
    let image = folder.join("image");
    let _ = fs::remove_file(&image);
    hectare_oracle::mke2fs(args, &image, "32M")?;
    Ok(image)
}

fn set(volume: &Volume, path: &str, name: &str, value: &[u8]) {
    let nr = volume.resolve(path, false).unwrap();
    volume.set_xattr(nr, name, value, XattrHow::Either).unwrap();
}

fn get(volume: &Volume, path: &str, name: &str) -> Vec<u8> {
    volume.get_xattr(volume.resolve(path, false).unwrap(), name).unwrap()
}

fn make(volume: &Volume, path: &str) {
    volume.write_file(path, path.as_bytes(), Creation::default()).unwrap();
}

/// Free blocks and inodes once nothing waits for a commit.
fn free(volume: &Volume) -> (u64, u32) {
    volume.sync().unwrap();
    volume.sync().unwrap();
    let statfs = volume.statfs().unwrap();
    (statfs.free.get(), statfs.free_inodes)
}

#[test]
fn the_kernels_values_are_read_changed_shared_and_freed() {
    for args in VOLUMES {
        let folder = tempfile::tempdir().unwrap();
        let name = format!("value_inodes::the_kernels, {args:?}");
        let image = image(folder.path(), args).unwrap_or_else(|reason| panic!("{name}: {reason}"));
        let (big, other) = (pattern(1, 0, 60_000), pattern(2, 0, 5_000));
        let mount = match KernelMount::new(&image, "") {
            Ok(mount) => mount,
            Err(reason) => skip!(&name, reason),
        };
        for file in ["a", "b", "c", "d"] {
            fs::write(mount.path().join(file), file).unwrap();
            xattr::set(&mount.path().join(file), "user.big", &big).unwrap();
        }
        xattr::set(&mount.path().join("b"), "user.other", &other).unwrap();
        mount.unmount();
        settle(&image);

        let volume = open_image(&image);
        assert!(get(&volume, "a", "user.big") == big && get(&volume, "b", "user.other") == other, "{name}");
        set(&volume, "a", "user.big", b"small now");
        set(&volume, "b", "user.big", &other); // the value that user.other has
        volume.remove_file("c").unwrap();
        let d = volume.resolve("d", false).unwrap();
        volume.remove_xattr(d, "user.big").unwrap();
        make(&volume, "e");
        set(&volume, "e", "user.new", &big);
        volume.close().unwrap();
        drop(volume);
        assert_clean(&image).unwrap();

        let mount = KernelMount::new(&image, "").unwrap();
        let read = |file: &str, name: &str| xattr::get(&mount.path().join(file), name).unwrap();
        assert_eq!(read("a", "user.big").unwrap(), b"small now", "{name}");
        assert!(
            read("b", "user.big").unwrap() == other && read("b", "user.other").unwrap() == other,
            "{name}"
        );
        assert_eq!(read("d", "user.big"), None);
        assert!(read("e", "user.new").unwrap() == big, "{name}");
        // The kernel goes on with what we made.
        xattr::set(&mount.path().join("a"), "user.too", &big).unwrap();
        xattr::remove(&mount.path().join("b"), "user.big").unwrap();
        fs::remove_file(mount.path().join("e")).unwrap();
        mount.unmount();
        settle(&image);
    }
}

#[test]
fn equal_values_lie_in_one_inode_and_all_of_it_is_freed_with_the_last_user() {
    for args in VOLUMES {
        let bytes = match format_bytes(args, "32M") {
            Ok(bytes) => bytes,
            Err(reason) => skip!("value_inodes::equal_values", reason),
        };
        let held = in_memory(&bytes);
        let volume = &held.volume;
        let value = pattern(3, 0, 30_000);
        for file in ["a", "b", "c"] {
            make(volume, file);
        }
        let before = free(volume);
        for file in ["a", "b", "c"] {
            set(volume, file, "user.value", &value);
        }
        set(volume, "a", "user.again", &value);
        assert_eq!(free(volume).1, before.1 - 1, "{args:?}: one inode holds them all");
        // What counts for its owner is seen there.
        let sectors = volume.metadata("b").unwrap().sectors;
        assert!(sectors >= 30_000 / 512, "{args:?}: {sectors}");
        volume.remove_file("a").unwrap();
        set(volume, "b", "user.value", &pattern(4, 0, 30_000));
        assert_eq!(free(volume).1, before.1 - 2 + 1, "{args:?}: two values, one file less");
        let nr = volume.resolve("c", false).unwrap();
        volume.remove_xattr(nr, "user.value").unwrap();
        set(volume, "b", "user.value", b"");
        let after = free(volume);
        assert_eq!(after.1, before.1 + 1, "{args:?}");
        close_clean(&held);
    }
}

/// Inodes that hold values, on a volume of files made here.
fn holders(before: (u64, u32), volume: &Volume) -> u32 {
    before.1 - free(volume).1
}

#[test]
fn values_go_out_only_for_lack_of_room() {
    let Ok(bytes) = format_bytes(VOLUMES[0], "32M") else {
        skip!("value_inodes::values_go_out", "mke2fs is absent")
    };
    let held = in_memory(&bytes);
    let volume = &held.volume;
    make(volume, "a");
    let before = free(volume);
    set(volume, "a", "user.long", &pattern(1, 0, 3000));
    assert_eq!(holders(before, volume), 0);
    set(volume, "a", "user.more", &pattern(2, 0, 2000));
    assert_eq!(holders(before, volume), 1, "the new one finds no room");
    set(volume, "a", "user.more", &pattern(2, 0, 100));
    assert_eq!(holders(before, volume), 0, "and comes back");
    set(volume, "a", "user.largest", &pattern(2, 0, 65_536));
    let nr = volume.resolve("a", false).unwrap();
    let too_long = volume.set_xattr(nr, "user.longer", &[1; 65_537], XattrHow::Either);
    assert!(matches!(too_long, Err(Error::AttributeTooLarge)), "{too_long:?}");
    assert_eq!(volume.list_xattrs(nr).unwrap().len(), 3);
    close_clean(&held);
}

#[test]
fn files_with_many_values_are_removed_replaced_and_cleaned_up_after_a_crash() {
    for args in [VOLUMES[0], VOLUMES[1], VOLUMES[4], VOLUMES[6]] {
        let bytes = match format_bytes(args, "32M") {
            Ok(bytes) => bytes,
            Err(reason) => skip!("value_inodes::files_with_many_values", reason),
        };
        let held = in_memory(&bytes);
        let volume = &held.volume;
        let before = free(volume);
        let fill = |file: &str, seed: u64| {
            make(volume, file);
            for n in 0..20 {
                set(volume, file, &format!("user.v{n}"), &pattern(seed + n, 0, 5000));
            }
        };
        fill("removed", 100);
        fill("replaced", 200);
        make(volume, "new");
        volume.rename_path("new", "replaced", RenameMode::Replace).unwrap();
        volume.remove_file("removed").unwrap();
        volume.remove_file("replaced").unwrap();
        assert_eq!(free(volume), before, "{args:?}");
        // One that is open when its last name goes keeps its values.
        fill("open", 300);
        let file = volume.open_file("open").unwrap();
        volume.remove_file("open").unwrap();
        assert!(volume.get_xattr(file.inode(), "user.v7").unwrap() == pattern(307, 0, 5000));
        volume.sync().unwrap();
        // A crash now leaves an orphan with values.
        if !args.iter().any(|arg| arg.contains("^has_journal")) {
            let crashed = in_memory_with(&held.device.to_vec(), OpenOptions::default()).unwrap();
            assert_eq!(crashed.volume.cleaned().freed, 1);
            assert_eq!(free(&crashed.volume), before, "{args:?}");
            close_clean(&crashed);
        }
        drop(file);
        assert_eq!(free(volume), before, "{args:?}");
        close_clean(&held);
    }
}

#[test]
fn a_block_of_entries_that_files_share_counts_once() {
    // Without room in the inode, equal attributes share a block, whose entries name the values' inodes.
    let args = ["-t", "ext4", "-b", "1024", "-I", "128", "-O", "ea_inode"];
    for way in 0..5 {
        let folder = tempfile::tempdir().unwrap();
        let name = format!("value_inodes::a_block_of_entries, {way}");
        let image = image(folder.path(), &args).unwrap_or_else(|reason| panic!("{reason}"));
        let mount = match KernelMount::new(&image, "") {
            Ok(mount) => mount,
            Err(reason) => skip!(&name, reason),
        };
        let values: Vec<Vec<u8>> = (0..3).map(|n| pattern(n, 0, 4000)).collect();
        for file in ["a", "b", "c"] {
            fs::write(mount.path().join(file), file).unwrap();
            for (n, value) in values.iter().enumerate() {
                xattr::set(&mount.path().join(file), &format!("user.v{n}"), value).unwrap();
            }
        }
        mount.unmount();
        settle(&image);
        let volume = open_image(&image);
        let block =
            |path: &str| volume.inode_blocks(volume.resolve(path, false).unwrap()).unwrap().attribute_block;
        assert!(block("a").is_some() && block("a") == block("b"), "{way}: the kernel shares it");
        let (a, b) = (volume.resolve("a", false).unwrap(), volume.resolve("b", false).unwrap());
        match way {
            0 => volume.remove_file("a").unwrap(),
            1 => set(&volume, "a", "user.v1", b"other"),
            2 => volume.remove_xattr(a, "user.v2").unwrap(),
            3 => ["a", "b", "c"].iter().for_each(|file| volume.remove_file(file).unwrap()),
            _ => {
                set(&volume, "a", "user.small", b"1");
                set(&volume, "b", "user.small", b"1");
                set(&volume, "c", "user.v0", &pattern(9, 0, 6000));
                volume.remove_xattr(b, "user.v0").unwrap();
            }
        }
        if way != 3 {
            assert!(get(&volume, "c", "user.v1") == values[1]);
        }
        volume.close().unwrap();
        drop(volume);
        assert_clean(&image).unwrap();
        let mount = KernelMount::new(&image, "").unwrap();
        for file in ["a", "b", "c"].iter().filter(|file| mount.path().join(file).exists()) {
            fs::remove_file(mount.path().join(file)).unwrap();
        }
        mount.unmount();
        assert_clean(&image).unwrap();
    }
}

#[test]
fn without_room_nothing_is_left_behind() {
    for args in [VOLUMES[0], VOLUMES[1], VOLUMES[3], VOLUMES[5]] {
        let args: Vec<&str> = args.iter().copied().chain(["-m", "0"]).collect();
        let bytes = match format_bytes(&args, "16M") {
            Ok(bytes) => bytes,
            Err(reason) => skip!("value_inodes::without_room", reason),
        };
        let held = in_memory(&bytes);
        let volume = &held.volume;
        make(volume, "a");
        let filler = volume.create_file("filler", Creation::default()).unwrap();
        let nr = volume.resolve("a", false).unwrap();
        let (mut at, mut refused, mut set_some) = (0, 0, 0);
        while filler.write_at(at, &[7; 1 << 20]).is_ok_and(|done| done == 1 << 20) {
            at += 1 << 20;
        }
        volume.sync().unwrap();
        // Ever more room: too little for a value, for its inode's map, for the block of the entry, enough.
        for freed in 0..40_u64 {
            let end = filler.metadata().unwrap().size;
            filler.set_len(end.saturating_sub(2048)).unwrap();
            let before = free(volume);
            match volume.set_xattr(nr, "user.value", &pattern(1, 0, 40_000), XattrHow::Create) {
                Ok(()) => {
                    set_some += 1;
                    volume.remove_xattr(nr, "user.value").unwrap();
                }
                Err(Error::NoSpace) => {
                    refused += 1;
                    assert!(volume.list_xattrs(nr).unwrap().is_empty());
                }
                Err(other) => panic!("{args:?}: {other}"),
            }
            assert_eq!(free(volume), before, "{args:?}, {freed}");
        }
        assert!(refused > 5 && set_some > 5, "{args:?}: {refused} refused, {set_some} set");
        // No inodes.
        filler.set_len(0).unwrap();
        let mut n = 0;
        while volume.make(format!("i{n}"), NewNode::Fifo, Creation::default()).is_ok() {
            n += 1;
        }
        let before = free(volume);
        let result = volume.set_xattr(nr, "user.value", &pattern(1, 0, 40_000), XattrHow::Create);
        assert!(matches!(result, Err(Error::NoInodes)), "{args:?}: {result:?}");
        assert_eq!(free(volume), before, "{args:?}");
        drop(filler);
        close_clean(&held);
    }
}

#[test]
fn large_lists_of_access_are_inherited_and_changed() {
    for args in [VOLUMES[1], VOLUMES[3]] {
        let folder = tempfile::tempdir().unwrap();
        let image = image(folder.path(), args).unwrap_or_else(|reason| panic!("{reason}"));
        let users = (0..400).map(|id| (0x2, 0o4, 1000 + id));
        let entries: Vec<(u16, u16, u32)> = std::iter::once((0x1, 0o7, !0))
            .chain(users)
            .chain([(0x4, 0o5, !0), (0x10, 0o7, !0), (0x20, 0o0, !0)])
            .collect();
        let acl = hectare_oracle::trees::acl(&entries);
        let volume = open_image(&image);
        volume.create_dir("dir", Creation::default()).unwrap();
        let before = free(&volume);
        set(&volume, "dir", "system.posix_acl_default", &acl);
        make(&volume, "dir/file");
        volume.create_dir("dir/sub", Creation::default()).unwrap();
        let change = Changes { permissions: Some(0o640), ..Changes::default() };
        volume.change_path("dir/file", &change).unwrap();
        assert_eq!(get(&volume, "dir/sub", "system.posix_acl_default"), acl);
        let file = get(&volume, "dir/file", "system.posix_acl_access");
        assert_eq!(file.len(), acl.len());
        volume.remove_file("dir/file").unwrap();
        make(&volume, "dir/other");
        volume.remove_dir("dir/sub").unwrap();
        volume.close().unwrap();
        drop(volume);
        assert_clean(&image).unwrap();
        match KernelMount::new(&image, "") {
            Ok(mount) => {
                let read = xattr::get(&mount.path().join("dir"), "system.posix_acl_default").unwrap();
                assert!(read.unwrap() == acl, "{args:?}");
                fs::write(mount.path().join("dir/kernel"), b"").unwrap();
                fs::remove_file(mount.path().join("dir/other")).unwrap();
                mount.unmount();
            }
            Err(reason) => hectare_oracle::skip_part!("value_inodes::large_lists, kernel", reason),
        }
        let volume = open_image(&image);
        volume.remove_dir_all("dir").unwrap();
        let after = free(&volume);
        // The directory itself is gone as well.
        assert_eq!(after.1, before.1 + 1, "{args:?}");
        volume.close().unwrap();
        drop(volume);
        assert_clean(&image).unwrap();
    }
}

#[test]
fn threads_share_and_drop_the_same_values() {
    let Ok(bytes) = format_bytes(VOLUMES[0], "32M") else {
        skip!("value_inodes::threads", "mke2fs is absent")
    };
    let held = in_memory_with(&bytes, OpenOptions::default()).unwrap();
    let volume = &held.volume;
    for thread in 0..4 {
        make(volume, &format!("f{thread}"));
    }
    let before = free(volume);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            scope.spawn(move || {
                let nr = volume.resolve(format!("f{thread}"), false).unwrap();
                for round in 0..120 {
                    let value = pattern(round % 3, 0, 6000 + (round % 3) as usize);
                    volume.set_xattr(nr, "user.v", &value, XattrHow::Either).unwrap();
                    assert!(volume.get_xattr(nr, "user.v").unwrap() == value);
                    if round % 7 == thread {
                        volume.remove_xattr(nr, "user.v").unwrap();
                    }
                }
                let _ = volume.remove_xattr(nr, "user.v");
            });
        }
    });
    assert_eq!(free(volume), before);
    close_clean(&held);
}

#[test]
fn users_may_set_values_that_lie_elsewhere() {
    let Ok(bytes) = format_bytes(VOLUMES[0], "32M") else { skip!("value_inodes::users", "mke2fs is absent") };
    let held = in_memory(&bytes);
    let caller = Caller { uid: 1000, gid: 1000, groups: &[], capabilities: Capabilities::empty() };
    let creation = Creation { permissions: 0o600, umask: 0, uid: 1000, gid: 1000 };
    let nr = held.volume.create(ROOT, b"mine", NewNode::File, creation).unwrap();
    held.volume.set_xattr_as(nr, "user.v", &pattern(1, 0, 9000), XattrHow::Either, &caller).unwrap();
    assert!(held.volume.get_xattr_as(nr, "user.v", &caller).unwrap() == pattern(1, 0, 9000));
    close_clean(&held);
}

/// A volume with a file `a`, inode 12, whose `user.v` lies in inode 13, and a file `b`, inode 14.
fn specimen() -> Result<InMemory, Skip> {
    let bytes = format_bytes(&["-t", "ext4", "-b", "1024", "-O", "ea_inode,^has_journal"], "4M")?;
    let held = in_memory_with(&bytes, OpenOptions::default()).unwrap();
    make(&held.volume, "a");
    set(&held.volume, "a", "user.v", &pattern(1, 0, 4000));
    make(&held.volume, "b");
    held.volume.close().unwrap();
    Ok(held)
}

fn broken(requests: &[&str]) -> Result<InMemory, Skip> {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    save(&specimen()?.device.to_vec(), &image);
    debugfs_write(&image, requests)?;
    Ok(in_memory_with(&fs::read(&image).unwrap(), OpenOptions::default()).unwrap())
}

#[test]
fn what_is_wrong_with_a_value_is_told_by_the_inode_and_changes_nothing() {
    let cases: [(&[&str], &str, bool); 8] = [
        (&["sif <13> atime @0x12345678"], "its 4000 bytes is", false),
        (
            &["sif <13> flags 0x80000"],
            "inode 13 is corrupt: an attribute names it, but it is not flagged",
            true,
        ),
        (&["sif <13> version 0", "sif <13> ctime @0"], "inode 13 holds its value, but counts no users", true),
        (
            &["sif <13> size 3999"],
            "inode 13 is corrupt: it holds 3999 bytes where the attribute has 4000",
            true,
        ),
        (&["sif <13> links_count 0"], "inode 13, which is free", true),
        (&["sif <13> mode 0040700"], "not flagged", true),
        (&["ea_set <13> user.x 1"], "attributes of its own", true),
        (&["sif <13> mtime @12", "sif <13> generation 77", "sif <12> generation 77"], "Lustre", true),
    ];
    for (requests, what, refuses_changes) in cases {
        let held = match broken(requests) {
            Ok(held) => held,
            Err(reason) => skip!("value_inodes::what_is_wrong", reason),
        };
        let volume = &held.volume;
        let nr = volume.resolve("a", false).unwrap();
        let told = |result: Result<(), Error>| {
            let text = result.expect_err(what).to_string();
            assert!(text.contains(what) && !text.contains('\n'), "{requests:?}: {text}");
        };
        if refuses_changes {
            let before = held.device.to_vec();
            told(volume.remove_file("a"));
            told(volume.rename_path("b", "a", RenameMode::Replace));
            told(volume.set_xattr(nr, "user.more", b"1", XattrHow::Either));
            told(volume.remove_xattr(nr, "user.v"));
            assert!(volume.metadata("b").is_ok());
            assert!(held.device.to_vec() == before, "{requests:?}: something was written");
        }
        match what {
            "Lustre" => assert_eq!(get(volume, "a", "user.v"), pattern(1, 0, 4000)),
            // A value without users is still one.
            _ if what.contains("no users") => assert_eq!(get(volume, "a", "user.v"), pattern(1, 0, 4000)),
            _ => told(volume.get_xattr(nr, "user.v").map(drop)),
        }
    }
}

#[test]
fn values_that_loop_or_have_names_are_refused() {
    // The entry in the inode's slot: `e_value_inum` is 4 bytes after its start.
    let Ok(held) = specimen() else { skip!("value_inodes::values_that_loop", "mke2fs is absent") };
    let bytes = held.device.to_vec();
    let entry = [1, 1, 0, 0, 13, 0, 0, 0, 0xa0, 0x0f];
    let at = bytes.windows(entry.len()).position(|window| window == entry).unwrap() + 4;
    for (inode, what) in
        [(12_u8, "lies in the inode itself"), (8, "belongs to the format"), (14, "not flagged")]
    {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        let mut damaged = bytes.clone();
        damaged[at] = inode;
        save(&damaged, &image);
        // Without checksums, so that only the entry is wrong.
        let options = ["-O", "^metadata_csum", "-f"];
        if let Err(reason) = hectare_oracle::tool::need("tune2fs")
            .map(|mut tool| hectare_oracle::tool::run(tool.args(options).arg(&image)).expect_success())
        {
            skip!("value_inodes::values_that_loop", reason);
        }
        let damaged = fs::read(&image).unwrap();
        let held = in_memory_with(&damaged, OpenOptions::default()).unwrap();
        let volume = &held.volume;
        let nr = volume.resolve("a", false).unwrap();
        for result in [volume.get_xattr(nr, "user.v").map(drop), volume.remove_file("a")] {
            let text = result.expect_err(what).to_string();
            assert!(text.contains(what), "{inode}: {text}");
        }
    }
    let held = match broken(&["link <13> /named"]) {
        Ok(held) => held,
        Err(reason) => skip!("value_inodes::values_that_have_names", reason),
    };
    let result = held.volume.remove_file("named");
    let text = result.expect_err("it holds a value").to_string();
    assert!(text.contains("holds an attribute's value"), "{text}");
    let _: Metadata = held.volume.metadata("a").unwrap();
}
