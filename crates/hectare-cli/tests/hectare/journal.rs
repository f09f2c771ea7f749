//! External journals, and data modes, on the command line.

use crate::support::hectare;
use hectare_device::{Device, MemoryDevice};
use hectare_engine::{Creation, JournalDevice, OpenOptions, Volume, XattrHow};
use hectare_oracle::loops::Access;
use hectare_oracle::{LoopDevice, Skip, skip};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An image and its external journal, which needs to be replayed: `d/f` is in the journal only. e2fsck
/// looks for the
/// journal's device among all by its UUID: no other test's may have the same.
fn crashed(folder: &Path, uuid: &str) -> Result<(PathBuf, PathBuf), Skip> {
    let (image, journal) = (folder.join("image"), folder.join("journal"));
    let own = ["-O", "journal_dev", "-b", "4096", "-U", uuid];
    hectare_oracle::mke2fs(&own, &journal, "8M")?;
    hectare_oracle::mke2fs(&["-t", "ext4", "-b", "4096", "-O", "^has_journal"], &image, "32M")?;
    let uuid = hectare_oracle::dumpe2fs(&journal)?.field("Filesystem UUID").to_owned();
    let uuid = format!("ssv journal_uuid {uuid}");
    let fields = ["feature has_journal", "ssv journal_inum 0", "ssv journal_dev 1", &uuid];
    hectare_oracle::debugfs_write(&image, &fields)?;
    let held = |path: &Path| Arc::new(MemoryDevice::from_bytes(&std::fs::read(path).unwrap()));
    let (device, log) = (held(&image), held(&journal));
    let options = OpenOptions {
        journal: Some(JournalDevice(Arc::clone(&log) as Arc<dyn Device>)),
        commit_interval: None,
        ..OpenOptions::default()
    };
    let volume = Volume::open(Arc::clone(&device) as Arc<dyn Device>, options).unwrap();
    volume.create_dir("d", Creation::default()).unwrap();
    volume.write_file("d/f", b"of the journal", Creation::default()).unwrap();
    let nr = volume.resolve("d/f", false).unwrap();
    volume.set_xattr(nr, "user.a", b"value", XattrHow::Either).unwrap();
    volume.sync().unwrap();
    std::fs::write(&image, device.to_vec()).unwrap();
    std::fs::write(&journal, log.to_vec()).unwrap();
    Ok((image, journal))
}

#[test]
fn commands_that_look_replay_a_journal_on_another_device_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let (image, journal) = match crashed(folder.path(), "22222222-3333-4444-8555-666666666666") {
        Ok(made) => made,
        Err(reason) => skip!("cli journal::commands_that_look_replay", reason),
    };
    let before = (std::fs::read(&image).unwrap(), std::fs::read(&journal).unwrap());
    let (name, journal) = (image.display().to_string(), journal.display().to_string());
    let at = |path: &str| format!("{name}:{path}");
    let with = |arguments: &[&str]| {
        let ran = hectare(&[arguments, &["--journal", &journal]].concat()).ok();
        assert!(ran.err.is_empty(), "{}: {}", ran.line, ran.err);
        ran.text().to_owned()
    };
    // Without the journal the file is missing, and a note gives the reason.
    let alone = hectare(&["ls", &at("/")]).ok();
    assert_eq!(alone.text(), "lost+found\n");
    assert!(alone.err.contains("--journal"), "{}", alone.err);
    assert_eq!(with(&["ls", &at("/d")]), "f\n");
    assert_eq!(with(&["cat", &at("/d/f")]), "of the journal");
    assert!(with(&["stat", &at("/d/f")]).contains("14"));
    assert!(with(&["tree", &at("/")]).contains('f'));
    assert_eq!(with(&["xattr", "get", "user.a", &at("/d/f")]), "value");
    assert_eq!(with(&["xattr", "list", &at("/d/f")]), "user.a\n");
    let free = |text: &str| text.lines().find(|line| line.starts_with("Free blocks:")).unwrap().to_owned();
    let alone = hectare(&["info", &name]).ok().text().to_owned();
    assert!(!free(&with(&["info", &name])).is_empty() && !free(&alone).is_empty());
    assert!(with(&["freefrag", &name]).contains("Free blocks"));
    with(&["map", &name]);
    let copy = folder.path().join("copy");
    with(&["cp", &at("/d/f"), copy.to_str().unwrap()]);
    assert_eq!(std::fs::read(&copy).unwrap(), b"of the journal");
    // By itself it needs the journal; with it, it is clean.
    assert_eq!(hectare(&["check", &name]).code, Some(1));
    assert!(with(&["check", &name]).contains("clean"));
    let after = (std::fs::read(&image).unwrap(), std::fs::read(&journal).unwrap());
    assert!(before == after, "looking changed something");
    // Writing replays the journal permanently.
    with(&["mkdir", &at("/e")]);
    let fsck = hectare_oracle::fsck::e2fsck_with(&image, &["-fn", "-j", &journal]).unwrap();
    assert!(fsck.clean, "{}", fsck.output);
    assert_eq!(hectare(&["ls", &at("/")]).ok().text(), "d\ne\nlost+found\n");
}

