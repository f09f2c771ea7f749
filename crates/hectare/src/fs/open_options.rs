//! How a file is opened.

use crate::error::{Error, Result};
use crate::fs::file::{Access, File};
use crate::fs::made::Made;
use crate::path::VolumePath;
use crate::volume::Volume;
use hectare_engine::{Caller, Creation, Error as Cause};

/// How a file is opened, as in `std`: a setter changes the options in place, and returns them for the next.
///
/// ```
/// use hectare::fs::OpenOptions;
/// # use hectare::device::{Bytes, MemoryDevice};
/// # let device = std::sync::Arc::new(MemoryDevice::new(Bytes::mib(16)));
/// # hectare::mkfs::Format::new().on_device(&*device)?;
/// # let volume = hectare::Volume::options().write(true).open_device(device)?;
/// let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&volume, "/secret")?;
/// # drop(file);
///
/// let mut options = OpenOptions::new();
/// options.read(true);
/// let file = options.open(&volume, "/secret")?;
/// # Ok::<(), hectare::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    made: Made,
}

impl OpenOptions {
    /// Nothing is asked for.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// For reading.
    pub fn read(&mut self, read: bool) -> &mut Self {
        self.read = read;
        self
    }

    /// For writing.
    pub fn write(&mut self, write: bool) -> &mut Self {
        self.write = write;
        self
    }

    /// For writing at the end: each write goes to the end as it is then, also if other handles write.
    pub fn append(&mut self, append: bool) -> &mut Self {
        self.append = append;
        self
    }

    /// Removes the content; needs `write`.
    pub fn truncate(&mut self, truncate: bool) -> &mut Self {
        self.truncate = truncate;
        self
    }

    /// Makes the file if there is none; needs `write` or `append`.
    pub fn create(&mut self, create: bool) -> &mut Self {
        self.create = create;
        self
    }

    /// Makes the file, which must not exist; needs `write` or `append`.
    pub fn create_new(&mut self, create_new: bool) -> &mut Self {
        self.create_new = create_new;
        self
    }

    /// The permission bits of a file that is made; 0644 if not given.
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.made.mode = Some(mode);
        self
    }

    /// Owner and group of a file that is made, instead of the volume's own.
    pub fn owner(&mut self, uid: u32, gid: u32) -> &mut Self {
        self.made.owner = Some((uid, gid));
        self
    }

    /// Opens the file at a path; a symbolic link at its end is followed, also one that leads to nothing where
    /// the file is made.
    ///
    /// # Errors
    /// As `std::fs::OpenOptions::open`: of kind `InvalidInput` if the options make no sense together.
    pub fn open(&self, volume: &Volume, path: impl VolumePath) -> Result<File> {
        let path = path.volume_path();
        let failed = |cause| volume.error(&path, cause);
        let access = self.access().map_err(|why| Error::invalid(volume.place(&path), why))?;
        if access.write && volume.engine().is_read_only() {
            return Err(failed(Cause::ReadOnly));
        }
        let (open, is_new) = self.find(volume, &path).map_err(failed)?;
        if access.write && !is_new {
            open.check_opens_to_write(access.append).map_err(failed)?;
        }
        if self.truncate && !is_new && !self.create_new {
            open.drop_privileges(&Caller::ROOT).and_then(|_| open.set_len(0)).map_err(failed)?;
        }
        Ok(File::new(volume, &path, open, access))
    }

    fn access(&self) -> Result<Access, &'static str> {
        let writes = self.write || self.append;
        if !writes && !self.read {
            return Err("open for reading, writing or appending");
        }
        if (self.create || self.create_new || self.truncate) && !writes {
            return Err("who makes or empties a file opens it for writing");
        }
        if self.truncate && self.append && !self.create_new {
            return Err("a file is emptied or appended to, not both");
        }
        Ok(Access { read: self.read, write: writes, append: self.append })
    }

    /// The file, and whether it was made.
    fn find(&self, volume: &Volume, path: &[u8]) -> Result<(hectare_engine::OpenFile, bool), Cause> {
        let engine = volume.engine();
        let usual = volume.creation();
        // That of a directory, without the right to search it.
        let creation = self.made.creation(Creation { permissions: usual.permissions & 0o666, ..usual });
        if (self.create || self.create_new) && path.ends_with(b"/") {
            // No file is made there, and none that is there is opened, as in POSIX.
            let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
            let parent =
                path[..end].iter().rposition(|byte| *byte == b'/').map_or(&path[..0], |at| &path[..=at]);
            engine.resolve(parent, true)?;
            return Err(if self.create_new && end == 0 { Cause::Exists } else { Cause::IsADirectory });
        }
        if self.create_new {
            return Ok((engine.create_file(path, creation)?, true));
        }
        // Another thread may make or remove the file in between: then it is looked for again.
        for _ in 0..RACES_MAX {
            match engine.open_file(path) {
                Err(Cause::NotFound) if self.create => {}
                found => return Ok((found?, false)),
            }
            match engine.create_file(&volume.beyond_links(path)?, creation) {
                Err(Cause::Exists) => {}
                made => return Ok((made?, true)),
            }
        }
        Err(Cause::Exists)
    }
}

/// How often a file may be made and removed by others while it is opened.
const RACES_MAX: u32 = 1000;
