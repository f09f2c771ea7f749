//! How much comes out of damaged volumes:
//! `cargo hunt salvage [--runs N] [--files N] [--seed N] [--release | --binary FILE]`.
//!
//! Volumes of six kinds with thousands of files are damaged at random, and read in three ways: by `hectare
//! salvage`, by `debugfs -c -R rdump`, and by `e2fsck -fy` and rdump. A file counts if its content came out
//! whole, wherever it went. The table says how many, in per mille; the job fails if ours is the lowest in
//! sum, or if ours ends otherwise than with 0 or 1.
//!
//! Then files that were removed, by the kernel and by a mount of ours, on ext3 and ext4, are looked for with
//! `hectare salvage --deleted`. At least nine of ten must come back: their inodes are in the log as they
//! were.
//!
//! Every sector of a file's content begins with a mark, so that metadata is what has none: this job knows
//! nothing else of the format. Damages depend on the seed only.

use hectare_oracle::{KernelMount, tool};
use hectare_tools::built::built;
use hectare_tools::ended::{Ended, Exit};
use hectare_tools::job_folder::{Scratch, leave_nothing};
use hectare_tools::steps::{parsed, understood};
use std::collections::HashSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const USAGE: &str = "usage: cargo hunt salvage [--runs N] [--files N] [--seed N] [--release | --binary FILE]";
/// Begins every sector of a file.
const MARK: &[u8; 8] = b"content\n";
const SECTOR: usize = 512;
/// Runs a tool for a minute at most; a damaged size must not fill the disk.
const BOUNDED: &str = "ulimit -f 131072; exec timeout 60 \"$0\" \"$@\"";

/// The kinds of volumes: a name, and arguments of mke2fs.
const KINDS: [(&str, &[&str]); 6] = [
    ("ext2", &["-t", "ext2", "-b", "4096"]),
    ("ext3", &["-t", "ext3", "-b", "4096"]),
    ("ext4", &["-t", "ext4", "-b", "4096"]),
    ("inline_data", &["-t", "ext4", "-b", "4096", "-O", "inline_data"]),
    ("bigalloc", &["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "16384"]),
    ("1K blocks", &["-t", "ext4", "-b", "1024"]),
];

/// What is done to a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Damage {
    /// One byte in each of 20 blocks of metadata.
    Bytes,
    /// 16 sectors of metadata are zero.
    Sectors,
    /// 4 blocks of metadata are zero.
    ZeroBlocks,
    /// 4 blocks of metadata hold anything.
    RandomBlocks,
    /// 128 KiB of the first quarter hold anything.
    Run,
}

impl Damage {
    /// That of a run: all in turn, beginning with another for each seed.
    fn of(seed: u64, run: u64) -> Self {
        let all = [Self::Bytes, Self::Sectors, Self::ZeroBlocks, Self::RandomBlocks, Self::Run];
        all[hectare_units::index_of(seed.wrapping_add(run) % 5)]
    }
}

const WAYS: [&str; 3] = ["hectare salvage", "debugfs rdump", "e2fsck -fy, rdump"];

#[derive(Clone, PartialEq, Debug)]
struct Options {
    /// Damages of each volume.
    runs: u64,
    files: u64,
    seed: u64,
    release: bool,
    /// The program; built if not given.
    binary: Option<PathBuf>,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Self { runs: 50, files: 2000, seed: 1, release: false, binary: None };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().copied().ok_or(format!("{word} needs a value"));
            match *word {
                "--runs" => options.runs = parsed(word, value()?)?,
                "--files" => options.files = parsed(word, value()?)?,
                "--seed" => options.seed = parsed(word, value()?)?,
                "--release" => options.release = true,
                "--binary" => options.binary = Some(value()?.into()),
                other => return Err(format!("{other} is no option")),
            }
        }
        Ok(options)
    }
}

/// Runs the job with its arguments; it ends well if ours was not the lowest in sum.
pub(crate) fn run(words: &[&str]) -> Exit {
    let Some(options) = understood(Options::parse(words), USAGE) else { return Exit::Usage };
    let program = options.binary.clone().or_else(|| built(options.release));
    let Some(program) = program else { return Exit::NotHere };
    let result = compare(&options, &program).and_then(|()| undelete(&options, &program));
    leave_nothing();
    Exit::of(&format!("salvage --seed {}", options.seed), result)
}

