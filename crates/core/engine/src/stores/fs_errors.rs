//! Metadata corruption found while a volume is in use, and the volume's reaction to it.
//!
//! Code that reads metadata and finds that it breaks the format, or that the device can't read it, records
//! that here and returns the error. Only that operation fails; the volume stays in use. The next commit
//! records the error in the superblock, as the kernel does (first and last error, their number, and a state
//! that requests e2fsck). Unless the volume is to continue after errors ([`OnError::Continue`]), it takes no
//! more changes from then on: the next one aborts the journal, and returns the reason. Committed changes
//! stay; the others are lost, since they may build on corrupt metadata.
//!
//! Recording takes a leaf lock and does no I/O, so that it may be done under any lock. It also logs: a logger
//! installed in the process must not wait.
//!
//! Invariant: an error at one place counts once while the volume is open, however often it is met, and on
//! whichever layers it is recorded on its way up.
//!
//! Not here: failed writes. Those of metadata abort the journal whatever the volume's reaction is; those of
//! file data are reported to the writer ([`crate::data::device`]).

use crate::error::{Error, Result};
use hectare_ext4::error::Place;
use hectare_ext4::superblock::{
    ERRCODE_CHECKSUM, ERRCODE_CORRUPT, ERRCODE_IO, OnError, RecordedError, SuperBlock,
};
use hectare_ext4::time::Timestamp;
use hectare_units::{BlockNr, InodeNr};
use log::error;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::OnceLock;

/// Places remembered; with more corrupt places on a volume, they are dropped now and then, and count anew.
const PLACES_MAX: usize = 4096;

/// One corrupt place.
#[derive(Clone, Debug)]
struct Finding {
    structure: &'static str,
    place: Place,
    block: Option<BlockNr>,
    time: Timestamp,
    code: u8,
    /// The whole error, one line.
    message: String,
}

impl Finding {
    /// In the superblock's form.
    fn record(&self) -> RecordedError<'_> {
        let inode = match self.place {
            Place::Inode(nr) | Place::FileBlock(nr, _) => Some(nr),
            _ => None,
        };
        let block = match self.place {
            Place::Block(nr) => Some(nr),
            _ => self.block,
        };
        let function = self.structure.trim_start_matches("the ");
        RecordedError { function, block, inode, time: self.time, code: self.code }
    }

    /// The reason that a stopped volume gives, one line.
    fn reason(&self, reaction: OnError) -> String {
        let block = self.record().block.map(|nr| format!(" in block {nr}")).unwrap_or_default();
        let (message, time) = (&self.message, self.time.utc());
        format!("{message} (found{block} at {time}, errors={reaction}): close it and run e2fsck -fy on it")
    }
}

/// What the superblock does not have yet.
struct Waiting {
    first: Finding,
    last: Finding,
    count: u32,
}

#[derive(Default)]
struct State {
    known: HashSet<(&'static str, Place, u8)>,
    waiting: Option<Waiting>,
    count: u32,
    first: Option<Finding>,
}

/// The errors found on a volume since it was opened.
pub(crate) struct Findings {
    reaction: OnError,
    fixed_time: Option<Timestamp>,
    state: Mutex<State>,
    /// Why no more changes are accepted.
    stop: OnceLock<String>,
}

impl Findings {
    /// Nothing yet. `fixed_time` stands for the clock.
    pub(crate) fn new(reaction: OnError, fixed_time: Option<Timestamp>) -> Self {
        Self { reaction, fixed_time, state: Mutex::default(), stop: OnceLock::new() }
    }

    /// What the volume does on metadata corruption.
    pub(crate) fn reaction(&self) -> OnError {
        self.reaction
    }

    /// Records an error that reports corruption; ignores any other.
    pub(crate) fn note(&self, error: &Error) {
        self.note_at(error, None);
    }

    /// Like [`Self::note`], where the block with the error is known.
    pub(crate) fn note_at(&self, error: &Error, block: Option<BlockNr>) {
        let Error::Corrupt(corrupt) = error else { return };
        let code = if corrupt.is_checksum { ERRCODE_CHECKSUM } else { ERRCODE_CORRUPT };
        self.add(corrupt.structure, corrupt.place, block, code, error);
    }

    /// Records an error of reading a block of metadata: it is corrupt, or the device failed.
    pub(crate) fn note_read(&self, error: &Error, structure: &'static str, place: Place, block: BlockNr) {
        match error {
            Error::Device(_) => self.add(structure, place, Some(block), ERRCODE_IO, error),
            _ => self.note_at(error, Some(block)),
        }
    }

