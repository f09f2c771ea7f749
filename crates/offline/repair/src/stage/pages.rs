//! Pages of 4 KiB, in memory as far as they may be there, and the others in a file.
//!
//! What a repair has to remember goes into pages: the blocks that it changes ([`crate::stage::overlay`]), what
//! it knows of inodes ([`crate::know::known`]), what it says of its mends ([`crate::mends`]). While they fit the
//! memory that the store may use there is no file. Beyond it, pages that were not used for long are written
//! to one (the clock algorithm). A page lies in the file at its number, so that there is nothing to look for:
//! eight bytes of memory remain of it, its frame or none, and the checksum of what was written.
//!
//! Rules:
//! - *The file has no name.* It is made unlinked, so that the system frees it however the process ends.
//! - *What comes back is what was written*: each page read has the checksum of when it was written, or it is
//!   an error. A device that loses what was in the page cache does not make a wrong volume.
//! - *The first failure stays* ([`PageStore::failure`]): what hands a result out asks for it last.
//! - *Before a volume is written the store is settled* ([`PageStore::settle`]): all pages are in the file and
//!   durable, so that reading them never needs space.
//!
//! Hazard: one lock, held while the file is read or written. One thread repairs.
//!
//! What this is not: storage. Nothing is there for another process, or after this one.

use hectare_device::os::FileExt;
use hectare_device::{Error, Operation, Reason, Result, Span};
use hectare_ext4::checksum::crc32c;
use hectare_units::{Bytes, OutOfMemory, index_of, low32, memory, u64_of, usize_of};
use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Bytes of a page.
pub(crate) const PAGE_LEN: usize = 4096;
/// The bytes of a page.
pub(crate) type Page = [u8; PAGE_LEN];

/// Frames that a store has at least, whatever it may use.
const FRAMES_MIN: usize = 4;
/// No frame: the page is in the file.
const OUT: u32 = u32::MAX;
/// Numbers of pages are below this; those above have a meaning where they are kept.
pub(crate) const NUMBERS_END: u32 = u32::MAX - 16;
/// What is said where the system refuses memory.
const NOMEM: i32 = 12;

/// Pages in memory, and beyond a limit in a file.
pub struct PageStore {
    frames_max: usize,
    folder: Option<PathBuf>,
    name: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    frames: Vec<Frame>,
    /// Frames without a page.
    idle: Vec<usize>,
    /// Where the clock's hand is.
    hand: usize,
    places: Vec<Place>,
    /// Numbers to be used again.
    spare: Vec<u32>,
    file: Option<File>,
    failure: Option<Error>,
}

/// A page in memory.
struct Frame {
    bytes: Box<Page>,
    page: u32,
    /// Whether it was used since the hand was here.
    used: bool,
    /// Whether the file does not have it as it is.
    dirty: bool,
}

/// What is known of a page.
#[derive(Clone, Copy)]
struct Place {
    /// Its frame, or [`OUT`].
    frame: u32,
    /// The checksum of what the file has.
    sum: u32,
}

impl State {
    /// Notes which page a frame has.
    fn put(&mut self, frame: usize, number: u32, dirty: bool) {
        let of = &mut self.frames[frame];
        (of.page, of.used, of.dirty) = (number, true, dirty);
        self.places[usize_of(number)].frame = low32(u64_of(frame));
    }
}

impl PageStore {
    /// A store without a limit, and without a file.
    #[must_use]
    pub fn in_memory() -> Self {
        let name = "memory for what is staged".to_owned();
        Self { frames_max: usize::MAX, folder: None, name, state: Mutex::default() }
    }

    /// A store whose pages take `memory` at most (16 KiB at least), and beyond it space in a file without a
    /// name in `folder`. The file is made when it is needed, or earlier where the system refuses memory.
    #[must_use]
    pub fn within(memory: Bytes, folder: PathBuf) -> Self {
        let frames_max = index_of(memory.get() / u64_of(PAGE_LEN)).max(FRAMES_MIN);
        let name = format!("spill file in {}", folder.display());
        Self { frames_max, folder: Some(folder), name, state: Mutex::default() }
    }

    /// Where the file is or would be made.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Whether there is a file.
    #[must_use]
    pub fn has_spilled(&self) -> bool {
        self.state.lock().file.is_some()
    }

