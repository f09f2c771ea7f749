//! Damages volumes at random.

use crate::seal;
use hectare_units::random::SplitMix64 as Random;

const BLOCK: usize = 1024;
/// Bytes of an inode's slot that are changed: its fields and its map.
const SLOT: usize = 160;

/// Damages an image, and says how.
pub(crate) fn damage(bytes: &mut Vec<u8>, random: &mut Random) -> String {
    // Most of an image is file data; what is damaged shall be something else.
    let blocks: Vec<usize> = (0..bytes.len() / BLOCK)
        .filter(|at| bytes[at * BLOCK..(at + 1) * BLOCK].iter().any(|byte| *byte != 0))
        .collect();
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
        bytes[at] = match random.below(4) {
            0 => 0,
            1 => 0xff,
            2 => old ^ 1 << random.below(8),
            _ => byte(random),
        };
    }
    format!("{count} bytes of inodes")
}

fn byte(random: &mut Random) -> u8 {
    u8::try_from(random.below(256)).unwrap()
}
