//! Shared by the tests of whole volumes: mke2fs's arguments as options, and images made both ways.

use hectare_device::{
    CrashStates, Device, Discarded, FaultDevice, FileDevice, FileOptions, MemoryDevice, Operation, Outcome,
    OverlayDevice, Overwrite, RecordDevice, Rule,
};
use hectare_mkfs::{
    FormatOptions, FsType, InodeCount, Plan, Usage, What, apply_extended, execute, parse_features,
    parse_uuid, probe,
};
use hectare_oracle::Skip;
use hectare_oracle::e2fsprogs::UUID;
use hectare_units::{BlockSize, Bytes, index_of};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// What comes of all cases, judged from the last, where the largest are, two at a time: most of a case is
/// other programs.
pub(crate) fn two_at_a_time<C: Sync, R: Send>(
    cases: &[C],
    judge: impl Fn(&C) -> Result<R, Skip> + Sync,
) -> Result<Vec<R>, Skip> {
    let left = Mutex::new(cases.iter().rev());
    let next = || left.lock().unwrap().next();
    let work = || std::iter::from_fn(next).map(&judge).collect::<Result<Vec<_>, _>>();
    let halves: Result<Vec<_>, Skip> = std::thread::scope(|scope| {
        [scope.spawn(work), scope.spawn(work)].into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    Ok(halves?.into_iter().flatten().collect())
}

/// A size as mke2fs takes it: "64M".
pub(crate) fn bytes(size: &str) -> Bytes {
    let (number, unit) = size.split_at(size.len() - 1);
    let shift = match unit {
        "k" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        "P" => 50,
        _ => panic!("no unit in {size}"),
    };
    Bytes::new(number.parse::<u64>().unwrap() << shift)
}

/// Options from mke2fs's arguments, with the UUIDs that the oracle gives mke2fs.
pub(crate) fn options(args: &[&str]) -> hectare_mkfs::Result<FormatOptions> {
    let uuid = parse_uuid("-U", UUID)?;
    let mut options = FormatOptions {
        fs_type: FsType::Ext2, // mke2fs under its own name
        uuid: Some(uuid),
        hash_seed: Some(uuid),
        ..FormatOptions::default()
    };
    for pair in args.chunks(2) {
        let [flag, value] = pair else { panic!("arguments come in pairs: {pair:?}") };
        match *flag {
            "-t" => options.fs_type = FsType::by_name(value)?,
            "-T" => options.usage = Some(Usage::by_name(value)?),
            "-b" => options.block_size = BlockSize::from_bytes(value.parse().unwrap()),
            "-C" => options.cluster_size = value.parse().ok(),
            "-I" => options.inode_size = value.parse().ok(),
            "-i" => options.inodes = InodeCount::Ratio(value.parse().unwrap()),
            "-N" => options.inodes = InodeCount::Exactly(value.parse().unwrap()),
            "-m" => options.reserved_percent = value.parse().unwrap(),
            "-L" => options.label = value.as_bytes().to_vec(),
            "-O" => options.features.extend(parse_features(value)?),
            "-E" => apply_extended(&mut options, value)?,
            "-J" => options.journal_mib = value.strip_prefix("size=").unwrap().parse().ok(),
            "-G" => options.flex_groups = value.parse().ok(),
            "-g" => options.clusters_per_group = value.parse().ok(),
            "-e" => options.on_error = hectare_mkfs::OnError::RemountReadOnly,
            _ => panic!("unknown flag {flag}"),
        }
    }
    Ok(options)
}

/// A new, sparse image file. What had its name goes first: a process that another test just forked may still
/// hold the lock on it.
pub(crate) fn create(image: &Path, size: Bytes) -> FileDevice {
    let _ = std::fs::remove_file(image);
    FileOptions::new().write(true).create(image, size, Overwrite::Replace).unwrap()
}

/// Makes an empty volume in a new image file.
pub(crate) fn format(options: &FormatOptions, image: &Path, size: Bytes) -> hectare_mkfs::Result<Plan> {
    let device = create(image, size);
    let plan = Plan::new(options, size, true)?;
    execute(&plan, &device, &plan.empty(), 2)?;
    Ok(plan)
}

/// A directory for images: in memory where the host has that, because many large sparse files are made here.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Cuts the power at each point of a format of a device that may hold anything, with storage that keeps any
/// part of what was not flushed: where a superblock is taken for one, all of the volume is there.
pub(crate) fn assert_no_volume_before_all_is_there(
    size: Bytes,
    is_volume: impl Fn(&dyn Device) -> bool,
    make: impl Fn(&dyn Device) -> hectare_mkfs::Result<()>,
) {
    let old = Arc::new(MemoryDevice::new(size));
    (0..size.get() >> 20).for_each(|mib| old.write_at(Bytes::mib(mib), &[0xa5; 8192]).unwrap());
    let device = RecordDevice::new(OverlayDevice::new(Arc::clone(&old)));
    make(&device).unwrap();
    let content = |device: &dyn Device| {
        let mut bytes = vec![0; index_of(size.get())];
        device.read_at(Bytes::ZERO, &mut bytes).unwrap();
        bytes
    };
    let whole = content(&device);
    let mut states = CrashStates::new(OverlayDevice::new(old), device.log()).discarded(Discarded::Kept);
    let (mut with, mut without) = (0, 0);
    for (point, seed) in states.points().flat_map(|point| (0..5).map(move |seed| (point, seed))) {
        let state = states.torn(point, seed).unwrap();
        if is_volume(&state) {
            with += 1;
            assert!(content(&state) == whole, "point {point}, seed {seed}");
        } else {
            without += 1;
        }
    }
    assert!(with > 0 && without > 10, "{with} with a volume, {without} without");
}

/// Fails every write, zeroing and flush of a format from each on, one after another, on a device that reads
/// as zeros and on one that may hold anything: afterwards there is no volume, and the error says why.
pub(crate) fn assert_no_volume_where_a_device_fails(
    size: Bytes,
    what: What,
    make: impl Fn(&dyn Device, bool) -> hectare_mkfs::Result<()>,
) {
    for zeroed in [true, false] {
        for k in 0.. {
            let device = FaultDevice::new(MemoryDevice::new(size));
            let operations = [Operation::Write, Operation::Zero, Operation::Flush];
            device.add(Rule::new(Outcome::IO).on(&operations).after(k));
            let made = make(&device, zeroed);
            let strikes = device.strikes();
            device.clear();
            let found = probe(&device).unwrap().map(|found| found.what);
            if strikes == 0 {
                made.unwrap();
                assert!(k > 5 && found == Some(what), "{k} operations were too few to mean anything");
                break;
            }
            let error = made.unwrap_err().to_string();
            // Only where the flush of the superblock itself fails is it there. Else the error reports an
            // interrupted format, unless that is what failed.
            assert!(found != Some(what) || error.contains("flush"), "{k}: {error}");
            assert!(found.is_some() || k < 6, "{k}: {error}");
        }
    }
}
