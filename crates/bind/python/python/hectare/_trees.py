"""Whole trees from a volume to the host and back: what both directions share.

Invariants:
- *A name at a time.* On the host everything is reached from the descriptor of the directory that it is in
  (`Directory`), and no symbolic link is followed. Names that no directory of the host could hold (`..`, a
  slash) are errors. So no image can lead a copy out of its target, even if another process changes the
  target meanwhile. A directory is entered once: a damaged volume can't have a copy go round, or on for ever.
- *Made anew.* A file that is written was made by this copy. What is in the way is an error, or is replaced in
  one step by what is finished: if that fails, the old one stays.
- *One descriptor.* Trees may be deeper than a process may have files open, and than Python recurses.

Hazard: symbolic links are copied as they are, and may lead anywhere. Who follows them later leaves the copy.

Not here: what differs (`_copy_out`, `_copy_in`), names (`_names`), what a volume can do (`_volume`).
"""

from __future__ import annotations

import errno
import os
import shutil
import stat as modes
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Optional, TypeVar, Union

from ._names import decode
from ._reports import CopyReport

if TYPE_CHECKING:
    from . import _native

HostPath = Union[str, "os.PathLike[str]"]
Ignore = Optional[Callable[[str, "list[str]"], Iterable[str]]]
_T = TypeVar("_T")
_Seek = Callable[[int, int], int]
_Transfer = Callable[[Any, int], int]  # a buffer, and an offset in the file

# What is read and written at once.
_CHUNK = 1 << 20
# Of the bits of a mode, those that give nobody the rights of another.
_HARMLESS = 0o1777
# What a link fails with where the target has no room for it, or no links: that is no error of a copy.
_NO_LINKS = (errno.EMLINK, errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP)
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class _Lost(Exception):
    """There is no way back to the directory above: a directory was moved."""


class Directory:
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
            self._above.append(identity(os.fstat(self.fd)))
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
        if identity(os.fstat(above)) != self._above[-1]:
            os.close(above)
            raise _Lost("a directory was moved while it was copied")
        self._above.pop()
        below, self.fd = self.fd, above
        return below

    def close(self) -> None:
        os.close(self.fd)


class Frame:
    """A directory that is being copied."""

    def __init__(self, source: bytes, target: bytes, names: list[bytes], found: Any) -> None:
        self.source = source
        self.target = target
        self.names: Iterator[bytes] = iter(names)
        self.found = found  # what its inode said when it was entered


