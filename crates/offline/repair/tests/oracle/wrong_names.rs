//! Names that are none, and directories that a wrong name or number would tear from their place.

use crate::names::{assert_minded, inode, made, patch, record};
use crate::structures::{Case, survey};
use crate::trial::bytes_of;
use hectare_device::{Device, MemoryDevice};
use hectare_engine::{Creation, NewNode, OpenOptions, Volume};
use hectare_oracle::{debugfs_write, dumpe2fs, skip};
use std::fs;
use std::sync::Arc;

const EXT2: &[&str] = &["-t", "ext2", "-b", "1024"];
const PLAIN: &[&str] = &["-t", "ext4", "-b", "1024", "-O", "^has_journal"];
const NAME_LENGTH: usize = 6;
const NAME: usize = 8;

/// Makes a record name another inode.
fn lead(bytes: &mut [u8], at: usize, nr: u32) {
    bytes[at..at + 4].copy_from_slice(&nr.to_le_bytes());
}

/// The paths of an image as it is, as text.
fn paths(bytes: &[u8]) -> Vec<String> {
    let mut paths: Vec<_> =
        survey(bytes).paths.iter().map(|(path, _)| String::from_utf8_lossy(path).into_owned()).collect();
    paths.sort();
    paths
}

/// One slash became a point, which no directory can hold twice, and that cost all names behind it.
#[test]
fn regression_a_slash_for_a_name_costs_no_other() {
    for (name, wrong) in [("o", "/"), ("oo", "./"), ("op", "//")] {
        let mut requests = vec!["mkdir d".to_owned(), "cd d".to_owned(), format!("mknod {name} p")];
        requests.extend((0..100).map(|nr| format!("mknod file{nr} p")));
        let case = match made(EXT2, "8M", &requests.iter().map(String::as_str).collect::<Vec<_>>()) {
            Ok(case) => case,
            Err(reason) => skip!("repair wrong_names::a_slash_for_a_name", reason),
        };
        let before = case.survey();
        patch(&case, |bytes| {
            let at = record(bytes, name) + NAME;
            bytes[at..at + wrong.len()].copy_from_slice(wrong.as_bytes());
        });
        assert_minded(&case, wrong);
        let (repaired, after) = case.repaired(wrong);
        let after = survey(&after);
        assert_eq!(after.inodes.len(), before.inodes.len(), "{wrong}: {:?}", repaired.mends);
        let kept = before.paths.iter().filter(|path| after.paths.contains(path)).count();
        assert_eq!(kept, before.paths.len() - 1, "{wrong}: {:?}", after.paths);
        assert!(!after.paths.iter().any(|(path, _)| path.starts_with(b"/lost+found/")), "{wrong}");
    }
}

/// A name that is not of the encoding becomes points, too; they refused the whole repair.
#[test]
fn regression_a_name_outside_the_encoding_becomes_no_dot() {
    let args = ["-t", "ext4", "-b", "1024", "-E", "encoding=utf8,encoding_flags=strict"];
    let requests = ["mkdir d", "sif d flags 0x40080000", "cd d", "mknod o p", "mknod oo p", "mknod f p"];
    for wrong in ["o", "oo"] {
        let case = match made(&args, "8M", &requests) {
            Ok(case) => case,
            Err(reason) => skip!("repair wrong_names::a_name_outside_the_encoding", reason),
        };
        let before = case.survey();
        let block = case.block_of("d") * 1024;
        patch(&case, |bytes| {
            let at = block + record(&bytes[block..], wrong) + NAME;
            bytes[at..at + wrong.len()].fill(0xff);
        });
        assert_minded(&case, wrong);
        let (repaired, after) = case.repaired(wrong);
        let after = survey(&after);
        assert_eq!(after.inodes.len(), before.inodes.len(), "{wrong}: {:?}", repaired.mends);
        let kept = before.paths.iter().filter(|path| after.paths.contains(path)).count();
        assert_eq!(kept, before.paths.len() - 1, "{wrong}: {:?}", after.paths);
        assert!(!after.paths.iter().any(|(path, _)| path.starts_with(b"/lost+found/")), "{wrong}");
    }
}

