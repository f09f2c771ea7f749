//! Volumes that must not be written, or not be opened at all: each refused by name, and left as it was.

use crate::common::{entries_of, format_bytes, in_memory, in_memory_with, save};
use hectare_device::{FileOptions, MemoryDevice};
use hectare_engine::{Creation, Error, OpenOptions, Volume};
use hectare_oracle::mount::Access;
use hectare_oracle::{KernelMount, MountError, skip};
use hectare_units::Bytes;
use std::sync::Arc;

/// Sets fields of the superblock, and corrects its checksum.
fn with_fields(bytes: &[u8], requests: &[&str]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    save(bytes, &image);
    hectare_oracle::debugfs_write(&image, requests).unwrap();
    std::fs::read(&image).unwrap()
}

#[track_caller]
fn refused(bytes: &[u8], options: OpenOptions, words: &[&str]) {
    let device = Arc::new(MemoryDevice::from_bytes(bytes));
    let error = Volume::open(Arc::clone(&device) as _, options).err().expect("it was opened");
    let text = error.to_string();
    assert!(words.iter().all(|word| text.contains(word)), "{text:?} should say {words:?}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(device.to_vec() == bytes, "bytes changed");
}

macro_rules! bytes {
    ($test:literal $(, $arg:literal)*) => {
        match format_bytes(&["-t", "ext4" $(, $arg)*], "16M") {
            Ok(bytes) => bytes,
            Err(reason) => skip!($test, reason),
        }
    };
}

#[test]
fn volumes_in_a_doubtful_state_are_read_but_not_written() {
    let bytes = bytes!("states::volumes_in_a_doubtful_state");
    let cases: [(&[&str], &[&str]); 8] = [
        (&["feature ^has_journal", "set_super_value state 0"], &["not cleanly closed"]),
        (&["set_super_value state 3"], &["errors"]),
        (&["set_super_value last_orphan 12"], &["orphan"]),
        (&["feature shared_blocks"], &["shared_blocks"]),
        // What check rejects of a superblock.
        (&["set_super_value r_blocks_count 12000"], &["reserves 12000", "e2fsck"]),
        (&["set_super_value log_groups_per_flex 32"], &["flex groups", "e2fsck"]),
        (&["set_super_value journal_dev 0x801"], &["a journal inside and one outside", "hectare repair"]),
        (&["set_super_value journal_inum 0"], &["no journal, neither inside nor outside", "e2fsck"]),
    ];
    for (requests, words) in cases {
        let broken = with_fields(&bytes, requests);
        refused(&broken, OpenOptions::default(), words);
        let held = in_memory_with(&broken, OpenOptions::read_only()).unwrap();
        assert_eq!(entries_of(&held.volume).len(), 2, "{requests:?}");
        held.volume.close().unwrap();
        assert!(held.device.to_vec() == broken, "bytes changed");
    }
}

/// The content of the journal is not visible then, and stays in the journal.
#[test]
fn a_volume_is_read_without_its_journal_where_that_is_asked() {
    let bytes = bytes!("states::a_volume_is_read_without_its_journal");
    let held = in_memory(&bytes);
    held.volume.write_file("f", b"text", Creation::default()).unwrap();
    held.volume.sync().unwrap();
    let torn = held.device.to_vec();
    held.volume.close().unwrap();
    let no_replay = OpenOptions { no_replay: true, ..OpenOptions::read_only() };
    for (options, there) in [(OpenOptions::read_only(), true), (no_replay.clone(), false)] {
        let held = in_memory_with(&torn, options).unwrap();
        assert_eq!(held.volume.read("f").is_ok(), there);
        held.volume.close().unwrap();
        assert!(held.device.to_vec() == torn, "bytes changed");
    }
    refused(&torn, OpenOptions { read_only: false, ..no_replay }, &["only be read"]);
}

/// It was mounted for writing, and descriptors were read where there are none; the kernel refuses it.
#[test]
fn regression_a_damaged_first_meta_group_is_not_opened() {
    const NAME: &str = "states::regression_a_damaged_first_meta_group_is_not_opened";
    let bytes = bytes!("states::regression_a_damaged_first_meta_group", "-O", "meta_bg,^resize_inode");
    let broken = with_fields(&bytes, &["set_super_value first_meta_bg 842150400"]);
    for options in [OpenOptions::default(), OpenOptions::read_only()] {
        refused(&broken, options, &["first meta group is 842150400"]);
    }
    let image = hectare_oracle::scratch::fresh("first-meta-group");
    save(&broken, &image);
    match KernelMount::attempt(&image, Access::ReadOnly, "") {
        Ok(_) => panic!("the kernel mounts it"),
        Err(MountError::Refused { .. }) => {}
        Err(MountError::Skip(reason)) => hectare_oracle::skip_part!(NAME, reason),
    }
}

/// Sets feature bits that no tool knows, in a volume without checksums.
fn with_bits(bytes: &[u8], word: usize, bits: u32) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let at = 1024 + word;
    let value = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) | bits;
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    bytes
}

