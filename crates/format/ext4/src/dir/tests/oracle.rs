//! Comparison with e2fsprogs: hashes as debugfs computes them, directories as e2fsck checks them. No root.

use super::super::*;
use super::store::*;
use crate::checksum::Seed;
use hectare_oracle::{skip, tool};
use hectare_units::InodeNr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// A directory that is removed with its owner.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("hectare-dir-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a program; its standard output and error together.
pub(super) fn run(program: &str, args: &[&str]) -> (bool, Vec<u8>) {
    let mut command = tool(program).unwrap_or_else(|| panic!("{program} is not installed"));
    let output = command.args(args).output().expect("the program starts");
    (output.status.success(), [output.stdout, output.stderr].concat())
}

/// Whether the programs are there; if not, the test is counted as skipped.
pub(super) fn have(test: &str, programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| tool(program).is_none());
    if let Some(missing) = missing {
        skip::record(skip::Extent::Test, &format!("dir::{test}"), &format!("{missing} is not installed"));
    }
    missing.is_none()
}

pub(super) const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";
pub(super) const UUID_BYTES: [u8; 16] =
    [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef];

pub(super) fn uuid_seed() -> [u32; 4] {
    std::array::from_fn(|i| u32::from_le_bytes(UUID_BYTES[i * 4..][..4].try_into().unwrap()))
}

#[test]
fn hashes_are_those_of_debugfs() {
    if !have("hashes_are_those_of_debugfs", &["debugfs"]) {
        return;
    }
    let scratch = Scratch::new("hashes");
    let mut names: Vec<Vec<u8>> = (1..=255).map(|len| vec![b'k'; len]).collect();
    names.extend((1..40u8).map(|i| (0..i).map(|j| 0x80 | (j.wrapping_mul(37) ^ i)).collect()));
    names.extend((0..60u32).map(|i| format!("name-{i}-{}", "y".repeat(i as usize)).into_bytes()));
    names.extend((0..8).map(|i| tea_twin(32, i)));
    let versions = [HashVersion::Legacy, HashVersion::HalfMd4, HashVersion::Tea];
    // debugfs takes the unsigned forms by their number in memory only.
    let signs = [(Signedness::Signed, 0), (Signedness::Unsigned, 3)];
    let (mut script, mut expected) = (Vec::new(), Vec::new());
    for version in versions {
        for (sign, shift) in signs {
            for (seed, option) in [([0; 4], String::new()), (uuid_seed(), format!("-s {UUID}"))] {
                let hasher = Hasher::new(version, sign, seed);
                for name in &names {
                    let code = version.code() + shift;
                    script.extend(format!("dx_hash -h {code} {option} ").into_bytes());
                    script.extend(name);
                    script.push(b'\n');
                    expected.push((name, hasher.hash(name)));
                }
            }
        }
    }
    let path = scratch.file("script");
    std::fs::write(&path, script).unwrap();
    let (_, output) = run("debugfs", &["-f", path.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&output);
    let mut answers = text.lines().filter(|line| line.starts_with("Hash of "));
    for (name, hash) in &expected {
        let line = answers.next().expect("an answer for every name");
        let end = format!("is {:#x} (minor {:#x})", hash.major, hash.minor);
        assert!(line.contains(&end), "{name:?}: {line}, but expected {end}");
    }
    assert_eq!(answers.next(), None);
}

/// Names of every character that folds, and random ones of all planes.
fn names_to_fold() -> Vec<Vec<u8>> {
    let wanted = |c: &char| if c.is_ascii() { c.is_ascii_alphanumeric() } else { !c.is_whitespace() };
    let folds = |c: &char| c.to_lowercase().next() != Some(*c);
    let mut names: Vec<Vec<u8>> = (0x80..0x11_0000)
        .filter_map(char::from_u32)
        .filter(|c| folds(c) || u32::from(*c) < 0x3200 || u32::from(*c) % 97 == 0)
        .filter(wanted)
        .map(|c| format!("X{c}\u{301}Y").into_bytes())
        .collect();
    let mut seed = 5_u64;
    let mut next = |below: u32| {
        seed = hectare_units::random::mixed(seed.wrapping_add(hectare_units::random::STEP));
        hectare_units::low32(seed >> 32) % below
    };
    for _ in 0..3000 {
        let mut name = String::from("n");
        for _ in 0..next(12) {
            let c = match next(5) {
                0 => 0x300 + next(0x70),
                1 => 0x591 + next(0x37),
                2 => 0x41 + next(0x500),
                3 => 0x1e00 + next(0x200),
                _ => next(0x2_0000),
            };
            name.extend(char::from_u32(c).filter(wanted));
        }
        names.push(name.into_bytes());
    }
    names
}

#[test]
fn hashes_of_folded_names_are_those_of_debugfs() {
    if !have("hashes_of_folded_names_are_those_of_debugfs", &["debugfs"]) {
        return;
    }
    let scratch = Scratch::new("folded");
    let (names, mut script) = (names_to_fold(), Vec::new());
    for name in &names {
        script.extend(b"dx_hash -h half_md4 -c -e utf8 ");
        script.extend(name);
        script.push(b'\n');
    }
    let path = scratch.file("script");
    std::fs::write(&path, script).unwrap();
    let (_, output) = run("debugfs", &["-f", path.to_str().unwrap()]);
    let answers: Vec<&[u8]> =
        output.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"Hash of ")).collect();
    assert_eq!(answers.len(), names.len());
    let hasher = Hasher::new(HashVersion::HalfMd4, Signedness::Signed, [0; 4]).with_folding(true);
    let mut wrong = Vec::new();
    for (name, answer) in names.iter().zip(answers) {
        let (hash, text) = (hasher.hash(name), String::from_utf8_lossy(answer));
        if !text.ends_with(&format!("is {:#x} (minor {:#x})", hash.major, hash.minor)) {
            wrong.push(String::from_utf8_lossy(name).escape_unicode().to_string());
        }
    }
    let (some, all) = (&wrong[..wrong.len().min(40)], names.len());
    assert!(all > 10_000 && wrong.is_empty(), "{} of {all}: {some:?}", wrong.len());
}

