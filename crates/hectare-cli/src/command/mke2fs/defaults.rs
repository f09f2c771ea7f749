//! What mke2fs.conf adds to the command line: the types that apply, and their values where none was given.
//!
//! The first type is that of `-t`, of the program's name or of the file; after it come the usages of `-T`, or
//! the one that the size suggests. Features add up in this order; of other values the last type counts.

use super::configuration::Configuration;
use crate::failure::{Failure, Outcome};
use hectare_mkfs::{FeatureEdit, FormatOptions, InodeCount, MountDefaults, Usage, parse_features};
use hectare_units::{BlockSize, Bytes};

/// Values where neither the command line nor the file has one.
const FEATURES: &str = "sparse_super,large_file,filetype,resize_inode,dir_index";
const BLOCK_SIZE: i64 = 4096;
const INODE_SIZE: u32 = 128;
const INODE_RATIO: u64 = 8192;
const FLEX_GROUPS: u32 = 16;
/// Blocks of a usual cluster.
const CLUSTER_BLOCKS: u64 = 16;

/// What decides which types apply.
pub(super) struct Request<'a> {
    /// `-t`, or the type in the program's name.
    pub(super) fs_type: Option<&'a str>,
    /// `-T`.
    pub(super) usage: Option<&'a str>,
    /// Whether a journal was asked for.
    pub(super) journal: bool,
    /// The device as it was named.
    pub(super) device: &'a str,
    pub(super) size: Bytes,
}

/// The types that apply to a request.
pub(super) struct Types<'c> {
    configuration: &'c Configuration,
    /// Type and usages.
    kinds: Vec<String>,
}

impl<'c> Types<'c> {
    /// Finds the types; and usages that are not defined, of which mke2fs only warns.
    pub(super) fn of(
        configuration: &'c Configuration,
        request: &Request<'_>,
    ) -> Outcome<(Self, Vec<String>)> {
        let usual = if request.journal { "ext3" } else { "ext2" };
        let of_device = |tag| configuration.of_device(request.device, tag);
        let fs_type = request
            .fs_type
            .or_else(|| of_device("fs_type"))
            .or_else(|| configuration.default("fs_type"))
            .unwrap_or(usual);
        if fs_type != "ext2" && !configuration.defines(fs_type) {
            return Err(configuration.wrong(format_args!(
                "-t {fs_type}: this type is not defined there; define it, or choose ext2, ext3 or ext4"
            )));
        }
        let by_size = Usage::of_size(request.size).name();
        let usages = request.usage.or_else(|| of_device("usage_types")).unwrap_or(by_size);
        let usages: Vec<_> = usages.split(',').map(str::to_owned).collect();
        let unknown = usages.iter().filter(|usage| *usage != "default" && !configuration.defines(usage));
        let unknown = unknown.cloned().collect();
        let kinds = std::iter::once(fs_type.to_owned()).chain(usages).collect();
        let types = Self { configuration, kinds };
        types.refuse()?;
        Ok((types, unknown))
    }

    /// Refuses what can't be made, instead of ignoring it.
    fn refuse(&self) -> Outcome {
        let text = |tag| self.configuration.last(&self.kinds, tag);
        let refuse = |tag: &str, value: &str| {
            let reason = format_args!("{tag} = {value}: this can't be made; remove the line");
            Err(self.configuration.wrong(reason))
        };
        for (tag, usual) in [("hash_alg", "half_md4"), ("creator_os", "linux")] {
            if let Some(value) = text(tag).filter(|value| !value.eq_ignore_ascii_case(usual)) {
                return refuse(tag, value);
            }
        }
        for tag in ["make_hugefiles", "force_undo"] {
            if self.configuration.boolean(&self.kinds, tag)? == Some(true) {
                return refuse(tag, "yes");
            }
        }
        text("journal_location").map_or(Ok(()), |place| refuse("journal_location", place))
    }

    /// The extended options of the file, which come before those of the command line.
    pub(super) fn extended(&self) -> Outcome<Vec<String>> {
        let mut words = Vec::new();
        for tag in ["lazy_itable_init", "lazy_journal_init", "packed_meta_blocks"] {
            if let Some(is_on) = self.configuration.boolean(&self.kinds, tag)? {
                words.push(format!("{tag}={}", u8::from(is_on)));
            }
        }
        if let Some(count) = self.configuration.last(&self.kinds, "num_backup_sb") {
            words.push(format!("num_backup_sb={count}"));
        }
        if let Some(is_on) = self.configuration.boolean(&self.kinds, "discard")? {
            words.push(if is_on { "discard" } else { "nodiscard" }.to_owned());
        }
        let options = self.kinds.iter().filter_map(|kind| self.configuration.of_type(kind, "options"));
        words.extend(self.configuration.default("options").into_iter().chain(options).map(str::to_owned));
        Ok(words)
    }