/// Draws numbers that depend on a seed only.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(hectare_units::random::STEP);
        hectare_units::random::mixed(self.0)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).take(len).collect()
    }
}

fn compare(options: &Options, program: &Path) -> Result<(), Ended> {
    let scratch = Scratch::new(Path::new("/dev/shm"), "hectare-salvage")?;
    let folder = scratch.path();
    let source = folder.join("source");
    let originals = make_tree(&source, options)?;
    println!("| volume | damages | {} |", WAYS.join(" | "));
    println!("|---|---|{}", "---|".repeat(WAYS.len()));
    let mut sums = [0_u64; 3];
    for (nr, (kind, arguments)) in (0_u64..).zip(KINDS) {
        let whole = folder.join("whole.img");
        make_volume(&whole, &source, arguments)?;
        let mut found = [0_u64; 3];
        for run in 0..options.runs {
            let mut random = Draws(options.seed ^ (nr << 32) ^ (run << 40));
            let damaged = folder.join("damaged.img");
            copy_sparse(&whole, &damaged)?;
            let kind_of = Damage::of(options.seed, run);
            damage(&damaged, &mut random, kind_of)?;
            let counts = read_three_ways(folder, program, &damaged, &originals)?;
            if counts[0] < counts[1].max(counts[2]) {
                eprintln!("{kind}, run {run} ({kind_of:?}): {counts:?} of {}", originals.len());
            }
            (0..3).for_each(|way| found[way] += counts[way]);
        }
        let all = (hectare_units::u64_of(originals.len()) * options.runs).max(1);
        let cells: Vec<String> = found.iter().map(|count| format!("{}", count * 1000 / all)).collect();
        println!("| {kind} | {} | {} |", options.runs, cells.join(" | "));
        (0..3).for_each(|way| sums[way] += found[way]);
    }
    let all = (hectare_units::u64_of(originals.len() * KINDS.len()) * options.runs).max(1);
    let cells: Vec<String> = sums.iter().map(|count| format!("{}", count * 1000 / all)).collect();
    println!("| all | {} | {} |", options.runs * 6, cells.join(" | "));
    match sums[0] < sums[1] || sums[0] < sums[2] {
        true => Err("another way brings more out".to_owned().into()),
        false => Ok(()),
    }
}

/// Removes files, and counts what comes back.
fn undelete(options: &Options, program: &Path) -> Result<(), Ended> {
    let scratch = Scratch::new(Path::new("/dev/shm"), "hectare-undelete")?;
    let folder = scratch.path();
    let (source, image) = (folder.join("source"), folder.join("disk.img"));
    let (mounted, out) = (folder.join("mounted"), folder.join("out"));
    let originals = make_tree(&source, &Options { files: options.files / 2, ..options.clone() })?;
    fs::create_dir(&mounted).map_err(told)?;
    println!("\n| volume | removed by | files | whole |\n|---|---|---|---|");
    for (kind, by_kernel) in [("ext3", true), ("ext4", true), ("ext3", false), ("ext4", false)] {
        let _ = fs::remove_dir_all(&out);
        done(tool::need("mke2fs")?.args(["-q", "-F", "-t", kind]).arg(&image).arg("256M"))?;
        if by_kernel {
            let mount = KernelMount::new(&image, "")?;
            copy_and_remove(&source, mount.path())?;
            mount.unmount();
        } else {
            // What fails before it is unmounted leaves it to the end of `scratch`.
            done(Command::new(program).arg("mount").args([&image, &mounted]))?;
            copy_and_remove(&source, &mounted)?;
            done(Command::new(program).arg("umount").arg(&mounted))?;
        }
        let mut ours = bounded(program);
        salvaged(ours.args(["salvage", "--deleted"]).arg(&image).arg("-o").arg(&out))?;
        let mut found = HashSet::new();
        walk(&out, &mut found)?;
        let whole = found.intersection(&originals).count();
        let by = if by_kernel { "the kernel" } else { "a mount of ours" };
        println!("| {kind} | {by} | {} | {whole} |", originals.len());
        if whole < originals.len() / 10 * 9 {
            return Err(format!("{kind}, removed by {by}: {whole} of {} came back", originals.len()).into());
        }
    }
    Ok(())
}

