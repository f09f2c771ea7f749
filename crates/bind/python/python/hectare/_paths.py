"""Paths of a volume, as `pathlib` has those of the host."""

from __future__ import annotations

import errno
import fnmatch
import os
import stat as modes
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING, Any, Callable, Iterator, Union

from ._names import StrPath, decode, encode, path_bytes
from ._walk import Entered

if TYPE_CHECKING:
    from ._volume import Volume

_Part = Union[str, "os.PathLike[str]", "VolumePath"]


class VolumePath:
    """A path of a volume: always from its root.

    Methods with the names of `pathlib.Path`'s do the same. What differs: there is no directory to be in, so
    that relative paths (`rename("x")`, `hardlink_to("x")`, `samefile("x")`) are from the root; nothing has a
    umask; owners are numbers, `stat().st_uid` and `stat().st_gid`, so `owner` and `group` are missing;
    `readlink` and `relative_to` give a `PurePosixPath`. `chown`, `utime`, `rmtree` and the methods for
    extended attributes have the names that `os` and `shutil` give them.

    It is no `os.PathLike`: the built-in `open` would take it for the path of a file of the host. Paths are
    equal if they are of the same open `Volume` and have the same names.
    """

    __slots__ = ("_pure", "volume")

    volume: Volume
    """The volume that it is a path of."""

    def __init__(self, volume: Volume, path: StrPath | VolumePath = "/") -> None:
        self.volume = volume
        text = str(path) if isinstance(path, VolumePath) else decode(path_bytes(path))
        self._pure = PurePosixPath("/" + text.lstrip("/"))

    # What needs no look at the volume.

    def __str__(self) -> str:
        return str(self._pure)

    def __bytes__(self) -> bytes:
        return encode(str(self))

    def __repr__(self) -> str:
        return f"VolumePath({self.volume.image!r}, {str(self)!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, VolumePath):
            return NotImplemented
        return self.volume is other.volume and self._pure == other._pure

    def __lt__(self, other: VolumePath) -> bool:
        if not isinstance(other, VolumePath):
            return NotImplemented
        return self._pure < other._pure

    def __le__(self, other: VolumePath) -> bool:
        if not isinstance(other, VolumePath):
            return NotImplemented
        return self._pure <= other._pure

    def __hash__(self) -> int:
        return hash((id(self.volume), self._pure))

    def __truediv__(self, other: _Part) -> VolumePath:
        return self.joinpath(other)

    def joinpath(self, *others: _Part) -> VolumePath:
        """This path with others behind it; one from the root replaces what is before it."""
        parts = [str(other) if isinstance(other, VolumePath) else other for other in others]
        return self._with(self._pure.joinpath(*parts))

    def as_posix(self) -> str:
        """The path as `str`."""
        return str(self)

    @property
    def parts(self) -> tuple[str, ...]:
        """The root and the names."""
        return self._pure.parts

    @property
    def name(self) -> str:
        """The last name; empty of the root."""
        return self._pure.name

    @property
    def stem(self) -> str:
        """The last name without its suffix."""
        return self._pure.stem

    @property
    def suffix(self) -> str:
        """The suffix of the last name, with its dot."""
        return self._pure.suffix

    @property
    def suffixes(self) -> list[str]:
        """All suffixes of the last name."""
        return self._pure.suffixes

    @property
    def parent(self) -> VolumePath:
        """The directory that it is in; the root's is itself."""
        return self._with(self._pure.parent)

    @property
    def parents(self) -> list[VolumePath]:
        """The directories above it, the nearest first."""
        return [self._with(above) for above in self._pure.parents]

    def with_name(self, name: str) -> VolumePath:
        """The same path with another last name."""
        return self._with(self._pure.with_name(name))

    def with_stem(self, stem: str) -> VolumePath:
        """The same path with another last name before its suffix."""
        return self._with(self._pure.with_stem(stem))

    def with_suffix(self, suffix: str) -> VolumePath:
        """The same path with another suffix."""
        return self._with(self._pure.with_suffix(suffix))

    def relative_to(self, other: _Part) -> PurePosixPath:
        """The rest of the path, from `other` on."""
        return self._pure.relative_to(str(other))

    def is_relative_to(self, other: _Part) -> bool:
        """Whether it is `other` or below."""
        return self._pure.is_relative_to(str(other))

    def match(self, pattern: str) -> bool:
        """Whether it matches a pattern, as `pathlib.PurePath.match`."""
        return self._pure.match(pattern)

    def is_absolute(self) -> bool:
        """Always."""
        return True

    # What is there.

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """What the inode says."""
        return self.volume.stat(self, follow_symlinks=follow_symlinks)

    def lstat(self) -> os.stat_result:
        """As `stat`, of a symbolic link itself."""
        return self.volume.lstat(self)

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Whether there is something."""
        return self.volume.exists(self) if follow_symlinks else self.volume.lexists(self)

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a directory, or a link to one."""
        return modes.S_ISDIR(self.volume._mode(self, follow_symlinks))

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a regular file, or a link to one."""
        return modes.S_ISREG(self.volume._mode(self, follow_symlinks))

    def is_symlink(self) -> bool:
        """Whether it is a symbolic link."""
        return self.volume.islink(self)

    def is_block_device(self) -> bool:
        """Whether it is a block device, or a link to one."""
        return modes.S_ISBLK(self.volume._mode(self))

    def is_char_device(self) -> bool:
        """Whether it is a character device, or a link to one."""
        return modes.S_ISCHR(self.volume._mode(self))

    def is_fifo(self) -> bool:
        """Whether it is a pipe, or a link to one."""
        return modes.S_ISFIFO(self.volume._mode(self))

    def is_socket(self) -> bool:
        """Whether it is a socket, or a link to one."""
        return modes.S_ISSOCK(self.volume._mode(self))

    def samefile(self, other: _Part) -> bool:
        """Whether both lead to the same inode."""
        there = self._other(other)
        return os.path.samestat(self.stat(), there.stat())

    def iterdir(self) -> Iterator[VolumePath]:
        """What is in the directory, in no order."""
        for name in self.volume.listdir(self):
            yield self._with(self._pure / name)

    def walk(
        self,
        top_down: bool = True,
        on_error: Callable[[OSError], object] | None = None,
        follow_symlinks: bool = False,
    ) -> Iterator[tuple[VolumePath, list[str], list[str]]]:
        """As `pathlib.Path.walk`: links to directories that are not followed are among the files.

        The list of directories may be changed in place, as for `Volume.walk`.
        """
        walked = self.volume._walk(self, top_down, on_error, follow_symlinks, False)
        for path, directories, others in walked:
            yield self._with(PurePosixPath(path)), directories, others

    def glob(self, pattern: str) -> Iterator[VolumePath]:
        """What matches: `*`, `?` and `[...]` in names, `**` for any directories, links not followed. At the
        end, `**` matches files, too, as in Python 3.13, and a slash matches directories only.

        A directory that `**` would enter by a second name, as in a damaged volume, raises `OSError`.
        """
        parts = PurePosixPath(pattern).parts
        if not parts or parts[0] == "/":
            raise ValueError(f"unacceptable pattern: {pattern!r}: names, not from the root, are meant")
        found: set[VolumePath] = set()
        directories = pattern.endswith("/")
        for path in self._select(parts):
            if path not in found and not (directories and not path.is_dir()):
                found.add(path)
                yield path

    def rglob(self, pattern: str) -> Iterator[VolumePath]:
        """As `glob` with `**/` before the pattern."""
        return self.glob("**/" + pattern)

    def resolve(self, strict: bool = False) -> VolumePath:
        """The path without links, `.` and `..`; as far as it exists, unless `strict`."""
        try:
            return self._with(PurePosixPath(self.volume.realpath(str(self))))
        except FileNotFoundError:
            if strict or self == self.parent:
                raise
            above = self.parent.resolve()
            return above.parent if self.name == ".." else above / self.name

    def readlink(self) -> PurePosixPath:
        """Where the symbolic link leads."""
        return PurePosixPath(self.volume.readlink(str(self)))

    # Content.

    def open(
        self,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *,
        permissions: int = 0o644,
    ) -> IO[Any]:
        """Opens it; see `Volume.open`. `permissions` are those of a file that is made."""
        return self.volume.open(self, mode, buffering, encoding, errors, newline, permissions=permissions)

    def read_bytes(self) -> bytes:
        """The content."""
        return self.volume.read_bytes(self)

    def read_text(self, encoding: str = "utf-8", errors: str | None = None) -> str:
        """The content of a text file."""
        return self.volume.read_text(self, encoding, errors)

    def write_bytes(self, data: Any) -> int:
        """Makes the file, or replaces its content; see `Volume.write_bytes` for what a failure leaves."""
        return self.volume.write_bytes(self, data)

    def write_text(
        self, text: str, encoding: str = "utf-8", errors: str | None = None, newline: str | None = None
    ) -> int:
        """Makes the text file, or replaces its content."""
        return self.volume.write_text(self, text, encoding, errors, newline)

    # Changes.

    def touch(self, mode: int = 0o644, exist_ok: bool = True) -> None:
        """Makes an empty file, or sets the times of what is there to now."""
        try:
            self.volume.open(self, "xb", 0, permissions=mode).close()
        except FileExistsError:
            if not exist_ok:
                raise
            self.volume.utime(self)

    def mkdir(self, mode: int = 0o755, parents: bool = False, exist_ok: bool = False) -> None:
        """Makes a directory; with `parents` those above it, too."""
        if parents:
            self.volume.makedirs(self, mode, exist_ok)
            return
        try:
            self.volume.mkdir(self, mode)
        except FileExistsError:
            if not (exist_ok and self.is_dir()):
                raise

    def rmdir(self) -> None:
        """Removes the empty directory."""
        self.volume.rmdir(self)

    def unlink(self, missing_ok: bool = False) -> None:
        """Removes the name, which is no directory's."""
        try:
            self.volume.remove(self)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rmtree(self, ignore_errors: bool = False) -> None:
        """Removes the directory and everything in it; see `Volume.rmtree`."""
        self.volume.rmtree(self, ignore_errors)

    def rename(self, target: _Part) -> VolumePath:
        """Gives it another name; returns that. A relative one is from the root.

        A file that is there is replaced, as by `pathlib` on Linux.
        """
        there = self._other(target)
        self.volume.rename(self, there)
        return there

    def replace(self, target: _Part) -> VolumePath:
        """As `rename`."""
        return self.rename(target)

    def copy(
        self, target: _Part, *, follow_symlinks: bool = True, preserve_metadata: bool = False
    ) -> VolumePath:
        """Copies the file or directory, and what is below, to `target` in this volume; returns that.

        As `pathlib.Path.copy` of Python 3.14: a file that is there is replaced, a directory is an error.
        Without `follow_symlinks` links are copied, else what they lead to. Of a file the permissions are
        copied, too, and holes stay holes; `preserve_metadata` keeps permissions, times and extended
        attributes of everything. Owners are not kept, nor are hard links. Devices, pipes and sockets raise
        `OSError`; the first error ends it.
        """
        there = self._other(target)
        is_tree = self.is_dir() and (follow_symlinks or not self.is_symlink())
        if there == self or (is_tree and there.resolve().is_relative_to(self.resolve())):
            raise OSError(errno.EINVAL, "nothing is copied into itself", str(self), None, str(there))
        # A stack rather than recursion: trees can be deep. With each, the inodes of the directories above it.
        todo: list[tuple[VolumePath, VolumePath, tuple[int, ...]]] = [(self, there, ())]
        complete: list[tuple[VolumePath, VolumePath, bool]] = []
        while todo:
            source, made, above = todo.pop()
            follow = follow_symlinks or not source.is_symlink()
            if not follow:
                made.symlink_to(source.volume.readlink(str(source)))
            elif source.is_dir():
                inode = source.stat().st_ino
                if inode in above:  # by a link, or a broken volume
                    raise OSError(errno.ELOOP, "the directory lies in itself", str(source), None, str(made))
                made.mkdir()
                todo.extend((child, made / child.name, (*above, inode)) for child in source.iterdir())
            else:
                self.volume.copy(source, made)
            complete.append((source, made, follow))
        if preserve_metadata:
            # What is below first: it changes the times of what is above.
            for source, made, follow in reversed(complete):
                source._keep(made, follow)
        return there

    def symlink_to(self, target: _Part, target_is_directory: bool = False) -> None:
        """Makes it a symbolic link that leads to `target`. The other argument is for `pathlib`'s sake."""
        self.volume.symlink(target, self)

    def hardlink_to(self, target: _Part) -> None:
        """Makes it another name of `target`."""
        self.volume.link(target, self)

    def chmod(self, mode: int) -> None:
        """Changes the permissions; a link is followed."""
        self.volume.chmod(self, mode)

    def chown(self, uid: int, gid: int, *, follow_symlinks: bool = True) -> None:
        """Changes the owner and the group, as `os.chown`; -1 leaves one."""
        self.volume.chown(self, uid, gid, follow_symlinks=follow_symlinks)

    def utime(
        self,
        times: tuple[float, float] | None = None,
        *,
        ns: tuple[int, int] | None = None,
        follow_symlinks: bool = True,
    ) -> None:
        """Sets the times of access and change, as `os.utime`."""
        self.volume.utime(self, times, ns=ns, follow_symlinks=follow_symlinks)

    # Extended attributes.

    def getxattr(self, name: str | bytes, *, follow_symlinks: bool = True) -> bytes:
        """The value of an extended attribute, as `os.getxattr`."""
        return self.volume.getxattr(self, name, follow_symlinks=follow_symlinks)

    def listxattr(self, *, follow_symlinks: bool = True) -> list[str]:
        """The names of the extended attributes, as `os.listxattr`."""
        return self.volume.listxattr(self, follow_symlinks=follow_symlinks)

    def setxattr(
        self, name: str | bytes, value: bytes, flags: int = 0, *, follow_symlinks: bool = True
    ) -> None:
        """Sets an extended attribute, as `os.setxattr`."""
        self.volume.setxattr(self, name, value, flags, follow_symlinks=follow_symlinks)

    def removexattr(self, name: str | bytes, *, follow_symlinks: bool = True) -> None:
        """Removes an extended attribute, as `os.removexattr`."""
        self.volume.removexattr(self, name, follow_symlinks=follow_symlinks)

    # Inside.

    def _with(self, pure: PurePosixPath) -> VolumePath:
        return VolumePath(self.volume, str(pure))

    def _other(self, target: _Part) -> VolumePath:
        """A path that was given, from the root."""
        return target if isinstance(target, VolumePath) else self._with(PurePosixPath("/", target))

    def _keep(self, made: VolumePath, follow: bool) -> None:
        """Gives a copy the permissions, attributes and times of what it was copied from."""
        found = self.stat(follow_symlinks=follow)
        for name in self.listxattr(follow_symlinks=follow):
            made.setxattr(name, self.getxattr(name, follow_symlinks=follow), follow_symlinks=follow)
        if follow:
            made.chmod(modes.S_IMODE(found.st_mode))
        made.utime(ns=(found.st_atime_ns, found.st_mtime_ns), follow_symlinks=follow)

    def _select(self, parts: tuple[str, ...], entered: Entered | None = None) -> Iterator[VolumePath]:
        """What is below and matches; `entered` has the directories of the `**` that comes first."""
        if not parts:
            yield self
            return
        first, rest = parts[0], parts[1:]
        if first == "**":
            entered = Entered(self.volume) if entered is None else entered
            if not self.is_dir():
                return
            entered.add(str(self), self.stat().st_ino)
            yield from self._select(rest)
            for name, mode in self._children():
                child = self / name
                if modes.S_ISDIR(mode):
                    yield from child._select(parts, entered)
                elif not rest:
                    yield child
        elif not any(letter in first for letter in "*?["):
            child = self / first
            if child.exists(follow_symlinks=False):
                yield from child._select(rest)
        else:
            for name, mode in self._children():
                child = self / name
                leads_on = not rest or modes.S_ISDIR(mode) or (modes.S_ISLNK(mode) and child.is_dir())
                if leads_on and fnmatch.fnmatchcase(name, first):
                    yield from child._select(rest)

    def _children(self) -> list[tuple[str, int]]:
        """Names and the kinds of what is in it; nothing in what is no directory."""
        kinds = {True: modes.S_IFDIR, False: modes.S_IFREG}
        try:
            return [
                (
                    entry.name,
                    modes.S_IFLNK if entry.is_symlink() else kinds[entry.is_dir(follow_symlinks=False)],
                )
                for entry in self.volume.scandir(self)
            ]
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return []
            raise
