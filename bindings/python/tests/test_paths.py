"""Paths of a volume, beside `pathlib`."""

import pathlib

import pytest


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
