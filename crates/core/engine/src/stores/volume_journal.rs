//! The volume's log in use: commits to it, and checkpoints from it.
//!
//! A volume with a journal commits through [`VolumeLog`]: the frozen blocks, the superblock among them, go to
//! the log; when they are durable there the commit is done, and the blocks wait for their checkpoint
//! ([`hectare_journal::Pending`]). Metadata is read through [`VolumeLog::view`], which shows them as if they
//! were at their final locations already.
//!
//! The superblock is a block like the others here: it is logged with each commit that has blocks, so that
//! free counts, the head of the list of orphans and new features change together with what they describe.
//!
//! Not here: where the log lies and its recovery (`open::recover`).

use crate::error::{Error, Result};
use hectare_device::Device;
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::superblock::SIZE as SUPERBLOCK_SIZE;
use hectare_ext4::time::Timestamp;
use hectare_journal::{Log, LogError, LoggedBlock, MetadataView, Pending};
use hectare_units::{BlockNr, BlockSize, TxnId, u64_of};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The largest share of the log one transaction may take: a third.
const TRANSACTION_SHARE: u32 = 3;
/// Bytes pending at which a checkpoint begins although there is room in the log.
const PENDING_BYTES_MAX: u64 = 64 << 20;

/// The log of a volume, and what is not checkpointed yet.
pub(crate) struct VolumeLog {
    log: Mutex<Log>,
    pending: Arc<Pending>,
    /// Metadata blocks freed by the running transaction.
    revokes: Mutex<Vec<BlockNr>>,
    /// The length of `revokes`; read without its lock.
    revoke_count: AtomicUsize,
    revokes_per_block: usize,
    capacity: u32,
    superblock_nr: BlockNr,
    /// The superblock's block as it was found: the bytes beside the superblock stay.
    superblock_block: Vec<u8>,
    /// The superblock as last logged, for writing it past the log.
    logged_superblock: Mutex<Option<[u8; SUPERBLOCK_SIZE]>>,
    block_size: BlockSize,
}

impl From<LogError> for Error {
    fn from(error: LogError) -> Self {
        match error {
            LogError::Device(error) => error.into(),
            other => Self::Aborted(other.to_string()),
        }
    }
}

impl VolumeLog {
    /// Opens a log for the volume on `device`.
    pub(crate) fn new(log: Log, device: Arc<dyn Device>, block_size: BlockSize) -> Result<Self> {
        let superblock_nr = BlockNr::new(SUPERBLOCK_OFFSET.get() >> block_size.shift());
        let mut superblock_block = vec![0; block_size.len()];
        device.read_at(superblock_nr.offset(block_size), &mut superblock_block)?;
        Ok(Self {
            capacity: log.len() / TRANSACTION_SHARE,
            revokes_per_block: log.revokes_per_block().max(1),
            revoke_count: AtomicUsize::new(0),
            log: Mutex::new(log),
            pending: Arc::new(Pending::new(device, block_size)),
            revokes: Mutex::default(),
            superblock_nr,
            superblock_block,
            logged_superblock: Mutex::default(),
            block_size,
        })
    }

    /// Puts a copy of the superblock into a log that is clean and stays so: if the superblock is torn, the
    /// copy is found just before the end of the log.
    pub(crate) fn stage(&self, superblock: &[u8; SUPERBLOCK_SIZE], time: Timestamp) -> Result<()> {
        self.commit(&[self.superblock_block(superblock)], &[], superblock, time)?;
        Ok(self.log.lock().finish()?)
    }

    /// Begins to log, with the first transaction that was written, which has this number.
    pub(crate) fn begin(&self, first: TxnId) -> Result<()> {
        Ok(self.log.lock().begin(first)?)
    }

    /// The number of the next transaction.
    pub(crate) fn next(&self) -> TxnId {
        self.log.lock().next()
    }

    /// The view for reading metadata: with pending blocks in their place.
    pub(crate) fn view(&self) -> MetadataView {
        MetadataView::with_pending(Arc::clone(&self.pending))
    }

