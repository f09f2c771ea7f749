//! Volumes whose journal lies on another device, beside `e2fsck -j`.

use crate::survey::Survey;
use crate::trial::{NOW, Ran, bytes_of};
use hectare_check::{Options as CheckOptions, check_with_journal};
use hectare_device::{CrashStates, Device, MemoryDevice, RecordDevice};
use hectare_engine::{Creation, JournalDevice, OpenOptions, Volume};
use hectare_oracle::{Skip, debugfs, debugfs_write, dumpe2fs, mke2fs, skip};
use hectare_repair::{Error, Options, PageStore, Repaired, Staged, UndoError, undo, write_out};
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// Of this file alone: e2fsck looks for a journal among all block devices.
const UUID: &str = "55555555-3333-4444-8555-666666666666";
/// Where the log's superblock lies, with blocks of 4 KiB and of 1 KiB.
const LOG_4K: usize = 4096;
const LOG_1K: usize = 2048;
const OPTIONS: Options = Options { now: NOW, rounds_max: 6, duplicates: hectare_repair::Duplicates::Clone };

/// A volume and its journal.
#[derive(Clone)]
struct Pair {
    volume: Vec<u8>,
    journal: Vec<u8>,
    folder: PathBuf,
}

impl Pair {
    /// A new volume with a new journal, and nothing in either.
    fn made(block: &str, more: &str, folder: &Path) -> Result<Self, Skip> {
        let (image, journal) = (folder.join("image"), folder.join("journal"));
        mke2fs(&["-O", "journal_dev", "-b", block, "-U", UUID], &journal, "8M")?;
        let features = format!("^has_journal{more}");
        mke2fs(&["-t", "ext4", "-b", block, "-O", &features], &image, "32M")?;
        let uuid = format!("ssv journal_uuid {}", dumpe2fs(&journal)?.field("Filesystem UUID"));
        debugfs_write(&image, &["feature has_journal", "ssv journal_inum 0", "ssv journal_dev 1", &uuid])?;
        let (volume, journal) = (fs::read(&image).unwrap(), fs::read(&journal).unwrap());
        Ok(Self { volume, journal, folder: folder.to_owned() })
    }

    /// Likewise, left by a crash: `d/f` is in the journal only.
    fn crashed(block: &str, more: &str, folder: &Path) -> Result<Self, Skip> {
        let new = Self::made(block, more, folder)?;
        let (device, log) = new.devices();
        let journal = Some(JournalDevice(Arc::clone(&log) as Arc<dyn Device>));
        let options = OpenOptions { journal, commit_interval: None, ..OpenOptions::default() };
        let volume = Volume::open(Arc::clone(&device) as Arc<dyn Device>, options).unwrap();
        volume.create_dir("d", Creation::default()).unwrap();
        volume.write_file("d/f", b"of the journal", Creation::default()).unwrap();
        volume.sync().unwrap();
        Ok(Self { volume: device.to_vec(), journal: log.to_vec(), folder: folder.to_owned() })
    }

    fn devices(&self) -> (Arc<MemoryDevice>, Arc<MemoryDevice>) {
        (Arc::new(MemoryDevice::from_bytes(&self.volume)), Arc::new(MemoryDevice::from_bytes(&self.journal)))
    }

    fn staged(&self) -> Staged {
        let (device, log) = self.devices();
        Staged::with_journal(device, Some(log), &in_memory())
    }

    /// Repaired here, and what was done.
    fn repaired(&self) -> Result<(Self, Repaired), Error> {
        let staged = self.staged();
        let repaired = staged.repair(&OPTIONS)?;
        let journal = bytes_of(&**staged.journal_overlay().unwrap());
        Ok((Self { volume: bytes_of(&**staged.overlay()), journal, folder: self.folder.clone() }, repaired))
    }

    /// What e2fsck says of them, and the volume and journal that it leaves.
    fn e2fsck(&self, flags: &str) -> (Ran, Self) {
        let (image, journal) = (self.folder.join("e"), self.folder.join("ej"));
        fs::write(&image, &self.volume).unwrap();
        fs::write(&journal, &self.journal).unwrap();
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "30", "e2fsck", flags, "-j"]).arg(&journal).arg(&image);
        let ran = command.output().unwrap();
        let out = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
        let left = Self {
            volume: fs::read(image).unwrap(),
            journal: fs::read(journal).unwrap(),
            folder: self.folder.clone(),
        };
        (Ran { code: ran.status.code(), out }, left)
    }

    /// Problems that the check finds.
    fn problems(&self) -> Vec<String> {
        let (device, log) = self.devices();
        let report = check_with_journal(&*device, &*log, &CheckOptions::default()).unwrap();
        assert!(report.unchecked.is_empty(), "{:?}", report.unchecked);
        report.problems.iter().map(ToString::to_string).collect()
    }

    fn survey(&self) -> Survey {
        Survey::of(self.devices().0).unwrap()
    }
}