/// Copies a directory into a volume, syncs it, and removes it there.
fn copy_and_remove(source: &Path, volume: &Path) -> Result<(), String> {
    done(Command::new("cp").arg("-r").args([source, volume]))?;
    let synced = fs::File::open(volume).map_err(told)?;
    rustix::fs::syncfs(synced).map_err(|error| error.to_string())?;
    fs::remove_dir_all(volume.join("source")).map_err(told)
}

/// Runs `hectare salvage`, which must end by itself, and say no more than that something is missing.
fn salvaged(command: &mut Command) -> Result<(), String> {
    match quiet(command)? {
        Some(0 | 1) => Ok(()),
        code => Err(format!("{} ended with {code:?}", tool::line_of(command))),
    }
}

/// Runs another program, which may fail, or take too long, but must be there.
fn tried(command: &mut Command) -> Result<(), Ended> {
    match quiet(command)? {
        Some(126 | 127) => Err(Ended::Skipped(format!("{} can't be run", tool::line_of(command)))),
        _ => Ok(()),
    }
}

/// Runs a program that must succeed.
fn done(command: &mut Command) -> Result<(), String> {
    match quiet(command)? {
        Some(0) => Ok(()),
        code => Err(format!("{} ended with {code:?}", tool::line_of(command))),
    }
}

/// Makes the files, in directories of 50; returns the hashes of their content.
fn make_tree(source: &Path, options: &Options) -> Result<HashSet<u64>, String> {
    let mut random = Draws(options.seed);
    let mut hashes = HashSet::new();
    for nr in 0..options.files {
        let dir = source.join(format!("dir{}/sub{}", nr / 250, nr / 50));
        fs::create_dir_all(&dir).map_err(told)?;
        // Most files are small; some have a map of several nodes.
        let len = match nr % 20 {
            0 => random.below(200_000),
            1..6 => 9 + random.below(100),
            _ => random.below(20_000) + 9,
        };
        let mut content = random.bytes(hectare_units::index_of(len));
        for sector in content.chunks_mut(SECTOR) {
            let mark = sector.len().min(MARK.len());
            sector[..mark].copy_from_slice(&MARK[..mark]);
        }
        hashes.insert(hash(&content));
        fs::write(dir.join(format!("file {nr}")), content).map_err(told)?;
    }
    Ok(hashes)
}

fn make_volume(image: &Path, source: &Path, arguments: &[&str]) -> Result<(), Ended> {
    let _ = fs::remove_file(image);
    let mut command = tool::need("mke2fs")?;
    command.args(["-q", "-F", "-d"]).arg(source).args(arguments).arg(image).arg("96M");
    Ok(done(&mut command)?)
}

fn copy_sparse(from: &Path, to: &Path) -> Result<(), String> {
    let mut command = Command::new("cp");
    done(command.arg("--sparse=always").args([from, to]))
}

/// Damages a volume.
fn damage(image: &Path, random: &mut Draws, damage: Damage) -> Result<(), String> {
    let bytes = fs::read(image).map_err(told)?;
    let file = fs::File::options().write(true).open(image).map_err(told)?;
    let write = |at: usize, bytes: &[u8]| file.write_all_at(bytes, hectare_units::u64_of(at)).map_err(told);
    // Sectors in use that are no content.
    let metadata: Vec<usize> = bytes
        .chunks(SECTOR)
        .enumerate()
        .filter(|(_, sector)| !sector.starts_with(MARK) && sector.iter().any(|byte| *byte != 0))
        .map(|(nr, _)| nr * SECTOR)
        .collect();
    let any = |random: &mut Draws| {
        metadata[hectare_units::index_of(random.below(hectare_units::u64_of(metadata.len())))]
    };
    match damage {
        Damage::Bytes => {
            for _ in 0..20 {
                let at = any(random) + hectare_units::index_of(random.below(512));
                write(at, &[bytes[at] ^ hectare_units::low8(1 + random.below(255))])?;
            }
        }
        Damage::Sectors => (0..16).try_for_each(|_| write(any(random), &[0; SECTOR]))?,
        Damage::ZeroBlocks => (0..4).try_for_each(|_| write(any(random) / 4096 * 4096, &[0; 4096]))?,
        Damage::RandomBlocks => {
            for _ in 0..4 {
                write(any(random) / 4096 * 4096, &random.bytes(4096))?;
            }
        }
        Damage::Run => {
            let at = random.below(hectare_units::u64_of(bytes.len()) / 4 / 4096) * 4096;
            write(hectare_units::index_of(at), &random.bytes(128 << 10))?;
        }
    }
    Ok(())
}