    /// Blocks that are logged and not checkpointed yet.
    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Blocks of the largest transaction.
    pub(crate) const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Records that a metadata block was freed: copies of it in the log must not overwrite the next use of
    /// its place.
    pub(crate) fn revoke(&self, nr: BlockNr) {
        self.revokes.lock().push(nr);
        self.revoke_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Blocks of the log that the revoke records of `freed` blocks take.
    pub(crate) fn revoke_blocks(&self, freed: u64) -> u32 {
        u32::try_from(freed.div_ceil(u64_of(self.revokes_per_block))).unwrap_or(u32::MAX)
    }

    /// Freed blocks whose revoke records fit into `blocks` blocks of the log.
    pub(crate) fn revokes_in(&self, blocks: u32) -> u64 {
        u64_of(self.revokes_per_block).saturating_mul(blocks.into())
    }

    /// Blocks of the log that the running transaction takes for its revoke records.
    pub(crate) fn gathered_revokes(&self) -> u32 {
        self.revoke_blocks(u64_of(self.revoke_count.load(Ordering::Relaxed)))
    }

    /// Whether a recovery, now or after the next commits, might replay a copy of a block.
    pub(crate) fn is_logged(&self, nr: BlockNr) -> bool {
        self.pending.is_logged(nr)
    }

    /// What was freed since the last call, in order, each once. Called with no handle open.
    pub(crate) fn take_revokes(&self) -> Vec<BlockNr> {
        let mut revokes = std::mem::take(&mut *self.revokes.lock());
        self.revoke_count.store(0, Ordering::Relaxed);
        revokes.sort_unstable();
        revokes.dedup();
        revokes
    }

    /// The superblock as a block of its transaction.
    pub(crate) fn superblock_block(&self, superblock: &[u8; SUPERBLOCK_SIZE]) -> LoggedBlock {
        let mut block = self.superblock_block.clone();
        let at = self.block_size.within(SUPERBLOCK_OFFSET);
        block[at..at + SUPERBLOCK_SIZE].copy_from_slice(superblock);
        (self.superblock_nr, block.into())
    }

    /// Logs a transaction; when this returns it is durable.
    pub(crate) fn commit(
        &self,
        blocks: &[LoggedBlock],
        revokes: &[BlockNr],
        superblock: &[u8; SUPERBLOCK_SIZE],
        time: Timestamp,
    ) -> Result<()> {
        self.pending.commit(&self.log, blocks, revokes, since_1970(time))?;
        *self.logged_superblock.lock() = Some(*superblock);
        Ok(())
    }

    /// Whether a checkpoint should be made soon.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        let bytes = u64_of(self.pending.len()) << self.block_size.shift();
        let log = self.log.lock();
        bytes >= PENDING_BYTES_MAX || log.free() < log.len() / 2
    }

    /// Checkpoints what takes up more than a quarter of the log.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        let keep = {
            let log = self.log.lock();
            log.kept_beside(log.len() - log.len() / 4)
        };
        let bytes = u64_of(self.pending.len()) << self.block_size.shift();
        let keep = if bytes >= PENDING_BYTES_MAX { 0 } else { keep };
        Ok(self.pending.checkpoint(&self.log, keep)?)
    }

    /// Checkpoints everything.
    pub(crate) fn checkpoint_all(&self) -> Result<()> {
        Ok(self.pending.checkpoint(&self.log, 0)?)
    }

    /// The superblock in the log, or on the device if none was logged: what a recovery would find.
    pub(crate) fn durable_superblock(&self) -> [u8; SUPERBLOCK_SIZE] {
        let at = self.block_size.within(SUPERBLOCK_OFFSET);
        self.logged_superblock.lock().unwrap_or_else(|| {
            let mut bytes = [0; SUPERBLOCK_SIZE];
            bytes.copy_from_slice(&self.superblock_block[at..at + SUPERBLOCK_SIZE]);
            bytes
        })
    }

    /// Records in the log, for its recovery, that the volume failed; as far as that is possible.
    pub(crate) fn record_error(&self, errno: i32) -> Result<()> {
        Ok(self.log.lock().record_error(errno)?)
    }
}

/// A time as the log stores it; one before 1970 becomes that.
pub(crate) fn since_1970(time: Timestamp) -> Duration {
    u64::try_from(time.seconds).map_or(Duration::ZERO, |seconds| Duration::new(seconds, time.nanoseconds))
}
