//! `tune`, against tune2fs with the same arguments on a copy: the superblock field by field, e2fsck, and the
//! tree as the kernel sees it.

use crate::support::hectare;
use hectare_oracle::tool::{need, run};
use hectare_oracle::{
    KernelMount, Skip, What, assert_clean, assert_same, dumpe2fs_superblock, e2fsck, mke2fs, skip, skip_part,
    walk,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const UUID: &str = "01234567-89ab-4cde-8f01-23456789abcd";

/// Fields that say when something was written or by whom, or that follow from where blocks happen to lie.
const OWN: [&str; 17] = [
    "Last write time",
    "Lifetime writes",
    "Checksum",
    "Journal checksum",
    "MMP block number",
    "mmp_block",
    "MMP_block",
    "mmp_update_date",
    "mmp_update_time",
    "mmp_node_name",
    "mmp_device_name",
    "mmp_sequence",
    "mmp_magic",
    "mmp_check_interval",
    "Directory Hash Seed",
    // Ours goes through the journal.
    "Journal features",
    "Journal sequence",
];

/// A volume that the kernel filled with what has checksums: extent trees, indexed directories, attribute
/// blocks, links.
fn filled(name: &str, args: &[&str]) -> Result<PathBuf, Skip> {
    let image = hectare_oracle::scratch::fresh(name);
    mke2fs(args, &image, "64M")?;
    let mount = KernelMount::new(&image, "")?;
    let script = "set -e; mkdir -p many deep; i=0; while [ $i -lt 400 ]; do \
         echo $i > many/a-name-that-is-long-enough-to-fill-blocks-$i; i=$((i+1)); done; \
         i=0; while [ $i -lt 700 ]; do \
         dd if=/dev/zero of=fragmented bs=1024 count=1 \
         seek=$((i*3)) conv=notrunc status=none; i=$((i+1)); done; \
         ln -s many link; ln fragmented hard; mkfifo pipe; echo x > owned; chown 1000:1000 owned; \
         ln -s \"$(printf '%0300d' 7)\" long; rm many/*9; \
         setfattr -n user.big -v \"$(printf '%0700d' 1)\" owned 2>/dev/null || true";
    let said = run(need("sh")?.args(["-c", script]).current_dir(mount.path()));
    let _ = said.expect_success();
    mount.unmount();
    // For a new size of inodes tune2fs asks for a check since the last mount, which may be a second ago.
    let checked = run(need("e2fsck")?.args(["-fy"]).arg(&image));
    assert!(matches!(checked.exit, Some(0 | 1)), "{}", checked.report());
    Ok(image)
}

fn copy(of: &Path, name: &str) -> PathBuf {
    let path = hectare_oracle::scratch::fresh(name);
    let _ = run(need("cp").unwrap().args(["--sparse=always"]).arg(of).arg(&path)).expect_success();
    path
}

fn superblock(image: &Path) -> BTreeMap<String, String> {
    let mut fields = dumpe2fs_superblock(image).unwrap().fields;
    fields.retain(|name, _| !OWN.contains(&name.trim()));
    fields
}

/// Fails unless e2fsck finds `changed` sound and asks of it only what it asks of `base`, too: depending on
/// when it wrote the data back, the kernel leaves an extent tree that could be narrower.
#[track_caller]
fn assert_asks_no_more(changed: &Path, base: &Path) {
    let (before, after) = (e2fsck(base).unwrap(), e2fsck(changed).unwrap());
    assert!(before.is_sound(), "{}", before.output);
    let is_known = |question: &String| before.questions.contains(question);
    assert!(after.exit == Some(0) && after.questions.iter().all(is_known), "{}", after.output);
}

/// Makes the same change with both, and compares. `differing` are fields in which ours is better.
fn same_as_tune2fs(base: &Path, args: &[&str], differing: &[&str]) {
    let (theirs, ours) = (copy(base, "tune-theirs"), copy(base, "tune-ours"));
    let said = run(need("tune2fs").unwrap().args(args).arg(&theirs));
    assert!(said.succeeded(), "{}", said.report());
    let words: Vec<&str> = ["tune"].iter().chain(args).copied().chain([ours.to_str().unwrap()]).collect();
    hectare(&words).ok();
    let (mut expected, mut found) = (superblock(&theirs), superblock(&ours));
    for field in differing {
        expected.remove(*field);
        found.remove(*field);
    }
    let all: BTreeSet<&String> = found.keys().chain(expected.keys()).collect();
    let differ: Vec<_> = all
        .into_iter()
        .filter(|name| found.get(*name) != expected.get(*name))
        .map(|name| (name, found.get(name), expected.get(name)))
        .collect();
    assert!(differ.is_empty(), "{args:?}: field, ours, theirs: {differ:#?}");
    assert_asks_no_more(&ours, base);
    let original = KernelMount::read_only(base, "").unwrap();
    let before = walk(original.path());
    original.unmount();
    let is_read_only =
        found.get("Filesystem features").is_some_and(|features| features.contains("read-only"));
    let mount = if is_read_only { KernelMount::read_only(&ours, "") } else { KernelMount::new(&ours, "") };
    match mount {
        Ok(mount) => {
            assert_same(&walk(mount.path()), &before, What::all());
            if !is_read_only {
                fs::write(mount.path().join("new"), vec![1; 100_000]).unwrap();
            }
            mount.unmount();
            assert_asks_no_more(&ours, base);
        }
        // What this kernel was built without (casefold, quota) can't be compared.
        Err(reason) => skip_part!(format!("tune::same_as_tune2fs {args:?}"), reason),
    }
    fs::remove_file(theirs).unwrap();
    fs::remove_file(ours).unwrap();
}

macro_rules! compare {
    ($test:ident, $made:expr, $($args:expr $(, but $differing:expr)?);+ $(;)?) => {
        #[test]
        fn $test() {
            let base = match filled(stringify!($test), &$made) {
                Ok(base) => base,
                Err(reason) => skip!(concat!("tune::", stringify!($test)), reason),
            };
            if let Err(reason) = need("tune2fs") {
                skip!(concat!("tune::", stringify!($test)), reason);
            }
            $(
                #[allow(unused_mut, unused_assignments)]
                let mut differing: &[&str] = &[];
                $(differing = &$differing;)?
                same_as_tune2fs(&base, &$args, differing);
            )+
            fs::remove_file(base).unwrap();
        }
    };
}

compare! { fields_of_the_superblock, ["-t", "ext4"],
    ["-L", "a label"]; ["-L", ""]; ["-m", "1.5"]; ["-m", "0"]; ["-r", "1234"]; ["-u", "7", "-g", "8"];
    ["-e", "panic"]; ["-e", "remount-ro"]; ["-c", "20", "-C", "3"]; ["-c", "-1"]; ["-c", "0"];
    ["-i", "2w"]; ["-i", "5"]; ["-i", "0"]; ["-T", "20200203040506"]; ["-M", "/somewhere"];
    ["-o", "^acl,journal_data_writeback"]; ["-o", "nodelalloc,discard"];
    ["-E", "stride=4,stripe_width=16,hash_alg=tea"]; ["-E", "mount_opts=noatime"]; ["-E", "test_fs"];
}

compare! { features_that_are_flags, ["-t", "ext4"],
    ["-O", "ea_inode"]; ["-O", "encrypt"]; ["-O", "verity"]; ["-O", "stable_inodes"]; ["-O", "large_dir"];
    ["-O", "read-only"]; ["-O", "fast_commit"]; ["-O", "casefold"]; ["-O", "^extra_isize"];
    ["-O", "^dir_nlink"]; ["-O", "^huge_file"], but ["Filesystem state"];
}

compare! { uuid_with_checksums, ["-t", "ext4"], ["-U", UUID]; ["-U", "clear"]; ["-O", "metadata_csum_seed"]; }
compare! { uuid_with_a_stored_seed, ["-t", "ext4", "-O", "metadata_csum_seed"],
["-U", UUID]; ["-O", "^metadata_csum_seed"]; }
compare! { uuid_with_old_checksums, ["-t", "ext4", "-O", "^metadata_csum,uninit_bg"], ["-U", UUID]; }

compare! { checksums_off, ["-t", "ext4"], ["-O", "^metadata_csum"]; }
compare! { checksums_off_with_larger_blocks, ["-t", "ext4", "-b", "4096"], ["-O", "^metadata_csum"]; }
compare! { checksums_on, ["-t", "ext4", "-O", "^metadata_csum"], ["-O", "uninit_bg"]; }
compare! { checksums_on_from_old_ones, ["-t", "ext4", "-b", "4096", "-O", "^metadata_csum,uninit_bg"],
["-O", "metadata_csum"]; ["-O", "^uninit_bg"]; }

// tune2fs leaves the mark of a copy that is no more.
compare! { journal_off, ["-t", "ext4"], ["-O", "^has_journal"], but ["Journal backup"]; }
compare! { journal_on, ["-t", "ext4", "-O", "^has_journal"],
["-O", "has_journal"]; ["-j"]; ["-J", "size=2"]; ["-O", "has_journal,fast_commit"]; }
compare! { journal_on_ext2, ["-t", "ext2", "-b", "1024"], ["-j"]; }
compare! { journal_off_ext3, ["-t", "ext3", "-b", "4096"],
["-O", "^has_journal"], but ["Journal backup"]; }
// tune2fs counts a cluster as free for each of its blocks: more free blocks than there are blocks.
compare! { journal_of_a_volume_with_clusters, ["-t", "ext4", "-O", "bigalloc", "-C", "16384"],
["-O", "^has_journal"], but ["Journal backup", "Free blocks"]; }

// In scattered free space tune2fs gives its quota files more extents, and blocks to keep them in. Whether the
// count is right, e2fsck says.
compare! { quota_on, ["-t", "ext4"],
    ["-O", "quota"], but ["Free blocks"]; ["-O", "project"], but ["Free blocks"];
    ["-O", "quota,project"], but ["Free blocks"]; ["-Q", "usrquota"], but ["Free blocks"];
}
compare! { quota_off, ["-t", "ext4", "-O", "quota,project"],
["-O", "^quota"]; ["-O", "^project"]; ["-Q", "^grpquota"]; }

compare! { orphan_file, ["-t", "ext4"], ["-O", "orphan_file"]; }
compare! { orphan_file_off, ["-t", "ext4", "-O", "orphan_file"], ["-O", "^orphan_file"]; }
// tune2fs leaves the fields of larger inodes unset.
compare! { larger_inodes, ["-t", "ext3", "-b", "4096", "-I", "128"],
["-I", "256"], but ["Required extra isize", "Desired extra isize", "Free blocks", "Overhead clusters"]; }

/// What tune2fs refuses, or leaves to resize2fs and e2fsck: the features are those that were asked for, and
/// nothing else has changed.
fn features_become(base: &Path, args: &[&str], gone: &[&str], come: &[&str]) {
    let ours = copy(base, "tune-forms");
    let words: Vec<&str> = ["tune"].iter().chain(args).copied().chain([ours.to_str().unwrap()]).collect();
    hectare(&words).ok();
    let features = |image: &Path| -> BTreeSet<String> {
        let features = superblock(image)["Filesystem features"].clone();
        features.split_whitespace().map(str::to_owned).collect()
    };
    let mut expected = features(base);
    expected.retain(|feature| !gone.contains(&feature.as_str()));
    expected.extend(come.iter().map(ToString::to_string));
    assert_eq!(features(&ours), expected, "{args:?}");
    assert_asks_no_more(&ours, base);
    let mounts = [base, &ours].map(|image| {
        let mount = KernelMount::read_only(image, "").unwrap();
        walk(mount.path())
    });
    assert_same(&mounts[1], &mounts[0], What::all());
    fs::remove_file(ours).unwrap();
}

#[test]
fn forms_that_tune2fs_leaves_to_others() {
    let base = match filled("tune-forms-base", &["-t", "ext4"]) {
        Ok(base) => base,
        Err(reason) => skip!("tune::forms_that_tune2fs_leaves_to_others", reason),
    };
    features_become(&base, &["-O", "^64bit"], &["64bit"], &[]);
    features_become(&base, &["-O", "^64bit,^extent"], &["64bit", "extent"], &[]);
    features_become(&base, &["-O", "^filetype,^dir_index"], &["filetype", "dir_index"], &[]);
    // The journal is in the way, and is moved.
    features_become(&base, &["-O", "^sparse_super"], &["sparse_super"], &[]);
    features_become(&base, &["-O", "sparse_super2"], &[], &["sparse_super2"]);
    features_become(&base, &["-O", "^resize_inode", "-I", "512"], &["resize_inode"], &[]);
    features_become(&base, &["-J", "size=8,location=3000"], &[], &[]);
    fs::remove_file(base).unwrap();
}

/// A journal elsewhere is joined and left, by both sides.
#[test]
fn a_journal_on_another_device() {
    let base = match filled("tune-outside", &["-t", "ext4", "-b", "4096"]) {
        Ok(base) => base,
        Err(reason) => skip!("tune::a_journal_on_another_device", reason),
    };
    let journal = hectare_oracle::scratch::fresh("tune-journal");
    mke2fs(&["-O", "journal_dev", "-b", "4096"], &journal, "16M").unwrap();
    let (image, device) = (base.to_str().unwrap(), format!("device={}", journal.display()));
    let is_used = || superblock(&journal).contains_key("Journal users");
    hectare(&["tune", "-J", &device, image]).ok();
    assert!(is_used());
    let joined = superblock(&base);
    assert_eq!(joined["Journal UUID"], superblock(&journal)["Filesystem UUID"]);
    assert!(!joined.contains_key("Journal inode"), "{joined:?}");
    let name = journal.to_str().unwrap();
    let checked = run(need("e2fsck").unwrap().args(["-fn", "-j", name, image]));
    assert!(checked.succeeded(), "{}", checked.report());
    // Another volume can't have it, and it is not left unnamed.
    let other = hectare_oracle::scratch::fresh("tune-other");
    mke2fs(&["-t", "ext4", "-b", "4096"], &other, "16M").unwrap();
    assert!(
        hectare(&["tune", "-J", &device, other.to_str().unwrap()]).refused().contains("uses that journal")
    );
    assert!(hectare(&["tune", "-O", "^has_journal", image]).refused().contains("-J device=PATH"));
    hectare(&["tune", "-O", "^has_journal", "-J", &device, image]).ok();
    assert!(!is_used());
    assert_clean(&base).unwrap();
    for path in [base, journal, other] {
        fs::remove_file(path).unwrap();
    }
}

compare! { mount_protection, ["-t", "ext4"], ["-O", "mmp"]; }
compare! { mount_protection_off, ["-t", "ext4", "-O", "mmp"],
["-O", "^mmp"]; ["-E", "mmp_update_interval=7"]; }

/// What is refused names what to do, and changes no byte.
#[test]
fn what_is_refused_changes_nothing() {
    let image = match filled("tune-refused", &["-t", "ext4"]) {
        Ok(image) => image,
        Err(reason) => skip!("tune::what_is_refused_changes_nothing", reason),
    };
    let path = image.to_str().unwrap();
    let before = fs::read(&image).unwrap();
    for (args, words) in [
        (&["-O", "^flex_bg"][..], "does not lie in that group"),
        (&["-O", "bigalloc"], "hectare mkfs"),
        (&["-O", "^extent"], "64bit needs extent"),
        (&["-O", "^has_journal,orphan_file"], "orphan_file needs a journal"),
        (&["-J", "size=0"], "a journal has 1024"),
        (&["-J", "size=60"], "free space"),
        (&["-J", "location=99999"], "not on the volume"),
        (&["-J", "device=/nonexistent"], "/nonexistent"),
        (&["-I", "128"], "can't become smaller"),
        (&["-I", "384"], "power of two"),
        (&["-I", "8192"], "at most the 1024 bytes"),
        (&["-L", "a label that is too long"], "room for 16"),
        (&["-r", "60000"], "more than half"),
    ] {
        let words_given: Vec<&str> = ["tune"].iter().chain(args).copied().chain([path]).collect();
        let ran = hectare(&words_given);
        assert!(ran.refused().contains(words), "{args:?}: {}", ran.err);
        assert_eq!(fs::read(&image).unwrap(), before, "{args:?}");
    }
    // In use, and not closed.
    let mount = KernelMount::new(&image, "").unwrap();
    let ran = hectare(&["tune", "-L", "x", path]);
    assert!(ran.refused().contains("tune-refused") && ran.err.contains("unmount it"), "{}", ran.err);
    let open = copy(&image, "tune-open");
    mount.unmount();
    let ran = hectare(&["tune", "-L", "x", open.to_str().unwrap()]);
    assert!(ran.refused().contains("e2fsck -fy"), "{}", ran.err);
    fs::remove_file(open).unwrap();
    fs::remove_file(image).unwrap();
}

#[test]
fn the_volume_of_a_partition_is_changed_and_nothing_around_it() {
    let part = hectare_oracle::scratch::fresh("tune-part");
    if let Err(reason) = mke2fs(&["-t", "ext4"], &part, "16M") {
        skip!("tune::the_volume_of_a_partition", reason);
    }
    let whole = hectare_oracle::scratch::fresh("tune-whole");
    let margin = vec![7; 1 << 20];
    fs::write(&whole, [margin.clone(), fs::read(&part).unwrap(), margin.clone()].concat()).unwrap();
    let image = whole.to_str().unwrap();
    let ran = hectare(&["tune", "--json", "-U", UUID, "--offset", "1M", image]).ok();
    assert_eq!(ran.json()["changes"][0]["field"], "Filesystem UUID");
    let bytes = fs::read(&whole).unwrap();
    assert!(bytes.starts_with(&margin) && bytes.ends_with(&margin));
    fs::write(&part, &bytes[1 << 20..17 << 20]).unwrap();
    assert_clean(&part).unwrap();
    fs::remove_file(part).unwrap();
    fs::remove_file(whole).unwrap();
}

/// The block of the protection was taken for a new file before the superblock had let it go: the file began with
/// our mark.
#[test]
fn regression_what_takes_the_block_of_the_protection_is_not_overwritten_by_its_mark() {
    for features in ["^mmp,quota", "^mmp,orphan_file", "^mmp,project,quota"] {
        let image = hectare_oracle::scratch::fresh("tune-mmp");
        if let Err(reason) = mke2fs(&["-t", "ext4", "-O", "mmp"], &image, "32M") {
            skip!("tune::what_takes_the_block_of_the_protection", reason);
        }
        hectare(&["tune", "-O", features, image.to_str().unwrap()]).ok();
        assert_clean(&image).unwrap();
        fs::remove_file(image).unwrap();
    }
}

/// The inode of the blocks that are kept for growing is a file of more than 2 GiB on most volumes.
#[test]
fn regression_large_file_stays_while_blocks_are_kept_for_growing() {
    let image = hectare_oracle::scratch::fresh("tune-large-file");
    if let Err(reason) = mke2fs(&["-t", "ext4", "-b", "4096"], &image, "79M") {
        skip!("tune::large_file_stays", reason);
    }
    let path = image.to_str().unwrap();
    let ran = hectare(&["tune", "-O", "^large_file", path]);
    assert!(ran.refused().contains("(-O ^resize_inode)"), "{}", ran.err);
    assert_clean(&image).unwrap();
    hectare(&["tune", "-O", "^large_file,^resize_inode", path]).ok();
    assert_clean(&image).unwrap();
    hectare(&["check", path]).ok();
    fs::remove_file(image).unwrap();
}
