//! The error record of the superblock: what to do when an error is found, and which were found.
//!
//! The record has the first error and the last one, each with its time, place and kind, and counts all; the
//! state says that there was one. Kernel and e2fsck read it: the kernel warns when it mounts the volume, and
//! e2fsck checks it in full and then clears the record.
//!
//! Not here: finding errors, and doing something about them.

use super::{STATE_ERROR, SuperBlock};
use crate::time::Timestamp;
use hectare_units::{BlockNr, InodeNr, low8, low32};
use std::fmt;
use std::str::FromStr;
use zerocopy::IntoBytes;

/// The device failed (`EXT4_ERR_EIO`).
pub const ERRCODE_IO: u8 = 2;
/// A checksum is wrong (`EXT4_ERR_EFSBADCRC`).
pub const ERRCODE_CHECKSUM: u8 = 4;
/// The bytes break the format (`EXT4_ERR_EFSCORRUPTED`).
pub const ERRCODE_CORRUPT: u8 = 5;

/// Where the record of errors lies, but for the parts of it that were added later.
const ERROR_RECORD: std::ops::Range<usize> = 0x194..0x200;

/// What to do when metadata corruption is found (`s_errors`, the mount option `errors=`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnError {
    /// Note it and continue.
    #[default]
    Continue,
    /// Take no more changes.
    RemountReadOnly,
    /// Stop the whole system.
    Panic,
}

/// A word that names no behaviour on errors.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is not what can be done on errors: say continue, remount-ro or panic")]
pub struct UnknownBehaviour(String);

impl OnError {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Continue, Self::RemountReadOnly, Self::Panic];

    /// Its name, as in the mount option.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::RemountReadOnly => "remount-ro",
            Self::Panic => "panic",
        }
    }

    /// `s_errors`.
    #[must_use]
    pub const fn code(self) -> u16 {
        match self {
            Self::Continue => 1,
            Self::RemountReadOnly => 2,
            Self::Panic => 3,
        }
    }

    /// What `s_errors` says; a number without a meaning is taken for the safe choice, as the kernel does.
    #[must_use]
    pub const fn of_code(code: u16) -> Self {
        match code {
            1 => Self::Continue,
            3 => Self::Panic,
            _ => Self::RemountReadOnly,
        }
    }
}

impl fmt::Display for OnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for OnError {
    type Err = UnknownBehaviour;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|behaviour| behaviour.name() == word);
        found.ok_or_else(|| UnknownBehaviour(word.to_owned()))
    }
}

/// An error to be recorded in the superblock.
#[derive(Clone, Copy, Debug)]
pub struct RecordedError<'a> {
    /// What found it; 31 bytes are kept.
    pub function: &'a str,
    /// The block it is about.
    pub block: Option<BlockNr>,
    /// The inode it is about.
    pub inode: Option<InodeNr>,
    /// When.
    pub time: Timestamp,
    /// What it was: the format's number for it ([`ERRCODE_IO`], [`ERRCODE_CHECKSUM`], [`ERRCODE_CORRUPT`]).
    pub code: u8,
}

impl RecordedError<'_> {
    fn function(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        let len = self.function.len().min(31);
        bytes[..len].copy_from_slice(&self.function.as_bytes()[..len]);
        bytes
    }

    fn time(&self) -> (u32, u8) {
        let seconds = self.time.seconds.cast_unsigned();
        (low32(seconds), low8(seconds >> 32))
    }
}

/// Writes a [`RecordedError`] to fields of the raw superblock. The format has them twice, for the first and
/// the last error, but in two orders: there is no record to share.
macro_rules! write_error {
    (
        $error:ident to $raw:ident:
        $time:ident $time_hi:ident $func:ident $block:ident $ino:ident $line:ident $code:ident
    ) => {
        let (low, high) = $error.time();
        ($raw.$time, $raw.$time_hi) = (low.into(), high);
        $raw.$func = $error.function();
        $raw.$block = $error.block.map_or(0, BlockNr::get).into();
        $raw.$ino = $error.inode.map_or(0, InodeNr::get).into();
        ($raw.$line, $raw.$code) = (0.into(), $error.code);
    };
}

impl SuperBlock {
    /// What is to be done once the volume is found to be broken: `s_errors`, unless the volume's own mount
    /// options (`s_mount_opts`) have `errors=`.
    #[must_use]
    pub fn on_error(&self) -> OnError {
        let option = self.mount_option("errors").and_then(|word| word.parse().ok());
        option.unwrap_or_else(|| OnError::of_code(self.raw.s_errors.get()))
    }

