//! What e2fsck keeps, and a repair once gave up, refused or did not see: each beside `e2fsck -fy`.

use crate::structures::{Case, assert_sound, survey};
use crate::trial::{bytes_of, e2fsck, watched};
use hectare_device::MemoryDevice;
use hectare_ext4::superblock::SuperBlock;
use hectare_oracle::{Skip, debugfs, debugfs_write, mke2fs, skip};
use hectare_repair::Staged;
use hectare_units::Bytes;
use std::fs;
use std::path::Path;
use std::sync::Arc;

const BARE: &[&str] = &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"];

/// A volume, changed by requests to debugfs.
fn changed(args: &[&str], requests: &[&str], folder: &Path) -> Result<Vec<u8>, Skip> {
    let image = folder.join("image");
    mke2fs(args, &image, "16M")?;
    debugfs_write(&image, requests)?;
    Ok(fs::read(image).unwrap())
}

/// Problems that the check finds.
fn problems(bytes: &[u8]) -> Vec<String> {
    let device = MemoryDevice::from_bytes(bytes);
    let report = hectare_check::check(&device, &hectare_check::Options::default()).unwrap();
    report.problems.iter().map(ToString::to_string).collect()
}

/// What the check finds is never mended without a word: what has nothing to say is not written.
#[test]
fn regression_nothing_is_mended_in_silence() {
    let folder = tempfile::tempdir().unwrap();
    let uninit: &[&str] = &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg,^64bit"];
    let cases: [(&[&str], &[&str]); 2] = [
        (uninit, &["symlink s /etc/passwd", "sif s flags 0x80000"]),
        (&["-t", "ext2"], &["mkdir d", "sif d blocks_hi 7"]),
    ];
    for (args, requests) in cases {
        let bytes = match changed(args, requests, folder.path()) {
            Ok(bytes) => bytes,
            Err(reason) => skip!("repair kept::regression_nothing_is_mended_in_silence", reason),
        };
        let before = problems(&bytes);
        assert!(!before.is_empty(), "{requests:?}");
        let staged = Staged::new(Arc::new(MemoryDevice::from_bytes(&bytes)));
        let repaired = watched(staged.overlay()).unwrap();
        assert!(!repaired.mends.is_empty() && !repaired.loses(), "{before:?}: {:?}", repaired.mends);
        assert_sound(&bytes_of(&**staged.overlay()), folder.path(), requests[0]);
    }
}

/// A leaf that says it is none, under a parent that says it is.
#[test]
fn regression_a_node_of_another_level_is_kept() {
    let case = match Case::filled(BARE, "16M") {
        Ok(case) => case,
        Err(reason) => skip!("repair kept::regression_a_node_of_another_level_is_kept", reason),
    };
    let holes: Vec<String> = (0..26).map(|n| format!("punch f39 {} {}", 2 * n + 1, 2 * n + 1)).collect();
    case.change(&holes.iter().map(String::as_str).collect::<Vec<_>>());
    e2fsck("-fy", &case.image);
    let (before, mut bytes) = (case.survey(), case.bytes());
    let leaf = (0..bytes.len()).step_by(1024).find(|at| bytes[*at..].starts_with(&[0x0a, 0xf3, 27, 0]));
    let leaf = leaf.expect("a leaf with the extents of f39");
    for level in [1, 4, 900] {
        bytes[leaf + 6..leaf + 8].copy_from_slice(&u16::to_le_bytes(level));
        fs::write(&case.image, &bytes).unwrap();
        let (repaired, after) = case.repaired("level");
        assert!(!repaired.loses(), "{level}: {:?}", repaired.mends);
        assert_eq!(survey(&after), before, "{level}");
    }
}

/// The log of a volume that does not ask for it: it holds the content of a file, and bitmaps of zeros.
#[test]
fn regression_bitmaps_do_not_speak_against_a_log() {
    for args in [&["-t", "ext3", "-b", "1024"][..], &["-t", "ext4", "-b", "1024"]] {
        let case = match Case::filled(args, "32M") {
            Ok(case) => case,
            Err(reason) => skip!("repair kept::regression_bitmaps_do_not_speak_against_a_log", reason),
        };
        let (content, block) = (case.folder.path().join("content"), case.block_of("f39"));
        fs::write(&content, [7; 1024]).unwrap();
        let said = debugfs(&case.image, &["stats"]).unwrap();
        let bitmap =
            said.split("block bitmap at ").nth(1).unwrap().split([',', ' ']).next().unwrap().to_owned();
        let log = ["jo".to_owned(), format!("jw -b {block} {}", content.display())];
        let more = [format!("jw -b {bitmap} /dev/zero"), "jc".to_owned()];
        let all: Vec<&str> = log.iter().chain(&more).map(String::as_str).collect();
        case.change(&all);
        case.change(&["feature -needs_recovery"]);
        let (_, after) = case.repaired("log");
        assert!(after[block * 1024..][..1024] == [7; 1024], "{args:?}: the log is given up");
        assert_eq!(survey(&after), survey(&case.e2fsck().1), "{args:?}");
    }
}