/// An image whose directory `d` consists of given blocks, made by debugfs alone: the blocks are written as a
/// regular file, which then becomes a directory. All names lead to a few empty files of many links.
pub(super) struct Planted<'a> {
    pub(super) scratch: &'a Scratch,
    pub(super) format: Format,
    pub(super) features: &'a str,
    pub(super) size_mib: u32,
}

/// Links one target file gets; ext4 allows 65000.
const LINKS: usize = 60_000;
const FIRST_INODE: u32 = 12;

impl Planted<'_> {
    pub(super) fn image(&self) -> PathBuf {
        self.scratch.file("image")
    }

    fn targets(names: usize) -> usize {
        names.div_ceil(LINKS)
    }

    /// The inode the directory will have.
    pub(super) fn own(names: usize) -> InodeNr {
        InodeNr::new(FIRST_INODE + u32::try_from(Self::targets(names)).unwrap())
    }

    /// The entries for `names`.
    pub(super) fn entries(names: &[Vec<u8>]) -> Vec<Entry<'_>> {
        let inode = |i: usize| FIRST_INODE + u32::try_from(i / LINKS).unwrap();
        names.iter().enumerate().map(|(i, name)| entry(name, inode(i))).collect()
    }

    /// The seed of the directory's checksums.
    pub(super) fn seed(names: usize) -> Option<Seed> {
        Some(Seed::of_uuid(&UUID_BYTES).inode(Self::own(names), 0))
    }

    /// Makes the image and lets e2fsck judge it.
    pub(super) fn plant(&self, names: usize, built: &Built) {
        let (image, blocks, empty) = (self.image(), self.scratch.file("blocks"), self.scratch.file("empty"));
        let image = image.to_str().unwrap();
        _ = std::fs::remove_file(image);
        std::fs::write(&blocks, &built.blocks).unwrap();
        std::fs::write(&empty, []).unwrap();
        let (ok, output) = run(
            "mke2fs",
            &[
                ["-q", "-F", "-t", "ext4", "-U", UUID, "-O", self.features].as_slice(),
                &["-b", &self.format.block_size.to_string(), "-E", &format!("hash_seed={UUID}")],
                &[image, &format!("{}m", self.size_mib)],
            ]
            .concat(),
        );
        assert!(ok, "{}", String::from_utf8_lossy(&output));
        let script = self.scratch.file("script");
        std::fs::write(&script, self.script(names, built, &blocks, &empty)).unwrap();
        run("debugfs", &["-w", "-f", script.to_str().unwrap(), image]);
        self.fsck();
    }

    fn script(&self, names: usize, built: &Built, blocks: &Path, empty: &Path) -> String {
        let own = Self::own(names);
        let mut script = String::new();
        let mut say = |line: String| writeln!(script, "{line}").unwrap();
        if self.format.hash_signedness == Signedness::Unsigned {
            say("ssv flags 2".into());
        }
        for i in 0..Self::targets(names) {
            say(format!("write {} t{i}", empty.display()));
            // debugfs made the first link, in the root.
            say(format!("sif t{i} links_count {}", 1 + LINKS.min(names - i * LINKS)));
        }
        say(format!("write {} d", blocks.display()));
        say("sif d mode 040755".into());
        say("sif d links_count 2".into());
        say(format!("sif d flags {:#x}", 0x8_0000 + if built.indexed { 0x1000 } else { 0 }));
        say("unlink d".into());
        say(format!("ln <{own}> d"));
        say("sif <2> links_count 4".into());
        say("set_bg 0 used_dirs_count 3".into());
        say("set_bg 0 checksum calc".into());
        script
    }

    pub(super) fn fsck(&self) {
        let (ok, output) = run("e2fsck", &["-fn", self.image().to_str().unwrap()]);
        assert!(ok, "{}", String::from_utf8_lossy(&output));
    }
}

