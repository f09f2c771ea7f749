//! Images made by the reference tool and filled by the kernel, for the tests that compare with both.
//!
//! A test that can't run here (no root, no tool) gets no image, and is counted as skipped.

use hectare_ext4::checksum::Seed;
use hectare_oracle::{KernelMount, Skip, mke2fs, mount, scratch, skip};
use hectare_units::{BlockNr, BlockSize, InodeNr, join32, low16};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const NEEDED: [&str; 8] =
    ["debugfs", "e2fsck", "dumpe2fs", "setfattr", "getfattr", "setfacl", "setcap", "fsfreeze"];

const HAS_CHECKSUMS: u32 = 0x400; // read-only compatible: metadata_csum
const HAS_STORED_SEED: u32 = 0x2000; // incompatible: metadata_csum_seed

/// An image in a temporary directory, removed with it.
pub(crate) struct Image(PathBuf);

/// An inode's bytes and where they are.
pub(crate) struct RawInode {
    pub(crate) nr: InodeNr,
    pub(crate) bytes: Vec<u8>,
    at: u64,
}

impl Image {
    /// An image of 16 MiB made with these options, or nothing where the kernel can't be asked.
    pub(crate) fn make(test: &str, options: &[&str]) -> Option<Self> {
        match Self::try_make(test, options) {
            Ok(image) => Some(image),
            Err(reason) => {
                skip::record(skip::Extent::Test, &format!("kernel::{test}"), &reason.to_string());
                None
            }
        }
    }

    fn try_make(test: &str, options: &[&str]) -> Result<Self, Skip> {
        mount::can_mount()?;
        for tool in NEEDED {
            hectare_oracle::tool::need(tool)?;
        }
        let image = Self(scratch::fresh(test));
        mke2fs(&[&["-t", "ext4"], options].concat(), &image.0, "16M")?;
        Ok(image)
    }

    /// A copy as it is now.
    pub(crate) fn copy(&self) -> Self {
        let copy = Self(scratch::fresh("copy"));
        fs::copy(&self.0, &copy.0).unwrap();
        copy
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.clone()
    }

    /// Runs `work` on the mounted image and unmounts it.
    pub(crate) fn mounted<T>(&self, work: impl FnOnce(&Path) -> T) -> T {
        let mount = KernelMount::new(&self.0, "").unwrap_or_else(|reason| panic!("{reason}"));
        let result = work(mount.path());
        mount.unmount();
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
        let _ = fs::remove_file(&self.0); // the scratch directory is removed anyway
    }
}

/// A program that [`Image::make`] has found.
pub(crate) fn tool(name: &str) -> Command {
    hectare_oracle::tool(name).unwrap_or_else(|| panic!("{name} is not installed"))
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
