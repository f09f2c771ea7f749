//! A directory of the host as the target of a copy.
//!
//! Only the copy's own user can access a new file until its owner is set. Attributes are set in this order:
//! the owner, then extended attributes (a change of owner drops capabilities), then the mode with its set-ID
//! bits, then the times.
//!
//! A copy into an empty directory makes files with their final mode where the owner they are made with is the
//! final one ([`LocalTarget::in_empty`]), and leaves out the calls that would change nothing.

use super::super::Rights;
use super::{c_name, errno, failed, kind_of, place};
use crate::copy::ends::{Meta, Reason, Special, Target, Unkept, Xattrs};
use crate::failure::tell;
use crate::name::{join, shown};
use crate::os::open_files;
use hectare_engine::{Kind, Timestamp, Volume};
use hectare_host::{Dir, Identity, Pretence, Walk, pretence, replaced, stat, stat_open};
use hectare_units::InodeNr;
use rustix::fs::{self as sys, AtFlags, CWD, FileType, Mode, OFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{self as unix, FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// The host as a target; paths in messages are below its top.
pub(crate) struct LocalTarget {
    walk: Walk,
    shown: PathBuf,
    rights: Rights,
    /// Whether nothing but the copy decides about the owner and the mode of new files: no files were there,
    /// and no ACL is inherited.
    is_plain: bool,
    /// Whether what is there was made by an earlier run of the same copy, and may lack the right to be
    /// changed.
    resumes: bool,
    /// What this process has open: the image that is read, what it rests on, its other outputs.
    opened: HashSet<Identity>,
    /// The owner and group that new files of such a copy have.
    made_as: OnceLock<(u32, u32)>,
    /// Attributes that could not be kept.
    lost: AtomicUsize,
    /// Files that lost set-ID bits or capabilities.
    tamed: AtomicUsize,
}

/// What attributes are set through.
enum Handle<'f> {
    /// A file or directory that is open.
    Open(&'f File),
    /// What can't be opened, by the path that leads to the object itself.
    Place(PathBuf),
    /// A symbolic link by its name: a fakeroot may follow it otherwise.
    Link(PathBuf),
}

/// Owners and modes are set by std's calls, which go through the C library; rustix has its own for open
/// files.
impl Handle<'_> {
    fn chown(&self, meta: &Meta) -> std::io::Result<()> {
        let (uid, gid) = (Some(meta.uid), Some(meta.gid));
        match self {
            Self::Open(file) => unix::fchown(file, uid, gid),
            Self::Place(path) => unix::chown(path, uid, gid),
            Self::Link(path) => unix::lchown(path, uid, gid),
        }
    }

    fn chmod(&self, mode: u16) -> std::io::Result<()> {
        let mode = Permissions::from_mode(mode.into());
        match self {
            Self::Open(file) => file.set_permissions(mode),
            Self::Place(path) => fs::set_permissions(path, mode),
            Self::Link(_) => Ok(()),
        }
    }

    fn set_xattr(&self, name: &[u8], value: &[u8]) -> rustix::io::Result<()> {
        let (name, flags) = (OsStr::from_bytes(name), XattrFlags::empty());
        match self {
            Self::Open(file) => sys::fsetxattr(file, name, value, flags),
            Self::Place(path) => sys::setxattr(path, name, value, flags),
            Self::Link(path) => sys::lsetxattr(path, name, value, flags),
        }
    }

    fn remove_xattr(&self, name: &[u8]) -> rustix::io::Result<()> {
        let name = OsStr::from_bytes(name);
        match self {
            Self::Open(file) => sys::fremovexattr(file, name),
            Self::Place(path) => sys::removexattr(path, name),
            Self::Link(path) => sys::lremovexattr(path, name),
        }
    }

    fn set_times(&self, times: &Timestamps) -> rustix::io::Result<()> {
        match self {
            Self::Open(file) => sys::futimens(file, times),
            Self::Place(path) => sys::utimensat(CWD, path, times, AtFlags::empty()),
            Self::Link(path) => sys::utimensat(CWD, path, times, AtFlags::SYMLINK_NOFOLLOW),
        }
    }
}

impl LocalTarget {
    /// Everything goes into this directory.
    ///
    /// # Errors
    /// If it can't be opened.
    pub(crate) fn new(folder: &Path, rights: Rights) -> Result<Self, Reason> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = sys::open(folder, flags, Mode::empty()).map_err(errno)?;
        Ok(Self {
            walk: Walk::new(top).map_err(failed)?,
            shown: folder.to_owned(),
            rights,
            is_plain: false,
            resumes: false,
            opened: open_files(),
            made_as: OnceLock::new(),
            lost: AtomicUsize::new(0),
            tamed: AtomicUsize::new(0),
        })
    }

    /// Everything goes into this directory, which is empty.
    ///
    /// # Errors
    /// If it can't be opened.
    pub(crate) fn in_empty(folder: &Path, rights: Rights) -> Result<Self, Reason> {
        let target = Self::new(folder, rights)?;
        let inherits = sys::lgetxattr(folder, OsStr::from_bytes(DEFAULT_ACL), &mut [0_u8; 0][..]).is_ok();
        let is_plain = !inherits && rights.attributes && pretence() == Pretence::None;
        Ok(Self { is_plain, ..target })
    }

    /// Everything goes into this directory, where an earlier run of the same copy was interrupted.
    ///
    /// # Errors
    /// If it can't be opened.
    pub(crate) fn resumed(folder: &Path, rights: Rights) -> Result<Self, Reason> {
        Ok(Self { resumes: true, ..Self::new(folder, rights)? })
    }

    /// Whether a new file has its owner and mode at once.
    fn is_final(&self, meta: &Meta) -> bool {
        let mode_is = crate::umask::apply(meta.mode) == meta.mode && meta.mode & !0o777 == 0;
        self.is_plain && mode_is && self.made_as.get() == Some(&(meta.uid, meta.gid))
    }

    /// The directory itself.
    pub(crate) fn top(&self) -> Dir {
        self.walk.top().clone()
    }

    /// Reports what could not be kept.
    pub(crate) fn tell_lost(&self) {
        let folder = || shown(self.shown.as_os_str().as_bytes());
        let count = |counter: &AtomicUsize| Some(counter.load(Ordering::Relaxed)).filter(|count| *count > 0);
        if let Some(lost) = count(&self.lost) {
            tell(format_args!("{}: note: {lost} extended attributes can't be kept there", folder()));
        }
        if let Some(tamed) = count(&self.tamed) {
            let folder = folder();
            tell(format_args!(
                "{folder}: note: {tamed} files are without their set-ID bits and capabilities: only root \
                 keeps them, with -a"
            ));
        }
    }

    fn open(&self, dir: &Dir) -> Result<Arc<OwnedFd>, Reason> {
        self.walk.open(dir).map_err(failed)
    }

    /// Sets the kept attributes.
    fn finish(&self, handle: &Handle<'_>, meta: &Meta, xattrs: &Xattrs) -> Result<(), Reason> {
        let owned = match handle.chown(meta) {
            Ok(()) => true,
            // Only root may give files away; without root the owner stays.
            Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::PERM | Errno::INVAL)) => false,
            Err(error) => return Err(failed(error)),
        };
        let set_id = owned && self.rights.set_id;
        let is_power = |(name, _): &&(Vec<u8>, Vec<u8>)| name == b"security.capability";
        for (name, value) in xattrs.iter().filter(|xattr| set_id || !is_power(xattr)) {
            match handle.set_xattr(name, value) {
                Ok(()) => {}
                Err(error) if is_lost(error) => {
                    self.lost.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => return Err(errno(error)),
            }
        }
        // A link's mode means nothing, and it has no ACL.
        if meta.kind != Kind::Symlink {
            self.drop_acls(handle, xattrs)?;
            let mode = if set_id { meta.mode } else { meta.mode & !SET_ID };
            if mode != meta.mode || (!set_id && xattrs.iter().any(|xattr| is_power(&xattr))) {
                self.tamed.fetch_add(1, Ordering::Relaxed);
            }
            handle.chmod(mode).map_err(failed)?;
        }
        handle.set_times(&times(meta)).map_err(errno)
    }

    /// Removes the ACLs that the source has not: a directory's default ACL gives them to what is made in it, and
    /// they let others read what they could not.
    fn drop_acls(&self, handle: &Handle<'_>, xattrs: &Xattrs) -> Result<(), Reason> {
        if self.is_plain {
            return Ok(());
        }
        for name in ACLS.into_iter().filter(|acl| !xattrs.iter().any(|(name, _)| name == acl)) {
            match handle.remove_xattr(name) {
                Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                // A file has no default ACL.
                Err(Errno::ACCESS | Errno::INVAL) if name == DEFAULT_ACL => {}
                Err(error) => return Err(errno(error)),
            }
        }
        Ok(())
    }

    /// Opens the file just made, so that attributes are set on nothing else.
    fn made(&self, dir: &OwnedFd, name: &[u8], file_type: FileType) -> Result<(OwnedFd, Identity), Reason> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = sys::openat(dir, OsStr::from_bytes(name), flags, Mode::empty()).map_err(errno)?;
        let stat = stat_open(made.as_fd()).map_err(errno)?;
        if stat.file_type != file_type || stat.links != 1 {
            return Err(failed(replaced()));
        }
        Ok((made, stat.identity))
    }
}