/// A quota file that is a file with a name keeps it, and the volume gets one where it belongs.
#[test]
fn regression_a_quota_file_with_a_name() {
    let case = match Case::filled(&["-t", "ext4", "-b", "1024", "-O", "quota"], "16M") {
        Ok(case) => case,
        Err(reason) => skip!("repair kept::regression_a_quota_file_with_a_name", reason),
    };
    case.change(&["write /dev/null aquota"]);
    let said = debugfs(&case.image, &["stat aquota"]).unwrap();
    let nr = said.split("Inode: ").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    case.change(&[&format!("copy_inode <3> <{nr}>"), "clri <3>", &format!("ssv usr_quota_inum {nr}")]);
    let (repaired, after) = case.repaired("quota");
    assert!(!repaired.loses(), "{:?}", repaired.mends);
    let sb = SuperBlock::parse(after[1024..2048].try_into().unwrap(), Bytes::new(u64::MAX)).unwrap();
    assert_eq!(sb.raw().s_usr_quota_inum.get(), 3);
    let found = survey(&after);
    assert!(found.paths.iter().any(|(path, _)| path == b"/aquota"), "{:?}", repaired.mends);
}

/// Numbers of quota files that the volume does not have: what they name is no quota file.
#[test]
fn regression_quota_files_without_the_feature() {
    let case = match Case::filled(&["-t", "ext4", "-b", "1024"], "16M") {
        Ok(case) => case,
        Err(reason) => skip!("repair kept::regression_quota_files_without_the_feature", reason),
    };
    let (before, bytes) = (case.survey(), case.bytes());
    for kind in ["usr", "grp", "prj"] {
        for nr in [2, 11, 12, 13] {
            fs::write(&case.image, &bytes).unwrap();
            case.change(&[&format!("ssv {kind}_quota_inum {nr}")]);
            let said = e2fsck("-fn", &case.image);
            assert_eq!(said.code, Some(4), "{kind} {nr}: {}", said.out);
            assert!(!problems(&case.bytes()).is_empty(), "{kind} {nr}");
            let (repaired, after) = case.repaired("quota");
            assert!(!repaired.loses(), "{kind} {nr}: {:?}", repaired.mends);
            assert_eq!(survey(&after), before, "{kind} {nr}");
        }
    }
}

