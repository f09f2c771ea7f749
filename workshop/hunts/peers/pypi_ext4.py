"""Lists an image by PyPI's `ext4`: pypi_ext4.py IMAGE."""

import stat
import sys

import ext4

from listing import digest, entry, error, walk


def children(node):
    for found, _ in node.opendir():
        name = found.name_bytes if isinstance(found.name_bytes, bytes) else bytes(found.name_bytes)
        try:
            yield name, node.volume.inodes[found.inode]
        except Exception as reason:
            error(name, reason)


def describe(path, node):
    mode, held = int(node.i_mode), "-"
    size = int(node.i_size)
    if stat.S_ISREG(mode):
        held = digest(node.open(), size)
    elif stat.S_ISLNK(mode):
        held = bytes(node.readlink()).hex()
    extra = int(getattr(node, "i_mtime_extra", 0))
    seconds = int(node.i_mtime)
    seconds = (seconds - (1 << 32) if seconds >= 1 << 31 else seconds) + ((extra & 3) << 32)
    mtime = seconds * 10**9 + (extra >> 2)
    attributes = [(name.encode("utf-8", "surrogateescape"), bytes(value)) for name, value in node.xattrs]
    uid, gid, links = int(node.i_uid), int(node.i_gid), int(node.i_links_count)
    entry(path, mode, uid, gid, size, links, mtime, held, attributes)
    return stat.S_ISDIR(mode)


with open(sys.argv[1], "rb") as file:
    walk(ext4.Volume(file).root, children, describe)
