"""What is reported, as dataclasses: `pandas.DataFrame(report.problems)` takes them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a volume."""

    structure: str
    """The structure, a stable code: `superblock`, `inode`, `block_bitmap`, ..."""
    place: str
    """Where it lies, such as `of inode 12`."""
    reason: str
    """What is wrong with it."""
    text: str
    """All of this in a line, as `hectare check` prints it."""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class CheckCounts:
    """How much a check looked at."""

    groups: int
    inodes: int
    """Inodes in use, the reserved ones included."""
    directories: int
    clusters: int
    """Clusters in use: blocks, on volumes without `bigalloc`."""


@dataclass(frozen=True)
class CheckReport:
    """What a check has found.

    A volume is known to be sound if `clean and not unchecked`.
    """

    problems: list[Problem]
    """What is wrong, the first thousand."""
    problem_count: int
    """How many problems there are, those that were not kept included."""
    notes: list[Problem]
    """What is put right silently whenever the volume is opened for writing."""
    unchecked: list[str]
    """What could not be judged, in words, such as what a broken structure leads to. It is not counted as a
    problem, so `clean` says nothing of it."""
    counts: CheckCounts

    @property
    def clean(self) -> bool:
        """Whether no problem was found. What could not be judged (`unchecked`) is no problem."""
        return self.problem_count == 0


@dataclass(frozen=True)
class BuildReport:
    """What was built."""

    size: int
    """Bytes of the image."""
    free: int
    """Free bytes in it."""
    files: int
    """Regular files, hard links counted once."""
    directories: int
    """Directories, the root included."""
    symlinks: int
    special: int
    """Devices, pipes and sockets."""
    names: int
    """Names in all directories."""
    data: int
    """Bytes of file data, holes not counted."""
    warnings: list[str]
    """What was odd about the sources, a line each, in words."""


@dataclass(frozen=True)
class CopyReport:
    """What `Volume.copy_out` or `Volume.copy_in` has copied."""

    files: int
    """Regular files, hard links counted once."""
    directories: int
    """Directories, the one that was given included."""
    symlinks: int
    """Symbolic links."""
    links: int
    """Hard links: further names of files."""
    data: int
    """Bytes of file data, holes not counted."""
    left_out: list[str]
    """Paths of devices, pipes and sockets, in the source: they are not copied."""


@dataclass(frozen=True)
class Space:
    """How full a volume is."""

    total: int
    """Bytes for content, free or not."""
    free: int
    """Free bytes, those that are reserved for root included."""
    available: int
    """Free bytes for everyone."""
    block_size: int
    """Bytes of a block."""
    inodes: int
    """Inodes, free or not."""
    free_inodes: int


@dataclass(frozen=True)
class FreeBucket:
    """Free extents of one class of lengths."""

    from_bytes: int
    """The shortest length that belongs to it; it ends below twice that."""
    extents: int
    bytes: int
    """Bytes in them."""


@dataclass(frozen=True)
class FreeSpace:
    """How the free space of a volume is divided. Lengths are in bytes."""

    block_size: int
    blocks: int
    """Blocks of the volume."""
    extents: int
    """Free extents."""
    bytes: int
    """Bytes in all of them."""
    shortest: int
    longest: int
    histogram: list[FreeBucket]
    """By powers of two blocks, ascending; without classes that have no extents."""

    @property
    def mean(self) -> float:
        """The mean length; 0 of none."""
        return self.bytes / self.extents if self.extents else 0.0


@dataclass(frozen=True)
class Extent:
    """A run of a file's bytes that is contiguous on the device. Holes are in none."""

    offset: int
    """Its first byte in the file."""
    place: int
    """Its first byte on the device."""
    length: int
    """Bytes: whole blocks, except for content in the inode."""
    unwritten: bool
    """Whether it is allocated and reads as zeros."""
