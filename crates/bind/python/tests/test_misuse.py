"""What Python can get wrong at the border: an exception each, and nothing else.

Closed handles, forks, threads that close and NUL in paths are in `test_errors.py`, modes in `test_files.py`.
"""

import array
import errno
import gc
import io
import os
import subprocess
import sys
import threading

import pytest

import hectare
from hectare import _native

HUGE = [1 << 63, 1 << 64, 1 << 200]


@pytest.fixture
def file(volume):
    """An unbuffered file with 100 bytes, open for both."""
    volume.write_bytes("/f", bytes(range(100)))
    with volume.open("/f", "r+b", buffering=0) as file:
        yield file


PATH_CALLS = {
    "open": lambda v, p: v.open(p),
    "read_bytes": lambda v, p: v.read_bytes(p),
    "write_bytes": lambda v, p: v.write_bytes(p, b""),
    "truncate": lambda v, p: v.truncate(p, 0),
    "copy from": lambda v, p: v.copy(p, "/to"),
    "copy to": lambda v, p: v.copy("/f", p),
    "extents": lambda v, p: v.extents(p),
    "listdir": lambda v, p: v.listdir(p),
    "scandir": lambda v, p: v.scandir(p),
    "walk": lambda v, p: list(v.walk(p)),
    "mknod": lambda v, p: v.mknod(p),
    "copy_out": lambda v, p: v.copy_out(p, "/nonexistent/hectare/out"),
    "copy_in": lambda v, p: v.copy_in("/", p, ignore=lambda _, names: names),
    "mkdir": lambda v, p: v.mkdir(p),
    "makedirs": lambda v, p: v.makedirs(p),
    "remove": lambda v, p: v.remove(p),
    "rmdir": lambda v, p: v.rmdir(p),
    "rmtree": lambda v, p: v.rmtree(p),
    "rename from": lambda v, p: v.rename(p, "/to"),
    "rename to": lambda v, p: v.rename("/f", p),
    "link from": lambda v, p: v.link(p, "/to"),
    "link to": lambda v, p: v.link("/f", p),
    "symlink at": lambda v, p: v.symlink("f", p),
    "readlink": lambda v, p: v.readlink(p),
    "realpath": lambda v, p: v.realpath(p),
    "stat": lambda v, p: v.stat(p),
    "lstat": lambda v, p: v.lstat(p),
    "chmod": lambda v, p: v.chmod(p, 0o600),
    "chown": lambda v, p: v.chown(p, 1, 1),
    "utime": lambda v, p: v.utime(p, ns=(1, 1)),
    "getxattr": lambda v, p: v.getxattr(p, "user.a"),
    "setxattr": lambda v, p: v.setxattr(p, "user.a", b""),
    "listxattr": lambda v, p: v.listxattr(p),
    "removexattr": lambda v, p: v.removexattr(p, "user.a"),
}


@pytest.mark.parametrize("name", PATH_CALLS)
def test_every_call_refuses_what_is_no_path(volume, name):
    volume.write_bytes("/f", b"")

    class Raises:
        def __fspath__(self):
            raise KeyError("mine")

    call = PATH_CALLS[name]
    for wrong in [5, None, object(), bytearray(b"/f"), ["/f"]]:
        with pytest.raises(TypeError):
            call(volume, wrong)
    for path in ["/a\0b", b"/a\0b", "\0"]:
        with pytest.raises(ValueError, match="null"):
            call(volume, path)
    with pytest.raises(KeyError, match="mine"):
        call(volume, Raises())
    with pytest.raises(UnicodeEncodeError):
        call(volume, "/\ud800")  # a surrogate that stands for no byte
    volume.remove("/f")


@pytest.mark.parametrize("name", [name for name in PATH_CALLS if name not in ("walk",)])
def test_every_call_raises_on_a_closed_volume(image, name):
    with hectare.open(image, "rw") as volume:
        pass
    with pytest.raises(ValueError, match="closed"):
        PATH_CALLS[name](volume, "/f")


def test_numbers_that_are_too_large_or_negative(volume, file):
    for number in HUGE:
        for call in [
            lambda: file.pread(1, number),
            lambda: file.pwrite(b"x", number),
            lambda: file.seek(number),
            lambda: file.truncate(number),
            lambda: file.read(number),
            lambda: volume.truncate("/f", number),
            lambda: volume.chown("/f", number, 0),
            lambda: volume.chmod("/f", number),
            lambda: volume.mkdir("/d", number),
        ]:
            with pytest.raises((OverflowError, OSError, ValueError, MemoryError)):
                call()
    for call in [
        lambda: file.pread(1, -1),
        lambda: file.pread(-1, 0),
        lambda: file.pwrite(b"x", -1),
        lambda: file.seek(-1),
        lambda: file.seek(0, 77),
        lambda: file.truncate(-1),
        lambda: volume.truncate("/f", -1),
    ]:
        with pytest.raises((OverflowError, OSError, ValueError)):
            call()
    # The end of what a file may have.
    with pytest.raises(OSError) as failed:
        file.pwrite(b"x", (1 << 62) + 1)
    assert failed.value.errno == errno.EFBIG
    assert file.readall() == bytes(range(100)) and volume.stat("/f").st_size == 100
    for size in [-1, 1 << 64, "5X", "", None, 1.5]:
        with pytest.raises((OverflowError, ValueError, TypeError, OSError)):
            hectare.mkfs("never.img", size)
    assert not os.path.exists("never.img")


