"""Names: `str` outside, bytes inside.

A name in ext4 is bytes, mostly UTF-8. What is not comes as lone surrogates, and goes back as the bytes that
it was, whatever the locale.
"""

from __future__ import annotations

import errno
import os
from typing import Union

# What is wrong with a directory that has more than one; the system has no link to a directory.
SEVERAL_NAMES = "the directory has several names: the volume is damaged"
StrPath = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


def encode(name: str | bytes) -> bytes:
    """The bytes of a name."""
    return name if isinstance(name, bytes) else name.encode("utf-8", "surrogateescape")


def decode(name: bytes) -> str:
    """The `str` of a name."""
    return name.decode("utf-8", "surrogateescape")


def path_bytes(path: StrPath) -> bytes:
    """The bytes of a path in a volume.

    Raises `TypeError` for what is no path, `ValueError` for one with NUL, `FileNotFoundError` for an empty
    one.
    """
    path = encode(os.fspath(path))
    if b"\0" in path:
        raise ValueError("embedded null byte in a path")
    if not path:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "")
    return path
