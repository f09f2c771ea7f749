//! Comparison of checkers, `hectare check` against `e2fsck -fn`: `cargo benchmark check [--only NAME]
//! [--pairs N] [--quick] [--binary FILE] [--json FILE] [--list]`.
//!
//! | case | volume |
//! |---|---|
//! | `million-files` | 4 KiB blocks, inodes of 256 bytes, 10^6 files of one block, 500 to a directory |
//! | `small-inodes` | 1 KiB blocks, inodes of 128 bytes, 10^7 files, 2,000 to a directory; one in 16 has a block |
//!
//! The volumes are sound, and are made by `hectare build` from an archive that this job writes. In each round
//! three run in turn: ours with one thread on one processor and with two on two, and e2fsck on one, which has
//! no threads. The order alternates.
//!
//! Hazards: needs 5 GiB in `/dev/shm`. The processor time of a run is of whole clock ticks (10 ms).

use super::figures::shown;
use super::rounds::{Outcome, Runs, Sides, Step, is_wanted, memory, verdict};
use hectare_oracle::tool;
use hectare_oracle::tool::line_of;
use hectare_tools::job_folder::Scratch;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};

const NAME: &str = "hectare-bench-check";
/// How many times faster than e2fsck two threads are claimed to be, and one.
const TIMES: [f64; 2] = [5.0, 1.0];

/// A volume.
pub(super) struct Case {
    pub(super) name: &'static str,
    /// What `hectare build` is asked for.
    words: &'static [&'static str],
    files: u32,
    /// Files of a directory.
    together: u32,
    /// One file in so many has content.
    filled: u32,
}

pub(super) const CASES: [Case; 2] = [
    Case { name: "million-files", words: &["--size", "min"], files: 1_000_000, together: 500, filled: 1 },
    Case {
        name: "small-inodes",
        words: &["-b", "1024", "-I", "128", "-i", "1024", "--size", "11G"],
        files: 10_000_000,
        together: 2000,
        filled: 16,
    },
];

/// Who checks.
const SIDES: Sides = Sides {
    titles: ["hectare, 2 threads", "hectare, 1 thread", "e2fsck -fn"],
    peer: 2,
    headings: ["volume", "times as fast"],
};

/// Checks of an image.
struct Checks<'a> {
    binary: &'a Path,
    image: &'a Path,
}

impl Step for Checks<'_> {
    fn command(&mut self, side: usize) -> Result<Command, String> {
        let mut command = tool("taskset").ok_or("taskset is not installed")?;
        command.args(["-c", if side == 0 { "0,1" } else { "0" }]);
        match side {
            0 => command.arg(self.binary).args(["check", "--threads", "2"]),
            1 => command.arg(self.binary).args(["check", "--threads", "1"]),
            _ => command.args(["e2fsck", "-fn"]),
        };
        command.arg(self.image).stderr(Stdio::null());
        Ok(command)
    }

    fn after(&mut self, _: usize) -> Result<String, String> {
        Ok(String::new())
    }
}

/// The names of all cases.
pub(super) fn list() {
    CASES.iter().for_each(|case| println!("{:<25} {} files", case.name, case.files));
}

/// Runs the job; returns whether everything ran and was as claimed.
pub(super) fn run(options: &super::Options, binary: &Path) -> bool {
    let mut outcome = Outcome::new(&SIDES);
    for case in CASES.iter().filter(|case| is_wanted(options, case.name)) {
        let judged = |runs: &Runs, text: &mut String| options.quick || judge(case, runs, text);
        outcome.take(case.name, rounds(case, options, binary), judged);
    }
    outcome.finish(options)
}

/// All runs on a volume, by side.
fn rounds(case: &Case, options: &super::Options, binary: &Path) -> Result<Runs, String> {
    let scratch = Scratch::new(Path::new("/dev/shm"), NAME)?;
    let image = scratch.path().join("image");
    eprintln!("{}: making the volume", case.name);
    make(case, options.quick, binary, &image)?;
    SIDES.rounds(options.pairs, &image, &mut Checks { binary, image: &image })
}

