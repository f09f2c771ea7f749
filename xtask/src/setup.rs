//! Installs the Debian packages that tests and the demo need, if allowed.
//!
//! Nothing here is necessary to build Hectare or to use it: a tool that stays missing turns the checks that
//! need it into skips, by name. `HECTARE_NO_INSTALL=1` forbids installing.

use crate::steps::{quiet, shown};
use hectare_oracle::{is_root, tool};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// A tool, or a file by its path, and its Debian package.
type Tool = (&'static str, &'static str);

/// All that tests, benchmarks and the demo use.
const TOOLS: [Tool; 72] = [
    ("mke2fs", "e2fsprogs"),
    ("e2fsck", "e2fsprogs"),
    ("dumpe2fs", "e2fsprogs"),
    ("debugfs", "e2fsprogs"),
    ("e2freefrag", "e2fsprogs"),
    ("losetup", "mount"),
    ("mount", "mount"),
    ("umount", "mount"),
    ("sfdisk", "fdisk"),
    ("cp", "coreutils"),
    ("tar", "tar"),
    ("bsdtar", "libarchive-tools"),
    ("mtree", "mtree-netbsd"),
    ("chattr", "e2fsprogs"),
    ("lsattr", "e2fsprogs"),
    ("fusermount3", "fuse3"),
    ("qemu-io", "qemu-utils"),
    ("xfs_io", "xfsprogs"),
    ("fstrim", "util-linux"),
    ("flock", "util-linux"),
    ("setpriv", "util-linux"),
    ("fakeroot", "fakeroot"),
    ("fakeroot-pseudo", "pseudo"),
    ("script", "bsdutils"),
    ("unshare", "util-linux"),
    ("fio", "fio"),
    ("getfattr", "attr"),
    ("git", "git"),
    ("rsync", "rsync"),
    ("setfacl", "acl"),
    ("setfiles", "policycoreutils"),
    ("sqlite3", "sqlite3"),
    ("stress-ng", "stress-ng"),
    ("xz", "xz-utils"),
    ("bzip2", "bzip2"),
    ("zstd", "zstd"),
    ("umoci", "umoci"),
    ("mmdebstrap", "mmdebstrap"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("skopeo", "skopeo"),
    ("buildah", "buildah"),
    ("chromium", "chromium"),
    ("/usr/share/unicode/UnicodeData.txt", "unicode-data"),
    ("fsverity", "fsverity"),
    ("blkid", "util-linux"),
    ("tune2fs", "e2fsprogs"),
    ("cryptsetup", "cryptsetup-bin"),
    ("mkfs.btrfs", "btrfs-progs"),
    ("mkfs.erofs", "erofs-utils"),
    ("mkfs.exfat", "exfatprogs"),
    ("mkfs.f2fs", "f2fs-tools"),
    ("mkfs.ntfs", "ntfs-3g"),
    ("mkfs.vfat", "dosfstools"),
    ("mkfs.xfs", "xfsprogs"),
    ("mksquashfs", "squashfs-tools"),
    ("mkswap", "util-linux"),
    ("pvcreate", "lvm2"),
    ("qemu-img", "qemu-utils"),
    ("img2simg", "android-sdk-libsparse-utils"),
    ("simg2img", "android-sdk-libsparse-utils"),
    ("sgdisk", "gdisk"),
    ("mtype", "mtools"),
    ("systemd-repart", "systemd"),
    ("/usr/share/ovmf/OVMF.fd", "ovmf"),
    ("xorriso", "xorriso"),
    ("nbdkit", "nbdkit"),
    ("/usr/include/nbdkit-plugin.h", "nbdkit-plugin-dev"),
    ("qemu-nbd", "qemu-utils"),
    ("nbd-server", "nbd-server"),
    ("nbdinfo", "libnbd-bin"),
    ("nbdcopy", "libnbd-bin"),
    ("openssl", "openssl"),
];

/// What `cargo xtask ceph` uses besides. Tests don't, so it is installed for that job alone.
const CEPH: [Tool; 6] = [
    ("ceph-mon", "ceph-mon"),
    ("ceph-osd", "ceph-osd"),
    ("monmaptool", "ceph-base"),
    ("ceph", "ceph-common"),
    ("rbd", "ceph-common"),
    ("/usr/lib/x86_64-linux-gnu/qemu/block-rbd.so", "qemu-block-extra"),
];

/// What `cargo xtask package` uses besides.
const PACKAGING: [Tool; 7] = [
    ("bsdtar", "libarchive-tools"),
    ("dpkg-shlibdeps", "dpkg-dev"),
    ("lintian", "lintian"),
    ("mmdebstrap", "mmdebstrap"),
    ("pkg-config", "pkg-config"),
    ("rpmbuild", "rpm"),
    ("unshare", "util-linux"),
];

/// What the demo uses.
const DEMO: [&str; 1] = ["e2fsck"];

/// Installs what tests and benchmarks use and the host lacks; always true, because what stays missing is
/// skipped later.
pub(crate) fn run() -> bool {
    install_missing(&TOOLS)
}

/// Installs what the demo uses, and no more.
pub(crate) fn for_demo() -> bool {
    let used: Vec<Tool> = TOOLS.into_iter().filter(|(name, _)| DEMO.contains(name)).collect();
    install_missing(&used)
}

/// Installs what a Ceph cluster of one node needs.
pub(crate) fn for_ceph() -> bool {
    install_missing(&CEPH)
}

/// Installs what packages are made and tried with, and no more.
pub(crate) fn for_packages() {
    install_missing(&PACKAGING);
}

fn missing(of: &[Tool]) -> Vec<Tool> {
    of.iter().copied().filter(|(name, _)| !is_there(name)).collect()
}

/// Whether there is a program of that name, or a file of that path.
fn is_there(name: &str) -> bool {
    if name.starts_with('/') { Path::new(name).exists() } else { tool(name).is_some() }
}

/// Installs what is missing, or reports it.
fn install_missing(tools: &[Tool]) -> bool {
    let packages: BTreeSet<&str> = missing(tools).into_iter().map(|(_, package)| package).collect();
    if packages.is_empty() {
        return true;
    }
    match installer() {
        Some(apt) => install(&apt, &packages),
        None => eprintln!("not installed here: no apt-get, or neither root nor sudo without a password"),
    }
    for (name, package) in missing(tools) {
        eprintln!("{name} is missing (Debian package {package}): what needs it will be skipped");
    }
    true
}

/// The command line of an apt-get that may install.
fn installer() -> Option<Vec<&'static str>> {
    let forbidden = std::env::var("HECTARE_NO_INSTALL").is_ok_and(|v| v == "1");
    if forbidden || tool("apt-get").is_none() {
        return None;
    }
    if is_root() {
        return Some(vec!["apt-get"]);
    }
    let may = quiet(tool("sudo")?.args(["-n", "true"])).is_some();
    may.then(|| vec!["sudo", "-n", "apt-get"])
}

fn install(apt: &[&str], packages: &BTreeSet<&str>) {
    let apt = |words: &[&str]| {
        let mut command = Command::new(apt[0]);
        command.env("DEBIAN_FRONTEND", "noninteractive").args(&apt[1..]);
        // Without a network this must fail soon, not after minutes.
        command.args(["-q", "-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20"]).args(words);
        command
    };
    if shown(&mut apt(&["update"])) {
        let mut words = vec!["install", "--yes", "--no-install-recommends"];
        words.extend(packages);
        shown(&mut apt(&words));
    }
}
