//! An open volume, for `hectare.Volume`.

use crate::buffer::{Lent, filled};
use crate::failure::{Failure, Outcome, raised, size};
use crate::file::File;
use crate::guard::Held;
use crate::stat::{Stat, letter, stat_of};
use hectare::fs::{OpenOptions, Permissions};
use hectare::inode::{
    Changes, Creation, DeviceNumber, ExtentFlags, FileExtent, NewNode, Timestamp, XattrHow,
};
use hectare_engine::{FreeExtents, RunJoiner};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::io::Read;
use std::path::PathBuf;

/// Seconds since 1970, and nanoseconds.
type Time = (i64, u32);
/// Total, free and available bytes, bytes of a block, inodes, free inodes, the longest name, and a number.
type Space = (u64, u64, u64, u32, u64, u64, u32, u64);
/// Bytes of a block, blocks; free extents and bytes, the shortest and the longest; classes of lengths.
type Fragments = (u32, u64, (u64, u64, u64, u64), Vec<(u64, u64, u64)>);
/// Offset in the file, offset on the device, length, and whether it was allocated and never written.
type Piece = (u64, u64, u64, bool);

/// A volume that is open. Paths are bytes. All methods may be called from any thread.
#[pyclass(frozen, module = "hectare._native")]
pub(crate) struct Volume {
    held: Held<hectare::Volume>,
    image: PathBuf,
    owner: (u32, u32),
    writable: bool,
}

impl Volume {
    fn run<R: Send>(
        &self,
        py: Python<'_>,
        path: &[u8],
        work: impl FnOnce(&hectare::Volume) -> Outcome<R> + Send,
    ) -> PyResult<R> {
        raised(self.held.run(py, work).map_err(|failure| self.named(failure)), path)
    }

    fn whole<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&hectare::Volume) -> Outcome<R> + Send,
    ) -> PyResult<R> {
        self.held.run(py, work).map_err(|failure| self.about_image(failure))
    }

    /// The same failure, with the image's name in its text.
    fn named(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Os { errno, text } => {
                Failure::Os { errno, text: format!("{text} (in {})", self.image.display()) }
            }
            other => other,
        }
    }

    fn about_image(&self, failure: Failure) -> PyErr {
        failure.about(self.image.as_os_str().as_encoded_bytes())
    }

    fn creation(&self, mode: u32) -> Creation {
        let (uid, gid) = self.owner;
        Creation { permissions: bits(mode), umask: 0, uid, gid }
    }
}

#[pymethods]
impl Volume {
    /// Opens the volume in a file or on a block device.
    #[new]
    fn open(py: Python<'_>, image: PathBuf, write: bool, owner: (u32, u32), direct: bool) -> PyResult<Self> {
        let mut options = hectare::Volume::options();
        options.write(write).owner(owner.0, owner.1).direct(direct);
        let opened: Outcome<_> = py.detach(|| Ok(options.open(&image)?));
        let volume = opened.map_err(|failure| failure.about(image.as_os_str().as_encoded_bytes()))?;
        Ok(Self { held: Held::new("volume", volume), image, owner, writable: write })
    }