/// Makes a volume.
fn make(case: &Case, quick: bool, binary: &Path, image: &Path) -> Result<(), String> {
    let mut command = Command::new(binary);
    command.args(["build", "--from", "-", "-t", "ext4"]).args(case.words).arg(image);
    command.env("SOURCE_DATE_EPOCH", "1700000000").stdin(Stdio::piped()).stdout(Stdio::null());
    let line = line_of(&command);
    let failed = |error: io::Error| format!("{line}: {error}");
    let mut child = command.spawn().map_err(failed)?;
    let archive = child.stdin.take().ok_or("no pipe to the archive's reader")?;
    let files = if quick { case.files / 100 } else { case.files };
    let written = write_archive(case, files, &mut BufWriter::new(archive));
    let status = child.wait().map_err(failed)?;
    if !status.success() {
        return Err(format!("{line}: {status}"));
    }
    written.map_err(failed)
}

/// Directories of directories of files.
fn write_archive(case: &Case, files: u32, out: &mut impl Write) -> io::Result<()> {
    for nr in 0..files {
        let directory = nr / case.together;
        let upper = directory / 64;
        if nr.is_multiple_of(case.together) {
            if directory.is_multiple_of(64) {
                out.write_all(&header(&format!("d{upper:03}/"), 0))?;
            }
            out.write_all(&header(&format!("d{upper:03}/{directory:05}/"), 0))?;
        }
        let name = format!("d{upper:03}/{directory:05}/f{nr:07}");
        if nr.is_multiple_of(case.filled) {
            let content = format!("{nr:0200}");
            out.write_all(&header(&name, content.len()))?;
            out.write_all(content.as_bytes())?;
            out.write_all(&[0; 512][content.len()..])?;
        } else {
            out.write_all(&header(&name, 0))?;
        }
    }
    out.write_all(&[0; 1024])?;
    out.flush()
}

/// A header of a tar archive: of a directory if the name ends in a slash, else of a file.
fn header(name: &str, size: usize) -> [u8; 512] {
    let is_directory = name.ends_with('/');
    let mut header = [0; 512];
    let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, if is_directory { "0000755" } else { "0000644" });
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{size:011o}"));
    put(136, "14500000000");
    // The sum is of the header with spaces in its place.
    put(148, "        ");
    put(156, if is_directory { "5" } else { "0" });
    put(257, "ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    header
}

/// Prints the claims, and says whether all are met.
fn judge(case: &Case, runs: &Runs, text: &mut String) -> bool {
    let mut good = true;
    for (side, claimed) in TIMES.into_iter().enumerate() {
        let (name, title) = (case.name, SIDES.titles[side]);
        let times = SIDES.median_times(runs, side);
        let less = memory(&runs[side]).zip(memory(&runs[2])).is_some_and(|(ours, theirs)| ours <= theirs);
        let faster = format!("at least {claimed} times as fast as e2fsck: {}", shown(times));
        good &= verdict(text, times >= claimed, &format!("{name}, {title}: {faster}"));
        good &= verdict(text, less, &format!("{name}, {title}: at most the memory of e2fsck"));
    }
    good
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::mkfs::measure::Figures;

    #[test]
    fn an_archive_has_a_header_for_each_file_and_directory() {
        let case = Case { name: "", words: &[], files: 0, together: 2, filled: 3 };
        let mut archive = Vec::new();
        write_archive(&case, 5, &mut archive).unwrap();
        // One directory, three below it, five files, the content of two, and the end.
        assert_eq!(archive.len(), 512 * (1 + 3 + 5 + 2 + 2));
        let sum = |header: &[u8]| -> u32 {
            header
                .iter()
                .enumerate()
                .map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u32::from(*byte) })
                .sum()
        };
        let stored = std::str::from_utf8(&archive[148..154]).unwrap();
        assert_eq!(u32::from_str_radix(stored, 8).unwrap(), sum(&archive[..512]));
        assert!(archive.starts_with(b"d000/\0"));
    }

    #[test]
    fn claims_are_of_pairs_and_memory() {
        let run = |seconds: f64, mib: f64| {
            vec![Figures {
                seconds,
                cpu: seconds,
                memory_mib: Some(mib),
                written: 0.0,
                writes: 0.0,
                taken: 0.0,
            }]
        };
        let judged = |runs: [Vec<Figures>; 3]| {
            let mut text = String::new();
            judge(&CASES[0], &runs, &mut text);
            text.matches("MISSED").count()
        };
        assert_eq!(judged([run(1.0, 5.0), run(2.0, 4.0), run(5.5, 6.0)]), 0);
        assert_eq!(judged([run(1.2, 5.0), run(2.0, 7.0), run(5.5, 6.0)]), 2);
        assert_eq!(judged([run(1.2, 7.0), run(6.0, 7.0), run(5.5, 6.0)]), 4);
    }
}
