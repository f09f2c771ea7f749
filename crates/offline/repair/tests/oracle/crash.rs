//! Power cuts while a repaired volume is written, and while that is taken back.
//!
//! At each point of the log of writes the device holds what a [`CrashStates`] makes of it: everything, or of
//! what was not flushed a part, down to sectors. From each state, these must lead on:
//!
//! - with the undo file, a repair that begins again, to the very bytes of one that was not interrupted;
//! - with the undo file, taking it back, to the bytes from before;
//! - without it, another repair, to a volume that is clean for `e2fsck -fn` and has every file, with its
//!   content, that is there after a repair that was not interrupted. Names may be others.
//!
//! `HECTARE_TRIALS` says how many states, `HECTARE_SEED` from which seed on, `HECTARE_KEEP` where to leave
//! what failed.

use crate::damage::{damage, sealed_damage};
use crate::random::number;
use crate::survey::Survey;
use crate::trial::{NOW, bytes_of, e2fsck, watched};
use crate::volumes::small;
use hectare_device::{CrashStates, Device, MemoryDevice, OverlayDevice, RecordDevice};
use hectare_oracle::skip;
use hectare_repair::{PageStore, Staged, undo, write_out};
use hectare_units::random::SplitMix64 as Random;
use std::fs;
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;

/// Points of one log that are looked at, about.
const POINTS: u64 = 24;
/// States at each: everything arrived, and what storage chose, twice.
const TORN: u64 = 2;

type Log = Arc<[hectare_device::Event]>;

/// A repair that came to its end.
struct Reference {
    old: Vec<u8>,
    new: Vec<u8>,
    file: Vec<u8>,
    log: Log,
    found: Survey,
}

impl Reference {
    /// Repairs a volume and records its writes; `None` if there is nothing to repair, or no way to.
    fn of(old: &[u8]) -> Option<Self> {
        let device = Arc::new(RecordDevice::new(MemoryDevice::from_bytes(old)));
        let staged = Staged::new(Arc::clone(&device) as Arc<dyn Device>);
        let repaired = watched(staged.overlay()).ok().filter(|repaired| !repaired.mends.is_empty())?;
        let mut file = Vec::new();
        write_out(&staged, &repaired.order, NOW, Some(&mut file), || Ok(())).unwrap();
        let new = bytes_of(&*device);
        assert!(new == bytes_of(&**staged.overlay()), "what is written is what was repaired");
        let found = Survey::of(Arc::new(MemoryDevice::from_bytes(&new)))?;
        Some(Self { old: old.to_vec(), new, file, log: device.log(), found })
    }

    /// The log of taking the repair back.
    fn taken_back(&self) -> Log {
        let device = RecordDevice::new(MemoryDevice::from_bytes(&self.new));
        undo(&device, None, &mut Cursor::new(&self.file)).unwrap();
        assert!(bytes_of(&device) == self.old);
        device.log()
    }

    /// What is wrong with a state, with the undo file at hand.
    fn with_file(&self, state: &[u8]) -> Result<(), String> {
        let back = MemoryDevice::from_bytes(state);
        undo(&back, None, &mut Cursor::new(&self.file)).map_err(|error| format!("taking back: {error}"))?;
        if bytes_of(&back) != self.old {
            return Err("taken back it is not as it was".into());
        }
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(state));
        let store = Arc::new(PageStore::in_memory());
        let resumed = Staged::resumed(Arc::clone(&device), None, &mut Cursor::new(&self.file), &store)
            .map_err(|e| e.to_string())?;
        let Some(staged) = resumed else {
            // Before anything else, a device that is too short is made longer.
            let longer = state.len() > self.old.len() && state[..self.old.len()] == self.old;
            let known = longer || state == self.old || state == self.new;
            return if known { Ok(()) } else { Err("it is not known to be interrupted".into()) };
        };
        let repaired = watched(staged.overlay())?;
        let mut file = Vec::new();
        write_out(&staged, &repaired.order, NOW, Some(&mut file), || Ok(())).map_err(|e| e.to_string())?;
        if bytes_of(&*device) != self.new {
            return Err("begun again it ends with something else".into());
        }
        undo(&*device, None, &mut Cursor::new(&file))
            .map_err(|error| format!("taking the second back: {error}"))?;
        let is_old = bytes_of(&*device) == self.old;
        if is_old { Ok(()) } else { Err("the second taken back is not what the first found".into()) }
    }

    /// What is wrong with a state without the undo file, and how many names are others.
    fn without_file(&self, state: &[u8], folder: &Path) -> Result<usize, String> {
        let staged = Staged::new(Arc::new(MemoryDevice::from_bytes(state)));
        watched(staged.overlay())?;
        let image = folder.join("after");
        fs::write(&image, bytes_of(&**staged.overlay())).unwrap();
        let after = e2fsck("-fn", &image);
        if after.code != Some(0) {
            return Err(format!("not clean: {}", after.out));
        }
        let found = Survey::of(Arc::clone(staged.overlay()) as Arc<dyn Device>).unwrap_or_default();
        let lost = found.lacks(&self.found);
        if lost.is_empty() {
            return Ok(found.lacks_paths(&self.found));
        }
        Err(format!("{} files lost, among them inodes {:?}", lost.len(), &lost[..lost.len().min(5)]))
    }
}

