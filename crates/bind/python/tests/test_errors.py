"""Errors are `OSError`s with what belongs to them; what is closed or forked raises and never crashes."""

import errno
import gc
import io
import os
import pathlib
import pickle
import struct
import subprocess
import sys
import threading
import warnings

import pytest

import hectare
from conftest import e2fsck_clean


@pytest.mark.parametrize(
    "kind, call",
    [
        (FileNotFoundError, lambda v: v.read_bytes("/none")),
        (FileNotFoundError, lambda v: v.listdir("/none")),
        (FileNotFoundError, lambda v: v.stat("")),
        (FileExistsError, lambda v: v.mkdir("/d")),
        (NotADirectoryError, lambda v: v.listdir("/f")),
        (NotADirectoryError, lambda v: v.stat("/f/x")),
        (NotADirectoryError, lambda v: v.rmtree("/f")),
        (IsADirectoryError, lambda v: v.open("/d", "rb")),
        (IsADirectoryError, lambda v: v.remove("/d")),
        (PermissionError, lambda v: v.link("/d", "/hard")),
    ],
)
def test_errors_are_those_of_os(volume, kind, call):
    volume.mkdir("/d")
    volume.write_bytes("/f", b"")
    with pytest.raises(kind):
        call(volume)


def test_errors_have_numbers_and_names(volume, image):
    with pytest.raises(OSError) as failed:
        volume.read_bytes("/no/such")
    assert (failed.value.errno, failed.value.filename) == (errno.ENOENT, "/no/such")
    assert "disk.img" in str(failed.value)
    volume.makedirs("/d/e")
    with pytest.raises(OSError) as failed:
        volume.rmdir("/d")
    assert failed.value.errno == errno.ENOTEMPTY
    with pytest.raises(OSError) as failed:
        volume.rename("/none", "/there")
    assert (failed.value.filename, failed.value.filename2) == ("/none", "/there")
    with pytest.raises(OSError) as failed:
        volume.write_bytes("/" + "n" * 256, b"")
    assert failed.value.errno == errno.ENAMETOOLONG
    with pytest.raises(ValueError, match="null"):
        volume.stat("/a\0b")
    with pytest.raises(TypeError):
        volume.stat(5)


def test_the_path_is_as_it_was_given(volume, tmp_path):
    pure = pathlib.PurePosixPath("no/../no")
    for given, named in [("//no//such", "//no//such"), ("no/", "no/"), (pure, "no/../no")]:
        with pytest.raises(FileNotFoundError) as failed:
            volume.stat(given)
        assert failed.value.filename == named
    for given in ("/caf\udce9", b"/caf\xe9", volume.path("/caf\udce9")):
        for call in (volume.stat, volume.read_bytes, lambda path: volume.rename(path, "/x")):
            with pytest.raises(FileNotFoundError) as failed:
                call(given)
            assert failed.value.filename == "/caf\udce9"
    with pytest.raises(FileNotFoundError) as failed:
        hectare.open(tmp_path / "caf\udce9.img")
    assert failed.value.filename == str(tmp_path / "caf\udce9.img")


@pytest.mark.parametrize("name", ["rename", "replace", "link", "symlink", "copy"])
def test_what_takes_two_paths_names_both(volume, name):
    volume.write_bytes("/f", b"")
    source = b"/f" if name == "symlink" else "/none"
    with pytest.raises(FileNotFoundError) as failed:
        getattr(volume, name)(source, volume.path("/no/there"))
    assert failed.value.filename == ("/f" if name == "symlink" else "/none")
    assert failed.value.filename2 == "/no/there"


def test_a_full_volume_says_so_and_a_failed_write_leaves_what_fitted(tmp_path):
    image = tmp_path / "small.img"
    hectare.mkfs(image, "2M")
    with hectare.open(image, "rw") as volume:
        volume.write_bytes("/big", b"old")
        with pytest.raises(OSError) as failed:
            volume.write_bytes("/big", b"x" * (4 << 20))
        assert failed.value.errno == errno.ENOSPC
        left = volume.read_bytes("/big")
        assert 0 < len(left) < 4 << 20 and set(left) == {ord("x")}
        assert volume.space().available < 64 << 10
        with pytest.raises(OSError) as failed, volume.open("/big2", "wb") as file:
            file.write(b"x" * (4 << 20))
        assert failed.value.errno == errno.ENOSPC
    e2fsck_clean(image)


