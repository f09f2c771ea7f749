//! Options that `mkfs` and `build` share: those of mke2fs that describe a volume.

use crate::failure::{Failure, Outcome};
use crate::size_arg::parse_size;
use hectare_device::os::OsStrExt;
use hectare_ext4::superblock::UnknownBehaviour;
use hectare_mkfs::{FormatOptions, InodeCount, apply_extended, parse_features, parse_uuid};
use hectare_units::BlockSize;
use std::ffi::OsString;
use std::path::Path;

/// The format of a volume.
#[derive(clap::Args, Clone, Default, PartialEq)]
pub(crate) struct FormatArguments {
    /// Bytes per block: 1024 to 65536; -BYTES for no fewer than that
    #[arg(short = 'b', value_name = "BYTES", value_parser = BlockBytes::parse, allow_hyphen_values = true)]
    block_size: Option<BlockBytes>,
    /// Bytes per cluster (with -O bigalloc)
    #[arg(short = 'C', value_name = "BYTES", value_parser = parse_size)]
    cluster_size: Option<u64>,
    /// Bytes per inode
    #[arg(short = 'I', value_name = "BYTES")]
    inode_size: Option<u32>,
    /// Bytes of volume per inode
    #[arg(short = 'i', value_name = "BYTES", value_parser = parse_size)]
    inode_ratio: Option<u64>,
    /// Number of inodes, whatever -i says
    #[arg(short = 'N', value_name = "COUNT")]
    inodes: Option<u64>,
    /// Percent of the blocks reserved for root
    #[arg(short = 'm', value_name = "PERCENT")]
    reserved: Option<f64>,
    /// The label, up to 16 bytes
    #[arg(short = 'L', value_name = "LABEL")]
    label: Option<OsString>,
    /// The last-mounted directory to record
    #[arg(short = 'M', value_name = "FOLDER")]
    last_mounted: Option<OsString>,
    /// The UUID, or: clear, random, time
    #[arg(short = 'U', value_name = "UUID")]
    uuid: Option<String>,
    /// Features to turn on, or off with a ^ before the name
    #[arg(short = 'O', value_name = "FEATURE,^FEATURE")]
    features: Vec<String>,
    /// Extended options: stride=, stripe_width=, lazy_itable_init=, packed_meta_blocks=, hash_seed=,
    /// root_owner= ...
    #[arg(short = 'E', value_name = "OPTION=VALUE,...")]
    pub(crate) extended: Vec<String>,
    /// Journal options: size=MIB, or device=FILE, device=UUID=UUID or device=LABEL=LABEL for a journal on another
    /// device (made with -O journal_dev)
    #[arg(short = 'J', value_name = "size=MIB|device=FILE")]
    journal: Option<String>,
    /// Number of groups in a flex group
    #[arg(short = 'G', value_name = "GROUPS")]
    flex_groups: Option<u32>,
    /// Blocks per group; clusters with bigalloc
    #[arg(short = 'g', value_name = "BLOCKS")]
    clusters_per_group: Option<u32>,
    /// Behaviour of the kernel on errors: continue, remount-ro, panic
    #[arg(short = 'e', value_name = "BEHAVIOR")]
    on_error: Option<String>,
}

impl FormatArguments {
    /// The options, with `SOURCE_DATE_EPOCH` as the time if that is set.
    pub(crate) fn options(&self) -> Outcome<FormatOptions> {
        let mut options = FormatOptions::from_environment().map_err(usage)?;
        if let Some(block) = self.block_size {
            let size = Some(block.size().map_err(Failure::Usage)?);
            *(if block.least { &mut options.least_block_size } else { &mut options.block_size }) = size;
        }
        options.cluster_size = self.cluster_size;
        options.inode_size = self.inode_size;
        options.inodes = match (self.inode_ratio, self.inodes) {
            (_, Some(count)) if count > 0 => InodeCount::Exactly(count),
            (Some(ratio), _) => InodeCount::Ratio(ratio),
            (None, _) => InodeCount::ByUsage,
        };
        options.reserved_percent = self.reserved.unwrap_or(options.reserved_percent);
        options.label = bytes(self.label.as_ref());
        options.last_mounted = bytes(self.last_mounted.as_ref());
        options.uuid = match self.uuid.as_deref() {
            None | Some("random" | "time") => None,
            Some("clear") => Some([0; 16]),
            Some(text) => Some(parse_uuid("-U", text).map_err(usage)?),
        };
        for list in &self.features {
            options.features.extend(parse_features(list).map_err(usage)?);
        }
        for list in &self.extended {
            apply_extended(&mut options, list).map_err(usage)?;
        }
        if self.journal_path().is_none() {
            options.journal_mib =
                self.journal.as_deref().map(journal_mib).transpose().map_err(Failure::Usage)?;
        }
        options.flex_groups = self.flex_groups;
        options.clusters_per_group = self.clusters_per_group;
        if let Some(word) = &self.on_error {
            options.on_error =
                word.parse().map_err(|error: UnknownBehaviour| Failure::Usage(format!("-e {error}")))?;
        }
        Ok(options)
    }

