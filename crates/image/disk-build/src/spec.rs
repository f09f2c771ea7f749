//! The description of a disk, after it was read: every name is a path that can be opened, every size a
//! number.
//!
//! [`Spec::parse`] reads TOML (`form` has the keys); `repart` makes the same of another format. What is
//! checked here needs no source: what does is checked by the plan.

pub(crate) mod convert;
mod form;

use crate::error::{Error, Result};
use hectare_mkfs::FormatOptions;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// A kind of partition table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TableKind {
    /// The table of UEFI.
    #[default]
    Gpt,
    /// The older one, with four partitions.
    Mbr,
}

/// The description of a disk.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The file, as errors name it.
    pub(crate) file: String,
    pub(crate) table: TableKind,
    /// Bytes of a sector: 512 or 4096.
    pub(crate) sector: u32,
    /// What starts of partitions are a multiple of, where nothing else is said.
    pub(crate) align: u64,
    /// What the disk's size is a multiple of.
    pub(crate) round: u64,
    /// The size of the disk; the smallest if not given.
    pub(crate) size: Option<u64>,
    pub(crate) uuid: Option<Uuid>,
    /// The number of an MBR.
    pub(crate) disk_id: Option<u32>,
    pub(crate) boot_code: Option<PathBuf>,
    pub(crate) blobs: Vec<Blob>,
    pub(crate) partitions: Vec<Partition>,
    /// What is worth knowing, a line each.
    pub(crate) warnings: Vec<String>,
}

/// Bytes at a place outside of all partitions.
#[derive(Clone, Debug)]
pub(crate) struct Blob {
    pub(crate) file: PathBuf,
    pub(crate) offset: u64,
}

/// A partition.
#[derive(Clone, Debug)]
pub(crate) struct Partition {
    /// Where the description has it, for errors.
    pub(crate) file: String,
    pub(crate) line: Option<usize>,
    pub(crate) name: String,
    pub(crate) kind: PartitionType,
    pub(crate) uuid: Option<Uuid>,
    /// The flags of a GPT.
    pub(crate) attributes: u64,
    /// The flag of an MBR.
    pub(crate) active: bool,
    pub(crate) start: Option<u64>,
    pub(crate) align: Option<u64>,
    pub(crate) size: Sizing,
    pub(crate) content: Content,
}

/// What a partition is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PartitionType {
    Gpt(Uuid),
    Mbr(u8),
}

impl PartitionType {
    pub(crate) const fn gpt(self) -> Option<Uuid> {
        match self {
            Self::Gpt(uuid) => Some(uuid),
            Self::Mbr(_) => None,
        }
    }
}

/// How large a partition is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sizing {
    pub(crate) rule: Rule,
    /// No smaller than that.
    pub(crate) least: u64,
    /// No larger than that.
    pub(crate) most: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    /// As small as the content allows.
    Min,
    /// As small as the content allows, and a tenth more for file systems that take files later.
    Roomy,
    /// As small as the content allows, and that many bytes more.
    Free(u64),
    /// What no other partition takes.
    Rest,
    /// That many bytes.
    Exactly(u64),
    /// As small as the content allows, and a share of what is left on a disk of a given size: the weight.
    Grow(u32),
}

impl Sizing {
    pub(crate) const fn of(rule: Rule) -> Self {
        Self { rule, least: 0, most: None }
    }
}

/// What a partition holds.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// Nothing: zeros.
    Empty,
    /// The bytes of a file.
    File(PathBuf),
    /// An ext volume.
    Ext(Box<Ext>),
    /// A FAT volume.
    Fat(Box<Fat>),
    /// An empty XFS volume.
    Xfs(Box<Xfs>),
    /// The hash tree of the partition with this index.
    Verity(Verity),
}

/// An ext volume.
#[derive(Clone, Debug)]
pub(crate) struct Ext {
    pub(crate) files: Files,
    pub(crate) format: FormatOptions,
    pub(crate) fs_verity: Vec<String>,
    pub(crate) dedupe: bool,
}

/// A FAT volume.
#[derive(Clone, Debug)]
pub(crate) struct Fat {
    pub(crate) files: Files,
    pub(crate) label: Option<[u8; 11]>,
    pub(crate) id: Option<u32>,
    /// 12, 16 or 32.
    pub(crate) bits: Option<u8>,
    pub(crate) cluster: Option<u32>,
}

/// An empty XFS volume.
#[derive(Clone, Debug)]
pub(crate) struct Xfs {
    pub(crate) format: hectare_mkfs::xfs::FormatOptions,
}

/// The hash tree of another partition.
#[derive(Clone, Debug)]
pub(crate) struct Verity {
    /// The index of the partition it is for.
    pub(crate) data: usize,
    pub(crate) salt: Option<Vec<u8>>,
    pub(crate) uuid: Option<Uuid>,
}

/// Where the files of a volume come from, and what is changed in them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files {
    /// Directories, archives and so on, as `hectare build --from` takes them.
    pub(crate) from: Vec<OsString>,
    /// What makes an argument of `from` wrong: the key, for errors.
    pub(crate) options: hectare_populate::Options,
}

impl Spec {
    /// Reads a description in TOML. `path` is its file, from whose directory relative paths start.
    ///
    /// # Errors
    /// With the file, the line and the key.
    pub fn parse(path: &Path, text: &str) -> Result<Self> {
        convert::spec(path, text)
    }

    /// The kind of the table.
    #[must_use]
    pub fn table(&self) -> TableKind {
        self.table
    }

    /// Gives the disk this many bytes, whatever the description says.
    ///
    /// # Errors
    /// If they are not whole sectors.
    pub fn set_size(&mut self, bytes: u64) -> std::result::Result<(), String> {
        if !bytes.is_multiple_of(u64::from(self.sector)) {
            return Err(format!("{bytes} bytes are not whole sectors of {}", self.sector));
        }
        self.size = Some(bytes);
        Ok(())
    }

    /// What is worth knowing of the description, a line each.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// A partition as errors name it.
    pub(crate) fn shown(&self, index: usize) -> String {
        match self.partitions.get(index) {
            Some(part) if !part.name.is_empty() => format!("partition {} '{}'", index + 1, part.name),
            _ => format!("partition {}", index + 1),
        }
    }

    /// An error about a partition, with its place in the description.
    pub(crate) fn wrong(&self, index: usize, reason: impl std::fmt::Display) -> Error {
        let shown = self.shown(index);
        match self.partitions.get(index) {
            Some(part) => {
                Error::Spec { file: part.file.clone(), line: part.line, reason: format!("{shown}: {reason}") }
            }
            None => Error::part(shown, reason),
        }
    }
}
