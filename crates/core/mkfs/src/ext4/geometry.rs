//! Computes the shape of a volume from options and a size.
//!
//! The numbers are computed as mke2fs 1.47 computes them, so the same options give the same volume: block
//! size and inode ratio by usage, inodes rounded up to fill whole table blocks in multiples of 8, descriptor
//! blocks reserved for growing 1024 times, a last group dropped where it could hold little more than its own
//! metadata. Every choice that differs from what was asked for is reported in a [`Note`].
//!
//! Hazard: dropping the last group or shrinking the groups changes what was computed before, so the search
//! starts over until nothing changes; every round makes the volume or its groups smaller, so it ends.

use super::large;
use super::limits::{BLOCKS_MAX, clusters_per_group_max};
use super::note::Note;
use super::options::{FormatOptions, InodeCount, ResizeLimit, Usage};
use super::system_inodes::resize_inode_size;
use crate::error::{Error, Result};
use hectare_ext4::feature::{Compat, Feature, Features, Incompat, RoCompat};
use hectare_ext4::geometry::Geometry;
use hectare_ext4::inode::LARGE_FILE;
use hectare_units::{BlockSize, Blocks, Bytes, GroupNr, low32};

/// The shape of a volume to be made.
#[derive(Clone, PartialEq, Debug)]
pub struct Shape {
    /// Where things lie.
    pub geometry: Geometry,
    /// Blocks only root may take.
    pub reserved_blocks: Blocks,
    /// The notes on the choices.
    pub notes: Vec<Note>,
}

/// The most groups: group numbers have 32 bits, and the kernel wants a block of descriptors less, which has
/// 1024 at most.
const GROUPS_MAX: u64 = (1 << 32) - 1024;
/// Bytes of the largest cluster: of larger ones a group could have 2^32 blocks, which e2fsck takes for none.
const CLUSTER_MAX: u64 = 256 << 20;
/// The fewest clusters of a group that can be asked for, and to which groups shrink.
const GROUP_MIN: u32 = 256;

/// The size that blocks are to have, or usually have, but no smaller than a sector.
fn usual_block_size(options: &FormatOptions, usage: Usage) -> Result<BlockSize> {
    let sector = options.device.logical_sector;
    let refuse = || {
        let reason = format!("the device has sectors of {sector} bytes, and no block can be smaller");
        let given = options.block_size.map_or_else(|| "-b".to_owned(), |given| format!("-b {given}"));
        Error::option(given, reason)
    };
    match options.block_size {
        Some(given) if given.get() < sector => Err(refuse()),
        Some(given) => Ok(given),
        None => {
            let least = options.least_block_size.map_or(sector, |least| sector.max(least.get()));
            BlockSize::from_bytes(usage.block_size().get().max(least).into()).ok_or_else(refuse)
        }
    }
}

