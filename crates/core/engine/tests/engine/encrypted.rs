//! Encrypted directories, read without the key: the kernel makes them, and lists them without the key as
//! well.
//!
//! The kernel's name for an entry without the key is base64url of a hash (8 bytes), the first 149 bytes of
//! ciphertext and, if there is more, 32 bytes of SHA-256 of the rest; ours is base64url of all the
//! ciphertext.

use crate::common::{in_memory, open_image, open_read_only};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hectare_engine::{Creation, Error, Kind, NewNode, RenameMode, Volume};
use hectare_oracle::tool::{self, Said};
use hectare_oracle::{KernelMount, Skip, assert_clean, skip};
use hectare_units::InodeNr;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};

const ROOT: InodeNr = InodeNr::ROOT;

/// The script's exit code if the kernel or the volume has no encryption.
const ABSENT: i32 = 77;
const HASH: usize = 8;
const PREFIX: usize = 149;
const DIGEST: usize = 32;

/// Adds a key to the mounted volume, gives `dir` a policy (version 2, names padded to 32 bytes) and fills it.
const FILL: &str = r#"
import ctypes, errno, fcntl, os, struct, sys
top = sys.argv[1]
ADD_KEY, SET_POLICY, IDENTIFIER = 0xC0506617, 0x800C6613, 2
root = os.open(top, os.O_RDONLY)
arg = bytearray(struct.pack("<II32xII32x", IDENTIFIER, 0, 64, 0) + bytes(range(64)))
try:
    fcntl.ioctl(root, ADD_KEY, arg)
except OSError as error:
    if error.errno in (errno.ENOTTY, errno.EOPNOTSUPP, errno.ENOPKG):
        print(error)
        sys.exit(77)
    raise
folder = os.path.join(top, "dir")
os.mkdir(folder)
fd = os.open(folder, os.O_RDONLY)
fcntl.ioctl(fd, SET_POLICY, struct.pack("<BBBB4x16s", 2, 1, 4, 3, bytes(arg[8:24])))
for n in range(300):
    # 32, 64 and 96 bytes of ciphertext, around 149, and 255.
    length = (5, 33, 70, 150, 161, 200, 255)[n % 7]
    open(os.path.join(folder, f"{n:03}".ljust(length, "x")), "w").close()
with open(os.path.join(folder, "content"), "w") as file:
    file.write("a secret" * 1000)
os.setxattr(os.path.join(folder, "content"), "user.colour", b"green")
os.symlink("content", os.path.join(folder, "link"))
os.mkdir(os.path.join(folder, "sub"))
for n in range(3):
    open(os.path.join(folder, "sub", f"deep {n}"), "w").close()
"#;

/// A volume with an encrypted directory `dir`.
fn made(folder: &Path) -> Result<PathBuf, Skip> {
    let image = folder.join("image");
    hectare_oracle::mke2fs(&["-t", "ext4", "-b", "4096", "-O", "encrypt"], &image, "32M")?;
    let mount = KernelMount::new(&image, "")?;
    let said = tool::run(tool::need("python3")?.args(["-c", FILL]).arg(mount.path()));
    mount.unmount();
    if said.exit == Some(ABSENT) {
        return Err(Skip::new(format!("no encryption in this kernel: {}", said.stdout.trim())));
    }
    drop::<Said>(said.expect_success());
    Ok(image)
}

/// The names that the kernel lists, by inode.
fn listed_by_kernel(folder: &Path) -> BTreeMap<u64, OsString> {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries.map(|entry| (entry.ino(), entry.file_name())).collect()
}

fn decode(text: &[u8]) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(text).unwrap()
}

/// Compares a directory with the kernel's listing of it. Returns the lengths of ciphertext seen.
#[track_caller]
fn compare(volume: &Volume, dir: InodeNr, kernel: &BTreeMap<u64, OsString>) -> Vec<usize> {
    let ours = volume.list(dir).unwrap();
    assert_eq!(ours.len(), kernel.len());
    let mut lengths = Vec::new();
    for entry in ours {
        let theirs = kernel.get(&entry.inode.get().into()).expect("the kernel lists no such inode");
        let (theirs, cipher) = (decode(&theirs.clone().into_vec()), decode(&entry.name));
        let prefix = &cipher[..cipher.len().min(PREFIX)];
        assert_eq!(&theirs[HASH..HASH + prefix.len()], prefix, "inode {}", entry.inode);
        let digest = if cipher.len() > PREFIX { DIGEST } else { 0 };
        assert_eq!(theirs.len(), HASH + prefix.len() + digest);
        assert_eq!(volume.lookup(dir, &entry.name).unwrap(), entry.inode);
        lengths.push(cipher.len());
    }
    lengths
}

fn of_kind(volume: &Volume, dir: InodeNr, kind: Kind) -> InodeNr {
    let entries = volume.list(dir).unwrap();
    entries.iter().find(|entry| entry.kind == Some(kind)).unwrap().inode
}

/// The one file that has content.
fn with_content(volume: &Volume, dir: InodeNr) -> InodeNr {
    let mut entries = volume.list(dir).unwrap().into_iter().map(|entry| entry.inode);
    let full = |nr: &InodeNr| volume.stat(*nr).is_ok_and(|what| what.kind == Kind::File && what.size > 0);
    entries.find(full).unwrap()
}

