"""Whole trees from the host to a volume: `CopyIn`, for `Volume.copy_in`.

Invariant: *no links followed.* A name of the host is opened in the directory that is open, and is judged by
its descriptor: what was a file when its directory was read may be anything by then.

Not here: the walk, and what both directions share (`_trees`).
"""

from __future__ import annotations

import errno
import os
import stat as modes
from functools import partial
from typing import TYPE_CHECKING

from ._names import decode
from ._reports import CopyReport
from ._trees import Copy, Directory, Frame, identity, joined, not_empty

if TYPE_CHECKING:
    from . import _native

# O_NONBLOCK: what was a file when it was looked at may be a pipe now.
_OLD_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class CopyIn(Copy):
    """From the host to the volume."""

    # What must not be copied: the volume is written to it.
    image: tuple[int, int] | None = None

    def start(self, source: str, given: bytes) -> CopyReport:
        """Copies into a directory of the volume, which is there."""
        if not self.overwrite:
            if any(name != b"lost+found" for name, _, _ in self.native.entries(given)):
                raise not_empty(decode(given))
        target = self.native.realpath(given)
        self.kept_directory = joined(target, b"lost+found")
        self.directory = Directory(source)
        # Of files with several names: inode, size and time of change tell them apart.
        self.first: dict[tuple[int, int, int, int], bytes] = {}
        try:
            top = os.fsencode(source)
            found = os.fstat(self.directory.fd)  # before it is read, which is an access
            names = self.kept(top, map(os.fsencode, os.listdir(self.directory.fd)))
            return self.run(Frame(top, target, names, found))
        finally:
            self.directory.close()

    def entry(self, name: bytes, source: bytes, target: bytes) -> Frame | None:
        found = os.stat(name, dir_fd=self.directory.fd, follow_symlinks=False)
        if modes.S_ISDIR(found.st_mode):
            return self.into(name, source, target)
        if modes.S_ISREG(found.st_mode):
            self.file(name, source, target)
        elif modes.S_ISLNK(found.st_mode):
            self.symlink(name, source, target, found)
        else:
            self.left_out.append(os.fsdecode(source))
        return None

    def into(self, name: bytes, source: bytes, target: bytes) -> Frame:
        self.directory.down(name, False)
        try:
            found = os.fstat(self.directory.fd)
            names = self.kept(source, map(os.fsencode, os.listdir(self.directory.fd)))
            self.made_directory(target)
            return Frame(source, target, names, found)
        except BaseException:
            os.close(self.directory.up())
            raise

    def made_directory(self, target: bytes) -> None:
        try:
            self.native.mkdir(target, 0o700)
        except FileExistsError:
            is_directory = modes.S_ISDIR(self.replaceable(target))
            if not self.overwrite and not (is_directory and target == self.kept_directory):
                raise
            if not is_directory:
                self.unlink(target)
                self.native.mkdir(target, 0o700)

    def leave(self, frame: Frame, below: int) -> None:
        self.finish(frame.target, below, frame.source, frame.target, frame.found)

    def file(self, name: bytes, source: bytes, target: bytes) -> None:
        fd = os.open(name, _OLD_FILE, dir_fd=self.directory.fd)
        try:
            found = os.fstat(fd)
            if not modes.S_ISREG(found.st_mode):
                raise OSError(errno.EINVAL, "it was a file when its directory was read, and is none")
            if identity(found) == self.image:
                raise OSError(errno.EBUSY, "this is the image that is copied into")
            # A file with one name has no other; and an inode may be another file's by now.
            key = (*identity(found), found.st_size, found.st_mtime_ns)
            first = self.first.get(key) if found.st_nlink > 1 else None
            if first is not None and self.linked(first, source, target):
                self.links += 1
                return
            with self.made(target, self.new_file) as (file, at):
                try:
                    self.copied(fd, file, found.st_size)
                finally:
                    file.close()  # reports what could not be written
                self.finish(at, fd, source, target, found)
            self.files += 1
            if found.st_nlink > 1:
                self.first[key] = target
        finally:
            os.close(fd)

    def linked(self, first: bytes, source: bytes, target: bytes) -> bool:
        """Makes a hard link to what was copied before; whether it could."""
        try:
            with self.made(target, partial(self.native.link, first)):
                pass
        except (FileExistsError, IsADirectoryError):
            raise
        except OSError as error:  # there are no more links to a file than 65,000
            self.unlinked(source, target, error)
            return False
        return True

    def replaceable(self, name: bytes) -> int:
        return self.native.stat(name, False)[0][0]

    def unlink(self, name: bytes) -> None:
        self.native.unlink(name)

    def rename(self, source: bytes, target: bytes) -> None:
        self.native.rename(source, target)

    def new_file(self, target: bytes) -> tuple[_native.File, bytes]:
        return self.native.open_file(target, "wx", 0o600), target

    def copied(self, fd: int, file: _native.File, size: int) -> None:
        """Copies what a file holds."""
        self.content(partial(os.lseek, fd), partial(_read, fd), file.pwrite, size)
        file.truncate(size)

    def symlink(self, name: bytes, source: bytes, target: bytes, found: os.stat_result) -> None:
        leads = os.readlink(name, dir_fd=self.directory.fd)

        def make(at: bytes) -> bytes:
            self.native.symlink(leads, at)
            return at

        with self.made(target, make) as at:
            if self.owners:
                with self.collected(source, target):
                    self.native.chown(at, found.st_uid, found.st_gid, False)
            with self.collected(source, target):
                self.native.utime(at, _parts(found.st_atime_ns), _parts(found.st_mtime_ns), False)
        self.symlinks += 1

    def finish(self, at: bytes, fd: int, source: bytes, target: bytes, found: os.stat_result) -> None:
        """Gives what is at a name, for now, what its inode says, each as far as it can be given."""
        if self.xattrs:
            with self.collected(source, target):
                for attribute in map(os.fsencode, os.listxattr(fd)):
                    if attribute.startswith(b"user."):
                        with self.collected(source, target):
                            self.native.setxattr(at, attribute, os.getxattr(fd, attribute), 0, False)
        with self.collected(source, target):
            if self.owners:
                self.native.chown(at, found.st_uid, found.st_gid, False)
            self.native.chmod(at, self.mode(found.st_mode))  # no set-id bits for another owner
        with self.collected(source, target):
            self.native.utime(at, _parts(found.st_atime_ns), _parts(found.st_mtime_ns), False)


def _read(fd: int, buffer: memoryview, offset: int) -> int:
    return os.preadv(fd, [buffer], offset)


def _parts(nanoseconds: int) -> tuple[int, int]:
    return divmod(nanoseconds, 1_000_000_000)