/// Finds the shape of a volume of `size` bytes.
///
/// # Errors
/// If options are impossible, alone or together, or the size is too small.
pub fn shape(options: &FormatOptions, size: Bytes) -> Result<Shape> {
    check_plain(options)?;
    let mut features = options.resolve_features()?;
    let usage = options.usage.unwrap_or_else(|| Usage::of_size(size));
    let mut notes = Vec::new();
    let usual = usual_block_size(options, usage)?;
    let block_size = large::block_size(options, usual, size, &mut notes);
    let blocks = usable_blocks(size, block_size, &mut notes);
    large::choose_meta_groups(options, &mut features, size, &mut notes);
    large::choose_clusters(options, &mut features, block_size, blocks);
    let cluster_shift = cluster_shift(options, &features, block_size, blocks, &mut notes)?;
    let (uncut, reserved_blocks) = (Blocks::new(blocks), reserved(options, blocks));
    // Whole clusters: the kernel allocates a partial last one, and counts it differently from e2fsck.
    let blocks = blocks >> cluster_shift << cluster_shift;
    let inode_size = inode_size(options, &features, block_size)?;
    check_block_count(blocks, &mut features, &mut notes)?;
    let geometry = Geometry {
        block_size,
        cluster_ratio_shift: cluster_shift,
        first_data_block: u32::from(block_size == BlockSize::KIB1 && cluster_shift == 0),
        blocks_count: Blocks::new(blocks),
        clusters_per_group: clusters_per_group(options, block_size, cluster_shift)?,
        inodes_per_group: 0,
        inode_size,
        desc_size: if features.incompat.contains(Incompat::BIT64) { 64 } else { 32 },
        reserved_gdt_blocks: 0,
        first_meta_bg: 0,
        flex_shift: flex_shift(options, &features, size, &mut notes)?,
        backup_groups: [0, 0],
        features,
    };
    let inodes = inodes_wanted(options, usage, &geometry, uncut.bytes(block_size))?;
    let asked = geometry.clusters_per_group;
    let mut geometry = settle(options, geometry, &inodes, size, &mut notes)?;
    if geometry.features.compat.contains(Compat::RESIZE_INODE) && resize_inode_size(block_size) >= LARGE_FILE
    {
        geometry.features.ro_compat |= RoCompat::LARGE_FILE;
    }
    if geometry.clusters_per_group != asked {
        notes.push(Note::SmallerGroups(geometry.blocks_per_group()));
    }
    if geometry.features.compat.contains(Compat::RESIZE_INODE)
        && options.resize.is_none()
        && geometry.reserved_gdt_blocks < reserved_by_default(&geometry)
    {
        notes.push(Note::SmallerReserve(geometry.reserved_gdt_blocks));
    }
    let left = blocks - geometry.blocks_count.get();
    if left > 0 {
        notes.push(Note::LastGroupDropped(Blocks::new(left)));
    }
    choose_journal(options, &mut geometry, &mut notes)?;
    if options.packed_meta_blocks && !geometry.features.incompat.contains(Incompat::FLEX_BG) {
        notes.push(Note::NotPacked);
    }
    notes.extend(stripe_of_device(options, block_size));
    let reserved_blocks = reserved_of_used(reserved_blocks, blocks, geometry.blocks_count);
    Ok(Shape { reserved_blocks, geometry, notes })
}

/// The note on stripes, if the device reports any; a sector is none.
fn stripe_of_device(options: &FormatOptions, block_size: BlockSize) -> Option<Note> {
    let (stride, width) = (options.stride(block_size), options.stripe_width(block_size));
    let is_of_device = options.stride.is_none() || options.stripe_width.is_none();
    let longest = u64::from(width).max(stride.into()) << block_size.shift();
    let is_striped = longest > options.device.physical_sector.into();
    (is_of_device && is_striped).then_some(Note::StripeOfDevice(stride, width))
}

/// Checks what is wrong whatever the size.
fn check_plain(options: &FormatOptions) -> Result<()> {
    if !(0.0..=50.0).contains(&options.reserved_percent) {
        return Err(Error::option(format!("-m {}", options.reserved_percent), "it must be 0 to 50 percent"));
    }
    if options.label.len() > 16 {
        return Err(Error::option("-L", "a label has at most 16 bytes; shorten it"));
    }
    if options.last_mounted.len() > 63 {
        return Err(Error::option("-M", "the directory has at most 63 bytes; shorten it"));
    }
    if options.backup_superblocks > 2 {
        return Err(Error::option("-E num_backup_sb", "there can be 0, 1 or 2"));
    }
    if options.mmp_update_interval > 300 {
        return Err(Error::option("-E mmp_update_interval", "it must be at most 300 seconds"));
    }
    Ok(())
}

/// What of a device's size a volume takes that is given none: whole pages of 4 KiB, as mke2fs does, or all
/// of a device that has none, to be refused by its size. A size that is given counts to the block.
#[must_use]
pub fn whole_pages(device: Bytes) -> Bytes {
    let rest = device.get() % BlockSize::KIB4.bytes().get();
    if device.get() > rest { device - Bytes::new(rest) } else { device }
}

/// Blocks that fit.
fn usable_blocks(size: Bytes, block_size: BlockSize, notes: &mut Vec<Note>) -> u64 {
    let blocks = size.get() >> block_size.shift();
    if blocks == BLOCKS_MAX + 1 {
        notes.push(Note::LastBlockUnused);
        return BLOCKS_MAX;
    }
    blocks
}

