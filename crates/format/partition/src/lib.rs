//! Partition tables: where on a disk the volumes lie.
//!
//! [`partitions`] reads the table of a disk, [`open`] makes a partition a device of its own. Both kinds of
//! tables that disks of ordinary computers have are known: GPT (`gpt`), and the older one in the first
//! sector, with logical partitions (`mbr`). Numbers are those of the kernel's device names (`sda1`,
//! `loop0p5`).
//!
//! Hazards: a table is bytes from a disk. Its checksums are verified where it has any, every place is checked
//! to lie on the disk, and no chain is followed without a bound. A disk with a GPT carries a table of the
//! older kind that covers it all, for programs that know no other; so that one says where to look, and a
//! damaged GPT behind it is an error, not a disk with one large partition.
//!
//! What it is not: it changes no table, and does not look into the partitions.

mod bytes;
mod error;
mod gpt;
mod kind;
mod mbr;
mod partition;

pub use error::{Error, Result};
pub use kind::Kind;
pub use partition::Partition;

use hectare_device::{Device, SliceDevice};

/// The partitions of a disk, in the order of their numbers, which may have gaps.
///
/// # Errors
/// See [`Error`].
pub fn partitions(disk: &dyn Device) -> Result<Vec<Partition>> {
    match mbr::read(disk)? {
        mbr::Table::Partitions(found) => Ok(found),
        mbr::Table::Protective => gpt::read(disk),
    }
}

/// The partition of a disk with that number.
///
/// # Errors
/// See [`Error`].
pub fn find(disk: &dyn Device, number: u32) -> Result<Partition> {
    let found = partitions(disk)?;
    let partition = found.iter().find(|partition| partition.number == number);
    let missing = || Error::Missing { device: disk.name().to_owned(), number, there: numbers(&found) };
    partition.cloned().ok_or_else(missing)
}

/// The only partition of a disk with that name or UUID. The case of a UUID does not matter.
///
/// # Errors
/// See [`Error`].
pub fn find_named(disk: &dyn Device, wanted: &str) -> Result<Partition> {
    let found = partitions(disk)?;
    let mut fitting = found.iter().filter(|partition| {
        partition.uuid.eq_ignore_ascii_case(wanted) && !wanted.is_empty() || partition.name == wanted
    });
    let (device, wanted) = (disk.name().to_owned(), wanted.to_owned());
    let unknown = |count| Error::Unknown { device, wanted, count, there: numbers(&found) };
    match (fitting.next(), fitting.next()) {
        (Some(one), None) => Ok(one.clone()),
        (None, _) => Err(unknown("no partition")),
        (Some(_), Some(_)) => Err(unknown("several partitions")),
    }
}

/// The partition of a disk with that number, as a device.
///
/// # Errors
/// See [`Error`].
pub fn open<D: Device>(disk: D, number: u32) -> Result<SliceDevice<D>> {
    let partition = find(&disk, number)?;
    Ok(SliceDevice::new(disk, partition.start, partition.len)?)
}

