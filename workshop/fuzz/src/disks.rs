//! Small disk images of each format, and changes to them.
//!
//! An image is the parts of a file that are not zeros. A change goes to one of them, so that almost each hits
//! a header, a table or a log; then the checksums that the format has are set right again.

use crate::input::Input;
use crate::patch::EDGES;
use hectare_device::{Device, FileOptions, MemoryDevice};
use hectare_disk::{New, android};
use hectare_units::{Bytes, index_of, low32, u64_of};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::OnceLock;

const CHANGES_MAX: usize = 24;
const UNIT: usize = 512;

/// A file.
#[derive(Clone)]
pub struct Disk {
    /// Its length.
    pub len: u64,
    /// What is not zeros.
    pub parts: Vec<(u64, Vec<u8>)>,
    seals: Vec<Seal>,
}

/// A checksum of a structure.
#[derive(Clone, Copy)]
enum Seal {
    /// CRC-32C of these bytes, stored at byte 4.
    Crc(u64, usize),
    /// The sum of these bytes, turned round, stored at that byte.
    Sum(u64, usize, usize),
}

impl Disk {
    /// A file of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self { len: bytes.len() as u64, parts: vec![(0, bytes.to_vec())], seals: Vec::new() }
    }

    /// Likewise, without the sectors that are zeros.
    fn sparse(bytes: &[u8], seals: Vec<Seal>) -> Self {
        let sectors =
            bytes.chunks(UNIT).enumerate().filter(|(_, sector)| sector.iter().any(|byte| *byte != 0));
        let parts = sectors.map(|(n, sector)| ((n * UNIT) as u64, sector.to_vec())).collect();
        Self { len: bytes.len() as u64, parts, seals }
    }

    /// This one with the changes that an input names, and checksums that are right if `sealed`.
    #[must_use]
    pub fn changed(&self, input: &mut Input<'_>, sealed: bool) -> Self {
        let mut disk = self.clone();
        for _ in 0..CHANGES_MAX {
            if input.is_empty() {
                break;
            }
            let (kind, part, place) = (input.byte(), usize::from(input.byte()), usize::from(input.word()));
            let value = input.byte();
            let Some(edge) = EDGES.get(usize::from(value) % EDGES.len()) else { break };
            let count = disk.parts.len();
            let bytes = &mut disk.parts[part % count].1;
            let at = place % bytes.len();
            let new = match kind % 6 {
                0 | 1 => vec![value],
                2 => edge.to_le_bytes().to_vec(),
                3 => edge.to_be_bytes().to_vec(),
                4 => u64::from(*edge).to_le_bytes().to_vec(),
                _ => {
                    // Cut off, or longer.
                    disk.len = if kind & 64 == 0 {
                        disk.len.saturating_sub((place as u64) << 3)
                    } else {
                        disk.len * 2
                    };
                    continue;
                }
            };
            let end = (at + new.len()).min(bytes.len());
            bytes[at..end].copy_from_slice(&new[..end - at]);
        }
        if sealed {
            disk.seals.clone().into_iter().for_each(|seal| disk.seal(seal));
        }
        disk
    }

    fn seal(&mut self, seal: Seal) {
        match seal {
            Seal::Crc(at, len) => {
                self.put(at + 4, &[0; 4]);
                let sum = crc32c(&self.get(at, len));
                self.put(at + 4, &sum.to_le_bytes());
            }
            Seal::Sum(at, len, field) => {
                self.put(at + field as u64, &[0; 4]);
                let sum = self.get(at, len).iter().fold(0_u32, |sum, byte| sum.wrapping_add((*byte).into()));
                self.put(at + field as u64, &(!sum).to_be_bytes());
            }
        }
    }

    fn get(&self, at: u64, len: usize) -> Vec<u8> {
        (at..at + len as u64)
            .map(|at| {
                let part = self
                    .parts
                    .iter()
                    .find(|(start, part)| (*start..*start + part.len() as u64).contains(&at));
                part.map_or(0, |(start, part)| part[index_of(at - start)])
            })
            .collect()
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        for (at, byte) in (at..).zip(bytes) {
            let part = self
                .parts
                .iter_mut()
                .find(|(start, part)| (*start..*start + part.len() as u64).contains(&at));
            if let Some((start, part)) = part {
                part[index_of(at - *start)] = *byte;
            }
        }
    }
}

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(
            crc ^ u32::from(*byte),
            |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 },
        )
    })
}

