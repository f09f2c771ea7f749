//! Changes to a volume, decoded from an input.
//!
//! A change names one of the volume's used units and a place in it, so that almost every input hits metadata.
//! The values written are such that formats trip over: limits, small numbers, neighbours of what was there,
//! other structures' bytes.

use crate::bases::{self, Base, UNIT};
use crate::input::Input;
use crate::repair;

/// Values that lie at the edge of something.
pub(crate) const EDGES: [u32; 24] = [
    0,
    1,
    2,
    3,
    7,
    8,
    11,
    12,
    60,
    64,
    127,
    128,
    255,
    256,
    1023,
    1024,
    0x7fff,
    0x8000,
    0xffff,
    0x1_0000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fffe,
    0xffff_ffff,
];
const CHANGES_MAX: u8 = 40;
/// Kinds of change from here on toggle an inode's flag.
const TOGGLES_FROM: u8 = 252;
/// Where an inode has its flags.
const FLAGS_AT: usize = 0x20;
/// Where it has its map, or what is inside it.
const MAP_AT: usize = 0x28;
/// Where it has attributes, usually.
const BODY_AT: usize = 0xa0;
/// Where it has its mode, size, links, sectors, flags, attribute block, upper size, and the length of its fields.
const FIELDS: [usize; 8] = [0, 4, 0x1a, 0x1c, FLAGS_AT, 0x68, 0x6c, 0x80];

/// A volume changed as an input says, and what of the input is left.
pub struct Patched<'a> {
    /// The base it was.
    pub base: &'static Base,
    /// Its bytes now.
    pub image: Vec<u8>,
    /// Whether nothing was changed.
    pub intact: bool,
    /// What follows the changes.
    pub rest: Input<'a>,
}

/// The volume that an input describes: base, flags, number of changes, changes.
#[must_use]
pub fn decode(bytes: &[u8]) -> Patched<'_> {
    let mut input = Input::new(bytes);
    let base = input.pick(bases::all());
    changed(base, input, change)
}

/// As [`decode`], for one of these bases, with half of the changes aimed at fields of inodes in use.
#[must_use]
pub fn decode_aimed<'a>(bytes: &'a [u8], names: &[&str]) -> Patched<'a> {
    let mut input = Input::new(bytes);
    let base = bases::named(names, input.byte());
    changed(base, input, |image, base, input| {
        if input.byte() & 1 == 0 { change(image, base, input) } else { aim(image, base, input) }
    })
}

fn changed<'a>(
    base: &'static Base,
    mut input: Input<'a>,
    change: impl Fn(&mut [u8], &Base, &mut Input<'_>),
) -> Patched<'a> {
    let flags = input.byte();
    let count = input.byte() % CHANGES_MAX;
    let mut image = base.image.clone();
    let mut intact = true;
    for _ in 0..count {
        if input.is_empty() {
            break;
        }
        change(&mut image, base, &mut input);
        intact = false;
    }
    // One flag value in eight leaves the checksums as they are; the check of each is to be passed through
    // too.
    if !intact && flags & 7 != 7 {
        repair::seal(&mut image);
    }
    Patched { base, image, intact, rest: input }
}

/// Writes what is left of an input over bytes, a few at a time at any place: for the targets whose input is
/// changes to something sound.
pub fn scatter(bytes: &mut [u8], input: &mut Input<'_>) {
    while !input.is_empty() && !bytes.is_empty() {
        let (what, at) = (input.byte(), usize::from(input.word()) % bytes.len());
        match what % 4 {
            0 => put(bytes, at, &[input.byte()]),
            1 => put(bytes, at & !1, &low(*input.pick(&EDGES), 2)),
            2 => put(bytes, at & !3, &low(*input.pick(&EDGES), 4)),
            _ => put(bytes, at, input.bytes(usize::from(what >> 2 & 15) + 1)),
        }
    }
}

