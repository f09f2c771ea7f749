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
SEEDS = range(20)
STEPS = 250


class Host:
    """The calls, on a directory of the host."""

    def __init__(self, root):
        self.root = root

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


class Inside:
    """The same calls, on a volume."""

    def __init__(self, volume):
        self.volume = volume

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


def step(rng):
    """A random operation: its name for messages, and what it does on a side."""
    a, b = rng.choice(PATHS), rng.choice(PATHS)
    data = rng.randbytes(rng.choice([0, 1, 50, 4096, 20_000]))
    text = "line %d \u00e9\u4e2d\n" % rng.randrange(99) * rng.randrange(40)
    size, mode, target = rng.randrange(60_000), rng.randrange(0o1000), rng.choice(TARGETS)
    times = (rng.randrange(10**18), rng.randrange(2 * 10**18))
    exist_ok = rng.random() < 0.5
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
    ]
    return rng.choice(steps)


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
            for number in range(STEPS):
                name, run = step(rng)
                expected, found = outcome(run, host), outcome(run, inside)
                assert found == expected, f"seed {seed}, step {number}: {name}"
            everything = sorted((top, sorted(d), sorted(f)) for top, d, f in host.walk(""))
            assert sorted((top, sorted(d), sorted(f)) for top, d, f in inside.walk("/")) == everything
    finally:
        os.umask(umask)
    e2fsck_clean(image)
