//! A directory of the host as the target of a copy.
//!
//! Only the copy's own user can access a new file until its owner is set, where the host has owners.
//! Attributes are set in this order: the owner, the times, then the mode, after which Windows may let
//! nobody change the file.

use super::super::Rights;
use super::names::{is_spelt, refused};
use super::{failed, kind_of, look, replaced};
use crate::copy::ends::{Meta, Reason, Special, Target, Unkept, Xattrs};
use crate::failure::tell;
use crate::name::{join, shown};
use crate::os::{new_file, open_to_set_times, set_mode, set_owner, symlink};
use hectare_device::os::{FileExt, OsStrExt, borrowed, os_string};
use hectare_engine::{Kind, Timestamp, Volume};
use hectare_host::{FileType, Identity, stat_of, stat_open};
use hectare_units::InodeNr;
use std::fs::{self, File, FileTimes};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Set-user-ID and set-group-ID.
const SET_ID: u16 = 0o6000;

/// What files lost on their way.
#[derive(Default)]
struct Lost {
    xattrs: AtomicUsize,
    owners: AtomicUsize,
    modes: AtomicUsize,
    times: AtomicUsize,
    /// Files that lost set-ID bits or capabilities.
    tamed: AtomicUsize,
}

fn count(counter: &AtomicUsize, more: usize) {
    counter.fetch_add(more, Ordering::Relaxed);
}

/// The host as a target; paths in messages are below its top.
pub(crate) struct LocalTarget {
    top: Arc<Path>,
    shown: PathBuf,
    rights: Rights,
    /// Whether what is there was made by an earlier run of the same copy, and may lack the right to be
    /// changed.
    resumes: bool,
    lost: Lost,
}

impl LocalTarget {
    /// Everything goes into this directory.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn new(folder: &Path, rights: Rights) -> Result<Self, Reason> {
        let top = fs::canonicalize(folder).map_err(failed)?;
        fs::read_dir(&top).map_err(failed)?;
        Ok(Self { top: top.into(), shown: folder.to_owned(), rights, resumes: false, lost: Lost::default() })
    }

    /// Everything goes into this directory, which is empty.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn in_empty(folder: &Path, rights: Rights) -> Result<Self, Reason> {
        Self::new(folder, rights)
    }

    /// Everything goes into this directory, where an earlier run of the same copy was interrupted.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn resumed(folder: &Path, rights: Rights) -> Result<Self, Reason> {
        Ok(Self { resumes: true, ..Self::new(folder, rights)? })
    }

    /// The directory itself.
    pub(crate) fn top(&self) -> Arc<Path> {
        Arc::clone(&self.top)
    }

    /// Reports what could not be kept.
    pub(crate) fn tell_lost(&self) {
        let Lost { xattrs, owners, modes, times, tamed } = &self.lost;
        for (counter, what) in [
            (xattrs, "extended attributes can't be kept there"),
            (owners, "owners can't be kept: this host has none"),
            (modes, "modes can't be kept: this host has only a read-only flag"),
            (times, "times can't be kept there, such as those of links"),
            (tamed, "files are without their set-ID bits and capabilities: only root keeps them, with -a"),
        ] {
            let lost = counter.load(Ordering::Relaxed);
            if lost > 0 {
                tell(format_args!("{}: note: {lost} {what}", shown(self.shown.as_os_str().as_bytes())));
            }
        }
    }

    /// Sets the kept attributes of what is at a path; of a link, no mode and no times can be set.
    fn finish(&self, path: &Path, file: Option<&File>, meta: &Meta, xattrs: &Xattrs) -> Result<(), Reason> {
        let owned = match set_owner(path, meta.uid, meta.gid) {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                count(&self.lost.owners, 1);
                false
            }
            // Only root may give files away; without root the owner stays.
            Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::InvalidInput) => {
                false
            }
            Err(error) => return Err(failed(error)),
        };
        let is_power = |(name, _): &&(Vec<u8>, Vec<u8>)| name == b"security.capability";
        count(&self.lost.xattrs, xattrs.iter().filter(|xattr| !is_power(xattr)).count());
        self.set_times(file, meta)?;
        if meta.kind == Kind::Symlink {
            return Ok(()); // a link's mode means nothing
        }
        let set_id = owned && self.rights.set_id;
        let mode = if set_id { meta.mode } else { meta.mode & !SET_ID };
        if mode != meta.mode || xattrs.iter().any(|xattr| is_power(&xattr)) {
            count(&self.lost.tamed, 1);
        }
        let is_kept = set_mode(path, mode).map_err(failed)?;
        count(&self.lost.modes, usize::from(!is_kept));
        Ok(())
    }

    fn set_times(&self, file: Option<&File>, meta: &Meta) -> Result<(), Reason> {
        match (file, system_time(meta.atime).zip(system_time(meta.mtime))) {
            (Some(file), Some((access, change))) => {
                file.set_times(FileTimes::new().set_accessed(access).set_modified(change)).map_err(failed)
            }
            _ => {
                count(&self.lost.times, 1);
                Ok(())
            }
        }
    }

    /// Opens a file that is there, and empties it.
    fn emptied(&self, path: &Path, mode: u16) -> Result<File, Reason> {
        let there = look(path, false).map_err(failed)?.ok_or_else(replaced)?;
        if !there.is_file() {
            return Err(replaced());
        }
        let file = match File::options().write(true).open(path) {
            // It was made without the right to write to it.
            Err(error) if self.resumes && error.kind() == ErrorKind::PermissionDenied => {
                fs::remove_file(path).map_err(failed)?;
                return new_file(path, mode & 0o700).map_err(failed);
            }
            opened => opened.map_err(failed)?,
        };
        let stat = stat_open(borrowed(&file)).map_err(|error| failed(error.into()))?;
        if stat.identity != stat_of(&there).identity || stat.file_type != FileType::RegularFile {
            return Err(replaced());
        }
        file.set_len(0).map_err(failed)?;
        Ok(file)
    }
}