    /// Writes everything, marks the volume clean and unlocks the image; does nothing the second time.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let closed = self.held.close(py, |volume| Ok(volume.close()?));
        closed.map_err(|failure| self.about_image(failure))
    }

    /// Whether it is closed.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.held.is_closed(py)
    }

    /// Whether it was opened for writing.
    #[getter]
    fn writable(&self) -> bool {
        self.writable
    }

    /// Makes all changes durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.whole(py, |volume| Ok(volume.sync()?))
    }

    /// Label and UUID.
    fn identity(&self, py: Python<'_>) -> PyResult<(Vec<u8>, [u8; 16])> {
        self.whole(py, |volume| Ok((volume.label(), volume.uuid())))
    }

    /// How full it is.
    fn space(&self, py: Python<'_>) -> PyResult<Space> {
        self.whole(py, |volume| {
            let (has, more) = (volume.space()?, volume.engine().statfs()?);
            let inodes = (has.inodes, has.free_inodes);
            let block = has.block_size;
            Ok((has.total, has.free, has.available, block, inodes.0, inodes.1, more.name_max, more.id))
        })
    }

    /// How the free space is divided.
    fn freefrag(&self, py: Python<'_>) -> PyResult<Fragments> {
        self.whole(py, |volume| {
            let engine = volume.engine();
            let geometry = engine.superblock().geometry();
            let (block, blocks) = (geometry.block_size, geometry.blocks_count.get());
            let found = free_extents(engine)?;
            let classes = found.histogram.iter().map(|class| (class.from_bytes, class.runs, class.bytes));
            let whole = (found.extents, found.bytes, found.shortest, found.longest);
            Ok((block.get(), blocks, whole, classes.collect()))
        })
    }

    /// The content of a file.
    fn read<'py>(&self, py: Python<'py>, path: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let (file, len) = self.run(py, path, |volume| {
            let file = volume.open_file(path)?;
            let len = file.metadata()?.len();
            Ok((file, len))
        })?;
        let content = filled(py, size(len)?, |out| self.run(py, path, |_| Ok((&file).read(out)?)))?;
        py.detach(|| drop(file));
        Ok(content)
    }

    /// Makes a file, or replaces the content of one.
    fn write(&self, py: Python<'_>, path: &[u8], content: &Bound<'_, PyAny>) -> PyResult<usize> {
        let lent = Lent::of(content)?;
        let data = lent.bytes();
        self.run(py, path, |volume| Ok(volume.write(path, data)?))?;
        Ok(data.len())
    }

    /// Opens a regular file; the flags are the letters `r`, `w`, `a`, `t` (empty it), `c` (make it), `x`
    /// (make it anew).
    fn open_file(&self, py: Python<'_>, path: &[u8], flags: &str, mode: u32) -> PyResult<File> {
        let has = |flag| flags.contains(flag);
        let mut options = OpenOptions::new();
        options
            .read(has('r'))
            .write(has('w'))
            .append(has('a'))
            .truncate(has('t'))
            .create(has('c'))
            .create_new(has('x'))
            .mode(mode);
        let file = self.run(py, path, |volume| {
            if !has('x') && volume.metadata(path).is_ok_and(|found| found.is_dir()) {
                return Err(Failure::from(hectare::inode::Error::IsADirectory));
            }
            Ok(options.open(volume, path)?)
        })?;
        Ok(File::new(file, path))
    }

    /// The entries of a directory: name, letter of the kind, number of the inode.
    fn entries<'py>(&self, py: Python<'py>, path: &[u8]) -> PyResult<Vec<(Bound<'py, PyBytes>, char, u64)>> {
        let entries = self.run(py, path, |volume| {
            let mut entries = Vec::new();
            for entry in volume.read_dir(path)? {
                let entry = entry?;
                let kind = letter(entry.file_type()?);
                entries.push((entry.file_name_bytes().to_vec(), kind, entry.ino()));
            }
            Ok(entries)
        })?;
        Ok(entries.into_iter().map(|(name, kind, ino)| (PyBytes::new(py, &name), kind, ino)).collect())
    }

    /// What the inode at a path says.
    fn stat(&self, py: Python<'_>, path: &[u8], follow: bool) -> PyResult<Stat> {
        self.run(py, path, |volume| {
            let found = if follow { volume.metadata(path) } else { volume.symlink_metadata(path) };
            Ok(stat_of(&found?))
        })
    }

    /// Makes a directory.
    fn mkdir(&self, py: Python<'_>, path: &[u8], mode: u32) -> PyResult<()> {
        let creation = self.creation(mode & 0o1777);
        self.run(py, path, |volume| Ok(volume.engine().create_dir(path, creation).map(drop)?))
    }

    /// Makes an empty file, a device, a pipe or a socket; `kind` is the letter of `ls -l`.
    fn mknod(&self, py: Python<'_>, path: &[u8], kind: char, mode: u32, device: (u32, u32)) -> PyResult<()> {
        let creation = self.creation(mode);
        let device = DeviceNumber { major: device.0, minor: device.1 };
        let node = match kind {
            '-' => NewNode::File,
            'c' => NewNode::CharDevice(device),
            'b' => NewNode::BlockDevice(device),
            'p' => NewNode::Fifo,
            's' => NewNode::Socket,
            other => return Err(Failure::Value(format!("no node is of kind {other}")).plain()),
        };
        self.run(py, path, |volume| Ok(volume.engine().make(path, node, creation).map(drop)?))
    }

    /// Removes a name that is no directory's.
    fn unlink(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        self.run(py, path, |volume| Ok(volume.remove_file(path)?))
    }

    /// Removes an empty directory.
    fn rmdir(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        self.run(py, path, |volume| Ok(volume.remove_dir(path)?))
    }

    /// Removes a directory and everything in it.
    fn rmtree(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        self.run(py, path, |volume| Ok(volume.remove_dir_all(path)?))
    }

    /// Gives a file or directory another name.
    fn rename(&self, py: Python<'_>, from: &[u8], to: &[u8]) -> PyResult<()> {
        self.run(py, from, |volume| Ok(volume.rename(from, to)?))
    }

    /// Gives a file a second name.
    fn link(&self, py: Python<'_>, original: &[u8], link: &[u8]) -> PyResult<()> {
        self.run(py, link, |volume| Ok(volume.hard_link(original, link)?))
    }

    /// Makes a symbolic link.
    fn symlink(&self, py: Python<'_>, target: &[u8], link: &[u8]) -> PyResult<()> {
        self.run(py, link, |volume| Ok(volume.symlink(target, link)?))
    }

    /// Where a symbolic link leads.
    fn readlink<'py>(&self, py: Python<'py>, path: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let target = self.run(py, path, |volume| Ok(volume.engine().read_link(path)?))?;
        Ok(PyBytes::new(py, &target))
    }

    /// The path without links, `.` and `..`.
    fn realpath<'py>(&self, py: Python<'py>, path: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let found = self.run(py, path, |volume| Ok(volume.canonicalize(path)?))?;
        Ok(PyBytes::new(py, found.as_os_str().as_encoded_bytes()))
    }

    /// Copies content and permissions of a file to another; returns the bytes.
    fn copy(&self, py: Python<'_>, from: &[u8], to: &[u8]) -> PyResult<u64> {
        self.run(py, from, |volume| Ok(volume.copy(from, to)?))
    }

    /// Changes permissions.
    fn chmod(&self, py: Python<'_>, path: &[u8], mode: u32) -> PyResult<()> {
        self.run(py, path, |volume| Ok(volume.set_permissions(path, Permissions::from_mode(mode))?))
    }

    /// Changes owner, group or both.
    fn chown(
        &self,
        py: Python<'_>,
        path: &[u8],
        uid: Option<u32>,
        gid: Option<u32>,
        follow: bool,
    ) -> PyResult<()> {
        self.run(py, path, |volume| change(volume, path, follow, &Changes { uid, gid, ..Changes::default() }))
    }

    /// Changes the times of access and of change.
    fn utime(&self, py: Python<'_>, path: &[u8], atime: Time, mtime: Time, follow: bool) -> PyResult<()> {
        let time = |(seconds, nanoseconds)| Some(Timestamp { seconds, nanoseconds });
        let changes = Changes { atime: time(atime), mtime: time(mtime), ..Changes::default() };
        self.run(py, path, |volume| change(volume, path, follow, &changes))
    }

    /// Makes a file `size` bytes long.
    fn truncate(&self, py: Python<'_>, path: &[u8], size: u64) -> PyResult<()> {
        self.run(py, path, |volume| {
            let file = OpenOptions::new().write(true).open(volume, path)?;
            file.set_len(size)?;
            Ok(file.close()?)
        })
    }

    /// The value of an extended attribute.
    fn getxattr<'py>(
        &self,
        py: Python<'py>,
        path: &[u8],
        name: &[u8],
        follow: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let value = self.run(py, path, |volume| {
            let engine = volume.engine();
            Ok(engine.get_xattr(engine.resolve(path, follow)?, name)?)
        })?;
        Ok(PyBytes::new(py, &value))
    }

    /// The names of the extended attributes.
    fn listxattr<'py>(
        &self,
        py: Python<'py>,
        path: &[u8],
        follow: bool,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let names = self.run(py, path, |volume| {
            let engine = volume.engine();
            Ok(engine.list_xattrs(engine.resolve(path, follow)?)?)
        })?;
        Ok(names.iter().map(|name| PyBytes::new(py, name)).collect())
    }

    /// Sets an extended attribute; `how` is 0 for new or not, 1 for new, 2 for not new.
    fn setxattr(
        &self,
        py: Python<'_>,
        path: &[u8],
        name: &[u8],
        value: &[u8],
        how: u32,
        follow: bool,
    ) -> PyResult<()> {
        let how = match how {
            0 => XattrHow::Either,
            1 => XattrHow::Create,
            2 => XattrHow::Replace,
            other => return Err(Failure::Value(format!("flags {other}: 0, 1 or 2 is meant")).plain()),
        };
        self.run(py, path, |volume| {
            let engine = volume.engine();
            Ok(engine.set_xattr(engine.resolve(path, follow)?, name, value, how)?)
        })
    }

    /// Removes an extended attribute.
    fn removexattr(&self, py: Python<'_>, path: &[u8], name: &[u8], follow: bool) -> PyResult<()> {
        self.run(py, path, |volume| {
            let engine = volume.engine();
            Ok(engine.remove_xattr(engine.resolve(path, follow)?, name)?)
        })
    }

    /// Where the content of a file lies, in the order of its offsets; holes are left out.
    fn extents(&self, py: Python<'_>, path: &[u8]) -> PyResult<Vec<Piece>> {
        self.run(py, path, |volume| {
            let file = volume.open_file(path)?;
            let len = file.metadata()?.len();
            Ok(file.extents(0..len)?.iter().map(piece).collect())
        })
    }
}

