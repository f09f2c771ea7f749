//! Files made without a name, and handles that outlive their files.

use crate::common::{close_clean, format_bytes, in_memory, pattern};
use hectare_engine::{Creation, Error, NewNode};
use hectare_oracle::skip;
use hectare_units::InodeNr;

const ROOT: InodeNr = InodeNr::ROOT;

macro_rules! volume {
    ($test:literal $(, $arg:literal)*) => {
        match format_bytes(&["-t", "ext4" $(, $arg)*], "8M") {
            Ok(bytes) => in_memory(&bytes),
            Err(reason) => skip!($test, reason),
        }
    };
}

#[test]
fn a_nameless_file_goes_when_it_is_closed() {
    let held = volume!("nameless::goes");
    let v = &held.volume;
    v.sync().unwrap();
    let before = v.statfs().unwrap();
    let file = v.create_nameless(ROOT, Creation::default(), true).unwrap();
    file.write_all_at(0, &pattern(1, 0, 100_000)).unwrap();
    file.sync().unwrap();
    assert_eq!(file.metadata().unwrap().links, 0);
    // A crash now frees it.
    let after = in_memory(&held.device.to_vec());
    assert!(matches!(after.volume.stat(file.inode()), Err(Error::NotFound)));
    assert_eq!(after.volume.statfs().unwrap().free_inodes, before.free_inodes);
    close_clean(&after);
    drop(file);
    v.sync().unwrap();
    let now = v.statfs().unwrap();
    assert_eq!((now.free, now.free_inodes), (before.free, before.free_inodes));
    close_clean(&held);
}

#[test]
fn a_nameless_file_gets_a_name_once() {
    for args in
        [&["-t", "ext4"][..], &["-t", "ext4", "-O", "^has_journal"], &["-t", "ext4", "-O", "orphan_file"]]
    {
        let held = match format_bytes(args, "8M") {
            Ok(bytes) => in_memory(&bytes),
            Err(reason) => skip!("nameless::gets_a_name", reason),
        };
        let v = &held.volume;
        let dir = v.create_dir("dir", Creation::default()).unwrap();
        let file =
            v.create_nameless(dir, Creation { permissions: 0o640, umask: 0, uid: 3, gid: 4 }, true).unwrap();
        file.write_all_at(0, &pattern(1, 0, 100_000)).unwrap();
        v.link(file.inode(), dir, b"name").unwrap();
        v.sync().unwrap();
        let found = v.metadata("dir/name").unwrap();
        assert_eq!((found.inode, found.links, found.permissions, found.uid), (file.inode(), 1, 0o640, 3));
        // From here on it is like others.
        v.unlink(dir, b"name").unwrap();
        assert!(matches!(v.link(file.inode(), dir, b"again"), Err(Error::NotFound)));
        drop(file);
        let file = v.create_nameless(dir, Creation::default(), true).unwrap();
        v.link(file.inode(), dir, b"kept").unwrap();
        v.link(file.inode(), dir, b"second").unwrap();
        drop(file);
        assert_eq!(v.metadata("dir/kept").unwrap().links, 2);
        let private = v.create_nameless(dir, Creation::default(), false).unwrap();
        assert!(matches!(v.link(private.inode(), dir, b"never"), Err(Error::NotFound)));
        let open = v.create_nameless(dir, Creation::default(), true).unwrap();
        close_clean(&held);
        drop((private, open));
    }
}

#[test]
fn a_handle_leads_to_its_file_or_nowhere() {
    let held = volume!("nameless::a_handle", "-N", "16");
    let v = &held.volume;
    let first = v.make("first", NewNode::File, Creation::default()).unwrap();
    let generation = v.stat(first).unwrap().generation;
    assert_eq!(v.inode_with_generation(first, generation).unwrap().inode, first);
    let stale = |nr, generation| {
        let result = v.inode_with_generation(nr, generation);
        assert!(matches!(result, Err(Error::Stale(_))), "{nr}: {result:?}");
        assert_eq!(result.unwrap_err().errno(), 116);
    };
    stale(first, generation.wrapping_add(1));
    for nr in [0, 1, 3, 8, 10, 16, 17, 1 << 20, u32::MAX] {
        stale(InodeNr::new(nr), generation);
    }
    v.remove_file("first").unwrap();
    stale(first, generation);
    let again = (0..16).find_map(|n| {
        let nr = v.make(format!("again-{n}"), NewNode::File, Creation::default()).ok()?;
        (nr == first).then_some(nr)
    });
    assert_eq!(again, Some(first), "the number was given out again");
    stale(first, generation);
    let root = v.stat(ROOT).unwrap();
    assert!(v.inode_with_generation(ROOT, root.generation).unwrap().is_dir());
    close_clean(&held);
}
