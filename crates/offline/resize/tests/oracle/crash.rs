//! Power cuts at any moment of a resize: the volume is the old one, the new one, or one that e2fsck -p mends
//! without loss; and the kernel can mount it first.

use crate::support::{OPTIONS, Pair};
use hectare_device::{CrashStates, Device, Event, FileOptions, MemoryDevice, RecordDevice};
use hectare_ext4::feature::{Compat, Incompat};
use hectare_ext4::superblock::SuperBlock;
use hectare_oracle::{
    Entry, KernelMount, Skip, What, assert_same, dumpe2fs, dumpe2fs_superblock, fsck, scratch, skip,
    skip_part, sparse,
};
use hectare_resize::{Options, Target, Width};
use hectare_units::{Bytes, GroupNr, index_of};
use rangemap::RangeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A resize whose crashes are judged.
pub(crate) struct Case {
    pub(crate) pair: Pair,
    width: Width,
    /// Whether a journal, its own or one on loan, takes everything.
    is_safe: bool,
    /// Whether its journal lies on another device.
    is_external: bool,
}

impl Case {
    pub(crate) fn new(combo: &str, more: &[&str], from: u64, to: u64) -> Self {
        Self {
            pair: Pair::new(combo, more, from, to),
            width: Width::AsNeeded,
            is_safe: true,
            is_external: false,
        }
    }

    fn width(self, width: Width) -> Self {
        Self { width, ..self }
    }

    fn external(self) -> Self {
        Self { is_external: true, ..self }
    }

    /// Everything in a volume of this kind.
    pub(crate) fn entries(&self, image: &Path) -> Result<Vec<Entry>, Skip> {
        if self.is_external { hectare_oracle::dumped(image) } else { self.pair.entries(image) }
    }

    fn compared(&self) -> What {
        if self.is_external { What::content() } else { self.pair.compared() }
    }
}

fn cases() -> Vec<Case> {
    vec![
        Case::new("ext4", &["-g", "2048", "-J", "size=16"], 100, 52),
        Case::new("ext4", &["-g", "2048"], 40, 90),
        Case::new("ext4-1k", &["-J", "size=1"], 60, 34),
        Case::new("ext3-1k", &["-J", "size=8"], 60, 34),
        Case::new("ext3-1k", &["-J", "size=1"], 60, 30),
        Case::new("ext2", &["-g", "2048"], 80, 48),
        Case::new("ext2", &["-g", "2048"], 40, 90),
        Case::new("ext2-1k-128", &[], 60, 34),
        Case::new("ext2-plain", &[], 30, 300),
        Case::new("no-journal", &["-g", "2048"], 80, 44),
        Case::new("no-journal", &["-g", "2048"], 40, 90),
        Case::new("bigalloc", &["-g", "8192"], 200, 90),
        Case::new("bigalloc-1k", &["-O", "^has_journal"], 128, 60),
        Case::new("meta-bg-1k", &[], 80, 44),
        Case::new("meta-bg-1k", &["-O", "^has_journal"], 44, 80),
        Case::new("small-groups", &["-N", "16384"], 60, 34),
        Case::new("sparse-super2", &[], 70, 44),
        Case::new("no-64bit", &["-g", "2048"], 60, 60).width(Width::Wide),
        Case::new("ext4", &["-g", "2048"], 60, 60).width(Width::Narrow),
        Case::new("no-journal", &["-g", "2048"], 60, 60).width(Width::Narrow),
        Case::new("bigalloc", &["-g", "8192"], 90, 200),
        Case::new("meta-bg", &["-g", "2048"], 100, 52),
        Case::new("inline-data-512", &[], 80, 44),
        Case::new("inline-data", &["-g", "2048", "-J", "size=4"], 80, 44),
        Case::new("no-journal", &["-g", "2048"], 80, 44).external(),
        Case::new("no-journal", &["-g", "2048"], 40, 90).external(),
    ]
}

/// What a state becomes before it is judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum First {
    /// e2fsck -p, as at boot.
    Fsck,
    /// The kernel mounts it, writes to it and closes it.
    Kernel,
}

