"""Making images: of sources, and empty ones."""

import errno
import hashlib
import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

import hectare
from conftest import e2fsck_clean

EPOCH = 1_700_000_000


@pytest.fixture
def tree(tmp_path):
    """A directory with everything."""
    root = tmp_path / "rootfs"
    (root / "etc/app").mkdir(parents=True)
    (root / "etc/hostname").write_text("box\n")
    (root / "etc/app/data").write_bytes(os.urandom(300_000))
    (root / "etc/link").symlink_to("hostname")
    os.link(root / "etc/hostname", root / "etc/second")
    (root / "skipped.o").write_bytes(b"object")
    with open(root / "sparse", "wb") as file:
        file.truncate(10 << 20)
    for number in range(300):
        (root / "etc/app" / f"file{number:03}").write_text(str(number) * number)
    return root


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("size", ["min", None, "64M"])
def test_the_bytes_are_those_of_the_command_line(tree, tmp_path, command_line, size):
    ours, theirs = tmp_path / "ours.img", tmp_path / "theirs.img"
    words = [command_line, "build", "--from", tree, "--exclude", "*.o", "--owner", "5:6", "-L", "root"]
    words += [] if size is None else ["--size", size]
    subprocess.run([*words, theirs], check=True, env={**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)})
    report = hectare.build(
        [tree], ours, size=size, exclude=["*.o"], owner="5:6", label="root", source_date_epoch=EPOCH
    )
    assert digest(ours) == digest(theirs)
    assert report.size == ours.stat().st_size and report.files == 303 and report.symlinks == 1
    assert report.warnings == []
    e2fsck_clean(ours)


def test_c_python_and_the_command_line_make_the_same_bytes(tree, tmp_path, command_line, c_library):
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no compiler for C")
    (tmp_path / "libhectare.so").symlink_to(c_library)
    (tmp_path / "libhectare.so.0").symlink_to(c_library)
    program, capi = tmp_path / "build", Path(__file__).parents[4] / "crates/bind/capi"
    compile_it = [compiler, "-std=c11", "-D_GNU_SOURCE", f"-I{capi}/include", f"-L{tmp_path}"]
    subprocess.run([*compile_it, "-o", program, capi / "examples/build.c", "-lhectare"], check=True)
    archive = tmp_path / "more.tar"
    with tarfile.open(archive, "w") as tar:
        member = tarfile.TarInfo("etc/added")
        member.size, member.mtime = 4, EPOCH - 7
        tar.addfile(member, io.BytesIO(b"new\n"))
    images = [tmp_path / name for name in ("c.img", "python.img", "command.img")]
    options = ["-s", "min", "-e", str(EPOCH), "-L", "root", "-u", "5:6", "-x", "*.o", "-O", "^has_journal"]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    subprocess.run([program, *options, images[0], tree, archive], check=True, env=environment)
    more = {"label": "root", "owner": "5:6", "exclude": ["*.o"], "features": "^has_journal"}
    hectare.build([tree, archive], images[1], size="min", source_date_epoch=EPOCH, **more)
    words = ["--size", "min", "-L", "root", "--owner", "5:6", "--exclude", "*.o", "-O", "^has_journal"]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)}
    sources = ["--from", tree, "--from", archive]
    subprocess.run([command_line, "build", *sources, *words, images[2]], check=True, env=environment)
    assert len({digest(image) for image in images}) == 1
    e2fsck_clean(images[0])


def test_the_environment_makes_images_reproducible(tree, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(EPOCH))
    images = [tmp_path / name for name in ("a.img", "b.img")]
    for image in images:
        hectare.build(tree, image, size="min")
    assert digest(images[0]) == digest(images[1])
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(ValueError):
        hectare.build(tree, tmp_path / "c.img")


def test_an_image_holds_its_sources(tree, tmp_path):
    archive = tmp_path / "more.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        member = tarfile.TarInfo("etc/hostname")
        member.size = 4
        tar.addfile(member, io.BytesIO(b"new\n"))
    image = tmp_path / "disk.img"
    report = hectare.build([tree, archive], image, free="8M", owner=(1000, 1000))
    assert report.free >= 8 << 20
    with hectare.open(image) as volume:
        assert volume.read_text("/etc/hostname") == "new\n"
        assert volume.read_bytes("/etc/app/data") == (tree / "etc/app/data").read_bytes()
        assert volume.stat("/etc/app/data").st_uid == 1000
        assert volume.stat("/sparse").st_size == 10 << 20 and volume.stat("/sparse").st_blocks == 0
    e2fsck_clean(image)


def test_what_can_t_be_built_is_said(tree, tmp_path):
    image = tmp_path / "disk.img"
    with pytest.raises(FileNotFoundError) as failed:
        hectare.build([tmp_path / "none"], image)
    assert failed.value.filename == str(tmp_path / "none")
    with pytest.raises(OSError) as failed:
        hectare.build([tree], image, size="64K")
    assert failed.value.filename == str(image)
    assert not image.exists()
    for wrong in [{"owner": "root"}, {"size": "5X"}, {"size": "1M", "free": "1M"}, {"exclude": ["[a"]}]:
        with pytest.raises(ValueError):
            hectare.build([tree], image, **wrong)
    with pytest.raises(ValueError):
        hectare.build([], image)
    image.write_text("precious")
    for make in (
        lambda **more: hectare.build([tree], image, **more),
        lambda **more: hectare.mkfs(image, "8M", **more),
    ):
        with pytest.raises(FileExistsError):
            make()
        assert image.read_text() == "precious"
    hectare.build([tree], image, replace=True)
    e2fsck_clean(image)


def test_volumes_are_made_as_asked(tmp_path):
    image = tmp_path / "disk.img"
    uuid = "12345678-9abc-4def-8123-456789abcdef"
    hectare.mkfs(
        image,
        16 << 20,
        label="data",
        fs_type="ext3",
        block_size=1024,
        features="^resize_inode",
        uuid=uuid,
        reserved_percent=0,
        root_owner=(3, 4),
    )
    with hectare.open(image) as volume:
        assert (volume.label, str(volume.uuid)) == ("data", uuid)
        assert volume.space().block_size == 1024 and volume.space().free == volume.space().available
        assert (volume.stat("/").st_uid, volume.stat("/").st_gid) == (3, 4)
    e2fsck_clean(image)
    for wrong in [{"fs_type": "ext5"}, {"block_size": 5000}, {"uuid": "x"}]:
        with pytest.raises(ValueError):
            hectare.mkfs(tmp_path / "wrong.img", "16M", **wrong)
    with pytest.raises(OSError) as failed:
        hectare.mkfs(tmp_path / "wrong.img", "16M", features="no_such_feature")
    assert failed.value.errno == errno.EINVAL and "no_such_feature" in str(failed.value)
    with pytest.raises(OSError):
        hectare.mkfs(tmp_path / "wrong.img", 0)
    assert not (tmp_path / "wrong.img").exists()


def test_regression_one_pattern_is_no_list_of_letters(tmp_path, image):
    (tmp_path / "from").mkdir()
    for name in ["a.py", "b.txt"]:
        (tmp_path / "from" / name).write_text("x")
    for exclude in ["*.py", b"*.py", ["*.py"]]:
        hectare.build(tmp_path / "from", image, exclude=exclude, replace=True)
        with hectare.open(image) as volume:
            assert sorted(volume.listdir("/")) == ["b.txt", "lost+found"]
