//! Comparisons with the kernel and others: `cargo benchmark
//! allocator|c|check|io|mkfs|mount|nbd|resize|salvage [--only NAME] [--pairs N] [--seconds S] [--policy P]
//! [--quick] [--binary FILE] [--lab FILE] [--json FILE]`.
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
use hectare_tools::built::{self, released_program};
use hectare_tools::ended::Exit;
use hectare_tools::job_folder::leave_nothing;
use hectare_tools::steps::{parsed, root, target_folder, understood};
use plan::{Section, Side, Storage};
use results::SectionResults;
use std::path::{Path, PathBuf};

const USAGE: &str = "usage: cargo benchmark allocator|c|check|io|mkfs|mount|nbd|resize|salvage \
                     [--only NAME]... [--pairs N] [--seconds S] [--policy P] [--quick] [--binary FILE] \
                     [--lab FILE] [--json FILE] [--list]";

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
    /// The program of the experiments; built if not given.
    lab: Option<PathBuf>,
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
            lab: None,
            json: root().join(format!("out/bench-{comparison}.json")),
            list: false,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().map(|v| (*v).to_owned()).ok_or(format!("{word} needs a value"));
            match *word {
                "--only" => options.only.push(value()?),
                "--pairs" => options.pairs = parsed(word, &value()?)?,
                "--seconds" => options.seconds = parsed(word, &value()?)?,
                "--policy" => options.policy = Some(value()?),
                "--binary" => options.binary = Some(value()?.into()),
                "--lab" => options.lab = Some(value()?.into()),
                "--json" => options.json = value()?.into(),
                "--quick" => options.quick = true,
                "--list" => options.list = true,
                other => return Err(format!("{other} is no option")),
            }
        }
        if options.pairs == 0 {
            return Err("--pairs: at least 1".into());
        }
        if !(options.seconds > 0.0 && options.seconds.is_finite()) {
            return Err("--seconds: more than 0".into());
        }
        known(&options.only, &options.names())?;
        Ok(options)
    }

    /// The names of all sections or cases.
    fn names(&self) -> Vec<String> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        match self.what {
            Comparison::Workloads(sections) => {
                sections(self).into_iter().map(|section| section.name).collect()
            }
            Comparison::Formatters => mkfs::names(),
            Comparison::Checkers => owned(&check::CASES.map(|case| case.name)),
            Comparison::Salvage => owned(&salvage::CASES.map(|case| case.name)),
            Comparison::Shrinkers => owned(&resize::CASES.map(|case| case.name)),
        }
    }
}

/// Refuses what is the beginning of no name.
fn known(only: &[String], names: &[String]) -> Result<(), String> {
    match only.iter().find(|only| !names.iter().any(|name| name.starts_with(only.as_str()))) {
        Some(unknown) => Err(format!("--only: there is no {unknown}, but {}", names.join(", "))),
        None => Ok(()),
    }
}

/// Runs the job with its arguments; it ends well if everything ran, was clean and met its claims.
pub(crate) fn run(words: &[&str]) -> Exit {
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
    let Some(options) = understood(options, USAGE) else { return Exit::Usage };
    match options.what {
        Comparison::Workloads(sections) => workloads(&options, &sections(&options)),
        Comparison::Formatters => whole_programs(&options, mkfs::list, mkfs::run),
        Comparison::Checkers => whole_programs(&options, check::list, check::run),
        Comparison::Salvage => whole_programs(&options, salvage::list, salvage::run),
        Comparison::Shrinkers => whole_programs(&options, resize::list, resize::run),
    }
}

/// Runs a comparison of whole programs, or lists its cases.
fn whole_programs(options: &Options, list: fn(), run: fn(&Options, &Path) -> bool) -> Exit {
    if options.list {
        list();
        return Exit::Good;
    }
    built(options.binary.as_deref()).map_or(Exit::NotHere, |binary| run(options, &binary).into())
}

/// Runs the requested sections.
fn workloads(options: &Options, sections: &[Section]) -> Exit {
    let wanted = |section: &&Section| {
        options.only.is_empty() || options.only.iter().any(|only| section.name.starts_with(only.as_str()))
    };
    let sections: Vec<&Section> = sections.iter().filter(wanted).collect();
    if options.list {
        sections.iter().for_each(|section| println!("{:<28} {}", section.name, section.about()));
        return Exit::Good;
    }
    let lab = || options.lab.clone().or_else(|| released_program("hectare-lab", "hectare-lab"));
    let programs = built(options.binary.as_deref()).and_then(|binary| Some((binary, lab()?)));
    let Some((binary, lab)) = programs else { return Exit::NotHere };
    let disk = sections.iter().any(|section| section.volume.place == Storage::Disk).then(target_folder);
    let ground = match Ground::prepare(binary, lab, disk.as_deref()) {
        Ok(ground) => ground,
        Err(error) => {
            eprintln!("can't prepare: {error}");
            return Exit::Bad;
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
            return Exit::Bad;
        }
    }
    let (cross, all_met) = results::across(&all);
    print!("{cross}");
    leave_nothing();
    println!("figures: {}", options.json.display());
    (all_met && all.iter().all(SectionResults::is_good)).into()
}

/// The given program, or a new build.
fn built(given: Option<&Path>) -> Option<PathBuf> {
    given.map(Path::to_owned).or_else(|| built::built(true))
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
        let options = Options::parse("io", &["--only", "random", "--pairs", "7", "--quick"]).unwrap();
        assert!(options.json.ends_with("out/bench-io.json"));
        assert_eq!((options.only.as_slice(), options.pairs), (&["random".to_owned()][..], 7));
        assert!(options.quick && options.policy.is_none());
        for wrong in
            [&["--pairs"][..], &["--pairs", "0"], &["--seconds", "x"], &["--seconds", "-1"], &["small"]]
        {
            assert!(Options::parse("allocator", wrong).is_err(), "{wrong:?}");
        }
        assert!(Options::parse("disk", &[]).is_err());
        for comparison in ["allocator", "check", "io", "mkfs", "resize", "salvage"] {
            let refused = Options::parse(comparison, &["--only", "nothing"]);
            assert!(refused.is_err_and(|text| text.contains("no nothing, but ")), "{comparison}");
        }
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
