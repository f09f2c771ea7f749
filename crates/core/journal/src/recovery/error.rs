//! Errors of reading and replaying a journal.

use hectare_ext4::{Corrupt, FormatError};
use hectare_units::{BlockNr, LogicalBlock, TxnId};
use std::borrow::Cow;

/// Why a journal can't be replayed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoveryError {
    /// Reading the journal or writing the volume failed.
    #[error(transparent)]
    Device(#[from] hectare_device::Error),
    /// The superblock, the place of the journal, or its use of features.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A transaction that was committed is damaged.
    #[error("journal transaction {txn} is corrupt in log block {at}: {reason}")]
    Damaged {
        /// The transaction.
        txn: TxnId,
        /// The block of the log.
        at: LogicalBlock,
        /// What is wrong.
        reason: Cow<'static, str>,
    },
    /// A committed copy belongs to a block that may not be written.
    #[error("journal transaction {txn} has a copy of block {block} in log block {at}, but {reason}")]
    Target {
        /// The transaction.
        txn: TxnId,
        /// The block of the log that holds the copy.
        at: LogicalBlock,
        /// The block of the volume.
        block: BlockNr,
        /// Why it may not be written.
        reason: &'static str,
    },
}

impl From<Corrupt> for RecoveryError {
    fn from(corrupt: Corrupt) -> Self {
        Self::Format(corrupt.into())
    }
}
