//! Scans a directory as a layer, in parallel.
//!
//! A task is a directory, or a part of a large one. Tasks name directories by their path from the root, so a
//! walk holds one open directory for each thread (and for each large directory in progress) however many are
//! pending. Symbolic links are never followed, neither at the end of a path nor above ([`Folder`]); a
//! directory that was replaced between listing and opening is detected by its device and inode.
//!
//! The result of a task is handed to the builder in one go under a lock; `finish` makes the outcome
//! independent of the order in which that happens.
//!
//! Where the system permits it, files and directories keep their access times; reading a symbolic link always
//! counts as an access.
//!
//! File systems mounted inside the directory are part of it, as for `cp -a`.

use super::builder::{Builder, Draft, DraftData, DraftKind};
use super::options::Options;
use super::tar::foreign::{DESCRIPTION_MAX, container_image, is_container_image};
use super::visible::Dir;
use super::xattr;
use crate::error::{Error, ShownPath};
use crate::handle::SourceHandle;
use crate::time::{PackedTime, Timestamp};
use crate::tree::{Meta, NodeId};
use hectare_device::os::{Errno, OsStrExt, borrowed};
use hectare_host::{AttributeReader, FileType, Folder, Identity, Listing, Pretence, Stat, is_foreign_owner};
use hectare_host::{data_of, losses, open_file, pretence, stat_open};
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::ffi::CStr;
use std::io::Read;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A directory with more bytes of names than this (some 4000 names) is split among threads in parts of this
/// length: long enough to make a task worth its lock, short enough for two threads to finish together.
const PART_LEN: usize = 64 << 10;

/// Opens a directory as a source.
pub(crate) fn open(path: &Path) -> Result<SourceHandle, Error> {
    let bytes = path.as_os_str().as_bytes();
    if let Some(reason) = pretence().fault() {
        return Err(Error::Refused { path: ShownPath::new(bytes), reason: reason.into() });
    }
    // The directory itself may be named through a symbolic link.
    let root =
        Folder::open(path).map_err(|errno| Error::io(ShownPath::new(bytes), "open the directory", errno))?;
    if let Some(kind) = container_image(|name| start_of(&root, name)) {
        return Err(is_container_image(ShownPath::new(bytes), kind));
    }
    Ok(SourceHandle::Folder { root, path: bytes.into() })
}

/// The start of a regular file, if there is one of that name.
fn start_of(root: &Folder, name: &[u8]) -> Option<Vec<u8>> {
    let file = root.open_below(name).ok()?;
    file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let mut text = Vec::new();
    file.take(DESCRIPTION_MAX).read_to_end(&mut text).ok()?;
    Some(text)
}

enum Task {
    /// List a directory and scan what is in it.
    Directory { node: Dir, path: Box<[u8]>, identity: Identity },
    /// Scan some names, each ended by a NUL, of a directory.
    Part { node: Dir, path: Arc<[u8]>, dir: Arc<Folder>, names: Arc<Vec<u8>>, range: Range<usize> },
}

struct Queue {
    tasks: Vec<Task>,
    busy: usize,
    failed: Option<Error>,
}

/// The shared state of a walk's threads.
struct Walk<'o> {
    builder: Mutex<(Builder<'o>, HashMap<Identity, NodeId>)>,
    queue: Mutex<Queue>,
    changed: Condvar,
    /// A second handle of the root, and the directory's path for errors.
    root: Folder,
    path: Box<[u8]>,
    options: &'o Options,
    /// The image that will be replaced.
    replaced: Option<Identity>,
}

/// Adds all entries below the directory of the current layer.
pub(crate) fn scan(mut builder: Builder<'_>, threads: NonZeroUsize) -> Result<Builder<'_>, Error> {
    let SourceHandle::Folder { root, path } = builder.source() else {
        return Ok(builder);
    };
    let path = path.clone();
    let root =
        root.try_clone().map_err(|cause| Error::io(ShownPath::new(&path), "open the directory", cause))?;
    let identity = describe_root(&mut builder, &root)?;
    for loss in losses() {
        builder.warn(&[], loss);
    }
    let options = builder.options;
    let task = Task::Directory { node: builder.root(), path: Box::default(), identity };
    let walk = Walk {
        builder: Mutex::new((builder, HashMap::new())),
        queue: Mutex::new(Queue { tasks: vec![task], busy: 0, failed: None }),
        changed: Condvar::new(),
        root,
        path,
        options,
        replaced: options.replaces.as_deref().and_then(regular_file),
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.get() {
            scope.spawn(|| Worker::new(&walk).work());
        }
        Worker::new(&walk).work();
    });
    match walk.queue.into_inner().failed {
        Some(error) => Err(error),
        None => Ok(walk.builder.into_inner().0),
    }
}

/// The identity of the regular file at a path, if there is one.
fn regular_file(path: &Path) -> Option<Identity> {
    let stat = stat_open(borrowed(&open_file(path).ok()?)).ok()?;
    (stat.file_type == FileType::RegularFile).then_some(stat.identity)
}

