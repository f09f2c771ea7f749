//! Power cuts at any moment of a change: the volume is the old one, the new one, or one that e2fsck -p
//! finishes; and no file is lost.

use crate::support::{Base, change, changes};
use hectare_device::{CrashStates, Device, FileOptions, MemoryDevice, RecordDevice};
use hectare_oracle::hunt::is_long;
use hectare_oracle::{Skip, What, assert_same, fsck, scratch, skip_part, sparse};
use hectare_tune::{Changes, ExternalJournal, tune};
use hectare_units::{Bytes, index_of};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// States of one change that are judged, about; of the long version ten times as many.
const STATES: usize = 7;

type Options = &'static [(&'static str, &'static str)];

/// Who has the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Journal {
    /// The volume, if it has one.
    Inside,
    /// Another device, before and after.
    Outside,
    /// Another device, afterwards.
    Joined,
    /// Another device, before.
    Left,
}

/// A journal in a file of its own.
fn external() -> Result<PathBuf, Skip> {
    let path = scratch::fresh("journal");
    hectare_oracle::mke2fs(&["-O", "journal_dev", "-b", "4096"], &path, "16M")?;
    Ok(path)
}

fn opened(path: &Path) -> ExternalJournal {
    ExternalJournal { device: Arc::new(FileOptions::new().write(true).open(path).unwrap()), number: 0 }
}

fn judge(base: &Base, options: Options, place: Journal) -> Result<usize, Skip> {
    let image = base.make()?;
    let journal = if place == Journal::Inside { None } else { Some(external()?) };
    let mut asked = changes(options);
    if let Some(path) = &journal {
        if place == Journal::Joined {
            asked.journal_device = Some(opened(path));
        } else {
            let joined = Changes { journal_device: Some(opened(path)), ..changes(&[]) };
            change(&image, &joined).unwrap();
        }
        if place == Journal::Left {
            asked.journal_device = Some(opened(path));
        }
    }
    let entries = |image: &Path| match &journal {
        Some(_) => hectare_oracle::dumped(image),
        None => base.entries(image),
    };
    let compared = if journal.is_some() { What::content() } else { base.compared() };
    let before = entries(&image)?;
    let bytes = fs::read(&image).unwrap();
    let recorded = Arc::new(RecordDevice::new(MemoryDevice::from_bytes(&bytes)));
    let disk: Arc<dyn Device> = Arc::<RecordDevice<MemoryDevice>>::clone(&recorded);
    let log_before = journal.as_ref().map(|path| fs::read(path).unwrap());
    let done = tune(&disk, &asked).unwrap_or_else(|error| panic!("{base:?} {options:?}: {error}"));
    assert!(!done.in_place, "{base:?} {options:?}: a journal takes it");
    drop(asked);
    // It is joined before all else, and left after.
    let log = if place == Journal::Joined {
        journal.as_ref().map(|path| fs::read(path).unwrap())
    } else {
        log_before
    };
    let mut states = CrashStates::new(MemoryDevice::from_bytes(&bytes), recorded.log());
    let points: Vec<usize> = states.points().collect();
    let wanted = if is_long() { STATES * 10 } else { STATES };
    let step = (points.len() / wanted).max(1);
    // What lies at the ends of the change is dense with flushes.
    let tail = points.len().saturating_sub(wanted / 2);
    let mut judged = 0;
    for (nr, point) in points.iter().copied().enumerate() {
        if nr % step != 0 && nr < tail {
            continue;
        }
        let seed = hectare_units::u64_of(nr);
        let state = if nr % 3 == 0 { states.prefix(point) } else { states.torn(point, seed) }.unwrap();
        let mut bytes = vec![0; index_of(state.len().get())];
        state.read_at(Bytes::ZERO, &mut bytes).unwrap();
        drop(state);
        let file = scratch::fresh("crashed");
        sparse::save(&file, &bytes).unwrap();
        let beside: Vec<&str> = match (&journal, &log) {
            (Some(path), Some(log)) => {
                fs::write(path, log).unwrap();
                vec!["-j", path.to_str().unwrap()]
            }
            _ => Vec::new(),
        };
        let mut mended = fsck::e2fsck_with(&file, &[&["-p"], &beside[..]].concat())?;
        if mended.output.contains("Superblock checksum does not match")
            && let Some([at, size]) = unusual_backup(&bytes).map(|numbers| numbers.map(|nr| nr.to_string()))
        {
            let named = ["-fp", "-b", &at, "-B", &size];
            mended = fsck::e2fsck_with(&file, &[&named, &beside[..]].concat())?;
        }
        let place = format!("{base:?} {options:?}, {place:?}, point {point} of {}", points.len());
        assert!(matches!(mended.exit, Some(0 | 1)), "{place}: e2fsck -p: {}", mended.output);
        let after = fsck::e2fsck_with(&file, &[&["-fn"], &beside[..]].concat())?;
        assert!(after.exit == Some(0), "{place}: {}", after.output);
        assert_same(&entries(&file)?, &before, compared);
        fs::remove_file(file).unwrap();
        judged += 1;
    }
    fs::remove_file(image).unwrap();
    journal.into_iter().for_each(|journal| fs::remove_file(journal).unwrap());
    Ok(judged)
}

