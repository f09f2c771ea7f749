//! `hectare repair` and `hectare undo`: exit codes, what is written, and the way back.

use crate::BINARY;
use crate::make::Small;
use crate::support::{digest, hectare};
use hectare_ext4::group::GroupDesc;
use hectare_ext4::superblock::SuperBlock;
use hectare_oracle::{assert_clean, debugfs_write, mke2fs, skip};
use hectare_units::{Bytes, GroupNr};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

/// A volume that counts wrong and has a name that leads nowhere.
fn broken(image: &Path) -> Result<(), hectare_oracle::Skip> {
    mke2fs(&["-t", "ext4"], image, "16M")?;
    let name = image.to_str().unwrap();
    hectare(&["mkdir", "-p", &format!("{name}:/a/b")]).ok();
    debugfs_write(image, &["set_inode_field /a links_count 9", "clri /a/b"])?;
    Ok(())
}

#[test]
fn a_repair_is_shown_made_and_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img");
    if let Err(reason) = broken(&image) {
        skip!("cli repair::a_repair_is_shown_made_and_taken_back", reason);
    }
    let (name, before) = (image.to_str().unwrap(), digest(&image));
    assert_eq!(hectare(&["repair", name]).code, Some(8), "stdin is not a terminal in a test");
    assert_eq!(hectare(&["repair", "-n", name]).code, Some(4));
    assert_eq!(hectare(&["repair", "-p", name]).code, Some(4), "a name is lost");
    assert_eq!(hectare(&["repair", "-n", "-y", name]).code, Some(16));
    assert_eq!(digest(&image), before, "nothing was written");

    let ran = hectare(&["repair", "-y", name]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert_clean(&image).unwrap();
    assert_eq!(hectare(&["check", name]).code, Some(0));
    assert_eq!(hectare(&["repair", "-y", name]).code, Some(0), "it is sound now");

    let undo = format!("{name}.undo-1");
    hectare(&["undo", name, &undo]).ok();
    assert_eq!(digest(&image), before, "it is as it was");
}

#[test]
fn an_undo_file_fits_its_volume_only() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img");
    if let Err(reason) = broken(&image) {
        skip!("cli repair::an_undo_file_fits_its_volume_only", reason);
    }
    let (name, undo) = (image.to_str().unwrap(), folder.path().join("u"));
    let undo = undo.to_str().unwrap();
    assert_eq!(hectare(&["repair", "-y", "--undo", undo, name]).code, Some(1));
    hectare(&["mkdir", &format!("{name}:/later")]).ok();
    let changed = digest(&image);
    assert!(hectare(&["undo", name, undo]).refused().contains("does not fit"));
    assert_eq!(digest(&image), changed);
    let again = hectare(&["repair", "-y", "--undo", undo, name]);
    assert_eq!(again.code, Some(0), "sound: no undo file is made");
    fs::write(folder.path().join("damaged"), &fs::read(undo).unwrap()[..90]).unwrap();
    assert!(!hectare(&["undo", name, folder.path().join("damaged").to_str().unwrap()]).refused().is_empty());
}

#[test]
fn what_is_no_volume_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img");
    fs::write(&image, vec![7; 1 << 20]).unwrap();
    let ran = hectare(&["repair", "-y", image.to_str().unwrap()]);
    assert_eq!(ran.code, Some(4), "{}", ran.err);
    assert!(ran.err.contains("nothing was written"), "{}", ran.err);
    assert!(fs::read(&image).unwrap() == vec![7; 1 << 20]);
}