    /// The first failure of memory or of the file, if there was one: what was read since may be wrong.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.state.lock().failure.clone()
    }

    /// Keeps a page, and gives its number.
    pub(crate) fn add(&self, bytes: &Page) -> Result<u32> {
        self.noting(|state| {
            let number = match state.spare.pop() {
                Some(number) => number,
                None => self.next_number(&mut state.places)?,
            };
            let frame = self.room(state)?;
            state.put(frame, number, true);
            state.frames[frame].bytes.copy_from_slice(bytes);
            Ok(number)
        })
    }

    /// Reads a page.
    pub(crate) fn read<T>(&self, number: u32, look: impl FnOnce(&Page) -> T) -> Result<T> {
        self.noting(|state| {
            let frame = self.frame(state, number)?;
            Ok(look(&state.frames[frame].bytes))
        })
    }

    /// Changes a page.
    pub(crate) fn change<T>(&self, number: u32, change: impl FnOnce(&mut Page) -> T) -> Result<T> {
        self.noting(|state| {
            let frame = self.frame(state, number)?;
            let frame = &mut state.frames[frame];
            frame.dirty = true;
            Ok(change(&mut frame.bytes))
        })
    }

    /// Forgets a page.
    pub(crate) fn remove(&self, number: u32) {
        let mut state = self.state.lock();
        let place = &mut state.places[usize_of(number)];
        let frame = std::mem::replace(&mut place.frame, OUT);
        if frame != OUT {
            state.frames[usize_of(frame)].page = OUT;
            state.idle.push(usize_of(frame));
        }
        state.spare.push(number);
    }

    /// Makes the file hold every page, durably, if there is one. From here on reading needs no space.
    ///
    /// # Errors
    /// If the file's storage is full or fails.
    pub(crate) fn settle(&self) -> Result<()> {
        self.noting(|state| {
            if state.file.is_none() {
                return Ok(());
            }
            for frame in 0..state.frames.len() {
                if state.frames[frame].page != OUT && state.frames[frame].dirty {
                    self.write(state, frame)?;
                }
            }
            let synced = state.file.as_ref().map_or(Ok(()), File::sync_data);
            synced.map_err(|error| self.failed(Operation::Flush, None, &error))
        })
    }

    /// Remembers the first failure.
    fn noting<T>(&self, work: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let mut state = self.state.lock();
        let done = work(&mut state);
        if let Err(error) = &done {
            state.failure.get_or_insert_with(|| error.clone());
        }
        done
    }

    fn next_number(&self, places: &mut Vec<Place>) -> Result<u32> {
        let number = u32::try_from(places.len()).ok().filter(|number| *number < NUMBERS_END);
        let Some(number) = number else {
            return Err(Error::new(
                &self.name,
                Operation::Write,
                None,
                Reason::Unsupported("it has no room"),
            ));
        };
        memory::reserve(places, 1).map_err(|OutOfMemory { .. }| self.refused())?;
        places.push(Place { frame: OUT, sum: 0 });
        Ok(number)
    }

    /// The frame of a page, which is read from the file if need be.
    fn frame(&self, state: &mut State, number: u32) -> Result<usize> {
        let Place { frame, sum } = state.places[usize_of(number)];
        if frame != OUT {
            let frame = usize_of(frame);
            state.frames[frame].used = true;
            return Ok(frame);
        }
        let frame = self.room(state)?;
        if let Err(error) = self.fetch(state, frame, number, sum) {
            state.idle.push(frame);
            return Err(error);
        }
        state.put(frame, number, false);
        Ok(frame)
    }

    /// A frame without a page.
    fn room(&self, state: &mut State) -> Result<usize> {
        if let Some(frame) = state.idle.pop() {
            return Ok(frame);
        }
        if state.frames.len() < self.frames_max {
            // Each frame that there is may be idle one day, without asking for memory then.
            let places = memory::reserve(&mut state.frames, 1)
                .and_then(|()| memory::reserve(&mut state.idle, state.frames.len() + 1));
            let bytes = places.and_then(|()| memory::filled(0_u8, PAGE_LEN)).ok();
            match bytes.and_then(|bytes| bytes.into_boxed_slice().try_into().ok()) {
                Some(bytes) => {
                    state.frames.push(Frame { bytes, page: OUT, used: false, dirty: false });
                    return Ok(state.frames.len() - 1);
                }
                None if self.folder.is_none() || state.frames.is_empty() => return Err(self.refused()),
                None => {}
            }
        }
        // Each is passed once with its mark, and once without.
        loop {
            let frame = state.hand;
            state.hand = (frame + 1) % state.frames.len();
            if std::mem::take(&mut state.frames[frame].used) {
                continue;
            }
            if state.frames[frame].dirty {
                self.write(state, frame)?;
            }
            let page = std::mem::replace(&mut state.frames[frame].page, OUT);
            state.places[usize_of(page)].frame = OUT;
            return Ok(frame);
        }
    }

    /// Writes a frame's page to the file.
    fn write(&self, state: &mut State, frame: usize) -> Result<()> {
        if state.file.is_none() {
            state.file = Some(self.made_file()?);
        }
        let State { frames, places, file: Some(file), .. } = state else { return Err(self.refused()) };
        let frame = &mut frames[frame];
        let span = place_of(frame.page);
        file.write_all_at(&frame.bytes[..], span.at.get())
            .map_err(|error| self.failed(Operation::Write, Some(span), &error))?;
        places[usize_of(frame.page)].sum = crc32c(!0, &frame.bytes[..]);
        frame.dirty = false;
        Ok(())
    }

    /// Reads a page from the file into a frame.
    fn fetch(&self, state: &mut State, frame: usize, number: u32, sum: u32) -> Result<()> {
        let State { frames, file: Some(file), .. } = state else { return Err(self.refused()) };
        let (bytes, span) = (&mut frames[frame].bytes, place_of(number));
        file.read_exact_at(&mut bytes[..], span.at.get())
            .map_err(|error| self.failed(Operation::Read, Some(span), &error))?;
        if crc32c(!0, &bytes[..]) == sum {
            return Ok(());
        }
        let reason = Reason::Origin("it does not hold what was written there".to_owned());
        Err(Error::new(&self.name, Operation::Read, Some(span), reason))
    }

    fn made_file(&self) -> Result<File> {
        let Some(folder) = &self.folder else { return Err(self.refused()) };
        tempfile::tempfile_in(folder).map_err(|error| self.failed(Operation::Create, None, &error))
    }

    fn refused(&self) -> Error {
        Error::new(&self.name, Operation::Write, None, Reason::Io(NOMEM))
    }

    fn failed(&self, operation: Operation, span: Option<Span>, error: &io::Error) -> Error {
        const IO: i32 = 5;
        Error::new(&self.name, operation, span, Reason::Io(error.raw_os_error().unwrap_or(IO)))
    }
}

