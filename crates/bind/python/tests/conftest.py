"""What the tests share: volumes, e2fsprogs, the command; and the record that `cargo xtask python` counts."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import hectare

# e2fsprogs is there for administrators.
TOOLS = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def _e2fsprogs(name, *arguments):
    """Runs a tool of e2fsprogs; skips the test, which is counted, if it is not installed."""
    tool = shutil.which(name, path=TOOLS)
    if tool is None:
        pytest.skip(f"{name} is not installed")
    return subprocess.run([tool, *arguments], capture_output=True, text=True)


def e2fsck_clean(image):
    """Asserts that neither `hectare.check` nor e2fsck finds anything."""
    assert hectare.check(image).problems == []
    done = _e2fsprogs("e2fsck", "-fn", str(image))
    assert done.returncode == 0, done.stdout + done.stderr


def debugfs(image, request):
    """Changes an image by one request to debugfs, which reports errors by words alone."""
    done = _e2fsprogs("debugfs", "-w", "-R", request, str(image))
    said = [line for line in done.stderr.splitlines() if not line.startswith("debugfs 1.")]
    assert done.returncode == 0 and not said, done.stdout + done.stderr


@pytest.fixture
def image(tmp_path):
    """A fresh volume of 64 MiB."""
    path = tmp_path / "disk.img"
    # Blocks of 4 KiB: a file has as much room for attributes as on a usual host.
    hectare.mkfs(path, "64M", label="tests", block_size=4096)
    return path


@pytest.fixture
def volume(image):
    """A fresh volume, open for writing; e2fsck judges what is left of it."""
    with hectare.open(image, "rw") as volume:
        yield volume
    e2fsck_clean(image)


@pytest.fixture
def command_line():
    """The command `hectare` of this workspace."""
    path = os.environ.get("HECTARE_COMMAND")
    if not path or not Path(path).exists():
        pytest.skip("HECTARE_COMMAND names no hectare command")
    return path


@pytest.fixture
def c_library():
    """The library for C of this workspace."""
    path = os.environ.get("HECTARE_C_LIBRARY")
    if not path or not Path(path).exists():
        pytest.skip("HECTARE_C_LIBRARY names no library for C")
    return Path(path)


def pytest_runtest_logreport(report):
    """Appends the outcome of a test, if HECTARE_PYTEST_RECORDS names a file: outcome, name, reason."""
    records = os.environ.get("HECTARE_PYTEST_RECORDS")
    skipped_early = report.when == "setup" and report.outcome == "skipped"
    if not records or not (report.when == "call" or skipped_early or report.outcome == "failed"):
        return
    reason = report.longrepr[2] if report.outcome == "skipped" and isinstance(report.longrepr, tuple) else ""
    line = "\t".join(
        text.replace("\t", " ").replace("\n", " ") for text in (report.outcome, report.nodeid, reason)
    )
    with open(records, "a", encoding="utf-8") as file:
        file.write(line + "\n")
