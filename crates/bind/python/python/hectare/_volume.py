"""An open volume, with what `os`, `shutil` and the built-in `open` have as functions."""

from __future__ import annotations

import atexit
import errno
import itertools
import os
import posixpath
import stat as modes
import sys
import threading
import time
import traceback
import uuid as uuids
import warnings
import weakref
from contextlib import suppress
from types import TracebackType
from typing import IO, Any, Callable, Iterator, TypeVar

from . import _native
from ._copy_in import CopyIn
from ._copy_out import CopyOut
from ._files import NotCopied, VolumeFile, flags_of, refuse_arguments, wrapped
from ._names import SEVERAL_NAMES, StrPath, decode, encode, path_bytes
from ._paths import VolumePath
from ._reports import CopyReport, Extent, FreeBucket, FreeSpace, Space
from ._trees import HostPath, Ignore, identity
from ._walk import walk

_T = TypeVar("_T")
_NANOSECONDS = 1_000_000_000
# What can be made by `mknod`, by the letters of `ls -l`.
_NODES = {0: "-", modes.S_IFREG: "-", modes.S_IFCHR: "c", modes.S_IFBLK: "b", modes.S_IFIFO: "p"}
_NODES[modes.S_IFSOCK] = "s"
_numbers = itertools.count(1)


class DirEntry:
    """An entry of a directory, as that of `os.scandir`: `name`, and `path`, which has the directory in front.

    Its kind is what the directory says; `stat` asks the volume each time, and by the path.
    """

    __slots__ = ("_inode", "_kind", "_volume", "name", "path")

    def __init__(self, volume: Volume, name: str, path: str, kind: str, inode: int) -> None:
        self._volume = volume
        self._kind = kind
        self._inode = inode
        self.name = name
        self.path = path

    def inode(self) -> int:
        """The number of its inode."""
        return self._inode

    def is_symlink(self) -> bool:
        """Whether it is a symbolic link."""
        return self._kind == "l"

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a directory, or a link to one."""
        return self._is("d", modes.S_ISDIR, follow_symlinks)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a regular file, or a link to one."""
        return self._is("-", modes.S_ISREG, follow_symlinks)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """What its inode says."""
        return self._volume.stat(self.path, follow_symlinks=follow_symlinks)

    def _is(self, kind: str, judge: Callable[[int], bool], follow: bool) -> bool:
        if not (follow and self.is_symlink()):
            return self._kind == kind
        try:
            return judge(self.stat().st_mode)
        except FileNotFoundError:
            return False

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"


