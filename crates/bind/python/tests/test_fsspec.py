"""fsspec, and pandas and pyarrow by it."""

import errno
import os
import pickle
import subprocess

import pytest

import hectare
from conftest import e2fsck_clean

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")


@pytest.fixture
def filled(image):
    """An image with some files, closed."""
    with hectare.open(image, "rw") as volume:
        volume.makedirs("/etc/app")
        volume.write_text("/etc/fstab", "one\ntwo\n")
        volume.write_text("/etc/app/a.csv", "x,y\n1,2\n3,4\n")
        volume.symlink("fstab", "/etc/link")
        volume.symlink("nowhere", "/etc/broken")
    return image


def test_the_entry_point_registers_the_protocol():
    from importlib.metadata import PackageNotFoundError, entry_points, version

    try:
        version("hectare")
    except PackageNotFoundError:
        pytest.skip("hectare is not installed: it runs from its sources")
    found = [point for point in entry_points(group="fsspec.specs") if point.name == "ext4"]
    assert [point.value for point in found] == ["hectare.fsspec:Ext4FileSystem"]
    assert fsspec.get_filesystem_class("ext4").__module__ == "hectare.fsspec"


@pytest.fixture(autouse=True)
def registered():
    from hectare.fsspec import Ext4FileSystem

    fsspec.register_implementation("ext4", Ext4FileSystem, clobber=True)


def test_urls_of_all_forms_open_the_file(filled):
    for url, options in [
        ("ext4://etc/fstab", {"image": str(filled)}),
        ("ext4:///etc/fstab", {"fo": str(filled)}),
        (f"ext4:///etc/fstab::{filled}", {}),
        (f"ext4://etc/fstab::file://{filled}", {}),
        (f"ext4://etc/link::simplecache::file://{filled}", {}),
    ]:
        with fsspec.open(url, "r", **options) as file:
            assert file.read() == "one\ntwo\n", url
    with pytest.raises(ValueError, match="image"):
        fsspec.open("ext4://etc/fstab").open()
    memory = fsspec.filesystem("memory")
    memory.pipe("/disk.img", filled.read_bytes())
    with pytest.raises(ValueError, match="simplecache"):
        fsspec.open("ext4://etc/fstab::memory://disk.img").open()
    with fsspec.open("ext4://etc/fstab::simplecache::memory://disk.img", "rb") as file:
        assert file.read() == b"one\ntwo\n"


def test_files_are_looked_at(filled):
    fs = fsspec.filesystem("ext4", fo=str(filled))
    assert fs.ls("/etc", detail=False) == ["/etc/app", "/etc/broken", "/etc/fstab", "/etc/link"]
    assert fs.ls("etc/fstab")[0]["size"] == 8
    kinds = {info["name"]: info["type"] for info in fs.ls("/etc")}
    assert kinds == {
        "/etc/app": "directory",
        "/etc/broken": "link",
        "/etc/fstab": "file",
        "/etc/link": "file",
    }
    assert fs.info("/etc/link")["destination"] == "fstab" and fs.info("/etc/link")["islink"]
    assert fs.find("/") == ["/etc/app/a.csv", "/etc/broken", "/etc/fstab", "/etc/link"]
    assert fs.glob("/etc/**/*.csv") == ["/etc/app/a.csv"] and fs.glob("etc/f*") == ["/etc/fstab"]
    assert (
        fs.isdir("/etc") and fs.isfile("/etc/link") and not fs.exists("/none") and fs.lexists("/etc/broken")
    )
    assert fs.du("/etc/app") == 12
    assert [top for top, _, _ in fs.walk("/etc")] == ["/etc", "/etc/app"]
    assert fs.cat("/etc/fstab") == b"one\ntwo\n"
    assert (
        fs.cat_file("/etc/fstab", 1, 3),
        fs.cat_file("/etc/fstab", -4),
        fs.cat_file("/etc/fstab", 9, 20),
    ) == (
        b"ne",
        b"two\n",
        b"",
    )
    assert fs.head("/etc/fstab", 3) == b"one" and fs.tail("/etc/fstab", 4) == b"two\n"
    assert fs.modified("/etc/fstab").year >= 2024 and fs.created("/etc/fstab").year >= 2024
    with pytest.raises(FileNotFoundError):
        fs.info("/none")
    again = pickle.loads(pickle.dumps(fs))
    assert again.cat("/etc/fstab") == b"one\ntwo\n"


