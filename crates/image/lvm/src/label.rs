//! The label of a physical volume: in one of the first four sectors, with its UUID and where its metadata lies.
//!
//! | at | of the label's sector |
//! |---|---|
//! | 0 | `LABELONE` |
//! | 8 | the number of the sector |
//! | 16 | the checksum of what follows in the sector |
//! | 20 | where the header begins |
//! | 24 | `LVM2 001` |
//!
//! The header: a UUID of 32 letters and digits, the length of the device in bytes, then places (offset and length,
//! 64 bits each) of data areas, a pair of zeros, places of metadata areas, a pair of zeros. Numbers are stored
//! lowest byte first.
//!
//! Facts: the layout as `pvcreate` writes it (tested against it), and lvm2's manual page `pvck(8)`.

use crate::error::{Error, Result};
use crate::sector::{SECTOR, SECTOR_LEN, crc, le32, le64};
use hectare_device::{Device, Span};
use hectare_units::{Bytes, usize_of};

/// Sectors in which a label is looked for.
const SECTORS: u64 = 4;
const MAGIC: &[u8] = b"LABELONE";
const KIND: &[u8] = b"LVM2 001";
const CHECKED_FROM: usize = 20;
const UUID_LEN: usize = 32;

/// A label, verified.
#[derive(Clone, Debug)]
pub(crate) struct Label {
    /// The UUID of the physical volume, without dashes.
    pub(crate) uuid: String,
    /// Where its metadata lies.
    pub(crate) areas: Vec<Span>,
}

/// Whether there is a label, sound or not. What can't be read has none.
pub(crate) fn is_there(device: &dyn Device) -> bool {
    (0..SECTORS).any(|sector| {
        let mut magic = [0; 8];
        device.read_at(Bytes::new(sector * SECTOR), &mut magic).is_ok() && magic == MAGIC
    })
}

impl Label {
    /// The label of a device; `None` if it has none.
    pub(crate) fn read(device: &dyn Device) -> Result<Option<Self>> {
        for number in 0..SECTORS.min(device.len().get() / SECTOR) {
            let at = Bytes::new(number * SECTOR);
            let mut sector = [0; SECTOR_LEN];
            device.read_at(at, &mut sector)?;
            if sector.starts_with(MAGIC) {
                let damaged = |reason: &str| Error::damaged(device, at, reason);
                return Self::parse(&sector, number).map(Some).map_err(damaged);
            }
        }
        Ok(None)
    }

    fn parse(sector: &[u8; SECTOR_LEN], number: u64) -> std::result::Result<Self, &'static str> {
        if le64(sector, 8) != number {
            return Err("the label says that it lies in another sector");
        }
        if crc(&sector[CHECKED_FROM..]) != le32(sector, 16) {
            return Err("the checksum of the label is wrong");
        }
        if &sector[24..32] != KIND {
            return Err("the label is of an unknown kind (LVM1?)");
        }
        let head = usize_of(le32(sector, 20));
        let rest = sector.get(head..).filter(|rest| head >= 32 && rest.len() >= UUID_LEN + 8);
        let rest = rest.ok_or("its header lies outside of its sector")?;
        let uuid = std::str::from_utf8(&rest[..UUID_LEN]).ok();
        let uuid = uuid.filter(|uuid| uuid.bytes().all(|byte| byte.is_ascii_graphic()));
        let uuid = uuid.ok_or("its UUID has characters that can't be")?.to_owned();
        let mut places = rest[UUID_LEN + 8..].chunks_exact(16).map(|place| (le64(place, 0), le64(place, 8)));
        // Data areas: where they lie, the metadata says as well.
        let _ = places.by_ref().take_while(|(at, _)| *at != 0).count();
        let mut areas = Vec::new();
        loop {
            match places.next() {
                Some((0, _)) => return Ok(Self { uuid, areas }),
                Some((at, len)) => areas.push(Span::new(Bytes::new(at), Bytes::new(len))),
                None => return Err("its list of metadata areas has no end"),
            }
        }
    }
}
