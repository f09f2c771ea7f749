//! The same random operations by hectare.h on a volume and by POSIX on a directory of the host, both from one
//! C program: every result and every errno is the same, and e2fsck finds nothing at the end.
//!
//! A failure names the seed, the operation and its number; the operations before it are those of the seed.

use crate::installed::{Installed, compilers, here};
use hectare_oracle::{hunt, is_root, skip_part};
use hectare_units::random::SplitMix64;
use std::path::Path;

/// Relative, so that they mean the same below the host's directory; no link leads out of it.
const PATHS: [&str; 20] = [
    "a", "b", "c", "d", "d/a", "d/b", "d/e", "d/e/f", "d/e/../a", "./a", "l", "d/l", "l/a", "a/x", "x/y/z",
    "d//e", "d/", "a/", "l/", "e/.",
];
const TARGETS: [&str; 6] = ["a", "d", "d/e", "./e/../a", "nowhere", "l"];
const XATTRS: [&str; 4] = ["user.a", "user.bb", "user.ccc", "nothing"];
/// What hectare_file_open() and open(2) both have a meaning for: sums of the constants in hectare.h.
const FLAGS: [u32; 10] = [1, 2, 3, 6, 7, 14, 15, 18, 19, 23];

/// Where operations are drawn from.
struct Draw {
    random: SplitMix64,
    xattrs: bool,
    owners: bool,
}

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.random.draw() % end
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len() as u64)).unwrap()]
    }

    fn path(&mut self) -> String {
        match self.below(60) {
            0 => "n".repeat(256),
            1 => "m".repeat(255),
            _ => self.one(&PATHS).to_owned(),
        }
    }

    /// Lengths around the boundaries of blocks.
    fn len(&mut self) -> u64 {
        match self.below(4) {
            0 => self.below(20),
            1 => 4095 + self.below(3),
            2 => self.below(5000),
            _ => self.below(60_000),
        }
    }

    fn line(&mut self) -> String {
        let (a, slot, at) = (self.path(), self.below(8), self.below(300_000));
        let (len, seed, mode) = (self.len(), self.below(1 << 32), self.below(0o1000));
        match self.below(32) {
            0..4 => format!("open {slot} {a} {} {mode}", self.one(&FLAGS)),
            4 => format!("close {slot}"),
            5..7 => format!("read {slot} {len} {at}"),
            7..10 => format!("write {slot} {len} {at} {seed}"),
            10 => format!("truncate {slot} {at}"),
            11 => format!("allocate {slot} {at} {len}"),
            12 => format!("punch {slot} {at} {len}"),
            13 => format!("{} {slot}", self.one(&["sync", "fstat", "fstat"])),
            14 => format!("content {a}"),
            15 => format!("{} {a}", self.one(&["stat", "lstat"])),
            16 => {
                let (seconds, nanoseconds) = (self.below(1 << 33), self.below(1_000_000_000));
                format!("utimes {a} {seconds} {nanoseconds} {}", self.below(2))
            }
            17..19 => format!("mkdir {a} {mode}"),
            19 => format!("unlink {a}"),
            20 => format!("rmdir {a}"),
            21 => format!("rename {a} {}", self.one(&PATHS)),
            22 => format!("rename {a} {} {}", self.one(&PATHS), self.below(3)),
            23 => format!("link {a} {}", self.one(&PATHS)),
            24 => format!("symlink {} {a}", self.one(&TARGETS)),
            25 => format!("readlink {a}"),
            26 => format!("chmod {a} {mode}"),
            27 if self.owners => {
                format!("chown {a} {} {} {}", self.below(1 << 31), self.below(1 << 31), self.below(2))
            }
            28 if self.xattrs => format!("setxattr {a} {} {} {seed}", self.one(&XATTRS), len % 100),
            29 if self.xattrs => format!("getxattr {a} {} {}", self.one(&XATTRS), 50 + len % 900),
            30 if self.xattrs => format!("removexattr {a} {}", self.one(&XATTRS)),
            27..31 => format!("list {a}"),
            _ => "list .".to_owned(),
        }
    }
}

/// `count` operations, and all that there is at the end.
fn operations(seed: u64, count: usize, xattrs: bool) -> Vec<String> {
    let mut draw = Draw { random: SplitMix64::new(seed), xattrs, owners: is_root() };
    let mut lines: Vec<String> = (0..count).map(|_| draw.line()).collect();
    lines.push("tree .".to_owned());
    lines
}

/// Whether the file system below a directory has attributes of users, as a volume does.
fn has_xattrs(folder: &Path) -> bool {
    let done = rustix::fs::setxattr(folder, "user.test", b"x", rustix::fs::XattrFlags::empty());
    done.is_ok() && rustix::fs::removexattr(folder, "user.test").is_ok()
}

/// One program for both sides, and their outputs compared.
fn same(installed: &Installed, compiler: &str, seed: u64, count: usize, watched: bool) {
    let source = here("tests/programs/operations.c");
    let inside = installed.compiled_as(compiler, &source, "operations", &[]);
    let outside = installed.compiled_as(compiler, &source, "operations-host", &["-DON_HOST"]);
    let name = |end: &str| installed.path(&format!("{compiler}-{seed}-{watched}.{end}"));
    let (image, host, input) = (name("img"), name("host"), name("operations"));
    hectare::mkfs::Format::new().create(&image, 64 << 20).unwrap();
    let volume = hectare::Volume::options().write(true).open(&image).unwrap();
    volume.remove_dir("lost+found").unwrap();
    volume.close().unwrap();
    std::fs::create_dir(&host).unwrap();
    let xattrs = has_xattrs(&host);
    if !xattrs {
        skip_part!("interface, operations on attributes", "the temporary directory has none");
    }
    let lines = operations(seed, count, xattrs);
    std::fs::write(&input, lines.join("\n") + "\n").unwrap();
    let expected = installed.run_on(&outside, &[host.to_str().unwrap()], &input);
    let words = [image.to_str().unwrap()];
    let found = match watched {
        true => installed.run_watched_on(&inside, &words, &input),
        false => installed.run_on(&inside, &words, &input),
    };
    let pairs = lines.iter().zip(expected.lines().zip(found.lines())).enumerate();
    for (number, (line, (expected, found))) in pairs {
        assert_eq!(found, expected, "seed {seed}, operation {number}: {line}");
    }
    assert!(found == expected && lines.len() <= found.lines().count() + 1, "seed {seed}: at the end");
    hectare_oracle::assert_clean(&image).unwrap_or_else(|reason| skip_part!("interface, e2fsck", reason));
    std::fs::remove_file(&image).unwrap();
    std::fs::remove_dir_all(&host).unwrap();
}

#[test]
fn random_operations_give_what_they_give_on_the_host() {
    let installed = Installed::new();
    let long = hunt::is_long();
    for compiler in compilers() {
        for seed in 1..=if long { 50 } else { 1 } {
            same(&installed, compiler, seed, 10_000, false);
        }
        same(&installed, compiler, 77, if long { 5_000 } else { 600 }, true);
    }
}