def test_files_are_written_and_durable_when_closed(filled, tmp_path):
    reading = fsspec.filesystem("ext4", fo=str(filled))
    for change in [
        lambda: reading.open("/x", "wb"),
        lambda: reading.rm("/etc/fstab"),
        lambda: reading.mkdir("/d"),
    ]:
        with pytest.raises(OSError) as failed:
            change()
        assert failed.value.errno == errno.EROFS and "writable=True" in str(failed.value)
    fs = fsspec.filesystem("ext4", fo=str(filled), writable=True)
    with fs.open("/new", "wb") as file:
        file.write(b"12345")
    # Between operations other programs may have the image, and find everything.
    e2fsck_clean(filled)
    assert reading.cat("/new") == b"12345"
    fs.pipe("/piped", b"p")
    with fs.open("/piped", "ab") as file:
        file.write(b"q")
    with fs.open("/text", "w") as file:
        file.write("\u00e9")
    assert fs.cat("/piped") == b"pq" and fs.read_text("/text") == "\u00e9"
    fs.mkdir("/d/e")
    fs.makedirs("/d/e", exist_ok=True)
    fs.cp("/new", "/d/e/copy")
    fs.mv("/piped", "/d/moved")
    fs.touch("/d/empty")
    fs.cp("/d", "/copy", recursive=True)
    assert fs.find("/copy") == ["/copy/e/copy", "/copy/empty", "/copy/moved"]
    with pytest.raises(IsADirectoryError):
        fs.rm("/copy")
    fs.rm("/copy", recursive=True)
    fs.rm("/d/e/c*")
    assert not fs.exists("/copy") and fs.find("/d") == ["/d/empty", "/d/moved"]
    (tmp_path / "host").mkdir()
    fs.get("/etc", str(tmp_path / "host/etc"), recursive=False)
    fs.get("/etc/app", str(tmp_path / "host"), recursive=True)
    fs.put(str(tmp_path / "host"), "/", recursive=True)
    assert fs.cat("/host/app/a.csv") == b"x,y\n1,2\n3,4\n"
    with pytest.raises(NotImplementedError), fs.transaction:
        fs.open("/x", "wb")
    e2fsck_clean(filled)


def test_a_context_keeps_the_image(filled):
    with fsspec.filesystem("ext4", fo=str(filled), writable=True) as fs:
        fs.pipe("/a", b"1")
        with pytest.raises(OSError):
            hectare.open(filled)
        with fs.open("/b", "wb") as file:
            file.write(b"2")
        assert fs.cat(["/a", "/b"]) == {"/a": b"1", "/b": b"2"}
    e2fsck_clean(filled)


def test_an_open_volume_is_used_as_it_is(volume):
    fs = fsspec.filesystem("ext4", fo=volume, skip_instance_cache=True)
    fs.pipe("/a", b"1")
    assert volume.read_bytes("/a") == b"1" and not volume.closed


def test_filesystems_of_two_volumes_are_two(image):
    with hectare.open(image) as volume:
        first = fsspec.filesystem("ext4", fo=volume)
    with hectare.open(image) as volume:
        second = fsspec.filesystem("ext4", image=volume)
        assert second is not first and second.ls("/", detail=False) == ["/lost+found"]
        with pytest.raises(ValueError):
            first.ls("/")


def test_what_others_change_is_seen(filled):
    fs = fsspec.filesystem("ext4", fo=str(filled))
    assert fsspec.filesystem("ext4", fo=str(filled)) is fs and not fs.exists("/new")
    with hectare.open(filled, "rw") as volume:
        volume.write_text("/new", "new")
        volume.write_text("/etc/fstab", "changed")
        with pytest.raises(OSError) as failed:
            fs.ls("/")
        assert failed.value.errno == errno.EBUSY
    assert fs.ls("/", detail=False) == ["/etc", "/lost+found", "/new"] and fs.cat("/etc/fstab") == b"changed"


def test_paths_begin_with_a_slash_whatever_was_given(filled):
    fs = fsspec.filesystem("ext4", fo=str(filled))
    for path in ("etc", "/etc", "/etc/", "ext4://etc", "ext4:///etc"):
        assert fs.ls(path, detail=False)[:2] == ["/etc/app", "/etc/broken"]
        assert fs.find(path)[0] == "/etc/app/a.csv"
    assert fs.ls("/etc/fstab")[0]["name"] == "/etc/fstab"


def test_get_keeps_content_alone(filled, tmp_path):
    with hectare.open(filled, "rw") as volume:
        volume.remove("/etc/broken")
        volume.chmod("/etc/fstab", 0o600)
        volume.utime("/etc/fstab", (1, 1))
    out = tmp_path / "out"
    fs = fsspec.filesystem("ext4", fo=str(filled))
    fs.get("/etc", str(out), recursive=True)
    assert (out / "link").read_text() == "one\ntwo\n" and not (out / "link").is_symlink()
    assert (out / "fstab").stat().st_mtime > 1
    with hectare.open(filled) as volume:
        volume.copy_out("/etc", tmp_path / "copy")
    assert (tmp_path / "copy/link").is_symlink()
    found = (tmp_path / "copy/fstab").stat()
    assert found.st_mtime == 1 and found.st_mode & 0o777 == 0o600


