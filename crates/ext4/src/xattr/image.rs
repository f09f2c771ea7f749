//! Images made by the reference tool and filled by the kernel, for the tests that compare with both.
//!
//! A test that can't run here (no root, no tool) gets no image, and its name is printed as skipped.

use crate::checksum::Seed;
use hectare_units::{BlockNr, BlockSize, InodeNr, join32, low16};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

const NEEDED: [&str; 9] =
    ["mke2fs", "debugfs", "e2fsck", "dumpe2fs", "mount", "setfattr", "setfacl", "setcap", "fsfreeze"];

const HAS_CHECKSUMS: u32 = 0x400; // read-only compatible: metadata_csum
const HAS_STORED_SEED: u32 = 0x2000; // incompatible: metadata_csum_seed

/// An image in a temporary folder, removed with it.
pub(crate) struct Image {
    folder: PathBuf,
}

/// An inode's bytes and where they are.
pub(crate) struct RawInode {
    pub(crate) nr: InodeNr,
    pub(crate) bytes: Vec<u8>,
    at: u64,
}

impl Image {
    /// An image of 16 MiB made with these options, or nothing where the kernel can't be asked.
    pub(crate) fn make(test: &str, options: &[&str]) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if fs::metadata("/proc/self").map_or(0, |me| me.uid()) != 0 {
            eprintln!("skipped: {test}: mounting needs root");
            return None;
        }
        if let Some(tool) = NEEDED.iter().find(|tool| !installed(tool)) {
            eprintln!("skipped: {test}: {tool} is not installed");
            return None;
        }
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("hectare-{test}-{}-{count}", std::process::id()));
        fs::create_dir_all(folder.join("mnt")).unwrap();
        let image = Self { folder };
        fs::File::create(image.path()).unwrap().set_len(16 << 20).unwrap();
        run(tool("mke2fs").args(["-q", "-t", "ext4"]).args(options).arg(image.path()));
        Some(image)
    }

    /// A copy as it is now.
    pub(crate) fn copy(&self) -> Self {
        let folder = self.folder.with_extension("copy");
        fs::create_dir_all(folder.join("mnt")).unwrap();
        fs::copy(self.path(), folder.join("image")).unwrap();
        Self { folder }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join("image")
    }

    pub(crate) fn mount_point(&self) -> PathBuf {
        self.folder.join("mnt")
    }

    /// Runs `work` on the mounted image and unmounts it.
    pub(crate) fn mounted<T>(&self, work: impl FnOnce(&Path) -> T) -> T {
        let folder = self.mount_point();
        run(tool("mount").args(["-o", "loop"]).arg(self.path()).arg(&folder));
        let result = work(&folder);
        run(tool("umount").arg(&folder));
        result
    }

    /// What `debugfs` answers.
    pub(crate) fn debugfs(&self, request: &str) -> String {
        String::from_utf8_lossy(&run(tool("debugfs").args(["-w", "-R", request]).arg(self.path())))
            .into_owned()
    }

    /// The number `dumpe2fs` prints after `label`.
    pub(crate) fn header_number(&self, label: &str) -> u64 {
        let text = String::from_utf8_lossy(&run(tool("dumpe2fs").arg("-h").arg(self.path()))).into_owned();
        let line = text.lines().find_map(|line| line.strip_prefix(label)).expect("a line with this label");
        line.trim_start_matches(':').trim().parse().unwrap()
    }

    /// Fails unless the checker finds nothing.
    pub(crate) fn assert_clean(&self) {
        run(tool("e2fsck").arg("-fn").arg(self.path()));
    }

    /// Lets the checker repair what it finds and gives its words.
    pub(crate) fn repair(&self) -> String {
        let output = tool("e2fsck").arg("-fy").arg(self.path()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub(crate) fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        fs::File::open(self.path()).unwrap().read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    pub(crate) fn write(&self, at: u64, bytes: &[u8]) {
        fs::File::options().write(true).open(self.path()).unwrap().write_all_at(bytes, at).unwrap();
    }

    pub(crate) fn block_size(&self) -> BlockSize {
        BlockSize::from_shift(10 + self.superblock_word(0x18)).unwrap()
    }

    pub(crate) fn block(&self, nr: BlockNr) -> Vec<u8> {
        self.read(nr.offset(self.block_size()).get(), self.block_size().len())
    }

    pub(crate) fn write_block(&self, nr: BlockNr, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.block_size().len());
        self.write(nr.offset(self.block_size()).get(), bytes);
    }

    pub(crate) fn superblock_word(&self, at: u64) -> u32 {
        u32::from_le_bytes(self.read(1024 + at, 4).try_into().unwrap())
    }

    /// Where the volume's checksums start, had it any.
    pub(crate) fn any_seed(&self) -> Seed {
        if self.superblock_word(0x60) & HAS_STORED_SEED != 0 {
            return Seed::stored(self.superblock_word(0x270));
        }
        Seed::of_uuid(&self.read(1024 + 0x68, 16).try_into().unwrap())
    }

    /// The same for a volume that has checksums.
    pub(crate) fn seed(&self) -> Option<Seed> {
        (self.superblock_word(0x64) & HAS_CHECKSUMS != 0).then(|| self.any_seed())
    }

    /// The inode of a path (or `<number>`).
    pub(crate) fn inode(&self, path: &str) -> RawInode {
        let text = self.debugfs(&format!("imap {path}"));
        // Inode N is part of block group G / located at block B, offset 0xO
        let after = |label: &str| {
            let rest = text.split(label).nth(1).expect("a place").trim_start();
            rest.split([' ', ',', '\n']).next().unwrap().to_owned()
        };
        let nr: u32 = after("Inode ").parse().unwrap();
        let block: u64 = after("located at block ").parse().unwrap();
        let within = u64::from_str_radix(&after("offset 0x"), 16).unwrap();
        let at = BlockNr::new(block).offset(self.block_size()).get() + within;
        let size = u16::from_le_bytes(self.read(1024 + 0x58, 2).try_into().unwrap());
        RawInode { nr: InodeNr::new(nr), bytes: self.read(at, usize::from(size)), at }
    }

    /// Writes an inode back, with its checksum.
    pub(crate) fn write_inode(&self, mut inode: RawInode) {
        if let Some(seed) = self.seed() {
            let has_high = inode.extra() >= 4;
            inode.bytes[0x7c..0x7e].fill(0);
            if has_high {
                inode.bytes[0x82..0x84].fill(0);
            }
            let sum = seed.inode(inode.nr, inode.word(0x64)).checksum(&inode.bytes);
            inode.bytes[0x7c..0x7e].copy_from_slice(&low16(u64::from(sum)).to_le_bytes());
            if has_high {
                inode.bytes[0x82..0x84].copy_from_slice(&low16(u64::from(sum >> 16)).to_le_bytes());
            }
        }
        self.write(inode.at, &inode.bytes);
    }
}