/// The existing partitions, in words.
fn numbers(found: &[Partition]) -> String {
    let numbers: Vec<String> = found.iter().map(|partition| partition.number.to_string()).collect();
    match numbers.as_slice() {
        [] => "are none".to_owned(),
        [one] => format!("is only {one}"),
        _ => format!("are {}", numbers.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // all of this is tests

    use super::*;
    use hectare_device::MemoryDevice;
    use hectare_units::Bytes;
    use proptest::prelude::*;

    const SECTORS: usize = 2048;

    /// A disk whose first sector has these entries: kind, first sector, sectors.
    fn with_entries(sector: &mut [u8], entries: &[(u8, u32, u32)]) {
        for (entry, (kind, start, len)) in sector[446..].chunks_mut(16).zip(entries) {
            entry[4] = *kind;
            entry[8..12].copy_from_slice(&start.to_le_bytes());
            entry[12..16].copy_from_slice(&len.to_le_bytes());
        }
        sector[510..512].copy_from_slice(&[0x55, 0xaa]);
    }

    fn numbered(disk: &[u8]) -> Result<Vec<(u32, u64, u64)>> {
        let found = partitions(&MemoryDevice::from_bytes(disk))?;
        Ok(found.iter().map(|p| (p.number, p.start.get() / 512, p.len.get() / 512)).collect())
    }

    #[test]
    fn primary_and_logical_partitions_have_the_kernels_numbers() {
        let mut disk = vec![0; SECTORS * 512];
        with_entries(&mut disk, &[(0x83, 64, 100), (0, 0, 0), (0x83, 200, 50), (0x05, 300, 500)]);
        with_entries(&mut disk[300 * 512..], &[(0x83, 8, 40), (0x05, 100, 60)]);
        with_entries(&mut disk[400 * 512..], &[(0x83, 8, 50), (0x05, 200, 90)]);
        with_entries(&mut disk[500 * 512..], &[(0x82, 2, 80)]);
        let expected = [(1, 64, 100), (3, 200, 50), (5, 308, 40), (6, 408, 50), (7, 502, 80)];
        assert_eq!(numbered(&disk).unwrap(), expected);
        let device = MemoryDevice::from_bytes(&disk);
        let part = open(&device, 6).unwrap();
        assert_eq!(part.len(), Bytes::new(50 * 512));
        let missing = open(&device, 4).err().unwrap().to_string();
        assert!(missing.ends_with("has no partition 4: there are 1, 3, 5, 6, 7"), "{missing}");
    }

    #[test]
    fn a_chain_of_logical_partitions_that_loops_ends() {
        let mut disk = vec![0; SECTORS * 512];
        with_entries(&mut disk, &[(0x05, 300, 500)]);
        with_entries(&mut disk[300 * 512..], &[(0x83, 8, 40), (0x05, 100, 60)]);
        with_entries(&mut disk[400 * 512..], &[(0x83, 8, 50), (0x05, 0, 90)]);
        let error = numbered(&disk).unwrap_err().to_string();
        assert!(error.contains("byte 153600") && error.contains("comes back"), "{error}");
    }

    #[test]
    fn a_partition_beyond_the_end_of_the_disk_is_refused_when_it_is_opened() {
        let mut disk = vec![0; SECTORS * 512];
        with_entries(&mut disk, &[(0x83, 64, 100), (0x83, 2000, 100)]);
        let device = MemoryDevice::from_bytes(&disk);
        assert!(open(&device, 1).is_ok());
        assert!(matches!(open(&device, 2), Err(Error::Device(_))));
    }

    #[test]
    fn a_volume_without_a_table_is_told_so() {
        for disk in [vec![0; SECTORS * 512], vec![0; 100], Vec::new()] {
            let error = numbered(&disk).unwrap_err();
            assert!(matches!(error, Error::NoTable(_)), "{error}");
        }
    }

    #[test]
    fn a_protective_table_without_a_gpt_is_damage() {
        let mut disk = vec![0; SECTORS * 512];
        with_entries(&mut disk, &[(0xee, 1, 2047)]);
        let error = numbered(&disk).unwrap_err().to_string();
        assert!(error.contains("partition table at byte 512 is damaged"), "{error}");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            mut disk in proptest::collection::vec(any::<u8>(), 4096..9000),
            protective in any::<bool>(),
            sector in prop_oneof![Just(512_usize), Just(4096)],
        ) {
            disk[510..512].copy_from_slice(&[0x55, 0xaa]);
            for entry in 0..4 {
                disk[446 + 16 * entry] &= 0x80;
            }
            if protective {
                disk[450] = 0xee;
                if disk.len() > sector + 100 {
                    disk[sector..sector + 8].copy_from_slice(b"EFI PART");
                }
            }
            let device = MemoryDevice::from_bytes(&disk);
            if let Ok(found) = partitions(&device) {
                for partition in found {
                    let _ = open(&device, partition.number);
                }
            }
        }
    }
}
