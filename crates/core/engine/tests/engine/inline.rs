//! Content in inodes (`inline_data`) where the other tests don't look: listings, and attributes beside it.

use crate::common::{InMemory, close_clean, format_bytes, in_memory, open_read_only, pattern};
use hectare_engine::{Cookie, Creation, XattrHow};
use hectare_oracle::{KernelMount, mke2fs, scratch, skip, skip_part};
use rustix::fs::syncfs;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

fn volume(features: &str) -> Option<InMemory> {
    let args = ["-t", "ext4", "-b", "1024", "-I", "256", "-O", features];
    match format_bytes(&args, "16M") {
        Ok(bytes) => Some(in_memory(&bytes)),
        Err(reason) => {
            skip_part!(format!("inline, {features}"), reason);
            None
        }
    }
}

/// Regression: after a directory had left its inode, a listing that had begun showed its names again.
#[test]
fn regression_a_listing_goes_on_when_a_directory_leaves_its_inode() {
    for features in ["inline_data", "inline_data,^dir_index"] {
        let Some(held) = volume(features) else { continue };
        for first in 1..6 {
            let dir = held.volume.create_dir(format!("d{first}"), Creation::default()).unwrap();
            let name = |n: usize| format!("d{first}/n{n}");
            (0..7).for_each(|n| drop(held.volume.create_file(name(n), Creation::default()).unwrap()));
            held.volume.remove_file(name(1)).unwrap();
            let mut seen: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
            let mut from = Cookie::START;
            let mut step = |from: &mut Cookie, max: usize| {
                let entries = held.volume.read_dir_at(dir, *from, max).unwrap();
                for entry in &entries {
                    *seen.entry(entry.name.clone()).or_default() += 1;
                    *from = entry.next;
                }
                entries.len()
            };
            step(&mut from, first + 1);
            (10..60).for_each(|n| drop(held.volume.create_file(name(n), Creation::default()).unwrap()));
            while step(&mut from, 3) > 0 {}
            for n in [0, 2, 3, 4, 5, 6] {
                let times = seen.get(format!("n{n}").as_bytes()).copied().unwrap_or(0);
                assert_eq!(times, 1, "{features}, {first} listed before: n{n}");
            }
        }
        close_clean(&held);
    }
}

/// A file whose content is in its inode had no sectors: a mount showed it to programs as nothing but a hole.
#[test]
fn regression_content_in_an_inode_counted_as_no_sectors() {
    const TEST: &str = "inline::regression_content_in_an_inode_counted_as_no_sectors";
    let image = scratch::fresh("sectors");
    let args = ["-t", "ext4", "-b", "1024", "-I", "256", "-O", "inline_data"];
    let mount = match mke2fs(&args, &image, "16M").and_then(|()| KernelMount::new(&image, "")) {
        Ok(mount) => mount,
        Err(reason) => skip!(TEST, reason),
    };
    for len in [0, 1, 60, 61, 150, 1000, 5000] {
        fs::write(mount.path().join(format!("f{len}")), pattern(1, 0, len)).unwrap();
    }
    fs::create_dir(mount.path().join("d")).unwrap();
    std::os::unix::fs::symlink("f60", mount.path().join("l")).unwrap();
    syncfs(fs::File::open(mount.path()).unwrap()).unwrap();
    let names = ["f0", "f1", "f60", "f61", "f150", "f1000", "f5000", "d", "l"];
    let of_kernel = names.map(|name| fs::symlink_metadata(mount.path().join(name)).unwrap().blocks());
    mount.unmount();
    let volume = open_read_only(&image);
    let of_ours = names.map(|name| volume.stat(volume.resolve(name, false).unwrap()).unwrap().sectors);
    assert_eq!(of_ours, of_kernel, "{names:?}");
    assert_eq!(of_ours[1], 1);
}

#[test]
fn attributes_and_content_share_the_inode_in_any_order() {
    let Some(held) = volume("inline_data") else { return };
    for len in [0, 30, 60, 61, 100, 130, 160, 200] {
        for attribute in [1, 40, 100, 400] {
            for content_first in [true, false] {
                let name = format!("f-{len}-{attribute}-{content_first}");
                let file = held.volume.create_file(&name, Creation::default()).unwrap();
                let write = || file.write_all_at(0, &pattern(1, 0, len)).unwrap();
                let set = || {
                    let value = vec![9; attribute];
                    held.volume.set_xattr(file.inode(), b"user.k", &value, XattrHow::Either).unwrap();
                };
                if content_first {
                    write();
                    set();
                } else {
                    set();
                    write();
                }
                assert!(held.volume.read(&name).unwrap() == pattern(1, 0, len), "{name}");
                let value = held.volume.get_xattr(file.inode(), b"user.k").unwrap();
                assert_eq!(value, vec![9; attribute], "{name}");
            }
        }
    }
    close_clean(&held);
}
