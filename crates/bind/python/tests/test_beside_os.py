"""The same random programs for a directory of the host and for a volume: results and errno are the same."""

import errno
import os
import random
import shutil
import stat

import pytest

import hectare
from conftest import e2fsck_clean

# Relative, so that they mean the same below the host's directory; no link leads out of it.
PATHS = ["a", "b", "d", "d/a", "d/b", "d/e", "d/e/f", "d/e/../a", "./a", "l", "d/l", "l/a", "a/x", "x/y/z"]
TARGETS = ["a", "d", "d/e", "./e/../a", "nowhere", "l"]
NAMES = ["user.a", "user.bb", "user.ccc", "nothing"]
# Ten thousand operations; a hundred thousand if asked for.
SEEDS = range(100 if os.environ.get("HECTARE_LONG") == "1" else 10)
STEPS = 1000


class Host:
    """The calls, on a directory of the host."""

    def __init__(self, root):
        self.root = root
        self.kept = {}

    def at(self, path):
        return os.path.join(self.root, path)

    def open(self, path, mode, **more):
        return open(self.at(path), mode, **more)

    def call(self, name, *paths):
        return getattr(os, name)(*map(self.at, paths))

    def symlink(self, target, path):
        os.symlink(target, self.at(path))

    def chmod(self, path, mode):
        os.chmod(self.at(path), mode)

    def truncate(self, path, size):
        os.truncate(self.at(path), size)

    def utime(self, path, ns):
        os.utime(self.at(path), ns=ns)

    def makedirs(self, path, exist_ok):
        os.makedirs(self.at(path), exist_ok=exist_ok)

    def rmtree(self, path):
        if os.path.islink(self.at(path)):
            raise NotADirectoryError(errno.ENOTDIR, "shutil raises an error without a number")
        shutil.rmtree(self.at(path))

    def realpath(self, path):
        return "/" + os.path.relpath(
            os.path.realpath(self.at(path), strict=True), os.path.realpath(self.root)
        )

    def walk(self, path):
        return [(os.path.relpath(top, self.root), *rest) for top, *rest in os.walk(self.at(path))]

    def setxattr(self, path, name, value, flags):
        os.setxattr(self.at(path), name, value, flags)

    def getxattr(self, path, name):
        return os.getxattr(self.at(path), name)

    def removexattr(self, path, name):
        os.removexattr(self.at(path), name)

    def pread(self, file, size, offset):
        return os.pread(file.fileno(), size, offset)

    def pwrite(self, file, data, offset):
        return os.pwrite(file.fileno(), data, offset)

    def fstat(self, file):
        return os.fstat(file.fileno())


class Inside:
    """The same calls, on a volume."""

    def __init__(self, volume):
        self.volume = volume
        self.kept = {}

    def open(self, path, mode, **more):
        return self.volume.open(path, mode, **more)

    def call(self, name, *paths):
        return getattr(self.volume, name)(*paths)

    def symlink(self, target, path):
        self.volume.symlink(target, path)

    def chmod(self, path, mode):
        self.volume.chmod(path, mode)

    def truncate(self, path, size):
        self.volume.truncate(path, size)

    def utime(self, path, ns):
        self.volume.utime(path, ns=ns)

    def makedirs(self, path, exist_ok):
        self.volume.makedirs(path, exist_ok=exist_ok)

    def rmtree(self, path):
        self.volume.rmtree(path)

    def realpath(self, path):
        return os.path.normpath(self.volume.realpath(path))

    def walk(self, path):
        return [(os.path.relpath("/" + top, "/"), *rest) for top, *rest in self.volume.walk(path)]

    def setxattr(self, path, name, value, flags):
        self.volume.setxattr(path, name, value, flags)

    def getxattr(self, path, name):
        return self.volume.getxattr(path, name)

    def removexattr(self, path, name):
        self.volume.removexattr(path, name)

    def pread(self, file, size, offset):
        return file.pread(size, offset)

    def pwrite(self, file, data, offset):
        return file.pwrite(data, offset)

    def fstat(self, file):
        return file.stat()


def shown(found):
    kind = stat.S_IFMT(found.st_mode)
    if stat.S_ISDIR(kind):
        return kind, stat.S_IMODE(found.st_mode)
    return kind, stat.S_IMODE(found.st_mode), found.st_size, found.st_nlink