#[track_caller]
fn assert_refused<T>(result: Result<T, Error>, says: &str) {
    match result {
        Err(Error::Unsupported(what)) => assert!(what.contains(says), "{what}"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was done"),
    }
}

/// Checks what is readable of the files in `dir`, and what is not.
fn check_files(volume: &Volume, dir: InodeNr) {
    let nr = with_content(volume, dir);
    assert_eq!(volume.stat(nr).unwrap().size, 8000);
    assert_eq!(volume.get_xattr(nr, "user.colour").unwrap(), b"green");
    let refusal = format!("inode {nr} is encrypted: its content can't be read without the key");
    assert_refused(volume.open_inode(nr).unwrap().read_at(0, &mut [0; 16]), &refusal);
    let entries = volume.list(dir).unwrap();
    let name = &entries.iter().find(|entry| entry.inode == nr).unwrap().name;
    assert_refused(volume.read([b"dir/", &name[..]].concat()), &refusal);
    assert_refused(volume.read_link_at(of_kind(volume, dir, Kind::Symlink)), "is encrypted");
    for absent in [&b"content"[..], b"AAAAAAAAAAAAAAAAAAAAAA", b"not base64!", b"AB"] {
        assert!(matches!(volume.lookup(dir, absent), Err(Error::NotFound)));
    }
    assert_eq!(volume.lookup(dir, b"..").unwrap(), InodeNr::ROOT);
}

/// Writing stays refused by name, and changes nothing.
fn check_unwritable(image: &Path) {
    let held = in_memory(&std::fs::read(image).unwrap());
    let volume = &held.volume;
    let dir = volume.resolve("dir", true).unwrap();
    let before = volume.list(dir).unwrap();
    // Text of more than 255 bytes is refused as too long, before any lookup.
    let short = before.iter().find(|entry| entry.name.len() <= 255).unwrap();
    let (nr, name) = (with_content(volume, dir), &short.name);
    let named = format!("inode {dir} is encrypted");
    assert_refused(volume.create(dir, b"new", NewNode::File, Creation::default()), &named);
    assert_refused(volume.rename(dir, name, ROOT, b"moved", RenameMode::Replace), &named);
    assert_refused(volume.link(nr, dir, b"again"), &named);
    assert_refused(volume.open_inode(nr).unwrap().write_at(0, b"plain"), &format!("inode {nr} is encrypted"));
    assert_eq!(volume.list(dir).unwrap(), before);
    crate::common::close_clean(&held);
}

#[test]
fn an_encrypted_directory_is_read_as_the_kernel_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    let image = match made(folder.path()) {
        Ok(image) => image,
        Err(reason) => skip!("encrypted::an_encrypted_directory", reason),
    };
    let (kernel, kernel_sub) = {
        let mount = match KernelMount::read_only(&image, "") {
            Ok(mount) => mount,
            Err(reason) => skip!("encrypted::an_encrypted_directory", reason),
        };
        let top = mount.path().join("dir");
        let kernel = listed_by_kernel(&top);
        let sub = kernel.values().map(|name| top.join(name)).find(|path| path.is_dir()).unwrap();
        (kernel, listed_by_kernel(&sub))
    };
    let before = std::fs::read(&image).unwrap();
    let volume = open_read_only(&image);
    let dir = volume.resolve("dir", true).unwrap();
    let lengths = compare(&volume, dir, &kernel);
    assert_eq!(lengths.len(), 303);
    for expected in [32, 64, 96, 160, 192, 224, 255] {
        assert!(lengths.contains(&expected), "no ciphertext of {expected} bytes in {lengths:?}");
    }
    let sub = of_kind(&volume, dir, Kind::Directory);
    assert_eq!(compare(&volume, sub, &kernel_sub), [32; 3]);
    check_files(&volume, dir);
    volume.close().unwrap();
    drop(volume);
    assert!(std::fs::read(&image).unwrap() == before, "reading changed the image");
    assert_clean(&image).unwrap();
    check_unwritable(&image);
    check_removable(&image);
}

/// Names go without the key, one by one and all together, as with the kernel; what stays is as it was.
fn check_removable(image: &Path) {
    let volume = open_image(image);
    let dir = volume.resolve("dir", true).unwrap();
    let entries = volume.list(dir).unwrap();
    let sub = of_kind(&volume, dir, Kind::Directory);
    let name_of = |nr| entries.iter().find(|entry| entry.inode == nr).unwrap().name.clone();
    let refused = volume.rmdir(dir, &name_of(sub));
    assert!(matches!(refused, Err(Error::NotEmpty)), "{refused:?}");
    // Among them the longest, whose text no system call could pass.
    let long = entries.iter().filter(|entry| entry.name.len() > 255).take(3).map(|entry| entry.inode);
    let gone: Vec<InodeNr> =
        [with_content(&volume, dir), of_kind(&volume, dir, Kind::Symlink)].into_iter().chain(long).collect();
    for nr in &gone {
        volume.unlink(dir, &name_of(*nr)).unwrap();
    }
    let left: Vec<InodeNr> = volume.list(dir).unwrap().iter().map(|entry| entry.inode).collect();
    assert!(left.len() == entries.len() - gone.len() && gone.iter().all(|nr| !left.contains(nr)));
    volume.close().unwrap();
    drop(volume);
    assert_clean(image).unwrap();
    let mount = KernelMount::read_only(image, "").unwrap();
    let kernel = listed_by_kernel(&mount.path().join("dir"));
    mount.unmount();
    assert!(kernel.len() == left.len() && left.iter().all(|nr| kernel.contains_key(&nr.get().into())));
    let volume = open_image(image);
    volume.remove_dir_all("dir").unwrap();
    volume.close().unwrap();
    drop(volume);
    assert_clean(image).unwrap();
}
