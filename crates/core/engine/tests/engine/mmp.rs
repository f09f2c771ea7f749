//! Multiple-mount protection, with the kernel and with others of us as the other host.
//!
//! The format demands waits of 11 seconds at least, and twice that for a mark that stands still. They pass on
//! a fast clock; with the kernel as the other host, on the real one.

use crate::common::{close_clean, format_bytes, in_memory_with, save, unhurried};
use hectare_device::{Clock, Device, FileOptions};
use hectare_engine::{Creation, Error, OpenOptions, Volume};
use hectare_ext4::mmp::{Mmp, Status};
use hectare_oracle::mount::{Access, MountError};
use hectare_oracle::{KernelMount, Skip, skip, skip_part, until};
use hectare_units::{BlockNr, Bytes};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const CLOCK: Clock = Clock::fast(10);

fn fast() -> OpenOptions {
    OpenOptions { clock: CLOCK, ..unhurried() }
}

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
    let held = in_memory_with(&bytes, fast()).unwrap();
    let during = held.device.to_vec();
    let at_once = OpenOptions { mmp_wait: false, ..fast() };
    let refusal = in_memory_with(&during, at_once).map(|held| held.volume);
    refused(refusal, BUSY, &["in use by host", "last seen 20", "MMP", "clear_mmp"]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let began = CLOCK.now();
            let second = Volume::open(Arc::clone(&held.device) as Arc<dyn Device>, fast());
            refused(second, BUSY, &["in use by host", "MMP"]);
            assert!(CLOCK.now() - began >= Duration::from_secs(11));
        });
        scope.spawn(|| {
            let began = CLOCK.now();
            let left = in_memory_with(&during, fast()).unwrap();
            assert!(CLOCK.now() - began >= Duration::from_secs(22));
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
    let slower = Clock::fast(5);
    let began = slower.now();
    let held = in_memory_with(&bytes, OpenOptions { clock: slower, ..unhurried() }).unwrap();
    let block = block_of(&bytes);
    let first = mark(&*held.device, block).status;
    let Status::InUse { node, .. } = &first else { panic!("it is open") };
    assert!(!node.is_empty());
    until(|| mark(&*held.device, block).status != first);
    assert!(slower.now() - began >= Duration::from_secs(1));
    let other = Mmp {
        status: Status::InUse { node: "elsewhere".into(), device: "sdz".into(), sequence: 5 },
        time: 1_800_000_000,
        check_interval: 5,
    };
    held.device.write_at(Bytes::new(block.get() * 1024), &other.render(None)).unwrap();
    // The thread sees it at the next renewal, long before a write would have to look.
    slower.sleep(Duration::from_millis(2500));
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
