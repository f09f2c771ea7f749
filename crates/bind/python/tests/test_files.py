"""Open files: modes, buffers, positions, and what becomes of them when volumes are closed."""

import copy
import csv
import io
import os
import pickle
import sys
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor

import pytest

import hectare
from conftest import e2fsck_clean


def test_the_classes_are_those_of_io(volume):
    with volume.open("/f", "w") as file:
        assert isinstance(file, io.TextIOWrapper)
        file.write("one\ntwo\n")
    with volume.open("/f", "rb") as file:
        assert isinstance(file, io.BufferedReader) and isinstance(file.raw, hectare.VolumeFile)
        assert file.readlines() == [b"one\n", b"two\n"] and file.name == "/f" and file.raw.mode == "rb"
    with volume.open("/f", "r+b") as file:
        assert isinstance(file, io.BufferedRandom)
        assert file.read(3) == b"one" and file.write(b"!") == 1 and file.tell() == 4
        assert file.truncate() == 4
    assert volume.read_bytes("/f") == b"one!"
    with volume.open("/f", "a+", buffering=1) as file:
        assert file.tell() == 4
        file.write("end\n")
        assert volume.read_bytes("/f") == b"one!end\n"
        file.seek(0)
        assert file.read() == "one!end\n"
    with volume.open("/f", "rb", buffering=0) as file:
        assert isinstance(file, hectare.VolumeFile)
        into = bytearray(5)
        assert file.readinto(into) == 5 and into == b"one!e" and file.readall() == b"nd\n"
        assert file.read(1) == b"" and file.pread(3, 4) == b"end" and file.tell() == 8
    with pytest.raises(FileExistsError):
        volume.open("/f", "x")
    with volume.open("/new", "x", permissions=0o600) as file, pytest.raises(io.UnsupportedOperation):
        file.read()
    assert volume.stat("/new").st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", ["", "rw", "z", "rbt", "r++", "+", "Ur"])
def test_modes_without_meaning_are_refused(volume, mode):
    with pytest.raises(ValueError):
        volume.open("/f", mode)
    assert not volume.exists("/f")


def test_files_without_reading_or_writing_say_so(volume):
    volume.write_bytes("/f", b"x")
    with volume.open("/f", "rb", buffering=0) as file:
        with pytest.raises(io.UnsupportedOperation):
            file.write(b"y")
        with pytest.raises(io.UnsupportedOperation):
            file.truncate(0)
        with pytest.raises(OSError):
            file.fileno()
    with volume.open("/f", "wb", buffering=0) as file, pytest.raises(io.UnsupportedOperation):
        file.read(1)


def test_text_is_utf_8_whatever_the_locale(volume):
    volume.write_text("/f", "\u00e9\r\n")
    assert volume.read_bytes("/f") == b"\xc3\xa9\r\n"
    assert volume.read_text("/f") == "\u00e9\n"
    volume.write_bytes("/f", b"\xff")
    with pytest.raises(UnicodeDecodeError):
        volume.read_text("/f")


def test_buffers_of_all_kinds_are_written(volume):
    import array

    numbers = array.array("d", [1.5, 2.5])
    with volume.open("/f", "wb", buffering=0) as file:
        assert file.write(numbers) == 16 and file.write(memoryview(b"abcdef")[2:4]) == 2
        assert file.write(b"") == 0
        with pytest.raises(BufferError):
            file.write(memoryview(b"abcdef")[::2])
        with pytest.raises(TypeError):
            file.write("text")
    assert volume.read_bytes("/f") == numbers.tobytes() + b"cd"
    with volume.open("/f", "rb", buffering=0) as file, pytest.raises(BufferError):
        file.readinto(b"1234")


