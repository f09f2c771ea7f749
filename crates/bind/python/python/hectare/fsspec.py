"""Volumes for fsspec, and so for pandas, pyarrow, dask and others: protocol `ext4`.

    fsspec.open("ext4://etc/fstab", image="disk.img")
    fsspec.open("ext4:///etc/fstab::disk.img")
    fsspec.filesystem("ext4", fo="disk.img")
    pandas.read_csv("ext4://data/a.csv", storage_options={"image": "disk.img"})
    frame.to_parquet("ext4://data/a.parquet", storage_options={"image": "disk.img", "writable": True})

The image is open, and locked, while a file of it is open or an operation runs; in between, other programs
may have it, and what they change is seen: nothing of the volume is remembered. `with filesystem:` keeps it
open, which is faster for many small operations. For writing, `writable=True` is needed; a file that was
closed is durable then. Without it, changes raise `OSError` with `EROFS`.

Paths in results have no protocol and begin with a slash: `/etc/fstab`. Those that are given may have either.
fsspec gives the same filesystem for the same arguments in a thread; one of an open `Volume` is always new.

`get` and `put` copy content alone: modes, times, owners, hard links and holes are lost, and a symbolic link
becomes what it leads to, or an empty directory if that is one. In lists, and so for `walk`, `find`, `du` and
`glob`, a link to a directory is of the type `link`: it is not entered. `Volume.copy_out` and `Volume.copy_in` keep them.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat as modes
import threading
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any, Iterator, cast

from fsspec import open as open_url
from fsspec.spec import AbstractFileSystem
from fsspec.utils import stringify_path

from ._files import VolumeFile
from ._make import open as open_volume
from ._volume import Volume

_KINDS = {modes.S_IFREG: "file", modes.S_IFDIR: "directory", modes.S_IFLNK: "link"}


class _Cached(type(AbstractFileSystem)):  # type: ignore[misc]
    """fsspec's cache of filesystems, by the text of the arguments: two volumes of one image have the same."""

    def __call__(cls, *args: Any, **options: Any) -> Any:
        if any(isinstance(one, Volume) for one in (*args, *options.values())):
            options["skip_instance_cache"] = True
        return super().__call__(*args, **options)