    fn add(&self, structure: &'static str, place: Place, block: Option<BlockNr>, code: u8, error: &Error) {
        let time = self.fixed_time.unwrap_or_else(Timestamp::now);
        let finding = Finding { structure, place, block, time, code, message: error.to_string() };
        let mut state = self.state.lock();
        if state.known.len() >= PLACES_MAX {
            state.known.clear();
        }
        if !state.known.insert((structure, place, code)) {
            return;
        }
        error!(block:? = finding.record().block.map(BlockNr::get), error = &*finding.message,
            errors:% = self.reaction; "something is broken");
        state.count = state.count.saturating_add(1);
        state.first.get_or_insert_with(|| finding.clone());
        if self.reaction != OnError::Continue {
            self.stop.get_or_init(|| finding.reason(self.reaction));
        }
        match &mut state.waiting {
            Some(waiting) => {
                waiting.last = finding;
                waiting.count = waiting.count.saturating_add(1);
            }
            none => *none = Some(Waiting { first: finding.clone(), last: finding, count: 1 }),
        }
    }

    /// Why no more changes are accepted, if an error requires that.
    pub(crate) fn stop(&self) -> Option<&str> {
        self.stop.get().map(String::as_str)
    }

    /// Whether the superblock lacks an error.
    pub(crate) fn is_waiting(&self) -> bool {
        self.state.lock().waiting.is_some()
    }

    /// Records what the superblock does not have yet; returns whether there was anything.
    pub(crate) fn record(&self, sb: &mut SuperBlock) -> bool {
        let waiting = self.state.lock().waiting.take();
        let Some(Waiting { first, last, count }) = waiting else { return false };
        sb.record_errors(&first.record(), &last.record(), count);
        true
    }

    /// The number of errors, and the first.
    pub(crate) fn told(&self) -> Option<FoundErrors> {
        let state = self.state.lock();
        let first = state.first.as_ref()?;
        let record = first.record();
        Some(FoundErrors {
            count: state.count,
            first: first.message.clone(),
            block: record.block,
            inode: record.inode,
            time: first.time,
        })
    }
}

/// The metadata corruption found on a volume since it was opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundErrors {
    /// The number of corrupt places, of those that were read.
    pub count: u32,
    /// The first of them: structure, place and reason, one line.
    pub first: String,
    /// The block of the first, where that is known.
    pub block: Option<BlockNr>,
    /// The inode of the first, if it belongs to one.
    pub inode: Option<InodeNr>,
    /// When the first was found.
    pub time: Timestamp,
}

/// Records metadata corruption on an error's way up.
pub(crate) trait Watched {
    /// Records the error, if it reports corruption.
    fn watched(self, findings: &Findings) -> Self;
}

impl<T> Watched for Result<T> {
    fn watched(self, findings: &Findings) -> Self {
        self.inspect_err(|error| findings.note(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_device::{Operation, Reason};
    use hectare_ext4::error::Corrupt;

    fn corrupt(nr: u64) -> Error {
        Corrupt::new("a node", Place::Block(BlockNr::new(nr)), "it is odd").into()
    }

    fn eio() -> Error {
        hectare_device::Error::new("disk", Operation::Read, None, Reason::Io(5)).into()
    }

    #[test]
    fn a_place_counts_once_on_whichever_layers_it_is_noted() {
        let findings = Findings::new(OnError::Continue, Some(Timestamp::from_seconds(60)));
        for _ in 0..3 {
            findings.note_read(&corrupt(7), "a block", Place::Volume, BlockNr::new(7));
            assert!(Err::<(), _>(corrupt(7)).watched(&findings).is_err());
            findings.note_read(&eio(), "a block", Place::Block(BlockNr::new(7)), BlockNr::new(7));
        }
        findings.note(&corrupt(8));
        let told = findings.told().unwrap();
        assert_eq!((told.count, told.block), (3, Some(BlockNr::new(7))));
        assert_eq!(told.first, "a node in block 7 is corrupt: it is odd");
        assert_eq!((findings.stop(), findings.is_waiting()), (None, true));
    }

    #[test]
    fn what_is_no_fault_of_the_volume_is_not_noted() {
        let findings = Findings::new(OnError::Panic, None);
        for error in [Error::NotFound, Error::NoSpace, Error::Unsupported("x".into()), eio()] {
            findings.note(&error);
        }
        assert_eq!((findings.told(), findings.is_waiting(), findings.stop()), (None, false, None));
    }

    #[test]
    fn the_first_one_is_the_reason_to_stop() {
        let findings = Findings::new(OnError::RemountReadOnly, Some(Timestamp::from_seconds(60)));
        findings.note(&corrupt(7));
        findings.note(&corrupt(8));
        let reason = findings.stop().unwrap();
        assert!(
            reason.starts_with("a node in block 7 is corrupt: it is odd (found in block 7 at 1970-01-01 ")
        );
        assert!(reason.contains("errors=remount-ro") && reason.contains("e2fsck -fy"), "{reason}");
    }

    #[test]
    fn more_broken_places_than_can_be_remembered_are_all_counted() {
        let findings = Findings::new(OnError::Continue, None);
        (0..10_000).for_each(|nr| findings.note(&corrupt(nr)));
        assert_eq!(findings.told().unwrap().count, 10_000);
        assert!(findings.state.lock().known.len() <= PLACES_MAX);
    }
}