class Copy:
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
        self.directory: Directory

    def entry(self, name: bytes, source: bytes, target: bytes) -> Frame | None:
        """Copies what is at a name; gives the frame of a directory that was entered."""
        raise NotImplementedError

    def leave(self, frame: Frame, below: int) -> None:
        """Finishes a directory whose entries were copied; `below` is its descriptor on the host."""
        raise NotImplementedError

    def run(self, top: Frame) -> CopyReport:
        """Copies what is in a directory, and below; raises what went wrong, all of it at the end."""
        self.directories += 1
        stack = [top]
        try:
            while stack:
                self.step(stack)
        except _Lost as error:
            # Of each directory above, entries and attributes are missing.
            for frame in reversed(stack):
                self.failed(frame.source, frame.target, error)
        if self.errors:
            raise shutil.Error(self.errors)
        return CopyReport(self.files, self.directories, self.symlinks, self.links, self.data, self.left_out)

    def step(self, stack: list[Frame]) -> None:
        """Copies the next entry of the directory on top, or finishes it."""
        frame = stack[-1]
        name = next(frame.names, None)
        if name is not None:
            source, target = joined(frame.source, name), joined(frame.target, name)
            with self.collected(source, target):
                entered = self.entry(name, source, target)
                if entered is not None:
                    self.directories += 1
                    stack.append(entered)
            return
        below = self.directory.up() if len(stack) > 1 else os.dup(self.directory.fd)
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

    def kept(self, directory: bytes, names: Iterable[bytes]) -> list[bytes]:
        """The names that are copied, in their order; such that no directory can have are errors."""
        found = []
        for name in names:
            if name in (b"", b".", b"..") or b"/" in name or b"\0" in name:
                error = OSError(errno.EINVAL, "this can't be a file's name")
                self.failed(joined(directory, name), b"", error)
            else:
                found.append(name)
        if self.ignore is None:
            return sorted(found)
        ignored = set(self.ignore(decode(directory), [decode(name) for name in found]))
        return sorted(name for name in found if decode(name) not in ignored)

    def content(self, seek: _Seek, read: _Transfer, write: _Transfer, size: int) -> None:
        """Copies what a file holds; holes stay holes. That its length changed meanwhile is an error."""
        at = copied = 0
        while at < size:
            start = _sought(seek, at, os.SEEK_DATA, size)
            at = _sought(seek, start, os.SEEK_HOLE, size)
            if start < at:
                self.range(start, at, read, write)
                copied = at
        # What ends in a hole may have been cut there.
        if copied < size and read(self.buffer[:1], size - 1) == 0:
            raise _shorter()
        # Files of /proc report a length of 0, whatever they hold.
        if read(self.buffer[:1], size) > 0:
            raise OSError(errno.EIO, "it became longer while it was copied")

    def range(self, start: int, end: int, read: _Transfer, write: _Transfer) -> None:
        """Copies a range of a file."""
        while start < end:
            length = read(self.buffer[: min(_CHUNK, end - start)], start)
            if length == 0:
                raise _shorter()
            done = 0
            while done < length:
                done += write(self.buffer[done:length], start + done)
            self.data += length
            start += length

    @contextmanager
    def made(self, name: bytes, make: Callable[[bytes], _T]) -> Iterator[_T]:
        """What `make` makes at a name; removed again if it can't be finished.

        If something is in the way, it is made at another name and finished there, and replaces that then.
        """
        at = name
        try:
            made = make(at)
        except FileExistsError:
            if not self.overwrite:
                raise
            if modes.S_ISDIR(self.replaceable(name)):
                raise IsADirectoryError(errno.EISDIR, "a directory is in the way", decode(name)) from None
            at = _beside(name)
            made = make(at)
        try:
            yield made
            if at != name:
                self.rename(at, name)
        except BaseException:
            with suppress(OSError, ValueError):
                self.unlink(at)
            raise
        if at != name:
            with suppress(FileNotFoundError):
                self.unlink(at)  # of two names of one file, renaming leaves both

    def replaceable(self, name: bytes) -> int:
        """The mode of what is at a name of the target; an error if it must stay."""
        raise NotImplementedError

    def unlink(self, name: bytes) -> None:
        """Removes a name of the target."""
        raise NotImplementedError

    def rename(self, source: bytes, target: bytes) -> None:
        """Gives what is at a name of the target another one, in place of what that named."""
        raise NotImplementedError

    def unlinked(self, source: bytes, target: bytes, error: OSError) -> None:
        """Reports that a file is copied again for want of a hard link, unless no link can be expected."""
        if error.errno not in _NO_LINKS:
            text = f"a file of its own, no hard link: {error.strerror}"
            self.failed(source, target, OSError(error.errno, text))

    def mode(self, mode: int) -> int:
        """The bits of a mode that the copy has."""
        return modes.S_IMODE(mode) if self.owners else mode & _HARMLESS


class _Collected:
    """A context whose errors are remembered, so that the rest is copied."""

    def __init__(self, copy: Copy, source: bytes, target: bytes) -> None:
        self._copy, self._source, self._target = copy, source, target

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, (OSError, OverflowError)):
            return False
        self._copy.failed(self._source, self._target, error)
        return True


def identity(found: os.stat_result) -> tuple[int, int]:
    """What tells a file of the host from all others."""
    return found.st_dev, found.st_ino


def joined(directory: bytes, name: bytes) -> bytes:
    """The path of a name in a directory."""
    return directory + name if directory.endswith(b"/") else directory + b"/" + name


def _shorter() -> OSError:
    return OSError(errno.EIO, "it became shorter while it was copied")


def _beside(name: bytes) -> bytes:
    """A name for what will replace a name in the same directory."""
    directory, slash, _ = name.rpartition(b"/")
    return directory + slash + b".hectare-" + os.urandom(8).hex().encode()


def _sought(seek: _Seek, at: int, whence: int, size: int) -> int:
    """Where the next data or hole is, at the end if there is no more. A host may not know of holes."""
    try:
        return min(seek(at, whence), size)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return size
        if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
            return at if whence == os.SEEK_DATA else size
        raise


def not_empty(directory: str) -> FileExistsError:
    """The error for a directory that nothing may be copied into."""
    reason = "the directory is not empty; overwrite=True merges, and replaces files"
    return FileExistsError(errno.EEXIST, reason, directory)
