//! Comparisons with the kernel and others: `cargo benchmark
//! allocator|c|check|io|mkfs|mount|nbd|resize|salvage [--only NAME] [--pairs N] [--seconds S] [--policy P]
//! [--quick] [--binary FILE] [--json FILE]`.
//!
//! | comparison | of what |
//! |---|---|
//! | [`allocator`] | where space comes from, its cost, its fragmentation |
//! | [`c_reads`] | small reads through the library for C, against Rust; described there |
//! | [`check`] | checking, against e2fsck; described there, since its form differs |
//! | [`mount`] | what goes through a mount, against fuse2fs; its own options and contenders |
//! | [`salvage`] | salvage, against reading the image in sequence; described there, since its form differs |
//! | [`io`] | overwriting, fsync, and the cost of the journal; on disk, too, and against a bare file |
//! | [`nbd`] | NBD clients and servers; described there, since its form differs |
//! | [`mkfs`] | formatting, against mkfs.xfs and mke2fs; described there, since its form differs |
//! | [`resize`] | the smallest size, against resize2fs; described there, since its form differs |
//!
//! For `allocator` and `io`, every section ([`plan`]) makes a volume with `hectare mkfs`, ages it if requested, and
//! then runs its contenders in turn, round by round, each on a fresh copy: the kernel through a loop device
//! over it, the engine on the image itself. The order alternates from round to round. All contenders run the
//! same program, `hectare-lab bench`, as a child; this job only prepares, inspects the result ([`contender`]) and
//! compares ([`results`]). The median of the rounds' ratios is compared; the machine drifts, so measurements
//! of different runs are not.
//!
//! After every engine run `e2fsck -fn` checks the image; one that is not clean fails the job, like a run that
//! fails. A missed claim is reported, and fails it too.
//!
//! Hazards: needs root and loop devices (without, the kernel does not run), and memory: an image holds up to
//! 4 GiB of data, and a mounted one is in the page cache as well. Images lie in `/dev/shm`, or for
//! measurements of the disk beside cargo's output, and one exists at a time beside the one it is copied from.
//! The next run removes everything a killed run left, mounts too.

mod allocator;
mod c_reads;
mod check;
mod contender;
mod figures;
mod io;
mod mkfs;
mod mount;
mod nbd;
mod plan;
mod resize;
mod results;
mod rounds;
mod salvage;

use contender::Ground;
use hectare_oracle::mount::can_mount;
use hectare_tools::job_folder::leave_nothing;
use hectare_tools::steps::{cargo, root, shown, target_folder, understood};
use plan::{Section, Side, Storage};
use results::SectionResults;
use std::path::{Path, PathBuf};

const USAGE: &str = "usage: cargo benchmark allocator|c|check|io|mkfs|mount|nbd|resize|salvage \
                     [--only NAME]... [--pairs N] [--seconds S] [--policy P] [--quick] [--binary FILE] \
                     [--json FILE] [--list]";

/// One comparison.
#[derive(Clone, Copy, Debug)]
enum Comparison {
    /// Workloads, on the engine and on other file systems: these sections.
    Workloads(fn(&Options) -> Vec<Section>),
    /// Formatters.
    Formatters,
    /// Checkers.
    Checkers,
    /// Salvage, and reading the image.
    Salvage,
    /// Who makes a volume small.
    Shrinkers,
}

/// The options of the command line.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    what: Comparison,
    /// Sections to run, by the beginning of their names; all if there are none.
    only: Vec<String>,
    /// Rounds of the sections that compare with the kernel.
    pairs: u32,
    /// The duration of a time-bound run, in seconds.
    seconds: f64,
    /// The engine's policy where a section does not name one; its own default if none.
    policy: Option<String>,
    /// Everything small: a smoke test, not a comparison.
    quick: bool,
    /// The program; built if not given.
    binary: Option<PathBuf>,
    /// The output file for the measurements.
    json: PathBuf,
    /// Only list the sections.
    list: bool,
}

