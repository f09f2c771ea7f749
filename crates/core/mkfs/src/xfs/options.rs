//! The options of an XFS format, with the defaults of xfsprogs 6.1.
//!
//! Values that are wrong by themselves are refused where they are read ([`super::parse`]); values that are
//! wrong only together, or for a size, are refused where the geometry is chosen.

use crate::derived;
use crate::error::{Error, Result};
use crate::values::time_of_format;
use hectare_device::Topology;
use hectare_ext4::time::Timestamp;
use hectare_units::{BlockSize, Bytes};

/// How long allocation groups are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum GroupSize {
    /// As the size of the volume suggests.
    #[default]
    ByVolume,
    /// So that there are that many.
    Count(u32),
    /// A number of bytes.
    Bytes(Bytes),
}

/// How long the log is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogSize {
    /// As the size of the volume suggests.
    #[default]
    ByVolume,
    /// A number of bytes.
    Bytes(Bytes),
}

/// How the storage is striped, in bytes; both 0 for not at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StripeOption {
    /// Bytes on one disk before the next one's turn.
    pub unit: u64,
    /// Bytes on all data disks.
    pub width: u64,
}

/// What a volume is to be like.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FormatOptions {
    /// Bytes of a block, 1 KiB to 64 KiB.
    pub block_size: BlockSize,
    /// Bytes of a sector, 512 to 32768, a power of two; as the device says if not given.
    pub sector_size: Option<u32>,
    /// Bytes of an inode, 512 to 2048, a power of two.
    pub inode_size: u32,
    /// Percent of the space that inodes may take; by the volume's size if not given. mkfs.xfs takes 0 for not
    /// given, whatever its manual says; so does [`super::parse`].
    pub inode_percent: Option<u8>,
    /// Bytes of a directory block; a block, at least 4 KiB, if not given.
    pub directory_block_size: Option<u32>,
    /// How long allocation groups are.
    pub group_size: GroupSize,
    /// How long the log is.
    pub log_size: LogSize,
    /// Bytes that writes of the log are rounded up to, a multiple of the block, at most 256 KiB; as the
    /// stripe says if not given.
    pub log_unit: Option<u32>,
    /// How the storage is striped; as the device says if not given.
    pub stripe: Option<StripeOption>,
    /// What the device is like.
    pub device: Topology,
    /// Bytes of the volume; all of the device if not given.
    pub size: Option<Bytes>,
    /// A tree of inode chunks with free inodes.
    pub finobt: bool,
    /// A tree of owners.
    pub rmapbt: bool,
    /// Files may share blocks.
    pub reflink: bool,
    /// Times until 2486.
    pub bigtime: bool,
    /// Blocks of inode trees are counted; where there is a `finobt` if not given.
    pub inobtcount: Option<bool>,
    /// Inode chunks may have holes.
    pub sparse: bool,
    /// Many more extents in a file.
    pub nrext64: bool,
    /// The label, up to 12 bytes.
    pub label: Vec<u8>,
    /// The UUID, random if not given.
    pub uuid: Option<[u8; 16]>,
    /// Whether what the device holds is given up first.
    pub discard: bool,
    /// The time that the first inodes get.
    pub now: Timestamp,
}

impl Default for FormatOptions {
    fn default() -> Self {
        Self {
            block_size: BlockSize::KIB4,
            sector_size: None,
            inode_size: 512,
            inode_percent: None,
            directory_block_size: None,
            group_size: GroupSize::default(),
            log_size: LogSize::default(),
            log_unit: None,
            stripe: None,
            device: Topology::default(),
            size: None,
            finobt: true,
            rmapbt: false,
            reflink: true,
            bigtime: true,
            inobtcount: None,
            sparse: true,
            nrext64: false,
            label: Vec::new(),
            uuid: None,
            discard: true,
            now: Timestamp::now(),
        }
    }
}

impl FormatOptions {
    /// The defaults, with `SOURCE_DATE_EPOCH` as the time if that is set.
    ///
    /// # Errors
    /// If it is set to something else than a number.
    pub fn from_environment() -> Result<Self> {
        Ok(Self { now: time_of_format()?, ..Self::default() })
    }

    /// Makes a volume of `size` depend on nothing but the options and the time of the format: a UUID that was
    /// not given is derived from them, instead of drawn.
    pub fn derive_identity(&mut self, size: Bytes) {
        let (uuid, _) = derived::of_empty("xfs", &self.label, self.now.seconds, size.get());
        self.uuid.get_or_insert(uuid);
    }

    /// The label, padded with zeros.
    ///
    /// # Errors
    /// If it is longer than 12 bytes.
    pub(super) fn padded_label(&self) -> Result<[u8; 12]> {
        let mut label = [0; 12];
        let place = label.get_mut(..self.label.len()).ok_or_else(|| {
            let reason = format!("a label has up to 12 bytes, this one {}", self.label.len());
            Error::option(format!("-L {}", String::from_utf8_lossy(&self.label)), reason)
        })?;
        place.copy_from_slice(&self.label);
        Ok(label)
    }
}
