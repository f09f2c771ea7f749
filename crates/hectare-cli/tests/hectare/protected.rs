//! Volumes with multiple mount protection (MMP) in files, which another host has in use: they are neither
//! repaired nor overwritten. The other host is a thread that renews its mark, without a lock on the file.

use crate::support::{SPEED, digest, hectare, hectare_fast};
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::mmp::{Mmp, Status};
use hectare_ext4::superblock::{SIZE, SuperBlock};
use hectare_oracle::{Skip, assert_clean, mke2fs, skip};
use hectare_units::Bytes;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A volume with blocks of 1 KiB that counts wrong: `/a` has more links than names. It has no checksums, so that
/// the count is all that has to be written, and not by debugfs, which would wait 11 seconds for other hosts.
fn broken(folder: &Path, name: &str) -> Result<PathBuf, Skip> {
    let image = folder.join(name);
    mke2fs(
        &["-t", "ext4", "-b", "1024", "-O", "mmp,^metadata_csum", "-E", "mmp_update_interval=1"],
        &image,
        "16M",
    )?;
    hectare(&["mkdir", "-p", &format!("{}:/a/b", image.display())]).ok();
    let file = File::options().read(true).write(true).open(&image).unwrap();
    let word = |at| {
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, at).unwrap();
        u64::from(u32::from_le_bytes(bytes))
    };
    // The table of inodes, the size of one, and the first one after lost+found.
    let (table, size) = (word(2048 + 8) * 1024, word(1024 + 0x58) & 0xffff);
    file.write_all_at(&9_u16.to_le_bytes(), table + 11 * size + 0x1a).unwrap();
    Ok(image)
}

/// The superblock, and where its block of the protection lies.
fn protection(image: &Path) -> (SuperBlock, u64) {
    let mut bytes = [0; SIZE];
    File::open(image).unwrap().read_exact_at(&mut bytes, SUPERBLOCK_OFFSET.get()).unwrap();
    let sb = SuperBlock::parse(&bytes, Bytes::new(u64::MAX)).unwrap();
    let at = sb.raw().s_mmp_block.get() * 1024;
    (sb, at)
}

fn status(image: &Path) -> Status {
    let ((sb, at), mut bytes) = (protection(image), [0; 1024]);
    File::open(image).unwrap().read_exact_at(&mut bytes, at).unwrap();
    Mmp::parse(&bytes, hectare_units::BlockNr::new(at / 1024), sb.seed()).unwrap().status
}

/// Has another host use some volumes while `act` runs, and crash then.
fn while_used(images: &[&Path], act: impl FnOnce()) {
    let marks: Vec<_> = images
        .iter()
        .map(|image| (File::options().write(true).open(image).unwrap(), protection(image)))
        .collect();
    let stop = AtomicBool::new(false);
    let renew = |sequence| {
        for (file, (sb, at)) in &marks {
            let status = Status::InUse { node: "elsewhere".into(), device: "sdz".into(), sequence };
            let mmp = Mmp { status, time: 1_800_000_000, check_interval: 5 };
            file.write_all_at(&mmp.render(sb.seed()), *at).unwrap();
        }
    };
    renew(1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut sequence = 1;
            while !stop.load(Ordering::SeqCst) {
                sequence += 1;
                renew(sequence);
                std::thread::sleep(Duration::from_millis(200) / SPEED);
            }
        });
        // A test that fails ends the thread, too.
        let acted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
        stop.store(true, Ordering::SeqCst);
        if let Err(panic) = acted {
            std::panic::resume_unwind(panic);
        }
    });
}

