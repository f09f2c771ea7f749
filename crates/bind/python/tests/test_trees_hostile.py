"""Copies of trees from images and beside programs that would break out of the target, or go on for ever."""

import os
import shutil
import types

import pytest

import hectare
from hectare._copy_out import CopyOut
from trees import Hostile, descriptors, patched, reasons


def test_an_image_can_t_lead_a_copy_out_of_its_target(tmp_path):
    image, outside = tmp_path / "disk.img", tmp_path / "outside"
    hectare.mkfs(image, "8M", features="^metadata_csum,^dir_index,^has_journal")
    with hectare.open(image, "rw") as volume:
        for directory, name in [("slashes", "NAMEAAAAA"), ("absolute", "NAMEBBBBB"), ("null", "NAMECCCCC")]:
            volume.makedirs(f"/top/{directory}")
            volume.write_text(f"/top/{directory}/{name}", "evil")
        volume.makedirs("/top/dots/NM")
        volume.write_text("/top/dots/NM/escaped", "evil")
        volume.write_text("/top/good", "good")
        # A link, and a directory of the same name behind it; and the other way round.
        for first, second in [("TWINA", "TWINB"), ("PAIRB", "PAIRA")]:
            volume.makedirs(f"/top/{first[:4]}")
            for name in (first, second):
                if name.endswith("A"):
                    volume.symlink(str(outside), f"/top/{name[:4]}/{name}")
                else:
                    volume.mkdir(f"/top/{name[:4]}/{name}")
                    volume.write_text(f"/top/{name[:4]}/{name}/victim", "evil")
    patched(image, b"NAMEAAAAA", b"../../esc")
    patched(image, b"NAMEBBBBB", b"/tmp/esca")
    patched(image, b"NAMECCCCC", b"a\0b\0c\0d\0e")
    patched(image, b"\x02\x02NM", b"\x02\x02..")
    for name in (b"TWIN", b"PAIR"):
        patched(image, name + b"A", name + b"X")
        patched(image, name + b"B", name + b"X")
    outside.mkdir()
    (outside / "victim").write_text("precious")
    with hectare.open(image) as volume:
        for overwrite in (False, True):
            out = tmp_path / f"in/{overwrite}/out"
            with pytest.raises(shutil.Error) as failed:
                volume.copy_out("/top", out, overwrite=overwrite)
            assert {"slashes", "absolute", "null"} <= {source for source, _ in reasons(failed)}
            assert (out / "good").read_text() == "good"
            assert os.listdir(out.parent) == ["out"] and not os.path.exists("/tmp/esca")
            assert set(os.listdir(out)) <= {"TWIN", "PAIR", "dots", "good"}
    assert os.listdir(outside) == ["victim"] and (outside / "victim").read_text() == "precious"


def test_a_nul_in_the_target_of_a_link_is_an_error_of_the_link_alone(tmp_path):
    image, out = tmp_path / "disk.img", tmp_path / "out"
    hectare.mkfs(image, "8M", features="^metadata_csum")
    with hectare.open(image, "rw") as volume:
        volume.symlink("leads/there", "/a")
        volume.write_text("/b", "good")
    patched(image, b"leads/there", b"leads\0there")
    with hectare.open(image) as volume, pytest.raises(shutil.Error) as failed:
        volume.copy_out("/", out)
    assert reasons(failed) == {("a", "the link's target has a NUL")}
    assert (out / "b").read_text() == "good" and not (out / "a").is_symlink()


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_volume_that_lies_can_t_lead_a_copy_out(volume, tmp_path, overwrite):
    outside, out = tmp_path / "outside", tmp_path / "out"
    outside.mkdir()
    (outside / "victim").write_text("precious")
    for path in ("/top/d", "/folder"):
        volume.makedirs(path)
        volume.write_text(f"{path}/victim", "evil")
    volume.write_text("/file", "evil")
    for path in ("/link", "/top/l"):
        volume.symlink(str(outside), path)
    copy, before = CopyOut(Hostile(volume._native, outside), overwrite, False, False, None), descriptors()
    with pytest.raises(shutil.Error) as failed:
        copy.start(b"/top", str(out))
    assert descriptors() == before
    assert len([1 for _, reason in reasons(failed) if reason == "this can't be a file's name"]) >= 4
    assert os.listdir(outside) == ["victim"] and (outside / "victim").read_text() == "precious"
    assert sorted(os.listdir(tmp_path)) == ["disk.img", "out", "outside"]


def test_a_directory_that_lies_in_itself_ends(volume, tmp_path):
    class Endless(Hostile):
        def entries(self, path):
            return [(b"x", "d", 12), (b"y", "d", 12)]

        def stat(self, path, follow):
            return self.native.stat(b"/top" if path == b"/top" else b"/folder", follow)

    volume.mkdir("/top")
    volume.mkdir("/folder")
    copy = CopyOut(Endless(volume._native, ""), False, False, False, None)
    with pytest.raises(shutil.Error) as failed:
        copy.start(b"/top", str(tmp_path / "out"))
    assert len(failed.value.args[0]) == 3 and sorted(os.listdir(tmp_path / "out")) == ["x"]


def test_names_that_no_directory_can_have_are_errors():
    """The walk of a copy refuses them itself, whatever the library says of such a directory."""
    copy = CopyOut(None, False, False, False, None)
    names = [b"b", b"..", b"a", b".", b"", b"x/y", b"/etc", b"nul\0", b"..."]
    assert copy.kept(b"/d", names) == [b"...", b"a", b"b"]
    assert {reason for _, _, reason in copy.errors} == {"this can't be a file's name"}
    assert len(copy.errors) == 6


