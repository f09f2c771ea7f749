//! The two ends of a copy: what it comes from and what it goes to, each a directory of the host or a volume.

use crate::image_path::split;
use hectare_engine::{DeviceNumber, Kind, Timestamp};
use hectare_host::Identity;
use hectare_units::InodeNr;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::Path;

/// Why one step failed; the copier adds where.
pub(crate) type Reason = String;

/// How to copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// Directories too, recursively.
    pub(crate) recursive: bool,
    /// Keep modes, owners, times and extended attributes.
    pub(crate) preserve: bool,
    /// Keep hard links.
    pub(crate) hard_links: bool,
    /// Follow symbolic links instead of copying them.
    pub(crate) follow: bool,
    /// Threads that copy content.
    pub(crate) threads: NonZeroUsize,
    /// The latest time that files of the copy get, for one that is the same every time: content is copied
    /// file by file in order, and access times are the modification times.
    pub(crate) latest: Option<Timestamp>,
}

impl Options {
    /// The metadata that is copied of what a source has.
    pub(super) fn adjust(&self, meta: Meta) -> Meta {
        let Some(latest) = self.latest else { return meta };
        let time = meta.mtime.min(latest);
        Meta { atime: time, mtime: time, ..meta }
    }
}

/// A file's metadata that is copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Meta {
    pub(crate) kind: Kind,
    pub(crate) mode: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) atime: Timestamp,
    pub(crate) mtime: Timestamp,
    pub(crate) links: u64,
    /// Equal for two names of one file.
    pub(crate) id: Identity,
    pub(crate) device: DeviceNumber,
}

/// An entry of a directory.
pub(crate) type Named<N> = (Vec<u8>, N);

/// Extended attributes: full name and value.
pub(crate) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Which attributes the target has no room for, and why, if there are any: the copy goes on without them.
pub(crate) type Unkept = Option<Reason>;

/// A file without content to be copied later.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Special {
    /// A symbolic link to this target.
    Symlink(Vec<u8>),
    /// A device, pipe or socket.
    Node(Kind, DeviceNumber),
}

/// The content of a file being read.
pub(crate) trait Content: Send {
    /// Bytes when it was opened.
    fn size(&self) -> u64;
    /// The ranges that hold data, as offset and length.
    fn ranges(&self) -> Result<Vec<(u64, u64)>, Reason>;
    /// Reads from an offset; 0 only at the end.
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> Result<usize, Reason>;
}

/// Where a copy comes from.
pub(crate) trait Origin: Sync {
    /// Whether the whole tree is known before anything is copied: names are unique in a directory, and files
    /// are read in the order of their [places](Self::place).
    const ORDERED: bool = false;
    /// A file or directory.
    type Node: Clone + Send;
    /// An open file.
    type File: Content;
    /// The entries of a directory that is being listed.
    type Children;
    /// What it is; a symbolic link is followed if `follow` says so.
    fn meta(&self, node: &Self::Node, follow: bool) -> Result<Meta, Reason>;
    /// Begins to list a directory, which must be the one that `meta` is of.
    fn children(&self, node: &Self::Node, meta: &Meta) -> Result<Self::Children, Reason>;
    /// The next entry; after an error there are no more.
    fn next_child(&self, children: &mut Self::Children) -> Option<Result<Named<Self::Node>, Reason>>;
    /// Opens a regular file, which must be the one that `meta` is of.
    fn open(&self, node: &Self::Node, follow: bool, meta: &Meta) -> Result<Self::File, Reason>;
    /// The target of a symbolic link.
    fn read_link(&self, node: &Self::Node) -> Result<Vec<u8>, Reason>;
    /// The extended attributes.
    fn xattrs(&self, node: &Self::Node, follow: bool) -> Result<Xattrs, Reason>;
    /// The image it lies in: files of another one may have the same [identities](Meta::id).
    fn image(&self) -> Option<&Path> {
        None
    }
    /// Its inode, if it lies in this volume.
    fn inode_in(&self, node: &Self::Node, volume: &hectare_engine::Volume) -> Option<InodeNr>;
    /// The last name of a path as it was given: empty for a root, and can be `.` or `..`.
    fn last_name<'p>(&self, path: &'p [u8]) -> &'p [u8] {
        split(path).1
    }
    /// A path from the origin's top, for messages.
    fn show(&self, path: &[u8]) -> String;
    /// Whether it is a regular file with one name; asked of ordered origins only.
    fn is_plain_file(&self, _node: &Self::Node) -> bool {
        false
    }
    /// Where a file begins on the origin's device and how much of it follows there, in bytes.
    fn place(&self, _node: &Self::Node) -> (u64, u64) {
        (0, 0)
    }
    /// Reads a range of the device at once, for files in it that are copied next.
    fn read_ahead(&self, _range: Range<u64>) {}
}

