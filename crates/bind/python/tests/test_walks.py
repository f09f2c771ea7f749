"""Walks of volumes whose directories have several names: they end."""

import errno
import re
import struct

import pytest

import hectare


def renumbered(image, name, inode):
    """Has the entries of a name lead to another inode."""
    pattern = re.compile(rb"....(..)" + bytes([len(name), 2]) + re.escape(name), re.DOTALL)
    content, count = pattern.subn(
        lambda found: struct.pack("<I", inode) + found[1] + bytes([len(name), 2]) + name, image.read_bytes()
    )
    assert count
    image.write_bytes(content)


@pytest.fixture
def looped(tmp_path):
    """An image with `/d/loop/loop...`, and with `/t/one` that is `/t/two`, too."""
    image = tmp_path / "looped.img"
    hectare.mkfs(image, "8M", features="^metadata_csum,^dir_index,^has_journal")
    with hectare.open(image, "rw") as volume:
        for path in ("/d/loop", "/d/e", "/t/one/below", "/t/two"):
            volume.makedirs(path)
        volume.write_text("/d/f", "f")
        inodes = [volume.stat(path).st_ino for path in ("/d", "/t/one")]
    renumbered(image, b"loop", inodes[0])
    renumbered(image, b"two", inodes[1])
    return image


@pytest.mark.parametrize("topdown", [True, False])
def test_a_walk_enters_each_directory_once(looped, topdown):
    with hectare.open(looped) as volume:
        errors, found = [], []
        for top, directories, files in volume.walk("/d", topdown, errors.append):
            assert len(found) < 10
            found.append((top, sorted(directories), files))
        assert sorted(found) == [("/d", ["e", "loop"], ["f"]), ("/d/e", [], [])]
        assert [(error.errno, error.filename) for error in errors] == [(errno.ELOOP, "/d/loop")]
        del errors[:], found[:]
        for top, _directories, _files in volume.path("/t").walk(topdown, errors.append):
            found.append(str(top))
        # The first of its names, in no order.
        assert len(found) == 3 and len(errors) == 1 and errors[0].errno == errno.ELOOP
        assert {*found, errors[0].filename} > {"/t", "/t/one", "/t/two"}
        assert [top for top, _, _ in volume.walk("/d/loop")] == ["/d/loop", "/d/loop/e"]


@pytest.mark.parametrize("pattern", ["**", "**/f", "*/**/f"])
def test_a_glob_enters_each_directory_once(looped, pattern):
    with hectare.open(looped) as volume:
        found = []
        with pytest.raises(OSError) as failed:
            for path in volume.path("/d" if pattern[1] == "*" else "/").glob(pattern):
                assert len(found) < 10
                found.append(path)
        assert failed.value.errno == errno.ELOOP
        # A pattern that enters nothing twice is as it was.
        assert [str(path) for path in volume.path("/d/e").rglob("*")] == []


def test_a_directory_that_moves_during_a_walk_is_entered_again(volume):
    """As by os.walk: it has one name, another one each time."""
    volume.makedirs("/top/a/moved")
    volume.makedirs("/top/b")
    found, errors = [], []
    for top, directories, _files in volume.walk("/top", onerror=errors.append):
        directories.sort()
        found.append(top)
        if top == "/top/a/moved":
            volume.rename("/top/a/moved", "/top/b/moved")
    assert found == ["/top", "/top/a", "/top/a/moved", "/top/b", "/top/b/moved"] and errors == []


def test_an_inode_that_is_used_again_during_a_walk_is_entered(volume):
    volume.makedirs("/top/a/old")
    volume.makedirs("/top/b")
    inode, errors, last = volume.stat("/top/a/old").st_ino, [], None
    for top, directories, _files in volume.walk("/top", onerror=errors.append):
        directories.sort()
        if top == "/top/a/old":
            volume.rmdir("/top/a/old")
            volume.mkdir("/top/b/new")
            if volume.stat("/top/b/new").st_ino != inode:
                pytest.skip("the volume used another inode")
        last = top
    assert last == "/top/b/new" and errors == []


def test_a_pattern_may_enter_a_directory_by_each_of_its_parts(volume):
    volume.makedirs("/top/x/y/x/y")
    volume.write_text("/top/x/y/x/y/f", "f")
    found = [str(path) for path in volume.path("/top").glob("**/x/**/f")]
    assert found == ["/top/x/y/x/y/f"]