fn check_block_count(blocks: u64, features: &mut Features, notes: &mut Vec<Note>) -> Result<()> {
    if blocks <= u64::from(u32::MAX) {
        return Ok(());
    }
    if !features.incompat.contains(Incompat::BIT64) {
        return Err(Error::option(
            "-O ^64bit",
            format!(
                "{blocks} blocks need 64-bit block numbers; add -O 64bit, choose larger blocks (-b) or a \
                 smaller size"
            ),
        ));
    }
    if blocks > BLOCKS_MAX {
        let reason =
            format!("{blocks} blocks are more than 2^48 - 1, the most there can be; choose larger ones (-b)");
        return Err(Error::option("the size", reason));
    }
    if features.compat.contains(Compat::RESIZE_INODE) {
        features.compat -= Compat::RESIZE_INODE;
        notes.push(Note::NoResizeInode);
    }
    Ok(())
}

fn cluster_shift(
    options: &FormatOptions,
    features: &Features,
    block_size: BlockSize,
    blocks: u64,
    notes: &mut Vec<Note>,
) -> Result<u32> {
    if !features.ro_compat.contains(RoCompat::BIGALLOC) {
        return match options.cluster_size {
            None => Ok(0),
            Some(size) => Err(Error::option(format!("-C {size}"), "it needs bigalloc; add -O bigalloc")),
        };
    }
    let block = u64::from(block_size.get());
    let asked = options.decides(Feature::RoCompat(RoCompat::BIGALLOC));
    let size = options.cluster_size.unwrap_or_else(|| {
        let (usual, needed) =
            (if asked { 16 * block } else { 0 }, block << large::cluster_shift(block_size, blocks));
        if needed > usual {
            notes.push(Note::Clusters(Bytes::new(needed)));
        }
        needed.max(usual)
    });
    if !size.is_power_of_two() || !(block..=CLUSTER_MAX).contains(&size) {
        return Err(Error::option(
            format!("-C {size}"),
            format!("a cluster is a power of two from the block size ({block}) to {} MiB", CLUSTER_MAX >> 20),
        ));
    }
    Ok(size.trailing_zeros() - block_size.shift())
}

/// The largest that the superblock's field of 16 bits can hold.
const INODE_SIZE_MAX: u32 = 1 << 15;

fn inode_size(options: &FormatOptions, features: &Features, block_size: BlockSize) -> Result<u32> {
    let size = options.inode_size.unwrap_or(256);
    let most = block_size.get().min(INODE_SIZE_MAX);
    if !size.is_power_of_two() || !(128..=most).contains(&size) {
        let reason = format!("an inode size is a power of two from 128 to {most} in blocks of {block_size}");
        return Err(Error::option(format!("-I {size}"), reason));
    }
    let needs_more = [
        (features.incompat.contains(Incompat::INLINE_DATA), "inline_data"),
        (features.ro_compat.contains(RoCompat::PROJECT), "project"),
    ];
    if let Some((_, name)) = needs_more.iter().find(|(is_on, _)| size == 128 && *is_on) {
        return Err(Error::option(format!("-O {name}"), "it needs inodes of 256 bytes or more; change -I"));
    }
    Ok(size)
}

fn clusters_per_group(options: &FormatOptions, block_size: BlockSize, cluster_shift: u32) -> Result<u32> {
    // Blocks of a group are counted in 32 bits; huge clusters leave fewer of them to a group.
    let most = clusters_per_group_max(block_size).min((u32::MAX >> cluster_shift) & !7);
    match options.clusters_per_group {
        None => Ok(most),
        Some(given) if given.is_multiple_of(8) && (GROUP_MIN..=most).contains(&given) => Ok(given),
        Some(given) => {
            let unit = if cluster_shift > 0 { "clusters" } else { "blocks" };
            let reason = format!("a group has {GROUP_MIN} to {most} {unit} here, a multiple of 8");
            Err(Error::option(format!("-g {given}"), reason))
        }
    }
}

fn flex_shift(
    options: &FormatOptions,
    features: &Features,
    size: Bytes,
    notes: &mut Vec<Note>,
) -> Result<u32> {
    if !features.incompat.contains(Incompat::FLEX_BG) {
        return match options.flex_groups {
            None => Ok(0),
            Some(n) => Err(Error::option(format!("-G {n}"), "it needs flex_bg; add -O flex_bg")),
        };
    }
    match options.flex_groups {
        None => Ok(large::flex_shift(size, notes)),
        Some(n) if n.is_power_of_two() => Ok(n.trailing_zeros()),
        Some(n) => Err(Error::option(format!("-G {n}"), "it must be a power of two")),
    }
}