/// It was renamed to a name that was there.
#[test]
fn regression_a_file_with_the_name_of_lost_found_gets_one_of_its_own() {
    let requests = [
        "rmdir lost+found",
        "mknod lost+found p",
        "mknod lost+found~ p",
        "mknod lost+found~0 p",
        "mknod f1 p",
    ];
    let case = match made(EXT2, "8M", &requests) {
        Ok(case) => case,
        Err(reason) => skip!("repair wrong_names::a_file_with_the_name_of_lost_found", reason),
    };
    let nr = inode(&case.survey(), "/f1").unwrap();
    case.change(&["unlink f1"]);
    assert_minded(&case, "lost+found");
    let (repaired, after) = case.repaired("lost+found");
    let lost = format!("/lost+found/#{nr}");
    let want = ["/", "/lost+found", &lost, "/lost+found~", "/lost+found~0", "/lost+found~1"];
    let found = paths(&after);
    let want: Vec<_> = want.iter().filter(|path| **path != "/" || found.contains(&"/".to_owned())).collect();
    assert_eq!(found.iter().collect::<Vec<_>>(), want, "{:?}", repaired.mends);
}

/// A root that folds names has one lost+found, however it is written.
#[test]
fn regression_a_folded_lost_found_is_the_one() {
    let args = ["-t", "ext4", "-b", "1024", "-O", "casefold,^has_journal", "-E", "encoding=utf8"];
    let requests = ["rmdir lost+found", "mkdir LOST+FOUND", "mknod f1 p", "sif / flags 0x40080000"];
    let case = match made(&args, "8M", &requests) {
        Ok(case) => case,
        Err(reason) => skip!("repair wrong_names::a_folded_lost_found", reason),
    };
    let nr = inode(&case.survey(), "/f1").unwrap();
    case.change(&["unlink f1"]);
    assert_minded(&case, "folded");
    let (repaired, after) = case.repaired("folded");
    assert_eq!(paths(&after), ["/LOST+FOUND", &format!("/LOST+FOUND/#{nr}")], "{:?}", repaired.mends);
}

/// The second record of a directory leads up, whatever its name is.
#[test]
fn regression_a_wrong_name_for_the_parent_leaves_the_tree() {
    let requests =
        ["mkdir c", "cd c", "mknod f1 p", "cd /", "mkdir g", "mkdir g/p", "link c g/p/c", "unlink c"];
    for (name, args) in [(b".n", EXT2), (b"./", EXT2), (b".n", PLAIN)] {
        let case = match made(args, "8M", &requests) {
            Ok(case) => case,
            Err(reason) => skip!("repair wrong_names::a_wrong_name_for_the_parent", reason),
        };
        let before = paths(&case.bytes());
        let (block, parent) = (case.block_of("g/p/c"), inode(&case.survey(), "/g/p").unwrap());
        patch(&case, |bytes| {
            lead(bytes, block * 1024 + 12, parent);
            bytes[block * 1024 + 12 + NAME..][..2].copy_from_slice(name);
        });
        assert_minded(&case, "parent");
        let (repaired, after) = case.repaired("parent");
        assert_eq!(paths(&after), before, "{:?}", repaired.mends);
    }
}

/// A record that is removed anyway decides nothing.
#[test]
fn regression_a_stray_point_is_no_first_name() {
    let requests = ["mkdir q", "cd q", "mknod xx p", "cd /", "mkdir z", "mkdir z/p"];
    let case = match made(&[EXT2, &["-O", "^dir_index"]].concat(), "8M", &requests) {
        Ok(case) => case,
        Err(reason) => skip!("repair wrong_names::a_stray_point", reason),
    };
    let nr = inode(&case.survey(), "/z/p").unwrap();
    patch(&case, |bytes| {
        let at = record(bytes, "xx");
        lead(bytes, at, nr);
        (bytes[at + NAME_LENGTH], bytes[at + NAME]) = (1, b'.');
    });
    assert_minded(&case, "point");
    let (repaired, after) = case.repaired("point");
    assert_eq!(inode(&survey(&after), "/z/p"), Some(nr), "{:?}", repaired.mends);
}

/// A directory does not hold its own parent, whichever name of that comes first.
#[test]
fn regression_a_name_of_the_parent_below_it_does_not_count() {
    let requests =
        ["mkdir x", "cd x", "mknod ff p", "cd /", "mkdir g", "mkdir g/p", "link x g/p/x", "unlink x"];
    let case = match made(EXT2, "8M", &requests) {
        Ok(case) => case,
        Err(reason) => skip!("repair wrong_names::a_name_of_the_parent", reason),
    };
    let (block, parent) = (case.block_of("g/p/x"), inode(&case.survey(), "/g/p").unwrap());
    patch(&case, |bytes| {
        lead(bytes, block * 1024 + 12, parent);
        let at = record(bytes, "ff");
        lead(bytes, at, parent);
    });
    assert_minded(&case, "parent");
    let (repaired, after) = case.repaired("parent");
    let found = paths(&after);
    assert!(found.contains(&"/g/p/x".to_owned()), "{found:?} {:?}", repaired.mends);
}