def test_pandas_reads_and_writes_csv(filled):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.read_csv("ext4://etc/app/a.csv", storage_options={"image": str(filled)})
    assert frame.to_dict("list") == {"x": [1, 3], "y": [2, 4]}
    assert pandas.read_csv(f"ext4:///etc/app/a.csv::{filled}").equals(frame)
    options = {"image": str(filled), "writable": True}
    frame.to_csv("ext4://out.csv.gz", index=False, storage_options=options)
    assert pandas.read_csv("ext4://out.csv.gz", storage_options=options).equals(frame)
    e2fsck_clean(filled)


def test_pandas_and_pyarrow_read_and_write_parquet(filled):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    import pyarrow.dataset as datasets
    import pyarrow.parquet as parquet

    options = {"image": str(filled), "writable": True}
    frame = pandas.DataFrame({"x": range(10_000), "y": [str(n) for n in range(10_000)]})
    frame.to_parquet("ext4://data.parquet", storage_options=options)
    read = pandas.read_parquet("ext4://data.parquet", storage_options={"image": str(filled)})
    assert read.x.tolist() == frame.x.tolist() and read.y.tolist() == frame.y.tolist()
    fs = fsspec.filesystem("ext4", fo=str(filled), writable=True)
    assert parquet.read_table("/data.parquet", filesystem=fs, columns=["x"]).num_rows == 10_000
    fs.mkdir("/parts")
    table = parquet.read_table("/data.parquet", filesystem=fs)
    parquet.write_to_dataset(table.slice(0, 100), "/parts", filesystem=fs)
    parquet.write_to_dataset(table.slice(100, 200), "/parts", filesystem=fs)
    assert datasets.dataset("/parts", filesystem=fs).count_rows() == 300
    with hectare.open(filled) as volume, volume.open("/data.parquet", "rb") as file:
        assert parquet.read_table(file).num_rows == 10_000
    e2fsck_clean(filled)


def test_the_command_line_reads_what_fsspec_wrote(filled, command_line):
    with fsspec.open("ext4://out", "wb", image=str(filled), writable=True) as file:
        file.write(b"from fsspec")
    said = subprocess.run([command_line, "cat", f"{filled}:/out"], capture_output=True, check=True)
    assert said.stdout == b"from fsspec"


def test_regression_files_have_a_size(filled):
    fs = fsspec.filesystem("ext4", fo=str(filled))
    assert fs.read_block("/etc/fstab", 2, 4) == b"e\ntw"
    with fs.open("/etc/fstab") as file:
        assert file.size == 8 and file.tell() == 0


def test_regression_moves_go_into_directories_as_local_ones_do(filled, tmp_path):
    def moved(fs, root):
        fs.makedirs(root + "/d/empty")
        fs.makedirs(root + "/e")
        for name in ["f", "g", "d/g"]:
            fs.pipe(f"{root}/{name}", name.encode())
        failed = []
        for source, target in [("f", "d/"), ("g", "d"), ("e", "d/empty"), ("g", "new/deep/g"), ("no", "d")]:
            try:
                fs.mv(f"{root}/{source}", f"{root}/{target}")
            except OSError:  # shutil's own has no number
                failed.append(source)
        return failed, sorted(name.removeprefix(root) for name in fs.find(root, withdirs=True))

    ours = moved(fsspec.filesystem("ext4", fo=str(filled), writable=True), "/m")
    assert ours == moved(fsspec.filesystem("file", auto_mkdir=True), str(tmp_path / "m"))
    assert ours[0] == ["g", "no"]


def test_regression_links_to_directories_were_entered(image, tmp_path):
    with hectare.open(image, "rw") as volume:
        volume.makedirs("/bin")
        volume.write_bytes("/bin/p", b"x" * 1000)
        for name in ("up", "too"):
            volume.symlink(".", f"/bin/{name}")
        volume.symlink("p", "/bin/file")
    fs = fsspec.filesystem("ext4", fo=str(image))
    assert fs.find("/bin") == ["/bin/file", "/bin/p", "/bin/too", "/bin/up"]
    assert fs.glob("/bin/**") == ["/bin", "/bin/file", "/bin/p", "/bin/too", "/bin/up"]
    # `info` follows, and so does `du`: a link counts as what it leads to, once.
    assert fs.du("/bin") == 2 * 1000 + 2 * 4096 and len(list(fs.walk("/bin"))) == 1
    assert {info["name"]: info["type"] for info in fs.ls("/bin")}["/bin/up"] == "link"
    assert fs.info("/bin/up")["type"] == "directory" and fs.isdir("/bin/up")
    fs.get("/bin", str(tmp_path / "out"), recursive=True)
    assert (tmp_path / "out/file").read_bytes() == b"x" * 1000 and os.listdir(tmp_path / "out/up") == []
