"""Paths of a volume, beside `pathlib`."""

import errno
import itertools
import os
import pathlib

import pytest

import hectare


@pytest.fixture
def both(volume, tmp_path):
    """The same tree in a volume and in a directory of the host."""
    host = tmp_path / "host"
    host.mkdir()
    volume.rmdir("lost+found")
    for root in (host, volume.path("/")):
        (root / "a" / "b" / "c").mkdir(parents=True)
        (root / "a" / "x.txt").write_text("x")
        (root / "a" / "b" / "y.txt").write_text("y")
        (root / "a" / "b" / ".hidden").write_text("")
        (root / "a" / "b" / "c" / "z.tar.gz").write_bytes(b"z")
        (root / "to_b").symlink_to("a/b")
        (root / "broken").symlink_to("nowhere")
    return volume.path("/"), host


@pytest.mark.parametrize(
    "pattern",
    ["*", "*.txt", "a/*", "*/*", "**/*.txt", "**/y*", "a/**/z*", "a/b/[xy].txt", "to_b/*", "none/*", "a/b"],
)
def test_globs_are_those_of_pathlib(both, pattern):
    inside, host = both
    expected = sorted(str(path.relative_to(host)) for path in host.glob(pattern))
    assert sorted(str(path.relative_to("/")) for path in inside.glob(pattern)) == expected


def test_rglob_walk_and_iterdir(both):
    inside, host = both
    assert sorted(str(path) for path in inside.rglob("*.txt")) == ["/a/b/y.txt", "/a/x.txt"]
    assert sorted(path.name for path in inside.iterdir()) == sorted(path.name for path in host.iterdir())
    assert [str(top) for top, _, _ in (inside / "a").walk()] == ["/a", "/a/b", "/a/b/c"]
    with pytest.raises(ValueError):
        list(inside.glob("/a"))


def test_parts_are_those_of_pathlib(volume):
    path, pure = volume.path("a/b/z.tar.gz"), pathlib.PurePosixPath("/a/b/z.tar.gz")
    for name in ["name", "stem", "suffix", "suffixes", "parts"]:
        assert getattr(path, name) == getattr(pure, name)
    assert str(path.parent) == "/a/b" and [str(above) for above in path.parents] == ["/a/b", "/a", "/"]
    assert str(path.with_suffix(".x")) == "/a/b/z.tar.x" and str(path.with_name("n")) == "/a/b/n"
    assert path / "/q" == volume.path("/q") and path.parent / "z.tar.gz" == path
    assert path.relative_to("/a") == pathlib.PurePosixPath("b/z.tar.gz") and path.is_relative_to("/a")
    assert path.match("*.gz") and len({path, volume.path(b"/a/b/z.tar.gz")}) == 1
    assert "disk.img" in repr(path) and volume.path("/").parent == volume.path("/")


def test_files_are_made_changed_and_removed(volume):
    etc = volume.path("/etc")
    etc.mkdir()
    etc.mkdir(exist_ok=True)
    with pytest.raises(FileExistsError):
        etc.mkdir()
    file = etc / "fstab"
    assert not file.exists()
    file.write_text("none\n")
    assert file.is_file() and not file.is_dir() and file.read_text() == "none\n"
    with file.open("ab") as out:
        out.write(b"more\n")
    assert file.read_bytes() == b"none\nmore\n" and file.stat().st_size == 10
    other = file.rename(etc / "fstab.old")
    assert str(other) == "/etc/fstab.old" and not file.exists()
    file.hardlink_to(other)
    link = etc / "link"
    link.symlink_to("fstab")
    assert link.is_symlink() and str(link.readlink()) == "fstab" and link.samefile(other)
    assert link.resolve() == file and (etc / "none/x").resolve() == etc / "none/x"
    file.chmod(0o600)
    assert other.stat().st_mode & 0o777 == 0o600
    other.unlink()
    other.unlink(missing_ok=True)
    with pytest.raises(FileNotFoundError):
        other.unlink()
    assert link.read_text() == "none\nmore\n"
    (etc / "empty").touch()
    assert (etc / "empty").read_bytes() == b""