/// One of each kind.
pub fn all() -> &'static [Disk] {
    static ALL: OnceLock<Vec<Disk>> = OnceLock::new();
    ALL.get_or_init(|| {
        let vhd = vec![Seal::Sum(0, 512, 64), Seal::Sum(512, 1024, 36)];
        vec![made(New::Qcow2, Vec::new()), made(New::Vhd, vhd), vhdx(), vmdk(), simg(), text()]
    })
}

/// What is made by us, with some bytes in it.
fn made(new: New, seals: Vec<Seal>) -> Disk {
    let memory =
        rustix::fs::memfd_create("made", rustix::fs::MemfdFlags::CLOEXEC).expect("memory can be had");
    let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
    let file = FileOptions::new().write(true).open(&path).expect("it can be opened again");
    {
        let disk =
            hectare_disk::create(file, Path::new(&path), new, Bytes::mib(5), [7; 16]).expect("it fits");
        disk.write_at(Bytes::kib(100), &[0xaa; 1000]).expect("memory takes it");
        disk.flush().expect("memory takes it");
    }
    let memory = std::fs::File::from(memory);
    let mut bytes = vec![0; memory.metadata().map_or(0, |data| index_of(data.len()))];
    memory.read_exact_at(&mut bytes, 0).expect("memory can be read");
    Disk::sparse(&bytes, seals)
}

fn simg() -> Disk {
    let device = MemoryDevice::new(Bytes::kib(64));
    device.write_at(Bytes::kib(8), &[1; 3000]).expect("memory takes it");
    device.write_at(Bytes::kib(20), &[0xab; 4096]).expect("memory takes it");
    let mut out = std::io::Cursor::new(Vec::new());
    android::write(&device, &mut out).expect("memory takes it");
    Disk::of(out.get_ref())
}

/// A VMDK that is a text which names its parts.
fn text() -> Disk {
    Disk::of(b"# Disk DescriptorFile\nversion=1\nCID=1\nparentCID=ffffffff\nRW 100 ZERO\nRW 9 ZERO\n")
}

fn fields(bytes: &mut [u8], fields: &[(usize, &[u8])]) {
    for (at, field) in fields {
        bytes[*at..*at + field.len()].copy_from_slice(field);
    }
}

/// A sparse VMDK: grains of 4 KiB, one of which is there.
fn vmdk() -> Disk {
    let mut bytes = vec![0; 32 << 10];
    let long = |n: u64| n.to_le_bytes();
    fields(
        &mut bytes,
        &[
            (0, b"KDMV"),
            (4, &1_u32.to_le_bytes()),
            (8, &3_u32.to_le_bytes()),
            (12, &long(2048)),
            (20, &long(8)),
            (44, &512_u32.to_le_bytes()),
            (56, &long(4)),
            (64, &long(20)),
            // The directory, the table, and a grain.
            (4 * 512, &8_u32.to_le_bytes()),
            (8 * 512 + 12, &24_u32.to_le_bytes()),
            (24 * 512, b"a grain"),
        ],
    );
    Disk::sparse(&bytes, Vec::new())
}