class _Scan(Iterator[DirEntry]):
    """What `scandir` gives: the entries, and a context, as in `os`.

    Threads may share it: each entry goes to one of them.
    """

    def __init__(self, entries: Iterator[DirEntry]) -> None:
        self._entries = entries

    def __next__(self) -> DirEntry:
        return next(self._entries)

    def __enter__(self) -> _Scan:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends it."""
        self._entries = iter(())


class Volume(NotCopied):
    """A volume that is open: see `hectare.open`. All methods may be called from any thread.

    Closing it closes the files that it opened, too, and writes what their buffers hold. After a `fork` the
    child's copy raises `RuntimeError` and writes nothing.

    Errors are `OSError`s; their `filename` is the path as it was given, as `str`. What takes two paths
    (`rename`, `replace`, `link`, `symlink`, `copy`) has the second one in `filename2`.
    """

    def __init__(self, native: _native.Volume, image: str) -> None:
        self._native = native
        self._device = next(_numbers)
        self._files: weakref.WeakSet[VolumeFile] = weakref.WeakSet()
        self._closing = False  # what is opened from then on would be left open
        self._lock = threading.RLock()  # a file that is collected meanwhile may come here
        self.image = image
        """The name of the image, as it was given to `hectare.open`, as `str`."""
        self._file: tuple[int, int] | None = None
        with suppress(OSError, ValueError):  # the name of an image need not be a file's
            self._file = identity(os.stat(image))
        _open_volumes.add(self)

    # The volume as a whole.

    def close(self) -> None:
        """Closes its files, writes everything, marks the volume clean and unlocks the image.

        Raises the first error; whatever it is, all is closed then. Does nothing the second time.
        """
        with self._lock:
            self._closing = True
            files = list(self._files)
            self._files.clear()
        failed: BaseException | None = None
        for file in files:
            try:
                file._close_whole()
            except Exception as error:
                failed = failed or error
        try:
            self._native.close()
        except Exception as error:
            failed = failed or error
        if failed is not None:
            raise failed

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._native.closed

    @property
    def writable(self) -> bool:
        """Whether it was opened for writing."""
        return self._native.writable

    @property
    def label(self) -> str:
        """The label."""
        return decode(bytes(self._native.identity()[0]))

    @property
    def uuid(self) -> uuids.UUID:
        """The UUID."""
        return uuids.UUID(bytes=bytes(self._native.identity()[1]))

    def sync(self) -> None:
        """Makes all changes durable. What is still in buffers of open files is no change yet: flush them."""
        self._native.sync()

    def space(self) -> Space:
        """How full it is, in bytes and inodes."""
        return Space(*self._native.space()[:6])

    def statvfs(self) -> os.statvfs_result:
        """How full it is, as `os.statvfs` has it."""
        total, free, available, block, inodes, free_inodes, name_max, number = self._native.space()
        flag = 0 if self.writable else os.ST_RDONLY
        blocks = (total // block, free // block, available // block)
        return os.statvfs_result(
            (block, block, *blocks, inodes, free_inodes, free_inodes, flag, name_max), {"f_fsid": number}
        )

    def freefrag(self) -> FreeSpace:
        """How the free space is divided, uncommitted changes included: free extents by powers of two."""
        block, blocks, whole, classes = self._native.freefrag()
        return FreeSpace(block, blocks, *whole, [FreeBucket(*one) for one in classes])

    def path(self, path: StrPath | VolumePath = "/") -> VolumePath:
        """A path of this volume, with methods of `pathlib.Path`."""
        return VolumePath(self, path)

    # Content.

    def open(
        self,
        path: StrPath | VolumePath,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *,
        permissions: int = 0o644,
    ) -> IO[Any]:
        """Opens a regular file, as the built-in `open`; text is UTF-8 if no `encoding` is given.

        `permissions` are those of a file that is made; there is no umask.
        """
        return self._open(path, mode, buffering, encoding, errors, newline, permissions)

    def _open(
        self,
        path: StrPath | VolumePath,
        mode: str,
        buffering: int,
        encoding: str | None,
        errors: str | None,
        newline: str | None,
        permissions: int,
        closed: Callable[[], object] | None = None,
    ) -> IO[Any]:
        flags, text = flags_of(mode)
        refuse_arguments(text, buffering, encoding, errors, newline)
        self._refuse_closing()
        native = self._native.open_file(self._bytes(path), flags, permissions)
        raw = VolumeFile(native, _shown(path), flags, self)
        try:
            file = wrapped(raw, flags, text, buffering, encoding, errors, newline)
            if text:
                file.mode = mode  # type: ignore[misc]
            if "a" in flags:
                file.seek(0, os.SEEK_END)
            self._track(raw, closed)
        except BaseException:
            raw.close()
            raise
        return file

    def _refuse_closing(self) -> None:
        if self._closing:
            raise ValueError("I/O operation on closed volume")

    def _track(self, raw: VolumeFile, closed: Callable[[], object] | None) -> None:
        """Remembers a file until it is closed, and calls `closed` then."""
        # No reference: the file would be collected, and so written, only when the cycle is found.
        here = weakref.ref(raw)

        def forget() -> None:
            found = here()
            if found is not None:
                with self._lock:
                    self._files.discard(found)
            if closed is not None:
                closed()

        with self._lock:
            self._refuse_closing()
            raw.on_close = forget
            self._files.add(raw)

    def read_bytes(self, path: StrPath | VolumePath) -> bytes:
        """The content of a file."""
        return self._native.read(self._bytes(path))

    def read_text(
        self, path: StrPath | VolumePath, encoding: str = "utf-8", errors: str | None = None
    ) -> str:
        """The content of a text file; line ends become newlines."""
        with self.open(path, "r", -1, encoding, errors) as file:
            return file.read()

    def write_bytes(self, path: StrPath | VolumePath, data: Any) -> int:
        """Makes a file, or replaces the content of one; returns the bytes.

        It empties the file first: where it fails, as on a full volume, the file holds what fitted, and the
        old content is gone. Write another file and `replace` this one, to have the old or the new one.
        """
        return self._native.write(self._bytes(path), data)

    def write_text(
        self,
        path: StrPath | VolumePath,
        text: str,
        encoding: str = "utf-8",
        errors: str | None = None,
        newline: str | None = None,
    ) -> int:
        """Makes a text file, or replaces the content of one; returns the characters."""
        if not isinstance(text, str):
            raise TypeError(f"text must be str, not {type(text).__name__}")
        with self.open(path, "w", -1, encoding, errors, newline) as file:
            return file.write(text)

    def truncate(self, path: StrPath | VolumePath, length: int) -> None:
        """Makes a file `length` bytes long: what is beyond is removed, what is missing reads as zeros."""
        if length < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), _text(path))
        self._native.truncate(self._bytes(path), length)

    def copy(self, source: StrPath | VolumePath, target: StrPath | VolumePath) -> int:
        """Copies content and permissions of a file to another; holes stay holes. Returns the bytes.

        Both are files of this volume, and a file that is there is replaced. Owners, times and extended
        attributes are not copied; `VolumePath.copy` may keep them, and copies whole trees.
        """
        return self._two(self._native.copy, source, target)

    def extents(self, path: StrPath | VolumePath) -> list[Extent]:
        """Where the content of a regular file lies, in bytes, by ascending offsets.

        Holes are in none of them. A directory raises `IsADirectoryError`: where its entries lie is not
        reported. In a raw image, `seek(place)` and `read(length)` find the bytes.
        """
        return [Extent(*piece) for piece in self._native.extents(self._bytes(path))]

    # Directories.

    def listdir(self, path: StrPath | VolumePath = "/") -> list[Any]:
        """The names in a directory, in no order: `bytes` if the path is, else `str`."""
        names = [name for name, _, _ in self._native.entries(self._bytes(path))]
        return names if isinstance(path, bytes) else [decode(name) for name in names]

    def scandir(self, path: StrPath | VolumePath = "/") -> _Scan:
        """The entries of a directory, in no order: as it was when this was called."""
        above = decode(self._bytes(path))
        found = self._native.entries(self._bytes(path))
        base = above if above.endswith("/") else above + "/"

        def entry(one: tuple[bytes, str, int]) -> DirEntry:
            name = decode(one[0])
            return DirEntry(self, name, base + name, one[1], one[2])

        return _Scan(map(entry, found))  # no generator: several threads may not use one

    def walk(
        self,
        top: StrPath | VolumePath = "/",
        topdown: bool = True,
        onerror: Callable[[OSError], object] | None = None,
        followlinks: bool = False,
    ) -> Iterator[tuple[str, list[str], list[str]]]:
        """Directory, names of directories and names of others, for each directory, as `os.walk`.

        Links to directories are among the directories, and are entered with `followlinks` only. If
        `topdown`, the list of directories may be changed in place: what is removed is left out, and the order
        is that of the walk. A directory that can't be read is left out, and the error given to `onerror`; so
        is one that was entered already by another name, without `followlinks`: the volume is damaged then.
        """
        return self._walk(top, topdown, onerror, followlinks, True)

    def _walk(
        self,
        top: StrPath | VolumePath,
        topdown: bool,
        onerror: Callable[[OSError], object] | None,
        followlinks: bool,
        links_are_directories: bool,
    ) -> Iterator[tuple[str, list[str], list[str]]]:
        path = decode(self._bytes(top))
        return walk(self, path, topdown, onerror, followlinks, links_are_directories)

    def mkdir(self, path: StrPath | VolumePath, mode: int = 0o755) -> None:
        """Makes a directory; there is no umask. Set-ID bits are ignored, as on Linux."""
        self._native.mkdir(self._bytes(path), mode)

    def mknod(self, path: StrPath | VolumePath, mode: int = 0o600, device: int = 0) -> None:
        """Makes an empty file, a device, a pipe or a socket, as `os.mknod`; root is not needed.

        `mode` has the kind (`stat.S_IFCHR`, `S_IFBLK`, `S_IFIFO`, `S_IFSOCK`; a file without one) and the
        permissions, `device` the number of a device: `os.makedev(major, minor)`.
        """
        kind = _NODES.get(modes.S_IFMT(mode))
        major, minor = os.major(device), os.minor(device)
        if kind is None or major >= 1 << 12 or minor >= 1 << 20:  # ext4 has no room for more
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), _text(path))
        self._native.mknod(self._bytes(path), kind, modes.S_IMODE(mode), (major, minor))

    def makedirs(self, path: StrPath | VolumePath, mode: int = 0o755, exist_ok: bool = False) -> None:
        """Makes a directory, and those above it that are missing (mode 0755)."""
        raw = self._bytes(path)
        above, name = posixpath.split(raw)
        if not name:
            above, name = posixpath.split(above)
        if above and name and not self.exists(above):
            try:
                self.makedirs(above, exist_ok=exist_ok)
            except FileExistsError:
                pass  # another thread was faster
            if name == b".":
                return
        try:
            self.mkdir(path, mode)
        except OSError:
            # Also what else fails for a directory that is there, such as EROFS.
            if not exist_ok or not self.isdir(path):
                raise

    def remove(self, path: StrPath | VolumePath) -> None:
        """Removes a name that is no directory's."""
        self._native.unlink(self._bytes(path))

    unlink = remove

    def rmdir(self, path: StrPath | VolumePath) -> None:
        """Removes an empty directory."""
        self._native.rmdir(self._bytes(path))

    def rmtree(self, path: StrPath | VolumePath, ignore_errors: bool = False) -> None:
        """Removes a directory and everything in it. A symbolic link is refused, as by `shutil.rmtree`."""
        try:
            if not modes.S_ISDIR(self.lstat(path).st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), _text(path))
            self._native.rmtree(self._bytes(path))
        except OSError:
            if not ignore_errors:
                raise

    # Whole trees.

    def copy_out(
        self,
        path: StrPath | VolumePath,
        host_dir: HostPath,
        *,
        overwrite: bool = False,
        owners: bool = False,
        xattrs: bool = False,
        ignore: Ignore = None,
    ) -> CopyReport:
        """Copies what is in a directory of the volume, and below, into a directory of the host.

        `host_dir` is made if it is not there. Kept are content, holes, permissions, times of access and
        change (of symbolic links, too), symbolic links as they are, and hard links among what is copied.
        `owners` keeps users and groups, which needs root, and the set-id bits, which are lost else. `xattrs`
        keeps the extended attributes `user.*`. Not kept are other attributes (ACLs, capabilities, labels),
        times of birth, flags such as immutable, and devices, pipes and sockets, which the report names.

        `host_dir` must be empty, unless `overwrite` is true: then directories are merged, and what is in the
        way of a file or directory is replaced, if it is neither a directory nor the image. A file replaces
        another in one step, when it is whole; there must be room for both. Nothing is written through a
        symbolic link, and no name in an image leads out of `host_dir`; but a link that was copied may lead
        anywhere.

        `ignore` is as for `shutil.copytree`: given a directory and its names, it returns those to leave out.

        Raises `shutil.Error`, an `OSError`, when all that can be copied is: its only argument is a list of
        source, target and reason. A file that could not be copied whole is removed, also one whose length
        changed while it was copied. What is wrong with the two directories (`FileNotFoundError`,
        `NotADirectoryError`, `FileExistsError`) is raised before.
        """
        copy = CopyOut(self._native, overwrite, owners, xattrs, ignore)
        copy.image = self._file
        return copy.start(self._bytes(path), os.fsdecode(host_dir))

    def copy_in(
        self,
        host_dir: HostPath,
        path: StrPath | VolumePath,
        *,
        overwrite: bool = False,
        owners: bool = False,
        xattrs: bool = False,
        ignore: Ignore = None,
    ) -> CopyReport:
        """Copies what is in a directory of the host, and below, into a directory of the volume.

        All is as for `copy_out`, the other way round. Without `owners` what is made belongs to the owner that
        `hectare.open` was given. A directory is empty if it has nothing but `lost+found`; one of
        `host_dir` is copied into that. The image itself is not copied: `OSError` with `EBUSY`.
        """
        source = os.fsdecode(host_dir)
        os.scandir(source).close()  # the error that everyone knows, before anything is made
        if not self.isdir(path):
            self.makedirs(path)
        copy = CopyIn(self._native, overwrite, owners, xattrs, ignore)
        copy.image = self._file
        return copy.start(source, self._bytes(path))

    # Names.

    def rename(self, source: StrPath | VolumePath, target: StrPath | VolumePath) -> None:
        """Gives what is at `source` the name `target`, in one step; a file that is there is replaced.

        So is an empty directory, by a directory. `replace` is the same, as in `os` on Linux.
        """
        self._two(self._native.rename, source, target)

    replace = rename

    def link(self, source: StrPath | VolumePath, target: StrPath | VolumePath) -> None:
        """Gives a file a second name, `target`; a symbolic link at `source` is not followed."""
        self._two(self._native.link, source, target)

    def symlink(self, source: StrPath | VolumePath, target: StrPath | VolumePath) -> None:
        """Makes a symbolic link at `target` that leads to `source`."""
        self._two(self._native.symlink, source, target)

    def readlink(self, path: StrPath | VolumePath) -> Any:
        """Where a symbolic link leads: `bytes` if the path is, else `str`."""
        target = self._native.readlink(self._bytes(path))
        return target if isinstance(path, bytes) else decode(target)

    def realpath(self, path: StrPath | VolumePath) -> Any:
        """The path from the root without links, `.` and `..`: `bytes` if the path is, else `str`."""
        found = self._native.realpath(self._bytes(path))
        return found if isinstance(path, bytes) else decode(found)

    # What inodes say.

    def stat(self, path: StrPath | VolumePath, *, follow_symlinks: bool = True) -> os.stat_result:
        """What the inode at a path says. `st_dev` is a number for this opening of the volume."""
        own, times, more = self._native.stat(self._bytes(path), follow_symlinks)
        return _stat_result(self._device, own, times, more)

    def stat_of_file(self, native: _native.File) -> os.stat_result:
        """For `VolumeFile.stat`."""
        return _stat_result(self._device, *native.stat())

    def lstat(self, path: StrPath | VolumePath) -> os.stat_result:
        """As `stat`, of a symbolic link itself."""
        return self.stat(path, follow_symlinks=False)

    def birthtime_ns(self, path: StrPath | VolumePath, *, follow_symlinks: bool = True) -> int | None:
        """When the inode was made, in nanoseconds since 1970; `None` if inodes have no room for it."""
        return self._native.stat(self._bytes(path), follow_symlinks)[1][3]

    def exists(self, path: StrPath | VolumePath) -> bool:
        """Whether there is something at a path; links are followed."""
        return self._mode(path) != 0

    def lexists(self, path: StrPath | VolumePath) -> bool:
        """Whether there is something at a path, if only a link that leads to nothing."""
        return self._mode(path, follow=False) != 0

    def isdir(self, path: StrPath | VolumePath) -> bool:
        """Whether there is a directory at a path."""
        return modes.S_ISDIR(self._mode(path))

    def isfile(self, path: StrPath | VolumePath) -> bool:
        """Whether there is a regular file at a path."""
        return modes.S_ISREG(self._mode(path))

    def islink(self, path: StrPath | VolumePath) -> bool:
        """Whether there is a symbolic link at a path."""
        return modes.S_ISLNK(self._mode(path, follow=False))

    def chmod(self, path: StrPath | VolumePath, mode: int) -> None:
        """Changes permission, set-id and sticky bits; a symbolic link is followed."""
        self._native.chmod(self._bytes(path), mode)

    def chown(self, path: StrPath | VolumePath, uid: int, gid: int, *, follow_symlinks: bool = True) -> None:
        """Changes the owner and the group; -1 leaves one."""
        user, group = (None if number == -1 else number for number in (uid, gid))
        self._native.chown(self._bytes(path), user, group, follow_symlinks)

    def utime(
        self,
        path: StrPath | VolumePath,
        times: tuple[float, float] | None = None,
        *,
        ns: tuple[int, int] | None = None,
        follow_symlinks: bool = True,
    ) -> None:
        """Sets the times of access and change, in seconds or in nanoseconds; to now if neither is given."""
        if times is not None and ns is not None:
            raise ValueError("utime: you may specify either 'times' or 'ns' but not both")
        for given in (times, ns):
            if given is not None and not (isinstance(given, tuple) and len(given) == 2):
                raise TypeError("utime: 'times' and 'ns' must be a tuple of two numbers")
        if ns is None:
            now = time.time_ns()
            ns = (now, now) if times is None else (_in_nanoseconds(times[0]), _in_nanoseconds(times[1]))
        atime, mtime = (divmod(at, _NANOSECONDS) for at in ns)
        self._native.utime(self._bytes(path), atime, mtime, follow_symlinks)

    # Extended attributes.

    def getxattr(
        self, path: StrPath | VolumePath, name: str | bytes, *, follow_symlinks: bool = True
    ) -> bytes:
        """The value of an extended attribute, such as `user.note`."""
        return self._native.getxattr(self._bytes(path), encode(name), follow_symlinks)

    def listxattr(self, path: StrPath | VolumePath, *, follow_symlinks: bool = True) -> list[str]:
        """The names of the extended attributes."""
        return [decode(name) for name in self._native.listxattr(self._bytes(path), follow_symlinks)]

    def setxattr(
        self,
        path: StrPath | VolumePath,
        name: str | bytes,
        value: bytes,
        flags: int = 0,
        *,
        follow_symlinks: bool = True,
    ) -> None:
        """Sets an extended attribute; `flags` may be `os.XATTR_CREATE` or `os.XATTR_REPLACE`."""
        value = memoryview(value).tobytes()  # `bytes` accepts a number, too
        self._native.setxattr(self._bytes(path), encode(name), value, flags, follow_symlinks)

    def removexattr(
        self, path: StrPath | VolumePath, name: str | bytes, *, follow_symlinks: bool = True
    ) -> None:
        """Removes an extended attribute."""
        self._native.removexattr(self._bytes(path), encode(name), follow_symlinks)

    # Inside.

    def _bytes(self, path: StrPath | VolumePath) -> bytes:
        if isinstance(path, VolumePath):
            if path.volume is not self:
                raise OSError(errno.EXDEV, "the path is another volume's", str(path))
            return encode(str(path))
        return path_bytes(path)

    def _mode(self, path: StrPath | VolumePath, follow: bool = True) -> int:
        """The mode; 0 if there is nothing, also for what can be no path."""
        try:
            raw = self._bytes(path)
        except (FileNotFoundError, ValueError):
            return 0
        try:
            return self.stat(raw, follow_symlinks=follow).st_mode
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG):
                return 0
            raise

    def _two(self, call: Callable[[bytes, bytes], _T], source: Any, target: Any) -> _T:
        """Calls with two paths, and names both in an error."""
        try:
            return call(self._bytes(source), self._bytes(target))
        except OSError as error:
            raise OSError(error.errno, error.strerror, _text(source), None, _text(target)) from None

    def __enter__(self) -> Volume:
        if self.closed:
            raise ValueError("I/O operation on closed volume")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        native = getattr(self, "_native", None)
        if native is None or native.closed:
            return
        warnings.warn(f"unclosed volume {self!r}", ResourceWarning, stacklevel=2, source=self)
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "rw" if self.writable else "r"
        return f"<hectare.Volume {self.image!r} {state}>"


