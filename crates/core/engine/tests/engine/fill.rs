//! Exact allocation: held blocks, and files made of them.

use crate::common::{close_clean, format_bytes, in_memory};
use hectare_engine::{Creation, Error, Extent, Volume};
use hectare_oracle::skip;
use hectare_units::{BlockNr, Blocks, GroupNr};
use std::ops::Range;

/// The longest free run of the first group.
fn longest(volume: &Volume) -> Range<BlockNr> {
    let runs = volume.free_runs(GroupNr::new(0)).unwrap();
    runs.into_iter().max_by_key(|run| (run.end - run.start).get()).unwrap()
}

const KINDS: [(&[&str], u64); 2] = [
    (&["-t", "ext4", "-b", "4096"], 1),
    (&["-t", "ext4", "-b", "1024", "-O", "bigalloc,^has_journal", "-C", "8192", "-N", "256"], 8),
];

#[test]
fn held_runs_become_unwritten_extents_where_they_were() {
    for (args, cluster) in KINDS {
        let bytes = match format_bytes(args, "16M") {
            Ok(bytes) => bytes,
            Err(reason) => skip!("fill::held_runs_become", reason),
        };
        let held = in_memory(&bytes);
        let free = held.volume.statfs().unwrap().free;
        let start = longest(&held.volume).start;
        let at = |from: u64, to: u64| start + Blocks::new(from * cluster)..start + Blocks::new(to * cluster);
        let file = held.volume.create_file("/file", Creation::default()).unwrap();
        // Out of order, with gaps, one touching another: the file has them as given.
        let runs = [at(20, 27), at(4, 6), at(6, 9)];
        let space: Vec<_> = runs.iter().map(|run| held.volume.hold(run.clone()).unwrap()).collect();
        assert!(space.iter().zip(&runs).all(|(space, run)| space.blocks() == *run));
        file.append_held(space).unwrap();
        let found: Vec<Extent> = file.extents().unwrap();
        assert!(found.iter().all(|extent| extent.unwritten));
        let places: Vec<(u64, u64)> =
            found.iter().map(|extent| (extent.physical.get(), u64::from(extent.len))).collect();
        let expected = [(20, 7), (4, 5)].map(|(from, len)| (start.get() + from * cluster, len * cluster));
        assert_eq!(places, expected, "in order, neighbours joined");
        let size = file.metadata().unwrap().size;
        assert_eq!(size, 12 * cluster * u64::from(args[3].parse::<u32>().unwrap()));
        let mut content = vec![1; 5_000];
        file.read_at(0, &mut content).unwrap();
        assert!(content.iter().all(|byte| *byte == 0));
        file.write_all_at(size, b"after").unwrap();
        let dropped = held.volume.hold(at(40, 50)).unwrap();
        drop(dropped);
        assert!(held.volume.hold(at(40, 50)).is_ok(), "dropping gives back");
        drop(file);
        held.volume.remove_file("/file").unwrap();
        held.volume.sync().unwrap();
        assert_eq!(held.volume.statfs().unwrap().free, free, "nothing is lost");
        close_clean(&held);
    }
}

#[test]
fn what_is_not_free_or_not_whole_is_not_held() {
    let bytes = match format_bytes(KINDS[1].0, "16M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("fill::what_is_not_free", reason),
    };
    let (held, other) = (in_memory(&bytes), in_memory(&bytes));
    let run = longest(&held.volume);
    let at = |from: u64, to: u64| run.start + Blocks::new(from)..run.start + Blocks::new(to);
    for range in [at(1, 8), at(0, 9), at(8, 8), at(16, 8)] {
        assert!(matches!(held.volume.hold(range), Err(Error::Invalid(_))));
    }
    let taken = held.volume.hold(at(16, 32)).unwrap();
    for range in [at(16, 32), at(8, 24), at(24, 40)] {
        assert!(matches!(held.volume.hold(range), Err(Error::NoSpace)));
    }
    let metadata = held.volume.superblock().geometry().first_block(GroupNr::new(0));
    assert!(held.volume.hold(metadata..metadata + Blocks::new(8)).is_err());
    let file = other.volume.create_file("/file", Creation::default()).unwrap();
    assert!(matches!(file.append_held([taken]), Err(Error::Invalid(_))), "another volume's");
    file.write_all_at(0, b"odd").unwrap();
    let space = other.volume.hold(at(16, 32)).unwrap();
    assert!(matches!(file.append_held([space]), Err(Error::Invalid(_))), "not a whole block");
    drop(file);
    close_clean(&held);
    close_clean(&other);
}
