//! `fallocate` in all its modes, `SEEK_DATA` and `SEEK_HOLE`, and extents as `FIEMAP` reports them: against a
//! model, and against the kernel.

use crate::common::{
    close_clean, format_bytes, in_memory, in_memory_with, open_image, open_read_only, pattern, save,
};
use crate::ranges_model::{Blocks, Model, Op, State, apply_engine, apply_kernel, kernel_seeks, op};
use hectare_engine::{
    Changes, Creation, DataMode, ExtentFlags, FallocateMode, OpenFile, OpenOptions, Policy, Timestamp,
};
use hectare_oracle::hunt::{self, long};
use hectare_oracle::{Combo, KernelMount, Skip, assert_clean, skip, skip_part, tool};
use hectare_units::InodeNr;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// A kind of volume: name, arguments of mke2fs, size, bytes of a block and of a cluster.
type Form = (&'static str, &'static [&'static str], &'static str, u64, u64);

const FORMS: [Form; 5] = [
    ("1k", &["-t", "ext4", "-b", "1024"], "8M", 1024, 1024),
    ("4k", &["-t", "ext4", "-b", "4096"], "32M", 4096, 4096),
    (
        "bigalloc-1k",
        &["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "8192", "-N", "64"],
        "32M",
        1024,
        8192,
    ),
    (
        "bigalloc",
        &["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "16384", "-N", "64"],
        "64M",
        4096,
        16384,
    ),
    ("ext3-1k", &["-t", "ext3", "-b", "1024"], "8M", 1024, 1024),
];

/// A caller who keeps a file's times owns them: no operation changes them.
#[test]
fn times_change_unless_the_caller_keeps_them() {
    const MODES: [FallocateMode; 7] = [
        FallocateMode::Allocate { keep_size: false },
        FallocateMode::Unshare { keep_size: true },
        FallocateMode::ZeroRange { keep_size: false },
        FallocateMode::ZeroRange { keep_size: true },
        FallocateMode::InsertRange,
        FallocateMode::PunchHole,
        FallocateMode::CollapseRange,
    ];
    let bytes = match format_bytes(FORMS[0].1, FORMS[0].2) {
        Ok(bytes) => bytes,
        Err(reason) => skip!("ranges::times_change_unless_the_caller_keeps_them", reason),
    };
    for data_mode in [DataMode::Ordered, DataMode::Journal] {
        let options = OpenOptions { data_mode: Some(data_mode), ..OpenOptions::default() };
        let held = in_memory_with(&bytes, options).unwrap();
        let [source, file] = ["source", "file"].map(|name| {
            let file = held.volume.create_file(name, Creation::default()).unwrap();
            file.write_all_at(0, &pattern(1, 0, 20_000)).unwrap();
            file
        });
        source.fallocate(FallocateMode::PunchHole, 4096, 4096).unwrap();
        let past = Timestamp::from_seconds(1);
        let stays = |label: &str, keeps: bool, change: &dyn Fn()| {
            file.change(&Changes { mtime: Some(past), ctime: Some(past), ..Changes::default() }).unwrap();
            change();
            let found = file.metadata().unwrap();
            assert_eq!((found.mtime == past, found.ctime == past), (keeps, keeps), "{label} {data_mode:?}");
        };
        for (n, mode) in MODES.into_iter().enumerate() {
            let (label, inside) = (format!("{mode:?}"), n >= 4);
            let at = if inside { 1024 } else { 40_960 + 16_384 * n as u64 };
            stays(&label, true, &|| file.fallocate_keeping_times(mode, at, 8192).unwrap());
            let at = if inside { at } else { at + 8192 };
            stays(&label, false, &|| file.fallocate(mode, at, 8192).unwrap());
        }
        // Ranges that are allocated already, or are a hole already.
        file.fallocate(FallocateMode::Allocate { keep_size: false }, 0, 8192).unwrap();
        for mode in &MODES[..4] {
            stays(&format!("{mode:?} again"), true, &|| {
                file.fallocate_keeping_times(*mode, 0, 4096).unwrap();
            });
            stays(&format!("{mode:?} again"), false, &|| file.fallocate(*mode, 0, 4096).unwrap());
        }
        for _ in 0..2 {
            stays("a hole", false, &|| file.fallocate(FallocateMode::PunchHole, 0, 4096).unwrap());
        }
        // The second grows the file, by a hole and by data.
        for at in [0, 1_000_000] {
            let kept = || source.copy_range_keeping_times(0, &file, at, 12_000).unwrap();
            stays("copy", true, &|| assert_eq!(kept(), 12_000));
            let copied = || source.copy_range(0, &file, at + 12_000, 12_000).unwrap();
            stays("copy", false, &|| assert_eq!(copied(), 12_000));
        }
        drop((source, file));
        close_clean(&held);
    }
}

#[test]
fn a_file_is_what_a_model_of_its_blocks_says() {
    let cases = if long("ranges, 400 cases a form") { 400 } else { 24 };
    for (name, args, size, block, cluster) in FORMS {
        let bytes = match format_bytes(args, size) {
            Ok(bytes) => bytes,
            Err(reason) => skip!("ranges::a_file_is_what_a_model", reason),
        };
        let config = Config { cases, failure_persistence: None, ..Config::default() };
        let policies = 0..Policy::ALL.len();
        let result =
            TestRunner::new(config).run(&(policies, vec(op(block, cluster), 1..60)), |(policy, ops)| {
                let data_mode = (policy % 2 == 0).then_some(DataMode::Journal);
                let options =
                    OpenOptions { policy: Policy::ALL[policy], data_mode, ..OpenOptions::default() };
                let held = in_memory_with(&bytes, options).unwrap();
                let file = held.volume.create_file("file", Creation::default()).unwrap();
                let mut model = Model::new(block, cluster).mapped_by_blocks(name == "ext3-1k");
                for (n, op) in ops.iter().enumerate() {
                    let label = format!("{name}, step {n}, {op:?}");
                    assert_eq!(apply_engine(&file, *op), model.apply(*op), "{label}");
                    model.compare(&file, &label);
                }
                held.volume.check_space().unwrap();
                drop(file);
                close_clean(&held);
                Ok(())
            });
        if let Err(error) = result {
            panic!("{name}: {error}");
        }
    }
}

/// The kernel's map of a file.
fn kernel_blocks(path: &Path) -> Result<Blocks, Skip> {
    let said = tool::run(tool::need("filefrag")?.args(["-s", "-v"]).arg(path)).expect_success();
    let mut blocks = Blocks::new();
    for line in said.stdout.lines() {
        let fields: Vec<&str> = line.split(':').map(str::trim).collect();
        let Some((first, last)) = fields.get(1).and_then(|range| range.split_once("..")) else { continue };
        let state = if line.contains("unwritten") { State::Unwritten } else { State::Written };
        let number = |text: &str| text.trim().parse::<u64>().unwrap();
        blocks.extend((number(first)..=number(last)).map(|n| (n, state)));
    }
    Ok(blocks)
}

/// The kernel may write zeros instead of leaving short extents unwritten; not here.
fn keep_short_extents(mount: &KernelMount) {
    let name = mount.device().file_name().unwrap().to_owned();
    std::fs::write(Path::new("/sys/fs/ext4").join(name).join("extent_max_zeroout_kb"), "0").unwrap();
}

/// A file is punched beyond its size here, but not by the kernel, which stops at the end of a page.
fn inside_size(op: Op, size: u64) -> Option<Op> {
    match op {
        Op::Fallocate { mode: FallocateMode::PunchHole, at, len } if len > 0 => {
            let len = len.min(size.saturating_sub(at));
            (len > 0).then_some(Op::Fallocate { mode: FallocateMode::PunchHole, at, len })
        }
        op => Some(op),
    }
}

/// The same random operations on the engine and on the kernel.
fn beside_the_kernel(form: &Form, folder: &Path, seed: u8) -> Result<(), Skip> {
    let (name, args, size, block, cluster) = *form;
    let [ours, theirs] = ["ours", "theirs"].map(|name| folder.join(name));
    let _ = (std::fs::remove_file(&ours), std::fs::remove_file(&theirs));
    hectare_oracle::mke2fs(args, &theirs, size)?;
    std::fs::copy(&theirs, &ours).unwrap();
    let mount = KernelMount::new(&theirs, "")?;
    keep_short_extents(&mount);
    let path = mount.path().join("file");
    let kernel = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    let volume = open_image(&ours);
    let file = volume.create_file("file", Creation::default()).unwrap();
    let mut model = Model::new(block, cluster).mapped_by_blocks(name == "ext3-1k");
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    for step in 0..150 {
        let op = op(block, cluster).new_tree(&mut runner).unwrap().current();
        let Some(op) = inside_size(op, model.size()) else { continue };
        let label = format!("{name}, seed {seed}, step {step}, {op:?}");
        let expected = model.apply(op);
        assert_eq!(apply_kernel(&kernel, op), expected, "{label}: the kernel");
        assert_eq!(apply_engine(&file, op), expected, "{label}: the engine");
        assert_eq!(kernel.metadata().unwrap().len(), model.size(), "{label}: the kernel's size");
        model.compare(&file, &label);
        if step % 5 == 0 {
            assert_eq!(kernel_blocks(&path)?, model.blocks(), "{label}: the kernel's blocks");
            let sectors = model.blocks().len() as u64 * block / 512;
            // Where all extents fit the inode of both, the format decides how much space that is.
            let all_in_inode = |found: u64| cluster == block && found == sectors;
            if all_in_inode(kernel.metadata().unwrap().blocks()) && file.extents().unwrap().len() <= 4 {
                assert!(all_in_inode(file.metadata().unwrap().sectors), "{label}: sectors");
            }
        }
    }
    drop((file, kernel));
    volume.close().unwrap();
    drop(volume);
    mount.unmount();
    assert_clean(&ours)?;
    for image in [&ours, &theirs] {
        let mount = KernelMount::read_only(image, "")?;
        let file = File::open(mount.path().join("file")).unwrap();
        // Before the content is read: what is in the page cache of an unwritten extent counts as data.
        let places: Vec<u64> = model.seeks().iter().map(|(at, ..)| *at).collect();
        assert_eq!(kernel_seeks(&file, &places), model.seeks(), "{name}: {}", image.display());
        assert_eq!(kernel_blocks(&mount.path().join("file"))?, model.blocks(), "{name}: {}", image.display());
        assert!(std::fs::read(mount.path().join("file")).unwrap() == model.content, "{name}: content");
    }
    Ok(())
}

#[test]
fn the_kernel_does_the_same() {
    let temporary = tempfile::tempdir().unwrap();
    let seeds = if long("ranges beside the kernel, 40 seeds") { 40 } else { 2 };
    let first = (hunt::seed("ranges") % 200) as u8;
    for form in &FORMS {
        for seed in first..first + seeds {
            if let Err(reason) = beside_the_kernel(form, temporary.path(), seed) {
                skip_part!(format!("ranges beside the kernel, {}", form.0), reason);
                break;
            }
        }
    }
}

/// A fragmented file that the kernel made, on a volume of another form: where data is, and what lies where.
fn made_by_the_kernel(name: &str, image: &Path) -> Result<(), Skip> {
    let combo = Combo::named(name);
    combo.mountable()?;
    combo.make(image)?;
    let mount = KernelMount::new(image, "")?;
    let path = mount.path().join("file");
    let kernel = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    let content = pattern(3, 0, 100);
    let places: Vec<u64> = if combo.has("inline_data") { vec![0] } else { vec![0, 5_000, 300_000, 12 << 20] };
    for at in &places {
        kernel.write_all_at(&content, *at).unwrap();
    }
    drop(kernel);
    mount.unmount();
    let mount = KernelMount::read_only(image, "")?;
    let path = mount.path().join("file");
    let kernel = File::open(&path).unwrap();
    let asked: Vec<u64> = (0..300).map(|n| n * 50_021).filter(|at| *at < 12 << 20).collect();
    let answers = kernel_seeks(&kernel, &asked);
    let blocks = kernel_blocks(&path)?;
    drop(kernel);
    mount.unmount();
    let volume = open_read_only(image);
    let file = volume.open_file("file").unwrap();
    for (at, data, hole) in answers {
        assert_eq!((file.seek_data(at).unwrap(), file.seek_hole(at).unwrap()), (data, hole), "{name}: {at}");
    }
    let extents = file.extents_in(0..u64::MAX).unwrap();
    let bytes = std::fs::read(image).unwrap();
    let place = usize::try_from(extents[0].place.get()).unwrap();
    assert_eq!(bytes[place..place + 60], content[..60], "{name}: it lies where it is reported");
    if combo.has("inline_data") {
        let flags = ExtentFlags::LAST | ExtentFlags::DATA_INLINE | ExtentFlags::NOT_ALIGNED;
        assert_eq!((extents.len(), extents[0].len.get(), extents[0].flags), (1, 100, flags));
        assert!(file.extents_in(100..200).unwrap().is_empty());
        return Ok(());
    }
    let block = u64::from(combo.block_size);
    let found: Vec<u64> =
        extents.iter().flat_map(|e| (0..e.len.get() / block).map(|n| e.at.get() / block + n)).collect();
    assert_eq!(found, blocks.into_keys().collect::<Vec<u64>>(), "{name}");
    assert!(extents.iter().all(|extent| extent.flags.contains(ExtentFlags::MERGED)), "{name}");
    Ok(())
}

#[test]
fn files_without_extents_are_told_like_those_with() {
    let temporary = tempfile::tempdir().unwrap();
    for name in ["inline-data", "ext3-1k", "no-extents"] {
        if let Err(reason) = made_by_the_kernel(name, &temporary.path().join(name)) {
            skip_part!(format!("ranges, {name}"), reason);
        }
    }
}

/// A file in which every second block is written, in extents of one block.
fn comb(file: &OpenFile, blocks: u64, block: u64) -> Vec<u8> {
    file.allocate(0, blocks * block, false).unwrap();
    let mut content = vec![0; usize::try_from(blocks * block).unwrap()];
    for n in (0..blocks).step_by(2) {
        let data = pattern(n, n * block, usize::try_from(block).unwrap());
        file.write_all_at(n * block, &data).unwrap();
        let at = usize::try_from(n * block).unwrap();
        content[at..at + data.len()].copy_from_slice(&data);
    }
    content
}

#[track_caller]
fn assert_content(file: &OpenFile, content: &[u8], what: &str) {
    let mut read = vec![0xaa; content.len() + 1];
    assert_eq!(file.read_at(0, &mut read).unwrap(), content.len(), "{what}");
    assert!(read[..content.len()] == *content, "{what}");
}

/// Fails unless e2fsck finds the bytes in order; only this inode's tree need not be narrow.
#[track_caller]
fn assert_sound(bytes: &[u8], nr: InodeNr) {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    save(bytes, &image);
    hectare_oracle::assert_clean_but_wide(&image, |inode| inode == u64::from(nr.get())).unwrap();
}

#[test]
fn what_takes_many_transactions_is_done_whole() {
    let args = ["-t", "ext4", "-b", "1024", "-O", "^has_journal"];
    let held = match format_bytes(&args, "32M") {
        Ok(bytes) => in_memory(&bytes),
        Err(reason) => skip!("ranges::what_takes_many_transactions", reason),
    };
    let file = held.volume.create_file("file", Creation::default()).unwrap();
    let mut content = comb(&file, 12_000, 1024);
    let kib = |n: usize| n << 10;
    file.fallocate(FallocateMode::CollapseRange, kib(7) as u64, kib(1000) as u64).unwrap();
    content.drain(kib(7)..kib(1007));
    assert_content(&file, &content, "collapsed");
    file.fallocate(FallocateMode::InsertRange, kib(5) as u64, kib(31) as u64).unwrap();
    content.splice(kib(5)..kib(5), vec![0; kib(31)]);
    assert_content(&file, &content, "inserted");
    file.fallocate(FallocateMode::ZeroRange { keep_size: false }, 3333, kib(2000) as u64).unwrap();
    content[3333..3333 + kib(2000)].fill(0);
    assert_content(&file, &content, "zeroed");
    let before = file.metadata().unwrap().sectors;
    file.fallocate(FallocateMode::PunchHole, kib(100) as u64 + 1, kib(9000) as u64).unwrap();
    content[kib(100) + 1..kib(9100) + 1].fill(0);
    assert_content(&file, &content, "punched");
    assert!(file.metadata().unwrap().sectors + 8999 * 2 <= before);
    held.volume.check_space().unwrap();
    let nr = file.inode();
    drop(file);
    held.volume.close().unwrap();
    assert_sound(&held.device.to_vec(), nr);
}

#[test]
fn what_makes_no_sense_is_refused_as_the_kernel_does() {
    let held = match format_bytes(&["-t", "ext4", "-b", "1024"], "8M") {
        Ok(bytes) => in_memory(&bytes),
        Err(reason) => skip!("ranges::what_makes_no_sense", reason),
    };
    use FallocateMode as M;
    let file = held.volume.create_file("file", Creation::default()).unwrap();
    file.write_all_at(0, &[7; 9000]).unwrap();
    let before = file.extents().unwrap();
    let cases = [
        (M::PunchHole, 0, 0, 22),
        (M::CollapseRange, 8192, 1024, 22),
        (M::CollapseRange, 1000, 1024, 22),
        (M::CollapseRange, 0, 1000, 22),
        (M::CollapseRange, 1024, 9 << 10, 22),
        (M::InsertRange, 9 << 10, 1024, 22),
        (M::InsertRange, 1024, 1000, 22),
        (M::InsertRange, 0, 1 << 52, 27),
        (M::InsertRange, 0, 1 << 42, 27),
        (M::InsertRange, 1024, (1 << 42) - (9 << 10), 27),
        (M::PunchHole, u64::MAX - 5, 10, 27),
        (M::ZeroRange { keep_size: false }, 1 << 42, 10, 27),
    ];
    for (mode, at, len, errno) in cases {
        let error = file.fallocate(mode, at, len).unwrap_err();
        assert_eq!(error.errno(), errno, "{mode:?} at {at}, {len} bytes: {error}");
    }
    assert_eq!((file.extents().unwrap(), file.metadata().unwrap().size), (before, 9000));
    // Space beyond the size that can't be moved further.
    file.allocate((1 << 42) - (9 << 10), 1024, true).unwrap();
    assert_eq!(file.fallocate(M::InsertRange, 0, 8 << 10).unwrap_err().errno(), 22);
    assert_eq!(file.metadata().unwrap().size, 9000);
    file.fallocate(M::InsertRange, 0, 7 << 10).unwrap();
    let last = file.extents_in(0..u64::MAX).unwrap().pop().unwrap();
    assert_eq!(
        (last.at.get(), last.flags),
        ((1 << 42) - (2 << 10), ExtentFlags::LAST | ExtentFlags::UNWRITTEN)
    );
    drop(file);
    close_clean(&held);
}

#[test]
fn a_full_volume_can_still_be_zeroed() {
    let args = ["-t", "ext4", "-b", "1024", "-m", "0", "-O", "^has_journal"];
    let held = match format_bytes(&args, "8M") {
        Ok(bytes) => in_memory(&bytes),
        Err(reason) => skip!("ranges::a_full_volume", reason),
    };
    let file = held.volume.create_file("file", Creation::default()).unwrap();
    let mut content = pattern(1, 0, 300 << 10);
    file.write_all_at(0, &content).unwrap();
    let rest = held.volume.create_file("rest", Creation::default()).unwrap();
    assert!(rest.allocate(0, 64 << 20, true).is_err());
    for n in 0..60 {
        let (at, len) = (n * 5000 + 700, 2500);
        file.fallocate(FallocateMode::ZeroRange { keep_size: true }, at as u64, len as u64).unwrap();
        content[at..at + len].fill(0);
        assert_content(&file, &content, &format!("step {n}"));
    }
    drop((file, rest));
    close_clean(&held);
}
