//! Volumes damaged at random: after a repair `e2fsck -fn` is content, and what `e2fsck -fy` keeps is kept.
//!
//! `HECTARE_TRIALS` says how many, `HECTARE_SEED` from which seed on, `HECTARE_KEEP` names a folder for the
//! images that failed, or that lost something. Sealed volumes are small ones of 27 kinds, whose checksums are
//! made right after the damage. The odd ones are the images of the corpus, most of them broken before; the
//! checksums of every second one are made right.

use crate::corpus::REFUSED;
use crate::damage::{damage, sealed_damage, sprinkled_damage};
use crate::seal;
use crate::survey::Survey;
use crate::trial::Trial;
use crate::volumes::{Base, KINDS, Scale, small, volume};
use hectare_oracle::{Skip, corpus, skip, unpacked};
use hectare_units::random::SplitMix64 as Random;
use peakmem_alloc::PeakMemAllocTrait;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Of so many sealed volumes one has 5,000 files.
const LARGE_ONE_IN: u64 = 50;
/// Images of the corpus that are longer are left out: three copies are held.
const ODD_MAX: usize = 256 << 20;
/// The most memory that the trials take, with three copies of a volume.
const MEMORY_MAX: usize = 1 << 30;

pub(crate) fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Whether all differences are shown.
fn verbose() -> bool {
    number("HECTARE_VERBOSE", 0) > 0
}

/// A volume to be repaired.
struct Damaged {
    what: String,
    bytes: Vec<u8>,
    undamaged: Arc<Survey>,
}

/// What came of the trials.
#[derive(Default)]
struct Sum {
    failed: Vec<u64>,
    losing: Vec<u64>,
    lost: usize,
    restored: usize,
    made_up: usize,
    changed: usize,
    gained: usize,
    kept: usize,
    refused: usize,
    theirs_left: u32,
    longest: Duration,
}

impl Sum {
    /// Adds a trial; says what is odd of it, and returns whether there is something.
    fn add(&mut self, seed: u64, what: &str, trial: &Trial, undamaged: &Survey) -> bool {
        let compared = trial.compared(undamaged);
        let theirs_fine = trial.theirs.as_ref().is_some_and(|ran| matches!(ran.code, Some(0 | 1)));
        self.theirs_left += u32::from(!theirs_fine);
        self.kept += trial.kept;
        (self.lost, self.gained) = (self.lost + compared.lost.len(), self.gained + trial.gained.len());
        self.restored += compared.restored;
        self.made_up += compared.made_up;
        self.changed += compared.changed;
        // Of a volume that neither can mend nothing is expected.
        let known = [
            "no superblock",
            "too little is left",
            "unknown features",
            "its names can't be read",
            "it is an external ext4 journal",
        ];
        let refused =
            trial.repaired.as_ref().is_err_and(|reason| known.iter().any(|known| reason.contains(known)));
        let clean = trial.is_clean() || refused && !theirs_fine;
        self.refused += usize::from(refused && clean);
        if !clean {
            self.failed.push(seed);
        }
        if !compared.lost.is_empty() {
            self.losing.push(seed);
        }
        if clean && (trial.lost.is_empty() || compared.lost.is_empty() && !verbose()) {
            return false;
        }
        let note = match &trial.repaired {
            Ok(done) => format!("{} mends in {} rounds", done.mends.len(), done.rounds),
            Err(reason) => reason.clone(),
        };
        println!("seed {seed}, {what}: {note}; {compared:?}, gained {}", trial.gained.len());
        if let Some(after) = trial.after.as_ref().filter(|_| !clean) {
            println!("{}", after.out.lines().take(12).collect::<Vec<_>>().join("\n"));
        }
        true
    }

    fn end(&self, trials: u64) {
        println!(
            "{trials} damaged volumes: {} not mended {:?}; {} inodes kept; of those that e2fsck -fy kept, \
             {} are lost {:?}, {} are as before the damage only here, {} never were there, {} are as before \
             in neither; {} the other way round; e2fsck left {}, {} were refused by both; longest: {:?}",
            self.failed.len(),
            self.failed,
            self.kept,
            self.lost,
            self.losing,
            self.restored,
            self.made_up,
            self.changed,
            self.gained,
            self.theirs_left,
            self.refused,
            self.longest
        );
        assert!(self.failed.is_empty(), "not mended: {:?}", self.failed);
    }
}

