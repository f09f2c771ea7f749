"""Whole trees from a volume to the host and back, for `Volume.copy_out` and `Volume.copy_in`.

Invariants:
- *A name at a time.* On the host everything is reached from the descriptor of the directory that it is in
  (`_Folder`), and no symbolic link is followed. Names that no directory of the host could hold (`..`, a
  slash) are errors. So no image can lead a copy out of its target, whoever else changes that meanwhile. A
  directory is entered once: a damaged volume can't have a copy go round, or on for ever.
- *Made anew.* A file that is written was made by this copy: what is in the way is an error, or is removed.
- *One descriptor.* Trees may be deeper than a process may have files open, and than Python recurses.

Hazard: symbolic links are copied as they are, and may lead anywhere. Who follows them later leaves the copy.

Not here: names (`_names`), what a volume can do (`_volume`).
"""

from __future__ import annotations

import errno
import os
import shutil
import stat as modes
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Optional, TypeVar, Union

from ._names import decode
from ._reports import CopyReport

if TYPE_CHECKING:
    from . import _native

HostPath = Union[str, "os.PathLike[str]"]
Ignore = Optional[Callable[[str, "list[str]"], Iterable[str]]]
_T = TypeVar("_T")

# What is read and written at once.
_CHUNK = 1 << 20
# Of the bits of a mode, those that give nobody the rights of another.
_HARMLESS = 0o1777
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: what was a file when it was looked at may be a pipe now.
_OLD_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class _Lost(Exception):
    """There is no way back to the directory above: somebody moved one."""


class _Folder:
    """Where a copy is on the host: the one directory that is open, and which ones are above it."""

    def __init__(self, path: str) -> None:
        # Links in a path that the caller gave are followed.
        self.fd = os.open(path, _DIRECTORY)
        self._above: list[tuple[int, int]] = []

    def down(self, name: bytes, own: bool) -> None:
        """Goes into a directory; into a link to one it does not. One of our own is made accessible."""
        below = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=self.fd)
        try:
            if own:
                os.fchmod(below, 0o700)
            os.stat(b".", dir_fd=below)  # fails where `..` would
            self._above.append(_identity(os.fstat(self.fd)))
        except BaseException:
            os.close(below)
            raise
        os.close(self.fd)
        self.fd = below

    def up(self) -> int:
        """Goes up; gives the descriptor of the directory that it was in, for the caller to close."""
        try:
            above = os.open(b"..", _DIRECTORY, dir_fd=self.fd)
        except OSError as error:
            raise _Lost(f"the way back is gone: {error.strerror}") from error
        if _identity(os.fstat(above)) != self._above[-1]:
            os.close(above)
            raise _Lost("a directory was moved while it was copied")
        self._above.pop()
        below, self.fd = self.fd, above
        return below

    def close(self) -> None:
        os.close(self.fd)


class _Frame:
    """A directory that is being copied."""

    def __init__(self, source: bytes, target: bytes, names: list[bytes], found: Any) -> None:
        self.source = source
        self.target = target
        self.names: Iterator[bytes] = iter(names)
        self.found = found  # what its inode said when it was entered


