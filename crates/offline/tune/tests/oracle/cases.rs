//! Single cases: defects that were found, and what drawing does not reach.

use crate::support::{Base, change, changes};
use hectare_device::{Device, FileOptions};
use hectare_oracle::{
    KernelMount, Skip, assert_clean, assert_same, e2fsck, mke2fs, name_journal, scratch, skip, walk,
};
use hectare_units::Bytes;
use std::fs;
use std::os::unix::fs::chown;
use std::sync::Arc;
use std::time::Duration;

/// A list whose blocks are full to the last byte has no room for checksums: it is built anew, with an index.
fn full_directories() -> Result<(), Skip> {
    for features in [
        "^dir_index,^metadata_csum",
        "^metadata_csum,inline_data",
        "^dir_index,^metadata_csum,^extent,^64bit",
    ] {
        let image = scratch::fresh("full");
        mke2fs(&["-t", "ext4", "-b", "1024", "-O", features], &image, "32M")?;
        let mount = KernelMount::new(&image, "")?;
        for (folder, len) in [("exact", 8), ("odd", 13), ("one", 252)] {
            fs::create_dir(mount.path().join(folder)).unwrap();
            for nr in 0..420 {
                fs::write(mount.path().join(folder).join(format!("{nr:0len$}")), b"x").unwrap();
            }
        }
        mount.unmount();
        let before = walk(KernelMount::read_only(&image, "")?.path());
        change(&image, &changes(&[("-O", "metadata_csum,dir_index")])).unwrap();
        assert_clean(&image)?;
        let mount = KernelMount::new(&image, "")?;
        assert_same(&walk(mount.path()), &before, hectare_oracle::What::all());
        for nr in 0..300 {
            fs::write(mount.path().join("exact").join(format!("new-{nr}")), b"x").unwrap();
        }
        mount.unmount();
        assert_clean(&image)?;
        fs::remove_file(image).unwrap();
    }
    Ok(())
}

#[test]
fn directories_without_room_for_checksums_are_built_anew() {
    if let Err(reason) = full_directories() {
        skip!("directories_without_room_for_checksums_are_built_anew", reason);
    }
}

/// Quotas count what a change takes: directories that are built anew, the other nodes of maps of blocks. Many
/// kernels have no quotas, so the files are there before them.
fn counted(features: &str, quotas: &str, options: &[(&str, &str)]) -> Result<(), Skip> {
    let image = scratch::fresh("quota");
    mke2fs(&["-t", "ext4", "-b", "1024", "-O", features], &image, "64M")?;
    let mount = KernelMount::new(&image, "")?;
    for owner in 0..5 {
        let folder = mount.path().join(format!("folder-{owner}"));
        fs::create_dir(&folder).unwrap();
        chown(&folder, Some(1000 + owner), Some(7)).unwrap();
        for nr in 0..420_u32 {
            let file = folder.join(format!("{nr:08}"));
            fs::write(&file, vec![1; usize::try_from(nr * owner * 40).unwrap()]).unwrap();
            chown(&file, Some(1000 + nr % 3), Some(owner)).unwrap();
        }
    }
    mount.unmount();
    change(&image, &changes(&[("-O", quotas)])).unwrap();
    assert_clean(&image)?;
    let before = hectare_oracle::dumped(&image)?;
    change(&image, &changes(options)).unwrap_or_else(|error| panic!("{features} {options:?}: {error}"));
    assert_clean(&image)?;
    assert_same(&hectare_oracle::dumped(&image)?, &before, hectare_oracle::What::content());
    fs::remove_file(image).unwrap();
    Ok(())
}

#[test]
fn quotas_count_what_a_change_takes() {
    for (features, quotas, options) in [
        ("^dir_index,^metadata_csum", "quota", ("-O", "metadata_csum,dir_index")),
        ("^metadata_csum", "quota,project", ("-O", "metadata_csum")),
        ("^64bit", "quota", ("-O", "^extent")),
    ] {
        if let Err(reason) = counted(features, quotas, &[options]) {
            skip!("quotas_count_what_a_change_takes", reason);
        }
    }
}

