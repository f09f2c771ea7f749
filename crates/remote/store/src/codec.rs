//! Little-endian fields of small binary records, with bounds.

use crc_fast::CrcAlgorithm;

/// The checksum of everything that this crate keeps: CRC-64/NVME.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes)
}

/// Reads fields one after the other; past the end there is none.
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    pub(crate) const fn rest(&self) -> usize {
        self.0.len()
    }
}

/// What was sealed with [`seal`], without the checksum; `None` if that is wrong.
pub(crate) fn unsealed(bytes: &[u8]) -> Option<&[u8]> {
    let (body, found) = bytes.split_last_chunk::<8>()?;
    (sum(body) == u64::from_le_bytes(*found)).then_some(body)
}

/// Adds the checksum of all bytes so far.
pub(crate) fn seal(bytes: &mut Vec<u8>) {
    let found = sum(bytes);
    bytes.extend_from_slice(&found.to_le_bytes());
}