/// How many inodes are wanted, before rounding, and the option that requests it.
struct Inodes {
    wanted: u64,
    option: String,
}

impl Inodes {
    fn refuse<T>(&self, reason: impl Into<String>) -> Result<T> {
        Err(Error::option(self.option.clone(), reason))
    }
}

/// The inodes of a volume of `bytes` bytes, a partial last cluster included, as mke2fs counts them.
fn inodes_wanted(options: &FormatOptions, usage: Usage, geometry: &Geometry, bytes: Bytes) -> Result<Inodes> {
    let cluster = u64::from(geometry.block_size.get()) << geometry.cluster_ratio_shift;
    let (option, wanted) = match options.inodes {
        InodeCount::Exactly(n) if n > u64::from(u32::MAX) => {
            return Err(Error::option(format!("-N {n}"), "ext4 numbers inodes with 32 bits"));
        }
        InodeCount::Exactly(n) if n > 0 => (format!("-N {n}"), n),
        InodeCount::Ratio(n) if !(1024..=1 << 26).contains(&n) => {
            return Err(Error::option(format!("-i {n}"), "it must be 1024 to 67108864 bytes"));
        }
        InodeCount::Ratio(n) => (format!("-i {n}"), by_ratio(geometry, bytes, n)?),
        InodeCount::ByUsage | InodeCount::Exactly(_) => {
            ("the usual -i".into(), by_ratio(geometry, bytes, usage.inode_ratio().max(cluster))?)
        }
    };
    let inodes = Inodes { wanted, option };
    let size = geometry.inode_size;
    if bytes > Bytes::ZERO && u128::from(wanted) * u128::from(size) >= bytes.get().into() {
        return inodes.refuse(format!(
            "{wanted} inodes of {size} bytes fill the whole volume; ask for fewer (-N) or smaller ones (-I)"
        ));
    }
    Ok(inodes)
}

/// One for every `ratio` bytes; if the volume has fewer, what mke2fs gives then: one for a block that is
/// used, of at least 4 KiB.
fn by_ratio(geometry: &Geometry, bytes: Bytes, ratio: u64) -> Result<u64> {
    let wanted = match bytes.get() / ratio {
        0 => geometry.bytes().get() / BlockSize::KIB4.max(geometry.block_size).bytes().get(),
        wanted => wanted,
    };
    if wanted <= u64::from(u32::MAX) {
        return Ok(wanted);
    }
    if geometry.features.incompat.contains(Incompat::BIT64) {
        return Ok(u32::MAX.into());
    }
    Err(Error::option(format!("-i {ratio}"), "it gives more than 2^32 inodes; raise it"))
}

/// Goes round until descriptors, inode tables and the last group fit each other.
fn settle(
    options: &FormatOptions,
    mut geometry: Geometry,
    inodes: &Inodes,
    size: Bytes,
    notes: &mut Vec<Note>,
) -> Result<Geometry> {
    let small = |reason: &str| Error::TooSmall { bytes: size.get(), reason: reason.into() };
    let shrinkable = geometry.cluster_ratio_shift == 0;
    let all = geometry.blocks_count;
    loop {
        let first = u64::from(geometry.first_data_block);
        let blocks = geometry.blocks_count.get();
        if blocks <= first {
            return Err(small("not even its superblock fits"));
        }
        if (blocks - first).div_ceil(u64::from(geometry.blocks_per_group())) > GROUPS_MAX {
            return Err(Error::option(
                "the size",
                "it makes more groups than 2^32 - 1024, the most there can be; use larger clusters \
                 (-O bigalloc -C)",
            ));
        }
        geometry.backup_groups = backup_groups(options, &geometry);
        let Some(per_group) = inodes_per_group(&geometry, inodes.wanted)? else {
            if shrinkable && geometry.clusters_per_group > GROUP_MIN {
                geometry.clusters_per_group -= 8;
                // What a last group of the old size had no use for, smaller groups may have.
                geometry.blocks_count = all;
                continue;
            }
            return inodes
                .refuse("a group can't hold that many inodes; ask for fewer (-N) or smaller groups (-g)");
        };
        geometry.inodes_per_group = per_group;
        reserve_descriptors(options, &mut geometry, notes)?;
        let last = GroupNr::new(geometry.groups() - 1);
        if !fit_metadata(options, &mut geometry) {
            return inodes.refuse("a group's metadata does not fit the group; ask for fewer inodes (-N)");
        }
        let overhead = metadata_blocks(&geometry, last);
        let rest = (blocks - first) % u64::from(geometry.blocks_per_group());
        if last.get() == 0 && rest > 0 && rest < overhead {
            return Err(small("its metadata does not fit"));
        }
        // A group is worth having if it holds 50 blocks beside its own metadata.
        if last.get() > 0 && rest > 0 && rest < overhead + 50 {
            geometry.blocks_count = Blocks::new(blocks - rest);
            continue;
        }
        return Ok(geometry);
    }
}