def test_a_directory_that_others_replace_is_not_followed(tmp_path):
    from hectare._trees import Directory, _Lost

    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    directory = Directory(str(tmp_path / "a"))
    (tmp_path / "a/l").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError):
        directory.down(b"l", True)
    directory.down(b"b", False)
    (tmp_path / "a/b").rename(tmp_path / "outside/b")
    with pytest.raises(_Lost):
        directory.up()
    directory.close()


def test_a_file_that_others_replace_gets_no_link(volume, tmp_path):
    out = tmp_path / "out"
    volume.makedirs("/top/b")
    volume.write_text("/top/a", "own")
    volume.link("/top/a", "/top/b/again")
    (tmp_path / "victim").write_text("precious")

    def ignore(directory, names):
        if directory == "/top/b":  # /top/a was copied before
            (out / "a").unlink()
            os.link(tmp_path / "victim", out / "a")
        return []

    with pytest.raises(shutil.Error) as failed:
        volume.copy_out("/top", out, ignore=ignore)
    assert reasons(failed) == {("again", "a file of its own, no hard link: the first one was replaced")}
    assert (out / "b/again").read_text() == "own" and (tmp_path / "victim").stat().st_nlink == 2


@pytest.mark.parametrize("links", [1, 2])
def test_an_inode_of_the_volume_that_is_used_again_meanwhile_gets_no_link(volume, tmp_path, links):
    volume.makedirs("/top/b")
    volume.makedirs("/top/c")
    volume.write_text("/top/a", "one")
    volume.utime("/top/a", ns=(0, 0))  # the clock of a volume has ticks of some milliseconds
    volume.link("/top/a", "/other")
    inode = volume.stat("/top/a").st_ino
    if links == 1:
        volume.remove("/other")

    def ignore(directory, names):
        if directory == "/top/b":  # /top/a was copied before, and /top/c was not listed
            for path in ["/top/a", "/other"][:links]:
                volume.remove(path)
            volume.write_text("/top/c/new", "two")
            if volume.stat("/top/c/new").st_ino != inode:
                pytest.skip("the volume used another inode")
            for path in ["/other"][: links - 1]:
                volume.link("/top/c/new", path)
        return []

    report = volume.copy_out("/top", tmp_path / "out", ignore=ignore)
    assert (report.files, report.links) == (2, 0)
    assert (tmp_path / "out/c/new").read_text() == "two" and (tmp_path / "out/a").read_text() == "one"


@pytest.mark.parametrize("changed", [{"st_nlink": 1}, {"st_size": 4}, {"st_mtime_ns": 5}])
def test_an_inode_that_is_another_file_s_by_now_gets_no_link(volume, tmp_path, monkeypatch, changed):
    """As if the first file was removed, and its inode used again, before the second was reached."""
    source, real = tmp_path / "source", os.fstat
    source.mkdir()
    (source / "a").write_text("one")
    os.link(source / "a", tmp_path / "name")
    (source / "b").write_text("two!"[: changed.get("st_size", 3)])
    first = (source / "a").stat()

    def fstat(fd):
        found = real(fd)
        if found.st_ino != (source / "b").stat().st_ino:
            return found
        seen = {name: getattr(first, name) for name in dir(first) if name.startswith("st_")} | changed
        return types.SimpleNamespace(**seen)

    monkeypatch.setattr(os, "fstat", fstat)
    report = volume.copy_in(source, "/copy")
    assert report.links == 0 and volume.read_text("/copy/b")[:3] == "two"


def test_a_link_count_that_is_wrong_does_not_multiply_content(volume, tmp_path):
    class Miscounted(Hostile):
        def entries(self, path):
            return self.native.entries(path)

        def stat(self, path, follow):
            (mode, inode, _, *rest), *more = self.native.stat(path, follow)
            return ((mode, inode, 1, *rest), *more)

    volume.mkdir("/top")
    volume.write_bytes("/top/a", b"x" * 1000)
    for name in "bc":
        volume.link("/top/a", f"/top/{name}")
    copy = CopyOut(Miscounted(volume._native, ""), False, False, False, None)
    with pytest.raises(shutil.Error) as failed:
        copy.start(b"/top", str(tmp_path / "out"))
    reason = "the file has several names and a link count below 2"
    assert reasons(failed) == {("b", reason), ("c", reason)}
    assert copy.data == 1000 and os.listdir(tmp_path / "out") == ["a"]


def test_a_copy_that_lost_its_way_names_all_that_is_not_whole(volume, tmp_path):
    out = tmp_path / "out"
    volume.makedirs("/top/a/b")
    for path in ("/top/a/b/f", "/top/a/z", "/top/z"):
        volume.write_text(path, "text")

    class Moving(Hostile):
        def entries(self, path):
            return self.native.entries(path)

        def open_file(self, path, flags, mode):
            if path == b"/top/a/b/f":
                (out / "a/b").rename(tmp_path / "moved")
            return self.native.open_file(path, flags, mode)

    with pytest.raises(shutil.Error) as failed:
        CopyOut(Moving(volume._native, ""), False, False, False, None).start(b"/top", str(out))
    reason = "a directory was moved while it was copied"
    assert [(source, why) for source, _, why in failed.value.args[0]] == [
        (source, reason) for source in ("/top/a/b", "/top/a", "/top")
    ]
