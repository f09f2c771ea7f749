//! The 512-byte header block: fields, numbers, checksum.
//!
//! Field offsets are those of POSIX.1-1988 ustar (pax(1), "ustar Interchange Format") and of the GNU tar
//! manual ("Basic Tar Format"). Numbers are octal digits, or, with the top bit of their first byte set,
//! big-endian two's complement ("base-256").

use crate::time::Timestamp;

/// A block of an archive.
pub(super) const BLOCK_LEN: u64 = 512;

/// A header block.
pub(super) struct Header([u8; 512]);

impl Header {
    pub(super) fn new(block: &[u8; 512]) -> Self {
        Self(*block)
    }

    /// Whether this is the block of zeros that ends an archive.
    pub(super) fn is_end(&self) -> bool {
        self.0.iter().all(|byte| *byte == 0)
    }

    /// Whether the checksum is right; some old programs summed signed bytes.
    pub(super) fn checksum_matches(&self) -> bool {
        let Ok(stored) = number(&self.0[148..156]) else { return false };
        let (mut unsigned, mut signed) = (0i64, 0i64);
        for (at, byte) in self.0.iter().enumerate() {
            let byte = if (148..156).contains(&at) { b' ' } else { *byte };
            unsigned += i64::from(byte);
            signed += i64::from(byte.cast_signed());
        }
        stored == unsigned || stored == signed
    }

    pub(super) fn type_flag(&self) -> u8 {
        self.0[156]
    }

    fn is_ustar(&self) -> bool {
        self.0[257..263] == *b"ustar\0"
    }

    fn is_gnu(&self) -> bool {
        self.0[257..265] == *b"ustar  \0"
    }

    /// The name, with the prefix of a ustar header.
    pub(super) fn name(&self) -> Vec<u8> {
        let name = string(&self.0[0..100]);
        // star has times where the prefix ends.
        let prefix_end = if self.0[508..512] == *b"tar\0" { 476 } else { 500 };
        let prefix = if self.is_ustar() { string(&self.0[345..prefix_end]) } else { &[] };
        if prefix.is_empty() { name.to_vec() } else { [prefix, name].join(&b'/') }
    }

    pub(super) fn link_name(&self) -> Vec<u8> {
        string(&self.0[157..257]).to_vec()
    }

    pub(super) fn mode(&self) -> Result<u64, &'static str> {
        unsigned(&self.0[100..108]).ok_or("a header's mode is not a number")
    }

    pub(super) fn uid(&self) -> Result<u32, &'static str> {
        unsigned32(&self.0[108..116]).ok_or("a header's owner is not a number of 32 bits")
    }

    pub(super) fn gid(&self) -> Result<u32, &'static str> {
        unsigned32(&self.0[116..124]).ok_or("a header's group is not a number of 32 bits")
    }

    pub(super) fn size(&self) -> Result<u64, &'static str> {
        unsigned(&self.0[124..136]).ok_or("a header's size is not a number")
    }

    pub(super) fn mtime(&self) -> Result<i64, &'static str> {
        number(&self.0[136..148]).map_err(|()| "a header's time is not a number")
    }

    /// Major and minor number.
    pub(super) fn device(&self) -> Result<(u32, u32), &'static str> {
        let major = unsigned32(&self.0[329..337]);
        let minor = unsigned32(&self.0[337..345]);
        major.zip(minor).ok_or("a header's device is not two numbers of 32 bits")
    }

    /// The access time that GNU tar stores in incremental archives.
    pub(super) fn gnu_atime(&self) -> Option<Timestamp> {
        self.gnu_time(345)
    }

    /// The change time that GNU tar stores in incremental archives.
    pub(super) fn gnu_ctime(&self) -> Option<Timestamp> {
        self.gnu_time(357)
    }

    fn gnu_time(&self, at: usize) -> Option<Timestamp> {
        let field = &self.0[at..at + 12];
        let seconds = if self.is_gnu() && field[0] != 0 { number(field).ok()? } else { 0 };
        (seconds != 0).then(|| Timestamp::at(seconds))
    }

    /// The four segments of an old GNU sparse header.
    pub(super) fn sparse_fields(&self) -> &[u8] {
        &self.0[386..482]
    }

    /// Whether a block with more segments follows.
    pub(super) fn sparse_continues(&self) -> bool {
        self.0[482] != 0
    }

    /// The length of a sparse file with its holes.
    pub(super) fn sparse_size(&self) -> Option<u64> {
        unsigned(&self.0[483..495])
    }
}

fn string(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    &field[..end]
}

/// A number that can't be negative.
pub(super) fn unsigned(field: &[u8]) -> Option<u64> {
    number(field).ok().and_then(|n| u64::try_from(n).ok())
}

fn unsigned32(field: &[u8]) -> Option<u32> {
    number(field).ok().and_then(|n| u32::try_from(n).ok())
}

/// A number field; nothing but blanks is 0.
fn number(field: &[u8]) -> Result<i64, ()> {
    match field.first() {
        Some(first) if first & 0x80 != 0 => base256(field),
        _ => octal(field),
    }
}

fn octal(field: &[u8]) -> Result<i64, ()> {
    let text = string(field).trim_ascii();
    text.iter().try_fold(0i64, |value, digit| match digit {
        b'0'..=b'7' => value.checked_mul(8).and_then(|v| v.checked_add(i64::from(digit - b'0'))).ok_or(()),
        _ => Err(()),
    })
}

/// Two's complement; the top bit only marks the form, the next one is the sign.
fn base256(field: &[u8]) -> Result<i64, ()> {
    let negative = field[0] & 0x40 != 0;
    let first = if negative { field[0] | 0x80 } else { field[0] & 0x7f };
    let mut value: i64 = if negative { -1 } else { 0 };
    for byte in std::iter::once(&first).chain(&field[1..]) {
        value = value.checked_mul(256).and_then(|v| v.checked_add(i64::from(*byte))).ok_or(())?;
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_both_forms_are_read() {
        assert_eq!(number(b"0000644\0"), Ok(0o644));
        assert_eq!(number(b"   644 \0"), Ok(0o644));
        assert_eq!(number(b"77777777"), Ok(0o77_777_777));
        assert_eq!(number(b"\0\0\0\0"), Ok(0));
        assert_eq!(number(b"12a\0"), Err(()));
        assert_eq!(number(b"-1\0"), Err(()));
        assert_eq!(number(&[0x80, 0, 0, 0, 1, 0, 0, 2]), Ok((1 << 24) + 2));
        assert_eq!(number(&[0xff; 12]), Ok(-1));
        assert_eq!(number(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe]), Ok(-2));
        assert_eq!(number(&[0x80, 0, 0, 0, 0xff, 0, 0, 0, 0, 0, 0, 0]), Err(()));
    }
}