STEPS = [
    lambda at: (at / "new").touch(),
    lambda at: (at / "new").touch(exist_ok=False),
    lambda at: (at / "a").touch(),
    lambda at: (at / "none/new").touch(),
    lambda at: (at / "new").mkdir(),
    lambda at: (at / "p/q/r").mkdir(),
    lambda at: (at / "p/q/r").mkdir(parents=True),
    lambda at: (at / "p/q/r").mkdir(parents=True),
    lambda at: (at / "p/q/r").mkdir(parents=True, exist_ok=True),
    lambda at: (at / "a/x.txt").mkdir(parents=True, exist_ok=True),
    lambda at: (at / "a/x.txt/below").mkdir(parents=True),
    lambda at: (at / "to_b").mkdir(exist_ok=True),
    lambda at: (at / "broken").mkdir(exist_ok=True),
    lambda at: (at / "a").rmdir(),
    lambda at: (at / "to_b").rmdir(),
    lambda at: (at / "p/q/r").rmdir(),
    lambda at: (at / "a").unlink(),
    lambda at: (at / "none").unlink(missing_ok=True),
    lambda at: (at / "a/x.txt/below").unlink(missing_ok=True),
    lambda at: (at / "a/x.txt").write_text("one\ntwo\n"),
    lambda at: (at / "a/x.txt").write_text("one\n", newline="\r\n"),
    lambda at: (at / "a/x.txt").read_bytes(),
    lambda at: (at / "a/x.txt").read_text(),
    lambda at: (at / "a/x.txt").write_text(b"bytes"),
    lambda at: (at / "a").read_text(),
    lambda at: (at / "broken").exists(),
    lambda at: (at / "broken").is_symlink(),
    lambda at: (at / "to_b").is_dir(),
    lambda at: (at / "to_b/y.txt").is_file(),
    lambda at: (at / "a/x.txt/below").exists(),
    lambda at: (at / "a/x.txt/below").is_file(),
    lambda at: (at / "a/x.txt/below").stat(),
    lambda at: (at / "to_b").readlink().as_posix(),
    lambda at: (at / "a").readlink(),
    lambda at: (at / "to_b").resolve().relative_to(at.resolve()).as_posix(),
    lambda at: (at / "to_b/../x.txt").resolve(strict=True).relative_to(at.resolve()).as_posix(),
    lambda at: (at / "none/x").resolve(strict=True),
    lambda at: (at / "a").samefile(at / "to_b/.."),
    lambda at: (at / "a/x.txt").hardlink_to(at / "none"),
    lambda at: (at / "hard").hardlink_to(at / "a/x.txt"),
    lambda at: (at / "hard").stat().st_nlink,
    lambda at: (at / "hard").symlink_to("a"),
    lambda at: (at / "hard").rename(at / "a").name,
    lambda at: (at / "hard").rename(at / "moved").name,
    lambda at: (at / "none").rename(at / "moved"),
    lambda at: (at / "a").replace(at / "moved"),
    lambda at: (at / "a/b").replace(at / "a/b/c/d"),
    lambda at: (at / "moved").replace(at / "a/x.txt").name,
    lambda at: (at / "moved").exists(),
    lambda at: (at / "a/x.txt").chmod(0o4711),
    lambda at: oct((at / "a/x.txt").stat().st_mode),
    lambda at: (at / "none").chmod(0o600),
    lambda at: sorted(path.name for path in (at / "a").iterdir()),
    lambda at: [path.name for path in (at / "a/x.txt").iterdir()],
    lambda at: (at / "a/x.txt").relative_to(at / "to_b"),
    lambda at: (at / "a").relative_to("a"),
    lambda at: (at / "a").is_relative_to("a"),
    lambda at: (at / "a").with_name(""),
    lambda at: (at / "a").with_name("x/y"),
    lambda at: (at / "a").with_suffix("x"),
    lambda at: (at / "a").open("rw"),
    lambda at: (at / "a/x.txt").open("x"),
    lambda at: list(at.glob("")),
    lambda at: (at / "n\0l").touch(),
]


def test_steps_beside_pathlib(both):
    """What `pathlib` returns or raises for the same calls, one after another."""

    def outcome(step, root):
        try:
            return step(root)
        except OSError as error:
            return type(error), error.errno
        except Exception as error:
            return type(error)

    before = os.umask(0o022)
    try:
        for number, step in enumerate(STEPS):
            assert outcome(step, both[0]) == outcome(step, both[1]), f"step {number}"
    finally:
        os.umask(before)


def test_metadata_is_changed_as_by_os(volume):
    path = volume.path("/f")
    with path.open("w", permissions=0o600) as file:
        file.write("text")
    assert path.volume is volume and path.stat().st_mode & 0o777 == 0o600
    path.chown(7, 8)
    path.chown(-1, 9)
    assert (path.stat().st_uid, path.stat().st_gid) == (7, 9)
    path.utime(ns=(1, 2))
    assert (path.stat().st_atime_ns, path.stat().st_mtime_ns) == (1, 2)
    link = volume.path("/l")
    link.symlink_to("f", target_is_directory=False)
    link.chown(3, 4, follow_symlinks=False)
    link.utime((5, 6), follow_symlinks=False)
    assert (link.lstat().st_uid, link.lstat().st_mtime) == (3, 6) and path.stat().st_uid == 7
    path.setxattr("user.note", b"hello")
    assert path.getxattr("user.note") == b"hello" and link.listxattr() == ["user.note"]
    assert link.listxattr(follow_symlinks=False) == []
    with pytest.raises(FileExistsError):
        path.setxattr("user.note", b"x", os.XATTR_CREATE)
    path.removexattr("user.note")
    with pytest.raises(OSError) as failed:
        path.getxattr("user.note")
    assert failed.value.errno == errno.ENODATA
    assert link.is_file() and not link.is_file(follow_symlinks=False)
    assert not link.is_dir(follow_symlinks=False) and volume.path("/").is_dir(follow_symlinks=False)
    assert bytes(volume.path(b"/caf\xe9")) == b"/caf\xe9" and path <= path and not path < path