/// The attribute that gives what is made in a directory an ACL.
const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";
const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", DEFAULT_ACL];

/// Set-user-ID and set-group-ID.
const SET_ID: u16 = 0o6000;

fn is_lost(error: Errno) -> bool {
    matches!(
        error,
        Errno::OPNOTSUPP
            | Errno::PERM
            | Errno::ACCESS
            | Errno::NOSPC
            | Errno::RANGE
            | Errno::TOOBIG
            | Errno::INVAL
    )
}

fn mode_of(mode: u16) -> Mode {
    Mode::from_raw_mode(mode.into())
}

fn times(meta: &Meta) -> Timestamps {
    let spec = |time: Timestamp| Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    Timestamps { last_access: spec(meta.atime), last_modification: spec(meta.mtime) }
}

/// A file that is being written.
pub(crate) struct HostFile {
    file: File,
    /// Whether it was made with its final owner and mode.
    is_final: bool,
}

/// The first name of a file with several.
pub(crate) struct First {
    dir: Dir,
    name: Vec<u8>,
    identity: Identity,
}

impl Target for LocalTarget {
    type Dir = Dir;
    type File = HostFile;
    type First = First;

    fn refuses(&self, kind: Kind) -> Option<&'static str> {
        let is_device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
        (is_device && !self.rights.devices).then_some("it is a device, which only -a or --devices makes")
    }

    fn find(&self, dir: &Dir, name: &[u8]) -> Result<Option<Kind>, Reason> {
        match stat(self.open(dir)?.as_fd(), &c_name(name)?, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => kind_of(stat.file_type).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(errno(error)),
        }
    }

    fn stays(&self, dir: &Dir, name: &[u8], there: Kind, by: Kind) -> Option<Reason> {
        let is_replaced = matches!(there, Kind::File | Kind::Symlink | Kind::Directory);
        if by == Kind::File && !is_replaced {
            return Some("a device, pipe or socket has that name, and no file replaces it".to_owned());
        }
        let found =
            stat(self.open(dir).ok()?.as_fd(), &c_name(name).ok()?, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let is_open = self.opened.contains(&found.identity);
        is_open.then(|| "that file is in use by this command, and stays as it is".to_owned())
    }

    fn enter(&self, dir: &Dir, name: &[u8]) -> Result<Dir, Reason> {
        let entered = self.walk.enter(dir, name, None).map_err(failed)?;
        if self.resumes {
            // It may have its final mode, and gets that again when it is left. Root needs no right.
            let _ = Handle::Place(place(self.open(&entered)?.as_fd())).chmod(0o700);
        }
        Ok(entered)
    }

    fn make_dir(&self, dir: &Dir, name: &[u8], _mode: u16) -> Result<Dir, Reason> {
        // Its mode is set last: until then the copy, and nobody else, must be able to create files in it.
        sys::mkdirat(&*self.open(dir)?, OsStr::from_bytes(name), mode_of(0o700)).map_err(errno)?;
        self.enter(dir, name)
    }

    fn make_file(&self, dir: &Dir, name: &[u8], mode: u16, there: bool) -> Result<HostFile, Reason> {
        let (dir, name) = (self.open(dir)?, OsStr::from_bytes(name));
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if !there {
            let mode = mode_of(mode & if self.rights.attributes { 0o700 } else { 0o777 });
            let file = sys::openat(&*dir, name, flags | OFlags::CREATE | OFlags::EXCL, mode);
            return file.map(|file| HostFile { file: file.into(), is_final: false }).map_err(errno);
        }
        // O_NONBLOCK: don't wait for the other end if the file has become a pipe.
        let file = match sys::openat(&*dir, name, flags | OFlags::NONBLOCK, Mode::empty()) {
            // It was made without the right to write to it.
            Err(Errno::ACCESS) if self.resumes => {
                sys::unlinkat(&*dir, name, AtFlags::empty()).map_err(errno)?;
                sys::openat(&*dir, name, flags | OFlags::CREATE | OFlags::EXCL, mode_of(mode & 0o700))
            }
            opened => opened,
        };
        let file = file.map_err(errno)?;
        if stat_open(file.as_fd()).map_err(errno)?.file_type != FileType::RegularFile {
            return Err(failed(replaced()));
        }
        sys::ftruncate(&file, 0).map_err(errno)?;
        Ok(HostFile { file: file.into(), is_final: false })
    }

    fn make_new(&self, dir: &Dir, name: &[u8], meta: &Meta) -> Result<HostFile, Reason> {
        if self.is_final(meta) {
            let (dir, name) = (self.open(dir)?, OsStr::from_bytes(name));
            let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL;
            let file = sys::openat(&*dir, name, flags, mode_of(meta.mode)).map_err(errno)?;
            return Ok(HostFile { file: file.into(), is_final: true });
        }
        let made = self.make_file(dir, name, meta.mode, false)?;
        if self.is_plain && self.made_as.get().is_none() {
            let stat = stat_open(made.file.as_fd()).map_err(errno)?;
            let _ = self.made_as.set((stat.uid, stat.gid)); // another thread may have been first
        }
        Ok(made)
    }

    fn make_special(
        &self,
        dir: &Dir,
        name: &[u8],
        special: &Special,
        mode: u16,
        attributes: Option<&(Meta, Xattrs)>,
    ) -> Result<(First, Unkept), Reason> {
        let (fd, os_name) = (self.open(dir)?, OsStr::from_bytes(name));
        let file_type = match special {
            Special::Symlink(target) => {
                sys::symlinkat(OsStr::from_bytes(target), &*fd, os_name).map_err(errno)?;
                FileType::Symlink
            }
            Special::Node(kind, number) => {
                let file_type = match kind {
                    Kind::CharDevice => FileType::CharacterDevice,
                    Kind::BlockDevice => FileType::BlockDevice,
                    Kind::Fifo => FileType::Fifo,
                    _ => FileType::Socket,
                };
                let mode = mode_of(mode & if attributes.is_some() { 0o700 } else { 0o777 });
                let number = sys::makedev(number.major, number.minor);
                sys::mknodat(&*fd, os_name, file_type, mode, number).map_err(errno)?;
                file_type
            }
        };
        let (made, identity) = self.made(&fd, name, file_type)?;
        if let Some((meta, xattrs)) = attributes {
            let by_name = file_type == FileType::Symlink && pretence() != Pretence::None;
            let handle = match by_name {
                true => Handle::Link(place(fd.as_fd()).join(os_name)),
                false => Handle::Place(place(made.as_fd())),
            };
            self.finish(&handle, meta, xattrs)?;
        }
        Ok((First { dir: dir.clone(), name: name.to_vec(), identity }, None))
    }

    fn link(&self, first: &First, dir: &Dir, name: &[u8]) -> Result<(), Reason> {
        let (from, to) = (self.open(&first.dir)?, self.open(dir)?);
        let os_name = OsStr::from_bytes(name);
        sys::linkat(&*from, OsStr::from_bytes(&first.name), &*to, os_name, AtFlags::empty())
            .map_err(errno)?;
        let linked = stat(to.as_fd(), &c_name(name)?, AtFlags::SYMLINK_NOFOLLOW).map_err(errno)?;
        if linked.identity != first.identity {
            // Another file had the first name by then, and must not get this one.
            sys::unlinkat(&*to, os_name, AtFlags::empty()).map_err(errno)?;
            return Err(failed(replaced()));
        }
        Ok(())
    }

    fn remove(&self, dir: &Dir, name: &[u8]) -> Result<(), Reason> {
        sys::unlinkat(&*self.open(dir)?, OsStr::from_bytes(name), AtFlags::empty()).map_err(errno)
    }

    fn first(&self, file: &HostFile, dir: &Dir, name: &[u8]) -> Result<First, Reason> {
        let identity = stat_open(file.file.as_fd()).map_err(errno)?.identity;
        Ok(First { dir: dir.clone(), name: name.to_vec(), identity })
    }

    fn dir_inode(&self, _dir: &Dir) -> Option<(&Volume, InodeNr)> {
        None
    }

    fn write_at(&self, file: &HostFile, at: u64, data: &[u8]) -> Result<(), Reason> {
        file.file.write_all_at(data, at).map_err(failed)
    }

    fn set_len(&self, file: &HostFile, size: u64) -> Result<(), Reason> {
        file.file.set_len(size).map_err(failed)
    }

    fn finish_file(&self, file: &HostFile, meta: &Meta, xattrs: &Xattrs) -> Result<Unkept, Reason> {
        let handle = Handle::Open(&file.file);
        if file.is_final && xattrs.is_empty() {
            return handle.set_times(&times(meta)).map_err(errno).map(|()| None);
        }
        self.finish(&handle, meta, xattrs).map(|()| None)
    }

    fn finish_dir(&self, dir: &Dir, mode: u16, kept: Option<&(Meta, Xattrs)>) -> Result<Unkept, Reason> {
        let file = File::from(self.walk.open_to_read(dir).map_err(failed)?);
        let handle = Handle::Open(&file);
        let finished = match kept {
            Some((meta, xattrs)) => self.finish(&handle, meta, xattrs),
            None => handle.chmod(mode).map_err(failed),
        };
        finished.map(|()| None)
    }

    fn show(&self, path: &[u8]) -> String {
        shown(&join(self.shown.as_os_str().as_bytes(), path))
    }
}
