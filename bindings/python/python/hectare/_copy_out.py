"""Whole trees from a volume to the host: `CopyOut`, for `Volume.copy_out`.

Invariant: *nothing outside.* All that is made, changed or removed is a name in the directory that is open.

Not here: the walk, and what both directions share (`_trees`).
"""

from __future__ import annotations

import errno
import os
import stat as modes
from contextlib import suppress
from functools import partial
from typing import Any

from ._names import decode
from ._reports import CopyReport
from ._trees import Copy, Directory, Frame, identity, not_empty

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class CopyOut(Copy):
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
        self.directory = Directory(target)
        try:
            if not self.overwrite and os.listdir(self.directory.fd):
                raise not_empty(target)
            self.root = os.fsencode(target)
            self.top = os.dup(self.directory.fd)
            self.first: dict[int, tuple[bytes, tuple[int, int]]] = {}  # of files with several names
            self.entered = {found[0][1]}  # directories, of which each has one name in a sound volume
            try:
                return self.run(Frame(source, self.root, names, found))
            finally:
                os.close(self.top)
        finally:
            self.directory.close()

    def listed(self, source: bytes) -> list[bytes]:
        return self.kept(source, [name for name, _, _ in self.native.entries(source)])

    def entry(self, name: bytes, source: bytes, target: bytes) -> Frame | None:
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

    def into(self, name: bytes, source: bytes, target: bytes, found: Any) -> Frame:
        inode = found[0][1]
        if inode in self.entered:
            raise OSError(errno.ELOOP, "the directory has several names: the volume is damaged")
        names = self.listed(source)
        try:
            os.mkdir(name, 0o700, dir_fd=self.directory.fd)
        except FileExistsError:
            if not self.overwrite:
                raise
            if not modes.S_ISDIR(self.mode_at(name)):
                self.unlink(name)
                os.mkdir(name, 0o700, dir_fd=self.directory.fd)
        self.directory.down(name, True)
        self.entered.add(inode)
        return Frame(source, target, names, found)

    def leave(self, frame: Frame, below: int) -> None:
        self.finish(below, frame.source, frame.found)

    def file(self, name: bytes, source: bytes, target: bytes, found: Any) -> None:
        _, inode, links, *_ = found[0]
        if inode in self.first and self.linked(name, *self.first[inode]):
            self.links += 1
            return
        fd = self.made(name, lambda: os.open(name, _NEW_FILE, 0o600, dir_fd=self.directory.fd))
        try:
            try:
                self.copied(source, fd)
            except BaseException:
                with suppress(OSError):
                    os.unlink(name, dir_fd=self.directory.fd)
                raise
            self.files += 1
            if links > 1:
                self.first[inode] = (target, identity(os.fstat(fd)))
            self.finish(fd, source, found)
        finally:
            os.close(fd)

    def linked(self, name: bytes, first: bytes, same: tuple[int, int]) -> bool:
        """Makes a hard link to what was copied before; whether it could, and it is that file."""
        path = first[len(self.root) :].lstrip(b"/")
        here = self.directory.fd
        try:
            self.made(
                name, lambda: os.link(path, name, src_dir_fd=self.top, dst_dir_fd=here, follow_symlinks=False)
            )
        except (FileExistsError, IsADirectoryError):
            raise
        except OSError:
            return False
        if identity(os.stat(name, dir_fd=here, follow_symlinks=False)) == same:
            return True
        os.unlink(name, dir_fd=here)
        return False

    def mode_at(self, name: bytes) -> int:
        return os.stat(name, dir_fd=self.directory.fd, follow_symlinks=False).st_mode

    def unlink(self, name: bytes) -> None:
        os.unlink(name, dir_fd=self.directory.fd)

    def copied(self, source: bytes, fd: int) -> None:
        """Copies what a file holds."""
        file = self.native.open_file(source, "r", 0)
        try:
            size = file.stat()[0][5]
            self.content(file.seek, file.pread_into, partial(os.pwrite, fd), size)
            os.ftruncate(fd, size)
        finally:
            file.close()

    def symlink(self, name: bytes, source: bytes, found: Any) -> None:
        leads = self.native.readlink(source)
        here = self.directory.fd
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