    /// The value of one of the mount options that the volume itself asks for (`s_mount_opts`: `NAME=VALUE`,
    /// separated by commas; the last one counts).
    #[must_use]
    pub fn mount_option(&self, name: &str) -> Option<&str> {
        let options = &self.raw.s_mount_opts;
        let end = options.iter().position(|byte| *byte == 0).unwrap_or(options.len());
        let options = std::str::from_utf8(&options[..end]).ok()?;
        let values = options.split(',').filter_map(|option| option.split_once('='));
        values.rev().find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    /// Errors recorded.
    #[must_use]
    pub fn error_count(&self) -> u32 {
        self.raw.s_error_count.get()
    }

    /// Records an error: the state says that there was one, the first and the last are kept, all are counted.
    pub fn record_error(&mut self, error: &RecordedError<'_>) {
        self.record_errors(error, error, 1);
    }

    /// Records `count` errors, of which only the first and the last one are known.
    pub fn record_errors(&mut self, first: &RecordedError<'_>, last: &RecordedError<'_>, count: u32) {
        let raw = &mut self.raw;
        raw.s_state = (raw.s_state.get() | STATE_ERROR).into();
        if raw.s_error_count.get() == 0 {
            write_error!(first to raw: s_first_error_time s_first_error_time_hi s_first_error_func
                s_first_error_block s_first_error_ino s_first_error_line s_first_error_errcode);
        }
        write_error!(last to raw: s_last_error_time s_last_error_time_hi s_last_error_func
            s_last_error_block s_last_error_ino s_last_error_line s_last_error_errcode);
        raw.s_error_count = raw.s_error_count.get().saturating_add(count).into();
    }

    /// Names what is at work on the volume where the last error is recorded, without counting an error.
    pub fn set_last_error_function(&mut self, function: &str) {
        let error = RecordedError { function, block: None, inode: None, time: Timestamp::default(), code: 0 };
        self.raw.s_last_error_func = error.function();
    }

    /// Takes over the record of errors of another copy of this superblock that knows of more: the log may
    /// have been written before an error was recorded.
    pub fn keep_errors_of(&mut self, other: &Self) {
        let (raw, other) = (&mut self.raw, &other.raw);
        if other.s_error_count.get() <= raw.s_error_count.get() {
            return;
        }
        raw.s_state = (raw.s_state.get() | other.s_state.get() & STATE_ERROR).into();
        let range = ERROR_RECORD;
        let bytes = other.as_bytes();
        raw.as_mut_bytes()[range.clone()].copy_from_slice(&bytes[range]);
        raw.s_first_error_time_hi = other.s_first_error_time_hi;
        raw.s_last_error_time_hi = other.s_last_error_time_hi;
        raw.s_first_error_errcode = other.s_first_error_errcode;
        raw.s_last_error_errcode = other.s_last_error_errcode;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw;
    use zerocopy::FromZeros;

    /// A volume of one group.
    fn superblock() -> SuperBlock {
        let mut raw = raw::SuperBlock::new_zeroed();
        raw.s_magic = crate::superblock::MAGIC.into();
        raw.s_rev_level = 1.into();
        raw.s_log_block_size = 2.into();
        raw.s_blocks_per_group = 32768.into();
        raw.s_blocks_count_lo = 32768.into();
        raw.s_inodes_per_group = 8192.into();
        raw.s_inodes_count = 8192.into();
        raw.s_inode_size = 256.into();
        raw.s_first_ino = 11.into();
        SuperBlock::from_raw(raw).unwrap()
    }

    fn error(function: &str, seconds: i64, block: u64) -> RecordedError<'_> {
        RecordedError {
            function,
            block: Some(BlockNr::new(block)),
            inode: None,
            time: Timestamp::from_seconds(seconds),
            code: ERRCODE_CHECKSUM,
        }
    }

    #[test]
    fn the_first_and_the_last_error_are_kept_and_all_are_counted() {
        let mut sb = superblock();
        sb.record_errors(&error("one", (1 << 32) + 7, 5), &error(&"n".repeat(40), 9, 6), 3);
        sb.record_error(&error("four", 11, 8));
        let raw = sb.raw();
        assert_eq!((sb.error_count(), sb.state() & STATE_ERROR), (4, STATE_ERROR));
        assert_eq!((raw.s_first_error_time.get(), raw.s_first_error_time_hi), (7, 1));
        assert_eq!((raw.s_first_error_block.get(), raw.s_last_error_block.get()), (5, 8));
        assert_eq!(&raw.s_first_error_func[..4], b"one\0");
        assert_eq!(&raw.s_last_error_func[..5], b"four\0");
        assert_eq!(raw.s_last_error_errcode, ERRCODE_CHECKSUM);
    }

    #[test]
    fn a_copy_takes_over_what_the_other_knows_more() {
        let (mut sb, mut other) = (superblock(), superblock());
        sb.record_error(&error("mine", 3, 1));
        sb.keep_errors_of(&other);
        assert_eq!((sb.error_count(), sb.raw().s_last_error_block.get()), (1, 1));
        other.record_errors(&error("first", (1 << 33) + 1, 7), &error("last", 5, 9), 2);
        sb.keep_errors_of(&other);
        let raw = sb.raw();
        assert_eq!((sb.error_count(), raw.s_first_error_time_hi, raw.s_last_error_block.get()), (2, 2, 9));
    }

    #[test]
    fn the_behaviour_is_the_volumes_own_mount_option_or_the_field() {
        let with = |code: u16, options: &[u8]| {
            let mut raw = *superblock().raw();
            raw.s_errors = code.into();
            raw.s_mount_opts[..options.len()].copy_from_slice(options);
            SuperBlock::from_raw(raw).unwrap()
        };
        for behaviour in OnError::ALL {
            assert_eq!(with(behaviour.code(), b"").on_error(), behaviour);
            assert_eq!(behaviour.name().parse(), Ok(behaviour));
        }
        assert_eq!(with(0, b"").on_error(), OnError::RemountReadOnly);
        assert_eq!(with(1, b"noatime,errors=panic").on_error(), OnError::Panic);
        assert_eq!(with(1, b"errors=panic,errors=remount-ro").on_error(), OnError::RemountReadOnly);
        assert_eq!(with(3, b"errors=nonsense").on_error(), OnError::Panic);
        let sb = with(1, b"data_err=abort,discard");
        assert_eq!((sb.mount_option("data_err"), sb.mount_option("discard")), (Some("abort"), None));
        assert!("no".parse::<OnError>().unwrap_err().to_string().contains("remount-ro"));
    }
}
