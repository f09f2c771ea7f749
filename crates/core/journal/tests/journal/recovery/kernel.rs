//! Journals that the kernel left dirty: images copied while they are mounted.

use crate::recovery::volume::{Volume, assert_as_e2fsck};
use hectare_journal::format::{Checksum, MAGIC};
use hectare_journal::recovery::Recovery;
use hectare_oracle::{KernelMount, Skip, assert_clean, mke2fs, scratch, skip, walk};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

/// Mounts a new volume, has `work` done, and returns the image as it is while mounted, with a log that is
/// `worth_replaying`: a `sync` of the whole machine that no test calls can empty it at any time, and then all is
/// done again.
pub(crate) fn left_by_the_kernel(
    mke2fs_args: &[&str],
    options: &str,
    work: impl Fn(&Path),
    worth_replaying: impl Fn(&Recovery) -> bool,
) -> Result<(Volume, Vec<String>), Skip> {
    for _ in 0..20 {
        let (volume, names) = left_once(mke2fs_args, options, &work)?;
        let recovery = volume.recovery().unwrap();
        if recovery.needed() && worth_replaying(&recovery) {
            return Ok((volume, names));
        }
    }
    panic!("the kernel leaves no log that is worth replaying: {mke2fs_args:?} {options}");
}

fn left_once(
    mke2fs_args: &[&str],
    options: &str,
    work: impl Fn(&Path),
) -> Result<(Volume, Vec<String>), Skip> {
    let image = scratch::fresh("kernel");
    mke2fs(&[&["-t", "ext4", "-E", "lazy_itable_init=0"], mke2fs_args].concat(), &image, "32M")?;
    let mount = KernelMount::unhurried(&image, options)?;
    work(mount.path());
    let names = walk(mount.path()).into_iter().map(|entry| format!("{entry:?}")).collect();
    let copy = scratch::fresh("copy");
    fs::write(&copy, mount.image_at_rest()).unwrap();
    mount.unmount();
    let volume = Volume::read(&copy);
    fs::remove_file(copy).unwrap();
    fs::remove_file(image).unwrap();
    Ok((volume?, names))
}

/// A log with blocks in it.
pub(crate) fn has_blocks(recovery: &Recovery) -> bool {
    !recovery.blocks().is_empty()
}

/// Creates, fills, deletes and truncates, with commits in between.
pub(crate) fn storm(root: &Path, rounds: usize) {
    for round in 0..rounds {
        let folder = root.join(format!("folder-{}", round % 3));
        if round >= 3 {
            fs::remove_dir_all(&folder).unwrap();
        }
        fs::create_dir(&folder).unwrap();
        for i in 0..120 {
            let mut file = File::create(folder.join(format!("a file with a rather long name {i}"))).unwrap();
            let mut data = MAGIC.to_be_bytes().to_vec();
            data.resize(1024 * (1 + i % 5), b'x');
            file.write_all(&data).unwrap();
            if i % 40 == 0 {
                file.sync_all().unwrap();
                file.set_len(10).unwrap();
            }
        }
        File::open(root).unwrap().sync_all().unwrap();
        commit(root);
    }
}

fn commit(root: &Path) {
    // To make a new file safe is to commit the running transaction.
    let file = root.join("marker");
    fs::write(&file, format!("{:?}", std::time::SystemTime::now())).unwrap();
    File::open(&file).unwrap().sync_all().unwrap();
}

/// Checks that our recovery equals e2fsck's, that e2fsck finds nothing wrong with it, and that a mount of it
/// shows what was there when the image was copied.
fn check(volume: &Volume, names: &[String]) -> Result<(), Skip> {
    let (mut ours, _) = assert_as_e2fsck(volume)?;
    ours.sum_up();
    let image = ours.save();
    assert_clean(&image)?;
    let mount = KernelMount::read_only(&image, "")?;
    let found: Vec<String> = walk(mount.path()).into_iter().map(|entry| format!("{entry:?}")).collect();
    assert_eq!(found, names);
    mount.unmount();
    fs::remove_file(image).unwrap();
    Ok(())
}

fn sync_and_storm(rounds: usize) -> impl Fn(&Path) {
    move |root| {
        storm(root, rounds);
        let mut sync = hectare_oracle::tool("sync").unwrap();
        let _ = hectare_oracle::tool::run(sync.arg("-f").arg(root)).expect_success();
    }
}

fn each(test: &str, forms: &[(&[&str], &str, usize, Checksum)]) {
    for (args, options, rounds, checksum) in forms {
        println!("{args:?} {options}");
        let (volume, names) = match left_by_the_kernel(args, options, sync_and_storm(*rounds), has_blocks) {
            Ok(left) => left,
            Err(reason) => skip!(test, reason),
        };
        assert_eq!(volume.journal_superblock().checksum(), *checksum);
        if let Err(reason) = check(&volume, &names) {
            skip!(test, reason);
        }
    }
}

#[test]
fn journals_of_the_kernel_are_replayed_as_e2fsck_does() {
    let small: &[&str] = &["-b", "1024", "-J", "size=1"];
    let plain: &[&str] = &["-b", "1024", "-J", "size=2", "-O", "^metadata_csum"];
    let narrow: &[&str] = &["-b", "4096", "-J", "size=4", "-O", "^metadata_csum,^64bit"];
    let forms = [
        (small, "", 12, Checksum::V3),
        (&["-b", "4096", "-J", "size=4"][..], "", 8, Checksum::V3),
        (plain, "", 12, Checksum::None),
        (plain, "journal_checksum", 12, Checksum::V1),
        (narrow, "journal_checksum", 6, Checksum::V1),
        (small, "data=writeback,journal_async_commit", 8, Checksum::V3),
        (plain, "data=writeback,journal_async_commit", 8, Checksum::V1),
    ];
    each("recovery::kernel::journals_of_the_kernel", &forms);
}

#[test]
fn journalled_data_is_unescaped() {
    let test = "recovery::kernel::journalled_data";
    let args = ["-b", "1024", "-J", "size=2"];
    let has_escaped = |recovery: &Recovery| recovery.blocks().values().any(|copy| copy.escaped);
    let left = left_by_the_kernel(&args, "data=journal", |root| storm(root, 3), has_escaped);
    if let Err(reason) = left.and_then(|(volume, names)| check(&volume, &names)) {
        skip!(test, reason);
    }
}