fn assert_sound(pair: &Pair, place: &str) {
    let (said, _) = pair.e2fsck("-fn");
    assert_eq!(said.code, Some(0), "{place}: {}", said.out);
    assert_eq!(pair.problems(), Vec::<String>::new(), "{place}");
}

/// The log of a volume that does not ask for it, with the content of a block and bitmaps of zeros.
#[test]
fn regression_a_forgotten_log_on_its_own_device_is_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let mut pair = match Pair::made("1024", "", folder.path()) {
        Ok(pair) => pair,
        Err(reason) => skip!("repair external::regression_a_forgotten_log_on_its_own_device", reason),
    };
    let (image, journal) = (folder.path().join("image"), folder.path().join("journal"));
    let content = folder.path().join("content");
    fs::write(&content, [7; 1024]).unwrap();
    debugfs_write(&image, &[&format!("write {} f", content.display())]).unwrap();
    let block = debugfs(&image, &["blocks f"]).unwrap();
    let block = block.split_whitespace().find_map(|word| word.parse::<usize>().ok()).unwrap();
    let said = debugfs(&image, &["stats"]).unwrap();
    let bitmap = said.split("block bitmap at ").nth(1).unwrap().split([',', ' ']).next().unwrap().to_owned();
    fs::write(&content, [9; 1024]).unwrap();
    debugfs_write(
        &image,
        &[
            &format!("jo -c -f {}", journal.display()),
            &format!("jw -b {block} {}", content.display()),
            &format!("jw -b {bitmap} /dev/zero"),
            "jc",
        ],
    )
    .unwrap();
    debugfs_write(&image, &["feature -needs_recovery"]).unwrap();
    (pair.volume, pair.journal) = (fs::read(&image).unwrap(), fs::read(&journal).unwrap());
    assert!(pair.problems().iter().any(|problem| problem.contains("not empty")), "{:?}", pair.problems());
    let (ours, repaired) = pair.repaired().unwrap();
    assert!(ours.volume[block * 1024..][..1024] == [9; 1024], "{:?}", repaired.mends);
    assert_sound(&ours, "forgotten");
}

#[test]
fn a_journal_on_its_own_device_is_replayed() {
    let folder = tempfile::tempdir().unwrap();
    for (block, more) in [("4096", ""), ("1024", ""), ("1024", ",fast_commit"), ("4096", ",^metadata_csum")] {
        let pair = match Pair::crashed(block, more, folder.path()) {
            Ok(pair) => pair,
            Err(reason) => skip!("repair external::a_journal_on_its_own_device_is_replayed", reason),
        };
        let place = format!("{block}{more}");
        let (ours, repaired) = pair.repaired().unwrap();
        assert!(!repaired.loses() && repaired.mends.len() == 1, "{place}: {:?}", repaired.mends);
        assert_sound(&ours, &place);
        let (said, theirs) = pair.e2fsck("-fy");
        assert!(matches!(said.code, Some(0 | 1)), "{}", said.out);
        assert_eq!(ours.survey(), theirs.survey(), "{place}");
        assert!(ours.survey().paths.iter().any(|(path, _)| path == b"/d/f"), "{place}");
        // Twice is once.
        assert!(ours.repaired().unwrap().1.mends.is_empty(), "{place}");
    }
}