impl Options {
    fn parse(comparison: &str, words: &[&str]) -> Result<Self, String> {
        let what = match comparison {
            "allocator" => Comparison::Workloads(allocator::sections),
            "io" => Comparison::Workloads(io::sections),
            "mkfs" => Comparison::Formatters,
            "check" => Comparison::Checkers,
            "salvage" => Comparison::Salvage,
            "resize" => Comparison::Shrinkers,
            other => return Err(format!("{other} is no comparison")),
        };
        let mut options = Self {
            what,
            only: Vec::new(),
            pairs: 5,
            seconds: 3.0,
            policy: None,
            quick: false,
            binary: None,
            json: root().join(format!("out/bench-{comparison}.json")),
            list: false,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().map(|v| (*v).to_owned()).ok_or(format!("{word} needs a value"));
            match *word {
                "--only" => options.only.push(value()?),
                "--pairs" => options.pairs = number(word, &value()?)?,
                "--seconds" => options.seconds = number(word, &value()?)?,
                "--policy" => options.policy = Some(value()?),
                "--binary" => options.binary = Some(value()?.into()),
                "--json" => options.json = value()?.into(),
                "--quick" => options.quick = true,
                "--list" => options.list = true,
                other => return Err(format!("{other} is no option")),
            }
        }
        if options.pairs == 0 {
            return Err("--pairs: at least 1".into());
        }
        Ok(options)
    }
}

fn number<T: std::str::FromStr>(word: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{word}: {text} is no number of that kind"))
}

/// Runs the job with its arguments; returns whether everything ran, was clean and met its claims.
pub(crate) fn run(words: &[&str]) -> bool {
    if let ["mount", rest @ ..] = words {
        return mount::run(rest);
    }
    if let ["c", rest @ ..] = words {
        return c_reads::run(rest);
    }
    if let ["nbd", rest @ ..] = words {
        return nbd::run(rest);
    }
    let options = match words {
        [comparison, rest @ ..] => Options::parse(comparison, rest),
        [] => Err("which comparison?".to_owned()),
    };
    let Some(options) = understood(options, USAGE) else { return false };
    match options.what {
        Comparison::Workloads(sections) => workloads(&options, &sections(&options)),
        Comparison::Formatters => formatters(&options),
        Comparison::Checkers => checkers(&options),
        Comparison::Salvage => salvaging(&options),
        Comparison::Shrinkers => shrinkers(&options),
    }
}

/// Runs the requested sections.
fn workloads(options: &Options, sections: &[Section]) -> bool {
    let wanted = |section: &&Section| {
        options.only.is_empty() || options.only.iter().any(|only| section.name.starts_with(only.as_str()))
    };
    let sections: Vec<&Section> = sections.iter().filter(wanted).collect();
    if options.list || sections.is_empty() {
        sections.iter().for_each(|section| println!("{:<28} {}", section.name, section.about()));
        return !sections.is_empty();
    }
    let Some(binary) = built(options.binary.as_deref()) else { return false };
    let disk = sections.iter().any(|section| section.volume.place == Storage::Disk).then(target_folder);
    let ground = match Ground::prepare(binary, disk.as_deref()) {
        Ok(ground) => ground,
        Err(error) => {
            eprintln!("can't prepare: {error}");
            return false;
        }
    };
    let may_mount = can_mount();
    if let Err(reason) = &may_mount {
        eprintln!("SKIPPED the kernel's side: {reason}");
    }
    let mut all = Vec::new();
    for section in sections {
        let told = compare(section, &ground, may_mount.is_ok(), options);
        print!("{}", told.table());
        all.push(told);
        // Written after each section: a complete run takes long, and may be interrupted.
        if let Err(error) = results::write(&options.json, &all) {
            eprintln!("can't write {}: {error}", options.json.display());
            return false;
        }
    }
    let cross = results::across(&all);
    print!("{cross}");
    leave_nothing();
    println!("figures: {}", options.json.display());
    all.iter().all(SectionResults::is_good)
}