class _Copy:
    """What both directions have in common: the walk, and what became of it."""

    def __init__(
        self, native: _native.Volume, overwrite: bool, owners: bool, xattrs: bool, ignore: Ignore
    ) -> None:
        self.native = native
        self.overwrite = overwrite
        self.owners = owners
        self.xattrs = xattrs
        self.ignore = ignore
        self.errors: list[tuple[str, str, str]] = []
        self.files = self.directories = self.symlinks = self.links = self.data = 0
        self.left_out: list[str] = []
        self.buffer = memoryview(bytearray(_CHUNK))
        self.folder: _Folder

    def entry(self, name: bytes, source: bytes, target: bytes) -> _Frame | None:
        """Copies what is at a name; gives the frame of a directory that was entered."""
        raise NotImplementedError

    def leave(self, frame: _Frame, below: int) -> None:
        """Finishes a directory whose entries were copied; `below` is its descriptor on the host."""
        raise NotImplementedError

    def run(self, top: _Frame) -> CopyReport:
        """Copies what is in a directory, and below; raises what went wrong, all of it at the end."""
        self.directories += 1
        stack = [top]
        try:
            while stack:
                self.step(stack)
        except _Lost as error:
            self.failed(stack[-1].source, stack[-1].target, error)
        if self.errors:
            raise shutil.Error(self.errors)
        return CopyReport(self.files, self.directories, self.symlinks, self.links, self.data, self.left_out)

    def step(self, stack: list[_Frame]) -> None:
        """Copies the next entry of the directory on top, or finishes it."""
        frame = stack[-1]
        name = next(frame.names, None)
        if name is not None:
            source, target = _join(frame.source, name), _join(frame.target, name)
            with self.collected(source, target):
                entered = self.entry(name, source, target)
                if entered is not None:
                    self.directories += 1
                    stack.append(entered)
            return
        below = self.folder.up() if len(stack) > 1 else os.dup(self.folder.fd)
        try:
            with self.collected(frame.source, frame.target):
                self.leave(frame, below)
        finally:
            os.close(below)
        stack.pop()

    def collected(self, source: bytes, target: bytes) -> _Collected:
        return _Collected(self, source, target)

    def failed(self, source: bytes, target: bytes, error: BaseException) -> None:
        # Without the path in the volume or below a descriptor, which are not what the program knows.
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        self.errors.append((decode(source), decode(target), text))

    def kept(self, folder: bytes, names: Iterable[bytes]) -> list[bytes]:
        """The names that are copied, in their order; such that no directory can have are errors."""
        found = []
        for name in names:
            if name in (b"", b".", b"..") or b"/" in name or b"\0" in name:
                self.failed(_join(folder, name), b"", OSError(errno.EINVAL, "this can't be a file's name"))
            else:
                found.append(name)
        if self.ignore is None:
            return sorted(found)
        ignored = set(self.ignore(decode(folder), [decode(name) for name in found]))
        return sorted(name for name in found if decode(name) not in ignored)

    def pieces(
        self, start: int, end: int, read: Callable[[memoryview, int], int]
    ) -> Iterator[tuple[memoryview, int]]:
        """A range of a file in pieces, with their offsets. It ends early where the file was cut meanwhile."""
        while start < end:
            done = read(self.buffer[: min(_CHUNK, end - start)], start)
            if done == 0:
                return
            yield self.buffer[:done], start
            start += done

    def mode(self, mode: int) -> int:
        """The bits of a mode that the copy has."""
        return modes.S_IMODE(mode) if self.owners else mode & _HARMLESS


class _Collected:
    """A context whose errors are remembered, so that the rest is copied."""

    def __init__(self, copy: _Copy, source: bytes, target: bytes) -> None:
        self._copy, self._source, self._target = copy, source, target

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, (OSError, OverflowError)):
            return False
        self._copy.failed(self._source, self._target, error)
        return True