#[test]
fn what_another_host_uses_is_neither_repaired_nor_overwritten() {
    const NAME: &str = "cli protected::what_another_host_uses";
    let folder = tempfile::tempdir().unwrap();
    let made: Result<Vec<PathBuf>, Skip> =
        ["repair", "undo", "mkfs"].map(|n| broken(folder.path(), n)).into_iter().collect();
    let images = match made {
        Ok(images) => images,
        Err(reason) => skip!(NAME, reason),
    };
    let [repaired, undone, made] = [0, 1, 2].map(|nr: usize| images[nr].to_str().unwrap());
    assert_eq!(hectare(&["repair", "-y", undone]).code, Some(1));
    let undo = format!("{undone}.undo-1");
    let commands: [(&[&str], i32); 3] = [
        (&["repair", "-y", repaired], 8),
        (&["undo", undone, &undo], 1),
        (&["mkfs", "-q", "--force", made], 1),
    ];
    let paths: Vec<&Path> = images.iter().map(PathBuf::as_path).collect();
    while_used(&paths, || {
        std::thread::scope(|scope| {
            for (words, code) in commands {
                scope.spawn(move || {
                    let ran = hectare_fast(words);
                    let last = ran.err.lines().last().unwrap_or_default();
                    let is_named =
                        last.contains("in use by host elsewhere, device sdz") && last.contains("MMP");
                    assert!(is_named && ran.code == Some(code), "{words:?}: {}", ran.err);
                });
            }
        });
    });
    assert!(paths.iter().all(|image| matches!(status(image), Status::InUse { .. })));
    // It has crashed.
    std::thread::scope(|scope| {
        for ((words, _), code) in commands.into_iter().zip([1, 0, 0]) {
            scope.spawn(move || {
                let ran = hectare_fast(words);
                assert_eq!(ran.code, Some(code), "{words:?}: {}", ran.err);
            });
        }
    });
    assert_eq!((status(paths[0]), status(paths[1])), (Status::Clean, Status::Clean));
    assert_clean(paths[0]).unwrap();
    assert_clean(paths[2]).unwrap();
    assert_eq!(hectare(&["check", undone]).code, Some(1), "it is broken again");
}

#[test]
fn a_damaged_mark_keeps_no_volume_from_its_repair() {
    let folder = tempfile::tempdir().unwrap();
    let image = match broken(folder.path(), "disk.img") {
        Ok(image) => image,
        Err(reason) => skip!("cli protected::a_damaged_mark", reason),
    };
    let (name, (_, at)) = (image.to_str().unwrap(), protection(&image));
    File::options().write(true).open(&image).unwrap().write_all_at(&[9; 700], at).unwrap();
    let before = digest(&image);
    let ran = hectare_fast(&["repair", "-y", name]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.err.contains("no other machine can see"), "{}", ran.err);
    assert_eq!(status(&image), Status::Clean);
    assert_clean(&image).unwrap();
    let mended = digest(&image);
    assert_eq!(hectare_fast(&["repair", "-y", name]).code, Some(0));
    assert_eq!(digest(&image), mended, "a sound volume is left to the byte");
    hectare_fast(&["undo", name, &format!("{name}.undo-1")]).ok();
    assert_eq!(digest(&image), before, "also the damaged block");
    // Nobody waits for a host that is known to be gone.
    let ran = hectare(&["repair", "-y", "--ignore-mmp", name]);
    assert!(ran.code == Some(1) && !ran.err.contains("waiting"), "{}", ran.err);
    assert_clean(&image).unwrap();
}

/// A sound volume that a host left marked, or whose mark is none: the check finds that, and so the repair says
/// that it changed something.
#[test]
fn regression_a_mark_that_is_taken_away_is_a_change() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img");
    if let Err(reason) = mke2fs(&["-t", "ext4", "-b", "1024", "-O", "mmp"], &image, "16M") {
        skip!("cli protected::a_mark_that_is_taken_away", reason);
    }
    let (name, (sb, at)) = (image.to_str().unwrap(), protection(&image));
    for sequence in [5, 0xe24d_4d51] {
        let status = Status::InUse { node: "elsewhere".into(), device: "sdz".into(), sequence };
        let mmp = Mmp { status, time: 1_800_000_000, check_interval: 5 };
        File::options().write(true).open(&image).unwrap().write_all_at(&mmp.render(sb.seed()), at).unwrap();
        assert_eq!(hectare(&["check", name]).code, Some(1));
        let ran = hectare(&["repair", "-y", "--ignore-mmp", name]);
        assert_eq!(ran.code, Some(1), "{sequence:#x}: {}", ran.err);
        assert_eq!(hectare_fast(&["repair", "-y", name]).code, Some(0));
        assert_clean(&image).unwrap();
    }
}
