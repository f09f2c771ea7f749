"""Open files, as `io` has them."""

from __future__ import annotations

import io
import operator
import os
import weakref
from typing import IO, TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from . import _native
    from ._volume import Volume

# Of a buffered file. Larger than io's: a read of the image costs more than one of a host's file.
BUFFER_SIZE = 128 * 1024


def _offset(offset: int) -> int:
    """An offset or size, which is a signed number of 64 bits, as for `os.pread`."""
    offset = operator.index(offset)
    if offset >= 1 << 63:
        raise OverflowError("an offset or a size has at most 63 bits")
    return offset


class NotCopied:
    """What has no copy, by `copy` or `pickle`: dropping one would close the original."""

    def __reduce__(self) -> Any:
        raise TypeError(f"cannot pickle {type(self).__name__!r} object")


class VolumeFile(NotCopied, io.RawIOBase):
    """An open regular file of a volume: unbuffered, with one position.

    `Volume.open` wraps it in the classes of `io`, as the built-in `open` does. It may be used by several
    threads. They share its position: `read`, `readinto` and `write` move it, each in one step, so each call
    gets another part of the file, and which one is chance. `pread`, `preadinto` and `pwrite` leave it alone,
    and run at the same time. It has no file descriptor: `fileno` raises.
    """

    def __init__(self, native: _native.File, name: Any, flags: str, volume: Volume) -> None:
        super().__init__()
        self._native = native
        self._volume = volume  # which would close, and this file with it, if nobody had it any more
        self.on_close: Callable[[], object] | None = None
        self._layers: tuple[weakref.ref[Any], ...] = ()
        self._flags = flags
        self.name = name

    @property
    def mode(self) -> str:
        """As that of `io.FileIO`."""
        if "a" in self._flags:
            return "ab+" if "r" in self._flags else "ab"
        if "x" in self._flags:
            return "xb+" if "r" in self._flags else "xb"
        if "w" in self._flags:
            return "rb+" if "r" in self._flags else "wb"
        return "rb"

    def readable(self) -> bool:
        """Whether it was opened for reading."""
        self._check_open()
        return "r" in self._flags

    def writable(self) -> bool:
        """Whether it was opened for writing."""
        self._check_open()
        return "w" in self._flags or "a" in self._flags

    def seekable(self) -> bool:
        """Always."""
        self._check_open()
        return True

    def readinto(self, buffer: Any) -> int:
        """Reads into a buffer; returns the bytes, fewer than fit at the end of the file only."""
        self._check_readable()
        return self._native.read_into(buffer)

    def read(self, size: int | None = -1) -> bytes:
        """Reads up to `size` bytes, or to the end."""
        if size is None or size < 0:
            return self.readall()
        self._check_readable()
        return self._native.read(_offset(size))

    def readall(self) -> bytes:
        """Reads to the end."""
        self._check_readable()
        return self._native.readall()

    def write(self, data: Any) -> int:
        """Writes a buffer; returns the bytes: fewer only if the volume is full or the file as large as can be."""
        self._check_writable()
        return self._native.write(data)

    def pread(self, size: int, offset: int) -> bytes:
        """Reads up to `size` bytes at `offset`, as `os.pread`."""
        self._check_readable()
        return self._native.pread(size, _offset(offset))

    def preadinto(self, buffer: Any, offset: int) -> int:
        """Reads at `offset` into a buffer, as `os.preadv`; returns the bytes, as `readinto`."""
        self._check_readable()
        return self._native.pread_into(buffer, _offset(offset))

    def pwrite(self, data: Any, offset: int) -> int:
        """Writes a buffer at `offset`, as `os.pwrite`."""
        self._check_writable()
        return self._native.pwrite(data, _offset(offset))

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Moves the position; `os.SEEK_DATA` and `os.SEEK_HOLE` are understood."""
        self._check_open()
        return self._native.seek(offset, whence)

    def tell(self) -> int:
        """The position."""
        return self.seek(0, os.SEEK_CUR)

    def truncate(self, size: int | None = None) -> int:
        """Makes the file `size` bytes long, or as long as the position says."""
        self._check_writable()
        size = self.tell() if size is None else size
        if size < 0:
            raise ValueError("a size is not negative")
        self._native.truncate(size)
        return size

    def sync(self) -> None:
        """Makes content and metadata durable, as `os.fsync`."""
        self._check_open()
        self._native.sync()

    def stat(self) -> os.stat_result:
        """What its inode says, as `os.fstat`: also if no name leads to it any more."""
        self._check_open()
        return self._volume.stat_of_file(self._native)

    def close(self) -> None:
        """Closes it, and reports whether everything was written. Makes nothing durable: see `sync`."""
        if self.closed:
            return
        try:
            super().close()
        finally:
            try:
                self._native.close()
            finally:
                after, self.on_close = self.on_close, None
                if after is not None:
                    after()

    def _close_whole(self) -> None:
        """Closes the outermost object of `io` around it that was not detached, which flushes the buffers."""
        for reference in self._layers:
            layer = reference()
            try:
                if layer is None or layer.closed:
                    continue
            except ValueError:  # io raises it for a detached object
                continue
            layer.close()
            return
        self.close()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file.")

    def _check_readable(self) -> None:
        if not self.readable():
            raise io.UnsupportedOperation("File not open for reading")

    def _check_writable(self) -> None:
        if not self.writable():
            raise io.UnsupportedOperation("File not open for writing")


def flags_of(mode: str) -> tuple[str, bool]:
    """What a mode of the built-in `open` means: the native half's letters, and whether it is for text."""
    letters = set(mode)
    if letters - set("rwaxbt+") or len(mode) > len(letters):
        raise ValueError(f"invalid mode: {mode!r}")
    if "t" in letters and "b" in letters:
        raise ValueError("can't have text and binary mode at once")
    kinds = letters & set("rwax")
    if len(kinds) != 1:
        raise ValueError("must have exactly one of create/read/write/append mode")
    flags = {"r": "r", "w": "wtc", "a": "ac", "x": "wx"}[kinds.pop()]
    if "+" in letters:
        flags += "w" if flags == "r" else "r"
    return flags, "b" not in letters


def refuse_arguments(text: bool, buffering: int, *of_text: str | None) -> None:
    """Raises what the built-in `open` raises for arguments that contradict each other: call it before a file is
    created or truncated."""
    if text and buffering == 0:
        raise ValueError("can't have unbuffered text I/O")
    if not text and any(argument is not None for argument in of_text):
        raise ValueError("binary mode doesn't take an encoding, errors or newline argument")


def wrapped(
    raw: VolumeFile,
    flags: str,
    text: bool,
    buffering: int,
    encoding: str | None,
    errors: str | None,
    newline: str | None,
) -> IO[Any]:
    """A raw file in the classes of `io`, as the built-in `open` chooses them."""
    if buffering == 0:
        return raw  # type: ignore[return-value]
    size = buffering if buffering > 1 else BUFFER_SIZE
    buffered: Any
    if "r" in flags and ("w" in flags or "a" in flags):
        buffered = io.BufferedRandom(raw, size)
    elif "r" in flags:
        buffered = io.BufferedReader(raw, size)
    else:
        buffered = io.BufferedWriter(raw, size)
    if not text:
        raw._layers = (weakref.ref(buffered),)
        return buffered
    lines = io.TextIOWrapper(buffered, encoding or "utf-8", errors, newline, line_buffering=buffering == 1)
    raw._layers = (weakref.ref(lines), weakref.ref(buffered))
    return lines
