//! A header as it lies on a device: bytes with fields at fixed offsets, of either byte order.
//!
//! Invariant: a record was read whole. A field that does not lie inside it reads as zero, so no offset can
//! panic; parsers read records that are long enough for their fields.

use hectare_device::{Device, Result};
use hectare_units::{Bytes, u64_of};

/// The bytes of a header. Offsets are from its start; a field that does not lie inside reads as zero.
pub struct Record(Vec<u8>);

/// The header of `len` bytes at `at`; `None` if it does not lie on the device whole.
///
/// # Errors
/// If the device can't be read.
pub fn record(device: &dyn Device, at: u64, len: usize) -> Result<Option<Record>> {
    if at.checked_add(u64_of(len)).is_none_or(|end| end > device.len().get()) {
        return Ok(None);
    }
    let mut bytes = vec![0; len];
    device.read_at(Bytes::new(at), &mut bytes)?;
    Ok(Some(Record(bytes)))
}

impl Record {
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        let bytes = at.checked_add(N).and_then(|end| self.0.get(at..end));
        bytes.and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; N])
    }

    /// How many bytes it has.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // the length of a header, not of a collection
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// A part of it; empty if it does not lie inside.
    #[must_use]
    pub fn bytes(&self, at: usize, len: usize) -> &[u8] {
        at.checked_add(len).and_then(|end| self.0.get(at..end)).unwrap_or_default()
    }

    /// A byte.
    #[must_use]
    pub fn u8(&self, at: usize) -> u8 {
        self.array::<1>(at)[0]
    }

    /// 16 bits, lowest byte first.
    #[must_use]
    pub fn le16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.array(at))
    }

    /// 32 bits, lowest byte first.
    #[must_use]
    pub fn le32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.array(at))
    }

    /// 64 bits, lowest byte first.
    #[must_use]
    pub fn le64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.array(at))
    }

    /// 16 bits, highest byte first.
    #[must_use]
    pub fn be16(&self, at: usize) -> u16 {
        u16::from_be_bytes(self.array(at))
    }

    /// 32 bits, highest byte first.
    #[must_use]
    pub fn be32(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.array(at))
    }

    /// 64 bits, highest byte first.
    #[must_use]
    pub fn be64(&self, at: usize) -> u64 {
        u64::from_be_bytes(self.array(at))
    }

    /// 16 bytes as a UUID, unless all are zero.
    #[must_use]
    pub fn uuid(&self, at: usize) -> Option<String> {
        uuid_text(self.array(at))
    }

    /// Text that ends with a zero or the field, without padding; `None` if it is empty.
    #[must_use]
    pub fn text(&self, at: usize, len: usize) -> Option<String> {
        let field = self.bytes(at, len);
        let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
        clean(&String::from_utf8_lossy(&field[..end]))
    }

    /// The same in UTF-16, lowest byte first; `len` in units.
    #[must_use]
    pub fn utf16(&self, at: usize, len: usize) -> Option<String> {
        let field = self.bytes(at, len.saturating_mul(2)).chunks_exact(2);
        let units = field.map(|unit| u16::from_le_bytes([unit[0], unit[1]])).take_while(|unit| *unit != 0);
        let text: String =
            char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
        clean(&text)
    }
}

/// Text without control characters and padding; `None` if nothing is left.
fn clean(text: &str) -> Option<String> {
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// A UUID as text, unless all bytes are zero.
#[must_use]
pub fn uuid_text(uuid: [u8; 16]) -> Option<String> {
    let digits = hectare_units::hex(&uuid);
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32];
    (uuid != [0; 16]).then(|| parts.map(|part| digits[part].to_owned()).join("-"))
}