def test_buffers_that_don_t_fit_are_refused(file):
    for wrong in [b"bytes", memoryview(b"bytes"), "text", 5, None, [1, 2]]:
        with pytest.raises((TypeError, BufferError)):
            file.readinto(wrong)
    for wrong in ["text", 5, None, [1, 2]]:
        with pytest.raises((TypeError, BufferError)):
            file.write(wrong)
    gaps = memoryview(bytearray(20))[::2]
    for call in [file.readinto, file.write]:
        with pytest.raises((BufferError, ValueError)):
            call(gaps)
    released = memoryview(bytearray(20))
    released.release()
    for call in [file.readinto, file.write]:
        with pytest.raises(ValueError):
            call(released)
    numbers = array.array("d", [0.0] * 5)
    file.seek(0)
    assert file.readinto(numbers) == 40 and numbers.tobytes() == bytes(range(40))
    assert file.readinto(bytearray()) == 0 and file.write(b"") == 0


def test_a_buffer_stays_where_it_is_while_it_is_used(volume, file):
    """Another thread tries to resize it during calls: that raises BufferError, or comes before or after."""
    buffer, done, refused = bytearray(1 << 20), threading.Event(), 0
    volume.write_bytes("/big", bytes(1 << 20))

    def resize():
        nonlocal refused
        while not done.is_set():
            try:
                buffer.append(0)
                buffer.pop()
            except BufferError:
                refused += 1

    thread = threading.Thread(target=resize)
    thread.start()
    try:
        with volume.open("/big", "rb", buffering=0) as big:
            for _ in range(100):
                big.seek(0)
                assert big.readinto(buffer) == 1 << 20
    finally:
        done.set()
        thread.join()


def test_a_buffer_that_calls_back(volume, file):
    """Python code that runs in the middle of a call: it may use and even close what the call is of."""

    class Closes(list):
        def __index__(self):
            file.close()
            return 5

    with pytest.raises((ValueError, TypeError)):
        file.pread(Closes(), 0)
    assert volume.read_bytes("/f") == bytes(range(100))


def test_what_is_closed_twice_and_used_afterwards(volume, file):
    view = io.BufferedReader(file)
    assert view.read(3) == b"\0\1\2"
    file.close()
    file.close()
    for call in [
        lambda: file.readinto(bytearray(1)),
        lambda: file.read(1),
        file.readall,
        lambda: file.write(b"x"),
        lambda: file.pread(1, 0),
        lambda: file.pwrite(b"x", 0),
        lambda: file.seek(0),
        file.tell,
        lambda: file.truncate(0),
        file.sync,
        file.stat,
        file.readable,
        file.writable,
        file.seekable,
        file.__enter__,
        lambda: view.read(200),
        lambda: next(iter(file)),
    ]:
        with pytest.raises(ValueError):
            call()
    with pytest.raises((io.UnsupportedOperation, ValueError)):
        file.fileno()
    entries = volume.scandir("/")
    entries.close()
    entries.close()
    assert list(entries) == []


def test_native_objects_are_not_made_by_hand():
    with pytest.raises(TypeError):
        _native.File()
    with pytest.raises(TypeError):
        _native.Volume()


def test_threads_share_a_listing_and_a_position(volume):
    for number in range(300):
        volume.write_bytes(f"/n{number}", b"")
    volume.write_bytes("/f", bytes(50_000))
    listing, names, wrong = volume.scandir("/"), [], []
    with volume.open("/f", "rb", buffering=0) as file:
        counts = []

        def work():
            try:
                counts.append(sum(len(part) for part in iter(lambda: file.read(7), b"")))
                for entry in listing:
                    names.append(entry.name)
            except ValueError as error:
                # A generator runs in one thread at a time, as that of os.
                if "already executing" not in str(error):
                    wrong.append(error)
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == [] and len(names) == len(set(names)) and sum(counts) == 50_000


def test_threads_that_close_the_same(image):
    for _ in range(20):
        volume = hectare.open(image, "rw")
        file = volume.open("/f", "wb", buffering=0)
        file.write(b"x" * 100_000)
        started, wrong = threading.Barrier(4), []

        def close(volume=volume, file=file, started=started, wrong=wrong):
            started.wait()
            try:
                file.close()
                volume.close()
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=close) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        with hectare.open(image) as again:
            assert again.stat("/f").st_size == 100_000


def test_the_interpreter_ends_while_threads_work(image):
    program = (
        "import sys, threading, hectare\n"
        "v = hectare.open(sys.argv[1], 'rw')\n"
        "v.write_bytes('/kept', b'kept')\n"
        "v.sync()\n"
        "def work(n):\n"
        "    while True:\n"
        "        try: v.write_bytes(f'/{n}', b'x' * 50_000)\n"
        "        except ValueError: return\n"
        "for n in range(4): threading.Thread(target=work, args=(n,), daemon=True).start()\n"
    )
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", program, str(image)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        with hectare.open(image) as volume:
            assert volume.read_bytes("/kept") == b"kept"
        assert hectare.check(image).problems == []


def test_cycles_are_collected(image):
    class Holder:
        pass

    for _ in range(10):
        holder = Holder()
        holder.volume = hectare.open(image)
        holder.file = holder.volume.path("/")
        holder.me = holder
        holder.volume.close()
        del holder
        gc.collect()
    with hectare.open(image, "rw"):
        pass  # nothing holds the lock
