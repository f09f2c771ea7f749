"""Whole trees between a volume and the host, beside `shutil.copytree`."""

import errno
import os
import shutil
import stat
import sys
import types

import pytest

import hectare
from conftest import debugfs, e2fsck_clean
from hectare._copy_in import CopyIn
from hectare._copy_out import CopyOut
from trees import TIME, Hostile, accesses, reasons, shown


@pytest.fixture
def host(tmp_path):
    """A directory of the host with what a copy may meet."""
    root = tmp_path / "host"
    (root / "sub" / "deeper").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "text").write_text("text\n")
    (root / "zero").write_bytes(b"")
    (root / "large").write_bytes(os.urandom(3_000_000))
    os.link(root / "text", root / "sub" / "again")
    os.link(root / "text", root / "sub" / "deeper" / "third")
    (root / "sub" / "to_text").symlink_to("../text")
    (root / "to_sub").symlink_to("sub")
    (root / "broken").symlink_to("/no/where")
    with open(root / "sparse", "wb") as file:
        file.seek(4 << 20)
        file.write(b"end")
        file.truncate(9 << 20)
    (root / "sub" / "run").write_bytes(b"#!/bin/sh\n")
    (root / "sub" / "run").chmod(0o4751)
    (root / "secret").write_bytes(b"s")
    (root / "secret").chmod(0o400)
    with open(os.path.join(os.fsencode(root), b"caf\xe9"), "wb") as file:
        file.write(b"no text")
    os.mkfifo(root / "sub" / "pipe")
    for number, (top, directories, files) in enumerate(os.walk(root, topdown=False)):
        for name in [*files, *directories, "."]:
            at = (TIME + number, TIME - len(name))
            os.utime(os.path.join(top, name), ns=at, follow_symlinks=False)
    (root / "sub" / "deeper").chmod(0o500)
    yield root
    (root / "sub" / "deeper").chmod(0o700)