/// Blocks of the metadata of one group, where it lies in the group itself.
fn metadata_blocks(geometry: &Geometry, group: GroupNr) -> u64 {
    u64::from(geometry.base_meta_blocks(group)) + 2 + u64::from(geometry.itable_blocks())
}

/// Makes the metadata of a group fit the group: descriptor blocks that are reserved by default are given up for it,
/// and for the bitmaps of a flex group, which all lie in its first group. Returns whether it fits.
fn fit_metadata(options: &FormatOptions, geometry: &mut Geometry) -> bool {
    let ends = [GroupNr::new(0), GroupNr::new(geometry.groups() - 1)];
    let most = ends.map(|group| metadata_blocks(geometry, group)).into_iter().max().unwrap_or(0);
    let excess = most.saturating_sub(geometry.blocks_per_group().into());
    let reserved = geometry.reserved_gdt_blocks;
    if excess > 0 {
        if options.resize.is_some() || excess > reserved.into() {
            return false;
        }
        let bitmaps = 2 * geometry.flex_groups().min(geometry.groups());
        geometry.reserved_gdt_blocks -= reserved.min(low32(excess) + bitmaps);
    }
    true
}

/// The groups of the backups under `sparse_super2`: the second, and of two the last.
fn backup_groups(options: &FormatOptions, geometry: &Geometry) -> [u32; 2] {
    if !geometry.features.compat.contains(Compat::SPARSE_SUPER2) {
        return [0, 0];
    }
    match (options.backup_superblocks, geometry.groups()) {
        (0, _) | (_, 1) => [0, 0],
        (1, _) => [0, 1],
        (_, 2) => [0, 1],
        (_, groups) => [1, groups - 1],
    }
}

/// Inodes of a group: the wanted number spread over the groups, filling whole table blocks, in multiples of
/// 8; `None` if a bitmap can't count that many, for which more and smaller groups help.
fn inodes_per_group(geometry: &Geometry, wanted: u64) -> Result<Option<u32>> {
    const FIRST: u64 = 11;
    let groups = u64::from(geometry.groups());
    let bits = u64::from(8 * geometry.block_size.get());
    let mut each = wanted.max(FIRST + 1).div_ceil(groups);
    if each > bits {
        return Ok(None);
    }
    let per_block = u64::from(geometry.inodes_per_block());
    each = each.min((1 << 16) - per_block);
    loop {
        let filled = ((each.div_ceil(per_block) * per_block).max(8)) & !7;
        // Rounding down to a multiple of 8 must not take the first inode that is not reserved.
        let filled = if filled * groups <= FIRST { 16 } else { filled };
        if filled * groups <= u64::from(u32::MAX) {
            return Ok(Some(low32(filled)));
        }
        let reason = "with the fewest inodes a group can have there are more than 2^32; \
                      use larger clusters (-O bigalloc -C)";
        each = each.checked_sub(1).ok_or_else(|| Error::option("the size", reason))?;
    }
}