#[test]
fn unknown_features_are_refused_by_name() {
    let bytes = bytes!("states::unknown_features", "-O", "^metadata_csum");
    let incompat = with_bits(&bytes, 0x60, 1 << 30);
    refused(&incompat, OpenOptions::default(), &["30"]);
    refused(&incompat, OpenOptions::read_only(), &["30"]);
    let ro_compat = with_bits(&bytes, 0x64, 1 << 29);
    refused(&ro_compat, OpenOptions::default(), &["29"]);
    assert_eq!(entries_of(&in_memory_with(&ro_compat, OpenOptions::read_only()).unwrap().volume).len(), 2);
    // An unknown compatible feature does not prevent opening.
    let compat = in_memory(&with_bits(&bytes, 0x5c, 1 << 28));
    compat.volume.write_file("file", b"x", Creation::default()).unwrap();
    compat.volume.close().unwrap();
    assert!(with_bits(&compat.device.to_vec(), 0x5c, 0)[1024 + 0x5f] & 0x10 != 0);
}

#[test]
fn regression_a_volume_refused_after_its_mmp_check_is_not_left_marked() {
    let mut bytes =
        bytes!("states::a_volume_refused", "-O", "mmp,^metadata_csum", "-E", "mmp_update_interval=1");
    bytes[1024 + 0xfc] = 77; // s_def_hash_version: an unknown function, which is found out late
    refused(&bytes, OpenOptions::default(), &["hash"]);
}

#[test]
fn what_is_no_volume_is_refused() {
    let bytes = bytes!("states::what_is_no_volume");
    for options in [OpenOptions::default(), OpenOptions::read_only()] {
        refused(&[], options.clone(), &["0 bytes"]);
        refused(&[0; 2047], options.clone(), &["2047 bytes"]);
        refused(&vec![0; 1 << 20], options.clone(), &["nothing but zeros"]);
        refused(&vec![0xff; 1 << 20], options.clone(), &["superblock"]);
        let random = hectare_oracle::trees::Random::new("no volume").bytes(1 << 20);
        refused(&random, options.clone(), &["superblock"]);
        // Truncated: the error names what is missing.
        refused(&bytes[..bytes.len() / 2], options, &["superblock"]);
    }
}

#[test]
fn a_read_only_device_is_read_and_not_opened_for_writing() {
    let bytes = bytes!("states::a_read_only_device");
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    save(&bytes, &image);
    let open = |options| Volume::open(Arc::new(FileOptions::new().open(&image).unwrap()), options);
    assert!(matches!(open(OpenOptions::default()), Err(Error::ReadOnly)));
    assert_eq!(entries_of(&open(OpenOptions::read_only()).unwrap()).len(), 2);
}

#[test]
fn a_volume_dropped_without_closing_is_closed() {
    let bytes = bytes!("states::a_volume_dropped");
    let held = in_memory(&bytes);
    held.volume.write_file("file", b"content", Creation::default()).unwrap();
    let device = Arc::clone(&held.device);
    drop(held);
    crate::common::assert_clean_bytes(&device.to_vec());
    let again = Volume::open(Arc::clone(&device) as _, OpenOptions::read_only()).unwrap();
    assert_eq!(again.read("file").unwrap(), b"content");
    assert_eq!(again.device().len(), Bytes::new(16 << 20));
}