fn change(volume: &hectare::Volume, path: &[u8], follow: bool, changes: &Changes) -> Outcome<()> {
    let engine = volume.engine();
    Ok(engine.change(engine.resolve(path, follow)?, changes)?)
}

/// Counts the free extents, of which one may span several groups.
fn free_extents(engine: &hectare_engine::Volume) -> Outcome<FreeExtents> {
    let block = engine.superblock().geometry().block_size.bytes().get();
    let (mut joiner, mut found) = (RunJoiner::default(), FreeExtents::default());
    let mut count = |extent: Option<std::ops::Range<u64>>| {
        if let Some(extent) = extent {
            found.add(extent.end - extent.start, block);
        }
    };
    for group in (0..engine.group_count()).map(hectare::inode::GroupNr::new) {
        for run in engine.free_runs_now(group)? {
            count(joiner.push(run.start.get()..run.end.get()));
        }
    }
    count(joiner.finish());
    Ok(found)
}

/// The permission bits of a mode.
fn bits(mode: u32) -> u16 {
    u16::try_from(mode & 0o7777).unwrap_or_default()
}

fn piece(extent: &FileExtent) -> Piece {
    let unwritten = extent.flags.contains(ExtentFlags::UNWRITTEN);
    (extent.at.get(), extent.place.get(), extent.len.get(), unwritten)
}