/// The journal that tune2fs gives to a mounted volume is a file with a name, and root's.
#[test]
fn quotas_count_a_journal_with_a_name() {
    let image = scratch::fresh("visible");
    let made = mke2fs(&["-t", "ext3", "-b", "1024"], &image, "16M").and_then(|()| name_journal(&image));
    if let Err(reason) = made {
        skip!("quotas_count_a_journal_with_a_name", reason);
    }
    change(&image, &changes(&[("-O", "quota")])).unwrap();
    assert_clean(&image).unwrap();
    fs::remove_file(image).unwrap();
}

/// A volume that has grown by meta groups: behind the superblocks in those lie files.
fn meta_groups() -> Result<(), Skip> {
    let image = scratch::fresh("grown");
    mke2fs(&["-t", "ext4", "-b", "1024", "-O", "^resize_inode"], &image, "24M")?;
    let disk: Arc<dyn Device> = Arc::new(FileOptions::new().write(true).open(&image).unwrap());
    let width = hectare_resize::Width::AsNeeded;
    let options = hectare_resize::Options { width, check: true, now: Duration::from_secs(1_700_000_000) };
    hectare_resize::resize(&disk, hectare_resize::Target::Bytes(Bytes::mib(420)), true, &options).unwrap();
    drop(disk);
    let mount = KernelMount::new(&image, "")?;
    for nr in 0..6u8 {
        let _ = fs::write(mount.path().join(format!("file-{nr}")), vec![nr + 1; 70 << 20]);
    }
    mount.unmount();
    let before = walk(KernelMount::read_only(&image, "")?.path());
    for options in [[("-U", "x")], [("-O", "quota")], [("-O", "^64bit")]] {
        change(&image, &changes(&options)).unwrap();
        assert_clean(&image)?;
        assert_same(&hectare_oracle::dumped(&image)?, &before, hectare_oracle::What::content());
    }
    fs::remove_file(image).unwrap();
    Ok(())
}

#[test]
fn regression_what_follows_a_superblock_in_a_meta_group_is_no_descriptor() {
    if let Err(reason) = meta_groups() {
        skip!("regression_what_follows_a_superblock_in_a_meta_group_is_no_descriptor", reason);
    }
}

/// A journal of the smallest size has no room for fast commits, and the kernel refuses such a volume.
#[test]
fn regression_fast_commits_get_a_journal_that_holds_them() {
    let base = Base::new("ext4", &[], 64);
    let image = match base.make() {
        Ok(image) => image,
        Err(reason) => skip!("regression_fast_commits_get_a_journal_that_holds_them", reason),
    };
    let before = base.entries(&image).unwrap();
    change(&image, &changes(&[("-O", "fast_commit")])).unwrap();
    assert!(e2fsck(&image).unwrap().exit == Some(0));
    assert_same(&base.entries(&image).unwrap(), &before, base.compared());
    fs::remove_file(image).unwrap();
}

/// e2fsck wants no checksum in the blocks of an orphan file of a volume without checksums.
#[test]
fn regression_an_orphan_file_without_checksums_has_none() {
    let image = match Base::new("orphan-file", &[], 64).make() {
        Ok(image) => image,
        Err(reason) => skip!("regression_an_orphan_file_without_checksums_has_none", reason),
    };
    change(&image, &changes(&[("-O", "^metadata_csum")])).unwrap();
    assert_clean(&image).unwrap();
    change(&image, &changes(&[("-O", "metadata_csum")])).unwrap();
    assert_clean(&image).unwrap();
    fs::remove_file(image).unwrap();
}

/// Where nothing is free in one piece, larger inodes take the place of files, which move.
#[test]
fn larger_inodes_take_the_place_of_files() {
    let base = Base::new("ext2-1k-128", &["-g", "1024", "-N", "4096"], 16);
    let image = match base.make() {
        Ok(image) => image,
        Err(reason) => skip!("larger_inodes_take_the_place_of_files", reason),
    };
    let before = base.entries(&image).unwrap();
    change(&image, &changes(&[("-I", "256")])).unwrap();
    change(&image, &changes(&[("-I", "512")])).unwrap();
    assert_clean(&image).unwrap();
    assert_same(&base.entries(&image).unwrap(), &before, base.compared());
    fs::remove_file(image).unwrap();
}