#[test]
fn regression_another_name_has_whole_characters() {
    let case = match made(PLAIN, "8M", &["mknod a\u{e4} p", "mknod a\u{f6} p"]) {
        Ok(case) => case,
        Err(reason) => skip!("repair wrong_names::another_name", reason),
    };
    patch(&case, |bytes| {
        let at = record(bytes, "a\u{f6}") + NAME;
        bytes[at..at + 3].copy_from_slice("a\u{e4}".as_bytes());
    });
    assert_minded(&case, "characters");
    let (repaired, after) = case.repaired("characters");
    let names = survey(&after).paths;
    let whole = names.iter().all(|(path, _)| std::str::from_utf8(path).is_ok());
    assert!(whole && names.iter().any(|(path, _)| path == "/a\u{e4}".as_bytes()), "{:?}", repaired.mends);
}

/// Where nothing is free, a directory inside its inode keeps what fitted.
#[test]
fn regression_a_directory_inside_its_inode_keeps_its_names_without_space() {
    let args = [
        "-t",
        "ext4",
        "-b",
        "1024",
        "-I",
        "256",
        "-N",
        "64",
        "-m",
        "0",
        "-O",
        "inline_data,^has_journal,^resize_inode",
    ];
    let requests: Vec<_> = (0..20).map(|nr| format!("mknod f{nr} p")).collect();
    let requests: Vec<_> =
        ["rmdir lost+found"].into_iter().chain(requests.iter().map(String::as_str)).collect();
    let case = match made(&args, "256k", &requests) {
        Ok(case) => case,
        Err(reason) => skip!("repair wrong_names::a_directory_inside_its_inode", reason),
    };
    let device = Arc::new(MemoryDevice::from_bytes(&case.bytes()));
    let volume = Volume::open(Arc::clone(&device) as Arc<dyn Device>, OpenOptions::default()).unwrap();
    volume.create_dir("lost+found", Creation::default()).unwrap();
    (0..9).for_each(|nr| {
        volume.make(format!("lost+found/k{nr}"), NewNode::Fifo, Creation::default()).unwrap();
    });
    volume.close().unwrap();
    fs::write(&case.image, bytes_of(&*device)).unwrap();
    fill(&case, "/");
    let lost: Vec<_> = (0..20).map(|nr| format!("unlink f{nr}")).collect();
    case.change(&lost.iter().map(String::as_str).collect::<Vec<_>>());
    let (repaired, after) = case.repaired("inside");
    let found = paths(&after);
    for nr in 0..9 {
        assert!(found.contains(&format!("/lost+found/k{nr}")), "{found:?} {:?}", repaired.mends);
    }
}

/// The last free block was for a directory that nothing could name.
#[test]
fn regression_what_the_root_has_no_place_for_is_not_made() {
    let args = ["-t", "ext2", "-b", "1024", "-N", "64", "-m", "0", "-O", "^resize_inode"];
    // What is left of the root's block holds the name of a lost inode, and not that of lost+found.
    let names = [255, 254, 253, 172].map(|len| format!("mknod {} p", "x".repeat(len)));
    let requests = ["rmdir lost+found", "mkdir d", "mknod f1 p"].into_iter();
    let case =
        match made(&args, "256k", &requests.chain(names.iter().map(String::as_str)).collect::<Vec<_>>()) {
            Ok(case) => case,
            Err(reason) => skip!("repair wrong_names::what_the_root_has_no_place_for", reason),
        };
    let nr = inode(&case.survey(), "/f1").unwrap();
    let last = fill(&case, "d");
    case.change(&["unlink f1", "cd d", &format!("rm {last}")]);
    assert_minded(&case, "last block");
    let (repaired, after) = case.repaired("last block");
    assert_eq!(inode(&survey(&after), &format!("/#{nr}")), Some(nr), "{:?}", repaired.mends);
}

/// Leaves no free block; returns the name of a file of one block in the directory that the files are in.
fn fill(case: &Case, directory: &str) -> String {
    let free = |case: &Case| dumpe2fs(&case.image).unwrap().number("Free blocks");
    let filler = case.folder.path().join("filler");
    while free(case) > 0 {
        // A map takes blocks of its own.
        let blocks = usize::try_from(free(case)).unwrap();
        fs::write(&filler, vec![7; 1024 * if blocks > 20 { blocks - 10 } else { 1 }]).unwrap();
        let write = format!("write {} w{blocks}", filler.display());
        debugfs_write(&case.image, &[&format!("cd {directory}"), &write]).unwrap();
    }
    "w1".to_owned()
}