/// Where a page lies in the file.
fn place_of(number: u32) -> Span {
    Span::new(Bytes::new(u64::from(number) * u64_of(PAGE_LEN)), Bytes::of(PAGE_LEN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_units::random::SplitMix64 as Random;

    fn small(folder: &Path) -> PageStore {
        PageStore::within(Bytes::ZERO, folder.to_owned())
    }

    /// Pages are made, changed, read and forgotten at random; many more than there are frames.
    #[test]
    fn pages_come_back_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let store = small(folder.path());
        let mut random = Random::new(3);
        let mut model: Vec<(u32, u8)> = Vec::new();
        for _ in 0..20_000 {
            match random.below(8) {
                0 | 1 => {
                    let byte = u8::try_from(random.below(256)).unwrap();
                    model.push((store.add(&[byte; PAGE_LEN]).unwrap(), byte));
                }
                2 if model.len() > 900 => store.remove(model.swap_remove(random.index_below(model.len())).0),
                3 if !model.is_empty() => {
                    let at = random.index_below(model.len());
                    model[at].1 ^= 0x55;
                    store.change(model[at].0, |page| page.fill(model[at].1)).unwrap();
                }
                _ if !model.is_empty() => {
                    let (number, byte) = model[random.index_below(model.len())];
                    assert!(store.read(number, |page| page.iter().all(|b| *b == byte)).unwrap());
                }
                _ => {}
            }
        }
        assert!(store.has_spilled() && model.len() > 10 * FRAMES_MIN);
        assert!(store.state.lock().frames.len() == FRAMES_MIN, "memory is bounded");
        store.settle().unwrap();
        for (number, byte) in model {
            assert!(store.read(number, |page| *page == [byte; PAGE_LEN]).unwrap());
        }
        assert!(store.failure().is_none());
        assert!(folder.path().read_dir().unwrap().next().is_none(), "the file has no name");
    }

    #[test]
    fn what_fits_makes_no_file() {
        let store = PageStore::within(Bytes::mib(1), "/nonexistent".into());
        let numbers: Vec<u32> = (0..=255).map(|byte| store.add(&[byte; PAGE_LEN]).unwrap()).collect();
        assert!(!store.has_spilled());
        assert!(numbers.iter().all(|number| store.read(*number, |_| ()).is_ok()));
        let error = store.add(&[0; PAGE_LEN]).unwrap_err();
        assert_eq!(error.to_string(), "spill file in /nonexistent: cannot create: No such file or directory");
        assert_eq!(store.failure(), Some(error));
    }

    #[test]
    fn a_file_that_forgets_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let store = small(folder.path());
        let numbers: Vec<u32> = (0..200).map(|_| store.add(&[7; PAGE_LEN]).unwrap()).collect();
        let first = place_of(numbers[0]).at.get();
        store.state.lock().file.as_ref().unwrap().write_all_at(&[0; 512], first).unwrap();
        let error = store.read(numbers[0], |_| ()).unwrap_err();
        assert!(error.to_string().contains("does not hold what was written there"), "{error}");
        assert!(store.read(numbers[1], |_| ()).is_ok());
        assert_eq!(store.failure(), Some(error), "and stays known");
    }
}
