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
from typing import TYPE_CHECKING, Any

from ._names import SEVERAL_NAMES, decode
from ._reports import CopyReport
from ._trees import Copy, Directory, Frame, identity, not_empty

if TYPE_CHECKING:
    from . import _native

# Inode, size and time of change of a file of the volume: its inode may be another file's by now.
_Key = tuple[int, int, int]
# Where a file was copied to, and what it is there.
_First = tuple[bytes, tuple[int, int]]
_WAY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# As the number of a user or a group, it is -1.
_NO_ID = 0xFFFF_FFFF


class CopyOut(Copy):
    """From the volume to the host."""

    # What must not be replaced: the volume is read from it.
    image: tuple[int, int] | None = None

    def start(self, given: bytes, target: str) -> CopyReport:
        source = self.native.realpath(given)
        found = self.native.stat(source, False)
        if not modes.S_ISDIR(found[0][0]):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), decode(given))
        names = self.kept(source, [name for name, _, _ in self.native.entries(given)])
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
            self.first: dict[_Key, _First] = {}  # of files with several names
            self.single: set[_Key] = set()  # files copied that have one, by their link count
            self.entered = {found[0][1]}  # directories, of which each has one name in a sound volume
            try:
                return self.run(Frame(source, self.root, names, found))
            finally:
                os.close(self.top)
        finally:
            self.directory.close()

    def entry(self, name: bytes, source: bytes, target: bytes) -> Frame | None:
        found = self.native.stat(source, False)
        kind = modes.S_IFMT(found[0][0])
        if kind == modes.S_IFDIR:
            return self.into(name, source, target, found)
        if kind == modes.S_IFREG:
            self.file(name, source, target, found)
        elif kind == modes.S_IFLNK:
            self.symlink(name, source, target, found)
        else:
            self.left_out.append(decode(source))
        return None

    def into(self, name: bytes, source: bytes, target: bytes, found: Any) -> Frame:
        inode = found[0][1]
        if inode in self.entered:
            raise OSError(errno.ELOOP, SEVERAL_NAMES)
        names = self.kept(source, [entry for entry, _, _ in self.native.entries(source)])
        try:
            os.mkdir(name, 0o700, dir_fd=self.directory.fd)
        except FileExistsError:
            if not self.overwrite:
                raise
            if not modes.S_ISDIR(self.replaceable(name)):
                self.unlink(name)
                os.mkdir(name, 0o700, dir_fd=self.directory.fd)
        self.directory.down(name, True)
        self.entered.add(inode)
        return Frame(source, target, names, found)

    def leave(self, frame: Frame, below: int) -> None:
        self.finish(below, frame.source, frame.target, frame.found)

    def file(self, name: bytes, source: bytes, target: bytes, found: Any) -> None:
        _, inode, links, _, _, size = found[0]
        key = (inode, size, found[1][1])
        if key in self.first and self.linked(name, source, target, self.first[key]):
            self.links += 1
            return
        if links < 2 and key in self.single:
            raise OSError(errno.EUCLEAN, "the file has several names and a link count below 2")
        content = self.native.open_file(source, "r", 0)
        try:
            with self.made(name, self.new_file) as fd:
                try:
                    self.copied(content, fd)
                    self.finish(fd, source, target, found)
                    same = identity(os.fstat(fd))
                finally:
                    os.close(fd)
        finally:
            content.close()
        self.files += 1
        if links > 1:
            self.first[key] = (target, same)
        else:
            self.single.add(key)

    def new_file(self, name: bytes) -> int:
        return os.open(name, _NEW_FILE, 0o600, dir_fd=self.directory.fd)

    def linked(self, name: bytes, source: bytes, target: bytes, first: _First) -> bool:
        """Makes a hard link to what was copied before; whether it could, and it is that file."""
        path, same = first
        here = self.directory.fd

        def link(at: bytes) -> bytes:
            above, last = self.reached(path)
            try:
                os.link(last, at, src_dir_fd=above, dst_dir_fd=here, follow_symlinks=False)
            finally:
                os.close(above)
            return at

        try:
            with self.made(name, link) as at:
                if identity(os.stat(at, dir_fd=here, follow_symlinks=False)) != same:
                    raise OSError(errno.ESTALE, "the first one was replaced")
        except (FileExistsError, IsADirectoryError):
            raise
        except OSError as error:
            self.unlinked(source, target, error)
            return False
        return True

    def reached(self, target: bytes) -> tuple[int, bytes]:
        """A descriptor of the directory that a path below the top ends in, and the name there.

        It goes down by single names, since the system follows links inside of paths, and limits their length.
        """
        *above, name = target[len(self.root) :].lstrip(b"/").split(b"/")
        fd = os.dup(self.top)
        try:
            for part in above:
                below = os.open(part, _WAY, dir_fd=fd)
                os.close(fd)
                fd = below
        except BaseException:
            os.close(fd)
            raise
        return fd, name

    def replaceable(self, name: bytes) -> int:
        there = os.stat(name, dir_fd=self.directory.fd, follow_symlinks=False)
        if identity(there) == self.image:
            raise OSError(errno.EBUSY, "this is the image that is read")
        return there.st_mode

    def unlink(self, name: bytes) -> None:
        os.unlink(name, dir_fd=self.directory.fd)

    def rename(self, source: bytes, target: bytes) -> None:
        here = self.directory.fd
        os.rename(source, target, src_dir_fd=here, dst_dir_fd=here)

    def copied(self, file: _native.File, fd: int) -> None:
        """Copies what a file holds."""
        size = file.stat()[0][5]
        self.content(file.seek, file.pread_into, partial(os.pwrite, fd), size)
        os.ftruncate(fd, size)

    def symlink(self, name: bytes, source: bytes, target: bytes, found: Any) -> None:
        leads = self.native.readlink(source)
        if b"\0" in leads:  # which Python would refuse by a ValueError
            raise OSError(errno.EUCLEAN, "the link's target has a NUL")
        here = self.directory.fd

        def make(at: bytes) -> bytes:
            os.symlink(leads, at, dir_fd=here)
            return at

        with self.made(name, make) as at:
            if self.owners:
                with self.collected(source, target):
                    os.chown(at, *_owners(found), dir_fd=here, follow_symlinks=False)
            with self.collected(source, target):
                os.utime(at, ns=found[1][:2], dir_fd=here, follow_symlinks=False)
        self.symlinks += 1

    def finish(self, fd: int, source: bytes, target: bytes, found: Any) -> None:
        """Gives a file or directory what its inode says, each as far as it can be given.

        Times come last: the rest would change them.
        """
        if self.xattrs:
            with self.collected(source, target):
                for attribute in self.native.listxattr(source, False):
                    if attribute.startswith(b"user."):
                        with self.collected(source, target):
                            self.attribute(fd, source, attribute)
        with self.collected(source, target):
            if self.owners:
                os.fchown(fd, *_owners(found))
            os.fchmod(fd, self.mode(found[0][0]))  # no set-id bits for another owner
        with self.collected(source, target):
            os.utime(fd, ns=found[1][:2])

    def attribute(self, fd: int, source: bytes, attribute: bytes) -> None:
        if b"\0" in attribute:
            raise OSError(errno.EUCLEAN, "the name of an attribute has a NUL")
        os.setxattr(fd, attribute, self.native.getxattr(source, attribute, False))


def _owners(found: Any) -> tuple[int, int]:
    """The user and the group that an inode names, if `chown` can give it to them."""
    _, _, _, uid, gid, _ = found[0]
    if _NO_ID in (uid, gid):
        raise OSError(errno.EINVAL, "there is no such owner: -1 leaves the owner as it is")
    return uid, gid