/// Judges about `count` states, and says how many they were.
fn judge(case: &Case, count: usize) -> Result<usize, Skip> {
    let pair = &case.pair;
    let image = pair.make()?;
    let journal = if case.is_external { Some(use_external_journal(&image)?) } else { None };
    let before = case.entries(&image)?;
    let bytes = fs::read(&image).unwrap();
    fs::remove_file(image).unwrap();
    let recorded = Arc::new(RecordDevice::new(MemoryDevice::from_bytes(&bytes)));
    let disk: Arc<dyn Device> = Arc::<RecordDevice<MemoryDevice>>::clone(&recorded);
    let options = Options { width: case.width, ..OPTIONS };
    let done = hectare_resize::resize(&disk, Target::Bytes(Bytes::mib(pair.to)), true, &options)
        .unwrap_or_else(|error| panic!("{pair:?}: {error}"));
    assert_eq!(!done.in_place, case.is_safe, "{pair:?}: whether a journal takes it");
    let mut states = CrashStates::new(MemoryDevice::from_bytes(&bytes), recorded.log());
    drop(bytes);
    let points: Vec<usize> = states.points().collect();
    // All moments around flushes matter, and most points lie in the copying of data: those around flushes
    // are dense.
    let log = recorded.log();
    let is_near_flush = |point: usize| {
        log[point.saturating_sub(2)..(point + 2).min(log.len())]
            .iter()
            .any(|event| matches!(event, Event::Flush | Event::FlushOf(_)))
    };
    let near: Vec<usize> = points.iter().copied().filter(|point| is_near_flush(*point)).collect();
    let far: Vec<usize> = points.into_iter().filter(|point| !is_near_flush(*point)).collect();
    let each = (count / 2).div_ceil(near.len().max(1)).max(1);
    let thin = near.len().div_ceil(count / 2 + 1).max(1);
    let step = far.len().div_ceil(count / 2 + 1).max(1);
    let mut chosen: Vec<usize> = near.into_iter().step_by(thin).flat_map(|p| vec![p; each]).collect();
    chosen.extend(far.into_iter().step_by(step));
    chosen.sort_unstable();
    let mut torn = 0;
    let only = std::env::var("HECTARE_RESIZE_STATE").ok().and_then(|nr| nr.parse::<usize>().ok());
    for (nr, point) in
        chosen.iter().copied().enumerate().filter(|(nr, _)| only.is_none_or(|only| only == *nr))
    {
        let seed = hectare_units::u64_of(nr);
        let state = if nr % 4 == 0 { states.prefix(point) } else { states.torn(point, seed) }.unwrap();
        let file = scratch::fresh("crashed");
        let read = |at, part: &mut [u8]| state.read_at(Bytes::new(at), part).unwrap();
        sparse::save_read(&file, state.len().get(), read).unwrap();
        drop(state);
        torn += usize::from(mend_torn_superblock(&file, &log[..point]));
        let is_mountable = !case.is_external && pair.combo.mountable().is_ok();
        let first = if nr % 5 == 4 && is_mountable { First::Kernel } else { First::Fsck };
        let what = format!("{pair:?}, state {nr}, point {point} of {}, {first:?}", log.len());
        mend(case, (&file, journal.as_deref()), &before, first, &what)?;
        fs::remove_file(file).unwrap();
    }
    journal.into_iter().for_each(|journal| fs::remove_file(journal).unwrap());
    let (count, points) = (chosen.len(), log.len());
    println!("{pair:?}, {:?}: {count} states of {points} points, {torn} superblocks torn", case.width);
    Ok(chosen.len())
}

/// Gives a volume without a journal one in another file.
fn use_external_journal(image: &Path) -> Result<PathBuf, Skip> {
    let path = scratch::fresh("journal");
    hectare_oracle::mke2fs(&["-O", "journal_dev", "-b", "4096"], &path, "16M")?;
    let open = |path: &Path| FileOptions::new().write(true).open(path).unwrap();
    let (journal, disk) = (open(&path), open(image));
    let (size, uuid) = hectare_mkfs::external_journal(&journal, false).unwrap();
    let (at, mut bytes) = (Bytes::new(1024), [0; 1024]);
    disk.read_at(at, &mut bytes).unwrap();
    let sb = SuperBlock::parse(&bytes, disk.len()).unwrap();
    hectare_mkfs::join_journal(&journal, size, sb.uuid()).unwrap();
    let mut raw = *sb.raw();
    raw.s_feature_compat = (raw.s_feature_compat.get() | Compat::HAS_JOURNAL.bits()).into();
    raw.s_journal_uuid = uuid;
    disk.write_at(at, &SuperBlock::from_raw(raw).unwrap().render(GroupNr::new(0))).unwrap();
    Ok(path)
}