/// A journal behind the descriptors of a backup, into which wider ones grow; or behind inode tables.
fn journal_in_the_way(args: &[&str], options: &[(&str, &str)]) -> Result<(), Skip> {
    let image = scratch::fresh("in-the-way");
    mke2fs(&[&["-t", "ext4", "-b", "1024", "-g", "2048"], args].concat(), &image, "256M")?;
    let mount = KernelMount::new(&image, "")?;
    for nr in 0..40 {
        fs::write(mount.path().join(format!("file-{nr}")), vec![nr; 3 << 20]).unwrap();
    }
    mount.unmount();
    let before = walk(KernelMount::read_only(&image, "")?.path());
    let journal = |image: &std::path::Path| -> Result<String, Skip> {
        Ok(hectare_oracle::debugfs(image, &["blocks <8>"])?.trim().to_owned())
    };
    let old = journal(&image)?;
    let done = change(&image, &changes(options)).unwrap_or_else(|error| panic!("{args:?}: {error}"));
    assert!(!done.in_place, "{args:?}: a journal takes it");
    assert_ne!(journal(&image)?, old, "{args:?}: the journal lay in the way");
    assert_clean(&image)?;
    let mount = KernelMount::new(&image, "")?;
    assert_same(&walk(mount.path()), &before, hectare_oracle::What::all());
    fs::write(mount.path().join("new"), vec![1; 300_000]).unwrap();
    mount.unmount();
    assert_clean(&image)?;
    fs::remove_file(image).unwrap();
    Ok(())
}

#[test]
fn a_journal_in_the_way_is_moved() {
    for (args, options) in IN_THE_WAY {
        if let Err(reason) = journal_in_the_way(args, options) {
            skip!("a_journal_in_the_way_is_moved", reason);
        }
    }
}

/// Arguments of mke2fs, and options.
type Change = (&'static [&'static str], &'static [(&'static str, &'static str)]);

/// Changes that need the place of the journal.
const IN_THE_WAY: &[Change] = &[
    (&["-O", "^64bit,^resize_inode", "-J", "size=4,location=6150"], &[("-O", "64bit")]),
    (&["-O", "^64bit,^resize_inode", "-J", "size=4,location=6150"], &[("-O", "64bit,^has_journal")]),
    (&["-O", "^64bit,^resize_inode", "-J", "size=4,location=6150"], &[("-O", "64bit"), ("-J", "size=8")]),
    (&["-O", "^flex_bg,^resize_inode", "-I", "128", "-J", "size=4,location=6150"], &[("-I", "512")]),
    (&["-O", "^resize_inode", "-J", "size=4,location=6150"], &[("-O", "resize_inode")]),
];

/// A volume with multiple mount protection is changed as the command does it: held, so that others find it
/// in use.
fn held(options: &[(&str, &str)]) -> Result<(), Skip> {
    let base = Base::new("mmp", &["-g", "2048"], 96);
    let image = base.make()?;
    let before = hectare_oracle::dumped(&image)?;
    let disk: Arc<dyn Device> = Arc::new(FileOptions::new().write(true).open(&image).unwrap());
    let (device, hold) = hectare_mmp::hold(&disk, &hectare_mmp::Options::default()).unwrap();
    let changed = hectare_tune::tune(&device, &changes(options));
    changed.unwrap_or_else(|error| panic!("{options:?}: {error}"));
    let width = hectare_resize::Width::AsNeeded;
    let how = hectare_resize::Options { width, check: true, now: Duration::from_secs(1_700_000_000) };
    hectare_resize::resize(&device, hectare_resize::Target::Min, true, &how).unwrap();
    drop(device);
    hold.release().unwrap();
    drop(disk);
    // It finds the mark clean, else it would say so.
    assert_clean(&image)?;
    assert_same(&hectare_oracle::dumped(&image)?, &before, hectare_oracle::What::content());
    let mount = KernelMount::new(&image, "")?;
    mount.unmount();
    fs::remove_file(image).unwrap();
    Ok(())
}

#[test]
fn a_volume_is_changed_while_its_mark_is_held() {
    for options in [("-U", "x"), ("-O", "^metadata_csum"), ("-O", "^mmp"), ("-I", "512"), ("-O", "^64bit")] {
        if let Err(reason) = held(&[options]) {
            skip!("a_volume_is_changed_while_its_mark_is_held", reason);
        }
    }
}
