//! pax records: `LENGTH KEY=VALUE\n`, where LENGTH counts the whole record in decimal.
//!
//! Extended attributes are `SCHILY.xattr.NAME`, which GNU tar, star, libarchive, Go's programs for containers
//! and `hectare build` read. As in GNU tar, a `=` in a name is `%3D`; a `%` is `%25`, but only where it would
//! be read as the start of one of these two: Go reads names as they stand.

use hectare_engine::Timestamp;
use hectare_units::u64_of;

/// The records of one entry, in the order in which they were added.
#[derive(Debug, Default)]
pub(crate) struct Records(Vec<u8>);

impl Records {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) {
        let rest = u64_of(key.len() + value.len() + 3); // the blank, the equals sign, the newline
        let mut len = rest;
        while len != rest + digits(len) {
            len = rest + digits(len);
        }
        self.0.extend_from_slice(format!("{len} ").as_bytes());
        for part in [key, b"=", value, b"\n"] {
            self.0.extend_from_slice(part);
        }
    }

    pub(crate) fn number(&mut self, key: &str, value: u64) {
        self.add(key.as_bytes(), value.to_string().as_bytes());
    }

    pub(crate) fn time(&mut self, key: &str, time: Timestamp) {
        self.add(key.as_bytes(), decimal(time).as_bytes());
    }

    pub(crate) fn xattr(&mut self, name: &[u8], value: &[u8]) {
        self.add(&[b"SCHILY.xattr.", &*keyword(name)].concat(), value);
    }
}

fn digits(number: u64) -> u64 {
    u64::from(number.checked_ilog10().unwrap_or(0) + 1)
}

/// Seconds and their fraction, without zeros at its end. A time before 1970 is the negative of a distance:
/// -2 s and 750,000,000 ns are -1.25.
fn decimal(time: Timestamp) -> String {
    let (sign, seconds, nanoseconds) = match (time.seconds < 0, time.nanoseconds) {
        (false, part) => ("", time.seconds.unsigned_abs(), part),
        (true, 0) => ("-", time.seconds.unsigned_abs(), 0),
        (true, part) => ("-", (time.seconds + 1).unsigned_abs(), 1_000_000_000 - part),
    };
    match nanoseconds {
        0 => format!("{sign}{seconds}"),
        part => format!("{sign}{seconds}.{part:09}").trim_end_matches('0').to_owned(),
    }
}

fn keyword(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    for (at, byte) in name.iter().enumerate() {
        let is_escape = matches!(name.get(at + 1..at + 3), Some(b"25" | b"3D" | b"3d"));
        match byte {
            b'=' => out.extend_from_slice(b"%3D"),
            b'%' if is_escape => out.extend_from_slice(b"%25"),
            byte => out.push(*byte),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_counts_its_own_digits() {
        for len in (0..300).chain(9_900..10_100) {
            let mut records = Records::default();
            records.add(b"k", &vec![b'v'; len]);
            let text = records.bytes();
            let end = text.iter().position(|byte| *byte == b' ').unwrap();
            assert_eq!(std::str::from_utf8(&text[..end]).unwrap().parse(), Ok(text.len()));
        }
    }

    #[test]
    fn times_are_decimal_numbers() {
        let text = |seconds, nanoseconds| decimal(Timestamp { seconds, nanoseconds });
        assert_eq!(text(1, 500_000_000), "1.5");
        assert_eq!(text(7, 0), "7");
        assert_eq!(text(-2, 750_000_000), "-1.25");
        assert_eq!(text(-1, 999_999_999), "-0.000000001");
        assert_eq!(text(-3, 0), "-3");
    }

    #[test]
    fn names_of_attributes_can_be_read_back() {
        assert_eq!(keyword(b"user.a=b%20%25%3D%"), b"user.a%3Db%20%2525%253D%");
    }
}
