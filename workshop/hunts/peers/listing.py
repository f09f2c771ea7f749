"""What the adapters of `cargo hunt peers` in Python share: the walk, and the form of its lines.

A line is an entry: path (hexadecimal), kind, mode, uid, gid, size, links, mtime in nanoseconds, what it
holds (digest of the content, target of a link), attributes; `?` is what the peer can't say. A line that begins
with `!` is an error: the path, and the text; with `!!`, a panic. The last line is a dot: without it the
program did not come to its end.
"""

import hashlib
import stat
import sys

CHUNK = 65536
ZEROS = bytes(CHUNK)
KINDS = {
    stat.S_IFREG: "f",
    stat.S_IFDIR: "d",
    stat.S_IFLNK: "l",
    stat.S_IFIFO: "p",
    stat.S_IFSOCK: "s",
    stat.S_IFCHR: "c",
    stat.S_IFBLK: "b",
}


def digest(file, size):
    """The digest of `hectare_oracle::Content`: of each chunk that is not all zeros, its number before it."""
    summed, number, read = hashlib.sha256(), 0, 0
    while True:
        chunk = b""
        while len(chunk) < CHUNK:
            part = file.read(CHUNK - len(chunk))
            if not part:
                break
            chunk += part
        read += len(chunk)
        if not chunk:
            break
        if chunk != ZEROS[: len(chunk)]:
            summed.update(number.to_bytes(8, "little"))
            summed.update(chunk.ljust(CHUNK, b"\0"))
        number += 1
    if read != size:
        raise ValueError(f"{read} bytes of {size} were read")
    summed.update(b"\xff" * 8)
    summed.update(size.to_bytes(8, "little"))
    return summed.hexdigest()


def error(path, reason):
    text = f"{type(reason).__name__}: {reason}".replace("\n", " ").replace("\t", " ")
    sys.stdout.write(f"!\t{path.hex()}\t{text.encode('ascii', 'backslashreplace').decode()}\n")


def entry(path, mode, uid, gid, size, links, mtime, held, attributes):
    kind = KINDS.get(stat.S_IFMT(mode), "?")
    named = ",".join(sorted(f"{name.hex()}={value.hex()}" for name, value in attributes))
    fields = [path.hex(), kind, f"{stat.S_IMODE(mode):o}", uid, gid, size, links, mtime, held, named or "-"]
    sys.stdout.write("\t".join(map(str, fields)) + "\n")


def walk(root, children, describe):
    """Walks from `root`: `children(node)` gives names and nodes, `describe(path, node)` prints a line and
    returns whether the node is a directory. Errors are printed, and the walk goes on."""
    todo, seen = [(b"", root, ())], 0
    while todo:
        path, node, above = todo.pop()
        seen += 1
        if seen > 200_000 or len(above) > 300:
            error(path, RuntimeError("the tree does not end"))
            break
        try:
            if not describe(path, node):
                continue
            for name, child in children(node):
                if name not in (b".", b".."):
                    todo.append((path + b"/" + name if path else name, child, (*above, name)))
        except Exception as reason:
            error(path, reason)
    sys.stdout.write(".\n")