/// Repair and check take a journal on another device, by name or by its UUID, and a repair is taken back in
/// both.
#[test]
fn a_repair_and_a_check_replay_a_journal_on_another_device() {
    let name = "cli journal::a_repair_and_a_check_replay";
    let folder = tempfile::tempdir().unwrap();
    let own = "66666666-3333-4444-8555-666666666666";
    let (image, journal) = match crashed(folder.path(), own) {
        Ok(made) => made,
        Err(reason) => skip!(name, reason),
    };
    let both = || (std::fs::read(&image).unwrap(), std::fs::read(&journal).unwrap());
    let before = both();
    let (at, log) = (image.display().to_string(), journal.display().to_string());
    let clean = || {
        let fsck = hectare_oracle::fsck::e2fsck_with(&image, &["-fn", "-j", &log]).unwrap();
        assert!(fsck.clean, "{}", fsck.output);
        assert_eq!(hectare(&["ls", "--journal", &log, &format!("{at}:/")]).ok().text(), "d\nlost+found\n");
    };
    let alone = hectare(&["repair", "-y", &at]);
    assert_eq!(alone.code, Some(4), "{}", alone.err);
    assert!(alone.err.contains(own) && alone.err.contains("--journal"), "{}", alone.err);
    let foreign = hectare(&["repair", "-y", "--journal", &at, &at]);
    assert_eq!(foreign.code, Some(8), "{}", foreign.err);
    assert_eq!(hectare(&["repair", "-n", "--journal", &log, &at]).code, Some(4));
    assert!(both() == before, "nothing was written");

    let ran = hectare(&["repair", "-p", "--journal", &log, &at]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    clean();
    assert!(hectare(&["check", "--journal", &log, &at]).ok().text().contains("clean"));
    assert!(hectare(&["check", &at]).ok().text().contains("not checked: the external journal"));
    let undo = format!("{at}.undo-1");
    assert!(hectare(&["undo", &at, &undo]).refused().contains("--journal"));
    hectare(&["undo", "--journal", &log, &at, &undo]).ok();
    assert!(both() == before, "both are as they were");

    // The block device with its UUID is found.
    let device = match LoopDevice::new(&journal, Access::ReadWrite) {
        Ok(device) => device,
        Err(reason) => return hectare_oracle::skip_part!(name, reason),
    };
    let checked = hectare(&["check", &at]).ok().text().to_owned();
    assert!(checked.contains("clean") && !checked.contains("not checked"), "{checked}");
    let ran = hectare(&["repair", "-p", "--no-undo", &at]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    drop(device);
    clean();
}

/// The UUID of a volume or an external journal, as dumpe2fs shows it.
fn uuid_of(image: &str) -> Result<String, Skip> {
    Ok(hectare_oracle::dumpe2fs(Path::new(image))?.field("Filesystem UUID").to_owned())
}

#[test]
fn a_journal_on_another_device_is_made_and_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (journal, image, other) = (path("journal"), path("image"), path("other"));
    let checked = (|| {
        hectare(&["mkfs", "-O", "journal_dev", "-b", "4096", &journal, "8M"]).ok();
        let uuid = uuid_of(&journal)?;
        assert_eq!(
            hectare_oracle::dumpe2fs(Path::new(&journal))?.field("Filesystem features"),
            "journal_dev"
        );
        let device = format!("device={journal}");
        let wrong = hectare(&["mkfs", "-b", "1024", "-J", &device, &image, "32M"]);
        assert!(wrong.refused().contains("give -b 4096"), "{}", wrong.err);
        hectare(&["mkfs", "-J", &device, &image, "32M"]).ok();
        assert_eq!(hectare_oracle::dumpe2fs(Path::new(&image))?.field("Journal UUID"), uuid);
        let clean = |what: &str| {
            let fsck = hectare_oracle::fsck::e2fsck_with(Path::new(&image), &["-fn", "-j", &journal])?;
            assert!(fsck.clean, "{what}: {}", fsck.output);
            Ok::<_, Skip>(())
        };
        clean("new")?;
        // Another volume would replay this one's log.
        let used = hectare(&["mkfs", "-J", &device, &other, "32M"]);
        assert!(used.refused().contains(&uuid_of(&image)?), "{}", used.err);
        let none = hectare(&["mkfs", "-J", &format!("device={image}"), &other, "32M"]);
        assert!(none.refused().contains("-O journal_dev"), "{}", none.err);
        // Nothing is written without it, and the error names what is missing.
        let alone = hectare(&["mkdir", &format!("{image}:/d")]);
        assert!(alone.refused().contains(&uuid) && alone.err.contains("--journal"), "{}", alone.err);
        hectare(&["mkdir", "--journal", &journal, &format!("{image}:/d")]).ok();
        clean("changed here")?;
        // The kernel uses both, and leaves what is read here.
        let log = LoopDevice::new(Path::new(&journal), Access::ReadWrite)?;
        let options = format!("journal_path={}", log.path().display());
        let mount = hectare_oracle::KernelMount::new(Path::new(&image), &options)?;
        std::fs::write(mount.path().join("d/f"), b"of the kernel").unwrap();
        mount.unmount();
        drop(log);
        assert_eq!(
            hectare(&["cat", "--journal", &journal, &format!("{image}:/d/f")]).ok().text(),
            "of the kernel"
        );
        clean("changed by the kernel")?;
        // So does a mount here, if its option names the journal.
        let dir = path("dir");
        std::fs::create_dir(&dir).unwrap();
        let alone = hectare(&["mount", &image, &dir]);
        assert!(alone.refused().contains("-o journal_path=FILE"), "{}", alone.err);
        hectare(&["mount", "-o", &format!("journal_path={journal}"), &image, &dir]).ok();
        let in_use = hectare(&["ls", "--journal", &journal, &format!("{image}:/")]);
        let read = std::fs::read(Path::new(&dir).join("d/f"));
        let written = std::fs::write(Path::new(&dir).join("d/g"), b"through a mount");
        hectare(&["umount", &dir]).ok();
        assert_eq!(read.unwrap(), b"of the kernel");
        written.unwrap();
        assert!(in_use.refused().contains("is using it"), "{}", in_use.err);
        clean("changed through a mount")?;
        assert_eq!(
            hectare(&["cat", "--journal", &journal, &format!("{image}:/d/g")]).ok().text(),
            "through a mount"
        );
        // A journal of another UUID is refused by both names.
        hectare(&["mkfs", "-O", "journal_dev", "-b", "4096", &other, "8M"]).ok();
        let foreign = hectare(&["mkdir", "--journal", &other, &format!("{image}:/e")]);
        assert!(
            foreign.refused().contains(&uuid) && foreign.err.contains(&uuid_of(&other)?),
            "{}",
            foreign.err
        );
        Ok::<_, Skip>(())
    })();
    if let Err(reason) = checked {
        skip!("cli journal::a_journal_on_another_device_is_made_and_used", reason);
    }
    let from = folder.path().to_str().unwrap();
    let refused = hectare(&["build", "-O", "journal_dev", "--from", from, &path("built")]);
    assert!(refused.err.contains("hectare mkfs does"), "{}", refused.err);
}

#[test]
fn a_data_mode_is_chosen_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let (image, plain) = (folder.path().join("image"), folder.path().join("plain"));
    let made = hectare_oracle::mke2fs(&["-t", "ext4"], &image, "32M")
        .and_then(|()| hectare_oracle::mke2fs(&["-t", "ext4", "-O", "^has_journal"], &plain, "8M"));
    if let Err(reason) = made {
        skip!("cli journal::a_data_mode_is_chosen_by_name", reason);
    }
    let source = folder.path().join("source");
    std::fs::write(&source, vec![7; 300_000]).unwrap();
    let source = source.to_str().unwrap();
    for mode in ["journal", "ordered", "writeback"] {
        let to = format!("{}:/{mode}", image.display());
        hectare(&["cp", "--data", mode, source, &to]).ok();
        assert!(hectare(&["cat", &to]).ok().out == vec![7; 300_000], "{mode}");
        let to = format!("{}:/{mode}", plain.display());
        let ran = hectare(&["cp", "--data", mode, source, &to]);
        assert!(ran.refused().contains(&format!("data={mode} needs a journal")), "{}", ran.err);
    }
    hectare_oracle::assert_clean(&image).unwrap();
    assert_eq!(hectare(&["mkdir", "--data", "none", &format!("{}:/d", image.display())]).code, Some(2));
}

