//! What to change: a value for each option of tune2fs.

use hectare_device::Device;
use hectare_ext4::dir::HashVersion;
use hectare_ext4::quota;
use hectare_ext4::superblock::OnError;
use hectare_ext4::time::Timestamp;
pub use hectare_mkfs::FeatureEdit;
use hectare_units::{BlockNr, Blocks};
use std::fmt;
use std::sync::Arc;

/// Blocks that only root may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reserved {
    /// A share of all blocks, in thousandths of a percent.
    Share(u32),
    /// A number.
    Blocks(Blocks),
}

/// Quotas of a kind, to be kept or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuotaEdit {
    /// Of which kind.
    pub kind: quota::Kind,
    /// Whether they are kept.
    pub on: bool,
}

/// A journal on a device of its own.
#[derive(Clone)]
pub struct ExternalJournal {
    /// The device.
    pub device: Arc<dyn Device>,
    /// The device's number as the kernel stores it; 0 for a file.
    pub number: u32,
}

impl fmt::Debug for ExternalJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalJournal").field("device", &self.device.name()).finish_non_exhaustive()
    }
}

/// What to change; `None`, empty and false leave things as they are.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// The label, at most 16 bytes (`-L`).
    pub label: Option<Vec<u8>>,
    /// Where the volume was last mounted, at most 64 bytes (`-M`).
    pub last_mounted: Option<Vec<u8>>,
    /// The UUID (`-U`).
    pub uuid: Option<[u8; 16]>,
    /// Blocks that only root may take (`-m`, `-r`).
    pub reserved: Option<Reserved>,
    /// Who may take them beside root (`-u`).
    pub reserved_uid: Option<u16>,
    /// The group that may take them (`-g`).
    pub reserved_gid: Option<u16>,
    /// What to do on errors (`-e`).
    pub on_error: Option<OnError>,
    /// Mounts between two checks; -1 for never (`-c`).
    pub mounts_max: Option<i16>,
    /// Mounts since the last check (`-C`).
    pub mounts: Option<u16>,
    /// Seconds between two checks; 0 for never (`-i`).
    pub check_interval: Option<u32>,
    /// When the volume was last checked, in seconds since 1970 (`-T`).
    pub last_checked: Option<u64>,
    /// Default mount options: bits to clear, then bits to set, in order (`-o`).
    pub mount_defaults: Vec<(u32, u32)>,
    /// Mount options as text, at most 63 bytes (`-E mount_opts=`).
    pub mount_options: Option<Vec<u8>>,
    /// Features to turn on and off, in order (`-O`).
    pub features: Vec<FeatureEdit>,
    /// Quotas to keep or not (`-Q`).
    pub quotas: Vec<QuotaEdit>,
    /// Bytes of an inode (`-I`).
    pub inode_size: Option<u32>,
    /// MiB of a new journal (`-J size=`).
    pub journal_mib: Option<u32>,
    /// Blocks of its fast-commit area, in KiB (`-J fast_commit_size=`).
    pub fast_commit_kib: Option<u32>,
    /// From which block on a new journal lies (`-J location=`).
    pub journal_location: Option<BlockNr>,
    /// The journal on another device that is to be used, or left (`-J device=`).
    pub journal_device: Option<ExternalJournal>,
    /// Leaves a journal on another device as it is, or takes one that says it is in use (`-f`).
    pub force: bool,
    /// The hash of new directory indexes (`-E hash_alg=`).
    pub hash: Option<HashVersion>,
    /// Blocks read from one disk of an array (`-E stride=`).
    pub stride: Option<u16>,
    /// Blocks of a whole stripe (`-E stripe_width=`).
    pub stripe_width: Option<u32>,
    /// Seconds between two updates of the multiple mount protection (`-E mmp_update_interval=`).
    pub mmp_interval: Option<u16>,
    /// Clears the mark of a user of the volume that is no more (`-E clear_mmp`).
    pub clear_mmp: bool,
    /// Marks the volume so that the next e2fsck checks it (`-E force_fsck`).
    pub force_check: bool,
    /// Sets or clears the mark that unfinished code may work on it (`-E test_fs`, `-E ^test_fs`).
    pub test_volume: Option<bool>,
    /// The time of the change.
    pub now: Timestamp,
}