    /// Whether blocks reserved for root were requested.
    pub(crate) fn asks_for_reserve(&self) -> bool {
        self.reserved.is_some()
    }

    /// Whether the behaviour on errors was given.
    pub(crate) fn asks_for_behaviour(&self) -> bool {
        self.on_error.is_some()
    }

    /// The device with the journal, if it is to lie on one.
    pub(crate) fn journal_path(&self) -> Option<&Path> {
        self.journal.as_deref().and_then(|text| text.strip_prefix("device=")).map(Path::new)
    }

    /// Whether nothing but an external journal is to be made.
    pub(crate) fn makes_journal(&self) -> bool {
        self.features.iter().flat_map(|list| list.split(',')).any(|feature| feature == "journal_dev")
    }

    /// Returns an error for an external journal, which a command can't make or use.
    pub(crate) fn refuse_external_journal(&self, command: &str) -> Outcome {
        let asked =
            match (self.journal.as_deref().filter(|_| self.journal_path().is_some()), self.makes_journal()) {
                (Some(journal), _) => format!("-J {journal}"),
                (None, true) => "-O journal_dev".to_owned(),
                (None, false) => return Ok(()),
            };
        let reason = format!("{asked}: {command} makes no external journals; hectare mkfs does");
        Err(Failure::Usage(reason))
    }

    /// Whether a journal of some size was requested.
    pub(crate) fn asks_for_journal(&self) -> bool {
        self.journal.is_some()
    }

    /// Bytes of a block, as far as they were given.
    pub(crate) fn block_bytes(&self) -> Option<u64> {
        self.block_size.filter(|block| !block.least).map(|block| block.bytes)
    }
}

/// The bytes of a block, or the least that it has.
#[derive(Clone, Copy, PartialEq)]
struct BlockBytes {
    least: bool,
    bytes: u64,
}

impl BlockBytes {
    fn parse(text: &str) -> Result<Self, String> {
        let (least, bytes) = text.strip_prefix('-').map_or((false, text), |bytes| (true, bytes));
        Ok(Self { least, bytes: parse_size(bytes)? })
    }

    fn size(self) -> Result<BlockSize, String> {
        let (size, sign) = (BlockSize::from_bytes(self.bytes), if self.least { "-" } else { "" });
        size.ok_or_else(|| {
            format!("-b {sign}{}: a block has 1024 to 65536 bytes, a power of two", self.bytes)
        })
    }
}

fn bytes(text: Option<&OsString>) -> Vec<u8> {
    text.map(|text| text.as_bytes().to_vec()).unwrap_or_default()
}

fn journal_mib(text: &str) -> Result<u64, String> {
    let size =
        text.strip_prefix("size=").ok_or_else(|| format!("-J {text}: give size=MIB or device=FILE"))?;
    let size = size.strip_suffix("MiB").or_else(|| size.strip_suffix(['M', 'm'])).unwrap_or(size);
    size.parse().map_err(|_| format!("-J {text}: the size is a number of MiB"))
}

/// An invalid option is a usage error.
#[allow(clippy::needless_pass_by_value)] // shaped for map_err
pub(crate) fn usage(error: hectare_mkfs::Error) -> Failure {
    Failure::Usage(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journals_size_is_in_mebibytes() {
        assert_eq!(journal_mib("size=4"), Ok(4));
        assert_eq!(journal_mib("size=4MiB"), Ok(4));
        assert!(journal_mib("location=x").is_err());
    }
}
