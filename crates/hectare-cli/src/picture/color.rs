//! The colours of the picture: usage by depth, fragmentation by hue.

/// Red, green and blue, 0 to 255.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Color(pub(crate) u8, pub(crate) u8, pub(crate) u8);

pub(crate) const PAPER: Color = Color(0xff, 0xff, 0xff);
pub(crate) const INK: Color = Color(0x1d, 0x26, 0x33);
pub(crate) const PALE_INK: Color = Color(0x66, 0x70, 0x85);
pub(crate) const LINE: Color = Color(0xd5, 0xdb, 0xe5);
/// Completely free.
pub(crate) const FREE: Color = Color(0xe8, 0xee, 0xf5);
/// Full, the free space in one run.
pub(crate) const WHOLE: Color = Color(0x1f, 0x6f, 0xb5);
/// Full, the free space in many runs.
pub(crate) const BROKEN_UP: Color = Color(0xe2, 0x5b, 0x2c);
/// The format's own blocks.
pub(crate) const METADATA: Color = Color(0x2b, 0x2d, 0x52);
/// What could not be read.
pub(crate) const UNREADABLE: Color = Color(0xc2, 0x18, 0x7a);

/// A mixture; `share` is 0 to 256 of `b`.
pub(crate) fn mix(a: Color, b: Color, share: u32) -> Color {
    let share = share.min(256);
    let channel = |a: u8, b: u8| {
        let mixed = (u32::from(a) * (256 - share) + u32::from(b) * share) / 256;
        u8::try_from(mixed).unwrap_or(u8::MAX)
    };
    Color(channel(a.0, b.0), channel(a.1, b.1), channel(a.2, b.2))
}

/// The colour of a cell; `fill` and `fragmentation` are 0 to 256.
pub(crate) fn cell(fill: u32, fragmentation: u32) -> Color {
    // Something always shows: the first block in a cell is worth a visible step.
    let depth = if fill == 0 { 0 } else { 24 + fill * 232 / 256 };
    mix(FREE, mix(WHOLE, BROKEN_UP, fragmentation), depth)
}

/// `#rrggbb`.
pub(crate) fn hex(color: Color) -> String {
    format!("#{:02x}{:02x}{:02x}", color.0, color.1, color.2)
}
