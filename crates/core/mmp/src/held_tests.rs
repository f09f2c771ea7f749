//! Volumes whose mark is held while they are changed, with e2fsprogs and ourselves as other hosts. The waits
//! pass on a fast clock; by the real one the engine waits for the kernel (`engine mmp`).

use crate::{Error, Options, enter, hold, hold_to_repair, refuse_living};
use hectare_device::{Clock, Device, FileOptions, MemoryDevice};
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::mmp::{Mmp, Status};
use hectare_ext4::superblock::{SIZE, SuperBlock};
use hectare_oracle::tool::{need, run};
use hectare_oracle::{Skip, dumpe2fs_superblock, mke2fs, scratch, skip, until};
use hectare_units::{BlockNr, Bytes, GroupNr};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const CLOCK: Clock = Clock::fast(10);

/// Waits for a volume that may be in use.
fn patient() -> Options {
    Options { clock: CLOCK, ..Options::default() }
}

/// Refuses it.
fn at_once() -> Options {
    Options { waits: false, ..patient() }
}

/// A volume that has the protection, with blocks of 1 KiB.
fn protected() -> Result<Arc<MemoryDevice>, Skip> {
    protected_with("mmp")
}

/// One with these features.
fn protected_with(features: &str) -> Result<Arc<MemoryDevice>, Skip> {
    let image = scratch::fresh("mmp");
    mke2fs(&["-t", "ext4", "-b", "1024", "-O", features, "-E", "mmp_update_interval=1"], &image, "16M")?;
    let bytes = fs::read(&image).unwrap();
    fs::remove_file(image).unwrap();
    Ok(Arc::new(MemoryDevice::from_bytes(&bytes)))
}

fn superblock(device: &dyn Device) -> SuperBlock {
    let mut bytes = [0; SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).unwrap();
    SuperBlock::parse(&bytes, device.len()).unwrap()
}

fn mark(device: &dyn Device, sb: &SuperBlock, block: BlockNr) -> Mmp {
    let mut bytes = [0; 1024];
    device.read_at(block.offset(sb.geometry().block_size), &mut bytes).unwrap();
    Mmp::parse(&bytes, block, sb.seed()).unwrap()
}

/// The superblock with its protection in another block.
fn moved(sb: &SuperBlock, to: BlockNr) -> SuperBlock {
    let mut raw = *sb.raw();
    raw.s_mmp_block = to.get().into();
    SuperBlock::from_raw(raw).unwrap()
}

fn is_in_use(mmp: &Mmp) -> bool {
    matches!(mmp.status, Status::InUse { .. })
}

#[test]
fn the_program_finds_it_clean_and_others_find_it_in_use() {
    let disk = match protected() {
        Ok(disk) => disk,
        Err(reason) => skip!("the_program_finds_it_clean_and_others_find_it_in_use", reason),
    };
    let inner: Arc<dyn Device> = Arc::<MemoryDevice>::clone(&disk);
    let sb = superblock(&*disk);
    let (old, new) = (BlockNr::new(sb.raw().s_mmp_block.get()), BlockNr::new(12_000));
    let (held, hold_) = hold(&inner, &patient()).unwrap();
    assert_eq!(mark(&*held, &sb, old).status, Status::Clean);
    let first = mark(&*disk, &sb, old);
    assert!(is_in_use(&first));
    until(|| mark(&*disk, &sb, old).status != first.status);
    assert_eq!(mark(&*held, &sb, old).status, Status::Clean);

    // The program moves the block, as a resize does, and uses the old one otherwise.
    let mut block = [0; 1024];
    held.read_at(old.offset(sb.geometry().block_size), &mut block).unwrap();
    held.write_at(new.offset(sb.geometry().block_size), &block).unwrap();
    held.write_at(SUPERBLOCK_OFFSET, &moved(&sb, new).render(GroupNr::new(0))).unwrap();
    held.write_at(old.offset(sb.geometry().block_size), &[7; 1024]).unwrap();
    let first = mark(&*disk, &sb, new);
    assert!(is_in_use(&first));
    until(|| mark(&*disk, &sb, new).status != first.status);
    assert_eq!(mark(&*held, &sb, new).status, Status::Clean);
    disk.read_at(old.offset(sb.geometry().block_size), &mut block).unwrap();
    assert!(block == [7; 1024], "the old block is left alone");
    drop(held);
    hold_.release().unwrap();
    assert_eq!(mark(&*disk, &sb, new).status, Status::Clean);
}