fn describe_root(builder: &mut Builder<'_>, root: &Folder) -> Result<Identity, Error> {
    let failed = |errno: Errno| Error::io(builder.shown(&[]), "read the metadata", errno);
    let stat = root.stat_itself().map_err(failed)?;
    check_owner(builder.options, &stat, || builder.shown(&[]))?;
    let found = AttributeReader::default().read_itself(root, &stat, xattr::fits_ext4).map_err(failed)?;
    let draft = Draft { kind: DraftKind::Directory, meta: meta(&stat), xattrs: xattr::of_host(found) };
    builder.describe_directory(NodeId::ROOT, draft)?;
    Ok(stat.identity)
}

/// Refuses a file whose owner the system can't tell, where the image is to have the owner.
fn check_owner(options: &Options, stat: &Stat, shown: impl Fn() -> ShownPath) -> Result<(), Error> {
    let accepts = options.owner.is_some() || options.foreign_owners;
    if accepts || matches!(pretence(), Pretence::InEffect(_)) || !is_foreign_owner(stat.uid, stat.gid) {
        return Ok(());
    }
    let reason = "its owner or group has no number in this user namespace: give everything to one owner \
                  (--owner), or build outside of the namespace";
    Err(Error::Refused { path: shown(), reason: reason.into() })
}

impl Walk<'_> {
    /// The next task; `None` when there will be none.
    fn take(&self) -> Option<Task> {
        // Without the lock: a checkpoint may call what the caller gave.
        let ended = Error::unless(&self.options.cancel).err();
        let mut queue = self.queue.lock();
        if let Some(error) = ended {
            queue.failed.get_or_insert(error);
            self.changed.notify_all();
        }
        loop {
            if queue.failed.is_some() {
                return None;
            }
            if let Some(task) = queue.tasks.pop() {
                queue.busy += 1;
                return Some(task);
            }
            if queue.busy == 0 {
                return None;
            }
            self.changed.wait(&mut queue);
        }
    }

    fn done(&self, result: Result<(), Error>) {
        let mut queue = self.queue.lock();
        queue.busy -= 1;
        if let Err(error) = result {
            queue.failed.get_or_insert(error);
        }
        if queue.failed.is_some() || (queue.busy == 0 && queue.tasks.is_empty()) {
            self.changed.notify_all();
        }
    }

    fn add(&self, tasks: impl IntoIterator<Item = Task>) {
        self.queue.lock().tasks.extend(tasks);
        self.changed.notify_all();
    }

    fn shown(&self, path: &[u8]) -> ShownPath {
        ShownPath::inside(&self.path, b'/', path)
    }
}

/// A name and its node, before it is added.
struct ListedEntry {
    name: Box<[u8]>,
    draft: Draft,
    identity: Identity,
    /// Whether the file has more names.
    shared: bool,
}

/// One thread of a walk.
struct Worker<'w, 'o> {
    walk: &'w Walk<'o>,
    attributes: AttributeReader,
    quiet: bool,
    listing: Listing,
}

impl<'w, 'o> Worker<'w, 'o> {
    fn new(walk: &'w Walk<'o>) -> Self {
        Self { walk, attributes: AttributeReader::default(), quiet: true, listing: Listing::default() }
    }

    fn work(mut self) {
        while let Some(task) = self.walk.take() {
            let result = match task {
                Task::Directory { node, path, identity } => self.directory(node, path, identity),
                Task::Part { node, path, dir, names, range } => self.part(node, &path, &dir, &names[range]),
            };
            self.walk.done(result);
        }
    }

    fn directory(&mut self, node: Dir, path: Box<[u8]>, expected: Identity) -> Result<(), Error> {
        let shown = || self.walk.shown(&path);
        let opened = self.walk.root.to_list(&path, &mut self.quiet);
        let dir = opened.map_err(|errno| Error::io_listed(shown(), "open the directory", errno))?;
        let stat = dir.stat_itself().map_err(|errno| Error::io(shown(), "read the metadata", errno))?;
        if stat.identity != expected {
            return Err(Error::Changed { path: shown(), what: "it was replaced" });
        }
        let names = dir.names(&mut self.listing);
        let names = names.map_err(|errno| Error::io(shown(), "list", errno))?;
        if names.len() <= PART_LEN {
            return self.part(node, &path, &dir, &names);
        }
        // The parts share one list: a copy for each would leave the heap in pieces.
        let (path, dir, names) = (Arc::<[u8]>::from(path), Arc::new(dir), Arc::new(names));
        let mut tasks = Vec::new();
        let mut end = names.len();
        while end > PART_LEN {
            let at = end - PART_LEN;
            let cut = names[at..end].iter().position(|byte| *byte == 0).map_or(at, |nul| at + nul + 1);
            let (path, dir, names) = (path.clone(), dir.clone(), names.clone());
            tasks.push(Task::Part { node, path, dir, names, range: cut..end });
            end = cut;
        }
        self.walk.add(tasks);
        self.part(node, &path, &dir, &names[..end])
    }