#[test]
fn without_its_journal_a_volume_that_needs_it_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let made = Pair::crashed("4096", "", folder.path());
    let other = Pair::made("4096", "", folder.path()).map(|mut other| {
        other.journal[1024 + 0x68] ^= 1;
        other
    });
    let (pair, other) = match made.and_then(|pair| Ok((pair, other?))) {
        Ok(made) => made,
        Err(reason) => skip!("repair external::without_its_journal", reason),
    };
    let alone = Staged::new(pair.devices().0).repair(&OPTIONS).unwrap_err().to_string();
    assert!(alone.contains(UUID) && alone.contains("--journal"), "{alone}");
    let foreign = Pair { journal: other.journal, ..pair };
    let foreign = foreign.repaired().err().unwrap().to_string();
    assert!(foreign.contains("is not its journal"), "{foreign}");
    // A volume that does not need it is repaired without.
    let mut whole = Pair::made("4096", "", folder.path()).unwrap();
    let image = folder.path().join("image");
    debugfs_write(&image, &["sif <2> links_count 9"]).unwrap();
    whole.volume = fs::read(&image).unwrap();
    let staged = Staged::new(whole.devices().0);
    assert_eq!(staged.repair(&OPTIONS).unwrap().mends.len(), 1);
    whole.volume = bytes_of(&**staged.overlay());
    assert_sound(&whole, "without its journal");
}

/// What changes in a pair, and whether e2fsck minds.
type Change = (&'static str, fn(&mut Pair));

const DAMAGES: [Change; 6] = [
    ("nothing", |_| {}),
    ("the log's magic number", |pair| pair.journal[LOG_4K] ^= 1),
    ("the log's length", |pair| pair.journal[LOG_4K + 0x10] = 7),
    ("the log's block size", |pair| pair.journal[LOG_4K + 0x0e] ^= 4),
    ("an unknown feature", |pair| pair.journal[LOG_4K + 0x28] = 0x80),
    ("a log that starts in block 5", |pair| pair.journal[LOG_4K + 0x1f] = 5),
];

#[test]
fn a_damaged_log_on_its_own_device_is_found_and_emptied() {
    let folder = tempfile::tempdir().unwrap();
    let pairs = Pair::made("4096", "", folder.path())
        .and_then(|new| Ok([("new", new), ("crashed", Pair::crashed("4096", "", folder.path())?)]));
    let pairs = match pairs {
        Ok(pairs) => pairs,
        Err(reason) => skip!("repair external::a_damaged_log", reason),
    };
    for (state, pair) in pairs {
        for (what, change) in DAMAGES {
            let place = format!("{state}, {what}");
            let mut pair = pair.clone();
            change(&mut pair);
            let (theirs, _) = pair.e2fsck("-fn");
            let found = pair.problems();
            // A log to be replayed is no error for e2fsck, and for some it asks without counting them.
            if state == "new" {
                let minds = theirs.code != Some(0) || theirs.out.contains("? no");
                assert_eq!(minds, !found.is_empty(), "{place}: {found:?}\n{}", theirs.out);
            }
            let (ours, repaired) = pair.repaired().unwrap();
            assert_sound(&ours, &place);
            let has_file = ours.survey().paths.iter().any(|(path, _)| path == b"/d/f");
            assert!(has_file || state == "new" || repaired.loses(), "{place}: {:?}", repaired.mends);
        }
    }
}

#[test]
fn what_a_repair_did_to_both_is_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    for (block, log) in [("4096", LOG_4K), ("1024", LOG_1K)] {
        let pair = match Pair::crashed(block, "", folder.path()) {
            Ok(pair) => pair,
            Err(reason) => skip!("repair external::what_a_repair_did_to_both", reason),
        };
        let (device, journal) = pair.devices();
        let staged = Staged::with_journal(
            Arc::clone(&device) as Arc<dyn Device>,
            Some(Arc::clone(&journal) as Arc<dyn Device>),
            &in_memory(),
        );
        let repaired = staged.repair(&OPTIONS).unwrap();
        let mut file = Vec::new();
        write_out(&staged, &repaired.order, NOW, Some(&mut file), || Ok(())).unwrap();
        let after = Pair { volume: device.to_vec(), journal: journal.to_vec(), folder: pair.folder.clone() };
        assert_sound(&after, "written");
        assert!(after.journal != pair.journal && after.volume != pair.volume);
        assert!(matches!(undo(&*device, None, &mut Cursor::new(&file)), Err(UndoError::NeedsJournal)));
        let mut foreign = after.journal.clone();
        foreign[1024 + 0x68] ^= 1;
        let foreign = MemoryDevice::from_bytes(&foreign);
        let refused = undo(&*device, Some(&foreign), &mut Cursor::new(&file));
        assert!(matches!(refused, Err(UndoError::ForeignJournal(_))), "{refused:?}");
        let mut used = after.journal.clone();
        used[log + 0x18] ^= 1;
        let used = MemoryDevice::from_bytes(&used);
        let refused = undo(&*device, Some(&used), &mut Cursor::new(&file));
        assert!(matches!(refused, Err(UndoError::ForeignJournal(_))), "{refused:?}");
        for at in (0..file.len()).step_by(401) {
            let mut damaged = file.clone();
            damaged[at] ^= 0x10;
            assert!(undo(&*device, Some(&*journal), &mut Cursor::new(&damaged)).is_err(), "byte {at}");
        }
        assert!(device.to_vec() == after.volume && journal.to_vec() == after.journal);
        undo(&*device, Some(&*journal), &mut Cursor::new(&file)).unwrap();
        assert!(device.to_vec() == pair.volume && journal.to_vec() == pair.journal);
    }
}