/// What was written into the block before the superblock said that it is no longer the mark's was lost: a quota
/// file that took it began with our mark.
#[test]
fn regression_a_block_used_before_the_superblock_says_so_keeps_its_content() {
    let disk = match protected() {
        Ok(disk) => disk,
        Err(reason) => skip!("a_block_used_before_the_superblock_says_so", reason),
    };
    let inner: Arc<dyn Device> = Arc::<MemoryDevice>::clone(&disk);
    let sb = superblock(&*disk);
    let old = BlockNr::new(sb.raw().s_mmp_block.get()).offset(sb.geometry().block_size);
    let is_used = |device: &dyn Device| {
        let mut block = [0; 1024];
        device.read_at(old, &mut block).unwrap();
        block == [7; 1024]
    };
    let (held, hold_) = hold(&inner, &patient()).unwrap();
    held.write_at(old, &[7; 1024]).unwrap();
    held.write_at(SUPERBLOCK_OFFSET, &moved(&sb, BlockNr::new(12_000)).render(GroupNr::new(0))).unwrap();
    assert!(is_used(&*disk) && is_used(&*held));
    drop(held);
    hold_.release().unwrap();
    assert!(is_used(&*disk));
}

#[test]
fn another_hosts_mark_ends_all_changes() {
    let disk = match protected() {
        Ok(disk) => disk,
        Err(reason) => skip!("another_hosts_mark_ends_all_changes", reason),
    };
    let inner: Arc<dyn Device> = Arc::<MemoryDevice>::clone(&disk);
    let sb = superblock(&*disk);
    let block = BlockNr::new(sb.raw().s_mmp_block.get());
    let slower = Clock::fast(5);
    let (held, hold_) = hold(&inner, &Options { clock: slower, ..patient() }).unwrap();
    let status = Status::InUse { node: "elsewhere".into(), device: "sdz".into(), sequence: 5 };
    let other = Mmp { status, time: 1_800_000_000, check_interval: 5 };
    disk.write_at(block.offset(sb.geometry().block_size), &other.render(sb.seed())).unwrap();
    // The thread sees it at the next renewal, long before a write would have to look.
    slower.sleep(Duration::from_millis(2500));
    let refusal = held.write_at(Bytes::new(4096), b"x").unwrap_err().to_string();
    assert!(refusal.contains("another host"), "{refusal}");
    let Err(Error::InUse(text)) = hold_.release() else { panic!("it is the other host's") };
    assert!(text.contains("host elsewhere"), "{text}");
    assert_eq!(mark(&*disk, &sb, block), other);
}

#[test]
fn e2fsprogs_see_that_a_volume_is_held() {
    const NAME: &str = "e2fsprogs_see_that_a_volume_is_held";
    let (disk, mut tune2fs) = match (protected(), need("tune2fs")) {
        (Ok(disk), Ok(tune2fs)) => (disk, tune2fs),
        (Err(reason), _) | (_, Err(reason)) => skip!(NAME, reason),
    };
    let image = scratch::fresh("held");
    fs::write(&image, disk.to_vec()).unwrap();
    let file: Arc<dyn Device> =
        Arc::new(FileOptions::new().write(true).exclusive(false).open(&image).unwrap());
    let (held, hold_) = hold(&file, &patient()).unwrap();
    let said = run(tune2fs.args(["-L", "x"]).arg(&image));
    assert!(!said.succeeded() && said.report().contains("MMP"), "{}", said.report());
    drop(held);
    hold_.release().unwrap();
    hectare_oracle::assert_clean(&image).unwrap();
    let after = dumpe2fs_superblock(&image).unwrap();
    assert_eq!(after.field("Filesystem volume name"), "<none>");
    fs::remove_file(image).unwrap();
}

/// How long a user of the volume may take to renew its mark.
const WATCHED: Duration = Duration::from_secs(11);

/// Another host that renews its mark until it is stopped.
fn while_used<T>(disk: &MemoryDevice, sb: &SuperBlock, act: impl FnOnce() -> T) -> T {
    let (stop, at) = (AtomicBool::new(false), place(sb).offset(sb.geometry().block_size));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for sequence in 1.. {
                let status = Status::InUse { node: "elsewhere".into(), device: "sdz".into(), sequence };
                let mmp = Mmp { status, time: 1_800_000_000, check_interval: 5 };
                disk.write_at(at, &mmp.render(sb.seed())).unwrap();
                CLOCK.sleep(Duration::from_millis(200));
                if stop.load(Ordering::SeqCst) {
                    return;
                }
            }
        });
        CLOCK.sleep(Duration::from_millis(300));
        // A test that fails ends the thread, too.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
        stop.store(true, Ordering::SeqCst);
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn place(sb: &SuperBlock) -> BlockNr {
    BlockNr::new(sb.raw().s_mmp_block.get())
}

fn block_at(device: &dyn Device, sb: &SuperBlock) -> Vec<u8> {
    let mut bytes = vec![0; 1024];
    device.read_at(place(sb).offset(sb.geometry().block_size), &mut bytes).unwrap();
    bytes
}