/// A VHDX of 3 MiB with a block, and a log with an entry.
fn vhdx() -> Disk {
    const KIB: usize = 1 << 10;
    const MIB: usize = 1 << 20;
    let guid = |n: u128| n.to_be_bytes();
    let (word, long) = (|n: usize| low32(u64_of(n)).to_le_bytes(), |n: usize| (n as u64).to_le_bytes());
    let log = guid(0x1234);
    let mut bytes = vec![0; 6 * MIB];
    fields(&mut bytes, &[(0, b"vhdxfile")]);
    for (copy, at) in [64 * KIB, 128 * KIB].into_iter().enumerate() {
        let place = [(at, &b"head"[..]), (at + 8, &long(copy)), (at + 48, &log), (at + 66, &[1, 0])];
        fields(&mut bytes, &place);
        fields(&mut bytes, &[(at + 68, &word(64 * KIB)), (at + 72, &long(MIB))]);
    }
    let (table, metadata) =
        (guid(0x6677_c22d_23f6_0042_9d64_115e_9bfd_4a08), guid(0x06a2_7c8b_9047_9a4b_b8fe_575f_050f_886e));
    for at in [192 * KIB, 256 * KIB] {
        fields(
            &mut bytes,
            &[(at, b"regi"), (at + 8, &word(2)), (at + 16, &table), (at + 32, &long(2 * MIB))],
        );
        fields(
            &mut bytes,
            &[(at + 40, &word(MIB)), (at + 48, &metadata), (at + 64, &long(3 * MIB)), (at + 72, &word(MIB))],
        );
    }
    let items: [(u128, &[u8]); 3] = [
        (0x3767_a1ca_36fa_434d_b3b6_33f0_aa44_e76b, &[0, 0, 16, 0, 0, 0, 0, 0]),
        (0x2442_a52f_1bcd_7648_b211_5dbe_d83b_f4b8, &long(3 * MIB)),
        (0x1dbf_4181_6fa9_0947_ba47_f233_a8fa_ab5f, &word(512)),
    ];
    let at = 3 * MIB;
    fields(&mut bytes, &[(at, b"metadata"), (at + 10, &[3, 0])]);
    for (n, (id, value)) in items.into_iter().enumerate() {
        let (head, place) = (at + 32 + 32 * n, 64 * KIB + 16 * n);
        fields(&mut bytes, &[(head, &guid(id)), (head + 16, &word(place)), (head + 20, &word(value.len()))]);
        fields(&mut bytes, &[(at + place, value)]);
    }
    fields(&mut bytes, &[(2 * MIB, &long(4 * MIB + 6)), (4 * MIB, b"a block")]);
    // The log: zeros for a place, and a sector for another.
    let at = MIB;
    fields(
        &mut bytes,
        &[(at, b"loge"), (at + 8, &word(8 * KIB)), (at + 16, &long(1)), (at + 24, &word(2)), (at + 32, &log)],
    );
    fields(
        &mut bytes,
        &[(at + 64, b"zero"), (at + 72, &long(4 * KIB)), (at + 80, &long(5 * MIB)), (at + 88, &long(1))],
    );
    fields(&mut bytes, &[(at + 96, b"desc"), (at + 112, &long(5 * MIB + 4 * KIB)), (at + 120, &long(1))]);
    fields(&mut bytes, &[(at + 4 * KIB, b"data")]);
    let heads = [64 * KIB, 128 * KIB].map(|at| Seal::Crc(at as u64, 4 * KIB));
    let regions = [192 * KIB, 256 * KIB].map(|at| Seal::Crc(at as u64, 64 * KIB));
    let seals = [&heads[..], &regions, &[Seal::Crc(MIB as u64, 8 * KIB)]].concat();
    let mut disk = Disk::sparse(&bytes, seals);
    disk.seals.clone().into_iter().for_each(|seal| disk.seal(seal));
    disk
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_disk::{Backing, Format};

    /// Else changes to them would reach nothing but the first check.
    #[test]
    fn every_image_is_sound_and_stays_so_when_it_is_sealed_again() {
        let formats =
            [Format::Qcow2, Format::Vhd, Format::Vhdx, Format::Vmdk, Format::AndroidSparse, Format::Vmdk];
        for (disk, format) in all().iter().zip(formats) {
            let disk = disk.changed(&mut Input::new(&[]), true);
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("image");
            let file = std::fs::File::create(&path).unwrap();
            file.set_len(disk.len).unwrap();
            for (at, bytes) in &disk.parts {
                file.write_all_at(bytes, *at).unwrap();
            }
            drop(file);
            let file = FileOptions::new().open(&path).unwrap();
            assert_eq!(Format::of(&file).unwrap(), Some(format));
            let device = hectare_disk::open(file, &path, format, Backing::Beside).unwrap();
            let mut bytes = vec![0; usize::try_from(device.len().get()).unwrap()];
            device.read_at(Bytes::ZERO, &mut bytes).unwrap();
            let is_text = bytes.len() == 109 * 512;
            assert!(is_text || bytes.iter().any(|byte| *byte != 0), "{format}");
        }
    }
}
