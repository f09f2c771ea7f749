//! Crashes between two transactions: commits after every step, and checks the bytes.

use super::FallocateMode;
use crate::data::sync;
use crate::state::Core;
use crate::{Creation, OpenFile, OpenOptions, Volume};
use hectare_device::{Device, MemoryDevice};
use hectare_ext4::superblock::{STATE_VALID, SuperBlock};
use hectare_units::{Bytes, GroupNr, u64_of, usize_of};
use std::cell::RefCell;
use std::sync::Arc;

type Hook = Box<dyn FnMut(&Core)>;

thread_local! {
    static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

/// Called when a step's transaction may commit.
pub(super) fn after_step(core: &Core) {
    HOOK.with_borrow_mut(|hook| {
        if let Some(hook) = hook {
            hook(core);
        }
    });
}

const BLOCK: usize = 1024;
const BLOCKS: usize = 6000;

/// The bytes of block `n` of the file at first.
fn block(n: usize) -> Vec<u8> {
    let tag = u32::try_from(n + 1).unwrap().to_le_bytes();
    tag.into_iter().cycle().take(BLOCK).collect()
}

/// A file in which every second block is written, in extents of one block: many leaves.
fn comb(file: &OpenFile) {
    file.allocate(0, u64_of(BLOCKS * BLOCK), false).unwrap();
    for n in (0..BLOCKS).step_by(2) {
        file.write_all_at(u64_of(n * BLOCK), &block(n)).unwrap();
    }
}

/// What is in the file, block by block: the number it had at first, or `None` for zeros.
fn numbers(bytes: &[u8]) -> Vec<Option<usize>> {
    let number = |chunk: &[u8]| {
        let tag = u32::from_le_bytes(chunk[..4].try_into().unwrap());
        let n = usize_of(tag).checked_sub(1);
        assert!(chunk.iter().zip(n.map_or(vec![0; BLOCK], block)).all(|(a, b)| *a == b), "foreign bytes");
        n
    };
    bytes.chunks(BLOCK).map(number).collect()
}

/// Runs `mode` with a snapshot after every step; returns what the file held after each, by block.
fn steps(mode: FallocateMode, at: usize, len: usize) -> Option<Vec<Vec<Option<usize>>>> {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let args = ["-t", "ext4", "-b", "1024", "-O", "^has_journal"];
    if let Err(reason) = hectare_oracle::mke2fs(&args, &image, "24M") {
        hectare_oracle::skip_part!(format!("fallocate, steps of {mode:?}"), reason);
        return None;
    }
    let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(&image).unwrap()));
    let volume = Volume::open(Arc::clone(&device) as Arc<dyn Device>, OpenOptions::default()).unwrap();
    let file = volume.create_file("file", Creation::default()).unwrap();
    comb(&file);
    let nr = u64::from(file.inode().get());
    let seen = std::rc::Rc::new(RefCell::new(Vec::new()));
    let hook = {
        let seen = std::rc::Rc::clone(&seen);
        move |core: &Core| {
            sync::settle(core).unwrap();
            let bytes = closed(device.to_vec());
            std::fs::write(&image, &bytes).unwrap();
            hectare_oracle::assert_clean_but_wide(&image, |inode| inode == nr).unwrap();
            seen.borrow_mut().push(content(&bytes));
        }
    };
    HOOK.set(Some(Box::new(hook)));
    file.fallocate(mode, u64_of(at * BLOCK), u64_of(len * BLOCK)).unwrap();
    HOOK.set(None);
    let seen = seen.take();
    assert!(seen.len() > 2, "{mode:?}: one step shows nothing between");
    Some(seen)
}

/// The bytes of a volume as if it had been closed.
fn closed(mut image: Vec<u8>) -> Vec<u8> {
    let len = Bytes::of(image.len());
    let mut sb = SuperBlock::parse(image[1024..2048].try_into().unwrap(), len).unwrap();
    sb.set_state(STATE_VALID);
    image[1024..2048].copy_from_slice(&sb.render(GroupNr::new(0)));
    image
}