@pytest.fixture
def damaged(image):
    """An image with a directory `/d` and an inode `/inode` that can't be read, and a sound file."""
    with hectare.open(image, "rw") as volume:
        volume.mkdir("/d")
        volume.write_text("/d/name-that-is-nowhere-else", "text")
        volume.write_text("/inode", "text")
        volume.write_text("/sound", "text")
        volume.utime("/inode", (0x12345678, 0x23456789))
    content = image.read_bytes()
    with open(image, "r+b") as file:
        for what, wiped in [(b"name-that-is-nowhere-else", 1024), (struct.pack("<I", 0x12345678), 8)]:
            at = content.find(what)
            while at >= 0:
                file.seek(at // wiped * wiped)
                file.write(b"\xff" * wiped)
                at = content.find(what, at + 1)
    return image


def raised(call):
    with pytest.raises(OSError) as failed:
        call()
    return errno.errorcode[failed.value.errno]


def test_the_table_of_errors(image, tmp_path, damaged):
    """What `docs/python.md` says of errors, line by line."""
    found, other = {}, tmp_path / "other.img"
    with hectare.open(damaged) as volume:
        found["damaged directory"] = {
            raised(lambda: volume.listdir("/d")),
            raised(lambda: volume.open("/d/x")),
        }
        found["damaged inode"] = {raised(lambda: volume.stat("/inode"))}
        assert volume.read_text("/sound") == "text"
        seen = []
        assert [top for top, _, _ in volume.walk("/d", onerror=seen.append)] == []
        assert [error.filename for error in seen] == ["/d"]
        found["for reading"] = {
            raised(call)
            for call in [
                lambda: volume.write_bytes("/f", b""),
                lambda: volume.open("/sound", "r+"),
                lambda: volume.mknod("/f"),
                lambda: volume.copy_in(tmp_path, "/new"),
                lambda: volume.path("/sound").chown(1, 1),
            ]
        }
        with volume.open("/sound", "rb", buffering=0) as file, pytest.raises(io.UnsupportedOperation):
            file.write(b"x")
    with hectare.open(image, "rw"):
        found["in use"] = {
            raised(call)
            for call in [
                lambda: hectare.open(image),
                lambda: hectare.open(image, "rw"),
                lambda: hectare.check(image),
                lambda: hectare.freefrag(image),
            ]
        }
    with hectare.open(image):
        found["in use"].add(raised(lambda: hectare.open(image, "rw")))
    os.truncate(image, 8 << 20)
    found["cut"] = {raised(lambda: hectare.open(image))}
    assert [problem.structure for problem in hectare.check(image).problems] == ["superblock"]
    assert hectare.check(image).unchecked != []
    for content in (b"\x12\x34" * (1 << 19), b"", b"short"):
        other.write_bytes(content)
        found.setdefault("no volume", set()).add(raised(lambda: hectare.open(other)))
    other.write_bytes(bytes(1 << 20))
    found["zeros"] = {raised(lambda: hectare.open(other)), raised(lambda: hectare.check(other))}
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/big").write_bytes(os.urandom(2 << 20))
    built = tmp_path / "built.img"
    found["too small"] = {raised(lambda: hectare.build(tmp_path / "tree", built, size="1M"))}
    with pytest.raises(ValueError, match="'w'"):
        hectare.open(other, "w")
    assert found == {
        "damaged directory": {"EUCLEAN"},
        "damaged inode": {"EUCLEAN"},
        "for reading": {"EROFS"},
        "in use": {"EBUSY"},
        "cut": {"EUCLEAN"},
        "no volume": {"EUCLEAN"},
        "zeros": {"EINVAL"},
        "too small": {"EINVAL"},
    }


def test_volumes_for_reading_are_not_written(image):
    with hectare.open(image) as volume:
        for call in [
            lambda: volume.write_bytes("/f", b""),
            lambda: volume.mkdir("/d"),
            lambda: volume.open("/f", "w"),
            lambda: volume.chmod("/", 0o700),
        ]:
            with pytest.raises(OSError) as failed:
                call()
            assert failed.value.errno == errno.EROFS


def test_images_that_can_t_be_opened(tmp_path, image):
    with pytest.raises(FileNotFoundError) as failed:
        hectare.open(tmp_path / "none.img")
    assert failed.value.filename == str(tmp_path / "none.img")
    (tmp_path / "zeros").write_bytes(bytes(1 << 20))
    with pytest.raises(OSError):
        hectare.open(tmp_path / "zeros")
    with pytest.raises(ValueError):
        hectare.open(image, "w")
    with hectare.open(image, "rw"):
        with pytest.raises(OSError) as failed:
            hectare.open(image)
        assert failed.value.errno == errno.EBUSY and failed.value.filename == str(image)
        assert str(failed.value).count("disk.img") == 1
    with hectare.open(image), hectare.open(image):
        pass


def test_what_is_closed_raises(image):
    volume = hectare.open(image, "rw")
    file = volume.open("/f", "wb", buffering=0)
    path = volume.path("/f")
    file.close()
    file.close()
    for call in [lambda: file.write(b"x"), lambda: file.seek(0), file.readable, lambda: file.truncate(0)]:
        with pytest.raises(ValueError):
            call()
    volume.close()
    volume.close()
    assert volume.closed and "closed" in repr(volume)
    calls = [volume.listdir, volume.sync, volume.space, path.read_bytes, path.open, lambda: volume.label]
    for call in [*calls, volume.__enter__]:
        with pytest.raises(ValueError):
            call()
    with hectare.open(image, "rw") as again:
        assert again.read_bytes("/f") == b""
    e2fsck_clean(image)


def test_threads_that_use_what_another_closes_get_exceptions(image):
    for _ in range(10):
        volume = hectare.open(image, "rw")
        volume.write_bytes("/f", bytes(200_000))
        file = volume.open("/f", "rb", buffering=0)
        wrong, started = [], threading.Barrier(5)

        def work(volume=volume, file=file, wrong=wrong, started=started):
            started.wait()
            try:
                while True:
                    file.pread(100_000, 0)
                    volume.stat("/f")
                    volume.write_bytes(f"/{threading.get_ident()}", b"x" * 5000)
            except (ValueError, OSError):
                pass
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        started.wait()
        volume.close()
        for thread in threads:
            thread.join()
        assert wrong == []
    e2fsck_clean(image)


def test_a_forked_child_writes_nothing(image):
    volume = hectare.open(image, "rw")
    volume.write_bytes("/f", b"parent")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with pytest.raises(RuntimeError, match="fork"):
                volume.write_bytes("/f", b"child")
            del volume
            gc.collect()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    volume.write_bytes("/g", b"still there")
    volume.close()
    with hectare.open(image) as volume:
        assert volume.read_bytes("/f") == b"parent" and volume.read_bytes("/g") == b"still there"
    e2fsck_clean(image)


def test_what_was_not_closed_is_closed_with_a_warning(image):
    # What other tests left is collected before.
    gc.collect()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hectare.open(image, "rw").write_bytes("/f", b"x")
        gc.collect()
    assert [warning.category for warning in caught] == [ResourceWarning]
    e2fsck_clean(image)


def test_what_was_not_closed_is_closed_when_the_interpreter_ends(image):
    program = (
        "import sys, hectare\nv = hectare.open(sys.argv[1], 'rw')\nf = v.open('/f', 'w')\nf.write('kept')\n"
    )
    subprocess.run([sys.executable, "-c", program, str(image)], check=True)
    with hectare.open(image) as volume:
        assert volume.read_text("/f") == "kept"
    e2fsck_clean(image)


def test_volumes_are_not_pickled(volume):
    with pytest.raises(TypeError):
        pickle.dumps(volume)


def test_paths_of_another_volume_are_refused(volume, tmp_path):
    other = tmp_path / "other.img"
    hectare.mkfs(other, "8M")
    with hectare.open(other) as there, pytest.raises(OSError) as failed:
        volume.read_bytes(there.path("/f"))
    assert failed.value.errno == errno.EXDEV
    with pytest.raises(TypeError):
        open(volume.path("/f"))
