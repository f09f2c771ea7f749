//! Several threads say what one says, word by word.
//!
//! The volumes are small, and one thread could be done before the next has begun. So reads take longer here,
//! each by its own time.

use crate::damage::{choose, volumes};
use crate::support::{check_file, e2fsck, lines, load, options};
use hectare_check::{Options, Report, check};
use hectare_device::{Device, FaultDevice, MemoryDevice, Operation, Outcome, Rule, TraceDevice};
use hectare_oracle::trees::Random;
use hectare_oracle::{
    Scale, corpus, debugfs, debugfs_write, filled, mke2fs, scratch, skip, skip_part, unpacked,
};
use hectare_units::Bytes;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

/// A report, or why there is none.
fn said(device: &dyn Device, threads: usize) -> Result<Report, String> {
    let threads = NonZeroUsize::new(threads).unwrap();
    check(device, &Options { threads, ..options() }).map_err(|error| error.to_string())
}

/// A device whose reads take from nothing to 150 microseconds, by where they are.
fn slow(device: MemoryDevice) -> FaultDevice<MemoryDevice> {
    let slow = FaultDevice::new(device);
    slow.add(Rule::new(Outcome::IO).on(&[Operation::Read]).when(|request| {
        std::thread::sleep(Duration::from_micros(request.span.at.get() / 1024 % 4 * 50));
        false
    }));
    slow
}

/// Asserts that two and three threads say what one says, and returns that.
fn same(name: &str, device: &FaultDevice<MemoryDevice>) -> Result<Report, String> {
    let one = said(device.inner(), 1);
    for threads in [2, 3] {
        assert_eq!(said(device, threads), one, "{name}, with {threads} threads");
    }
    one
}

#[test]
fn the_corpus_is_judged_alike() {
    for packed in corpus("check parallel::corpus") {
        let device = slow(MemoryDevice::from_bytes(&unpacked(&packed)));
        let _ = same(&packed.display().to_string(), &device);
    }
}

/// Every volume sound, then with each of five bytes changed, then with all of them and more.
#[test]
fn damage_is_judged_alike() {
    let (mut sound, mut broken) = (0, 0);
    for (combo, tree) in volumes() {
        let name = format!("{} {}", combo.name, tree.name());
        let filled = match filled(&combo, tree, &Scale::SMALL) {
            Ok(filled) => filled,
            Err(reason) => {
                skip_part!(format!("check parallel, {name}"), reason);
                continue;
            }
        };
        let device = slow(load(filled.image()));
        assert!(same(&name, &device).unwrap().is_clean());
        let trace = TraceDevice::new(load(filled.image()), 1 << 20);
        check(&trace, &options()).unwrap();
        let reads = trace.take();
        let mut random = Random::new(&format!("parallel {name}"));
        for round in 0..8 {
            let (at, old) = choose(device.inner(), &reads, &mut random);
            let put = |byte: u8| device.inner().write_at(Bytes::new(at), &[byte]).unwrap();
            put(old ^ u8::try_from(1 + random.below(255)).unwrap());
            let is_clean =
                same(&format!("{name}, byte {at:#x}"), &device).is_ok_and(|report| report.is_clean());
            *if is_clean { &mut sound } else { &mut broken } += 1;
            // From the fifth on, damage heaps up.
            if round < 5 {
                put(old);
            }
        }
    }
    assert!(broken > 80 || hectare_oracle::tool("mke2fs").is_none(), "{broken} broken, {sound} not");
}

/// A volume of many groups with a file in each of some, named by its group, of one block.
fn with_a_file_in_each_group(image: &Path) -> Result<(), hectare_oracle::Skip> {
    let features = "^metadata_csum,^flex_bg,^resize_inode,^has_journal,^uninit_bg";
    mke2fs(
        &["-t", "ext4", "-b", "1024", "-I", "128", "-g", "1024", "-N", "256", "-O", features],
        image,
        "16M",
    )?;
    let block = scratch::fresh("block");
    std::fs::write(&block, [7; 1000]).unwrap();
    let write = |name: &String| format!("write {} {name}", block.display());
    let names: Vec<String> = (0..200).map(|nr| format!("file{nr:03}")).collect();
    let requests: Vec<String> = names.iter().map(write).collect();
    debugfs_write(image, &requests.iter().map(String::as_str).collect::<Vec<_>>())?;
    std::fs::remove_file(&block).unwrap();
    Ok(())
}

