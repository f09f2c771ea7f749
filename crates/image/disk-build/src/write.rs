//! Writes a planned disk: blobs and contents, then the hash trees, then the table.

use crate::error::{Error, Result};
use crate::identity::{self, Described, Identity, Slot};
use crate::plan::{Disk, PartitionSummary};
use crate::spec::{Content, PartitionType, TableKind, Verity};
use crate::table::{self, Entry, Head};
use crate::{types, verity};
use hectare_device::{Device, SliceDevice};
use hectare_populate::Progress;
use hectare_units::{Bytes, hex, u64_of};
use uuid::Uuid;

/// What was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Made {
    /// The UUID of the disk, or the number of its MBR in eight digits.
    pub uuid: String,
    /// The partitions, in the order of their numbers.
    pub partitions: Vec<PartitionSummary>,
    /// The root hashes of partitions with a hash tree.
    pub root_hashes: Vec<RootHash>,
}

/// The root hash of a partition with a hash tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RootHash {
    /// The number of the partition that it verifies, from 1.
    pub number: usize,
    /// What its file is called behind the disk's name: `roothash`, `usrhash`, or `partN.roothash`.
    pub suffix: String,
    /// The hash in hexadecimal digits.
    pub hash: String,
}

impl Disk {
    /// Writes the disk to a device of at least [`size`](Self::size) bytes that reads as zeros, and flushes
    /// it.
    ///
    /// # Errors
    /// If a source can't be read or changed since the plan, or the device fails; the device then has no
    /// table.
    pub fn write(&self, device: &dyn Device, progress: &dyn Progress) -> Result<Made> {
        if device.len() < self.size() || !device.is_zeroed() {
            let reason = format!("a disk of {} bytes is made on zeros of that length", self.size());
            return Err(Error::part(device.name(), reason));
        }
        let slice = |index: usize| {
            let place = &self.layout.partitions[index];
            SliceDevice::new(device, Bytes::new(place.start), Bytes::new(place.len))
        };
        let mut standing: Vec<Vec<u8>> = Vec::new();
        for ((name, file), blob) in self.blobs.iter().zip(&self.spec.blobs) {
            let copied = file.copy(device, Bytes::new(blob.offset), progress);
            standing.push(copied.map_err(|reason| Error::part(name, reason))?);
        }
        let mut contents = Vec::new();
        for (index, content) in self.contents.iter().enumerate() {
            let shown = self.spec.shown(index);
            contents.push(content.write(&slice(index)?, &shown, self.threads, progress)?);
        }
        let mut uuids: Vec<Option<Uuid>> = self.spec.partitions.iter().map(|part| part.uuid).collect();
        let mut root_hashes: Vec<RootHash> = Vec::new();
        for (index, part) in self.spec.partitions.iter().enumerate() {
            let Content::Verity(wanted) = &part.content else { continue };
            let root = self.tree(wanted, &slice(wanted.data)?, &slice(index)?, &contents[wanted.data])?;
            // The discoverable partitions specification: the halves of the root hash name the two.
            let half = |from: usize| Uuid::from_bytes(std::array::from_fn(|at| root[from + at]));
            uuids[wanted.data].get_or_insert(half(0));
            uuids[index].get_or_insert(half(16));
            contents[index] = root.to_vec();
            root_hashes.push(self.root_hash(wanted.data, &root, &root_hashes));
        }
        standing.extend(contents.iter().cloned());
        let made = self.write_table(device, &contents, &uuids, &standing)?;
        device.flush()?;
        Ok(Made { root_hashes, ..made })
    }

    /// Writes a hash tree; returns its root hash.
    fn tree(
        &self,
        wanted: &Verity,
        data: &dyn Device,
        target: &dyn Device,
        content: &[u8],
    ) -> Result<[u8; 32]> {
        let (derived, derived_uuid) =
            Slot::of(wanted.data, &self.spec.partitions[wanted.data].name).salt(content);
        let salt = wanted.salt.as_deref().unwrap_or(&derived);
        verity::write(data, target, (salt, wanted.uuid.unwrap_or(derived_uuid)), self.threads)
    }

