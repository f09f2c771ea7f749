//! The sorted names of one directory.
//!
//! Sorting takes all names at once, so memory follows the directory: about twice its bytes on the volume (16
//! bytes and the name for a record of at least 12). All names are in one buffer, and a refusal by the system
//! to grow it is an error.

use crate::image::Image;
use hectare_engine::{Cookie, Kind, Result};
use hectare_units::{InodeNr, memory, u64_of};

/// Entries read at a time.
const STEP: usize = 1024;

/// The file that a name refers to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) inode: InodeNr,
    /// Its kind, if recorded in the directory entry.
    pub(crate) kind: Option<Kind>,
}

/// The entries of a directory, taken from the front.
#[derive(Default)]
pub(crate) struct Names {
    bytes: Vec<u8>,
    places: Vec<StoredName>,
    taken: usize,
}

/// The position of a name in [`Names::bytes`].
struct StoredName {
    start: u64,
    inode: InodeNr,
    len: u16,
    kind: Option<Kind>,
}

impl Names {
    /// The entries that `wanted` accepts, sorted by the bytes of their names; `.` and `..`, if among them,
    /// first.
    pub(crate) fn sorted(image: &Image, nr: InodeNr, wanted: impl Fn(Entry<'_>) -> bool) -> Result<Self> {
        let mut names = Self::default();
        let mut at = Cookie::START;
        loop {
            let step = image.volume().read_dir_at(nr, at, STEP)?;
            let Some(last) = step.last() else { break };
            at = last.next;
            for entry in &step {
                let entry = Entry { name: &entry.name, inode: entry.inode, kind: entry.kind };
                if wanted(entry) {
                    names.push(entry)?;
                }
            }
        }
        let Self { bytes, places, .. } = &mut names;
        let key = |place: &StoredName| {
            let name = place.name(bytes);
            (name != b"." && name != b"..", name)
        };
        places.sort_unstable_by(|a, b| key(a).cmp(&key(b)));
        Ok(names)
    }

    fn push(&mut self, entry: Entry<'_>) -> Result<()> {
        let Entry { name, inode, kind } = entry;
        memory::reserve(&mut self.bytes, name.len())?;
        memory::reserve(&mut self.places, 1)?;
        let (start, len) = (u64_of(self.bytes.len()), u16::try_from(name.len()).unwrap_or(u16::MAX));
        self.bytes.extend_from_slice(name);
        self.places.push(StoredName { start, inode, len, kind });
        Ok(())
    }

    /// The next one.
    pub(crate) fn next(&mut self) -> Option<Entry<'_>> {
        let place = self.places.get(self.taken)?;
        self.taken += 1;
        Some(Entry { name: place.name(&self.bytes), inode: place.inode, kind: place.kind })
    }

    /// How many are left.
    pub(crate) fn left(&self) -> usize {
        self.places.len() - self.taken
    }
}

impl StoredName {
    fn name<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let start = hectare_units::index_of(self.start);
        &bytes[start..start + usize::from(self.len)]
    }
}
