"""The walk of `Volume.walk` and `VolumePath.walk`, and the rule by which walks end.

Invariant: *each directory once.* In a sound volume a directory has one name, and lies in no other that it
holds. A walk that follows no links enters it by the first of its names only: one of a damaged volume ends.

Hazard: with links followed, a link to a directory above is entered again and again, as by `os.walk`.

Not here: patterns (`_paths`), copies (`_trees`).
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Callable, Iterator, NamedTuple

from ._names import SEVERAL_NAMES

if TYPE_CHECKING:
    from ._volume import DirEntry, Volume

_Level = tuple[str, "list[str]", "list[str]"]


class Entered:
    """The directories that a walk has entered, by their inodes."""

    def __init__(self, volume: Volume) -> None:
        self._volume = volume
        self._paths: dict[int, str] = {}

    def add(self, path: str, inode: int) -> None:
        """Remembers a directory; raises `OSError` if it was entered by another name, and still has that."""
        before = self._paths.get(inode)
        # It may have been moved, or its inode may be another directory's by now.
        if before is not None and self._inode(before) == inode:
            raise OSError(errno.ELOOP, SEVERAL_NAMES, path)
        self._paths[inode] = path

    def _inode(self, path: str) -> int | None:
        try:
            return self._volume.stat(path).st_ino
        except OSError:
            return None


class _Below(NamedTuple):
    """A directory that is entered later."""

    path: str
    inode: int | None  # unknown if the directory above does not say


def walk(
    volume: Volume,
    top: str,
    topdown: bool,
    onerror: Callable[[OSError], object] | None,
    followlinks: bool,
    links_are_directories: bool,
) -> Iterator[_Level]:
    """As `Volume.walk`; links to directories that are not followed count as directories or do not."""
    entered = None if followlinks else Entered(volume)
    # A stack rather than recursion: trees can be deep. What is no `_Below` is one whose turn has come.
    stack: list[_Below | _Level] = [_Below(top, None)]
    while stack:
        here = stack.pop()
        if not isinstance(here, _Below):
            yield here
            continue
        try:
            entries = list(volume.scandir(here.path))
            if entered is not None:
                inode = volume.stat(here.path).st_ino if here.inode is None else here.inode
                entered.add(here.path, inode)
        except OSError as error:
            if onerror is not None:
                onerror(error)
            continue
        directories, others = _parted(entries, followlinks or links_are_directories)
        if topdown:
            yield here.path, directories, others
        else:
            stack.append((here.path, directories, others))
        stack.extend(_below(volume, here.path, entries, directories, followlinks))


def _parted(entries: list[DirEntry], follow: bool) -> tuple[list[str], list[str]]:
    """The names of directories, and the others."""
    directories: list[str] = []
    others: list[str] = []
    for entry in entries:
        try:
            is_dir = entry.is_dir(follow_symlinks=follow)
        except OSError:
            is_dir = False  # a link that leads nowhere, as in os.walk
        (directories if is_dir else others).append(entry.name)
    return directories, others


def _below(
    volume: Volume, above: str, entries: list[DirEntry], names: list[str], followlinks: bool
) -> Iterator[_Below]:
    """What is entered of the directories in one, the last first."""
    known = {entry.name: entry for entry in entries}
    base = above if above.endswith("/") else above + "/"
    for name in reversed(names):
        path, entry = base + name, known.get(name)
        # The caller may have added names.
        is_link = volume.islink(path) if entry is None else entry.is_symlink()
        if followlinks or not is_link:
            yield _Below(path, None if entry is None or is_link else entry.inode())
