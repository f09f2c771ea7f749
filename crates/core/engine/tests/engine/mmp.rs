//! Multiple-mount protection, with the kernel and with others of us as the other host.
//!
//! Each of these waits as long as the format demands (11 seconds at least, twice), so they run side by side.

use crate::common::{close_clean, format_bytes, in_memory, in_memory_with, save, unhurried};
use hectare_device::{Device, FileOptions};
use hectare_engine::{Creation, Error, OpenOptions, Volume};
use hectare_ext4::mmp::{Mmp, Status};
use hectare_oracle::mount::{Access, MountError};
use hectare_oracle::{KernelMount, Skip, skip, skip_part};
use hectare_units::{BlockNr, Bytes};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A volume whose user renews its mark every second.
fn protected(features: &str) -> Result<Vec<u8>, Skip> {
    format_bytes(&["-t", "ext4", "-O", features, "-E", "mmp_update_interval=1"], "16M")
}

/// Where the block lies, of a volume with blocks of 1 KiB.
fn block_of(bytes: &[u8]) -> BlockNr {
    let at = 1024 + 0x168;
    BlockNr::new(u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()))
}

fn mark(device: &dyn Device, block: BlockNr) -> Mmp {
    let mut bytes = vec![0; 1024];
    device.read_at(Bytes::new(block.get() * 1024), &mut bytes).unwrap();
    Mmp::parse(&bytes, block, None).unwrap()
}

/// The errno of what another host has in use.
const BUSY: i32 = 16;

#[track_caller]
fn refused(result: Result<Volume, Error>, errno: i32, words: &[&str]) {
    let error = result.map(drop).expect_err("it is in use");
    assert_eq!(error.errno(), errno, "{error}");
    let text = error.to_string();
    assert!(words.iter().all(|word| text.contains(word)) && !text.contains('\n'), "{text}");
}

fn unlocked(image: &Path) -> Arc<dyn Device> {
    Arc::new(FileOptions::new().write(true).exclusive(false).open(image).unwrap())
}

#[test]
fn a_volume_in_use_is_refused_and_one_left_by_a_crash_is_taken_after_a_wait() {
    let bytes = match protected("mmp,^metadata_csum") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("mmp::a_volume_in_use", reason),
    };
    let held = in_memory(&bytes);
    let during = held.device.to_vec();
    let at_once = OpenOptions { mmp_wait: false, ..unhurried() };
    let refusal = in_memory_with(&during, at_once).map(|held| held.volume);
    refused(refusal, BUSY, &["in use by host", "last seen 20", "MMP", "clear_mmp"]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let began = Instant::now();
            let second = Volume::open(Arc::clone(&held.device) as Arc<dyn Device>, OpenOptions::default());
            refused(second, BUSY, &["in use by host", "MMP"]);
            assert!(began.elapsed() >= Duration::from_secs(11));
        });
        scope.spawn(|| {
            let began = Instant::now();
            let left = in_memory_with(&during, unhurried()).unwrap();
            assert!(began.elapsed() >= Duration::from_secs(22));
            close_clean(&left);
        });
    });
    // Reading takes no part in it, as with the kernel.
    assert!(Volume::open(Arc::clone(&held.device) as Arc<dyn Device>, OpenOptions::read_only()).is_ok());
    held.volume.write_file("file", b"x", Creation::default()).unwrap();
    close_clean(&held);
    assert_eq!(mark(&*held.device, block_of(&bytes)).status, Status::Clean);
}

#[test]
fn the_mark_changes_and_another_hosts_ends_all_changes() {
    let bytes = match protected("mmp,^metadata_csum") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("mmp::the_mark_changes", reason),
    };
    let held = in_memory(&bytes);
    let block = block_of(&bytes);
    let Status::InUse { sequence, node, .. } = mark(&*held.device, block).status else {
        panic!("it is open")
    };
    assert!(!node.is_empty());
    std::thread::sleep(Duration::from_millis(2500));
    let Status::InUse { sequence: later, .. } = mark(&*held.device, block).status else {
        panic!("it is open")
    };
    assert!((1..=3).contains(&later.wrapping_sub(sequence)), "{sequence} {later}");
    let other = Mmp {
        status: Status::InUse { node: "elsewhere".into(), device: "sdz".into(), sequence: 5 },
        time: 1_800_000_000,
        check_interval: 5,
    };
    held.device.write_at(Bytes::new(block.get() * 1024), &other.render(None)).unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    let refusal = held.volume.write_file("file", b"x", Creation::default());
    let text = refusal.expect_err("another host has it").to_string();
    assert!(text.contains("host elsewhere, device sdz, last seen 2027-01-15"), "{text}");
    assert!(matches!(held.volume.close(), Err(Error::Aborted(_))));
    drop(held.volume);
    assert_eq!(mark(&*held.device, block), other, "it is the other host's");
}

#[test]
fn a_check_under_way_and_a_wait_without_end_are_refused() {
    let bytes = match protected("mmp,^metadata_csum") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("mmp::a_check_under_way", reason),
    };
    let block = block_of(&bytes);
    let cases = [
        (Status::Fsck, 5, BUSY, "being checked by e2fsck"),
        (Status::InUse { node: "n".into(), device: "d".into(), sequence: 1 }, 60_000, 117, "300 is the most"),
    ];
    for (status, check_interval, errno, what) in cases {
        let mmp = Mmp { status, time: u64::MAX, check_interval };
        let mut bytes = bytes.clone();
        let at = usize::try_from(block.get() * 1024).unwrap();
        bytes[at..at + 1024].copy_from_slice(&mmp.render(None));
        refused(in_memory_with(&bytes, unhurried()).map(|held| held.volume), errno, &[what]);
    }
}

#[test]
fn the_kernel_and_we_do_not_use_a_volume_at_once() {
    let bytes = match protected("mmp") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("mmp::the_kernel_and_we", reason),
    };
    if let Err(reason) = hectare_oracle::mount::can_mount() {
        skip!("mmp::the_kernel_and_we", reason);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let image = path("ours");
            save(&bytes, &image);
            let volume = Volume::open(unlocked(&image), OpenOptions::default()).unwrap();
            match KernelMount::attempt(&image, Access::ReadWrite, "") {
                Ok(_) => panic!("the kernel mounted a volume in use"),
                Err(MountError::Skip(reason)) => skip_part!("mmp::the_kernel, ours first", reason),
                Err(MountError::Refused { .. }) => {}
            }
            volume.close().unwrap();
            drop(volume);
            hectare_oracle::assert_clean(&image).unwrap();
        });
        scope.spawn(|| {
            let image = path("theirs");
            save(&bytes, &image);
            let mount = match KernelMount::new(&image, "") {
                Ok(mount) => mount,
                Err(reason) => return skip_part!("mmp::the_kernel, theirs first", reason),
            };
            refused(
                Volume::open(unlocked(&image), OpenOptions::default()),
                BUSY,
                &["in use by host", "loop"],
            );
            mount.unmount();
            // What it left is free.
            let volume = Volume::open(unlocked(&image), OpenOptions::default()).unwrap();
            volume.close().unwrap();
            drop(volume);
            hectare_oracle::assert_clean(&image).unwrap();
        });
    });
}
