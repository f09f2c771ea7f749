//! The formats of the crashing volumes: small, with the smallest journal, so that the log wraps and states
//! are cheap.

use super::devices::{Parts, Sizes};
use hectare_device::{Device, MemoryDevice};
use hectare_engine::{Creation, DataMode, OpenOptions, Timestamp, Volume};
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::map::MapKind;
use hectare_ext4::superblock::{self, SuperBlock};
use hectare_mkfs::{FormatOptions, InodeCount, Plan, execute, parse_features};
use hectare_tools::error::{Error, Result};
use hectare_units::{BlockSize, Bytes, GroupNr, index_of, u64_of};
use std::sync::Arc;

/// One way to make a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Format {
    /// What it is called.
    pub name: &'static str,
    block_size: BlockSize,
    mib: u64,
    /// Added to those of ext4.
    features: &'static str,
    cluster_size: Option<u64>,
    clusters_per_group: Option<u32>,
    /// Whether the volume's default is `data=journal`: more is promised then.
    pub(super) journals_data: bool,
    /// Whether the journal lies on a disk of its own.
    external: bool,
    /// Blocks of the journal's fast-commit area.
    fast_blocks: u64,
}

const fn format(name: &'static str, block_size: BlockSize, mib: u64, features: &'static str) -> Format {
    let (cluster_size, clusters_per_group) = (None, Some(2048));
    Format {
        name,
        block_size,
        mib,
        features,
        cluster_size,
        clusters_per_group,
        journals_data: false,
        external: false,
        fast_blocks: 0,
    }
}

/// With the journal on a disk of its own.
const fn external(name: &'static str, block_size: BlockSize, mib: u64) -> Format {
    Format { external: true, ..format(name, block_size, mib, "") }
}

/// All of them. Groups are small, so that there are some.
pub const FORMATS: [Format; 26] = [
    format("1k", BlockSize::KIB1, 8, "orphan_file"),
    format("1k-plain", BlockSize::KIB1, 8, "^metadata_csum,^64bit"),
    format("1k-orphan-list", BlockSize::KIB1, 8, "^flex_bg"),
    format("4k", BlockSize::KIB4, 16, "orphan_file,metadata_csum_seed"),
    format("4k-plain", BlockSize::KIB4, 16, "^metadata_csum,^64bit,uninit_bg"),
    Format {
        cluster_size: Some(4096),
        clusters_per_group: None,
        ..format("1k-bigalloc", BlockSize::KIB1, 16, "bigalloc,orphan_file")
    },
    Format { journals_data: true, ..format("1k-data", BlockSize::KIB1, 8, "orphan_file") },
    Format { journals_data: true, ..format("4k-data", BlockSize::KIB4, 16, "^64bit") },
    Format {
        cluster_size: Some(16384),
        clusters_per_group: None,
        ..format("4k-bigalloc", BlockSize::KIB4, 32, "bigalloc")
    },
    format("1k-values", BlockSize::KIB1, 8, "ea_inode"),
    format("4k-values", BlockSize::KIB4, 16, "ea_inode,orphan_file"),
    external("1k-external", BlockSize::KIB1, 8),
    external("4k-external", BlockSize::KIB4, 16),
    Format {
        cluster_size: Some(4096),
        clusters_per_group: None,
        journals_data: true,
        ..format("1k-bigalloc-data", BlockSize::KIB1, 16, "bigalloc,orphan_file")
    },
    Format {
        cluster_size: Some(16384),
        clusters_per_group: None,
        journals_data: true,
        ..format("4k-bigalloc-data", BlockSize::KIB4, 32, "bigalloc")
    },
    Format { journals_data: true, ..external("1k-external-data", BlockSize::KIB1, 8) },
    format("1k-inline", BlockSize::KIB1, 8, "inline_data"),
    format("4k-inline", BlockSize::KIB4, 16, "inline_data,orphan_file"),
    Format { journals_data: true, ..format("1k-inline-data", BlockSize::KIB1, 8, "inline_data") },
    format("1k-blocks", BlockSize::KIB1, 8, BLOCK_MAPS),
    format("4k-blocks", BlockSize::KIB4, 16, BLOCK_MAPS),
    Format { journals_data: true, ..format("1k-blocks-data", BlockSize::KIB1, 8, BLOCK_MAPS) },
    // Every file has an owner of its own.
    format("1k-quota", BlockSize::KIB1, 8, "quota,project,orphan_file"),
    format("4k-quota", BlockSize::KIB4, 16, "quota,^metadata_csum"),
    Format { fast_blocks: FAST_BLOCKS, ..format("1k-fast", BlockSize::KIB1, 8, "fast_commit,orphan_file") },
    Format { fast_blocks: FAST_BLOCKS, ..format("4k-fast", BlockSize::KIB4, 16, "fast_commit") },
];

/// Without what ext3 lacks: files are mapped by blocks.
const BLOCK_MAPS: &str = "^extent,^64bit,^flex_bg,^metadata_csum,^huge_file";

/// Blocks of the smallest journal.
const JOURNAL_BLOCKS: u64 = 1024;

/// Blocks that mkfs adds to the journal for fast commits: a 64th.
const FAST_BLOCKS: u64 = JOURNAL_BLOCKS / 64;

/// The file in the root that takes what is not to be left.
pub(super) const BALLAST: &str = "ballast";

/// When everything happens.
pub(super) const NOW: Timestamp = Timestamp { seconds: 1_750_000_000, nanoseconds: 0 };