class Ext4FileSystem(AbstractFileSystem, metaclass=_Cached):
    """The files of a volume. Paths are from its root.

    `fo` or `image` is the image: a path, or an open `hectare.Volume`, which stays open. Behind `::` in a
    URL it may be elsewhere if what is there gives a local file, as `simplecache::` does.
    """

    protocol = "ext4"
    root_marker = "/"

    def __init__(
        self,
        fo: Any = None,
        image: Any = None,
        writable: bool = False,
        owner: tuple[int, int] = (0, 0),
        target_protocol: str | None = None,
        target_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        if (fo is None) == (image is None):
            raise ValueError("give the image once: fo=..., image=..., or ext4://PATH::IMAGE")
        super().__init__(fo, image, writable, owner, target_protocol, target_options, **options)
        self._image = image if fo is None else fo
        self._target = (target_protocol, target_options or {})
        self._writable = writable
        self._owner = tuple(owner)
        self._users = 0
        self._volume: Volume | None = None
        self._guard = threading.RLock()  # a file that is collected meanwhile closes itself here

    # The volume.

    def _acquire(self) -> Volume:
        with self._guard:
            if isinstance(self._image, Volume):
                return self._image
            if self._volume is None or self._volume.closed:
                mode = "rw" if self._writable else "r"
                self._volume = open_volume(self._local(), mode, owner=self._owner)  # type: ignore[arg-type]
                self._users = 0
            self._users += 1
            return self._volume

    def _release(self, volume: Volume) -> None:
        if volume is self._image:
            return
        with self._guard:
            if volume is not self._volume:
                return
            self._users -= 1
            if self._users == 0:
                self._volume = None
                volume.close()

    @contextmanager
    def _opened(self) -> Iterator[Volume]:
        volume = self._acquire()
        try:
            yield volume
        finally:
            self._release(volume)

    def _local(self) -> str:
        """The image as a file of this machine."""
        protocol, options = self._target
        if protocol in (None, "file", "local") and "://" not in str(self._image):
            return os.fspath(self._image)
        with open_url(self._image, "rb", protocol=protocol, **options) as file:
            name = getattr(file, "name", None)
        if isinstance(name, str) and os.path.exists(name):
            return name
        raise ValueError(f"{self._image}: the image is no local file; put simplecache:: before {protocol}://")

    def __enter__(self) -> Ext4FileSystem:
        self._acquire()
        return self

    def __exit__(self, *_: object) -> None:
        if self._volume is not None:
            self._release(self._volume)

    # Looking.

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = stringify_path(path)
        path = path.removeprefix("ext4://").removeprefix("ext4:")
        return "/" + "/".join(name for name in path.split("/") if name not in ("", "."))

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        with self._opened() as volume:
            return self._info(volume, self._strip_protocol(path))

    def _info(self, volume: Volume, path: str, listed: bool = False) -> dict[str, Any]:
        own = found = volume.lstat(path)
        more: dict[str, Any] = {}
        if modes.S_ISLNK(own.st_mode):
            more["destination"] = volume.readlink(path)
            try:
                found = volume.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                pass
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
            # fsspec walks into all directories that are listed, round and round where a link leads upwards.
            if listed and modes.S_ISDIR(found.st_mode):
                found = own
        return {
            "name": path,
            "size": found.st_size,
            "type": _KINDS.get(modes.S_IFMT(found.st_mode), "other"),
            "created": (volume.birthtime_ns(path, follow_symlinks=False) or own.st_ctime_ns) / 1e9,
            "islink": modes.S_ISLNK(own.st_mode),
            "mode": found.st_mode,
            "uid": found.st_uid,
            "gid": found.st_gid,
            "mtime": found.st_mtime,
            "ino": found.st_ino,
            "nlink": found.st_nlink,
            **more,
        }

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        path = self._strip_protocol(path)
        with self._opened() as volume:
            if not volume.isdir(path):
                infos = [self._info(volume, path)]
            else:
                base = path.rstrip("/")
                found = sorted(f"{base}/{name}" for name in volume.listdir(path))
                infos = [self._info(volume, one, listed=True) for one in found]
        return infos if detail else [info["name"] for info in infos]

    def exists(self, path: str, **_: Any) -> bool:
        with self._opened() as volume:
            return volume.exists(self._strip_protocol(path))

    def lexists(self, path: str, **_: Any) -> bool:
        with self._opened() as volume:
            return volume.lexists(self._strip_protocol(path))

    def isdir(self, path: str) -> bool:
        with self._opened() as volume:
            return volume.isdir(self._strip_protocol(path))

    def isfile(self, path: str) -> bool:
        with self._opened() as volume:
            return volume.isfile(self._strip_protocol(path))

    def created(self, path: str) -> datetime:
        return datetime.fromtimestamp(self.info(path)["created"], tz=timezone.utc)

    def modified(self, path: str) -> datetime:
        return datetime.fromtimestamp(self.info(path)["mtime"], tz=timezone.utc)

    def ukey(self, path: str) -> str:
        with self._opened() as volume:
            found = volume.stat(self._strip_protocol(path))
        return f"{found.st_ino}-{found.st_size}-{found.st_mtime_ns}-{found.st_ctime_ns}"

    # Content.

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: Any = None,
        autocommit: bool = True,
        cache_options: Any = None,
        **_: Any,
    ) -> Any:
        path = self._strip_protocol(path)
        if not autocommit:
            raise NotImplementedError("the ext4 filesystem of fsspec has no transactions")
        if mode != "rb":
            self._check_writable(path)
        volume = self._acquire()

        def closed() -> None:
            try:
                if mode != "rb" and not volume.closed:
                    volume.sync()
            finally:
                self._release(volume)

        buffering = block_size if isinstance(block_size, int) and block_size > 1 else -1
        try:
            file: Any = volume._open(path, mode, buffering, None, None, None, 0o644, closed)
        except BaseException:
            self._release(volume)
            raise
        if mode == "rb":
            file.size = file.seek(0, os.SEEK_END)  # as fsspec's own files have; for `read_block`
            file.seek(0)
        return file

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        with self._opened() as volume:
            path = self._strip_protocol(path)
            if start is None and end is None:
                return volume.read_bytes(path)
            with cast(VolumeFile, volume.open(path, "rb", 0)) as file:
                size = file.seek(0, os.SEEK_END)
                first, last, _step = slice(start, end).indices(size)
                return file.pread(max(last - first, 0), first)

    def touch(self, path: str, truncate: bool = True, **_: Any) -> None:
        with self._changed(path) as volume:
            path = self._strip_protocol(path)
            if truncate or not volume.exists(path):
                volume.write_bytes(path, b"")
            else:
                volume.utime(path)

    # Changes.

    @contextmanager
    def _changed(self, path: str) -> Iterator[Volume]:
        """The volume, for a change that is durable afterwards."""
        self._check_writable(path)
        with self._opened() as volume:
            yield volume
            volume.sync()

    def _check_writable(self, path: str) -> None:
        writable = self._image.writable if isinstance(self._image, Volume) else self._writable
        if not writable:
            raise OSError(errno.EROFS, "the image is open for reading only; give writable=True", path)

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        with self._changed(path) as volume:
            path = self._strip_protocol(path)
            if create_parents:
                volume.makedirs(path)
            else:
                volume.mkdir(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        with self._changed(path) as volume:
            volume.makedirs(self._strip_protocol(path), exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        with self._changed(path) as volume:
            volume.rmdir(self._strip_protocol(path))

    def rm_file(self, path: str) -> None:
        with self._changed(path) as volume:
            volume.remove(self._strip_protocol(path))

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        if maxdepth is not None:
            super().rm(path, recursive, maxdepth)
            return
        paths = path if isinstance(path, list) else [path]
        found = [one for path in paths for one in self.expand_path(path)]
        for one in found:
            with self._changed(one) as volume:
                if not modes.S_ISDIR(volume.lstat(one).st_mode):
                    volume.remove(one)
                elif recursive:
                    volume.rmtree(one)
                else:
                    raise IsADirectoryError(errno.EISDIR, "use recursive=True for directories", one)

    def mv(
        self, path1: str, path2: str, recursive: bool = False, maxdepth: int | None = None, **_: Any
    ) -> None:
        """Moves a file or directory: into `path2` if that is a directory; missing parents are made."""
        with self._changed(path1) as volume:
            source, target = self._strip_protocol(path1), self._strip_protocol(path2)
            if volume.isdir(target) and source != target:
                target = posixpath.join(target, posixpath.basename(source))
                if volume.lexists(target):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
            elif volume.lexists(source):
                volume.makedirs(posixpath.dirname(target), exist_ok=True)
            volume.rename(source, target)

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        with self._changed(path2) as volume:
            path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
            if volume.isdir(path1):
                volume.makedirs(path2, exist_ok=True)
            else:
                volume.copy(path1, path2)