/// A journal that is not named is found among the block devices, by what the volume says of it.
#[test]
fn a_journal_is_found_by_its_uuid_and_label() {
    let name = "cli journal::a_journal_is_found";
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (journal, image, copy) = (path("journal"), path("image"), path("copy"));
    let uuid = "33333333-4444-4555-8666-777777777777";
    let absent = hectare(&["mkfs", "-J", &format!("device=UUID={uuid}"), &image, "32M"]);
    assert!(absent.refused().contains("no block device that can be read has"), "{}", absent.err);
    hectare(&["mkfs", "-O", "journal_dev", "-b", "4096", "-U", uuid, "-L", "the log", &journal, "8M"]).ok();
    let attach = |image: &str| LoopDevice::new(Path::new(image), Access::ReadWrite);
    let device = match attach(&journal) {
        Ok(device) => device,
        Err(reason) => skip!(name, reason),
    };
    hectare(&["mkfs", "-J", "device=LABEL=the log", &image, "32M"]).ok();
    hectare(&["mkfs", "--force", "-J", &format!("device=UUID={uuid}"), &image, "32M"]).ok();
    hectare(&["mkdir", &format!("{image}:/d")]).ok();
    assert!(hectare(&["ls", &image]).ok().text().contains('d'));
    // Two of one name: neither is taken.
    std::fs::copy(&journal, &copy).unwrap();
    let second = attach(&copy).unwrap();
    let two = hectare(&["mkdir", &format!("{image}:/e")]);
    let names = [&device, &second].map(|device| device.path().display().to_string());
    let refused = two.refused();
    assert!(names.iter().all(|name| refused.contains(name)), "{refused}");
    drop(second);
    hectare(&["mkdir", &format!("{image}:/e")]).ok();
    drop(device);
    let alone = hectare(&["mkdir", &format!("{image}:/f")]);
    assert!(alone.refused().contains(uuid) && alone.err.contains("--journal"), "{}", alone.err);
    let fsck = hectare_oracle::fsck::e2fsck_with(Path::new(&image), &["-fn", "-j", &journal]).unwrap();
    assert!(fsck.clean, "{}", fsck.output);
}
