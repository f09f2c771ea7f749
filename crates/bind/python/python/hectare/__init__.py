"""Volumes of ext2, ext3 and ext4 in image files: read, write, make, check and build them without mounting.

    import hectare

    hectare.mkfs("disk.img", "64M", label="data")
    with hectare.open("disk.img", "rw") as volume:
        volume.makedirs("/etc/app")
        volume.write_text("/etc/hostname", "box\\n")
        for entry in volume.path("/etc").iterdir():
            print(entry, entry.stat().st_size)
    assert hectare.check("disk.img").clean
    hectare.build(["rootfs/"], "rootfs.img", size="min")

Paths are those of the volume: separated by slashes, from its root (with or without a slash in front), as
`str`, `bytes` or `pathlib.PurePosixPath`. Names that are not UTF-8 come as surrogate escapes, as in `os`.
Symbolic links are followed inside the volume only. No permissions are checked.

Errors are `OSError` with `errno` and `filename`, so `FileNotFoundError` and its like are raised where `os`
raises them; `docs/python.md` has a table of the others. What is closed raises `ValueError`. The interpreter's
lock is released in every call that reads or writes.
"""

from ._files import VolumeFile
from ._make import build, check, freefrag, mkfs, open
from ._paths import VolumePath
from ._reports import (
    BuildReport,
    CheckCounts,
    CheckReport,
    CopyReport,
    Extent,
    FreeBucket,
    FreeSpace,
    Problem,
    Space,
)
from ._volume import DirEntry, Volume

__all__ = [
    "BuildReport",
    "CheckCounts",
    "CheckReport",
    "CopyReport",
    "DirEntry",
    "Extent",
    "FreeBucket",
    "FreeSpace",
    "Problem",
    "Space",
    "Volume",
    "VolumeFile",
    "VolumePath",
    "build",
    "check",
    "freefrag",
    "mkfs",
    "open",
]