impl RawInode {
    fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes[at..at + 4].try_into().unwrap())
    }

    fn half(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.bytes[at..at + 2].try_into().unwrap())
    }

    fn extra(&self) -> usize {
        if self.bytes.len() > 128 { usize::from(self.half(0x80)) } else { 0 }
    }

    pub(crate) fn generation(&self) -> u32 {
        self.word(0x64)
    }

    pub(crate) fn mode(&self) -> u16 {
        self.half(0)
    }

    pub(crate) fn size(&self) -> u64 {
        join32(self.word(4), self.word(0x6c))
    }

    pub(crate) fn has_inline_data(&self) -> bool {
        self.word(0x20) & 0x1000_0000 != 0
    }

    pub(crate) fn i_block(&self) -> &[u8; 60] {
        self.bytes[0x28..0x64].try_into().unwrap()
    }

    /// The bytes behind the fixed fields.
    pub(crate) fn area(&self) -> &[u8] {
        &self.bytes[128 + self.extra()..]
    }

    pub(crate) fn set_area(&mut self, area: &[u8]) {
        let start = 128 + self.extra();
        self.bytes[start..].copy_from_slice(area);
    }

    pub(crate) fn attr_block(&self) -> Option<BlockNr> {
        let nr = join32(self.word(0x68), u32::from(self.half(0x76)));
        (nr != 0).then(|| BlockNr::new(nr))
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // After a failed test the image may still be mounted; nothing to do if it isn't.
        let _ = tool("umount").arg(self.mount_point()).output();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A program, also found where only root looks.
pub(crate) fn tool(name: &str) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(name);
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).env("LC_ALL", "C");
    command
}

fn installed(name: &str) -> bool {
    let folders = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    folders.split(':').any(|folder| Path::new(folder).join(name).exists())
}

/// Runs a program that must succeed and gives what it prints.
pub(crate) fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap();
    let words = [output.stdout.as_slice(), &output.stderr].concat();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&words));
    output.stdout
}

/// Sets an attribute through the kernel.
pub(crate) fn setfattr(path: &Path, name: &[u8], value: &[u8]) {
    let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
    run(tool("setfattr").arg("-n").arg(OsStr::from_bytes(name)).arg("-v").arg(format!("0x{hex}")).arg(path));
}

/// Gets an attribute through the kernel.
pub(crate) fn getfattr(path: &Path, name: &[u8]) -> Vec<u8> {
    run(tool("getfattr")
        .args(["--absolute-names", "--only-values", "-n"])
        .arg(OsStr::from_bytes(name))
        .arg(path))
}