pub(super) const CHECKSUMS: &str = "^has_journal,^resize_inode,metadata_csum,large_dir";
const PLAIN: &str = "^has_journal,^resize_inode,^metadata_csum,large_dir";

pub(super) fn oracle_format(block_size: u64, checksums: bool, hash_version: HashVersion) -> Format {
    Format { hash_version, hash_seed: uuid_seed(), ..format(block_size, checksums, true) }
}

fn inserted(names: &[Vec<u8>], format: &Format) -> Built {
    let mut store = VecStore::new(format);
    let own = Planted::own(names.len());
    store
        .edit(hectare_units::LogicalBlock::ZERO, |block| leaf::init_dots(block, format, own, PARENT))
        .unwrap();
    for entry in Planted::entries(names) {
        assert_eq!(insert(&mut store, format, &entry).unwrap(), Insert::Done);
    }
    Built {
        blocks: store.sealed(format, Planted::seed(names.len()).filter(|_| format.checksums)),
        indexed: store.indexed,
    }
}

fn built(names: &[Vec<u8>], format: &Format) -> Built {
    let seed = Planted::seed(names.len()).filter(|_| format.checksums);
    let own = Planted::own(names.len());
    build(&Planted::entries(names), own, PARENT, format, seed, Fill::DEFAULT).unwrap()
}

pub(super) fn plain_names(count: usize, len: usize) -> Vec<Vec<u8>> {
    (0..count).map(|i| format!("{i:0len$}").into_bytes()).collect()
}

#[test]
fn e2fsck_finds_our_directories_clean() {
    if !have("e2fsck_finds_our_directories_clean", &["mke2fs", "debugfs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("clean");
    let mixed: Vec<Vec<u8>> = (0..900u32)
        .flat_map(|i| [tea_twin(80, i), format!("n{i}").into_bytes(), vec![0xc3; 1 + i as usize % 3]])
        .collect();
    let mixed: Vec<Vec<u8>> =
        mixed.into_iter().collect::<std::collections::BTreeSet<_>>().into_iter().collect();
    let high: Vec<Vec<u8>> = plain_names(2000, 9)
        .into_iter()
        .map(|name| name.into_iter().map(|byte| byte.wrapping_mul(5) | 0x80).collect())
        .collect();
    let cases = [
        (1024, true, HashVersion::HalfMd4, plain_names(10, 10), 16, "one block"),
        (1024, true, HashVersion::HalfMd4, plain_names(20_000, 20), 32, "two levels"),
        (1024, false, HashVersion::Legacy, plain_names(3_000, 120), 32, "legacy, no checksums"),
        (1024, true, HashVersion::HalfMd4, high.clone(), 32, "bytes above 0x7f"),
        (1024, true, HashVersion::Legacy, high, 32, "bytes above 0x7f"),
        (1024, true, HashVersion::Tea, mixed.clone(), 32, "collisions"),
        (4096, true, HashVersion::Tea, mixed, 32, "collisions"),
        (4096, true, HashVersion::HalfMd4, plain_names(60_000, 40), 32, "two levels"),
        (65536, true, HashVersion::HalfMd4, plain_names(20_000, 30), 64, "large blocks"),
        (1024, true, HashVersion::HalfMd4, plain_names(100_000, 200), 128, "three levels"),
    ];
    for (block_size, checksums, version, names, size_mib, what) in cases {
        for signedness in [Signedness::Signed, Signedness::Unsigned] {
            let format =
                Format { hash_signedness: signedness, ..oracle_format(block_size, checksums, version) };
            let features = if checksums { CHECKSUMS } else { PLAIN };
            let planted = Planted { scratch: &scratch, format, features, size_mib };
            for (how, built) in [("inserted", inserted(&names, &format)), ("built", built(&names, &format))] {
                eprintln!("{what}: {block_size}, {how}, {signedness:?}: {} bytes", built.blocks.len());
                planted.plant(names.len(), &built);
            }
        }
    }
}

/// The check above must be able to fail.
#[test]
fn e2fsck_sees_a_misplaced_name() {
    if !have("e2fsck_sees_a_misplaced_name", &["mke2fs", "debugfs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("misplaced");
    let format = oracle_format(1024, true, HashVersion::HalfMd4);
    let names = plain_names(1000, 30);
    let other_seed = Format { hash_seed: [1, 2, 3, 4], ..format };
    let planted = Planted { scratch: &scratch, format, features: CHECKSUMS, size_mib: 16 };
    let built = built(&names, &other_seed);
    let judged =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| planted.plant(names.len(), &built)));
    assert!(judged.is_err(), "e2fsck should see that the hashes are those of another seed");
}