#[test]
fn blocks_with_two_owners_are_copied_or_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let (image, content) = (folder.path().join("disk.img"), folder.path().join("content"));
    fs::write(&content, vec![b'a'; 3000]).unwrap();
    let (name, content) = (image.to_str().unwrap(), content.to_str().unwrap());
    for (how, kept) in [("clone", vec![b'a'; 3000]), ("delete", [vec![0; 1024], vec![b'a'; 1976]].concat())] {
        let made = mke2fs(&["-t", "ext2", "-b", "1024"], &image, "4M").and_then(|_| {
            debugfs_write(&image, &[&format!("write {content} a"), &format!("write {content} b")])?;
            let first = hectare_oracle::debugfs(&image, &["blocks a"])?;
            let first = first
                .split_whitespace()
                .find(|word| word.parse::<u64>().is_ok())
                .unwrap_or_default()
                .to_owned();
            debugfs_write(&image, &[&format!("sif b block[0] {first}")])
        });
        if let Err(reason) = made {
            skip!("cli repair::blocks_with_two_owners_are_copied_or_given_up", reason);
        }
        let ran = hectare(&["repair", "-y", "--no-undo", "--duplicates", how, name]);
        assert_eq!(ran.code, Some(1), "{}", ran.err);
        assert_clean(&image).unwrap();
        assert!(hectare(&["cat", &format!("{name}:/a")]).out == vec![b'a'; 3000], "{how}");
        assert!(hectare(&["cat", &format!("{name}:/b")]).out == kept, "{how}");
    }
}

#[test]
fn an_interrupted_repair_begins_again() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img");
    if let Err(reason) = broken(&image) {
        skip!("cli repair::an_interrupted_repair_begins_again", reason);
    }
    let (name, before) = (image.to_str().unwrap(), fs::read(&image).unwrap());
    assert_eq!(hectare(&["repair", "-y", name]).code, Some(1));
    let after = fs::read(&image).unwrap();
    // What a power cut leaves: the old superblock with the mark of a repair, and half of the changes.
    let mut cut = [&after[..after.len() / 2], &before[after.len() / 2..]].concat();
    cut[1024..2048].copy_from_slice(&before[1024..2048]);
    cut[1024 + 0x3a] |= 2;
    cut[1024 + 0x1e0..][..32].copy_from_slice(b"hectare repair\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    let sum = hectare_ext4::checksum::crc32c(!0, &cut[1024..1024 + 0x3fc]);
    cut[1024 + 0x3fc..2048].copy_from_slice(&sum.to_le_bytes());
    fs::write(&image, &cut).unwrap();
    assert!(
        hectare(&["repair", "-y", "--resume", "/dev/null", name]).code == Some(8),
        "that is no undo file"
    );
    let again = hectare(&["repair", "-y", name]);
    assert_eq!(again.code, Some(1), "{}", again.err);
    assert!(again.err.contains("interrupted"), "{}", again.err);
    assert!(fs::read(&image).unwrap() == after, "it ends as the first would have");
    hectare(&["undo", name, &format!("{name}.undo-2")]).ok();
    assert!(fs::read(&image).unwrap() == before, "and is taken back as the first would be");
}

/// A volume of 40,000 files, all of whose inodes have wrong checksums: some 12 MiB are staged to mend it. It
/// is made once.
fn wrong_all_over(folder: &Path) -> PathBuf {
    static MADE: OnceLock<Vec<u8>> = OnceLock::new();
    let image = folder.join("disk.img");
    fs::write(&image, MADE.get_or_init(|| fs::read(made_wrong(&folder.join("made"))).unwrap())).unwrap();
    image
}

fn made_wrong(folder: &Path) -> PathBuf {
    let (source, image) = (folder.join("source"), folder.join("disk.img"));
    for n in 0..40_000 {
        let inner = source.join(format!("{}", n / 500));
        if n % 500 == 0 {
            fs::create_dir_all(&inner).unwrap();
        }
        fs::write(inner.join(format!("a file with the number {n}")), "").unwrap();
    }
    hectare(&["build", "--from", source.to_str().unwrap(), image.to_str().unwrap()]).ok();
    let file = fs::File::options().read(true).write(true).open(&image).unwrap();
    let mut bytes = [0; 1024];
    file.read_exact_at(&mut bytes, 1024).unwrap();
    let sb = SuperBlock::parse(&bytes, Bytes::new(u64::MAX)).unwrap();
    let geometry = sb.geometry().clone();
    let (per_group, size) = (geometry.inodes_per_group as usize, geometry.inode_size as usize);
    for group in (0..geometry.groups()).map(GroupNr::new) {
        let mut desc = vec![0; geometry.desc_size as usize];
        let block = geometry.desc_block(group.get() / geometry.descs_per_block());
        let within = u64::from(group.get() % geometry.descs_per_block() * geometry.desc_size);
        file.read_exact_at(&mut desc, block.offset(geometry.block_size).get() + within).unwrap();
        let desc = GroupDesc::parse(&desc, group, &sb).unwrap();
        let at = desc.inode_table.offset(geometry.block_size).get();
        let mut table = vec![0; per_group * size];
        file.read_exact_at(&mut table, at).unwrap();
        table.chunks_mut(size).filter(|inode| inode[..2] != [0, 0]).for_each(|inode| inode[0x7c] ^= 0x55);
        file.write_all_at(&table, at).unwrap();
    }
    image
}