/// The one thing that no thread sees alone: a block that files of two groups own. Bitmaps and counts agree
/// with that, so nothing else is wrong.
#[test]
fn a_block_of_two_files_is_seen_whoever_scanned_them() {
    let image = scratch::fresh("parallel");
    if let Err(reason) = with_a_file_in_each_group(&image) {
        skip!("check parallel::a_block_of_two_files", reason);
    }
    assert!(same("sound", &slow(load(&image))).unwrap().is_clean());
    let block_of = |name: &str| {
        let found = debugfs(&image, &[&format!("blocks {name}")]).unwrap();
        found.split_whitespace().find_map(|word| word.parse::<u32>().ok()).expect("one block")
    };
    let (first, last) = (block_of("file000"), block_of("file199"));
    assert_ne!(first, last);
    let share = [format!("sif file199 block[5] {first}"), format!("freeb {last}")];
    debugfs_write(&image, &share.each_ref().map(String::as_str)).unwrap();
    // The tool clears the block's bit and leaves the counts.
    let counts = lines(&check_file(&image).unwrap());
    let free =
        counts.rsplit_once(" free clusters, ").and_then(|(_, rest)| rest.split_once(' ')).expect("a count").0;
    debugfs_write(&image, &[&format!("set_bg {} free_blocks_count {free}", (last - 1) / 1024)]).unwrap();
    let report = check_file(&image).unwrap();
    assert_eq!(report.problem_count, 1, "{}", lines(&report));
    assert!(lines(&report).contains("belongs to something else, too"), "{}", lines(&report));
    let (exit, found) = e2fsck(&image).expect("it was there a moment ago");
    assert!(exit == Some(4) && found.contains("multiply-claimed"), "{found}");
    let device = slow(load(&image));
    for _ in 0..10 {
        assert_eq!(same("shared", &device).unwrap(), report);
    }
    std::fs::remove_file(&image).unwrap();
}

/// The other way round: an attribute block of files in several groups has several users and one owner.
#[test]
fn an_attribute_block_may_belong_to_inodes_of_several_threads() {
    let image = scratch::fresh("parallel");
    if let Err(reason) = with_a_file_in_each_group(&image) {
        skip!("check parallel::an_attribute_block", reason);
    }
    let value = "v".repeat(40);
    debugfs_write(&image, &[&format!("ea_set file000 user.name {value}")]).unwrap();
    let stat = debugfs(&image, &["stat file000"]).unwrap();
    let block = stat.split("File ACL: ").nth(1).and_then(|rest| rest.split_whitespace().next());
    let block: u32 = block.and_then(|word| word.parse().ok()).expect("an attribute block");
    // Every fortieth file has it, too: the block's count of users is at byte 4.
    let mut requests = Vec::new();
    for nr in (40..200).step_by(40) {
        requests.push(format!("sif file{nr:03} file_acl {block}"));
        requests.push(format!("sif file{nr:03} blocks 4"));
    }
    debugfs_write(&image, &requests.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    let mut bytes = std::fs::read(&image).unwrap();
    bytes[usize::try_from(block).unwrap() * 1024 + 4] = 5;
    std::fs::write(&image, &bytes).unwrap();
    let (exit, found) = e2fsck(&image).expect("it was there a moment ago");
    assert_eq!(exit, Some(0), "{found}");
    let device = slow(load(&image));
    for _ in 0..10 {
        let report = same("shared attributes", &device).unwrap();
        assert!(report.is_clean(), "{}", lines(&report));
    }
    std::fs::remove_file(&image).unwrap();
}
