//! Assembles what a volume holds from its device, its superblock and its log.
//!
//! Nothing is written here. What is assembled closes nothing when it is dropped.

use crate::error::Result;
use crate::options::OpenOptions;
use crate::space::allocator;
use crate::state::commit::Committer;
use crate::state::{Core, State};
use crate::stores::block_cache::BlockCache;
use crate::stores::delay::Delay;
use crate::stores::discards::Discards;
use crate::stores::flush_tracker::Flushes;
use crate::stores::fs_errors::Findings;
use crate::stores::groups::Groups;
use crate::stores::inode_cache::InodeCache;
use crate::stores::orphans::Orphans;
use crate::stores::volume_journal::VolumeLog;
use hectare_alloc::Preallocation;
use hectare_device::Device;
use hectare_ext4::dir::Format as DirFormat;
use hectare_ext4::feature::Compat;
use hectare_ext4::superblock::{DataMode, SuperBlock};
use hectare_ext4::time::Timestamp;
use hectare_journal::{Journal, MetadataView};
use hectare_units::{TxnId, random};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

/// A volume whose journal was recovered.
pub(crate) struct Recovered {
    /// The volume's device; with replayed blocks over it if it must not be written.
    pub(crate) device: Arc<dyn Device>,
    /// The superblock after the replay.
    pub(crate) sb: SuperBlock,
    /// The log to write to.
    pub(crate) log: Option<VolumeLog>,
    /// Whether nothing had to be replayed.
    pub(crate) clean: bool,
}

/// The volume, with nothing of it in memory yet.
pub(crate) fn assemble(recovered: Recovered, options: OpenOptions) -> Result<Core> {
    let Recovered { device, sb, log, clean } = recovered;
    let sb = Arc::new(sb);
    let geometry = sb.geometry();
    // Committed metadata that is not checkpointed is read from where it is.
    let metadata = log.as_ref().map_or_else(|| MetadataView::plain(Arc::clone(&device)), VolumeLog::view);
    let reaction = options.errors.unwrap_or_else(|| sb.on_error());
    let findings = Arc::new(Findings::new(reaction, options.fixed_time));
    let groups = Groups::open(metadata.clone(), Arc::clone(&sb), Arc::clone(&findings), clean)
        .with_backups(options.superblock_at.is_some());
    let groups = Arc::new(groups);
    let allocator = allocator::allocator(&groups, &sb, &options)?;
    let data_mode = data_mode(&sb, &options);
    let state = Arc::new(State {
        blocks: BlockCache::new(metadata, geometry.block_size, options.cache_bytes, Arc::clone(&findings)),
        findings,
        data_errors_abort: options
            .data_errors_abort
            .unwrap_or_else(|| sb.mount_option("data_err") == Some("abort")),
        inodes: InodeCache::new(options.cache_inodes),
        dir_format: DirFormat::of(&sb)?,
        live_sb: Mutex::new((*sb).clone()),
        read_only: options.read_only,
        kbytes_written: AtomicU64::new(0),
        discards: Discards::default(),
        log,
        flushes: Flushes::default(),
        delay: Delay::new(options.delayed_bytes),
        shut_down: AtomicBool::new(false),
        superblock_changed: AtomicBool::new(false),
        closed: AtomicBool::new(false),
        nameless: Mutex::default(),
        orphans: Orphans::new(geometry.features.compat.contains(Compat::HAS_JOURNAL)),
        values: Mutex::default(),
        rename_lock: Mutex::default(),
        state_before: sb.state(),
        mmp: Mutex::default(),
        seed: AtomicU64::new(seed(&options, &sb)),
        device,
        groups,
        prealloc: Preallocation::new(allocator.config()),
        allocator,
        data_mode,
        options,
        sb,
    });
    let journal = Journal::new(Committer::new(Arc::clone(&state)), TxnId::default());
    Ok(Core { state, journal, background: OnceLock::new() })
}

fn data_mode(sb: &SuperBlock, options: &OpenOptions) -> DataMode {
    options.data_mode.or(sb.default_data_mode()).unwrap_or_default()
}

/// The volume on a device that is private and not durable, in use for replaying a journal: it has no
/// journal itself, no thread, and is not marked as in use.
pub(crate) fn for_replay(device: Arc<dyn Device>, sb: SuperBlock, options: &OpenOptions) -> Result<Core> {
    let options = OpenOptions {
        read_only: false,
        use_reserved_blocks: true,
        discard: false,
        record: None,
        ..options.clone()
    };
    assemble(Recovered { device, sb, log: None, clean: false }, options)
}

/// The seed of arbitrary choices: the one that was given, for this state of the volume, else the moment.
fn seed(options: &OpenOptions, sb: &SuperBlock) -> u64 {
    if let Some(seed) = options.seed {
        return seed ^ random::mixed(sb.raw().s_kbytes_written.get());
    }
    let now = Timestamp::now();
    now.seconds.cast_unsigned().wrapping_mul(1_000_000_007) ^ u64::from(now.nanoseconds)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use hectare_device::MemoryDevice;
    use hectare_mkfs::{FormatOptions, Plan};
    use hectare_units::Bytes;

    /// The superblock that a volume of 64 MiB would get.
    pub(crate) fn planned() -> SuperBlock {
        let plan = Plan::new(&FormatOptions::default(), Bytes::mib(64), true).expect("the size is usual");
        plan.superblock().clone()
    }

    /// A volume whose device holds nothing but zeros: for operations that read nothing of it.
    pub(crate) fn unformatted(options: OpenOptions) -> Core {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(Bytes::mib(64)));
        let recovered = Recovered { device, sb: planned(), log: None, clean: true };
        assemble(recovered, options).expect("nothing is read")
    }

    #[test]
    fn a_volume_is_assembled_without_reading_it() {
        let core = unformatted(OpenOptions::default());
        let state = &core.state;
        assert_eq!((state.blocks.len(), state.inodes.len(), state.allocator.loaded_groups()), (0, 0, 0));
        assert_eq!((state.gathered(), state.findings.told()), (0, None));
        assert!(core.background.get().is_none());
    }
}