def test_holes_are_found_and_read_as_zeros(volume):
    with volume.open("/sparse", "wb", buffering=0) as file:
        file.pwrite(b"end", 5 << 20)
        assert file.seek(0, os.SEEK_DATA) == 5 << 20
        assert file.seek(0, os.SEEK_HOLE) == 0
    assert volume.stat("/sparse").st_blocks < 100
    assert volume.read_bytes("/sparse") == bytes(5 << 20) + b"end"
    assert volume.copy("/sparse", "/copy") == (5 << 20) + 3
    assert volume.stat("/copy").st_blocks < 100


def test_libraries_that_take_files_work(volume):
    with volume.open("/a.zip", "wb") as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr("inside", "text")
    with volume.open("/a.zip", "rb") as file, zipfile.ZipFile(file) as archive:
        assert archive.read("inside") == b"text"
    with volume.open("/a.csv", "w", newline="") as file:
        csv.writer(file).writerows([[1, "a,b"], [2, 'c"d']])
    with volume.open("/a.csv", newline="") as file:
        assert list(csv.reader(file)) == [["1", "a,b"], ["2", 'c"d']]


def test_closing_the_volume_writes_what_buffers_hold(image):
    volume = hectare.open(image, "rw")
    file = volume.open("/f", "w")
    file.write("kept")
    volume.close()
    assert file.closed
    with hectare.open(image) as volume:
        assert volume.read_text("/f") == "kept"


def test_a_file_keeps_its_volume_open(image):
    file = hectare.open(image, "rw").open("/f", "w")
    file.write("kept")
    volume = file.buffer.raw._volume
    file.close()
    volume.close()
    with hectare.open(image) as volume:
        assert volume.read_text("/f") == "kept"


def test_a_file_without_a_name_lives_until_it_is_closed(volume):
    volume.write_bytes("/f", b"still here")
    with volume.open("/f", "rb") as file:
        volume.remove("/f")
        assert file.read() == b"still here"


def test_threads_write_files_of_their_own_and_read_one(volume):
    volume.write_bytes("/shared", bytes(range(256)) * 4096)
    failures = []

    def work(number):
        try:
            with volume.open(f"/t{number}", "wb") as file:
                for _ in range(50):
                    file.write(bytes([number]) * 3000)
            with volume.open("/shared", "rb", buffering=0) as file:
                for at in range(0, 1 << 20, 70_001):
                    assert file.pread(10, at)[0] == at % 256
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for number in range(8):
        assert volume.read_bytes(f"/t{number}") == bytes([number]) * 150_000


def others_run_during(call):
    """Whether another thread ran in the middle of a call, in one of some tries."""
    stamps, done = [], threading.Event()

    def stamp():
        while not done.is_set():
            stamps.append(time.perf_counter())

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    other = threading.Thread(target=stamp)
    other.start()
    try:
        for _ in range(50):
            stamps.clear()
            start = time.perf_counter()
            call()
            quarter = (time.perf_counter() - start) / 4
            if any(start + quarter < at < start + 3 * quarter for at in list(stamps)):
                return True
        return False
    finally:
        done.set()
        other.join()
        sys.setswitchinterval(interval)


def test_other_threads_run_while_files_are_read_and_written(volume):
    content = bytes(32 << 20)
    assert others_run_during(lambda: volume.write_bytes("/big", content))
    assert others_run_during(lambda: volume.read_bytes("/big"))
    with volume.open("/big", "rb", buffering=0) as file:
        into = bytearray(32 << 20)
        assert others_run_during(lambda: file.pread(32 << 20, 0))
        assert others_run_during(lambda: file.seek(0) or file.readinto(into))


