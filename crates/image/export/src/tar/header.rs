//! Writes the 512-byte header block of an entry in ustar form.
//!
//! Field offsets are those of POSIX.1-1988 ustar (pax(1), "ustar Interchange Format"). Numbers are octal
//! digits with a final NUL. What a field has no room for is in a pax record as well, which a reader prefers;
//! the field then has as much as fits, and never 0 for an owner: a reader without pax must not give a file to
//! root.

use hectare_engine::DeviceNumber;

/// Bytes of a block of an archive.
pub(crate) const BLOCK_LEN: usize = 512;
/// The longest name or link name of a header.
pub(crate) const NAME_MAX: usize = 100;
/// The largest number of a field of 8 bytes: owner, group, device.
pub(crate) const SHORT_MAX: u64 = 0o777_7777;
/// The largest number of a field of 12 bytes: size, time.
pub(crate) const LONG_MAX: u64 = 0o777_7777_7777;

const SHORT_DIGITS: usize = 7;
const LONG_DIGITS: usize = 11;

/// What a header says.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Header<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) mode: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    pub(crate) seconds: i64,
    pub(crate) flag: u8,
    pub(crate) link: &'a [u8],
    pub(crate) device: Option<DeviceNumber>,
}

impl Header<'_> {
    /// The block.
    pub(crate) fn block(&self) -> [u8; BLOCK_LEN] {
        let mut block = [0; BLOCK_LEN];
        text(&mut block[..NAME_MAX], self.name);
        octal(&mut block[100..], SHORT_DIGITS, self.mode.into());
        octal(&mut block[108..], SHORT_DIGITS, self.uid.into());
        octal(&mut block[116..], SHORT_DIGITS, self.gid.into());
        octal(&mut block[124..], LONG_DIGITS, self.size);
        octal(&mut block[136..], LONG_DIGITS, u64::try_from(self.seconds).unwrap_or(0));
        block[156] = self.flag;
        text(&mut block[157..257], self.link);
        block[257..265].copy_from_slice(b"ustar\x0000");
        if let Some(device) = self.device {
            octal(&mut block[329..], SHORT_DIGITS, device.major.into());
            octal(&mut block[337..], SHORT_DIGITS, device.minor.into());
        }
        // The sum counts its own field as blanks, and ends with a NUL and a blank.
        block[148..156].fill(b' ');
        let sum = block.iter().map(|byte| u64::from(*byte)).sum();
        octal(&mut block[148..], 6, sum);
        block[154] = 0;
        block
    }
}

/// As much of a text as the field has room for.
fn text(field: &mut [u8], text: &[u8]) {
    let len = text.len().min(field.len());
    field[..len].copy_from_slice(&text[..len]);
}

/// A number, at most the largest of this many digits.
fn octal(field: &mut [u8], digits: usize, number: u64) {
    let mut rest = number.min((1 << (3 * digits)) - 1);
    for digit in field[..digits].iter_mut().rev() {
        *digit = b'0' + hectare_units::low8(rest & 7);
        rest >>= 3;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_ustar_has_them() {
        let header =
            Header { name: b"a/b", mode: 0o4755, uid: 1000, size: 9, flag: b'0', ..Header::default() };
        let block = header.block();
        assert_eq!(&block[..4], b"a/b\0");
        assert_eq!(&block[100..124], b"0004755\x000001750\x000000000\0");
        assert_eq!(&block[124..148], b"00000000011\x0000000000000\0");
        assert_eq!(&block[156..265], [b"0".as_slice(), &[0; 100], b"ustar\x0000"].concat());
        let sum: u64 = block
            .iter()
            .enumerate()
            .map(|(at, b)| if (148..156).contains(&at) { 32 } else { u64::from(*b) })
            .sum();
        assert_eq!(&block[148..156], format!("{sum:06o}\0 ").as_bytes());
    }

    #[test]
    fn what_does_not_fit_is_the_largest_that_does() {
        let header = Header { uid: u32::MAX, size: 1 << 40, seconds: -5, ..Header::default() };
        let block = header.block();
        assert_eq!(&block[108..116], b"7777777\0");
        assert_eq!(&block[124..148], b"77777777777\x0000000000000\0");
    }
}
