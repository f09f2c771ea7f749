//! The start of an empty log: one record that says the volume was unmounted cleanly.
//!
//! The log is a ring of sectors of 512 bytes, each of which starts with the number of the round (cycle) that
//! wrote it; the words that lay there are kept in the header. The rest of a fresh log is zeros, cycle 0, so
//! the record is both its head and its tail.
//!
//! Hazard: records are written in multiples of the log's unit, and their header grows with the size of the
//! buffers a reader must have; both follow from the unit in the superblock.

use crate::raw;
use crate::volume::Volume;
use hectare_units::{low32, u64_of, usize_of};
use zerocopy::FromBytes;

/// `h_magicno`.
const MAGIC: u32 = 0xfeed_babe;
const VERSION: u32 = 2;
const CYCLE: u32 = 1;
/// `h_fmt`: numbers inside the items are little-endian.
const FORMAT_LITTLE_ENDIAN: u32 = 1;
/// The log counts in sectors of this size, whatever the device's are.
const SECTOR: usize = 512;
/// Bytes of the buffers a reader needs, at least, and bytes of log for each sector of header.
const BUFFER: u32 = 32 << 10;
/// The transaction that the unmount belongs to.
const TRANSACTION: u32 = 0xb0c0_d0d0;
/// What follows the first word of the one operation: 8 bytes by the log itself (0xaa), an unmount (0x20).
const OPERATION: [u8; 8] = [0, 0, 0, 8, 0xaa, 0x20, 0, 0];
/// "Un" as a little-endian number.
const UNMOUNT: [u8; 2] = [0x6e, 0x55];

/// The bytes that a fresh log starts with.
#[must_use]
pub fn unmount_record(volume: &Volume) -> Vec<u8> {
    let len = usize_of(volume.log.unit).max(2 * SECTOR);
    let size = volume.log.unit.max(BUFFER);
    let headers = usize_of(size.div_ceil(BUFFER)) * SECTOR;
    let mut record = vec![0; len];
    for sector in record.chunks_exact_mut(SECTOR) {
        sector[..4].copy_from_slice(&CYCLE.to_be_bytes());
    }
    if let Ok((header, _)) = raw::LogHeader::mut_from_prefix(&mut record) {
        let lsn = u64::from(CYCLE) << 32;
        header.h_magicno.set(MAGIC);
        header.h_cycle.set(CYCLE);
        header.h_version.set(VERSION);
        header.h_len.set(low32(u64_of(len - headers)));
        header.h_lsn.set(lsn);
        header.h_tail_lsn.set(lsn);
        header.h_prev_block.set(u32::MAX);
        header.h_num_logops.set(1);
        header.h_cycle_data[0].set(TRANSACTION);
        header.h_fmt.set(FORMAT_LITTLE_ENDIAN);
        header.h_fs_uuid = volume.uuid;
        header.h_size.set(size);
    }
    let operation = &mut record[headers + 4..];
    operation[..8].copy_from_slice(&OPERATION);
    operation[8..10].copy_from_slice(&UNMOUNT);
    record
}