def test_replacing_and_removing(volume):
    for name in ("old", "new"):
        (volume.path("/") / name).write_text(name)
    made = volume.path("/new").replace("/old")
    assert made == volume.path("/old") and made.read_text() == "new" and not volume.exists("/new")
    (volume.path("/tree") / "a/b").mkdir(parents=True)
    (volume.path("/tree/a") / "f").write_text("x")
    volume.path("/tree").rmtree()
    assert not volume.exists("/tree")
    volume.path("/tree").rmtree(ignore_errors=True)
    for wrong in ("/tree", "/old"):
        with pytest.raises(OSError):
            volume.path(wrong).rmtree()


def test_files_and_trees_are_copied(volume):
    top = volume.path("/top")
    (top / "sub").mkdir(parents=True)
    (top / "sub/run").write_text("run")
    (top / "sub/run").chmod(0o700)
    (top / "sub/run").setxattr("user.note", b"n")
    (top / "to_sub").symlink_to("sub")
    for path in (top / "sub/run", top / "sub", top / "to_sub", top):
        path.utime(ns=(1, 2), follow_symlinks=False)
    copied = (top / "sub/run").copy("/run")
    assert copied.read_text() == "run" and copied.stat().st_mode & 0o777 == 0o700
    assert copied.stat().st_mtime_ns != 2 and copied.listxattr() == []
    (top / "sub/run").copy(copied, preserve_metadata=True)
    assert copied.stat().st_mtime_ns == 2 and copied.getxattr("user.note") == b"n"
    # With links followed, and with links copied.
    other = top.copy("/other")
    assert not (other / "to_sub").is_symlink() and (other / "to_sub/run").read_text() == "run"
    same = top.copy("/same", follow_symlinks=False, preserve_metadata=True)
    assert (same / "to_sub").readlink() == pathlib.PurePosixPath("sub")
    for name in ("", "sub", "sub/run", "to_sub"):
        assert (same / name).lstat().st_mtime_ns == 2, name
    with pytest.raises(FileExistsError):
        top.copy("/same")
    for source, target in [(top, top), (top, top / "sub/into"), (top / "sub/run", top / "sub/run")]:
        with pytest.raises(OSError) as failed:
            source.copy(target)
        assert failed.value.errno == errno.EINVAL and failed.value.filename2 == str(target)
    (top / "sub/up").symlink_to("..")
    with pytest.raises(OSError) as failed:
        top.copy("/endless")
    assert failed.value.errno == errno.ELOOP
    with pytest.raises(FileNotFoundError):
        volume.path("/none").copy("/x")
    (top / "alone").symlink_to("/nowhere")
    assert (top / "alone").copy("/alone", follow_symlinks=False).is_symlink()


@pytest.fixture
def endless(tmp_path):
    """A volume with a directory that lies in itself: `/d/below/loop` is `/d`."""
    image = tmp_path / "endless.img"
    hectare.mkfs(image, "8M", features="^metadata_csum,^has_journal,^dir_index")
    with hectare.open(image, "rw") as volume:
        volume.makedirs("/d/below/loop")
        volume.write_text("/d/below/file", "text")
        loop, top = (volume.stat(path).st_ino.to_bytes(4, "little") for path in ("/d/below/loop", "/d"))
    content = image.read_bytes()
    entry = content.index(b"\x04\x02loop") - 6
    assert content[entry : entry + 4] == loop
    image.write_bytes(content[:entry] + top + content[entry + 4 :])
    with hectare.open(image) as volume:
        yield volume


def test_walks_of_a_directory_that_lies_in_itself_end(endless):
    for topdown in (True, False):
        seen = []
        walked = endless.walk("/d", topdown, seen.append)
        found = sorted((top, sorted(names)) for top, _, names in at_most(walked, 10))
        assert found == [("/d", []), ("/d/below", ["file"])]
        assert [(error.errno, error.filename) for error in seen] == [(errno.ELOOP, "/d/below/loop")]
    with pytest.raises(OSError) as failed:
        at_most(endless.path("/d").rglob("*"), 10)
    assert (failed.value.errno, failed.value.filename) == (errno.ELOOP, "/d/below/loop")


def at_most(found, limit):
    """What an iterator has, up to a number."""
    return list(itertools.islice(found, limit))


def test_regression_globs_give_what_is_there_and_what_a_slash_asks_for(volume):
    volume.write_bytes("/f", b"x")
    assert list(volume.path("/nope").glob("**")) == [] == list(volume.path("/nope").rglob("**"))
    assert [str(path) for path in volume.path("/").glob("*/")] == ["/lost+found"]
    assert [str(path) for path in volume.path("/").glob("f/")] == []
