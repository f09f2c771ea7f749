//! Any host: paths, and the standard library.

use super::Attribute;
use crate::stat::{FileType, Stat, stat_of};
use hectare_device::os::{self, BorrowedFd, Errno, errno_of, name_bytes, os_string};
use hectare_units::{index_of, u64_of};
use std::ffi::CStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

/// Zeros of this length, at a multiple of it, are a hole in a file that has holes.
const HOLE_LEN: usize = 4096;
/// How much is read at once to find holes.
const PIECE_LEN: usize = 1 << 18;

/// A directory, by its path.
#[derive(Debug)]
pub struct Folder(PathBuf);

fn failed(error: &io::Error) -> Errno {
    match error.kind() {
        io::ErrorKind::NotFound => Errno::NOENT,
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput if error.raw_os_error().is_none() => {
            Errno::ILSEQ
        }
        _ => errno_of(error),
    }
}

impl Folder {
    /// Opens a directory, which may be named through symbolic links.
    ///
    /// # Errors
    /// The system's error.
    pub fn open(path: &Path) -> Result<Self, Errno> {
        let path = fs::canonicalize(path).map_err(|error| failed(&error))?;
        fs::read_dir(&path).map_err(|error| failed(&error))?;
        Ok(Self(path))
    }

    /// Another handle of it.
    ///
    /// # Errors
    /// Never, on this host.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(self.0.clone()))
    }

    /// The path of something below it; all before the last name are directories and no links.
    fn below(&self, path: &[u8]) -> Result<(PathBuf, Option<Metadata>), Errno> {
        let (mut at, mut last) = (self.0.clone(), None::<Metadata>);
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            match &last {
                _ if name == b".." => return Err(Errno::XDEV),
                Some(metadata) if metadata.is_symlink() => return Err(Errno::LOOP),
                Some(metadata) if !metadata.is_dir() => return Err(Errno::NOTDIR),
                _ => {}
            }
            at.push(os_string(name).map_err(|error| failed(&error))?);
            last = Some(fs::symlink_metadata(&at).map_err(|error| failed(&error))?);
        }
        Ok((at, last))
    }

    /// A directory below it, to reach what is in it; by an empty path itself.
    ///
    /// # Errors
    /// The system's error; that of a link where there is one.
    pub fn reach(&self, path: &[u8]) -> Result<Self, Errno> {
        match self.below(path)? {
            (_, Some(metadata)) if metadata.is_symlink() => Err(Errno::LOOP),
            (_, Some(metadata)) if !metadata.is_dir() => Err(Errno::NOTDIR),
            (path, _) => Ok(Self(path)),
        }
    }

    /// A directory below it, to list it; by an empty path itself. Its time of access may change, whatever
    /// `quiet` says.
    ///
    /// # Errors
    /// As [`Folder::reach`].
    pub fn to_list(&self, path: &[u8], quiet: &mut bool) -> Result<Self, Errno> {
        *quiet = false;
        self.reach(path)
    }

    /// Opens a file by its name in the directory; `quiet` as in [`Folder::to_list`].
    ///
    /// # Errors
    /// The system's error; that of a link if it is one.
    pub fn open_file(&self, name: &[u8], quiet: &mut bool) -> Result<File, Errno> {
        *quiet = false;
        self.open_below(name)
    }

    /// Opens a file below the directory, without following a link on the way.
    ///
    /// # Errors
    /// The system's error; that of a link where there is one, `ENXIO` for what could make the
    /// caller wait.
    pub fn open_below(&self, path: &[u8]) -> Result<File, Errno> {
        match self.below(path)? {
            (_, Some(metadata)) if metadata.is_symlink() => Err(Errno::LOOP),
            (path, Some(metadata)) if metadata.is_file() || metadata.is_dir() => {
                File::open(path).map_err(|error| failed(&error))
            }
            _ => Err(Errno::NXIO),
        }
    }

    fn place(&self, name: &CStr) -> Result<PathBuf, Errno> {
        os_string(name.to_bytes()).map(|name| self.0.join(name)).map_err(|error| failed(&error))
    }

    /// The metadata of a name in it, not followed.
    ///
    /// # Errors
    /// The system's error.
    pub fn stat(&self, name: &CStr) -> Result<Stat, Errno> {
        fs::symlink_metadata(self.place(name)?)
            .map(|metadata| stat_of(&metadata))
            .map_err(|error| failed(&error))
    }

    /// Its own metadata.
    ///
    /// # Errors
    /// The system's error.
    pub fn stat_itself(&self) -> Result<Stat, Errno> {
        fs::symlink_metadata(&self.0).map(|metadata| stat_of(&metadata)).map_err(|error| failed(&error))
    }

    /// What a symbolic link in it points at. On Windows, with slashes.
    ///
    /// # Errors
    /// The system's error.
    pub fn read_link(&self, name: &CStr) -> Result<Vec<u8>, Errno> {
        let target = fs::read_link(self.place(name)?).map_err(|error| failed(&error))?;
        let mut target = name_bytes(target.as_os_str()).map_err(|error| failed(&error))?.to_vec();
        if cfg!(windows) {
            target.iter_mut().filter(|byte| **byte == b'\\').for_each(|byte| *byte = b'/');
        }
        Ok(target)
    }

    /// The names in it, each ended by a NUL.
    ///
    /// # Errors
    /// The system's error; that of an invalid name for one that is not Unicode where names have to be.
    pub fn names(&self, _room: &mut Listing) -> Result<Vec<u8>, Errno> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.0).map_err(|error| failed(&error))? {
            let name = entry.map_err(|error| failed(&error))?.file_name();
            names.extend_from_slice(name_bytes(&name).map_err(|error| failed(&error))?);
            names.push(0);
        }
        Ok(names)
    }
}

