"""Opening, making and judging volumes."""

from __future__ import annotations

import os
import uuid as uuids
from typing import Callable, Iterable, Literal, Mapping, Optional, Union

from . import _native
from ._names import encode
from ._reports import BuildReport, CheckCounts, CheckReport, FreeSpace, Problem
from ._volume import Volume

HostPath = Union[str, "os.PathLike[str]"]
Owner = Union[str, "tuple[int, int]", None]
Progress = Optional[Callable[[str, int, Optional[int]], object]]
_CONTAINERS = ("oci:", "oci-archive:", "docker-archive:")


def open(
    image: HostPath,
    mode: Literal["r", "rw"] = "r",
    *,
    owner: tuple[int, int] = (0, 0),
    direct: bool = False,
) -> Volume:
    """Opens the volume in a file or on a block device, for reading (`"r"`) or for both (`"rw"`).

    The image is locked: against other programs' writing if it is opened for reading, else against any use. A
    journal that must be replayed is, in memory only if the volume is opened for reading. `owner` (uid, gid)
    owns what is made. `direct` reads and writes the image past the host's page cache.

    Use it in a `with` statement, or call `Volume.close`: what was not closed is closed when the interpreter
    ends.

    Raises `OSError` if there is no such file (`ENOENT`), it is in use (`EBUSY`), or it holds no volume that
    can be opened (`EUCLEAN` or `EINVAL`), with `filename` as the image was given; `ValueError` for another
    mode.
    """
    if mode not in ("r", "rw"):
        raise ValueError(f"invalid mode: {mode!r}: 'r' or 'rw' is meant")
    return Volume(
        _native.Volume(os.fspath(image), mode == "rw", (owner[0], owner[1]), direct), os.fspath(image)
    )


def mkfs(
    image: HostPath,
    size: int | str,
    *,
    label: str | bytes = "",
    features: str | None = None,
    fs_type: Literal["ext2", "ext3", "ext4"] = "ext4",
    block_size: int | None = None,
    uuid: uuids.UUID | str | None = None,
    reserved_percent: float | None = None,
    root_owner: tuple[int, int] | None = None,
    replace: bool = False,
    progress: Progress = None,
) -> None:
    """Makes an empty volume of `size` bytes (or `"64M"`, ...) in a new file.

    `features` are names as mke2fs has them, separated by commas; `^` before one leaves it out. What is not
    given is as mke2fs chooses it. The file gets its name when it is complete; one that exists is an error
    (`FileExistsError`), unless `replace` is true. `progress` and Ctrl-C are as for `build`.
    """
    size = _native.parse_size(size) if isinstance(size, str) else size
    if size < 0:
        raise ValueError("a size is not negative")
    wanted = _wanted(fs_type, label, uuid, block_size, features, reserved_percent, root_owner, replace)
    _refuse_existing(image, replace)
    _native.mkfs(os.fspath(image), size, wanted, progress)