/// Judges a state of a volume, which may have a journal in another file.
pub(crate) fn mend(
    case: &Case,
    (file, journal): (&Path, Option<&Path>),
    before: &[Entry],
    first: First,
    what: &str,
) -> Result<(), Skip> {
    let pair = &case.pair;
    if first == First::Kernel {
        match KernelMount::attempt(file, hectare_oracle::mount::Access::ReadWrite, "") {
            Ok(mount) => {
                let root = fs::File::open(mount.path()).unwrap();
                let mtime = root.metadata().unwrap().modified().unwrap();
                let _ = fs::write(mount.path().join("after"), vec![3; 70_000]);
                let _ = fs::remove_file(mount.path().join("after"));
                root.set_modified(mtime).unwrap();
                drop(root);
                mount.unmount();
            }
            Err(error) => println!("{what}: the kernel says {error:?}"),
        }
    }
    let beside = journal.map(|journal| journal.to_str().unwrap().to_owned());
    let beside: Vec<&str> = beside.iter().flat_map(|journal| ["-j", journal]).collect();
    let mended = fsck::e2fsck_with(file, &[&["-p"], &beside[..]].concat())?;
    assert!(matches!(mended.exit, Some(0 | 1)), "{what}: e2fsck -p: {}", mended.output);
    let clean = fsck::e2fsck_with(file, &[&["-fn"], &beside[..]].concat())?;
    assert!(clean.is_sound(), "{what}: e2fsck -fn says {} after -p said {}", clean.output, mended.output);
    let blocks = dumpe2fs_superblock(file)?.number("Block count");
    let size = |mib: u64| (mib << 20) / u64::from(pair.combo.block_size);
    let is_one = |mib: u64| size(mib).abs_diff(blocks) <= 8192;
    assert!(is_one(pair.from) || is_one(pair.to), "{what}: {blocks} blocks are neither size");
    if pair.from == pair.to || mended.exit == Some(1) || first == First::Kernel {
        assert_same(&case.entries(file)?, before, case.compared());
    }
    Ok(())
}

/// Makes a superblock whole of which the checksum came and the rest did not, or the other way round, and says
/// whether it was one. Every program that writes an ext4 volume relies on this KiB to arrive at once: nothing
/// opens a volume where it did not.
fn mend_torn_superblock(path: &Path, log: &[Event]) -> bool {
    const AT: u64 = 1024;
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut found = [0; 1024];
    file.read_exact_at(&mut found, AT).unwrap();
    if SuperBlock::parse(&found, Bytes::new(u64::MAX)).is_ok() {
        return false;
    }
    let written = log.iter().rev().find_map(|event| match event {
        Event::Write { at, data, .. } => {
            let start = AT.checked_sub(at.get()).map(index_of)?;
            data.get(start..start + 1024).map(<[u8]>::to_vec)
        }
        _ => None,
    });
    let written = written.expect("what is torn was written");
    assert!(SuperBlock::parse(&written, Bytes::new(u64::MAX)).is_ok(), "a bad superblock was written");
    file.write_all_at(&written, AT).unwrap();
    true
}

/// Blocks that are in use and were written before anything says that the volume is being changed.
fn written_while_in_use(case: &Case) -> Result<Vec<u64>, Skip> {
    let image = case.pair.make()?;
    let dump = dumpe2fs(&image)?;
    let size = dump.number("Block size");
    let mut free = RangeSet::new();
    for list in dump.groups.iter().flat_map(|group| &group.lines) {
        let Some(list) = list.trim().strip_prefix("Free blocks: ") else { continue };
        for range in list.split(", ").filter(|range| !range.is_empty()) {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            free.insert(first.parse().unwrap()..last.parse::<u64>().unwrap() + 1);
        }
    }
    free.insert(dump.number("Block count")..u64::MAX);
    let recorded = Arc::new(RecordDevice::new(MemoryDevice::from_bytes(&fs::read(&image).unwrap())));
    fs::remove_file(image).unwrap();
    let disk: Arc<dyn Device> = Arc::<RecordDevice<MemoryDevice>>::clone(&recorded);
    let options = Options { width: case.width, ..OPTIONS };
    hectare_resize::resize(&disk, Target::Bytes(Bytes::mib(case.pair.to)), true, &options).unwrap();
    let log = recorded.log();
    let before = log.iter().map_while(|event| match event {
        Event::Write { at, data, .. } if at.get() != 1024 => {
            Some(at.get() / size..(at.get() + hectare_units::u64_of(data.len())).div_ceil(size))
        }
        Event::Write { .. } => None,
        _ => Some(0..0),
    });
    Ok(before.flatten().filter(|nr| !free.contains(nr)).collect())
}

