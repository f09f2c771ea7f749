//! Comparisons of reading, writing and the journal.
//!
//! | sections | what |
//! |---|---|
//! | `random-overwrite-*` | 4 KiB at random, half of them reads, 16 threads, 2 GiB of full files |
//! | `fsync-append-*` | 4 KiB appended and made durable, 1 and 16 threads |
//! | `fallocate2-*`, `small-files-*` | the allocator's, whose claims hold with the journal on, too |
//!
//! Overwriting is compared with `pread` and `pwrite` on a bare file of that size, which is the limit, and all
//! with the kernel. Of `small-files` it is claimed besides how long a commit lets no change start.
//!
//! All images have a journal, as `hectare mkfs` makes them. On disk the engine and the bare file pass the
//! host's page cache and the kernel's loop device does, so that all end at the same disk; in memory there is
//! nothing to pass.

use super::Options;
use super::figures::Metric;
use super::plan::{Bound, Claim, ENGINE, KERNEL, Maker, RAW, Section, Side, Storage, Volume};
use hectare_lab::Through;

const DIRECT: &str = Through::Direct.system();
const DAX: &str = Through::Dax.system();
/// The longest that 99 of 100 commits may keep every change waiting, in milliseconds.
const PAUSE_MAX: f64 = 5.0;

/// All sections, in the order they run.
pub(super) fn sections(options: &Options) -> Vec<Section> {
    let make = Maker { options };
    let mut all = vec![make.overwrite(), make.overwrite_mapped(), make.overwrite_on_disk()];
    for place in [Storage::Memory, Storage::Disk] {
        for (threads, times) in [(1, 1.0), (16, 1.5)] {
            all.push(make.durable_appends(place, threads, times));
        }
    }
    all.extend(make.small_work().into_iter().map(with_pauses));
    all
}

/// The section with the pauses of commits, which are claimed where there are many changes.
fn with_pauses(mut section: Section) -> Section {
    section.metrics.push(Metric::PauseP99);
    if section.name.starts_with("small-files") {
        section.claims.push(Claim::new(ENGINE, Metric::PauseP99, Bound::AtMost(PAUSE_MAX)));
    }
    section
}

impl Maker<'_> {
    fn on(&self, place: Storage) -> Volume {
        Volume { place, ..self.volume("16G", "2G", None) }
    }

    fn overwrites(&self, name: &str, place: Storage, sides: Vec<Side>, claims: Vec<Claim>) -> Section {
        let seconds = self.seconds();
        let size = if self.options.quick { "16M" } else { "64M" };
        let words = ["random-overwrite", "--threads", "16", "--size", size, "--seconds", &seconds];
        Section {
            name: name.to_owned(),
            volume: self.on(place),
            words: self.words(&words, &["--files", "4"]),
            sides,
            rounds: None,
            metrics: vec![Metric::Rate],
            claims,
        }
    }

    fn overwrite(&self) -> Section {
        let sides = vec![self.engine(), Side::Raw, Side::Kernel { options: "" }];
        let claims = vec![
            Claim::new(ENGINE, Metric::Rate, Bound::TimesOf(0.95, RAW)),
            Claim::new(ENGINE, Metric::Rate, Bound::TimesOf(5.0, KERNEL)),
        ];
        self.overwrites("random-overwrite-memory", Storage::Memory, sides, claims)
    }

    /// By itself, so that it can be left out where images can't be mapped.
    fn overwrite_mapped(&self) -> Section {
        let sides = vec![self.engine_through(Through::Dax), Side::Raw];
        let claims = vec![Claim::new(DAX, Metric::Rate, Bound::TimesOf(1.5, RAW))];
        self.overwrites("random-overwrite-dax", Storage::Memory, sides, claims)
    }

    fn overwrite_on_disk(&self) -> Section {
        let sides = vec![self.engine_through(Through::Direct), Side::Raw, Side::Kernel { options: "" }];
        let claims = vec![
            Claim::new(DIRECT, Metric::Rate, Bound::TimesOf(0.95, RAW)),
            Claim::new(DIRECT, Metric::Rate, Bound::TimesOf(1.0, KERNEL)),
        ];
        self.overwrites("random-overwrite-disk", Storage::Disk, sides, claims)
    }

    fn durable_appends(&self, place: Storage, threads: u32, times: f64) -> Section {
        let through = match place {
            Storage::Memory => Through::Cache,
            Storage::Disk => Through::Direct,
        };
        let (seconds, count) = (self.seconds(), threads.to_string());
        Section {
            name: format!("fsync-append-{}-{threads}", place.name()),
            volume: self.on(place),
            words: self.words(&["fsync-append", "--threads", &count, "--seconds", &seconds], &[]),
            sides: vec![self.engine_through(through), Side::Kernel { options: "" }],
            rounds: None,
            metrics: vec![Metric::Rate, Metric::LatencyP50, Metric::LatencyP99],
            claims: vec![Claim::new(through.system(), Metric::Rate, Bound::TimesOf(times, KERNEL))],
        }
    }
}
