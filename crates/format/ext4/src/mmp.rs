//! Multiple mount protection: a block that says whether another machine uses the volume (feature `mmp`).
//!
//! A host that mounts such a volume for writing keeps incrementing a number in this block (`s_mmp_block`) and
//! writes its name beside it. Two numbers are reserved: one for a volume closed cleanly, one for a volume
//! being checked.
//!
//! Hazards: "in use" is all that one read can show; a crashed machine leaves the same mark as a live one, and
//! only watching the number for a few check intervals distinguishes them. The node and device names are
//! whatever the other machine wrote and end at a zero byte or with their field.

use crate::checksum::Seed;
use crate::error::{Corrupt, Place};
use hectare_units::BlockNr;
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The number that marks the block (`mmp_magic`).
pub const MAGIC: u32 = 0x004d_4d50;
/// The sequence of a volume closed cleanly.
pub const SEQUENCE_CLEAN: u32 = 0xff4d_4d50;
/// The sequence of a volume being checked.
pub const SEQUENCE_FSCK: u32 = 0xe24d_4d50;

/// The block as it lies on disk.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawMmp {
    /// [`MAGIC`].
    pub mmp_magic: U32,
    /// The sequence: one of the two above, or a running count.
    pub mmp_seq: U32,
    /// When it was last written, in seconds since 1970.
    pub mmp_time: U64,
    /// The name of the machine.
    pub mmp_nodename: [u8; 64],
    /// The name of the device there.
    pub mmp_bdevname: [u8; 32],
    /// Seconds between two checks.
    pub mmp_check_interval: U16,
    /// Zero.
    pub mmp_pad1: U16,
    /// Zero.
    pub mmp_pad2: [U32; 226],
    /// The checksum (`metadata_csum`), over all before it.
    pub mmp_checksum: U32,
}

const _: () = {
    assert!(size_of::<RawMmp>() == 1024);
    assert!(offset_of!(RawMmp, mmp_time) == 8);
    assert!(offset_of!(RawMmp, mmp_nodename) == 16);
    assert!(offset_of!(RawMmp, mmp_bdevname) == 80);
    assert!(offset_of!(RawMmp, mmp_check_interval) == 112);
    assert!(offset_of!(RawMmp, mmp_checksum) == 1020);
};

/// Whether the volume is in use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Status {
    /// Nobody: it was closed cleanly.
    Clean,
    /// It is, or its user crashed.
    InUse {
        /// The machine's name, as text.
        node: String,
        /// The device's name there, as text.
        device: String,
        /// The running count.
        sequence: u32,
    },
    /// It is being checked, or a check was interrupted.
    Fsck,
}

/// What the block says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mmp {
    /// Whether the volume is in use.
    pub status: Status,
    /// When the block was last written, in seconds since 1970.
    pub time: u64,
    /// Seconds between two checks by its user.
    pub check_interval: u16,
}

impl Mmp {
    /// Reads the block `nr`; `seed` is the volume's where it has checksums.
    ///
    /// # Errors
    /// `Corrupt` if it is too short, or its magic number or checksum is wrong.
    pub fn parse(block: &[u8], nr: BlockNr, seed: Option<Seed>) -> Result<Self, Corrupt> {
        const WHAT: &str = "multiple mount protection";
        let place = Place::Block(nr);
        let (raw, _) = RawMmp::ref_from_prefix(block)
            .map_err(|_| Corrupt::new(WHAT, place, "the block is too short"))?;
        if raw.mmp_magic.get() != MAGIC {
            let reason = format!("its magic number is {:#x}", raw.mmp_magic.get());
            return Err(Corrupt::new(WHAT, place, reason));
        }
        if let Some(seed) = seed {
            let (found, expected) = (raw.mmp_checksum.get(), checksum(raw, seed));
            if found != expected {
                return Err(Corrupt::checksum(WHAT, place, found, expected));
            }
        }
        let status = status(raw);
        Ok(Self { status, time: raw.mmp_time.get(), check_interval: raw.mmp_check_interval.get() })
    }

