//! The sorted names of one directory.
//!
//! Sorting takes all names at once, so memory follows the directory: about twice its bytes on the volume (16
//! bytes and the name for a record of at least 12). All names are in one buffer, and a refusal by the system
//! to grow it is an error.

use hectare_engine::{Cookie, Kind, Result, Volume};
use hectare_units::{InodeNr, memory, u64_of};

/// The message for a directory that is met twice: a directory has one parent, and could contain itself.
pub const MET_TWICE: &str = "the directory is corrupt: it was met before on another path";
/// The message for a directory that can't be valid together with its ancestors.
pub const TOO_MANY: &str =
    "the directory is corrupt: it and those it is in have more names than the volume has room for";

/// The minimum bytes of a directory entry.
const RECORD_MIN: u64 = 12;
/// Entries read at a time.
const STEP: usize = 1024;

/// The file that a name refers to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// The name.
    pub name: &'a [u8],
    /// Its inode.
    pub inode: InodeNr,
    /// Its kind, if recorded in the directory entry.
    pub kind: Option<Kind>,
}

/// The entries of a directory, taken from the front.
#[derive(Default)]
pub struct Names {
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
    ///
    /// # Errors
    /// As [`Volume::read_dir_at`], and if the system refuses memory.
    pub fn sorted(volume: &Volume, nr: InodeNr, wanted: impl Fn(Entry<'_>) -> bool) -> Result<Self> {
        let mut names = Self::default();
        let mut at = Cookie::START;
        loop {
            let step = volume.read_dir_at(nr, at, STEP)?;
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

    /// The next one, which stays where it is.
    #[must_use]
    pub fn front(&self) -> Option<Entry<'_>> {
        let place = self.places.get(self.taken)?;
        Some(Entry { name: place.name(&self.bytes), inode: place.inode, kind: place.kind })
    }

    /// The next one, taken.
    pub fn pop_front(&mut self) -> Option<Entry<'_>> {
        let place = self.places.get(self.taken)?;
        self.taken += 1;
        Some(Entry { name: place.name(&self.bytes), inode: place.inode, kind: place.kind })
    }

    /// How many are left.
    #[must_use]
    pub fn left(&self) -> usize {
        self.places.len() - self.taken
    }
}

/// How many bytes a volume has. Its superblock says so, also where what `statfs` counts can't be read.
#[must_use]
pub(crate) fn volume_len(volume: &Volume) -> u64 {
    let geometry = volume.superblock().geometry();
    geometry.blocks_count.bytes(geometry.block_size).get()
}

/// Whether a volume has room for this many names, those of a directory and of its ancestors, which a walk
/// holds at once. Directories that share blocks would turn a few blocks into any number of names.
#[must_use]
pub fn is_room_for(volume: &Volume, names: usize) -> bool {
    u64_of(names).saturating_mul(RECORD_MIN) <= volume_len(volume)
}

impl StoredName {
    fn name<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let start = hectare_units::index_of(self.start);
        &bytes[start..start + usize::from(self.len)]
    }
}