fn in_memory() -> Arc<PageStore> {
    Arc::new(PageStore::in_memory())
}

/// Power cuts while both are written. The journal changes once, between two flushes of the volume: before the
/// last writes of the volume it may be old or new, before the others it is old.
#[test]
fn a_power_cut_while_both_are_written_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let pair = match Pair::crashed("4096", "", folder.path()) {
        Ok(pair) => pair,
        Err(reason) => skip!("repair external::a_power_cut_while_both_are_written", reason),
    };
    let recorded = Arc::new(RecordDevice::new(MemoryDevice::from_bytes(&pair.volume)));
    let journal = pair.devices().1;
    let staged = Staged::with_journal(
        Arc::<RecordDevice<MemoryDevice>>::clone(&recorded),
        Some(Arc::clone(&journal) as Arc<dyn Device>),
        &in_memory(),
    );
    let repaired = staged.repair(&OPTIONS).unwrap();
    let mut file = Vec::new();
    write_out(&staged, &repaired.order, NOW, Some(&mut file), || Ok(())).unwrap();
    let after = Pair { volume: bytes_of(&*recorded), journal: journal.to_vec(), folder: pair.folder.clone() };
    let mut states = CrashStates::new(MemoryDevice::from_bytes(&pair.volume), recorded.log());
    let points: Vec<usize> = states.points().collect();
    // The last three: before and after the superblock is written, and flushed. Before that comes the flush of
    // what lies in place, and one of nothing.
    let (last, mut judged) = (points.len() - 4, 0);
    for (nr, point) in points.iter().copied().enumerate() {
        for (torn, new) in [(false, false), (true, false), (false, true), (true, true)] {
            if if new { nr < last } else { nr > last } {
                continue; // not so
            }
            let state = if torn { states.torn(point, nr as u64) } else { states.prefix(point) }.unwrap();
            let volume = bytes_of(&state);
            let log = if new { &after.journal } else { &pair.journal }.clone();
            let cut = Pair { volume, journal: log, folder: pair.folder.clone() };
            let place = format!("point {point} of {}, torn {torn}, journal new {new}", points.len());
            judge_cut(&cut, &pair, &after, &file, &place);
            judged += 1;
        }
    }
    assert!(judged > 10, "{judged}");
}

fn judge_cut(cut: &Pair, before: &Pair, after: &Pair, file: &[u8], place: &str) {
    // With the undo file back, and on.
    let (device, journal) = cut.devices();
    undo(&*device, Some(&*journal), &mut Cursor::new(file))
        .unwrap_or_else(|error| panic!("{place}: {error}"));
    assert!(device.to_vec() == before.volume && journal.to_vec() == before.journal, "{place}");
    let (device, journal) = cut.devices();
    let resumed = Staged::resumed(
        Arc::clone(&device) as Arc<dyn Device>,
        Some(Arc::clone(&journal) as Arc<dyn Device>),
        &mut Cursor::new(file),
        &in_memory(),
    );
    if let Some(staged) = resumed.unwrap_or_else(|error| panic!("{place}: {error}")) {
        let repaired = staged.repair(&OPTIONS).unwrap();
        let mut second = Vec::new();
        write_out(&staged, &repaired.order, NOW, Some(&mut second), || Ok(())).unwrap();
        assert!(device.to_vec() == after.volume && journal.to_vec() == after.journal, "{place}");
        undo(&*device, Some(&*journal), &mut Cursor::new(&second)).unwrap();
        assert!(device.to_vec() == before.volume && journal.to_vec() == before.journal, "{place}");
    } else {
        assert!(cut.volume == before.volume || cut.volume == after.volume, "{place}");
    }
    // Without it, another repair.
    let (again, _) = cut.repaired().unwrap_or_else(|error| panic!("{place}: {error}"));
    assert_sound(&again, place);
    assert_eq!(again.survey(), after.survey(), "{place}");
}