/// A point in time, if the host has it.
fn system_time(time: Timestamp) -> Option<SystemTime> {
    let nanoseconds = Duration::from_nanos(time.nanoseconds.into());
    let whole = Duration::from_secs(time.seconds.unsigned_abs());
    let second = if time.seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    second?.checked_add(nanoseconds)
}

fn place(dir: &Path, name: &[u8]) -> Result<PathBuf, Reason> {
    match refused(name) {
        Some(reason) => Err(reason),
        None => Ok(dir.join(os_string(name).map_err(failed)?)),
    }
}

/// A file that is being written.
pub(crate) struct HostFile {
    file: File,
    path: PathBuf,
}

/// The first name of a file with several.
pub(crate) struct First {
    path: PathBuf,
    identity: Identity,
}

impl First {
    fn at(path: PathBuf) -> Result<Self, Reason> {
        let there = look(&path, false).map_err(failed)?.ok_or_else(replaced)?;
        Ok(Self { path, identity: stat_of(&there).identity })
    }
}

impl Target for LocalTarget {
    type Dir = Arc<Path>;
    type File = HostFile;
    type First = First;

    fn refuses_name(&self, dir: &Arc<Path>, name: &[u8]) -> Option<Reason> {
        if let Some(reason) = refused(name) {
            return Some(reason);
        }
        let path = place(dir, name).ok()?;
        let there = look(&path, false).ok().flatten()?;
        (!is_spelt(&path, name, &there)).then(|| {
            "a file exists whose name this host does not distinguish (case or Unicode form)".to_owned()
        })
    }

