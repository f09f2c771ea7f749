//! VMware's VMDK, read: a text that names files with the data ([`descriptor`]), or one file with tables of
//! grains ([`sparse`]), compressed or not.
//!
//! Facts: VMware's "Virtual Disk Format 5.0". Numbers are stored lowest byte first; places are in sectors of 512
//! bytes.
//!
//! Hazard: a text names files. Only names without a directory are opened, from the directory of the text.
//!
//! What it is not: nothing is written; snapshots (a disk with a parent) and ESX's own sparse formats are refused.

mod descriptor;
mod sparse;

use crate::error::{Error, Result};
use crate::mapped::{Layout, MappedDevice, Source, extent};
use crate::named::Named;
use descriptor::{Content, Descriptor};
use hectare_device::{Device, Extent, FileDevice, FileOptions};
use hectare_probe::record::record;
use hectare_units::{Bytes, index_of, u64_of};
use sparse::Sparse;
use std::path::Path;

const SECTOR: u64 = 512;
/// The longest text that is read; that of a disk of 2,000 files of 2 GiB has 100 KiB.
const TEXT_MAX: u64 = 1 << 20;

/// With what a text begins.
pub(crate) const TEXT_MAGIC: &[u8] = b"# Disk D";

/// The files that a text names.
pub(crate) fn names(file: &FileDevice) -> Result<Vec<String>> {
    let extents = text_of(file)?.extents.into_iter();
    Ok(extents
        .filter_map(|extent| match extent.content {
            Content::Zeros => None,
            Content::Flat { file, .. } | Content::Sparse { file } => Some(file),
        })
        .collect())
}

fn text_of(file: &FileDevice) -> Result<Descriptor> {
    let len = index_of(file.len().get().min(TEXT_MAX));
    let mut text = vec![0; len];
    file.read_at(Bytes::ZERO, &mut text)?;
    Descriptor::parse(file.name(), &String::from_utf8_lossy(&text))
}

pub(crate) fn open(file: FileDevice, path: &Path, named: Named) -> Result<Box<dyn Device>> {
    let name = file.name().to_owned();
    let magic = record(&file, 0, 4)?.map(|head| head.le32(0).to_le_bytes());
    match magic.as_ref().map(|magic| magic.as_slice()) {
        Some(b"KDMV") => {
            let sparse = Sparse::open(Source::new(file))?;
            if let Some(text) = sparse.descriptor()? {
                let _ = Descriptor::parse(&name, &text)?;
            }
            let len = Bytes::new(sparse.len());
            Ok(Box::new(MappedDevice::new(&name, len, sparse)))
        }
        Some(b"COWD") => Err(Error::new(&name, "it is a sparse disk of ESX: qemu-img convert makes it raw")),
        _ => {
            let joined = Joined::open(&name, path, &text_of(&file)?, named)?;
            Ok(Box::new(MappedDevice::new(&name, Bytes::new(joined.len()), joined)))
        }
    }
}

/// A part of a disk that lies in a file of its own.
enum Part {
    Zeros,
    Flat { source: Source, at: u64 },
    Sparse(Sparse),
}

/// The parts of a disk, one after the other.
struct Joined {
    /// Each with the first byte after it.
    parts: Vec<(u64, Part)>,
}

impl Joined {
    fn open(name: &str, path: &Path, descriptor: &Descriptor, mut named: Named) -> Result<Self> {
        let (mut parts, mut end) = (Vec::new(), 0_u64);
        for extent in &descriptor.extents {
            let wrong = |what: &str| Error::new(name, format!("{}: {what}", extent.shown()));
            let len = extent.sectors.checked_mul(SECTOR).ok_or_else(|| wrong("it can't be so long"))?;
            let mut source = |file: &str| -> Result<Source> {
                let path = path.with_file_name(file);
                let file = match named.take(&path)? {
                    Some(file) => file,
                    None => FileOptions::new().exclusive(true).open(path)?,
                };
                Ok(Source::new(file))
            };
            let part = match &extent.content {
                Content::Zeros => Part::Zeros,
                Content::Flat { file, at } => {
                    let (source, at) = (source(file)?, at.saturating_mul(SECTOR));
                    if at.checked_add(len).is_none_or(|end| end > source.len()) {
                        return Err(wrong("the file is shorter"));
                    }
                    Part::Flat { source, at }
                }
                Content::Sparse { file } => {
                    let sparse = Sparse::open(source(file)?)?;
                    if sparse.len() < len {
                        return Err(wrong("the file is shorter"));
                    }
                    Part::Sparse(sparse)
                }
            };
            end = end.checked_add(len).ok_or_else(|| wrong("it can't be so long"))?;
            if len > 0 {
                parts.push((end, part));
            }
        }
        Ok(Self { parts })
    }

    fn len(&self) -> u64 {
        self.parts.last().map_or(0, |(end, _)| *end)
    }
}

impl Layout for Joined {
    fn extent(&self, at: u64, len: u64) -> hectare_device::Result<Extent> {
        let index = self.parts.partition_point(|(end, _)| *end <= at);
        let start = index.checked_sub(1).map_or(0, |before| self.parts[before].0);
        let (end, part) = &self.parts[index];
        match part {
            Part::Zeros => Ok(extent(true, end - at, len)),
            Part::Flat { source, at: first } => {
                let len = Bytes::new(len.min(end - at));
                source.device().extent_at(Bytes::new(first + (at - start)), len)
            }
            Part::Sparse(sparse) => sparse.extent(at - start, len.min(end - at)),
        }
    }

    fn read_some(&self, at: u64, buf: &mut [u8]) -> hectare_device::Result<usize> {
        let index = self.parts.partition_point(|(end, _)| *end <= at);
        let start = index.checked_sub(1).map_or(0, |before| self.parts[before].0);
        let (end, part) = &self.parts[index];
        let len = index_of(u64_of(buf.len()).min(end - at));
        let buf = &mut buf[..len];
        match part {
            Part::Zeros => buf.fill(0),
            Part::Flat { source, at: first } => source.read(first + (at - start), buf)?,
            Part::Sparse(sparse) => return sparse.read_some(at - start, buf),
        }
        Ok(len)
    }
}