#[test]
fn a_repair_that_does_not_fit_memory_goes_through_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let image = wrong_all_over(folder.path());
    let (name, spilled) = (image.to_str().unwrap(), folder.path().join("spilled.img"));
    fs::copy(&image, &spilled).unwrap();
    let before = digest(&image);
    let place = folder.path().join("place");
    fs::create_dir(&place).unwrap();
    let (place, other) = (place.to_str().unwrap(), spilled.to_str().unwrap());
    let said = hectare(&["repair", "-y", name]);
    assert_eq!(said.code, Some(1), "{}", said.err);
    let ran = hectare(&["--max-memory", "32M", "repair", "-y", "--json", "--spill", place, other]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.json()["mends"].as_array().unwrap().len() > 40_000);
    // But for times, in the superblock.
    assert!(fs::read(&image).unwrap()[2048..] == fs::read(&spilled).unwrap()[2048..], "the same volume");
    assert_clean(&spilled).unwrap();
    assert!(fs::read_dir(place).unwrap().next().is_none());
    hectare(&["--max-memory", "32M", "undo", other, &format!("{other}.undo-1")]).ok();
    assert_eq!(digest(&spilled), before, "it is as it was");
    let refused = hectare(&["repair", "-n", "--spill", "/nonexistent", other]);
    assert_eq!(refused.code, Some(8));
    assert!(refused.err.contains("/nonexistent: --spill needs a directory"), "{}", refused.err);
}

#[test]
fn without_room_for_its_file_a_repair_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let small = folder.path().join("small");
    let mounted = match Small::mount(small.clone(), "size=1M") {
        Ok(mounted) => mounted,
        Err(reason) => skip!("cli repair::without_room_for_its_file", reason),
    };
    let image = wrong_all_over(folder.path());
    let before = digest(&image);
    let ran = hectare(&[
        "--max-memory",
        "32M",
        "repair",
        "-y",
        "--spill",
        small.to_str().unwrap(),
        image.to_str().unwrap(),
    ]);
    let left = fs::read_dir(&small).unwrap().count();
    drop(mounted);
    assert_eq!(ran.code, Some(8), "{}", ran.err);
    for part in [
        "disk.img: spill file in ",
        "small: cannot write",
        "No space left",
        "8 MiB",
        "--spill",
        "--max-memory",
    ] {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
    assert!(ran.err.contains("nothing was written") && ran.err.lines().count() == 1, "{}", ran.err);
    assert_eq!((digest(&image), left), (before, 0), "the volume is as it was");
    assert!(!image.with_file_name("disk.img.undo-1").exists());
}

#[test]
fn a_killed_repair_leaves_no_file_behind() {
    let folder = tempfile::tempdir().unwrap();
    let image = wrong_all_over(folder.path());
    let place = folder.path().join("place");
    fs::create_dir(&place).unwrap();
    let mut child = Command::new(BINARY)
        .args(["--max-memory", "32M", "repair", "-n", "--spill"])
        .args([&place, &image])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let open = PathBuf::from(format!("/proc/{}/fd", child.id()));
    let has_file = || {
        let links = fs::read_dir(&open).into_iter().flatten().flatten();
        links.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|to| to.starts_with(&place))
    };
    while !has_file() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it had a file");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(fs::read_dir(&place).unwrap().next().is_none(), "the file has no name");
    child.kill().unwrap();
    let _ = child.wait().unwrap();
    assert!(fs::read_dir(&place).unwrap().next().is_none());
}