fn unit_start(base: &Base, input: &mut Input<'_>) -> usize {
    let pick = usize::from(input.byte());
    // The last two numbers reach every unit, also those that are all zero.
    let unit = if pick < 254 {
        base.units[pick % base.units.len()]
    } else {
        usize::from(input.word()) % base.image.len().div_ceil(UNIT)
    };
    unit * UNIT
}

fn change(image: &mut [u8], base: &Base, input: &mut Input<'_>) {
    let what = input.byte();
    let start = unit_start(base, input);
    let at = start + usize::from(input.word()) % UNIT;
    if what >= TOGGLES_FROM {
        return toggle(image, base, at, input.byte());
    }
    match what % 9 {
        0 => put(image, at, &[input.byte()]),
        1 => put(image, at & !1, &low(*input.pick(&EDGES), 2)),
        2 => put(image, at & !3, &low(*input.pick(&EDGES), 4)),
        3 => {
            let len = 1 + usize::from(input.byte() % 48);
            put(image, at, input.bytes(len));
        }
        4 => {
            // Another unit's bytes, from the same place on.
            let len = [4, 8, 12, 32, 128, 256, UNIT, UNIT][usize::from(input.byte() & 7)];
            let from = unit_start(base, input) + at - start;
            let bytes = image.get(from..(from + len).min(image.len())).unwrap_or_default().to_vec();
            put(image, at, &bytes);
        }
        5 => {
            let len = usize::from(input.word()) % UNIT;
            put(image, at, &vec![0; len]);
        }
        6 => add(image, at & !1, 2, input.byte()),
        7 => add(image, at & !3, 4, input.byte()),
        _ => {
            // The number of a block in use: a pointer to something that is there.
            let block = unit_start(base, input) / UNIT;
            put(image, at & !3, &low(u32::try_from(block).unwrap_or(0), 4));
        }
    }
}

/// Changes a field of an inode in use: of its map or what is inside it, of what follows its fields, or one of
/// [`FIELDS`].
fn aim(image: &mut [u8], base: &Base, input: &mut Input<'_>) {
    let slot = *input.pick(&base.inodes);
    let field = match usize::from(input.byte()) {
        at @ 0..60 => MAP_AT + at,
        at @ 60..120 => FIELDS[at % FIELDS.len()],
        at => (BODY_AT + 2 * (at - 120)) % base.inode_size,
    };
    let at = slot + field;
    match input.byte() % 6 {
        0 => put(image, at, &[input.byte()]),
        1 => put(image, at & !1, &low(*input.pick(&EDGES), 2)),
        2 => put(image, at & !3, &low(*input.pick(&EDGES), 4)),
        3 => add(image, at & !1, 2, input.byte()),
        4 => add(image, at & !3, 4, input.byte()),
        _ => {
            let block = unit_start(base, input) / UNIT;
            put(image, at & !3, &low(u32::try_from(block).unwrap_or(0), 4));
        }
    }
}

/// Toggles a flag of the inode that has its slot around `at`, if that lies in an inode table.
fn toggle(image: &mut [u8], base: &Base, at: usize, flag: u8) {
    let slot = at / base.inode_size * base.inode_size;
    if let Some(byte) = image.get_mut(slot + FLAGS_AT + usize::from(flag / 8 % 4)) {
        *byte ^= 1 << (flag % 8);
    }
}

fn low(value: u32, len: usize) -> Vec<u8> {
    value.to_le_bytes()[..len].to_vec()
}

/// Adds a small signed number to the little-endian number of `len` bytes.
fn add(image: &mut [u8], at: usize, len: usize, delta: u8) {
    let Some(field) = image.get_mut(at..at + len) else { return };
    let mut bytes = [0; 4];
    bytes[..len].copy_from_slice(field);
    let sum = u32::from_le_bytes(bytes).wrapping_add_signed(i32::from(delta.cast_signed()));
    field.copy_from_slice(&sum.to_le_bytes()[..len]);
}

fn put(image: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(target) = image.get_mut(at..) {
        let len = bytes.len().min(target.len());
        target[..len].copy_from_slice(&bytes[..len]);
    }
}