/// How many contents come out each way.
fn read_three_ways(
    folder: &Path,
    program: &Path,
    image: &Path,
    originals: &HashSet<u64>,
) -> Result<[u64; 3], Ended> {
    let mut counts = [0; 3];
    let outs: Vec<PathBuf> = (0..3).map(|way| folder.join(format!("out{way}"))).collect();
    for out in &outs {
        let _ = fs::remove_dir_all(out);
        fs::create_dir(out).map_err(told)?;
    }
    // What it makes is sparse.
    let mut ours = tool::need("timeout")?;
    salvaged(ours.arg("60").arg(program).arg("salvage").arg(image).arg("-o").arg(&outs[0]))?;
    let path = |name: &str| tool::need(name).map(|found| PathBuf::from(found.get_program()));
    let rdump = |flag: &[&str], out: &Path| -> Result<(), Ended> {
        let mut command = bounded(&path("debugfs")?);
        command.args(flag);
        command.arg("-R").arg(format!("rdump / {}", out.display())).arg(image);
        tried(&mut command)
    };
    rdump(&["-c"], &outs[1])?;
    tried(bounded(&path("e2fsck")?).arg("-fy").arg(image))?;
    rdump(&[], &outs[2])?;
    for (count, out) in counts.iter_mut().zip(&outs) {
        let mut found = HashSet::new();
        walk(out, &mut found)?;
        *count = hectare_units::u64_of(found.intersection(originals).count());
        fs::remove_dir_all(out).map_err(told)?;
    }
    Ok(counts)
}

fn bounded(program: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", BOUNDED]).arg(program);
    command
}

fn walk(folder: &Path, found: &mut HashSet<u64>) -> Result<(), String> {
    for entry in fs::read_dir(folder).map_err(told)? {
        let entry = entry.map_err(told)?;
        let kind = entry.file_type().map_err(told)?;
        if kind.is_dir() {
            walk(&entry.path(), found)?;
        } else if kind.is_file() && entry.metadata().map_err(told)?.len() <= 1 << 24 {
            found.insert(hash(&fs::read(entry.path()).map_err(told)?));
        }
    }
    Ok(())
}

fn hash(content: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish()
}

fn quiet(command: &mut Command) -> Result<Option<i32>, String> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _ = std::io::stdout().flush();
    let status = command.status().map_err(|error| format!("{}: {error}", tool::line_of(command)))?;
    Ok(status.code())
}

#[allow(clippy::needless_pass_by_value)] // shaped for map_err
fn told(error: std::io::Error) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_run_has_another_damage_with_each_seed() {
        let first: HashSet<String> = (0..5).map(|seed| format!("{:?}", Damage::of(seed, 0))).collect();
        assert_eq!(first.len(), 5);
        assert_eq!(Damage::of(u64::MAX, 1), Damage::Bytes);
    }

    #[test]
    fn ours_must_end_by_itself_and_others_must_be_there() {
        let ended = |code: u8| {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("exit {code}")]);
            command
        };
        assert!([0, 1].iter().all(|code| salvaged(&mut ended(*code)).is_ok()));
        assert!([2, 101, 124].iter().all(|code| salvaged(&mut ended(*code)).is_err()));
        assert!(tried(&mut ended(124)).is_ok());
        assert!(matches!(tried(&mut ended(127)), Err(Ended::Skipped(_))));
    }
}