/// Room for listing directories, which needs none here.
#[derive(Default)]
pub struct Listing(());

/// Reads no attributes: see [`losses`](super::losses).
#[derive(Debug, Default)]
pub struct AttributeReader(());

impl AttributeReader {
    /// None.
    ///
    /// # Errors
    /// Never.
    pub fn read(
        &mut self,
        _: &Folder,
        _: &CStr,
        _: &Stat,
        _: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<Attribute>, Errno> {
        Ok(Vec::new())
    }

    /// None.
    ///
    /// # Errors
    /// Never.
    pub fn read_itself(
        &mut self,
        _: &Folder,
        _: &Stat,
        _: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<Attribute>, Errno> {
        Ok(Vec::new())
    }

    /// Does nothing.
    pub fn forget_directory(&mut self) {}
}

/// Opens a file to read it, and does not wait for the other end of a pipe. Links are followed.
///
/// # Errors
/// The system's error; `ENXIO` for what could make the caller wait.
pub fn open_file(path: &Path) -> Result<File, Errno> {
    let metadata = fs::metadata(path).map_err(|error| failed(&error))?;
    match stat_of(&metadata).file_type {
        FileType::RegularFile | FileType::Directory | FileType::CharacterDevice | FileType::BlockDevice => {
            File::open(path).map_err(|error| failed(&error))
        }
        _ => Err(Errno::NXIO),
    }
}

/// The data of an open file of `size` bytes that has holes, as offsets and lengths; `None` if there are none.
/// It is read for that: zeros where a hole could be are one.
///
/// # Errors
/// The system's error.
pub fn data_of(file: BorrowedFd<'_>, size: u64) -> Result<Option<Vec<(u64, u64)>>, Errno> {
    let mut segments: Vec<(u64, u64)> = Vec::new();
    let (mut buffer, mut at) = (vec![0; PIECE_LEN], 0);
    while at < size {
        let room = index_of((size - at).min(u64_of(PIECE_LEN)));
        let mut len = 0;
        while len < room {
            match os::read_at(file, &mut buffer[len..room], at + u64_of(len))? {
                0 => return Err(Errno::NOENT), // truncated meanwhile: reported as a change
                more => len += more,
            }
        }
        for block in buffer[..len].chunks(HOLE_LEN) {
            let more = u64_of(block.len());
            if block.iter().any(|byte| *byte != 0) {
                match segments.last_mut() {
                    Some((start, len)) if *start + *len == at => *len += more,
                    _ => segments.push((at, more)),
                }
            }
            at += more;
        }
    }
    Ok(if segments == [(0, size)] { None } else { Some(segments) })
}

/// Not known.
#[must_use]
pub const fn free_space(_: &File) -> Option<u64> {
    None
}
