//! From a description to a disk that only needs to be written: sources are read, sizes and places decided.

use crate::content::{Prepared, SourceFile, verity_size};
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::identity::{Identity, partition_of_seed, volume_of_seed};
use crate::layout::{Layout, Need, layout};
use crate::spec::{Content, PartitionType, Rule, Spec, TableKind};
use hectare_units::Bytes;
use std::num::NonZeroUsize;
use uuid::Uuid;

/// Bytes of code that fit before the table.
const CODE_MAX: u64 = 440;

/// A disk that is planned.
pub struct Disk {
    pub(crate) spec: Spec,
    pub(crate) identity: Identity,
    pub(crate) threads: NonZeroUsize,
    pub(crate) contents: Vec<Prepared>,
    pub(crate) blobs: Vec<(String, SourceFile)>,
    pub(crate) boot_code: Vec<u8>,
    pub(crate) layout: Layout,
}

/// What became of a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionSummary {
    /// Its number, from 1.
    pub number: usize,
    /// Its name; empty if it has none.
    pub name: String,
    /// Its type: a name or UUID, or two hexadecimal digits.
    pub kind: String,
    /// Where it begins.
    pub start: Bytes,
    /// How long it is.
    pub len: Bytes,
    /// Its UUID; of an MBR the disk's number and the partition's.
    pub uuid: String,
}

impl Disk {
    /// Reads the sources and decides where everything lies.
    ///
    /// # Errors
    /// If a source can't be read, something does not fit, or things overlap.
    pub fn plan(spec: Spec, env: &Environment<'_>) -> Result<Self> {
        let mut blobs = Vec::new();
        for blob in &spec.blobs {
            let name = format!("the blob {}", blob.file.display());
            let file = SourceFile::open(&blob.file).map_err(|reason| Error::part("blob", reason))?;
            blobs.push((name, file));
        }
        let boot_code = boot_code(&spec)?;
        spec.check_uuids(&spec.partitions.iter().map(|part| part.uuid).collect::<Vec<_>>())?;
        let mut contents = Vec::new();
        for index in 0..spec.partitions.len() {
            let volume = match env.identity {
                Identity::Seed(seed) => spec.partition_by_seed(index, seed).map(volume_of_seed),
                Identity::Content => None,
            };
            contents.push(Prepared::new(&spec, index, env, volume)?);
        }
        let mut needs = Vec::new();
        for (index, content) in contents.iter().enumerate() {
            let (least, size) = (content.size(&spec, index)?, spec.partitions[index].size);
            needs.push(match size.rule {
                Rule::Rest => Need::Rest { least },
                Rule::Grow(weight) => Need::Grow { least, most: size.most, weight },
                _ => Need::Bytes(least),
            });
        }
        trees(&spec, &mut needs)?;
        let lens: Vec<_> = blobs.iter().map(|(name, file)| (name.clone(), file.len())).collect();
        let layout = layout(&spec, &needs, &lens)?;
        for (index, content) in contents.iter().enumerate() {
            let checked = content.check(layout.partitions[index].len);
            checked.map_err(|reason| spec.wrong(index, reason))?;
        }
        Ok(Self { spec, identity: env.identity, threads: env.threads, contents, blobs, boot_code, layout })
    }

    /// The size of the disk.
    #[must_use]
    pub fn size(&self) -> Bytes {
        Bytes::new(self.layout.size)
    }
}

impl Spec {
    /// Refuses partitions of one table that have one UUID.
    pub(crate) fn check_uuids(&self, uuids: &[Option<Uuid>]) -> Result<()> {
        for (index, uuid) in uuids.iter().enumerate().filter(|_| self.table == TableKind::Gpt) {
            let same = uuids[..index].iter().position(|other| uuid.is_some() && other == uuid);
            if let (Some(first), Some(uuid)) = (same, uuid) {
                let reason = format_args!("uuid: {uuid} is that of partition {}, too", first + 1);
                return Err(self.wrong(index, reason));
            }
        }
        Ok(())
    }

    /// The UUID that a seed gives a partition.
    pub(crate) fn partition_by_seed(&self, index: usize, seed: Uuid) -> Option<Uuid> {
        let part = &self.partitions[index];
        let PartitionType::Gpt(kind) = part.kind else { return None };
        let before = self.partitions[..index].iter().filter(|other| other.kind == part.kind).count();
        Some(part.uuid.unwrap_or_else(|| partition_of_seed(seed, kind, before)))
    }
}

/// The sizes of hash trees follow from those of their data.
fn trees(spec: &Spec, needs: &mut [Need]) -> Result<()> {
    for (index, part) in spec.partitions.iter().enumerate() {
        let Content::Verity(verity) = &part.content else { continue };
        match (part.size.rule, needs[verity.data]) {
            (Rule::Exactly(_) | Rule::Rest, Need::Bytes(data)) => {
                verity_size(data).map_err(|reason| spec.wrong(index, reason))?;
            }
            (Rule::Exactly(_), _) => {}
            (_, Need::Bytes(data)) => {
                let tree = verity_size(data).map_err(|reason| spec.wrong(index, reason))?;
                needs[index] = Need::Bytes(tree.max(part.size.least));
            }
            (..) => {
                let data = spec.shown(verity.data);
                let reason = format_args!("size: {data} has no size of its own, so give bytes here");
                return Err(spec.wrong(index, reason));
            }
        }
    }
    Ok(())
}

/// The code for the first sector.
fn boot_code(spec: &Spec) -> Result<Vec<u8>> {
    let Some(path) = &spec.boot_code else { return Ok(Vec::new()) };
    let failed = |reason: String| Error::part("boot-code", reason);
    let file = SourceFile::open(path).map_err(failed)?;
    let bytes = match file.len() {
        len if len > 512 => {
            Err(format!("{}: it has {len} bytes, and there is room for {CODE_MAX}", path.display()))
        }
        _ => file.bytes(),
    };
    let mut bytes = bytes.map_err(failed)?;
    let room = usize::try_from(CODE_MAX).unwrap_or(bytes.len());
    if bytes.len() == 512 {
        // A whole sector: what is in the place of the table is not the code's.
        bytes.truncate(room);
    }
    match bytes.len() > room {
        true => Err(failed(format!(
            "{}: it has {} bytes, and there is room for {CODE_MAX}",
            path.display(),
            bytes.len()
        ))),
        false => Ok(bytes),
    }
}