def test_parallel_reads_of_one_file(volume):
    content = os.urandom(4 << 20)
    volume.write_bytes("/f", content)
    whole, step = bytearray(len(content)), 100_003
    with ThreadPoolExecutor(8) as pool, volume.open("/f", "rb", buffering=0) as file:
        view = memoryview(whole)
        places = range(0, len(content), step)
        done = list(pool.map(lambda at: file.preadinto(view[at : at + step], at), places))
        assert sum(done) == len(content) and whole == content and file.tell() == 0
        assert file.preadinto(bytearray(10), len(content)) == 0
        assert file.preadinto(bytearray(10), len(content) - 3) == 3
        # The position is shared: each call takes another part, none twice.
        parts = list(pool.map(lambda _: file.read(step), range(len(done))))
        assert sorted(parts) == sorted(content[at : at + step] for at in places)
        for buffer, offset in [(b"read-only", 0), (bytearray(1), -1), (bytearray(1), 1 << 63)]:
            with pytest.raises((BufferError, OverflowError)):
                file.preadinto(buffer, offset)
    with volume.open("/f", "wb", buffering=0) as file, pytest.raises(io.UnsupportedOperation):
        file.preadinto(bytearray(1), 0)


def test_threads_may_share_an_iterator_of_entries(volume):
    volume.mkdir("/d")
    for number in range(500):
        volume.write_bytes(f"/d/{number}", b"")
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with volume.scandir("/d") as entries, ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda _: [entry.name for entry in entries], range(8)))
    finally:
        sys.setswitchinterval(before)
    names = [name for part in found for name in part]
    assert sorted(names) == sorted(str(number) for number in range(500))


def test_regression_arguments_are_refused_before_a_file_is_emptied(volume):
    volume.write_bytes("/f", b"precious")
    for arguments in [("wb", -1, "utf-8"), ("w", 0), ("wb", -1, None, "strict"), ("ab", -1, None, None, "\n")]:
        with pytest.raises(ValueError):
            volume.open("/f", *arguments)
        assert volume.read_bytes("/f") == b"precious"
    with pytest.raises(ValueError):
        volume.open("/new", "x", 0)
    assert not volume.exists("/new")


@pytest.mark.parametrize("how", ["text", "binary", "raw"])
def test_regression_what_was_detached_is_written_when_the_volume_is_closed(image, how):
    with hectare.open(image, "rw") as volume:
        if how == "text":
            text = volume.open("/f", "w")
            text.write("abc")
            buffered = text.detach()
            buffered.write(b"def")
        else:
            buffered = volume.open("/f", "wb")
            buffered.write(b"abcdef")
            if how == "raw":
                raw = buffered.detach()
    if how == "raw":
        assert raw.closed
    else:
        assert buffered.closed
    with hectare.open(image) as volume:
        assert volume.read_bytes("/f") == b"abcdef"


def test_regression_nothing_is_opened_while_the_volume_is_closed(image):
    volume = hectare.open(image, "rw")
    failed = []

    def late():
        try:
            volume.open("/b", "w")
        except ValueError as error:
            failed.append(error)

    first = volume.open("/a", "wb", 0)
    first.on_close = late
    volume.close()
    assert len(failed) == 1 and volume.closed and first.closed
    with hectare.open(image) as volume:
        assert not volume.exists("/b")


def test_regression_threads_that_a_close_surprises_get_a_value_error(image):
    for _ in range(10):
        volume = hectare.open(image, "rw")
        failed, started = [], threading.Barrier(5)

        def work(number, volume=volume, failed=failed, started=started):
            started.wait()
            try:
                for turn in range(1000):
                    with volume.open(f"/{number}-{turn % 3}", "wb", 0) as file:
                        file.write(b"x" * 5000)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        started.wait()
        time.sleep(0.01)
        volume.close()
        for thread in threads:
            thread.join()
        assert [type(error) for error in failed] == [ValueError] * 4, failed
    e2fsck_clean(image)


def test_regression_volumes_and_files_are_not_copied(volume):
    for one in [volume, volume.open("/f", "w+b", 0)]:
        with pytest.raises(TypeError):
            copy.copy(one)
        with pytest.raises(TypeError):
            pickle.dumps(one)
        assert not one.closed
    volume.write_bytes("/f", b"x")


def test_text_files_have_the_mode_that_was_given(volume):
    for mode in ["w", "r", "a+", "rt"]:
        with volume.open("/f", mode) as file:
            assert file.mode == mode