class CopyOut(_Copy):
    """From the volume to the host."""

    def start(self, source: bytes, target: str) -> CopyReport:
        source = self.native.realpath(source)
        found = self.native.stat(source, False)
        if not modes.S_ISDIR(found[0][0]):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), decode(source))
        names = self.listed(source)
        above = os.path.dirname(os.path.abspath(target))
        os.makedirs(above, exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(target, 0o700)
        self.folder = _Folder(target)
        try:
            if not self.overwrite and os.listdir(self.folder.fd):
                raise _not_empty(target)
            self.root = os.fsencode(target)
            self.top = os.dup(self.folder.fd)
            self.first: dict[int, tuple[bytes, tuple[int, int]]] = {}  # of files with several names
            self.entered = {found[0][1]}  # directories, of which each has one name in a sound volume
            try:
                return self.run(_Frame(source, self.root, names, found))
            finally:
                os.close(self.top)
        finally:
            self.folder.close()

    def listed(self, source: bytes) -> list[bytes]:
        return self.kept(source, [name for name, _, _ in self.native.entries(source)])

    def entry(self, name: bytes, source: bytes, target: bytes) -> _Frame | None:
        found = self.native.stat(source, False)
        kind = modes.S_IFMT(found[0][0])
        if kind == modes.S_IFDIR:
            return self.into(name, source, target, found)
        if kind == modes.S_IFREG:
            self.file(name, source, target, found)
        elif kind == modes.S_IFLNK:
            self.symlink(name, source, found)
        else:
            self.left_out.append(decode(source))
        return None

    def into(self, name: bytes, source: bytes, target: bytes, found: Any) -> _Frame:
        inode = found[0][1]
        if inode in self.entered:
            raise OSError(errno.ELOOP, "the directory has several names: the volume is damaged")
        names = self.listed(source)
        try:
            os.mkdir(name, 0o700, dir_fd=self.folder.fd)
        except FileExistsError:
            if not self.overwrite:
                raise
            there = os.stat(name, dir_fd=self.folder.fd, follow_symlinks=False)
            if not modes.S_ISDIR(there.st_mode):
                os.unlink(name, dir_fd=self.folder.fd)
                os.mkdir(name, 0o700, dir_fd=self.folder.fd)
        self.folder.down(name, True)
        self.entered.add(inode)
        return _Frame(source, target, names, found)

    def leave(self, frame: _Frame, below: int) -> None:
        self.finish(below, frame.source, frame.found)

    def file(self, name: bytes, source: bytes, target: bytes, found: Any) -> None:
        _, inode, links, *_ = found[0]
        if inode in self.first and self.linked(name, *self.first[inode]):
            self.links += 1
            return
        fd = self.made(name, lambda: os.open(name, _NEW_FILE, 0o600, dir_fd=self.folder.fd))
        try:
            try:
                self.content(source, fd)
            except BaseException:
                with suppress(OSError):
                    os.unlink(name, dir_fd=self.folder.fd)
                raise
            self.files += 1
            if links > 1:
                self.first[inode] = (target, _identity(os.fstat(fd)))
            self.finish(fd, source, found)
        finally:
            os.close(fd)

    def linked(self, name: bytes, first: bytes, identity: tuple[int, int]) -> bool:
        """Makes a hard link to what was copied before; whether it could, and it is that file."""
        path = first[len(self.root) :].lstrip(b"/")
        here = self.folder.fd
        try:
            self.made(
                name, lambda: os.link(path, name, src_dir_fd=self.top, dst_dir_fd=here, follow_symlinks=False)
            )
        except (FileExistsError, IsADirectoryError):
            raise
        except OSError:
            return False
        if _identity(os.stat(name, dir_fd=here, follow_symlinks=False)) == identity:
            return True
        os.unlink(name, dir_fd=here)
        return False

    def made(self, name: bytes, make: Callable[[], _T]) -> _T:
        """What `make` makes, in the place of what is there if that may be replaced."""
        try:
            return make()
        except FileExistsError:
            if not self.overwrite:
                raise
        there = os.stat(name, dir_fd=self.folder.fd, follow_symlinks=False)
        if modes.S_ISDIR(there.st_mode):
            raise _directory_there(name)
        os.unlink(name, dir_fd=self.folder.fd)
        return make()

    def content(self, source: bytes, fd: int) -> None:
        """Copies what a file holds; holes stay holes."""
        file = self.native.open_file(source, "r", 0)
        try:
            size = file.stat()[0][5]
            at = 0
            while at < size:
                start = _sought(file.seek, at, os.SEEK_DATA, size)
                end = _sought(file.seek, start, os.SEEK_HOLE, size)
                self.data += end - start
                for piece, offset in self.pieces(start, end, file.pread_into):
                    done = 0
                    while done < len(piece):
                        done += os.pwrite(fd, piece[done:], offset + done)
                at = end
            os.ftruncate(fd, size)
        finally:
            file.close()

    def symlink(self, name: bytes, source: bytes, found: Any) -> None:
        leads = self.native.readlink(source)
        here = self.folder.fd
        self.made(name, lambda: os.symlink(leads, name, dir_fd=here))
        self.symlinks += 1
        if self.owners:
            os.chown(name, found[0][3], found[0][4], dir_fd=here, follow_symlinks=False)
        os.utime(name, ns=found[1][:2], dir_fd=here, follow_symlinks=False)

    def finish(self, fd: int, source: bytes, found: Any) -> None:
        """Gives a file or directory what its inode says. Times come last: the rest would change them."""
        (mode, _, _, uid, gid, _), times, _ = found
        if self.xattrs:
            for attribute in self.native.listxattr(source, False):
                if attribute.startswith(b"user."):
                    os.setxattr(fd, attribute, self.native.getxattr(source, attribute, False))
        if self.owners:
            os.fchown(fd, uid, gid)
        os.fchmod(fd, self.mode(mode))
        os.utime(fd, ns=times[:2])


class CopyIn(_Copy):
    """From the host to the volume."""

    def start(self, source: str, target: bytes) -> CopyReport:
        """Copies into a directory of the volume, which is there; its path has no links."""
        if not self.overwrite:
            if any(name != b"lost+found" for name, _, _ in self.native.entries(target)):
                raise _not_empty(decode(target))
        self.folder = _Folder(source)
        # Of files with several names: inode, size and time of change tell them apart.
        self.first: dict[tuple[int, int, int, int], bytes] = {}
        try:
            top = os.fsencode(source)
            names = self.kept(top, map(os.fsencode, os.listdir(self.folder.fd)))
            return self.run(_Frame(top, target, names, os.fstat(self.folder.fd)))
        finally:
            self.folder.close()

    def entry(self, name: bytes, source: bytes, target: bytes) -> _Frame | None:
        found = os.stat(name, dir_fd=self.folder.fd, follow_symlinks=False)
        if modes.S_ISDIR(found.st_mode):
            return self.into(name, source, target)
        if modes.S_ISREG(found.st_mode):
            self.file(name, target)
        elif modes.S_ISLNK(found.st_mode):
            self.symlink(name, target, found)
        else:
            self.left_out.append(os.fsdecode(source))
        return None

    def into(self, name: bytes, source: bytes, target: bytes) -> _Frame:
        self.folder.down(name, False)
        try:
            names = self.kept(source, map(os.fsencode, os.listdir(self.folder.fd)))
            self.directory(target)
            return _Frame(source, target, names, os.fstat(self.folder.fd))
        except BaseException:
            os.close(self.folder.up())
            raise

    def directory(self, target: bytes) -> None:
        try:
            self.native.mkdir(target, 0o700)
        except FileExistsError:
            if not self.overwrite:
                raise
            if not modes.S_ISDIR(self.native.stat(target, False)[0][0]):
                self.native.unlink(target)
                self.native.mkdir(target, 0o700)

    def leave(self, frame: _Frame, below: int) -> None:
        self.finish(frame.target, below, frame.found)

    def file(self, name: bytes, target: bytes) -> None:
        fd = os.open(name, _OLD_FILE, dir_fd=self.folder.fd)
        try:
            found = os.fstat(fd)
            if not modes.S_ISREG(found.st_mode):
                raise OSError(errno.EINVAL, "it was a file when its directory was read, and is none")
            # A file with one name has no other; and an inode may be another file's by now.
            key = (*_identity(found), found.st_size, found.st_mtime_ns)
            first = self.first.get(key) if found.st_nlink > 1 else None
            if first is not None and self.linked(first, target):
                self.links += 1
                return
            self.content(fd, target, found.st_size)
            self.files += 1
            if found.st_nlink > 1:
                self.first[key] = target
            self.finish(target, fd, found)
        finally:
            os.close(fd)

    def linked(self, first: bytes, target: bytes) -> bool:
        """Makes a hard link to what was copied before; whether it could."""
        try:
            self.made(target, lambda: self.native.link(first, target))
        except (FileExistsError, IsADirectoryError):
            raise
        except OSError:  # there are no more links to a file than 65,000
            return False
        return True

    def made(self, target: bytes, make: Callable[[], _T]) -> _T:
        """What `make` makes, in the place of what is there if that may be replaced."""
        try:
            return make()
        except FileExistsError:
            if not self.overwrite:
                raise
        if modes.S_ISDIR(self.native.stat(target, False)[0][0]):
            raise _directory_there(target)
        self.native.unlink(target)
        return make()

    def content(self, fd: int, target: bytes, size: int) -> None:
        """Copies what a file holds; holes stay holes, and what could not be copied whole is removed."""
        file = self.made(target, lambda: self.native.open_file(target, "wx", 0o600))
        try:
            try:
                at = 0
                while at < size:
                    start = _sought(partial(os.lseek, fd), at, os.SEEK_DATA, size)
                    end = _sought(partial(os.lseek, fd), start, os.SEEK_HOLE, size)
                    self.data += end - start
                    for piece, offset in self.pieces(start, end, lambda out, at: os.preadv(fd, [out], at)):
                        done = 0
                        while done < len(piece):
                            done += file.pwrite(piece[done:], offset + done)
                    at = end
                file.truncate(size)
            finally:
                file.close()  # reports what could not be written
        except BaseException:
            with suppress(OSError, ValueError):
                self.native.unlink(target)
            raise

    def symlink(self, name: bytes, target: bytes, found: os.stat_result) -> None:
        leads = os.readlink(name, dir_fd=self.folder.fd)
        self.made(target, lambda: self.native.symlink(leads, target))
        self.symlinks += 1
        if self.owners:
            self.native.chown(target, found.st_uid, found.st_gid, False)
        self.native.utime(target, _parts(found.st_atime_ns), _parts(found.st_mtime_ns), False)

    def finish(self, target: bytes, fd: int, found: os.stat_result) -> None:
        """Gives a file or directory what its inode says."""
        if self.xattrs:
            for attribute in map(os.fsencode, os.listxattr(fd)):
                if attribute.startswith(b"user."):
                    self.native.setxattr(target, attribute, os.getxattr(fd, attribute), 0, False)
        if self.owners:
            self.native.chown(target, found.st_uid, found.st_gid, False)
        self.native.chmod(target, self.mode(found.st_mode))
        self.native.utime(target, _parts(found.st_atime_ns), _parts(found.st_mtime_ns), False)


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _join(folder: bytes, name: bytes) -> bytes:
    return folder + name if folder.endswith(b"/") else folder + b"/" + name


def _parts(nanoseconds: int) -> tuple[int, int]:
    return divmod(nanoseconds, 1_000_000_000)


def _sought(seek: Callable[[int, int], int], at: int, whence: int, size: int) -> int:
    """Where the next data or hole is, at the end if there is no more. A host may not know of holes."""
    try:
        return min(seek(at, whence), size)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return size
        if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
            return at if whence == os.SEEK_DATA else size
        raise


def _not_empty(folder: str) -> FileExistsError:
    reason = "the directory is not empty; overwrite=True merges, and replaces files"
    return FileExistsError(errno.EEXIST, reason, folder)


def _directory_there(name: bytes) -> IsADirectoryError:
    return IsADirectoryError(errno.EISDIR, "a directory is in the way", decode(name))
