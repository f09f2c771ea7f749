"""Volumes: what `os` has as functions, and reports."""

import dataclasses
import errno
import os
import stat

import pytest

import hectare
from conftest import e2fsck_clean


def test_content_is_kept_and_the_volume_is_clean(image):
    with hectare.open(image, "rw") as volume:
        volume.makedirs("/etc/app")
        assert volume.write_text("/etc/hostname", "b\u00f6x\n") == 4
        assert volume.write_bytes(b"etc/app/data", bytearray(b"\0\xff" * 5000)) == 10_000
        volume.symlink("../hostname", "/etc/app/link")
        volume.rename("/etc/app/data", "/etc/app/data.1")
    e2fsck_clean(image)
    with hectare.open(image) as volume:
        assert not volume.writable and volume.label == "tests" and volume.uuid.version == 4
        assert volume.read_text("/etc/app/link") == "b\u00f6x\n"
        assert volume.read_bytes("etc/app/data.1") == b"\0\xff" * 5000
        assert sorted(volume.listdir("/etc")) == ["app", "hostname"]
        assert sorted(volume.listdir(b"/etc/app")) == [b"data.1", b"link"]
        assert volume.readlink("/etc/app/link") == "../hostname"
        assert volume.realpath("/etc/app/link") == "/etc/hostname"


def test_names_that_are_no_text_come_back(volume):
    name = b"caf\xe9"
    volume.write_bytes(b"/" + name, b"x")
    shown = next(entry for entry in volume.listdir() if entry.startswith("caf"))
    assert shown == "caf\udce9"
    assert volume.read_bytes("/" + shown) == b"x"
    assert name in volume.listdir(b"/")


def test_stat_is_as_that_of_os(volume):
    volume.write_bytes("/f", b"12345")
    volume.chmod("/f", 0o4711)
    volume.chown("/f", 70_000, 5)
    volume.chown("/f", -1, 6)
    volume.utime("/f", ns=(-1, 1_234_567_890_123_456_789))
    found = volume.stat("/f")
    assert isinstance(found, os.stat_result)
    assert stat.filemode(found.st_mode) == "-rws--x--x"
    assert (found.st_uid, found.st_gid, found.st_size, found.st_nlink) == (70_000, 6, 5, 1)
    assert (found.st_atime_ns, found.st_mtime_ns) == (-1, 1_234_567_890_123_456_789)
    assert (found[7], found[8]) == (-1, 1_234_567_890)
    assert found.st_mtime == pytest.approx(1_234_567_890.123)
    assert found.st_blocks * 512 >= 0 and found.st_blksize in (1024, 4096)
    assert volume.birthtime_ns("/f") > 1_500_000_000 * 10**9
    volume.link("/f", "/g")
    assert os.path.samestat(volume.stat("/f"), volume.stat("/g"))
    volume.utime("/f", (1.5, 2.25))
    assert volume.stat("/f").st_mtime_ns == 2_250_000_000
    volume.symlink("f", "/l")
    volume.utime("/l", ns=(1, 2), follow_symlinks=False)
    assert volume.lstat("/l").st_mtime_ns == 2 and volume.stat("/l").st_mtime_ns == 2_250_000_000
    assert stat.S_ISLNK(volume.lstat("/l").st_mode)


def test_attributes(volume):
    volume.write_bytes("/f", b"")
    volume.setxattr("/f", "user.note", b"hello")
    assert volume.getxattr("/f", "user.note") == b"hello"
    assert volume.listxattr("/f") == ["user.note"]
    with pytest.raises(FileExistsError):
        volume.setxattr("/f", "user.note", b"x", os.XATTR_CREATE)
    with pytest.raises(OSError) as failed:
        volume.setxattr("/f", "user.other", b"x", os.XATTR_REPLACE)
    assert failed.value.errno == errno.ENODATA
    volume.removexattr("/f", "user.note")
    with pytest.raises(OSError) as failed:
        volume.getxattr("/f", "user.note")
    assert failed.value.errno == errno.ENODATA