/// What was looked at.
#[derive(Default)]
struct Sum {
    states: u64,
    volumes: u64,
    renamed: u64,
    failed: Vec<String>,
}

impl Sum {
    /// Looks at the states of a log that starts at some bytes.
    fn look(&mut self, start: &[u8], log: &Log, random: &mut Random, judge: &mut Judge<'_>) {
        let mut states = CrashStates::new(MemoryDevice::from_bytes(start), Arc::clone(log));
        let points: Vec<usize> = states.points().collect();
        let one_in = (u64::try_from(points.len()).unwrap() / POINTS).max(1);
        for point in points {
            if !random.one_in(one_in) {
                continue;
            }
            for torn in 0..=if states.pending(point) > 0 { TORN } else { 0 } {
                let seed = random.draw();
                let state: OverlayDevice<_> =
                    if torn == 0 { states.prefix(point) } else { states.torn(point, seed) }.unwrap();
                let bytes = bytes_of(&state);
                drop(state);
                self.states += 1;
                match judge(&bytes) {
                    Ok(renamed) => self.renamed += u64::from(renamed > 0),
                    Err(what) => self.failed.push(format!("point {point}, torn {torn}: {what}")),
                }
            }
        }
    }
}

type Judge<'a> = dyn FnMut(&[u8]) -> Result<usize, String> + 'a;

#[test]
fn a_repair_survives_power_cuts() {
    let folder = tempfile::tempdir().unwrap();
    let bases = match small(folder.path()) {
        Ok(bases) => bases,
        Err(reason) => skip!("repair crash::a_repair_survives_power_cuts", reason),
    };
    let keep = std::env::var_os("HECTARE_KEEP");
    let (wanted, mut seed) = (number("HECTARE_TRIALS", 60), number("HECTARE_SEED", 1));
    let mut sum = Sum::default();
    while sum.states < wanted {
        let mut random = Random::new(seed);
        let base = &bases[usize::try_from(seed).unwrap() % bases.len()];
        let mut bytes = base.bytes.clone();
        let sealed = random.one_in(2);
        let how =
            if sealed { sealed_damage(&mut bytes, &mut random) } else { damage(&mut bytes, &mut random) };
        if let Some(reference) = Reference::of(&bytes) {
            sum.volumes += 1;
            let before = sum.failed.len();
            let mut both = |state: &[u8]| {
                reference.with_file(state)?;
                reference.without_file(state, folder.path())
            };
            sum.look(&reference.old, &reference.log, &mut random, &mut both);
            let back = reference.taken_back();
            sum.look(&reference.new, &back, &mut random, &mut |state| reference.with_file(state).map(|()| 0));
            if sum.failed.len() > before {
                println!("seed {seed}, {}, {how}: {}", base.name, sum.failed[before]);
                if let Some(keep) = &keep {
                    fs::write(Path::new(keep).join(format!("crash-{seed}.img")), &bytes).unwrap();
                }
            }
        }
        seed += 1;
    }
    println!(
        "{} power cuts in repairs of {} volumes: {} not survived; after {} some names differ",
        sum.states,
        sum.volumes,
        sum.failed.len(),
        sum.renamed
    );
    assert!(sum.failed.is_empty(), "not survived: {}", sum.failed[0]);
}

/// A map led to a block that held something else, as to a table of its own. That block was free for a new table,
/// which then was part of the old map, too, until the inode was written.
#[test]
fn regression_a_foreign_block_of_a_map_takes_no_new_table() {
    let folder = tempfile::tempdir().unwrap();
    let bases = match small(folder.path()) {
        Ok(bases) => bases,
        Err(reason) => skip!("repair crash::a_foreign_block_of_a_map", reason),
    };
    let base = bases.iter().find(|base| base.name == "fuzz ext2").unwrap();
    let mut bytes = base.bytes.clone();
    // The block bitmap, and the table below the table of the file `sparse`, in blocks of 1 KiB.
    let (bitmap, table) = (3 * 1024, 49 * 1024);
    (0..1024).for_each(|byte| bytes.swap(bitmap + byte, table + byte));
    let reference = Reference::of(&bytes).unwrap();
    let mut sum = Sum::default();
    let mut judge = |state: &[u8]| reference.without_file(state, folder.path());
    sum.look(&reference.old, &reference.log, &mut Random::new(1), &mut judge);
    assert!(sum.states > 3 && sum.failed.is_empty(), "{:?}", sum.failed);
}