/// Sets the descriptor blocks reserved for growing, and goes over to meta groups where the descriptors would
/// take more than three quarters of a group.
fn reserve_descriptors(
    options: &FormatOptions,
    geometry: &mut Geometry,
    notes: &mut Vec<Note>,
) -> Result<()> {
    let asked = options.resize.map(|limit| reserved_for(geometry, limit)).transpose()?.unwrap_or(0);
    if asked > 0 {
        geometry.features.compat |= Compat::RESIZE_INODE;
        geometry.reserved_gdt_blocks = asked;
    } else if geometry.features.compat.contains(Compat::RESIZE_INODE) {
        geometry.reserved_gdt_blocks = reserved_by_default(geometry);
    }
    let most = u64::from(geometry.blocks_per_group()) * 3 / 4;
    let taken = u64::from(geometry.reserved_gdt_blocks) + u64::from(geometry.desc_blocks());
    if let Some(limit) = options.resize.filter(|_| asked > 0 && taken > most) {
        let reason = "the descriptors would fill most of a group; make it smaller or groups larger (-g)";
        return Err(Error::option(format!("-E resize={limit}"), reason));
    }
    if taken > most && !geometry.features.incompat.contains(Incompat::META_BG) {
        geometry.features.incompat |= Incompat::META_BG;
        notes.push(Note::MetaGroups);
    }
    if geometry.features.incompat.contains(Incompat::META_BG) {
        geometry.features.compat -= Compat::RESIZE_INODE;
        geometry.reserved_gdt_blocks = 0;
    }
    Ok(())
}

/// Descriptor blocks for growing to 1024 times the size, but not beyond 2^32 - 1 blocks.
fn reserved_by_default(geometry: &Geometry) -> u32 {
    let limit = u64::from(u32::MAX);
    let blocks = geometry.blocks_count.get();
    let grown = if blocks < limit / 1024 { blocks * 1024 } else { limit };
    descriptors_beyond(geometry, grown)
}

fn descriptors_beyond(geometry: &Geometry, blocks: u64) -> u32 {
    let groups = (blocks - u64::from(geometry.first_data_block)).div_ceil(geometry.blocks_per_group().into());
    let descriptors = groups.div_ceil(geometry.descs_per_block().into());
    let more = descriptors.saturating_sub(geometry.desc_blocks().into());
    low32(more.min(u64::from(geometry.block_size.get() / 4)))
}

/// Descriptor blocks for growing to a size that was asked for; 0 if that takes no more than there are.
fn reserved_for(geometry: &Geometry, limit: ResizeLimit) -> Result<u32> {
    let refuse = |reason: &str| Err(Error::option(format!("-E resize={limit}"), reason));
    let blocks = limit.blocks(geometry.block_size);
    if blocks <= geometry.blocks_count {
        return refuse(&format!("it must be greater than the volume, {} blocks", geometry.blocks_count));
    }
    if blocks.get() > u64::from(u32::MAX) {
        return refuse("the resize inode reaches at most 2^32 - 1 blocks");
    }
    let more = descriptors_beyond(geometry, blocks.get());
    if more > 0 && geometry.features.incompat.contains(Incompat::META_BG) {
        return refuse("meta_bg excludes the resize inode; leave one of them out");
    }
    if more > 0 && !geometry.features.sparse_backups() {
        return refuse("the resize inode needs sparse_super; leave one of them out");
    }
    Ok(more)
}

/// Drops the journal from a volume too small for one, unless its size was asked for.
fn choose_journal(options: &FormatOptions, geometry: &mut Geometry, notes: &mut Vec<Note>) -> Result<()> {
    if !geometry.features.compat.contains(Compat::HAS_JOURNAL) {
        return Ok(());
    }
    let is_chosen = options.journal_mib.is_some() || options.journal_device.is_some();
    if !is_chosen && crate::ext4::journal::default_blocks(geometry.blocks_count).is_none() {
        geometry.features.compat -= Compat::HAS_JOURNAL | Compat::FAST_COMMIT | Compat::ORPHAN_FILE;
        notes.push(Note::NoJournal);
    }
    Ok(())
}

/// The share of `blocks` blocks that only root may take, rounded down.
fn reserved(options: &FormatOptions, blocks: u64) -> u64 {
    // 50 percent at most of less than 2^48 blocks: exact in a double, and never negative.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    let share = (options.reserved_percent * blocks as f64 / 100.0) as u64;
    share
}

/// The share where not all blocks are used: in proportion, as in mke2fs, but no more than half of them,
/// of which e2fsck would complain.
fn reserved_of_used(share: u64, blocks: u64, used: Blocks) -> Blocks {
    let in_proportion = u128::from(share) * u128::from(used.get()) / u128::from(blocks);
    Blocks::new(u64::try_from(in_proportion).unwrap_or(u64::MAX).min(used.get() / 2))
}