/// How volumes are opened: no thread of their own, one time, one seed.
pub(super) fn open_options(seed: u64) -> OpenOptions {
    OpenOptions {
        fixed_time: Some(NOW),
        seed: Some(seed),
        commit_interval: None,
        cache_bytes: 1 << 20,
        cache_inodes: 1024,
        ..OpenOptions::default()
    }
}

impl Format {
    /// The format with this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        FORMATS.into_iter().find(|format| format.name == name)
    }

    /// Bytes of a cluster, the unit of space.
    pub(super) fn unit(self) -> u64 {
        self.cluster_size.unwrap_or(u64::from(self.block_size.get()))
    }

    /// Whether files are mapped by blocks.
    pub(super) fn maps_by_blocks(self) -> bool {
        self.features == BLOCK_MAPS
    }

    /// Whether it has room for attribute values that no block holds.
    pub(super) fn has_large_values(self) -> bool {
        self.features.split(',').any(|feature| feature == "ea_inode")
    }

    /// Bytes of the volume.
    pub(super) fn len(self) -> Bytes {
        Bytes::mib(self.mib)
    }

    /// The sizes of its disks.
    pub(super) fn sizes(self) -> Sizes {
        Sizes { format: self.name, volume: self.len(), journal: self.journal_len() }
    }

    /// Bytes of the journal's own disk; none if it has none.
    fn journal_len(self) -> Bytes {
        let blocks = if self.external { JOURNAL_BLOCKS } else { 0 };
        Bytes::new(blocks * u64::from(self.block_size.get()))
    }

    /// Where the journal lies, if its first block, which is the first that is written, lies at a byte.
    pub(super) fn journal_at(self, first: u64) -> std::ops::Range<u64> {
        let first = first - first % u64::from(self.block_size.get());
        first..first + (JOURNAL_BLOCKS + self.fast_blocks) * u64::from(self.block_size.get())
    }

    /// A volume with a directory for each thread, and, if little is to be left of its space, with a file
    /// that takes the rest.
    ///
    /// # Errors
    /// If it can't be made.
    pub(super) fn make(
        self,
        seed: u64,
        tops: &[(String, u32)],
        left: Option<Bytes>,
    ) -> Result<Arc<MemoryDevice>> {
        let at = |reason: String| Error::at(format!("volume {}", self.name), reason);
        let device = Arc::new(MemoryDevice::new(self.len() + self.journal_len()));
        let parts = Parts::of(self.sizes(), &(Arc::clone(&device) as Arc<dyn Device>))?;
        let per_group = self.clusters_per_group.map(|n| n.min(self.block_size.get() * 2));
        let options = FormatOptions {
            block_size: Some(self.block_size),
            cluster_size: self.cluster_size,
            inodes: InodeCount::Exactly(768),
            uuid: Some([0x11; 16]),
            hash_seed: Some([0x22; 16]),
            features: parse_features(self.features).map_err(|e| at(e.to_string()))?,
            journal_mib: (!self.external)
                .then_some((JOURNAL_BLOCKS * u64::from(self.block_size.get())) >> 20),
            clusters_per_group: per_group,
            now: NOW,
            ..FormatOptions::default()
        };
        let journal_device = parts.make_journal(&options).map_err(|e| at(e.to_string()))?;
        let options = FormatOptions { journal_device, ..options };
        let plan = Plan::new(&options, self.len(), true).map_err(|e| at(e.to_string()))?;
        execute(&plan, &*parts.volume, &plan.empty(), 1).map_err(|e| at(e.to_string()))?;
        if self.journals_data {
            ask_for_data_journalling(&*parts.volume).map_err(at)?;
        }
        parts.join(self.block_size, plan.superblock().uuid()).map_err(|e| at(e.to_string()))?;
        let volume = parts.open(open_options(seed)).map_err(|e| at(e.to_string()))?;
        for (top, id) in tops {
            let creation = Creation { uid: *id, ..Creation::default() };
            volume.create_dir(top, creation).map_err(|e| at(e.to_string()))?;
        }
        if let Some(left) = left {
            take_all_but(&volume, left).map_err(|e| at(e.to_string()))?;
        }
        volume.close().map_err(|e| at(e.to_string()))?;
        Ok(device)
    }
}

/// Sets a volume's default to `data=journal`.
fn ask_for_data_journalling(device: &dyn Device) -> std::result::Result<(), String> {
    let mut bytes = [0; superblock::SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).map_err(|error| error.to_string())?;
    let mut sb = SuperBlock::parse(&bytes, device.len()).map_err(|error| error.to_string())?;
    sb.set_default_data_mode(Some(DataMode::Journal));
    device.write_at(SUPERBLOCK_OFFSET, &sb.render(GroupNr::new(0))).map_err(|error| error.to_string())
}

/// Gives nearly all space to one file.
fn take_all_but(volume: &Volume, left: Bytes) -> hectare_engine::Result<()> {
    let file = volume.create_file(BALLAST, Creation::default())?;
    let stat = volume.statfs()?;
    let available = stat.available.get() << stat.block_size.shift();
    let len = available.saturating_sub(left.get()).max(1);
    if MapKind::of(file.metadata()?.flags) == MapKind::Extents {
        // What its own tree takes comes off what is left.
        return file.allocate(0, len, false);
    }
    let chunk = vec![0; 1 << 16];
    let mut at = 0;
    while volume.statfs()?.available.get() << stat.block_size.shift() > left.get() {
        at += u64_of(file.write_at(at, &chunk[..chunk.len().min(index_of(left.get().max(1)))])?);
    }
    file.sync()
}