    fn refuses(&self, kind: Kind) -> Option<&'static str> {
        match kind {
            Kind::File | Kind::Directory => None,
            Kind::Symlink if cfg!(unix) => None,
            Kind::Symlink => Some("it is a symbolic link, which is not made on this host"),
            Kind::CharDevice | Kind::BlockDevice if !self.rights.devices => {
                Some("it is a device, which only -a or --devices makes, and not on this host")
            }
            _ => Some("it is a device, pipe or socket, which is not made on this host"),
        }
    }

    fn find(&self, dir: &Arc<Path>, name: &[u8]) -> Result<Option<Kind>, Reason> {
        let there = look(&place(dir, name)?, false).map_err(failed)?;
        there.map(|there| kind_of(stat_of(&there).file_type)).transpose()
    }

    fn enter(&self, dir: &Arc<Path>, name: &[u8]) -> Result<Arc<Path>, Reason> {
        let path = place(dir, name)?;
        if !look(&path, false).map_err(failed)?.is_some_and(|there| there.is_dir()) {
            return Err(replaced());
        }
        if self.resumes {
            // It may have its final mode, and gets that again when it is left. Root needs no right.
            let _ = set_mode(&path, 0o700);
        }
        Ok(path.into())
    }

    fn make_dir(&self, dir: &Arc<Path>, name: &[u8], _mode: u16) -> Result<Arc<Path>, Reason> {
        let path = place(dir, name)?;
        fs::create_dir(&path).map_err(failed)?;
        // Its mode is set last: until then the copy, and nobody else, must be able to create files in it.
        set_mode(&path, 0o700).map_err(failed)?;
        Ok(path.into())
    }

    fn make_file(&self, dir: &Arc<Path>, name: &[u8], mode: u16, there: bool) -> Result<HostFile, Reason> {
        let path = place(dir, name)?;
        let file = match there {
            true => self.emptied(&path, mode)?,
            false => {
                let mode = mode & if self.rights.attributes { 0o700 } else { 0o777 };
                new_file(&path, mode).map_err(failed)?
            }
        };
        Ok(HostFile { file, path })
    }

    fn make_special(
        &self,
        dir: &Arc<Path>,
        name: &[u8],
        special: &Special,
        _mode: u16,
        attributes: Option<&(Meta, Xattrs)>,
    ) -> Result<(First, Unkept), Reason> {
        let path = place(dir, name)?;
        match special {
            Special::Symlink(target) => symlink(target, &path).map_err(failed)?,
            Special::Node(kind, _) => {
                return Err(self.refuses(*kind).unwrap_or("unknown file type").to_owned());
            }
        }
        if let Some((meta, xattrs)) = attributes {
            self.finish(&path, None, meta, xattrs)?;
        }
        Ok((First::at(path)?, None))
    }

    fn link(&self, first: &First, dir: &Arc<Path>, name: &[u8]) -> Result<(), Reason> {
        let path = place(dir, name)?;
        fs::hard_link(&first.path, &path).map_err(failed)?;
        if First::at(path.clone())?.identity != first.identity {
            // Another file had the first name by then, and must not get this one.
            fs::remove_file(&path).map_err(failed)?;
            return Err(replaced());
        }
        Ok(())
    }

    fn remove(&self, dir: &Arc<Path>, name: &[u8]) -> Result<(), Reason> {
        fs::remove_file(place(dir, name)?).map_err(failed)
    }

    fn first(&self, file: &HostFile, _dir: &Arc<Path>, _name: &[u8]) -> Result<First, Reason> {
        let identity = stat_open(borrowed(&file.file)).map_err(|error| failed(error.into()))?.identity;
        Ok(First { path: file.path.clone(), identity })
    }

    fn dir_inode(&self, _dir: &Arc<Path>) -> Option<(&Volume, InodeNr)> {
        None
    }

    fn write_at(&self, file: &HostFile, at: u64, data: &[u8]) -> Result<(), Reason> {
        file.file.write_all_at(data, at).map_err(failed)
    }

    fn set_len(&self, file: &HostFile, size: u64) -> Result<(), Reason> {
        file.file.set_len(size).map_err(failed)
    }

    fn finish_file(&self, file: &HostFile, meta: &Meta, xattrs: &Xattrs) -> Result<Unkept, Reason> {
        self.finish(&file.path, Some(&file.file), meta, xattrs).map(|()| None)
    }

    fn finish_dir(
        &self,
        dir: &Arc<Path>,
        mode: u16,
        kept: Option<&(Meta, Xattrs)>,
    ) -> Result<Unkept, Reason> {
        let finished = match kept {
            Some((meta, xattrs)) => {
                let file = open_to_set_times(dir).map_err(failed)?;
                self.finish(dir, Some(&file), meta, xattrs)
            }
            // What was not to be kept is not lost.
            None => set_mode(dir, mode).map(drop).map_err(failed),
        };
        finished.map(|()| None)
    }

    fn show(&self, path: &[u8]) -> String {
        shown(&join(self.shown.as_os_str().as_bytes(), path))
    }
}
