//! How much is read of a volume's groups, and that its totals are right.

use super::totals::Free;
use crate::{Creation, Error, OpenOptions, Overwrite, Volume};
use hectare_device::{
    Device, FaultDevice, MemoryDevice, Operation, Outcome, Request, Rule, SparseDevice, StatsDevice,
};
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::superblock::{SIZE, STATE_VALID, SuperBlock};
use hectare_mkfs::{FormatOptions, parse_features};
use hectare_oracle::{assert_clean, skip};
use hectare_units::{BlockSize, Blocks, Bytes, GroupNr};
use std::sync::Arc;

/// The cost of opening a volume, making a directory and a file in it, and closing it.
#[derive(Debug)]
struct Cost {
    groups: u32,
    reads: u64,
    bytes: u64,
    written: u64,
    /// Blocks of descriptors in memory.
    desc_blocks: usize,
    loaded_groups: usize,
}

fn cost(size: Bytes) -> Cost {
    let device = Arc::new(StatsDevice::new(SparseDevice::new(size)));
    let format = FormatOptions::default();
    let open = || OpenOptions { seed: Some(7), ..OpenOptions::default() };
    let shared = || Arc::clone(&device) as Arc<dyn Device>;
    Volume::format(shared(), &format, Overwrite::Refuse, open()).unwrap().close().unwrap();
    let before = device.snapshot();
    let volume = Volume::open(shared(), open()).unwrap();
    volume.create_dir("folder", Creation::default()).unwrap();
    volume.write_file("folder/file", &[1; 100_000], Creation::default()).unwrap();
    volume.statfs().unwrap();
    volume.close().unwrap();
    let after = device.snapshot().since(&before);
    Cost {
        groups: volume.superblock().geometry().groups(),
        reads: after.of(Operation::Read).done,
        bytes: after.of(Operation::Read).bytes.get(),
        written: after.of(Operation::Write).bytes.get(),
        desc_blocks: volume.core().state.groups.desc_blocks.made_from(0).count(),
        loaded_groups: volume.core().state.allocator.loaded_groups(),
    }
}

#[test]
fn using_a_volume_of_many_groups_costs_what_is_touched() {
    let (few, many) = (cost(Bytes::mib(128 << 10)), cost(Bytes::mib(8 << 20)));
    assert_eq!((few.groups, many.groups), (1 << 10, 1 << 16));
    for cost in [&few, &many] {
        assert!(cost.desc_blocks <= 3 && cost.loaded_groups <= 32, "{cost:?}");
        assert!(cost.reads <= 60 && cost.bytes <= 1 << 20 && cost.written <= 1 << 20, "{cost:?}");
    }
    assert!(many.reads <= few.reads + 4, "{few:?} {many:?}");
}

/// A volume of 64 MiB in flex groups of four groups with a file, and what its descriptors say is free.
fn small(features: &str, clusters_per_group: u32) -> (Arc<MemoryDevice>, Free) {
    let device = Arc::new(MemoryDevice::new(Bytes::mib(64)));
    let format = FormatOptions {
        block_size: Some(BlockSize::KIB1),
        clusters_per_group: Some(clusters_per_group),
        flex_groups: Some(4),
        reserved_percent: 0.0,
        features: parse_features(features).unwrap(),
        ..FormatOptions::default()
    };
    let shared = Arc::clone(&device) as Arc<dyn Device>;
    let volume = Volume::format(shared, &format, Overwrite::Refuse, OpenOptions::default()).unwrap();
    volume.write_file("file", &[1; 70_000], Creation::default()).unwrap();
    volume.close().unwrap();
    let free = volume.core().state.groups.count_free(0..volume.superblock().geometry().groups()).unwrap();
    (device, free)
}

/// Makes the superblock contradict what is free, and perhaps say that the volume was not closed.
fn patch(device: &MemoryDevice, says: Free, closed: bool) {
    let mut bytes = [0; SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).unwrap();
    let mut sb = SuperBlock::parse(&bytes, device.len()).unwrap();
    sb.set_free(Blocks::new(says.clusters), u32::try_from(says.inodes).unwrap());
    if !closed {
        sb.set_state(sb.state() & !STATE_VALID);
        sb.set_needs_recovery(sb.journal_inode().is_some());
    }
    device.write_at(SUPERBLOCK_OFFSET, &sb.render(GroupNr::new(0))).unwrap();
}

