"""Lists an image by PyPI's `dissect.extfs`: dissect_extfs.py IMAGE."""

import stat
import sys

from dissect.extfs import ExtFS

from listing import digest, entry, walk


def children(node):
    for child in node.iterdir():
        yield child.filename.encode("utf-8", "surrogateescape"), child


def describe(path, node):
    found = node.inode
    mode, held, size = int(found.i_mode), "-", int(node.size)
    if stat.S_ISREG(mode):
        held = digest(node.open(), size)
    elif stat.S_ISLNK(mode):
        held = node.link.encode("utf-8", "surrogateescape").hex()
    uid = int(found.i_uid) | int(getattr(found, "i_uid_high", 0)) << 16
    gid = int(found.i_gid) | int(getattr(found, "i_gid_high", 0)) << 16
    attributes = [(one.name.encode("utf-8", "surrogateescape"), bytes(one.value)) for one in node.xattr]
    entry(path, mode, uid, gid, size, int(found.i_links_count), int(node.mtime_ns), held, attributes)
    return stat.S_ISDIR(mode)


with open(sys.argv[1], "rb") as file:
    walk(ExtFS(file).root, children, describe)