#[track_caller]
fn in_use<T>(result: Result<T, Error>, words: &str) {
    match result {
        Err(Error::InUse(text)) => assert!(text.contains(words) && !text.contains('\n'), "{text}"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it is in use"),
    }
}

#[test]
fn a_repair_holds_the_volume_and_leaves_the_block_to_the_byte() {
    let disk = match protected_with("mmp,^metadata_csum") {
        Ok(disk) => disk,
        Err(reason) => skip!("a_repair_holds_the_volume", reason),
    };
    let (sb, inner) = (superblock(&*disk), Arc::<MemoryDevice>::clone(&disk) as Arc<dyn Device>);
    // As the kernel leaves it: clean, and with names.
    let mut left = block_at(&*disk, &sb);
    left[16..20].copy_from_slice(b"node");
    disk.write_at(place(&sb).offset(sb.geometry().block_size), &left).unwrap();
    let (held, hold_) = hold_to_repair(&inner, &sb, &patient(), false).unwrap();
    assert!(hold_.why_unmarked().is_none() && block_at(&*held, &sb) == left);
    assert!(is_in_use(&mark(&*disk, &sb, place(&sb))));
    in_use(enter(&inner, &sb, &at_once()).map(drop), "in use by host");
    in_use(hold_to_repair(&inner, &sb, &at_once(), false), "--takeover");
    in_use(refuse_living(&*inner, &at_once()), "in use by host");
    drop(held);
    hold_.release().unwrap();
    assert!(block_at(&*disk, &sb) == left, "nothing was repaired");

    // A program that puts a damaged block back, as an undo does.
    let (held, hold_) = hold_to_repair(&inner, &sb, &patient(), false).unwrap();
    held.write_at(place(&sb).offset(sb.geometry().block_size), &[9; 1024]).unwrap();
    assert!(is_in_use(&mark(&*disk, &sb, place(&sb))));
    drop(held);
    hold_.release().unwrap();
    assert!(block_at(&*disk, &sb) == [9; 1024]);
}

#[test]
fn a_living_host_keeps_a_volume_from_repairs_and_formats() {
    let disk = match protected() {
        Ok(disk) => disk,
        Err(reason) => skip!("a_living_host_keeps_a_volume", reason),
    };
    let (sb, inner) = (superblock(&*disk), Arc::<MemoryDevice>::clone(&disk) as Arc<dyn Device>);
    while_used(&disk, &sb, || {
        std::thread::scope(|scope| {
            scope.spawn(|| in_use(hold_to_repair(&inner, &sb, &patient(), false), "host elsewhere"));
            scope.spawn(|| in_use(refuse_living(&*inner, &patient()), "host elsewhere"));
        });
    });
    // It has crashed.
    let began = CLOCK.now();
    refuse_living(&*inner, &patient()).unwrap();
    assert!((CLOCK.now() - began) >= WATCHED);
    // That is known.
    let began = CLOCK.now();
    let (held, hold_) = hold_to_repair(&inner, &sb, &patient(), true).unwrap();
    assert!((CLOCK.now() - began) < WATCHED);
    assert_eq!(mark(&*held, &sb, place(&sb)).status, Status::Clean);
    drop(held);
    hold_.release().unwrap();
    assert_eq!(mark(&*disk, &sb, place(&sb)).status, Status::Clean);
}

#[test]
fn a_damaged_block_is_watched_and_gets_no_mark() {
    let disk = match protected() {
        Ok(disk) => disk,
        Err(reason) => skip!("a_damaged_block_is_watched", reason),
    };
    let (sb, inner) = (superblock(&*disk), Arc::<MemoryDevice>::clone(&disk) as Arc<dyn Device>);
    let at = place(&sb).offset(sb.geometry().block_size);
    disk.write_at(at, &[9; 1024]).unwrap();
    in_use(hold_to_repair(&inner, &sb, &at_once(), false), "--takeover");
    let began = CLOCK.now();
    let (held, hold_) = hold_to_repair(&inner, &sb, &patient(), false).unwrap();
    assert!((CLOCK.now() - began) >= WATCHED);
    assert!(hold_.why_unmarked().unwrap().contains("magic number"));
    hold_.check().unwrap();
    assert!(block_at(&*disk, &sb) == [9; 1024] && block_at(&*held, &sb) == [9; 1024]);
    // Its user writes it anew after all.
    disk.write_at(at, &[8; 1024]).unwrap();
    in_use(hold_.check(), "another host");
    hold_.release().unwrap();
    // A user that lives does so in time.
    std::thread::scope(|scope| {
        let repair = scope.spawn(|| hold_to_repair(&inner, &sb, &patient(), false).map(drop));
        CLOCK.sleep(Duration::from_secs(2));
        while_used(&disk, &sb, || in_use(repair.join().unwrap(), "another host"));
    });
    // A block that can't be there is no reason to wait.
    let began = CLOCK.now();
    let (_, hold_) = hold_to_repair(&inner, &moved(&sb, BlockNr::new(1 << 40)), &at_once(), false).unwrap();
    assert!((CLOCK.now() - began) < WATCHED && hold_.why_unmarked().unwrap().contains("can't be"));
}