def build(
    sources: HostPath | Iterable[HostPath],
    image: HostPath,
    *,
    size: int | str | None = None,
    free: int | str | None = None,
    exclude: str | bytes | Iterable[str | bytes] = (),
    owner: Owner = None,
    source_date_epoch: int | None = None,
    label: str | bytes = "",
    features: str | None = None,
    fs_type: Literal["ext2", "ext3", "ext4"] = "ext4",
    block_size: int | None = None,
    uuid: uuids.UUID | str | None = None,
    reserved_percent: float | None = None,
    replace: bool = False,
    progress: Progress = None,
) -> BuildReport:
    """Makes an image that holds the sources: directories, tar archives, container images. Later ones win.

    A source is the path of a directory or an archive (plain, gzip, zstd, xz, bzip2), or `oci:DIR[:TAG]`,
    `oci-archive:FILE[:TAG]`, `docker-archive:FILE[:TAG]`. `size` is `"min"`, bytes or `"2G"`; a tenth more
    than the smallest if not given. `free` leaves this much free instead. `exclude` has patterns as in
    `.gitignore`, or is a single one. `owner`, `(uid, gid)` or `"uid:gid"`, gets everything.

    With `source_date_epoch`, or `SOURCE_DATE_EPOCH` in the environment, the same sources give the same
    bytes: those that `hectare build` makes.

    `progress` is called at the beginning and then about ten times a second, in the thread that called, with
    the name of the step, how much of it is done, and how much there is, or None. The names are stable:
    `"begin"`, then `"sources"` (names, when all are read) and `"data"` (bytes) of `build`, `"discard"` (bytes) and
    `"structures"` (chunks of groups) of `mkfs`, `"inodes"` (groups), `"directories"` (directories) and
    `"bitmaps"` (groups) of `check`. Short steps may not be seen, and there may be more names later.

    What `progress` raises, and Ctrl-C, ends the call, and is raised by it: there is no new image then, or, if
    it came too late for that, a whole one.

    Raises `FileNotFoundError` if a source is missing, `FileExistsError` if the image exists and `replace`
    is false, and `OSError` if a source is damaged or the size too small (`EINVAL`; the text has one that is
    enough).
    """
    listed = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
    paths = [os.fspath(source) for source in listed]
    for path in paths:
        if not path.startswith(_CONTAINERS):
            os.stat(path)  # the error that everyone knows
    if not paths:
        raise ValueError("there are no sources")
    if source_date_epoch is None:
        source_date_epoch = _native.source_date_epoch()
    patterns = [exclude] if isinstance(exclude, (str, bytes)) else exclude
    content = {
        "sources": paths,
        "exclude": [encode(pattern) for pattern in patterns],
        "owner": _owner(owner),
        "source_date_epoch": source_date_epoch,
        "size": _size(size, free),
    }
    wanted = _wanted(fs_type, label, uuid, block_size, features, reserved_percent, None, replace)
    _refuse_existing(image, replace)
    made, left, totals, warnings = _native.build(os.fspath(image), content, wanted, progress)
    return BuildReport(made, left, *totals, warnings)


def check(image: HostPath, *, progress: Progress = None) -> CheckReport:
    """Whether the volume in a file is sound, as `e2fsck -fn` judges. Nothing is written.

    A broken volume is no error: the report has its problems, and `CheckReport.clean` says whether there are
    none. What could not be judged is named in `CheckReport.unchecked`; it is no problem, so look at both.
    Raises `OSError` if the file can't be read, another process has it open for writing with Hectare, or it
    holds no volume that can be checked. While the kernel has it mounted, the report is of what is on the disk at
    that moment, and has a problem: the journal must be replayed.
    `progress` and Ctrl-C are as for `build`.
    """
    problems, count, notes, unchecked, counts = _native.check(os.fspath(image), progress)
    return CheckReport(
        [Problem(*found) for found in problems],
        count,
        [Problem(*found) for found in notes],
        unchecked,
        CheckCounts(*counts),
    )


def freefrag(image: HostPath) -> FreeSpace:
    """How the free space of the volume in a file is divided; see `Volume.freefrag`."""
    with open(image) as volume:
        return volume.freefrag()


def _refuse_existing(image: HostPath, replace: bool) -> None:
    """Fails early; the native half makes the file only if there is none, whatever happens meanwhile."""
    if not replace and os.path.lexists(image):
        import errno

        raise FileExistsError(errno.EEXIST, "the image exists; replace=True overwrites it", os.fspath(image))


def _size(size: int | str | None, free: int | str | None) -> tuple[str, int]:
    if free is not None:
        if size is not None:
            raise ValueError("size or free is given, not both")
        return "free", _bytes(free)
    if size is None:
        return "ample", 0
    return ("min", 0) if size == "min" else ("exactly", _bytes(size))


def _bytes(size: int | str) -> int:
    size = _native.parse_size(size) if isinstance(size, str) else size
    if size < 0:
        raise ValueError("a size is not negative")
    return size


def _owner(owner: Owner) -> tuple[int, int] | None:
    if isinstance(owner, str):
        uid, colon, gid = owner.partition(":")
        if not (colon and uid.isdecimal() and gid.isdecimal()):
            raise ValueError(f"owner {owner!r}: UID:GID is meant")
        return int(uid), int(gid)
    return owner


def _wanted(
    fs_type: str,
    label: str | bytes,
    uuid: uuids.UUID | str | None,
    block_size: int | None,
    features: str | None,
    reserved_percent: float | None,
    root_owner: tuple[int, int] | None,
    replace: bool,
) -> Mapping[str, object]:
    if isinstance(uuid, str):
        uuid = uuids.UUID(uuid)
    return {
        "fs_type": fs_type,
        "label": encode(label),
        "uuid": None if uuid is None else uuid.bytes,
        "block_size": block_size,
        "features": features,
        "reserved_percent": reserved_percent,
        "root_owner": root_owner,
        "replace": replace,
    }