fn open(device: &Arc<MemoryDevice>, options: OpenOptions) -> (Volume, Free) {
    let volume = Volume::open(Arc::clone(device) as Arc<dyn Device>, options).unwrap();
    let statfs = volume.statfs().unwrap();
    (volume, Free { clusters: statfs.free.get(), inodes: statfs.free_inodes.into() })
}

fn read_only() -> OpenOptions {
    OpenOptions { read_only: true, ..OpenOptions::default() }
}

#[test]
fn what_is_free_is_known_at_once_from_a_clean_superblock_and_counted_otherwise() {
    for features in ["", "^has_journal"] {
        let (device, free) = small(features, 4096);
        let (volume, said) = open(&device, read_only());
        assert_eq!(said, free, "{features}");
        assert_eq!(volume.core().state.groups.desc_blocks.made_from(0).count(), 0, "nothing was read for it");
        let old = Free { clusters: free.clusters + 300, inodes: free.inodes - 20 };
        patch(&device, old, false);
        assert_eq!(open(&device, read_only()).1, free, "{features}: read only, not closed");
        if features.is_empty() {
            let (volume, said) = open(&device, OpenOptions::default());
            assert_eq!(said, free, "the journal was needed");
            volume.close().unwrap();
            assert_eq!(open(&device, read_only()).1, free);
        }
    }
}

/// Creates files of one block until there is no space or no inode left; returns how many.
fn fill(volume: &Volume) -> (u64, Error) {
    for nr in 0.. {
        if let Err(error) = volume.write_file(format!("{nr}"), &[1; 1000], Creation::default()) {
            return (nr, error);
        }
    }
    unreachable!("a volume is finite");
}

#[test]
fn a_clean_superblock_that_is_wrong_refuses_nobody_and_is_put_right() {
    for much in [false, true] {
        let (device, free) = small("^has_journal", 4096);
        let says = match much {
            false => Free { clusters: 0, inodes: 0 },
            true => Free { clusters: free.clusters + 5000, inodes: free.inodes + 5 },
        };
        patch(&device, says, true);
        let (volume, said) = open(&device, OpenOptions::default());
        assert_eq!(said, says);
        let (files, error) = fill(&volume);
        assert!(matches!(error, Error::NoSpace | Error::NoInodes), "{error}");
        assert!(files > free.inodes.min(free.clusters) * 9 / 10, "{files} files with {free:?}");
        volume.remove_file("3").unwrap();
        volume.sync().unwrap();
        volume.write_file("again", &[1; 1000], Creation::default()).unwrap();
        volume.close().unwrap();
        let counted = volume.core().state.groups.count_free(0..16).unwrap();
        assert_eq!(open(&device, read_only()).1, counted);
        let image = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(image.path(), device.to_vec()).unwrap();
        if let Err(reason) = assert_clean(image.path()) {
            skip!("groups::a_clean_superblock_that_is_wrong", reason);
        }
    }
}

#[test]
fn descriptors_that_cannot_be_read_are_an_error_for_who_needs_their_groups() {
    let (memory, free) = small("^has_journal", 1024);
    let device = Arc::new(FaultDevice::new(memory));
    let open = || Volume::open(Arc::clone(&device) as Arc<dyn Device>, OpenOptions::default()).unwrap();
    let volume = open();
    let geometry = volume.superblock().geometry();
    assert_eq!((geometry.groups(), geometry.descs_per_block()), (64, 16));
    let broken = geometry.desc_block(2).offset(geometry.block_size);
    let strikes = move |request: &Request| request.span.at == broken;
    device.add(Rule::new(Outcome::IO).on(&[Operation::Read]).when(strikes));
    assert_eq!(volume.statfs().unwrap().free.get(), free.clusters);
    let (files, error) = fill(&volume);
    assert!(
        matches!(error, Error::Device(_)),
        "who can't look everywhere must not say that all is used: {error}"
    );
    assert!(files > free.inodes.min(free.clusters) * 7 / 10, "{files} files with {free:?}");
    device.clear();
    volume.write_file("again", &[1; 1000], Creation::default()).unwrap();
    volume.close().unwrap();
    let volume = Volume::open(device, read_only()).unwrap();
    assert_eq!(volume.core().state.groups.count_free(0..64).unwrap().inodes, free.inodes - files - 1);
}
