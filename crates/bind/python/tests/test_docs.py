"""The pages about the package: their programs run, and their lists are complete."""

import dataclasses
import inspect
import re
import tarfile
from pathlib import Path

import pytest

import hectare
from conftest import e2fsck_clean

ROOT = Path(__file__).parents[4]
PAGE, README = ROOT / "docs/python.md", ROOT / "crates/bind/python/README.md"


def text(page):
    if not page.exists():
        pytest.skip(f"{page.name} is not here: this is no checkout")
    return page.read_text(encoding="utf-8")


def programs():
    """The blocks of Python in both pages, by name."""
    for page in (page for page in (PAGE, README) if page.exists()):
        blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)
        for number, block in enumerate(blocks, 1):
            yield pytest.param(block, id=f"{page.name}-{number}")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A directory with the files that the programs speak of, which is the current one."""
    monkeypatch.chdir(tmp_path)
    hectare.mkfs("disk.img", "64M")
    with hectare.open("disk.img", "rw") as volume:
        for name, content in [
            ("/etc/os-release", "ID=none\n"),
            ("/etc/shadow", ""),
            ("/var/log/messages", "an error\n"),
            ("/app.bin", "x" * 3_000_000),
            ("/data/a.csv", "x,y\n1,2\n"),
        ]:
            volume.path(name).parent.mkdir(parents=True, exist_ok=True)
            volume.write_text(name, content)
        try:
            import pandas
            import pyarrow  # noqa: F401
        except ImportError:
            pass
        else:
            with volume.open("/data/a.parquet", "wb") as file:
                pandas.DataFrame({"x": [1], "y": [2]}).to_parquet(file)
    for folder in ("overlay", "rootfs"):
        Path(folder, "etc/app").mkdir(parents=True)
        Path(folder, "etc/app/a.conf").write_text("a")
    Path(folder, "var/log").mkdir(parents=True)
    for name in ("app.tar", "base.tar"):
        with tarfile.open(name, "w") as tar:
            tar.add("rootfs", ".")
    return tmp_path


@pytest.mark.parametrize("program", list(programs()))
def test_programs_run_as_they_are(program, place):
    for needed in ("fsspec", "pandas", "pyarrow"):
        if re.search(rf"^import {needed}\b", program, re.M) or "pandas" in program:
            pytest.importorskip(needed, reason=f"{needed} is not installed")
    exec(compile(program, "a program of the page", "exec"), {"__name__": "__main__"})
    e2fsck_clean(place / "disk.img")


def section(page, heading):
    """What follows a heading, up to the next one of its level."""
    found = re.search(rf"^(#+) {heading}\n(.*?)(?=^\1 |\Z)", text(page), re.M | re.S)
    assert found, heading
    return found[2]


def listed(name):
    """The names in backticks in the first column of the table for a class, or for the module."""
    there = section(PAGE, "What there is")
    table = re.search(rf"^\| (?:module )?`{name}` \|.*?(?=\n\n|\Z)", there, re.M | re.S)
    assert table, name
    return {found for line in table[0].splitlines() for found in re.findall(r"`([\w.]+)`", line.split("|")[1])}


def public(kind):
    """The names that a class of the package makes itself."""
    names = {name for name in vars(kind) if not name.startswith("_")}
    return names | {name for name in inspect.get_annotations(kind) if not name.startswith("_")}


@pytest.mark.parametrize("kind", [hectare.Volume, hectare.VolumePath, hectare.VolumeFile, hectare.DirEntry])
def test_the_list_of_methods_is_complete(kind):
    names = listed(kind.__name__) - {kind.__name__}
    missing = public(kind) - names
    assert not missing
    instance = {"image", "name", "on_close"}  # made by __init__
    assert not {name for name in names if not hasattr(kind, name)} - instance


def test_the_list_of_the_module_is_complete():
    names = listed("hectare")
    assert set(hectare.__all__) <= names
    assert {name for name in names if "." not in name} - {"hectare"} == set(hectare.__all__)


def test_the_lists_of_fields_are_complete():
    rows = dict(re.findall(r"^\| `(\w+)` \| (`.*`) \|$", section(PAGE, "What there is"), re.M))
    reports = [kind for kind in vars(hectare).values() if dataclasses.is_dataclass(kind)]
    assert len(reports) == 9
    for kind in reports:
        properties = {name for name, member in vars(kind).items() if isinstance(member, property)}
        expected = {field.name for field in dataclasses.fields(kind)} | properties
        assert set(re.findall(r"`(\w+)`", rows[kind.__name__])) == expected, kind


def test_everything_public_has_a_docstring():
    for name in hectare.__all__:
        kind = getattr(hectare, name)
        assert inspect.getdoc(kind), name
        if inspect.isclass(kind):
            for member, value in vars(kind).items():
                if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                    assert inspect.getdoc(value), f"{name}.{member}"


def test_codes_of_structures_are_those_of_the_library():
    source = ROOT / "crates/offline/check/src/report.rs"
    body = text(source).split("pub const fn code(self)")[1].split("\n    }\n")[0]
    assert re.findall(r"`(\w+)`", section(PAGE, "Reports of a check").split("are for people.")[1]) == re.findall(
        r'=> "(\w+)"', body
    )


def test_names_of_steps_are_those_of_the_library():
    body = text(ROOT / "crates/hectare/src/watch.rs").split("pub const fn c_name(self)")[1].split("\n    }\n")[0]
    names = set(re.findall(r'=> c"(\w+)"', body))
    assert len(names) > 5 and set(re.findall(r"^\| `(\w+)` \|", section(PAGE, "Progress"), re.M)) == names
    for name in names:
        assert f'"{name}"' in inspect.getdoc(hectare.build)


def test_the_page_of_the_library_leads_here():
    assert "](python.md)" in text(ROOT / "docs/library.md")
