//! Tables that hold each other, devices that are too short, and random bytes. What real tools make is
//! compared with blkid in `tools_tests.rs`.

use super::*;
use hectare_device::MemoryDevice;
use proptest::prelude::*;

/// Writes a table with one entry into a disk: first sector and number of sectors.
fn with_partition(disk: &MemoryDevice, at: u64, kind: u8, start: u32, len: u32) {
    let mut sector = [0; 512];
    sector[446 + 4] = kind;
    sector[446 + 8..446 + 12].copy_from_slice(&start.to_le_bytes());
    sector[446 + 12..446 + 16].copy_from_slice(&len.to_le_bytes());
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    disk.write_at(Bytes::new(at), &sector).unwrap();
}

#[test]
fn tables_in_partitions_are_followed_to_a_depth_and_no_further() {
    let disk = MemoryDevice::new(Bytes::mib(4));
    // Each table's partition begins at the next sector, so every sector is a disk in itself.
    for sector in 0..100 {
        with_partition(&disk, sector * 512, 0x83, 1, 4000);
    }
    let mut place = &identify(&disk).unwrap();
    let mut depth = 0;
    while let Some(part) = place.parts.first() {
        depth += 1;
        assert_eq!(part.start, Bytes::new(512 * depth));
        place = part;
    }
    assert_eq!(depth, u64::from(DEPTH_MAX));
    assert!(place.notes.iter().any(|note| note.contains("not looked into")), "{:?}", place.notes);
}

#[test]
fn a_partition_that_covers_its_own_table_is_not_looked_into() {
    let disk = MemoryDevice::new(Bytes::mib(1));
    with_partition(&disk, 0, 0x83, 0, 2048);
    let place = identify(&disk).unwrap();
    assert_eq!(place.parts.len(), 1);
    assert!(place.parts[0].parts.is_empty() && place.parts[0].notes[0].contains("where the table lies"));
}

#[test]
fn regression_a_loop_of_logical_partitions_is_a_note() {
    let disk = MemoryDevice::new(Bytes::mib(1));
    with_partition(&disk, 0, 0x05, 300, 500);
    with_partition(&disk, 300 * 512, 0x05, 0, 500);
    let place = identify(&disk).unwrap();
    assert!(place.notes[0].contains("comes back"), "{:?}", place.notes);
}

#[test]
fn a_partition_beyond_the_end_is_looked_into_as_far_as_it_goes() {
    let disk = MemoryDevice::new(Bytes::mib(1));
    with_partition(&disk, 0, 0x83, 2, 100_000);
    disk.write_at(Bytes::new(1024), b"XFSB").unwrap();
    let place = identify(&disk).unwrap();
    assert_eq!(place.parts[0].what, Some(What::Xfs));
    assert!(place.parts[0].notes[0].contains("beyond the end"), "{:?}", place.parts[0].notes);
}

/// The magic numbers with their places, to lead random bytes into every parser.
const MAGICS: [(usize, &[u8]); 25] = [
    (1080, b"\x53\xef"),
    (0, b"XFSB"),
    (0x1_0040, b"_BHRfS_M"),
    (1024, b"\x10\x20\xf5\xf2"),
    (0, b"hsqs"),
    (1024, b"\xe2\xe1\xf5\xe0"),
    (0x8001, b"CD001"),
    (54, b"FAT16"),
    (82, b"FAT32   "),
    (3, b"EXFAT   "),
    (3, b"NTFS    "),
    (4086, b"SWAPSPACE2"),
    (0, b"LUKS\xba\xbe"),
    (512, b"LABELONE"),
    (4096, b"\xfc\x4e\x2b\xa9"),
    (0, b"QFI\xfb"),
    (0, b"conectix"),
    (0, b"vhdxfile"),
    (0, b"KDMV"),
    (0, b"# Disk DescriptorFile"),
    (0x40, b"\x7f\x10\xda\xbe"),
    (0, b"\x3a\xff\x26\xed"),
    (0, b"\x1f\x8b\x08"),
    (0, b"\x28\xb5\x2f\xfd"),
    (257, b"ustar"),
];

proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        seed in any::<u64>(),
        len in 0_usize..0x1_2000,
        which in 0..MAGICS.len(),
        small in any::<bool>(),
    ) {
        let mut random = hectare_units::random::SplitMix64::new(seed);
        // Small numbers get further into a parser than random ones.
        let mask = if small { 0x0f0f_0000_0103_0707 } else { u64::MAX };
        let words = (0..len.div_ceil(8)).flat_map(|_| (random.draw() & mask).to_le_bytes());
        let mut bytes: Vec<u8> = words.take(len).collect();
        let (at, magic) = MAGICS[which];
        if let Some(place) = bytes.get_mut(at..at + magic.len()) {
            place.copy_from_slice(magic);
        }
        let device = MemoryDevice::from_bytes(&bytes);
        identify(&device).unwrap();
        search(&device, &mut |_| ()).unwrap();
    }
}