def _shown(path: Any) -> Any:
    """A path as files have it for a name: as it was given."""
    return str(path) if isinstance(path, VolumePath) else os.fspath(path)


def _text(path: Any) -> str:
    """A path as errors have it."""
    shown = _shown(path)
    return decode(shown) if isinstance(shown, bytes) else shown


def _in_nanoseconds(seconds: float) -> int:
    whole = int(seconds // 1)
    return whole * _NANOSECONDS + int((seconds - whole) * _NANOSECONDS)


def _stat_result(device: int, own: Any, times: Any, more: Any) -> os.stat_result:
    mode, inode, links, uid, gid, size = own
    block, sectors, major, minor = more
    named: dict[str, float | int] = {
        "st_blksize": block,
        "st_blocks": sectors,
        "st_rdev": os.makedev(major, minor),
    }
    for name, at in zip(("st_atime", "st_mtime", "st_ctime"), times):
        named[name] = at / _NANOSECONDS
        named[name + "_ns"] = at
    seconds = [at // _NANOSECONDS for at in times[:3]]
    return os.stat_result((mode, inode, device, links, uid, gid, size, *seconds), named)


_open_volumes: weakref.WeakSet[Volume] = weakref.WeakSet()


def _close_all() -> None:
    """Closes what the program left open. In a forked child, what was its parent's counts as closed."""
    for volume in [volume for volume in list(_open_volumes) if not volume.closed]:
        try:
            volume.close()
        except Exception:
            print(f"{volume!r} was not closed completely:", file=sys.stderr)
            traceback.print_exc()


atexit.register(_close_all)