    fn root_hash(&self, data: usize, root: &[u8], before: &[RootHash]) -> RootHash {
        let usual = self.spec.partitions[data].kind.gpt().and_then(types::hash_suffix);
        let usual = usual.filter(|suffix| before.iter().all(|other| other.suffix != *suffix));
        let number = data + 1;
        let suffix = usual.map_or_else(|| format!("part{number}.roothash"), str::to_owned);
        RootHash { number, suffix, hash: hex(root) }
    }

    /// Writes the table, with UUIDs for what has none.
    fn write_table(
        &self,
        device: &dyn Device,
        contents: &[Vec<u8>],
        given: &[Option<Uuid>],
        standing: &[Vec<u8>],
    ) -> Result<Made> {
        let uuid_of = |index: usize| {
            let part = &self.spec.partitions[index];
            let kind = match part.kind {
                PartitionType::Gpt(kind) => kind.as_bytes().to_vec(),
                PartitionType::Mbr(kind) => vec![kind],
            };
            let what = Described { number: index, kind: &kind, name: &part.name, content: &contents[index] };
            let by_seed = match self.identity {
                Identity::Seed(seed) => self.spec.partition_by_seed(index, seed),
                Identity::Content => None,
            };
            given[index].or(by_seed).unwrap_or_else(|| identity::partition_of_content(&what))
        };
        let uuids: Vec<Uuid> = (0..given.len()).map(uuid_of).collect();
        self.spec.check_uuids(&uuids.iter().copied().map(Some).collect::<Vec<_>>())?;
        let (uuid, disk_id) = self.disk_identity(&uuids, standing);
        let entries: Vec<Entry<'_>> = self
            .spec
            .partitions
            .iter()
            .zip(&self.layout.partitions)
            .zip(&uuids)
            .map(|((part, place), uuid)| Entry {
                kind: part.kind,
                uuid: *uuid,
                name: &part.name,
                attributes: part.attributes,
                active: part.active,
                start: place.start,
                len: place.len,
            })
            .collect();
        let head = Head { sector: self.spec.sector, uuid, disk_id, boot_code: &self.boot_code };
        table::write(device, self.spec.table, &head, &entries)?;
        let summary = |(index, entry): (usize, &Entry<'_>)| PartitionSummary {
            number: index + 1,
            name: entry.name.to_owned(),
            kind: match entry.kind {
                PartitionType::Gpt(kind) => {
                    types::gpt_name(kind).map_or_else(|| kind.to_string(), str::to_owned)
                }
                PartitionType::Mbr(kind) => format!("{kind:02x}"),
            },
            start: Bytes::new(entry.start),
            len: Bytes::new(entry.len),
            uuid: match self.spec.table {
                TableKind::Gpt => entry.uuid.to_string(),
                TableKind::Mbr => format!("{disk_id:08x}-{:02x}", index + 1),
            },
        };
        Ok(Made {
            uuid: match self.spec.table {
                TableKind::Gpt => uuid.to_string(),
                TableKind::Mbr => format!("{disk_id:08x}"),
            },
            partitions: entries.iter().enumerate().map(summary).collect(),
            root_hashes: Vec::new(),
        })
    }

    fn disk_identity(&self, uuids: &[Uuid], standing: &[Vec<u8>]) -> (Uuid, u32) {
        let size = self.layout.size.to_le_bytes();
        let count = u64_of(uuids.len()).to_le_bytes();
        let parts = uuids.iter().map(|uuid| uuid.as_bytes().as_slice());
        let all =
            [size.as_slice(), &count].into_iter().chain(parts).chain(standing.iter().map(Vec::as_slice));
        let (by_content, more) = identity::disk_of_content(all);
        let by_seed = match self.identity {
            Identity::Seed(seed) => Some(identity::disk_of_seed(seed)),
            Identity::Content => None,
        };
        let id = u32::from_le_bytes(std::array::from_fn(|at| more[at])).max(1);
        (self.spec.uuid.or(by_seed).unwrap_or(by_content), self.spec.disk_id.unwrap_or(id))
    }
}
