//! Damages volumes at random.

use crate::seal;
use hectare_units::random::SplitMix64 as Random;

const BLOCK: usize = 1024;
/// Bytes of an inode's slot that are changed: its fields and its map.
const SLOT: usize = 160;

/// Damages an image, and says how.
pub(crate) fn damage(bytes: &mut Vec<u8>, random: &mut Random) -> String {
    // Most of an image is file data; what is damaged shall be something else.
    let blocks = used_blocks(bytes);
    let early = &blocks[..blocks.len() / 3];
    let place = |random: &mut Random| {
        let list = if random.below(4) == 0 { &blocks[..] } else { early };
        list[random.index_below(list.len())]
    };
    match random.below(6) {
        0 | 1 => {
            let count = 1 + random.below(100);
            for _ in 0..count {
                let at = place(random) * BLOCK + random.index_below(BLOCK);
                bytes[at] = byte(random);
            }
            format!("{count} bytes")
        }
        2 => {
            let count = 1 + random.below(10);
            for _ in 0..count {
                let at = place(random) * BLOCK;
                bytes[at..at + BLOCK].fill_with(|| byte(random));
            }
            format!("{count} blocks")
        }
        3 => {
            let (a, b) = (place(random), place(random));
            for i in 0..BLOCK {
                bytes.swap(a * BLOCK + i, b * BLOCK + i);
            }
            format!("blocks {a} and {b} swapped")
        }
        4 => {
            let (at, len) = (place(random), 1 + random.index_below(40));
            let end = ((at + len) * BLOCK).min(bytes.len());
            bytes[at * BLOCK..end].fill(0);
            format!("{len} blocks from {at} zeroed")
        }
        _ => {
            let end = bytes.len() / 2 + random.index_below(bytes.len() / 2);
            bytes.truncate(end / BLOCK * BLOCK);
            format!("cut to {}", bytes.len())
        }
    }
}

/// The blocks that hold something, in order.
fn used_blocks(bytes: &[u8]) -> Vec<usize> {
    let used = |at: &usize| bytes[at * BLOCK..(at + 1) * BLOCK].iter().any(|byte| *byte != 0);
    (0..bytes.len() / BLOCK).filter(used).collect()
}

/// Damages an image and makes its checksums right, so that only what the structures say can be wrong.
pub(crate) fn sealed_damage(bytes: &mut Vec<u8>, random: &mut Random) -> String {
    let how = if random.below(2) == 0 { damage_inodes(bytes, random) } else { damage(bytes, random) };
    seal::seal(bytes);
    format!("{how}, sealed")
}

/// Changes some bytes of some inodes in use: at random, by a bit, or to an end of what they can be.
fn damage_inodes(bytes: &mut [u8], random: &mut Random) -> String {
    let slots = seal::inodes(bytes);
    if slots.is_empty() {
        return "nothing".to_owned();
    }
    let count = 1 + random.below(8);
    for _ in 0..count {
        let at = slots[random.index_below(slots.len())] + random.index_below(SLOT);
        let Some(old) = bytes.get(at).copied() else { continue };
        bytes[at] = changed(old, random);
    }
    format!("{count} bytes of inodes")
}

/// Changes some bytes, words and blocks of an image, most of them among the first that hold something. Without
/// checksums each change is one that a repair has to judge.
pub(crate) fn sprinkled_damage(bytes: &mut [u8], random: &mut Random) -> String {
    let blocks = used_blocks(bytes);
    let early = &blocks[..blocks.len().min(40.max(blocks.len() / 2))];
    let count = [1, 2, 4, 8, 16, 40][random.index_below(6)];
    for _ in 0..count {
        let at = early[random.index_below(early.len())] * BLOCK;
        match random.below(10) {
            0 => bytes[at..at + BLOCK].fill(0),
            1 => {
                let from = blocks[random.index_below(blocks.len())] * BLOCK;
                bytes.copy_within(from..from + BLOCK, at);
            }
            2 | 3 => {
                let word = at + 4 * random.index_below(BLOCK / 4);
                bytes[word..word + 4].copy_from_slice(&extreme(random).to_le_bytes());
            }
            _ => {
                let set: Vec<usize> = (at..at + BLOCK).filter(|at| bytes[*at] != 0).collect();
                let anywhere = set.is_empty() || random.below(5) == 0;
                let at = if anywhere {
                    at + random.index_below(BLOCK)
                } else {
                    set[random.index_below(set.len())]
                };
                bytes[at] = changed(bytes[at], random);
            }
        }
    }
    format!("{count} places")
}

/// A number that is likely to be too small or too large.
fn extreme(random: &mut Random) -> u32 {
    let any = u32::try_from(random.below(1 << 32)).unwrap();
    [0, 1, 2, u32::MAX, i32::MAX.cast_unsigned(), any & 0xffff, any][random.index_below(7)]
}

/// Another value of a byte: an end of its range, with one bit changed, or any.
fn changed(old: u8, random: &mut Random) -> u8 {
    match random.below(4) {
        0 => 0,
        1 => 0xff,
        2 => old ^ 1 << random.below(8),
        _ => byte(random),
    }
}

fn byte(random: &mut Random) -> u8 {
    u8::try_from(random.below(256)).unwrap()
}