def test_a_tree_comes_back_as_it_was(volume, host, tmp_path):
    read = accesses(host)
    counts = volume.copy_in(host, "/srv/copy")
    assert counts.left_out == [str(host / "sub/pipe")]
    assert (counts.files, counts.links, counts.symlinks, counts.directories) == (7, 2, 3, 4)
    assert counts.data < 4_000_000
    assert volume.stat("/srv/copy/sparse").st_size == 9 << 20
    assert volume.stat("/srv/copy/sparse").st_blocks * 512 < 1 << 20
    assert volume.stat("/srv/copy/text").st_nlink == 3
    assert stat.S_IMODE(volume.stat("/srv/copy/sub/run").st_mode) == 0o751
    assert volume.read_bytes(b"/srv/copy/caf\xe9") == b"no text"
    volume.mknod("/srv/copy/device", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    volume.utime("/srv/copy", ns=(read[b"."], host.stat().st_mtime_ns))
    out = tmp_path / "new" / "out"
    back = volume.copy_out("/srv/copy", out)
    assert back.left_out == ["/srv/copy/device"]
    assert (back.files, back.links, back.symlinks, back.directories, back.data) == (7, 2, 3, 4, counts.data)
    assert accesses(out) == read
    assert shown(out) == shown(host)
    assert (out / "sparse").stat().st_blocks * 512 < 1 << 20
    assert (out / "text").stat().st_nlink == 3
    (out / "sub/deeper").chmod(0o700)


def test_the_tree_is_that_of_copytree(volume, host, tmp_path):
    (host / "sub/pipe").unlink()
    shutil.copytree(host, tmp_path / "theirs", symlinks=True)
    volume.copy_in(host, "/copy")
    volume.copy_out("/copy", tmp_path / "ours")
    theirs, ours = shown(tmp_path / "theirs"), shown(tmp_path / "ours")
    for found in (theirs, ours):  # copytree knows no hard links
        for path, (mode, time, content, _links, owner) in found.items():
            found[path] = (mode, time, content, owner)
    assert ours == theirs
    for copy in ("ours", "theirs"):
        (tmp_path / copy / "sub/deeper").chmod(0o700)


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files away")
def test_owners_and_set_id_bits_are_kept_if_asked(volume, host, tmp_path):
    os.lchown(host / "broken", 7, 8)
    os.chown(host / "empty", 9, 10)
    os.chown(host / "sub/run", 11, 12)
    (host / "sub/run").chmod(0o6755)
    os.utime(host / "broken", ns=(TIME, TIME), follow_symlinks=False)
    volume.copy_in(host, "/copy", owners=True)
    assert (volume.stat("/copy/sub/run").st_uid, volume.stat("/copy/sub/run").st_gid) == (11, 12)
    volume.copy_out("/copy", tmp_path / "out", owners=True)
    assert shown(tmp_path / "out", owners=True) == shown(host, owners=True)
    volume.copy_out("/copy", tmp_path / "mine")
    assert (tmp_path / "mine/sub/run").stat().st_mode & 0o7777 == 0o755
    assert (tmp_path / "mine/sub/run").stat().st_uid == 0


def test_attributes_of_users_are_kept_if_asked(volume, host, tmp_path):
    try:
        os.setxattr(host / "text", "user.note", b"\0hello")
        os.setxattr(host / "empty", "user.note", b"folder")
    except OSError:
        pytest.skip("the host's file system has no attributes of users")
    volume.copy_in(host, "/copy", xattrs=True)
    assert volume.getxattr("/copy/text", "user.note") == b"\0hello"
    volume.setxattr("/copy/zero", "security.capability", b"would be a danger")
    volume.copy_out("/copy", tmp_path / "out", xattrs=True)
    assert os.getxattr(tmp_path / "out/text", "user.note") == b"\0hello"
    assert os.getxattr(tmp_path / "out/empty", "user.note") == b"folder"
    assert os.listxattr(tmp_path / "out/zero") == []
    volume.copy_in(host, "/without")
    assert volume.listxattr("/without/text") == []


def test_attributes_that_can_t_be_kept_leave_the_others(volume, tmp_path, monkeypatch):
    """Neither an attribute nor an owner that is refused keeps a file from its times."""
    source, out = tmp_path / "source", tmp_path / "out"
    (source / "d").mkdir(parents=True)
    (source / "f").write_text("text")
    (source / "l").symlink_to("f")
    (source / "f").chmod(0o640)
    for name in ("f", "l", "d", "."):
        os.utime(source / name, ns=(TIME, TIME), follow_symlinks=False)
    refused = OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    def refuse(*_, **__):
        raise refused

    class Refusing(Hostile):
        setxattr = chown = refuse

    def copied(copy, source, target, kept):
        with pytest.raises(shutil.Error) as failed:
            copy.start(source, target)
        assert {name for name, _ in reasons(failed)} == {"f", "l", "d", os.path.basename(os.fsdecode(source))}
        times = {kept(name).st_mtime_ns for name in ("f", "l", "d", ".")}
        assert times == {TIME} and stat.S_IMODE(kept("f").st_mode) == 0o600

    monkeypatch.setattr(os, "listxattr", lambda fd: ["user.a", "user.b"])
    monkeypatch.setattr(os, "getxattr", lambda fd, name: b"value")
    volume.mkdir("/in")
    copy = CopyIn(Refusing(volume._native, ""), False, True, True, None)
    copied(copy, str(source), b"/in", lambda name: volume.lstat(f"/in/{name}"))
    volume.copy_in(source, "/whole")
    for name in ("fchown", "chown", "setxattr"):
        monkeypatch.setattr(os, name, refuse)
    copy = CopyOut(volume._native, False, True, True, None)
    copied(copy, b"/whole", str(out), lambda name: (out / name).lstat())
    assert len(copy.errors) == 4


def test_an_owner_whose_number_is_minus_one_is_an_error(image, tmp_path):
    with hectare.open(image, "rw") as made:
        made.mkdir("/top")
        made.write_text("/top/f", "text")
        made.symlink("f", "/top/l")
        made.chmod("/top/f", 0o6755)
    # Hectare gives a file to it by no means; what else writes volumes may.
    debugfs(image, "set_inode_field /top/f uid 4294967295")
    debugfs(image, "set_inode_field /top/l gid 4294967295")
    volume = hectare.open(image)
    copy = CopyOut(volume._native, False, True, False, None)
    with pytest.raises(shutil.Error) as failed:
        copy.start(b"/top", str(tmp_path / "out"))
    reason = "there is no such owner: -1 leaves the owner as it is"
    assert {one for one in reasons(failed) if one[0] != "top"} == {("f", reason), ("l", reason)}
    assert stat.S_IMODE((tmp_path / "out/f").stat().st_mode) == 0o600


def test_nothing_is_overwritten_unless_asked(volume, tmp_path):
    volume.makedirs("/from/d")
    volume.write_text("/from/f", "new")
    volume.write_text("/from/d/g", "new")
    out = tmp_path / "out"
    out.mkdir()
    volume.copy_out("/from", out)  # an empty one may be there
    (out / "f").write_text("precious")
    with pytest.raises(FileExistsError) as failed:
        volume.copy_out("/from", out)
    assert failed.value.filename == str(out) and (out / "f").read_text() == "precious"
    (out / "other").write_text("kept")
    volume.copy_out("/from", out, overwrite=True)
    assert (out / "f").read_text() == "new" and (out / "other").read_text() == "kept"
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        volume.copy_out("/from", tmp_path / "file", overwrite=True)
    # The same into the volume. A fresh root has lost+found, which does not count.
    volume.rmtree("/from")
    volume.copy_in(out, "/")
    with pytest.raises(FileExistsError) as failed:
        volume.copy_in(out, "/")
    assert failed.value.filename == "/"
    volume.write_text("/f", "old")
    volume.copy_in(out, "/", overwrite=True)
    assert volume.read_text("/f") == "new" and volume.exists("/lost+found")
    with pytest.raises(FileExistsError):
        volume.copy_in(out, "/f")


def test_what_is_in_the_way_is_replaced_and_never_written_through(volume, tmp_path):
    outside, out = tmp_path / "outside", tmp_path / "out"
    outside.mkdir()
    (outside / "victim").write_text("precious")
    out.mkdir()
    (out / "f").symlink_to(outside / "victim")
    (out / "d").symlink_to(outside)
    os.link(outside / "victim", out / "hard")
    (out / "l").write_text("a file")
    (out / "folder").mkdir()
    (out / "folder/kept").write_text("kept")
    volume.makedirs("/from/d")
    for path in ("/from/f", "/from/d/victim", "/from/hard", "/from/folder"):
        volume.write_text(path, "new")
    volume.symlink("f", "/from/l")
    with pytest.raises(shutil.Error) as failed:
        volume.copy_out("/from", out, overwrite=True)
    assert reasons(failed) == {("folder", "a directory is in the way")}
    assert (outside / "victim").read_text() == "precious" and os.listdir(outside) == ["victim"]
    assert not (out / "f").is_symlink() and (out / "f").read_text() == "new"
    assert not (out / "d").is_symlink() and (out / "d/victim").read_text() == "new"
    assert (out / "hard").read_text() == "new" and os.readlink(out / "l") == "f"
    assert (out / "folder/kept").read_text() == "kept"
    # In a volume likewise.
    volume.mkdir("/outside")
    volume.write_text("/outside/victim", "precious")
    volume.makedirs("/to/folder")
    volume.symlink("/outside/victim", "/to/f")
    volume.symlink("/outside", "/to/d")
    volume.link("/outside/victim", "/to/hard")
    (out / "folder/kept").unlink()
    (out / "folder").rmdir()
    (out / "folder").write_text("new")
    with pytest.raises(shutil.Error) as failed:
        volume.copy_in(out, "/to", overwrite=True)
    assert reasons(failed) == {("folder", "a directory is in the way")}
    assert volume.read_text("/outside/victim") == "precious" and volume.listdir("/outside") == ["victim"]
    assert volume.read_text("/to/f") == "new" and volume.read_text("/to/d/victim") == "new"
    assert not volume.islink("/to/d") and volume.stat("/to/hard").st_nlink == 1


def test_what_can_t_be_copied_whole_replaces_nothing(volume, tmp_path, monkeypatch):
    source, out = tmp_path / "source", tmp_path / "out"
    for root in (source, out):
        root.mkdir()
        (root / "f").write_text("precious")
        (root / "l").symlink_to("precious")
    volume.copy_in(source, "/top")
    failing = OSError(errno.EIO, os.strerror(errno.EIO))

    def fails(*_, **__):
        raise failing

    class Failing(Hostile):
        """A volume of which nothing can be read, or written."""

        open_file = readlink = fails

        def entries(self, path):
            return self.native.entries(path)

    def copied(copy, *arguments):
        with pytest.raises(shutil.Error) as failed:
            copy.start(*arguments)
        assert reasons(failed) == {("f", "Input/output error"), ("l", "Input/output error")}
        for root in (source, out):
            assert (root / "f").read_text() == "precious" and os.readlink(root / "l") == "precious"
            assert sorted(os.listdir(root)) == ["f", "l"]
        assert volume.read_text("/top/f") == "precious" and volume.readlink("/top/l") == "precious"
        assert sorted(volume.listdir("/top")) == ["f", "l"]

    native = volume._native
    copied(CopyOut(Failing(native, ""), True, False, False, None), b"/top", str(out))
    for name in ("pwrite", "symlink"):
        monkeypatch.setattr(os, name, fails)
    copied(CopyOut(native, True, False, False, None), b"/top", str(out))
    for name in ("preadv", "readlink"):
        monkeypatch.setattr(os, name, fails)
    copy = CopyIn(native, True, False, False, None)
    with pytest.raises(shutil.Error):
        copy.start(str(source), b"/top")
    monkeypatch.undo()
    copied(CopyOut(Failing(native, ""), True, False, False, None), b"/top", str(out))


def test_two_names_of_one_file_are_replaced_by_links(volume, tmp_path):
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    (source / "a").write_text("new")
    os.link(source / "a", source / "b")
    for _ in range(2):  # the second time over what the first one made
        assert volume.copy_in(source, "/top", overwrite=True).links == 1
        assert volume.copy_out("/top", out, overwrite=True).links == 1
        assert sorted(volume.listdir("/top")) == sorted(os.listdir(out)) == ["a", "b"]
        assert volume.stat("/top/b").st_nlink == (out / "b").stat().st_nlink == 2


def test_a_copy_does_not_replace_the_image_that_it_reads(volume, image):
    volume.mkdir("/top")
    for name in (image.name, "z"):
        volume.write_text(f"/top/{name}", "new")
    before = image.stat()
    with pytest.raises(shutil.Error) as failed:
        volume.copy_out("/top", image.parent, overwrite=True)
    assert reasons(failed) == {(image.name, "this is the image that is read")}
    assert image.stat().st_ino == before.st_ino and (image.parent / "z").read_text() == "new"
    volume.unlink(f"/top/{image.name}")
    volume.mkdir(f"/top/{image.name}")
    with pytest.raises(shutil.Error) as failed:
        volume.copy_out("/top", image.parent, overwrite=True)
    assert image.stat().st_ino == before.st_ino


@pytest.mark.parametrize("size, now", [(3, 2), (3 << 20, 1 << 20), (3 << 20, 0), (3, 4), (0, 1)])
def test_a_file_whose_length_changes_is_reported(volume, tmp_path, monkeypatch, size, now):
    source, real, changed = tmp_path / "source", os.open, []
    source.mkdir()
    (source / "f").write_bytes(b"x" * size)
    (source / "hole").write_bytes(b"")
    os.truncate(source / "hole", size)

    def opened(name, *arguments, **more):  # what changes is the file that is open, after it was looked at
        fd = real(name, *arguments, **more)
        changed.extend([fd] if name in (b"f", b"hole") else [])
        return fd

    def fstat(fd, real=os.fstat):
        found = real(fd)
        if fd in changed:
            changed.remove(fd)
            os.truncate(f"/proc/self/fd/{fd}", now)
        return found

    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(os, "fstat", fstat)
    with pytest.raises(shutil.Error) as failed:
        volume.copy_in(source, "/copy")
    reason = f"it became {'longer' if now > size else 'shorter'} while it was copied"
    assert reasons(failed) == {("f", reason), ("hole", reason)}
    assert volume.listdir("/copy") == []


def test_a_file_of_the_volume_whose_length_changes_is_reported(volume, tmp_path):
    class Changing(Hostile):
        def entries(self, path):
            return self.native.entries(path)

        def open_file(self, path, flags, mode):
            file = self.native.open_file(path, flags, mode)
            return types.SimpleNamespace(
                stat=lambda: (file.stat(), self.native.truncate(path, 2 if path == b"/top/less" else 4))[0],
                **{name: getattr(file, name) for name in ("seek", "pread_into", "close")},
            )

    volume.mkdir("/top")
    for name in ("less", "more"):
        volume.write_text(f"/top/{name}", "old")
    with pytest.raises(shutil.Error) as failed:
        CopyOut(Changing(volume._native, ""), False, False, False, None).start(b"/top", str(tmp_path / "out"))
    changes = [("less", "shorter"), ("more", "longer")]
    assert reasons(failed) == {(name, f"it became {how} while it was copied") for name, how in changes}
    assert os.listdir(tmp_path / "out") == []


@pytest.mark.parametrize("number", [errno.EMLINK, errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EACCES])
def test_a_hard_link_that_is_refused_is_a_file_and_is_reported(volume, tmp_path, monkeypatch, number):
    source, out, refused = tmp_path / "source", tmp_path / "out", OSError(number, os.strerror(number))
    source.mkdir()
    (source / "a").write_text("text")
    os.link(source / "a", source / "b")
    volume.copy_in(source, "/whole")

    def refuse(*_, **__):
        raise refused

    class Refusing(Hostile):
        link = refuse

    def copied(copy, *arguments):
        expected = {("b", f"a file of its own, no hard link: {refused.strerror}")}
        if number != errno.EACCES:
            assert copy.start(*arguments).files == 2
            return
        with pytest.raises(shutil.Error) as failed:
            copy.start(*arguments)
        assert reasons(failed) == expected

    monkeypatch.setattr(os, "link", refuse)
    volume.mkdir("/in")
    copied(CopyIn(Refusing(volume._native, ""), False, False, False, None), str(source), b"/in")
    copied(CopyOut(volume._native, False, False, False, None), b"/whole", str(out))
    assert volume.read_text("/in/b") == (out / "b").read_text() == "text"


def test_errors_are_collected_and_the_rest_is_copied(volume, host, tmp_path):
    volume.copy_in(host, "/copy")
    out = tmp_path / "out"
    out.mkdir()
    (out / "sub").write_text("in the way")
    real, failing = os.symlink, []

    def symlink(target, name, **more):
        if target == b"/no/where":
            failing.append(name)
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        real(target, name, **more)

    os.symlink = symlink
    try:
        with pytest.raises(shutil.Error) as failed:
            volume.copy_out("/copy", out, overwrite=True)
    finally:
        os.symlink = real
    assert failed.value.args[0] == [("/copy/broken", str(out / "broken"), "Operation not permitted")]
    assert isinstance(failed.value, OSError) and failing == [b"broken"]
    assert (out / "sub/again").read_text() == "text\n"
    (out / "sub/deeper").chmod(0o700)


def test_a_file_that_is_not_whole_is_removed(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_bytes(b"a")
    (source / "big").write_bytes(os.urandom(4 << 20))
    (source / "z").write_bytes(b"z")
    image = tmp_path / "small.img"
    hectare.mkfs(image, "2M")
    with hectare.open(image, "rw") as volume:
        with pytest.raises(shutil.Error) as failed:
            volume.copy_in(source, "/copy")
        assert [source for source, _, _ in failed.value.args[0]] == [str(source / "big")]
        assert sorted(volume.listdir("/copy")) == ["a", "z"]
    e2fsck_clean(image)


def test_what_is_wrong_with_the_two_directories_is_raised(volume, tmp_path):
    volume.write_text("/f", "")
    for kind, path in [(FileNotFoundError, "/none"), (NotADirectoryError, "/f")]:
        with pytest.raises(kind) as failed:
            volume.copy_out(path, tmp_path / "out")
        assert failed.value.filename == path
    (tmp_path / "file").write_text("")
    for kind, path in [(FileNotFoundError, "none"), (NotADirectoryError, "file")]:
        with pytest.raises(kind):
            volume.copy_in(tmp_path / path, "/in")
    assert not (tmp_path / "out").exists() and not volume.exists("/in")
    volume.symlink("lost+found", "/link")
    volume.copy_out("/link", tmp_path / "empty")
    assert os.listdir(tmp_path / "empty") == []


def test_errors_name_the_directory_as_it_was_given(volume, tmp_path):
    volume.makedirs("/a/d")
    volume.write_text("/a/f", "text")
    volume.symlink("a/d", "/to_d")
    volume.symlink("a/f", "/to_f")
    with pytest.raises(NotADirectoryError) as failed:
        volume.copy_out("/to_f", tmp_path / "out")
    assert failed.value.filename == "/to_f"
    volume.write_text("/a/d/f", "text")
    with pytest.raises(FileExistsError) as failed:
        volume.copy_in(tmp_path, "/a/../to_d")
    assert failed.value.filename == "/a/../to_d"


def test_a_whole_volume_comes_out_and_goes_into_a_new_one(volume, host, tmp_path):
    volume.copy_in(host, "/")
    assert volume.copy_out("/", tmp_path / "out").directories == 5
    other = tmp_path / "other.img"
    hectare.mkfs(other, "64M")
    with hectare.open(other, "rw") as new:
        report = new.copy_in(tmp_path / "out", "/")
        assert (report.directories, report.left_out) == (5, [])
        assert sorted(new.listdir("/")) == sorted(volume.listdir("/"))
        # In its place only, and only into a directory.
        (tmp_path / "nested/d/lost+found").mkdir(parents=True)
        new.makedirs("/nested/d/lost+found")
        with pytest.raises(FileExistsError):
            new.copy_in(tmp_path / "nested", "/nested")
        (tmp_path / "top/lost+found").mkdir(parents=True)
        new.mkdir("/file")
        new.write_text("/file/lost+found", "precious")
        with pytest.raises(shutil.Error):
            new.copy_in(tmp_path / "top", "/file")
        assert new.read_text("/file/lost+found") == "precious"
    e2fsck_clean(other)
    (tmp_path / "out/sub/deeper").chmod(0o700)


def test_reading_is_enough_to_copy_out_and_not_to_copy_in(image, host, tmp_path):
    with hectare.open(image) as volume:
        volume.copy_out("/", tmp_path / "out")
        with pytest.raises(OSError) as failed:
            volume.copy_in(host, "/in")
        assert failed.value.errno == errno.EROFS
    with pytest.raises(ValueError):
        volume.copy_out("/", tmp_path / "closed")


def test_ignored_names_are_left_out(volume, host, tmp_path):
    seen = []

    def ignore(directory, names):
        seen.append(directory)
        return shutil.ignore_patterns("s*", "caf*")(directory, names)

    volume.copy_in(host, "/copy", ignore=ignore)
    assert seen[0] == str(host) and not volume.exists("/copy/sub") and volume.exists("/copy/text")
    volume.copy_out("/copy", tmp_path / "out", ignore=lambda _, names: [n for n in names if n != "text"])
    assert os.listdir(tmp_path / "out") == ["text"]


def test_trees_may_be_deeper_than_python_recurses(volume, tmp_path):
    before, depth, path = sys.getrecursionlimit(), 300, "/top"
    volume.mkdir(path)
    for _ in range(depth):
        path += "/d"
        volume.mkdir(path)
    volume.write_text(path + "/end", "end")
    sys.setrecursionlimit(250)
    try:
        out = volume.copy_out("/top", tmp_path / "out")
        back = volume.copy_in(tmp_path / "out", "/again")
        copied = volume.path("/top").copy("/third", preserve_metadata=True)
        found = [sum(len(files) for _, _, files in volume.walk(top)) for top in ("/top", "/again")]
        found.append(sum(len(files) for _, _, files in copied.walk(top_down=False)))
    finally:
        sys.setrecursionlimit(before)
    assert out.directories == back.directories == depth + 1 and found == [1, 1, 1]


def test_hard_links_are_kept_where_paths_are_too_long(volume, tmp_path):
    path, depth = b"/top", 20
    volume.mkdir(path)
    for _ in range(depth):
        path += b"/" + b"n" * 250
        volume.mkdir(path)
    volume.write_text(path + b"/a", "text")
    volume.link(path + b"/a", path + b"/b")
    out = volume.copy_out("/top", tmp_path / "out")
    back = volume.copy_in(tmp_path / "out", "/again")
    assert (out.files, out.links) == (back.files, back.links) == (1, 1)
    assert volume.stat(path.replace(b"/top", b"/again") + b"/b").st_nlink == 2


def test_regression_an_image_was_copied_into_itself(volume, image):
    (image.parent / "z").write_text("z")
    with pytest.raises(shutil.Error) as failed:
        volume.copy_in(image.parent, "/top")
    assert (image.name, "this is the image that is copied into") in reasons(failed)
    assert not volume.exists(f"/top/{image.name}") and volume.read_text("/top/z") == "z"