    /// The first bytes of the block as they are to be written (the rest is zero); `seed` as in
    /// [`Self::parse`]. Names are truncated to their fields, with a zero byte at the end.
    #[must_use]
    pub fn render(&self, seed: Option<Seed>) -> [u8; size_of::<RawMmp>()] {
        let mut raw = RawMmp::new_zeroed();
        raw.mmp_magic.set(MAGIC);
        raw.mmp_time.set(self.time);
        raw.mmp_check_interval.set(self.check_interval);
        raw.mmp_seq.set(match &self.status {
            Status::Clean => SEQUENCE_CLEAN,
            Status::Fsck => SEQUENCE_FSCK,
            Status::InUse { node, device, sequence } => {
                set_text(&mut raw.mmp_nodename, node);
                set_text(&mut raw.mmp_bdevname, device);
                *sequence
            }
        });
        if let Some(seed) = seed {
            raw.mmp_checksum.set(checksum(&raw, seed));
        }
        zerocopy::transmute!(raw)
    }
}

fn set_text(field: &mut [u8], text: &str) {
    let len = text.len().min(field.len() - 1);
    field[..len].copy_from_slice(&text.as_bytes()[..len]);
}

fn status(raw: &RawMmp) -> Status {
    match raw.mmp_seq.get() {
        SEQUENCE_CLEAN => Status::Clean,
        SEQUENCE_FSCK => Status::Fsck,
        sequence => {
            Status::InUse { node: text(&raw.mmp_nodename), device: text(&raw.mmp_bdevname), sequence }
        }
    }
}

/// A name up to its zero byte, made safe to print.
fn text(field: &[u8]) -> String {
    let name = field.split(|byte| *byte == 0).next().unwrap_or(&[]);
    name.escape_ascii().to_string()
}

fn checksum(raw: &RawMmp, seed: Seed) -> u32 {
    let bytes = raw.as_bytes();
    seed.checksum(bytes.get(..offset_of!(RawMmp, mmp_checksum)).unwrap_or(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(sequence: u32, seed: Seed) -> Vec<u8> {
        let mut raw = RawMmp::new_zeroed();
        raw.mmp_magic.set(MAGIC);
        raw.mmp_seq.set(sequence);
        raw.mmp_nodename[..5].copy_from_slice(b"no\x1bde");
        raw.mmp_bdevname.fill(b'd');
        raw.mmp_checksum.set(checksum(&raw, seed));
        raw.as_bytes().to_vec()
    }

    #[test]
    fn what_is_rendered_parses_to_the_same() {
        let (seed, nr) = (Some(Seed::stored(9)), BlockNr::new(5));
        let status = Status::InUse { node: "host".into(), device: "d".repeat(31), sequence: 4 };
        for status in [status, Status::Clean, Status::Fsck] {
            let mmp = Mmp { status, time: 77, check_interval: 5 };
            assert_eq!(Mmp::parse(&mmp.render(seed), nr, seed).unwrap(), mmp);
        }
    }

    #[test]
    fn the_sequence_tells_the_status() {
        let (seed, nr) = (Seed::stored(1), BlockNr::new(5));
        let status = |sequence| Mmp::parse(&block(sequence, seed), nr, Some(seed)).unwrap().status;
        assert_eq!(status(SEQUENCE_CLEAN), Status::Clean);
        assert_eq!(status(SEQUENCE_FSCK), Status::Fsck);
        let (node, device) = ("no\\x1bde".to_owned(), "d".repeat(32));
        assert_eq!(status(17), Status::InUse { node, device, sequence: 17 });
    }

    #[test]
    fn damage_is_found() {
        let (seed, nr) = (Seed::stored(1), BlockNr::new(5));
        let good = block(3, seed);
        for at in [0, 4, 16, 112, 1019, 1020] {
            let mut bad = good.clone();
            bad[at] ^= 0x80;
            assert!(Mmp::parse(&bad, nr, Some(seed)).is_err(), "{at}");
        }
        assert!(Mmp::parse(&good[..1023], nr, None).is_err());
        assert!(Mmp::parse(&good, nr, Some(Seed::stored(2))).is_err());
    }
}
