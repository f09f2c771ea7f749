"""Long calls: progress, Ctrl-C, and what a cancelled call leaves."""

import os
import signal
import subprocess
import sys
import threading

import pytest

import hectare
from conftest import e2fsck_clean


@pytest.fixture
def tree(tmp_path):
    """Some thousand files."""
    root = tmp_path / "tree"
    for number in range(3000):
        folder = root / f"d{number // 500}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f{number}").write_bytes(os.urandom(3000))
    return root


def test_progress_is_reported_in_the_thread_that_calls(tree, tmp_path):
    seen, threads = [], set()

    def progress(step, done, total):
        seen.append((step, done, total))
        threads.add(threading.get_ident())

    image = tmp_path / "disk.img"
    hectare.build(tree, image, progress=progress)
    hectare.mkfs(tmp_path / "empty.img", "64M", progress=progress)
    hectare.check(image, progress=progress)
    assert len(seen) >= 3 and threads == {threading.get_ident()}
    for step, done, total in seen:
        assert isinstance(step, str) and done >= 0 and (total is None or done <= total)
    e2fsck_clean(image)


def test_what_progress_raises_ends_the_call(tree, tmp_path):
    image = tmp_path / "disk.img"

    def progress(step, done, total):
        raise KeyError(step)

    for call in [
        lambda: hectare.build(tree, image, replace=True, progress=progress),
        lambda: hectare.mkfs(image, "64M", replace=True, progress=progress),
    ]:
        image.write_bytes(b"precious")
        with pytest.raises(KeyError):
            call()
        assert image.read_bytes() == b"precious"
    assert sorted(os.listdir(tmp_path)) == ["disk.img", "tree"]


def test_ctrl_c_ends_a_build_and_leaves_nothing(tmp_path):
    # A source that is large enough to be at work when the signal comes: the first progress sends it.
    source = tmp_path / "source"
    source.mkdir()
    for number in range(64):
        with open(source / f"f{number}", "wb") as file:
            file.write(os.urandom(1 << 20))
    program = (
        "import os, signal, sys, hectare\n"
        # It is ignored where the tests were started in the background.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "first = [True]\n"
        "def progress(*_):\n"
        "    if first.pop() if first else False: os.kill(os.getpid(), signal.SIGINT)\n"
        "try:\n"
        "    for number in range(200):\n"
        "        hectare.build([sys.argv[2]], sys.argv[1], replace=True, progress=progress)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    image = tmp_path / "disk.img"
    words = [sys.executable, "-c", program, image, source]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr
    if image.exists():
        e2fsck_clean(image)
    assert sorted(os.listdir(tmp_path)) in (["source"], ["disk.img", "source"])


def test_a_signal_without_progress_is_seen(tmp_path):
    """A handler of the program's own runs while the call does."""
    seen = []
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    try:
        for number in range(100):
            hectare.mkfs(tmp_path / f"{number}.img", "256M")
            if seen:
                break
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert seen