def test_scandir_and_walk(volume):
    volume.makedirs("/d/e")
    volume.write_bytes("/d/f", b"123")
    volume.symlink("e", "/d/to_dir")
    volume.symlink("nowhere", "/d/broken")
    with volume.scandir("/d") as entries:
        found = {entry.name: entry for entry in entries}
    assert found["e"].is_dir() and not found["e"].is_file() and found["e"].path == "/d/e"
    assert found["f"].stat().st_size == 3 and found["f"].inode() == volume.stat("/d/f").st_ino
    assert found["to_dir"].is_dir() and not found["to_dir"].is_dir(follow_symlinks=False)
    assert found["broken"].is_symlink() and not found["broken"].is_file()
    walked = [(top, sorted(folders), sorted(files)) for top, folders, files in volume.walk("/d")]
    assert walked == [("/d", ["e", "to_dir"], ["broken", "f"]), ("/d/e", [], [])]
    assert [top for top, _, _ in volume.walk("/d", topdown=False)] == ["/d/e", "/d"]
    for _, folders, _ in volume.walk("/d"):
        folders.clear()  # as in os.walk, this leaves them out


def test_walks_are_pruned_and_sorted_in_place(volume, tmp_path):
    host = tmp_path / "host"
    for name in ("c/deep", "a/deep", "b/deep", "skip/deep"):
        volume.makedirs("/top/" + name)
        os.makedirs(host / name)
    volume.symlink("a", "/top/link")
    os.symlink("a", host / "link")

    def seen(walk, root):
        found = []
        for top, folders, files in walk:
            if "skip" in folders:
                folders.remove("skip")
            folders.sort(reverse=True)
            found.append((os.path.relpath(top, root), list(folders), sorted(files)))
        return found

    for options in ({}, {"followlinks": True}):
        ours = seen(volume.walk("/top", **options), "/top")
        assert ours == seen(os.walk(host, **options), host)
    assert (".", ["link", "c", "b", "a"], []) == ours[0]
    # pathlib has links that are not followed among the files.
    links = [(folders, files) for _, folders, files in volume.path("/top").walk()][0]
    assert "link" not in links[0] and links[1] == ["link"]
    followed = [str(top) for top, _, _ in volume.path("/top").walk(follow_symlinks=True)]
    assert "/top/link" in followed and "/top/link/deep" in followed
    # Names that the program adds are entered.
    for top, folders, _files in volume.walk("/top"):
        if top == "/top":
            volume.makedirs("/top/added/below")
            folders[:] = ["added"]
        last = top
    assert last == "/top/added/below"
    errors = []
    assert list(volume.path("/none").walk(on_error=errors.append)) == []
    assert [error.filename for error in errors] == ["/none"]


def test_nodes_of_all_kinds_are_made(volume):
    device = os.makedev(259, 70_000)
    for name, kind, number in [
        ("file", 0, 0),
        ("regular", stat.S_IFREG, 0),
        ("char", stat.S_IFCHR, os.makedev(1, 3)),
        ("block", stat.S_IFBLK, device),
        ("pipe", stat.S_IFIFO, 0),
        ("socket", stat.S_IFSOCK, 0),
    ]:
        volume.mknod("/" + name, kind | 0o640, number)
        found = volume.stat("/" + name)
        assert found.st_mode == (kind or stat.S_IFREG) | 0o640 and found.st_rdev == number
    assert volume.path("/block").is_block_device() and volume.path("/char").is_char_device()
    assert volume.path("/pipe").is_fifo() and volume.path("/socket").is_socket()
    assert volume.read_bytes("/file") == b"" and not volume.path("/file").is_fifo()
    with pytest.raises(FileExistsError):
        volume.mknod("/pipe", stat.S_IFIFO)
    for mode, number in [(stat.S_IFDIR, 0), (stat.S_IFCHR, os.makedev(5000, 0))]:
        with pytest.raises(OSError) as failed:
            volume.mknod("/wrong", mode, number)
        assert failed.value.errno == errno.EINVAL
    with pytest.raises(OSError):
        volume.read_bytes("/pipe")


def test_extents_are_places_in_the_image(image):
    content = os.urandom(300_000)
    with hectare.open(image, "rw") as volume:
        volume.write_bytes("/f", content)
        with volume.open("/f", "r+b") as file:
            file.seek(1 << 20)
            file.write(b"end")
        volume.mkdir("/d")
        with pytest.raises(IsADirectoryError):
            volume.extents("/d")
        extents = volume.extents("/f")
    assert [extent.offset for extent in extents] == sorted(extent.offset for extent in extents)
    assert sum(extent.length for extent in extents) < 400_000
    found = bytearray((1 << 20) + 4096)
    with open(image, "rb") as file:
        for extent in extents:
            assert extent.place % 4096 == extent.length % 4096 == 0 and not extent.unwritten
            file.seek(extent.place)
            found[extent.offset : extent.offset + extent.length] = file.read(extent.length)
    assert found[:300_000] == content and found[1 << 20 :].rstrip(b"\0") == b"end"