/// The block of the first backup of the superblock and the size of a block, where groups are smaller than usual:
/// e2fsck does not find that backup by itself, so a superblock of which only one sector arrived needs its number.
fn unusual_backup(image: &[u8]) -> Option<[u32; 2]> {
    let field = |at: usize| u32::from_le_bytes(image[1024 + at..][..4].try_into().unwrap());
    let (first_data_block, block_size, blocks_per_group) = (field(0x14), 1024 << field(0x18), field(0x20));
    (blocks_per_group < 8 * block_size).then_some([first_data_block + blocks_per_group, block_size])
}

const UUID: (&str, &str) = ("-U", "x");

#[test]
fn a_power_cut_loses_nothing() {
    let only = std::env::var("HECTARE_TUNE_ONLY").unwrap_or_default();
    let inside: &[(&str, &'static [&'static str], u64, Options)] = &[
        ("ext4", &[], 64, &[UUID]),
        ("ext4", &[], 64, &[("-O", "^64bit")]),
        ("ext4", &[], 64, &[("-I", "512")]),
        ("ext4", &[], 64, &[("-O", "^filetype,^dir_index,sparse_super2")]),
        ("ext4", &[], 64, &[("-O", "^has_journal")]),
        ("ext4", &[], 64, &[("-J", "size=8")]),
        ("ext4", &[], 64, &[("-O", "^metadata_csum,^64bit,^extent")]),
        ("ext4", &["-O", "^metadata_csum"], 64, &[("-O", "metadata_csum")]),
        ("ext4", &["-O", "^has_journal"], 64, &[("-O", "has_journal,orphan_file"), UUID]),
        ("ext4", &["-O", "^has_journal"], 64, &[UUID]),
        ("ext4", &["-O", "^has_journal"], 64, &[("-I", "512")]),
        ("ext2-1k-128", &[], 64, &[("-I", "256"), ("-O", "extent,64bit")]),
        ("ext2-1k-128", &[], 64, &[("-O", "has_journal")]),
        ("ext3-1k", &[], 64, &[("-I", "256"), ("-O", "^resize_inode")]),
        ("bigalloc", &[], 128, &[UUID]),
        ("bigalloc", &[], 128, &[("-I", "512"), ("-O", "^64bit")]),
        ("meta-bg", &["-g", "4096"], 96, &[("-I", "512"), UUID]),
        ("inline-data", &[], 64, &[("-I", "512")]),
        ("inline-data", &[], 64, &[("-O", "^metadata_csum,^filetype")]),
        ("quota", &[], 64, &[("-O", "^extent,^64bit")]),
        ("no-64bit", IN_THE_WAY, 256, &[("-O", "64bit")]),
    ];
    let outside: &[(&str, &'static [&'static str], u64, Options, Journal)] = &[
        ("ext4", &["-O", "^has_journal"], 64, &[], Journal::Joined),
        ("ext4", &["-O", "^has_journal"], 64, &[("-O", "^64bit")], Journal::Joined),
        ("ext4", &["-O", "^has_journal"], 64, &[("-I", "512")], Journal::Outside),
        ("ext4", &["-O", "^has_journal"], 64, &[("-O", "^metadata_csum")], Journal::Outside),
        ("ext4", &["-O", "^has_journal"], 64, &[("-O", "^has_journal")], Journal::Left),
        ("ext4", &["-O", "^has_journal"], 64, &[("-O", "^has_journal,^64bit"), ("-I", "512")], Journal::Left),
    ];
    let inside =
        inside.iter().map(|(name, more, mib, options)| (*name, *more, *mib, *options, Journal::Inside));
    let mut judged = 0;
    for case in inside.chain(outside.iter().copied()) {
        if !format!("{case:?}").contains(&only) {
            continue;
        }
        let (name, more, mib, options, journal) = case;
        match judge(&Base::new(name, more, mib), options, journal) {
            Ok(states) => judged += states,
            Err(skip) => skip_part!(format!("a_power_cut_loses_nothing, {name} {options:?}"), skip),
        }
    }
    println!("{judged} states");
}

/// The journal lies behind the descriptors of a backup, which become wider.
const IN_THE_WAY: &[&str] =
    &["-b", "1024", "-g", "2048", "-O", "^resize_inode", "-J", "size=4,location=6150"];
