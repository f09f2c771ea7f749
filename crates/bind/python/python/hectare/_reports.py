"""What is reported, as dataclasses: `pandas.DataFrame(report.problems)` takes them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a volume, or a note. `structure` is for programs, the rest for people."""

    structure: str
    """The structure, one of the stable codes that `docs/python.md` lists: `superblock`, `inode`, ..."""
    place: str
    """Where it lies: `of the volume`, `at byte N`, `in block N`, `of group N`, `of inode N`, or
    `in block N of inode N`."""
    reason: str
    """What is wrong with it: English text, which may be worded otherwise in other versions."""
    text: str
    """All of this in a line, as `hectare check` prints it: the structure's name, the place, the reason."""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class CheckCounts:
    """How much a check looked at."""

    groups: int
    """Block groups."""
    inodes: int
    """Inodes in use, the reserved ones included."""
    directories: int
    """Directories, the root and `lost+found` included."""
    clusters: int
    """Clusters in use: blocks, on volumes without `bigalloc`."""


@dataclass(frozen=True)
class CheckReport:
    """What a check has found.

    A volume is known to be sound if `clean and not unchecked`.
    """

    problems: list[Problem]
    """What is wrong, in the order it was found: the first thousand."""
    problem_count: int
    """How many problems there are, those included that are not in `problems`."""
    notes: list[Problem]
    """What differs from the ideal and is put right silently whenever the volume is opened for writing, such
    as the superblock's sum of what is free. They are no problems: a volume with notes may be clean."""
    unchecked: list[str]
    """What could not be judged, in words, such as what a broken structure leads to. It is not counted as a
    problem, so `clean` says nothing of it."""
    counts: CheckCounts
    """How much was looked at."""

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
    """Bytes that are free in it for files."""
    files: int
    """Regular files: one with several names counts once."""
    directories: int
    """Directories, the root included."""
    symlinks: int
    """Symbolic links."""
    special: int
    """Devices, pipes and sockets."""
    names: int
    """Entries of all directories, without `.` and `..`: each name of a file counts."""
    data: int
    """Bytes of the content of files, holes not counted; a file with several names counts once."""
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
    """Bytes for content, free or not; what the format itself takes is not in it."""
    free: int
    """Free bytes, those that are reserved for root (`reserved_percent`) included."""
    available: int
    """Free bytes that files can take, here as well: without what is reserved for root."""
    block_size: int
    """Bytes of a block."""
    inodes: int
    """Inodes, free or not."""
    free_inodes: int
    """Free inodes."""


@dataclass(frozen=True)
class FreeBucket:
    """Free extents of one class of lengths."""

    from_bytes: int
    """The shortest length that belongs to it; it ends below twice that."""
    extents: int
    """How many they are."""
    bytes: int
    """Bytes in them."""


@dataclass(frozen=True)
class FreeSpace:
    """How the free space of a volume is divided. Lengths are in bytes."""

    block_size: int
    """Bytes of a block."""
    blocks: int
    """Blocks of the volume."""
    extents: int
    """Free extents."""
    bytes: int
    """Bytes in all of them."""
    shortest: int
    """The length of the shortest one; 0 of none."""
    longest: int
    """The length of the longest one; 0 of none."""
    histogram: list[FreeBucket]
    """By powers of two blocks, ascending; without classes that have no extents."""

    @property
    def mean(self) -> float:
        """The mean length; 0 of none."""
        return self.bytes / self.extents if self.extents else 0.0


@dataclass(frozen=True)
class Extent:
    """A run of a file's bytes that is contiguous on the device. Holes are in none. All numbers are bytes."""

    offset: int
    """Its first byte in the file."""
    place: int
    """Its first byte on the device, from the beginning of the volume: in a raw image, of the image."""
    length: int
    """Bytes: whole blocks, so that the last one may reach beyond the file's end, except for content in the
    inode (feature `inline_data`)."""
    unwritten: bool
    """Whether it is allocated and was never written: it reads as zeros, whatever lies there."""