fn content(bytes: &[u8]) -> Vec<Option<usize>> {
    let device = Arc::new(MemoryDevice::from_bytes(bytes));
    let volume = Volume::open(device, OpenOptions::read_only()).unwrap();
    let file = volume.open_file("file").unwrap();
    let mut read = vec![0xaa; usize::try_from(file.metadata().unwrap().size).unwrap()];
    assert_eq!(file.read_at(0, &mut read).unwrap(), read.len());
    numbers(&read)
}

fn before() -> Vec<Option<usize>> {
    (0..BLOCKS).map(|n| n.is_multiple_of(2).then_some(n)).collect()
}

/// The written blocks only, whose order must stay.
fn written(content: &[Option<usize>]) -> Vec<usize> {
    content.iter().copied().flatten().collect()
}

#[test]
fn a_collapse_moves_part_after_part() {
    let (at, len) = (100, 41);
    let Some(steps) = steps(FallocateMode::CollapseRange, at, len) else { return };
    let mut after = before();
    after.drain(at..at + len);
    let kept = written(&after);
    for step in &steps {
        let mut found = written(step);
        assert_eq!(step[..at], after[..at]);
        found.retain(|n| !(at..at + len).contains(n));
        assert_eq!(found, kept, "all that follows is there, in order");
        assert!(step.len() == BLOCKS || *step == after);
    }
    assert_eq!(steps.last(), Some(&after));
}

#[test]
fn an_insertion_moves_part_after_part() {
    let (at, len) = (100, 77);
    let Some(steps) = steps(FallocateMode::InsertRange, at, len) else { return };
    let mut after = before();
    after.splice(at..at, vec![None; len]);
    for step in &steps {
        assert_eq!(step.len(), BLOCKS + len, "the file is longer from the first step on");
        assert_eq!(step[..at], after[..at]);
        assert_eq!(written(step), written(&after), "all that follows is there, in order");
    }
    assert_eq!(steps.last(), Some(&after));
}

#[test]
fn punching_and_zeroing_go_step_by_step() {
    for (mode, at, len) in
        [(FallocateMode::PunchHole, 1000, 101), (FallocateMode::ZeroRange { keep_size: true }, 1000, 51)]
    {
        let Some(steps) = steps(mode, at, len) else { return };
        let mut after = before();
        after[at..at + len].fill(None);
        for step in &steps {
            assert_eq!((&step[..at], &step[at + len..]), (&after[..at], &after[at + len..]));
            let mut found = written(&step[at..at + len]);
            found.retain(|n| !(at..at + len).contains(n));
            assert!(found.is_empty(), "{mode:?}: {found:?} are not of this range");
        }
        assert_eq!(steps.last(), Some(&after));
    }
}

#[test]
fn flags_are_those_of_the_system() {
    use rustix::fs::FallocateFlags as F;
    let mode = |flags: F| FallocateMode::from_flags(flags.bits());
    let keep = F::KEEP_SIZE;
    assert_eq!(mode(F::empty()).unwrap(), FallocateMode::Allocate { keep_size: false });
    assert_eq!(mode(keep).unwrap(), FallocateMode::Allocate { keep_size: true });
    assert_eq!(mode(keep | F::PUNCH_HOLE).unwrap(), FallocateMode::PunchHole);
    assert_eq!(mode(F::ZERO_RANGE).unwrap(), FallocateMode::ZeroRange { keep_size: false });
    assert_eq!(mode(keep | F::ZERO_RANGE).unwrap(), FallocateMode::ZeroRange { keep_size: true });
    assert_eq!(mode(F::COLLAPSE_RANGE).unwrap(), FallocateMode::CollapseRange);
    assert_eq!(mode(F::INSERT_RANGE).unwrap(), FallocateMode::InsertRange);
    assert_eq!(mode(F::UNSHARE_RANGE).unwrap(), FallocateMode::Unshare { keep_size: false });
    for flags in [F::PUNCH_HOLE, keep | F::COLLAPSE_RANGE, keep | F::INSERT_RANGE] {
        assert_eq!(mode(flags).unwrap_err().errno(), 95, "{flags:?}");
    }
    assert_eq!(FallocateMode::from_flags(1 << 31).unwrap_err().errno(), 95);
}