def test_space_and_free_extents(volume):
    before = volume.space()
    volume.write_bytes("/big", b"x" * (8 << 20))
    volume.sync()
    after = volume.space()
    assert before.free - after.free >= 8 << 20 and after.total == before.total
    seen = volume.statvfs()
    assert seen.f_bavail * seen.f_frsize == after.available and seen.f_namemax == 255
    free = volume.freefrag()
    assert free.bytes == sum(bucket.bytes for bucket in free.histogram)
    assert free.extents == sum(bucket.extents for bucket in free.histogram) > 0
    assert free.shortest <= free.mean <= free.longest
    assert dataclasses.asdict(free)["histogram"][0]["from_bytes"] > 0
    extents = volume.extents("/big")
    assert sum(extent.length for extent in extents) == 8 << 20 and extents[0].offset == 0


def test_free_extents_of_an_image_are_those_of_the_command_line(image, command_line):
    import json
    import subprocess

    said = subprocess.run([command_line, "freefrag", "--json", image], capture_output=True, check=True)
    said = json.loads(said.stdout)
    free = hectare.freefrag(image)
    assert (free.extents, free.blocks, free.block_size) == (
        said["extents"],
        said["blocks"],
        said["block_size"],
    )


def test_a_damaged_volume_is_reported_as_data(image):
    assert hectare.check(image).clean
    with open(image, "r+b") as file:
        file.seek(1024 + 0x10)  # the count of free inodes
        file.write(b"\x01\0\0\0")
        file.seek(1024 + 0x78)  # the label, so that the superblock's checksum is wrong
        file.write(b"changed")
    try:
        report = hectare.check(image)
    except OSError as error:
        assert "checksum" in str(error)
        return
    assert not report.clean and report.problem_count == len(report.problems) > 0
    problem = report.problems[0]
    assert problem.structure == "superblock" and problem.reason in problem.text == str(problem)
    pandas = pytest.importorskip("pandas")
    assert list(pandas.DataFrame(report.problems).columns) == ["structure", "place", "reason", "text"]


def test_problems_in_a_bitmap_are_data_for_pandas(image):
    with hectare.open(image, "rw") as volume:
        volume.write_bytes("/f", b"x" * 100_000)
        inode = volume.stat("/f").st_ino
    debugfs = os.popen(f"PATH=$PATH:/usr/sbin:/sbin debugfs -w -R 'sif <{inode}> links_count 7' {image} 2>&1")
    if "not found" in debugfs.read():
        pytest.skip("debugfs is not installed")
    report = hectare.check(image)
    assert not report.clean and [problem.structure for problem in report.problems] == ["link_count"]
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame(report.problems)
    assert list(frame.columns) == ["structure", "place", "reason", "text"] and len(frame) == 1


def test_regression_what_can_be_no_path_is_not_there(volume):
    for path in ["/" + "y" * 256, "/a\0", "", "/none/x", "/lost+found/" + "z" * 5000]:
        for look in [volume.exists, volume.lexists, volume.isdir, volume.isfile, volume.islink]:
            assert look(path) is False, (look, path)
    assert not volume.path("/" + "y" * 300).is_dir()
    volume.close()
    with pytest.raises(ValueError):
        volume.exists("/")


def test_regression_arguments_of_other_types_are_refused(volume):
    volume.write_bytes("/f", b"x")
    for value in [5, [1, 2], "text"]:
        with pytest.raises(TypeError):
            volume.setxattr("/f", "user.a", value)
    volume.setxattr("/f", "user.a", memoryview(bytearray(b"ab")))
    assert volume.getxattr("/f", "user.a") == b"ab" and volume.listxattr("/f") == ["user.a"]
    for times in [(1,), (1, 2, 3), [1, 2]]:
        with pytest.raises(TypeError):
            volume.utime("/f", times)
        with pytest.raises(TypeError):
            volume.utime("/f", ns=times)


def test_regression_directories_are_made_without_set_id_bits(volume):
    volume.mkdir("/d", 0o7755)
    assert volume.stat("/d").st_mode == 0o41755
    volume.path("/").touch()
    with pytest.raises(FileExistsError):
        volume.open("/", "x")