/// A list of bad blocks that no volume with clusters can have.
#[test]
fn regression_bad_blocks_within_a_cluster() {
    let case = match Case::filled(&["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "8192"], "16M") {
        Ok(case) => case,
        Err(reason) => skip!("repair kept::regression_bad_blocks_within_a_cluster", reason),
    };
    let before = case.survey();
    let block = case.block_of("f39") + 4;
    for block in [block, case.block_of("<8>") + 4] {
        case.change(&[&format!("sif <1> block[6] {block}")]);
        let (_, after) = case.repaired("bad blocks");
        assert_eq!(survey(&after), before);
    }
}

/// A superblock that can't be, with a feature that nobody knows: a backup has neither.
#[test]
fn regression_an_unknown_feature_in_a_broken_superblock() {
    let case = match Case::filled(&["-t", "ext3", "-b", "1024"], "16M") {
        Ok(case) => case,
        Err(reason) => skip!("repair kept::regression_an_unknown_feature", reason),
    };
    let (before, mut bytes) = (case.survey(), case.bytes());
    (bytes[1024 + 0x5e], bytes[1024 + 0x1c]) = (1, 3);
    fs::write(&case.image, &bytes).unwrap();
    let (_, after) = case.repaired("feature");
    assert_eq!(survey(&after), before);
}

/// A count of unused inodes where none can be: e2fsck minds if inodes in use are among them.
#[test]
fn regression_unused_inodes_without_checksums() {
    let case = match Case::filled(&["-t", "ext2", "-b", "1024", "-N", "256"], "8M") {
        Ok(case) => case,
        Err(reason) => skip!("repair kept::regression_unused_inodes_without_checksums", reason),
    };
    let before = case.survey();
    for (unused, code) in [(1, 0), (200, 4)] {
        case.change(&[&format!("set_bg 0 itable_unused {unused}")]);
        let said = e2fsck("-fn", &case.image);
        assert!(said.code == Some(code) && said.out.contains("? no"), "{}", said.out);
        assert_eq!(problems(&case.bytes()).is_empty(), code == 0, "{unused}");
        let (_, after) = case.repaired("unused");
        assert_eq!(survey(&after), before);
        fs::write(case.folder.path().join("after"), &after).unwrap();
        let said = e2fsck("-fn", &case.folder.path().join("after"));
        assert!(!said.out.contains("? no"), "{}", said.out);
    }
}

/// A directory with several broken records: what lies between them is found, too.
#[test]
fn regression_names_between_broken_records_are_found() {
    let case = match Case::filled(BARE, "16M") {
        Ok(case) => case,
        Err(reason) => skip!("repair kept::regression_names_between_broken_records_are_found", reason),
    };
    let names = ["one", "two", "three", "four", "five", "six", "seven", "eight"];
    let links: Vec<String> = names.iter().map(|name| format!("symlink names/{name} {name}")).collect();
    let made = ["mkdir names"].into_iter().chain(links.iter().map(String::as_str)).collect::<Vec<_>>();
    case.change(&made);
    let (bytes, block) = (case.bytes(), case.block_of("names") * 1024);
    let at = |name: &str| {
        let found = bytes[block..][..1024].windows(name.len()).position(|some| some == name.as_bytes());
        block + found.expect("a name") - 8
    };
    let name = |name: &str, byte: usize| (at(name) + 8 + byte, 0);
    let length = |name: &str| (at(name) + 4, 0x77);
    let dot = (block + 4, 0x77);
    for damage in [
        vec![dot, name("two", 1)],
        vec![dot, name("seven", 1)],
        vec![length("one"), length("five")],
        vec![length("two"), length("four"), name("seven", 2)],
        vec![dot, length("three"), length("six")],
    ] {
        let mut bytes = bytes.clone();
        damage.iter().for_each(|(at, byte)| bytes[*at] = *byte);
        fs::write(&case.image, &bytes).unwrap();
        let (repaired, after) = case.repaired("records");
        let (found, theirs) = (survey(&after), survey(&case.e2fsck().1));
        let missing: Vec<_> = theirs.paths.iter().filter(|path| !found.paths.contains(path)).collect();
        // What e2fsck gives a name in lost+found keeps its own here.
        let missing: Vec<_> =
            missing.into_iter().filter(|(path, _)| !path.starts_with(b"/lost+found/")).collect();
        assert!(missing.is_empty(), "{damage:?}: {missing:?}: {:?}", repaired.mends);
        assert_eq!(found.lacks(&theirs), Vec::<u32>::new(), "{damage:?}");
    }
}

/// What e2fsck does not mind, and the kernel does: a sound volume, in which it is put right.
#[test]
fn regression_what_only_the_kernel_minds() {
    let folder = tempfile::tempdir().unwrap();
    let args = &["-t", "ext4", "-b", "1024", "-O", "^64bit"];
    for request in ["ssv journal_dev 77", "ssv r_blocks_count_hi 1"] {
        let bytes = match changed(args, &[request], folder.path()) {
            Ok(bytes) => bytes,
            Err(reason) => skip!("repair kept::regression_what_only_the_kernel_minds", reason),
        };
        assert_eq!(problems(&bytes), Vec::<String>::new(), "{request}");
        let staged = Staged::new(Arc::new(MemoryDevice::from_bytes(&bytes)));
        let repaired = watched(staged.overlay()).unwrap();
        assert!(!repaired.mends.is_empty() && !repaired.loses(), "{request}: {:?}", repaired.mends);
        let after = bytes_of(&**staged.overlay());
        assert_sound(&after, folder.path(), request);
        let sb = SuperBlock::parse(after[1024..2048].try_into().unwrap(), Bytes::new(u64::MAX)).unwrap();
        assert_eq!((sb.raw().s_journal_dev.get(), sb.raw().s_r_blocks_count_hi.get()), (0, 0));
    }
}