/// Where a copy goes to.
pub(crate) trait Target: Sync {
    /// A directory.
    type Dir: Clone + Send;
    /// A file just made.
    type File: Send;
    /// The first name of a file that gets several.
    type First;
    /// Why nothing of this name can be created, if that is so.
    fn refuses_name(&self, _dir: &Self::Dir, _name: &[u8]) -> Option<Reason> {
        None
    }
    /// Why nothing of this kind can be created, if that is so.
    fn refuses(&self, kind: Kind) -> Option<&'static str>;
    /// The file of the host that it lies in: the copy changes that, and must not copy it.
    fn own_file(&self) -> Option<Identity> {
        None
    }
    /// Why what has this name is not replaced by a file of the kind `by`, if that is so.
    fn stays(&self, _dir: &Self::Dir, _name: &[u8], _there: Kind, _by: Kind) -> Option<Reason> {
        None
    }
    /// The kind of file with this name, if it exists; links are not followed.
    fn find(&self, dir: &Self::Dir, name: &[u8]) -> Result<Option<Kind>, Reason>;
    /// Opens an existing directory.
    fn enter(&self, dir: &Self::Dir, name: &[u8]) -> Result<Self::Dir, Reason>;
    /// The permissions to make something with, from those that are wanted.
    fn new_mode(&self, wanted: u16) -> u16 {
        crate::umask::apply(wanted)
    }
    /// Makes a directory.
    fn make_dir(&self, dir: &Self::Dir, name: &[u8], mode: u16) -> Result<Self::Dir, Reason>;
    /// Creates a regular file, or truncates the existing one.
    fn make_file(&self, dir: &Self::Dir, name: &[u8], mode: u16, there: bool) -> Result<Self::File, Reason>;
    /// Creates a regular file that will get these attributes.
    fn make_new(&self, dir: &Self::Dir, name: &[u8], meta: &Meta) -> Result<Self::File, Reason> {
        self.make_file(dir, name, meta.mode, false)
    }
    /// Creates any other file, and sets its attributes.
    fn make_special(
        &self,
        dir: &Self::Dir,
        name: &[u8],
        special: &Special,
        mode: u16,
        attributes: Option<&(Meta, Xattrs)>,
    ) -> Result<(Self::First, Unkept), Reason>;
    /// Gives a file another name.
    fn link(&self, first: &Self::First, dir: &Self::Dir, name: &[u8]) -> Result<(), Reason>;
    /// Removes a file that is not a directory.
    fn remove(&self, dir: &Self::Dir, name: &[u8]) -> Result<(), Reason>;
    /// What [`Target::link`] needs of a file just made.
    fn first(&self, file: &Self::File, dir: &Self::Dir, name: &[u8]) -> Result<Self::First, Reason>;
    /// The inode of a directory, and the volume it lies in.
    fn dir_inode(&self, dir: &Self::Dir) -> Option<(&hectare_engine::Volume, InodeNr)>;
    /// Writes content.
    fn write_at(&self, file: &Self::File, at: u64, data: &[u8]) -> Result<(), Reason>;
    /// Sets the size.
    fn set_len(&self, file: &Self::File, size: u64) -> Result<(), Reason>;
    /// Sets a file's attributes.
    fn finish_file(&self, file: &Self::File, meta: &Meta, xattrs: &Xattrs) -> Result<Unkept, Reason>;
    /// Sets a directory's attributes; without them, the mode that new directories get.
    fn finish_dir(&self, dir: &Self::Dir, mode: u16, kept: Option<&(Meta, Xattrs)>)
    -> Result<Unkept, Reason>;
    /// A path from the target's top, for messages.
    fn show(&self, path: &[u8]) -> String;
}