    fn part(&mut self, node: Dir, path: &[u8], dir: &Folder, names: &[u8]) -> Result<(), Error> {
        // One directory's descriptor number may be the next one's too.
        self.attributes.forget_directory();
        let mut found = Vec::new();
        for name in names.split_inclusive(|byte| *byte == 0) {
            let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
            if let Some(one) = self.entry(path, dir, name)? {
                found.push(one);
            }
        }
        let tasks = self.add(node, path, found)?;
        if !tasks.is_empty() {
            self.walk.add(tasks);
        }
        Ok(())
    }

    /// Reads the metadata of one name; `None` if it is to be left out.
    fn entry(&mut self, dir_path: &[u8], dir: &Folder, name: &CStr) -> Result<Option<ListedEntry>, Error> {
        let failed = |errno: Errno| {
            Error::io_listed(self.walk.shown(&join(dir_path, name.to_bytes())), "read the metadata", errno)
        };
        let stat = dir.stat(name).map_err(failed)?;
        let is_directory = stat.file_type == FileType::Directory;
        if self.walk.replaced == Some(stat.identity) {
            let text = "left out: it is the image that is replaced";
            self.walk.builder.lock().0.warn(&join(dir_path, name.to_bytes()), text);
            return Ok(None);
        }
        let excludes = &self.walk.options.excludes;
        if !excludes.is_empty() && excludes.matches(&join(dir_path, name.to_bytes()), is_directory) {
            return Ok(None);
        }
        check_owner(self.walk.options, &stat, || self.walk.shown(&join(dir_path, name.to_bytes())))?;
        let identity = stat.identity;
        let kind = kind(dir, name, &stat).map_err(failed)?;
        let found = self.attributes.read(dir, name, &stat, xattr::fits_ext4).map_err(failed)?;
        let draft = Draft { kind, meta: meta(&stat), xattrs: xattr::of_host(found) };
        let shared = !is_directory && stat.links > 1;
        Ok(Some(ListedEntry { name: name.to_bytes().into(), draft, identity, shared }))
    }

    /// Hands what was found in a directory to the builder; gives the subdirectories.
    fn add(&self, dir: Dir, dir_path: &[u8], found: Vec<ListedEntry>) -> Result<Vec<Task>, Error> {
        let mut tasks = Vec::new();
        let mut guard = self.walk.builder.lock();
        let (builder, hard_links) = &mut *guard;
        for ListedEntry { name, draft, identity, shared } in found {
            if builder.whiteout(dir, &name) {
                continue;
            }
            let path = || join(dir_path, &name);
            if shared && let Some(node) = hard_links.get(&identity) {
                builder.link(dir, &name, &path(), *node)?;
                continue;
            }
            let is_directory = matches!(draft.kind, DraftKind::Directory);
            let node = builder.put(dir, &name, &path(), draft)?;
            if shared {
                hard_links.insert(identity, node);
            }
            if is_directory {
                let node = builder.below(dir, node);
                tasks.push(Task::Directory { node, path: path().into(), identity });
            }
        }
        Ok(tasks)
    }
}

pub(crate) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, name].join(&b'/') }
}

pub(crate) fn timestamp(time: hectare_host::Time) -> Timestamp {
    Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

pub(crate) fn meta(stat: &Stat) -> Meta {
    Meta {
        mode: stat.mode,
        uid: stat.uid,
        gid: stat.gid,
        atime: timestamp(stat.atime),
        mtime: timestamp(stat.mtime),
        ctime: timestamp(stat.ctime),
        crtime: stat.btime.map(timestamp),
    }
}

fn kind(dir: &Folder, name: &CStr, stat: &Stat) -> Result<DraftKind, Errno> {
    Ok(match stat.file_type {
        FileType::Directory => DraftKind::Directory,
        FileType::RegularFile => {
            let size = stat.size;
            // Only a file with fewer blocks than bytes can have a hole.
            let sparse = stat.sectors.saturating_mul(512) < size;
            let segments = if sparse { holes(dir, name, size)? } else { None };
            let mtime = PackedTime::new(timestamp(stat.mtime));
            DraftKind::File { size, data: DraftData::Folder { identity: stat.identity, mtime }, segments }
        }
        FileType::Symlink => DraftKind::Symlink(dir.read_link(name)?),
        FileType::CharacterDevice => DraftKind::CharDevice(stat.device.0, stat.device.1),
        FileType::BlockDevice => DraftKind::BlockDevice(stat.device.0, stat.device.1),
        FileType::Fifo => DraftKind::Fifo,
        FileType::Socket => DraftKind::Socket,
        FileType::Unknown => return Err(Errno::NOTSUP),
    })
}

/// The data of a file that seems to have holes; `None` if it turns out to have none.
fn holes(dir: &Folder, name: &CStr, size: u64) -> Result<Option<Vec<(u64, u64)>>, Errno> {
    let file = dir.open_file(name.to_bytes(), &mut false)?;
    data_of(borrowed(&file), size)
}
