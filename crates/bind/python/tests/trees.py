"""What the tests of copies of trees share: what is in a tree, and volumes that lie."""

import os
import stat

TIME = 1_234_567_890_123_456_789


def shown(root, owners=False):
    """What is in a directory of the host, with what a copy keeps."""
    root = os.fsencode(root)
    found, first = {}, {}
    for top, directories, files in os.walk(root):
        for name in [b".", *directories, *files]:
            path = os.path.join(top, name)
            own = os.lstat(path)
            if stat.S_ISFIFO(own.st_mode):
                continue
            mode = own.st_mode if owners else own.st_mode & ~0o6000
            content = links = None
            if stat.S_ISREG(own.st_mode):
                with open(path, "rb") as file:
                    content = file.read()
                links = first.setdefault(own.st_ino, os.path.relpath(path, root))
            elif stat.S_ISLNK(own.st_mode):
                content = os.readlink(path)
            owner = (own.st_uid, own.st_gid) if owners else None
            found[os.path.relpath(path, root)] = (mode, own.st_mtime_ns, content, links, owner)
    return found


def accesses(root):
    """When what is in a directory of the host was read, found without reading it."""
    found = {b".": os.lstat(root).st_atime_ns}
    below = [os.fsencode(root)]
    while below:
        top = below.pop()
        fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_NOATIME)
        for name in map(os.fsencode, os.listdir(fd)):
            path = os.path.join(top, name)
            own = os.lstat(path)
            if not stat.S_ISFIFO(own.st_mode):
                found[os.path.relpath(path, os.fsencode(root))] = own.st_atime_ns
            if stat.S_ISDIR(own.st_mode):
                below.append(path)
        os.close(fd)
    return found


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def reasons(failed):
    """The list of a `shutil.Error`: the end of each source, and the reason."""
    return {(source.rsplit("/", 1)[-1], reason) for source, _target, reason in failed.value.args[0]}


def patched(image, old, new):
    """Replaces all that is in an image by what is as long."""
    assert len(old) == len(new)
    content = image.read_bytes()
    assert old in content
    image.write_bytes(content.replace(old, new))


class Hostile:
    """A volume whose directories hold what the library would not let through."""

    def __init__(self, native, outside):
        self.native = native
        there = str(outside).encode()
        self.names = [b"..", b"../../esc", there + b"/new", b".", b"", b"l", b"l", b"d", b"d", b"d"]
        self.turn = 0

    def __getattr__(self, name):
        return getattr(self.native, name)

    def entries(self, path):
        return [(name, "-", 12) for name in self.names] if path == b"/top" else self.native.entries(path)

    def stat(self, path, follow):
        # A link at first, a directory when it is asked again, a file at last.
        if path == b"/top/d":
            self.turn += 1
            path = [b"/link", b"/folder", b"/file"][self.turn % 3]
        return self.native.stat(path, follow)