#[test]
fn data_moves_to_blocks_that_are_free() {
    let more = [
        Case::new("ext2-rev-0", &["-g", "4096"], 60, 900),
        Case::new("ext2-plain", &["-b", "1024", "-g", "4096"], 60, 900),
        Case::new("small-groups", &["-G", "8"], 100, 37),
    ];
    for case in cases().iter().chain(&more) {
        match written_while_in_use(case) {
            Ok(found) => assert!(found.is_empty(), "{:?}: blocks {found:?}", case.pair),
            Err(skip) => {
                skip_part!(format!("data_moves_to_blocks_that_are_free, {}", case.pair.combo.name), skip);
            }
        }
    }
}

/// Superblocks of a resize that say that a log is to be replayed and do not say which.
fn nameless_logs(case: &Case) -> Result<Vec<usize>, Skip> {
    let image = case.pair.make()?;
    let recorded = Arc::new(RecordDevice::new(MemoryDevice::from_bytes(&fs::read(&image).unwrap())));
    fs::remove_file(image).unwrap();
    let disk: Arc<dyn Device> = Arc::<RecordDevice<MemoryDevice>>::clone(&recorded);
    hectare_resize::resize(&disk, Target::Bytes(Bytes::mib(case.pair.to)), true, &OPTIONS).unwrap();
    let log = recorded.log();
    let superblocks = log.iter().enumerate().filter_map(|(nr, event)| match event {
        Event::Write { at, data, .. } => {
            let start = index_of(1024_u64.checked_sub(at.get())?);
            let bytes = data.get(start..start + 1024)?;
            Some((nr, SuperBlock::parse(bytes, Bytes::new(u64::MAX)).ok()?))
        }
        _ => None,
    });
    let needs = |sb: &SuperBlock| sb.features().incompat.contains(Incompat::RECOVER);
    let all: Vec<_> = superblocks.filter(|(_, sb)| needs(sb)).collect();
    assert!(!all.is_empty(), "{:?}: a journal takes it", case.pair);
    Ok(all.into_iter().filter(|(_, sb)| sb.journal_inode().is_none()).map(|(nr, _)| nr).collect())
}

#[test]
fn regression_a_superblock_names_the_log_that_is_to_be_replayed() {
    for case in [
        Case::new("ext2-1k-128", &[], 60, 34),
        Case::new("ext2", &["-g", "2048"], 80, 48),
        Case::new("ext4", &["-g", "2048"], 80, 48),
    ] {
        match nameless_logs(&case) {
            Ok(found) => assert!(found.is_empty(), "{:?}: writes {found:?}", case.pair),
            Err(reason) => {
                skip!("regression_a_superblock_names_the_log_that_is_to_be_replayed", reason);
            }
        }
    }
}

fn judge_all(test: &str, count: usize) {
    let only = std::env::var("HECTARE_RESIZE_ONLY").unwrap_or_default();
    let (mut failed, mut states) = (Vec::new(), 0);
    for case in cases().iter().filter(|case| format!("{:?}, {}", case.pair, case.is_external).contains(&only))
    {
        match std::panic::catch_unwind(|| judge(case, count)) {
            Ok(Ok(some)) => states += some,
            Ok(Err(skip)) => skip_part!(format!("{test}, {}", case.pair.combo.name), skip),
            Err(_) => failed.push(format!("{:?} {:?}", case.pair, case.width)),
        }
    }
    println!("{states} states");
    assert!(failed.is_empty(), "failed: {failed:#?}");
}

#[test]
fn a_power_cut_loses_nothing() {
    judge_all("a_power_cut_loses_nothing", 4);
}

#[test]
fn many_power_cuts_lose_nothing() {
    let count = std::env::var("HECTARE_RESIZE_STATES").ok().and_then(|count| count.parse().ok());
    let Some(count) = count else {
        skip!("many_power_cuts_lose_nothing", "long; cargo hunt resize --states N runs it");
    };
    judge_all("many_power_cuts_lose_nothing", count);
}