/// Damages volumes, repairs them, and sums up.
fn run(mut make: impl FnMut(u64, &mut Random) -> Result<Damaged, Skip>, folder: &Path) -> Option<Skip> {
    let (trials, first) = (number("HECTARE_TRIALS", 10), number("HECTARE_SEED", 1));
    let keep = std::env::var_os("HECTARE_KEEP");
    let mut sum = Sum::default();
    for seed in first..first + trials {
        let Damaged { what, bytes, undamaged } = match make(seed, &mut Random::new(seed)) {
            Ok(made) => made,
            Err(reason) => return Some(reason),
        };
        let start = Instant::now();
        let trial = Trial::run(&bytes, folder);
        sum.longest = sum.longest.max(start.elapsed());
        if sum.add(seed, &what, &trial, &undamaged)
            && let Some(keep) = &keep
        {
            fs::write(Path::new(keep).join(format!("{seed}.img")), &bytes).unwrap();
        }
    }
    sum.end(trials);
    None
}

#[test]
fn damaged_volumes_are_mended() {
    let folder = tempfile::tempdir().unwrap();
    let mut bases: Vec<Option<Base>> = KINDS.iter().map(|_| None).collect();
    let skipped = run(
        |seed, random| {
            let kind = usize::try_from(seed).unwrap() % KINDS.len();
            if bases[kind].is_none() {
                bases[kind] = Some(Base::new(KINDS[kind].0, volume(kind, Scale::Usual, folder.path())?));
            }
            let base = bases[kind].as_ref().unwrap();
            let mut bytes = base.bytes.clone();
            let how = damage(&mut bytes, random);
            Ok(Damaged { what: format!("{}, {how}", base.name), bytes, undamaged: Arc::clone(&base.found) })
        },
        folder.path(),
    );
    if let Some(reason) = skipped {
        skip!("repair random::damaged_volumes_are_mended", reason);
    }
}

#[test]
fn sealed_damage_is_mended() {
    let folder = tempfile::tempdir().unwrap();
    let mut bases: Vec<Base> = Vec::new();
    let mut large: Option<Base> = None;
    let skipped = run(
        |seed, random| {
            if bases.is_empty() {
                bases = small(folder.path())?;
            }
            let base = if seed.is_multiple_of(LARGE_ONE_IN) {
                if large.is_none() {
                    large = Some(Base::new("5,000 files", volume(1, Scale::Large, folder.path())?));
                }
                large.as_ref().unwrap()
            } else {
                &bases[usize::try_from(seed).unwrap() % bases.len()]
            };
            let mut bytes = base.bytes.clone();
            let how = sealed_damage(&mut bytes, random);
            Ok(Damaged { what: format!("{}, {how}", base.name), bytes, undamaged: Arc::clone(&base.found) })
        },
        folder.path(),
    );
    if let Some(reason) = skipped {
        skip!("repair random::sealed_damage_is_mended", reason);
    }
    let peak = crate::HEAP.get_peak_memory();
    println!("at most {} MiB of memory", peak >> 20);
    assert!(peak < MEMORY_MAX, "{peak} bytes of memory");
}

#[test]
fn damaged_odd_volumes_are_mended() {
    const NAME: &str = "repair random::damaged_odd_volumes_are_mended";
    let images = corpus(NAME);
    let folder = tempfile::tempdir().unwrap();
    let skipped = run(
        |seed, random| {
            let base = loop {
                let packed = &images[random.index_below(images.len())];
                let name = packed.file_name().unwrap().to_string_lossy().replace(".img.gz", "");
                let bytes = unpacked(packed);
                if bytes.len() <= ODD_MAX && !REFUSED.contains(&&*name) {
                    break Base::new(&name, bytes);
                }
            };
            let Base { name, mut bytes, found: undamaged } = base;
            let how = sprinkled_damage(&mut bytes, random);
            if seed.is_multiple_of(2) {
                seal::seal(&mut bytes);
            }
            Ok(Damaged { what: format!("{name}, {how}"), bytes, undamaged })
        },
        folder.path(),
    );
    if let Some(reason) = skipped {
        skip!(NAME, reason);
    }
}