/// e2fsck takes no notice of either, but the kernel mounts no volume of the first kind, and e2fsprogs opens none of
/// the second.
#[test]
fn regression_fields_for_which_others_refuse_a_volume_are_mended() {
    const NAME: &str = "cli repair::regression_fields_for_which_others_refuse_a_volume";
    let image = hectare_oracle::scratch::fresh("refused");
    let path = image.to_str().unwrap();
    for (field, value) in
        [("want_extra_isize", "9999"), ("min_extra_isize", "64809"), ("log_groups_per_flex", "40")]
    {
        if let Err(reason) = mke2fs(&["-t", "ext4", "-O", "^flex_bg"], &image, "20M") {
            skip!(NAME, reason);
        }
        hectare(&["touch", &format!("{path}:/before")]).ok();
        debugfs_write(&image, &[&format!("ssv {field} {value}")]).unwrap();
        let touched = hectare(&["touch", &format!("{path}:/x")]);
        assert!(touched.refused().contains("the superblock is broken"), "{field}: {}", touched.err);
        let checked = hectare(&["check", path]);
        let text = format!("{}{}", String::from_utf8_lossy(&checked.out), checked.err);
        assert!(text.contains("extra fields") || text.contains("flex groups"), "{field}: {text}");
        hectare(&["repair", "-y", path]);
        assert_clean(&image).unwrap();
        hectare(&["touch", &format!("{path}:/x")]).ok();
        match hectare_oracle::KernelMount::new(&image, "") {
            Ok(mount) => assert!(mount.path().join("before").exists() && mount.path().join("x").exists()),
            Err(reason) => hectare_oracle::skip_part!(NAME, reason),
        }
        fs::remove_file(&image).unwrap();
    }
}

/// A superblock that had the error mark before the repair, as the kernel leaves it, looked like that of an
/// interrupted one, also when the repair had been taken back.
#[test]
fn regression_a_repair_taken_back_was_taken_for_an_interrupted_one() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img");
    let name = image.to_str().unwrap();
    let marked = || {
        broken(&image)?;
        hectare(&["cp", "/proc/self/status", &format!("{name}:/f")]).ok();
        debugfs_write(&image, &["set_super_value state 3"])
    };
    if let Err(reason) = marked() {
        skip!("cli repair::regression_a_repair_taken_back", reason);
    }
    let undo = format!("{name}.undo-1");
    assert_eq!(hectare(&["repair", "-y", name]).code, Some(1));
    hectare(&["undo", name, &undo]).ok();
    debugfs_write(&image, &["set_inode_field /f mode 0100600"]).unwrap();
    let changed = digest(&image);
    assert!(hectare(&["undo", name, &undo]).refused().contains("it was changed since"));
    assert_eq!(digest(&image), changed);
    let ran = hectare(&["repair", "-y", name]);
    assert!(ran.code == Some(1) && !ran.err.contains("interrupted"), "{}", ran.err);
    assert_eq!(hectare(&["stat", "--json", &format!("{name}:/f")]).ok().json()[0]["mode"], "0600");
    assert_clean(&image).unwrap();
}

#[test]
fn regression_an_undo_file_could_be_read_by_everybody() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img");
    if let Err(reason) = broken(&image) {
        skip!("cli repair::regression_an_undo_file_could_be_read", reason);
    }
    let (name, named) = (image.to_str().unwrap(), folder.path().join("named"));
    let mode =
        |path: &Path| std::os::unix::fs::PermissionsExt::mode(&fs::metadata(path).unwrap().permissions());
    assert_eq!(hectare(&["repair", "-y", name]).code, Some(1));
    let unasked = folder.path().join("disk.img.undo-1");
    hectare(&["undo", name, unasked.to_str().unwrap()]).ok();
    assert_eq!(hectare(&["repair", "-y", "--undo", named.to_str().unwrap(), name]).code, Some(1));
    assert_eq!((mode(&unasked) & 0o777, mode(&named) & 0o777), (0o600, 0o600));
}