/// Runs the comparison of formatters.
fn formatters(options: &Options) -> bool {
    if options.list {
        mkfs::list();
        return true;
    }
    built(options.binary.as_deref()).is_some_and(|binary| mkfs::run(options, &binary))
}

/// Runs the comparison of checkers.
fn checkers(options: &Options) -> bool {
    if options.list {
        check::list();
        return true;
    }
    built(options.binary.as_deref()).is_some_and(|binary| check::run(options, &binary))
}

/// Runs the comparison of salvage with reading.
fn salvaging(options: &Options) -> bool {
    if options.list {
        salvage::list();
        return true;
    }
    built(options.binary.as_deref()).is_some_and(|binary| salvage::run(options, &binary))
}

/// Runs the comparison of who makes a volume small.
fn shrinkers(options: &Options) -> bool {
    if options.list {
        resize::list();
        return true;
    }
    built(options.binary.as_deref()).is_some_and(|binary| resize::run(options, &binary))
}

/// The given program, or a new build.
fn built(given: Option<&Path>) -> Option<PathBuf> {
    if let Some(given) = given {
        return Some(given.to_owned());
    }
    let built = shown(cargo().args(["build", "--release", "--package", "hectare-cli"]));
    built.then(|| target_folder().join("release/hectare"))
}

/// Runs one section.
fn compare(section: &Section, ground: &Ground, may_mount: bool, options: &Options) -> SectionResults {
    let runs_here = |side: &&Side| may_mount || !matches!(side, Side::Kernel { .. });
    let sides: Vec<Side> = section.sides.iter().filter(runs_here).cloned().collect();
    let rounds = section.rounds.unwrap_or(options.pairs);
    let mut told = SectionResults::new(section, sides.clone());
    eprintln!("\n{}: {}", section.name, section.about());
    let base = match ground.make(&section.volume) {
        Ok(base) => base,
        Err(error) => {
            told.failures.push(format!("making the volume: {error}"));
            return told;
        }
    };
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..sides.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for nr in order {
            let title = sides[nr].title();
            let result = ground.run(&base, &sides[nr], section);
            match &result {
                Ok(figures) => {
                    eprintln!("  round {}: {title}: {}", round + 1, figures.line(&section.metrics));
                }
                Err(error) => eprintln!("  round {}: {title}: FAILED: {error}", round + 1),
            }
            told.take(nr, result);
        }
    }
    told.judge(section);
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_options() {
        let options = Options::parse("io", &["--only", "small", "--pairs", "7", "--quick"]).unwrap();
        assert!(options.json.ends_with("out/bench-io.json"));
        assert_eq!((options.only.as_slice(), options.pairs), (&["small".to_owned()][..], 7));
        assert!(options.quick && options.policy.is_none());
        for wrong in [&["--pairs"][..], &["--pairs", "0"], &["--seconds", "x"], &["small"]] {
            assert!(Options::parse("allocator", wrong).is_err(), "{wrong:?}");
        }
        assert!(Options::parse("disk", &[]).is_err());
    }

    #[test]
    fn sections_have_names_of_their_own_and_a_peer_for_every_claim() {
        for comparison in ["allocator", "io"] {
            let options = Options::parse(comparison, &[]).unwrap();
            let Comparison::Workloads(sections) = options.what else { panic!("{comparison}") };
            told_apart(&sections(&options));
        }
    }

    fn told_apart(sections: &[Section]) {
        for (nr, section) in sections.iter().enumerate() {
            assert!(sections[..nr].iter().all(|other| other.name != section.name), "{}", section.name);
            let titles: Vec<_> = section.sides.iter().map(Side::title).collect();
            for claim in &section.claims {
                assert!(claim.titles().all(|title| titles.contains(&title)), "{}: {claim:?}", section.name);
                assert!(section.metrics.contains(&claim.metric), "{}: {claim:?}", section.name);
            }
        }
    }
}