def text_steps(side, path, rng_text):
    with side.open(path, "a+", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        file.write(rng_text)
        file.seek(0)
        return file.readlines()[-3:]


def edited(side, path, at, data):
    with side.open(path, "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(min(at, size))
        before = file.read(10)
        file.seek(min(at, size))
        file.write(data)
        file.flush()
        file.seek(0)
        return size, before, file.read()


def written(side, path, mode, data):
    with side.open(path, mode) as file:
        return file.write(data)


def read(side, path):
    with side.open(path, "rb") as file:
        return file.read(7), file.readline(), file.read()


def keep(side, slot, path, mode):
    """Opens a file, unbuffered, in place of the one that is kept by that number."""
    if slot in side.kept:
        side.kept.pop(slot).close()
    side.kept[slot] = side.open(path, mode, buffering=0)


def with_kept(side, slot, work):
    """Uses the file of a number, which may have been renamed or removed since; nothing if there is none."""
    return work(side.kept[slot]) if slot in side.kept else None


def allowed(file, reads):
    """Whether it was opened for that: `os` knows errno, `io` raises an exception of its own."""
    return file.readable() if reads else file.writable()


def step(rng, attributes):
    """A random operation: its name for messages, and what it does on a side."""
    a, b = rng.choice(PATHS), rng.choice(PATHS)
    data = rng.randbytes(rng.choice([0, 1, 50, 4096, 20_000]))
    text = "line %d \u00e9\u4e2d\n" % rng.randrange(99) * rng.randrange(40)
    size, mode, target = rng.randrange(60_000), rng.randrange(0o1000), rng.choice(TARGETS)
    times = (rng.randrange(10**18), rng.randrange(2 * 10**18))
    exist_ok = rng.random() < 0.5
    slot, mode_kept, name = rng.randrange(4), rng.choice(["rb", "r+b", "wb", "w+b", "xb"]), rng.choice(NAMES)
    value, how = rng.randbytes(rng.randrange(900)), rng.choice([0, 0, os.XATTR_CREATE, os.XATTR_REPLACE])

    def kept(reads, work):
        return lambda side: with_kept(side, slot, lambda file: allowed(file, reads) and work(side, file))

    steps = [
        (f"write {a}", lambda side: written(side, a, "wb", data)),
        (f"append {a}", lambda side: written(side, a, "ab", data)),
        (f"create {a}", lambda side: written(side, a, "xb", data)),
        (f"edit {a} {size}", lambda side: edited(side, a, size, data)),
        (f"text {a}", lambda side: text_steps(side, a, text)),
        (f"read {a}", lambda side: read(side, a)),
        (f"truncate {a} {size}", lambda side: side.truncate(a, size)),
        (f"mkdir {a}", lambda side: side.call("mkdir", a)),
        (f"makedirs {a}", lambda side: side.makedirs(a, exist_ok)),
        (f"remove {a}", lambda side: side.call("remove", a)),
        (f"rmdir {a}", lambda side: side.call("rmdir", a)),
        (f"rmtree {a}", lambda side: side.rmtree(a)),
        (f"rename {a} {b}", lambda side: side.call("rename", a, b)),
        (f"replace {a} {b}", lambda side: side.call("replace", a, b)),
        (f"link {a} {b}", lambda side: side.call("link", a, b)),
        (f"symlink {target} {a}", lambda side: side.symlink(target, a)),
        (f"readlink {a}", lambda side: side.call("readlink", a)),
        (f"realpath {a}", lambda side: (shown(side.call("stat", a)), side.realpath(a))),
        (f"chmod {a}", lambda side: side.chmod(a, mode)),
        (f"utime {a}", lambda side: side.utime(a, times)),
        (f"stat {a}", lambda side: shown(side.call("stat", a))),
        (f"mtime {a}", lambda side: side.call("stat", a).st_mtime_ns if times_set(side, a, times) else None),
        (f"lstat {a}", lambda side: shown(side.call("lstat", a))),
        (f"listdir {a}", lambda side: sorted(side.call("listdir", a))),
        (f"walk {a}", lambda side: sorted((top, sorted(d), sorted(f)) for top, d, f in side.walk(a))),
        (f"keep {slot} {a} {mode_kept}", lambda side: keep(side, slot, a, mode_kept)),
        (f"keep {slot} {b} r+b", lambda side: keep(side, slot, b, "r+b")),
        (f"pread {slot} {size}", kept(True, lambda side, file: side.pread(file, 3000, size))),
        (f"pwrite {slot} {size}", kept(False, lambda side, file: side.pwrite(file, data, size))),
        (f"kept truncate {slot} {size}", kept(False, lambda side, file: file.truncate(size))),
        (f"fstat {slot}", lambda side: with_kept(side, slot, lambda file: shown(side.fstat(file)))),
    ]
    if attributes:
        steps += [
            (f"setxattr {a} {name} {how}", lambda side: side.setxattr(a, name, value, how)),
            (f"getxattr {a} {name}", lambda side: side.getxattr(a, name)),
            (f"removexattr {a} {name}", lambda side: side.removexattr(a, name)),
        ]
    return rng.choice(steps)


def has_attributes(folder):
    """Whether the host's file system has attributes of users, as a volume does."""
    try:
        os.setxattr(folder, "user.test", b"x")
        os.removexattr(folder, "user.test")
    except OSError:
        return False
    return True


def times_set(side, path, times):
    side.utime(path, times)
    return True


def outcome(run, side):
    """What an operation gave; of an error, its errno."""
    try:
        return run(side)
    except OSError as error:
        return errno.errorcode.get(error.errno, error.errno)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_volume_behaves_like_a_directory_of_the_host(seed, image, tmp_path):
    umask = os.umask(0o022)
    try:
        host = Host(tmp_path / "host")
        os.mkdir(host.root)
        rng = random.Random(seed)
        with hectare.open(image, "rw") as volume:
            volume.rmdir("lost+found")
            inside = Inside(volume)
            attributes = has_attributes(host.root)
            for number in range(STEPS):
                name, run = step(rng, attributes)
                expected, found = outcome(run, host), outcome(run, inside)
                assert found == expected, f"seed {seed}, step {number}: {name}"
            for file in [*host.kept.values(), *inside.kept.values()]:
                file.close()
            everything = sorted((top, sorted(d), sorted(f)) for top, d, f in host.walk(""))
            assert sorted((top, sorted(d), sorted(f)) for top, d, f in inside.walk("/")) == everything
    finally:
        os.umask(umask)
    e2fsck_clean(image)
