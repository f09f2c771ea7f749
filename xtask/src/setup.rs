//! The host's tools that tests, packages and the demo need, and where Debian has them.
//!
//! Nothing here is necessary to build Hectare or to use it: a tool that is absent turns the checks that need it into
//! skips, by name. How they are installed, and that nothing is removed for it: [`hectare_tools::install`].

use hectare_tools::install::{Installed, Tool, install};

/// All that tests use. What only hunts and comparisons need, these install.
const TOOLS: [Tool; 65] = [
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
    ("xz", "xz-utils"),
    ("bzip2", "bzip2"),
    ("zstd", "zstd"),
    ("umoci", "umoci"),
    ("skopeo", "skopeo"),
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
    ("systemd-repart", "systemd-repart|systemd"),
    ("xorriso", "xorriso"),
    ("nbdkit", "nbdkit"),
    ("/usr/include/nbdkit-plugin.h", "nbdkit-plugin-dev"),
    ("qemu-nbd", "qemu-utils"),
    ("nbd-server", "nbd-server"),
    ("nbdinfo", "libnbd-bin"),
    ("nbdcopy", "libnbd-bin"),
    ("openssl", "openssl"),
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

/// Installs what tests use and the host lacks; the state after it.
pub(crate) fn for_tests() -> Installed {
    let installed = install(&TOOLS);
    installed.print();
    installed
}

/// The job: false if a tool that was to be had is missing.
pub(crate) fn run() -> bool {
    for_tests().missing.is_empty()
}

/// Installs what the demo uses, and no more.
pub(crate) fn for_demo() {
    install(&[("e2fsck", "e2fsprogs")]).print();
}

/// Installs what packages are made and tried with, and no more; false if a tool that was to be had is missing.
pub(crate) fn for_packages() -> bool {
    let installed = install(&PACKAGING);
    installed.print();
    installed.missing.is_empty()
}