    /// Completes the options. `reserved` says that the percentage was given, `on_error` that the behaviour
    /// was.
    pub(super) fn complete(
        &self,
        options: &mut FormatOptions,
        size: Bytes,
        (reserved, on_error): (bool, bool),
    ) -> Outcome {
        if options.block_size.is_none() {
            options.block_size = Some(self.block_size(options)?);
        }
        let block = options.block_size.unwrap_or(BlockSize::KIB4);
        self.features(options, size.get() >> block.shift())?;
        let features = options.resolve_features().map_err(failed)?;
        let (has_clusters, has_flex) = (
            features.ro_compat.contains(hectare_ext4::feature::RoCompat::BIGALLOC),
            features.incompat.contains(hectare_ext4::feature::Incompat::FLEX_BG),
        );
        if has_clusters && options.cluster_size.is_none() {
            options.cluster_size = self.number("cluster_size")?;
        }
        if has_flex && options.flex_groups.is_none() {
            options.flex_groups = Some(self.number("flex_bg_size")?.unwrap_or(FLEX_GROUPS));
        }
        if options.inode_size.is_none() {
            options.inode_size = Some(self.number("inode_size")?.unwrap_or(INODE_SIZE));
        }
        if options.inodes == InodeCount::ByUsage {
            let usual = CLUSTER_BLOCKS << block.shift();
            let cluster = if has_clusters { options.cluster_size.unwrap_or(usual) } else { 0 };
            let ratio = self.number("inode_ratio")?.unwrap_or(INODE_RATIO);
            // No inode for less than a block, unless -i says so.
            options.inodes = InodeCount::Ratio(cluster.max(ratio).max(u64::from(block.get())));
        }
        if !reserved {
            options.reserved_percent = self.number("reserved_ratio")?.unwrap_or(options.reserved_percent);
        }
        if let Some(word) = self.configuration.last(&self.kinds, "errors").filter(|_| !on_error) {
            let wrong = |error| self.configuration.wrong(format_args!("errors = {error}"));
            options.on_error = word.parse().map_err(wrong)?;
        }
        if let Some(list) = self.configuration.last(&self.kinds, "default_mntopts") {
            options.mount_defaults =
                MountDefaults::parse(list).map_err(|error| self.configuration.wrong(error))?;
        }
        options.periodic_checks =
            self.configuration.boolean(&self.kinds, "enable_periodic_fsck")?.unwrap_or(false);
        Ok(())
    }

    fn number<T: std::str::FromStr>(&self, tag: &str) -> Outcome<Option<T>> {
        self.configuration.number(&self.kinds, tag)
    }

    /// The block size of the types; a negative one only says what it must be at least, as do the device's
    /// sectors.
    fn block_size(&self, options: &FormatOptions) -> Outcome<BlockSize> {
        let given: i64 = self.number("blocksize")?.unwrap_or(BLOCK_SIZE);
        let usual = if given < 0 { BLOCK_SIZE.max(given.saturating_neg()) } else { given };
        let least = options.least_block_size.map_or(0, BlockSize::get).max(options.device.logical_sector);
        let bytes = u64::try_from(usual).unwrap_or(0);
        let wrong = || self.configuration.wrong(format_args!("blocksize = {given}: no block has that size"));
        let usual = BlockSize::from_bytes(bytes).ok_or_else(wrong)?;
        Ok(BlockSize::from_bytes(u64::from(least)).map_or(usual, |least| usual.max(least)))
    }

    /// Puts the features of the types before those of the command line, which replace the default ones.
    fn features(&self, options: &mut FormatOptions, blocks: u64) -> Outcome {
        let parse = |list: &str| parse_features(list).map_err(|error| self.configuration.wrong(error));
        let mut edits = vec![FeatureEdit::None];
        edits.extend(parse(self.configuration.last(&self.kinds, "base_features").unwrap_or(FEATURES))?);
        let of_types = self.kinds.iter().filter_map(|kind| self.configuration.of_type(kind, "features"));
        for list in self.configuration.default("features").into_iter().chain(of_types) {
            edits.extend(parse(list)?);
        }
        let auto = self.configuration.boolean(&self.kinds, "auto_64-bit_support")? == Some(true);
        if auto && blocks > u32::MAX.into() {
            edits.extend(parse("64bit,^resize_inode")?);
        }
        if options.features.is_empty() {
            edits.extend(parse(self.configuration.last(&self.kinds, "default_features").unwrap_or(""))?);
        }
        edits.append(&mut options.features);
        options.features = edits;
        Ok(())
    }
}

/// The failure for options that exclude each other.
#[allow(clippy::needless_pass_by_value)] // shaped for map_err
fn failed(error: hectare_mkfs::Error) -> Failure {
    Failure::of("mke2fs", error)
}
