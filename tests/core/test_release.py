"""What is installed for the demo and the tests is pinned with sha256 sums; the wheel is reproducible and its parts are listed."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import dist
import llamath
import lock
from llamath.native import build
from llamath.native.build import find_compiler
from native.kernel_library import Library

ROOT = Path(__file__).parents[2]


def test_package_has_the_version_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert llamath.__version__ == project["version"]


def test_lock_files_cover_the_project() -> None:
    assert lock.problems() == [], "run `make lock`"


@pytest.mark.parametrize("name", sorted(lock.wanted()))
def test_lock_files_pin_one_version_with_sums(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    assert "://" not in text, "no lock file names a host"
    pins = lock.read_lock(name)
    assert pins and all(x.sums for x in pins.values())
    everything = lock.read_lock("test")
    assert all(everything[x.name] == x for x in pins.values() if x.name in everything), (
        "files disagree"
    )


def test_missing_and_outdated_pins_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in lock.wanted():
        text = (ROOT / "requirements" / f"{name}.txt").read_text()
        text = re.sub(r"(?m)^torch==\S+", "torch==1.0", text)
        (tmp_path / f"{name}.txt").write_text(re.sub(r"(?m)^pytest==.*\n", "", text))
    monkeypatch.setattr(lock, "FOLDER", tmp_path)
    found = lock.problems()
    assert "requirements/test.txt lacks pytest" in found
    assert any(x.startswith("requirements/test.txt has torch 1.0, constraints.txt ") for x in found)


def test_build_requirements_are_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    required = lock.pinned_build()
    assert required and all(written == right for written, right in required.items())
    needs = importlib.metadata.requires("hatchling") or ()
    names = {re.split(r"[ <>=!~;]", x)[0] for x in needs if "python_version <" not in x}
    assert {"hatchling", *names} == {x.partition("==")[0] for x in required}, (
        "what hatchling needs is pinned as well"
    )
    loose = {"build-system": {"requires": ["hatchling", "pluggy==1.0"]}}
    settings = {**lock.project(), **loose}
    monkeypatch.setattr(lock, "project", lambda: settings)
    assert [x for x in lock.problems() if "hatchling, requirements" in x] and [
        x for x in lock.problems() if "pluggy==1.0" in x
    ]


@pytest.mark.slow
def test_wheel_is_built_and_its_parts_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Built once and without optimizing, and before a release twice, as by `make dist`."""
    pytest.importorskip("hatchling")
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone of the repository")
    monkeypatch.setenv("LLAMATH_NATIVE", "own")  # `make wheels` compiles every instruction set
    source = dist.git("archive", "--format=tar", "HEAD")
    builds = dist.CIRCUMSTANCES
    if not request.config.getoption("all"):
        builds = builds[:1]
        if compiler := find_compiler():
            fast = tmp_path / "c++"
            fast.write_text(f'#!/bin/sh\nexec {compiler} "$@" -O0\n')
            fast.chmod(0o755)
            monkeypatch.setenv("CXX", str(fast))
    first, *others = (
        dist.build(source, 1_700_000_000, tmp_path / x["TZ"].partition("/")[0], x) for x in builds
    )
    for x in others:
        assert first.name == x.name and first.read_bytes() == x.read_bytes()
    with zipfile.ZipFile(first) as file:
        names = [x for x in file.namelist() if ".dist-info/" not in x]
        assert {x.date_time[0] for x in file.infolist()} == {2023}
    package = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", "HEAD", "src"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    library = ["llamath/native/libllamath.so"] if find_compiler() else []
    for name in library:  # of one instruction set, with the reference beside it
        with zipfile.ZipFile(first) as file:
            own = Library(Path(file.extract(name, tmp_path)))
        paths = [own("path_name", i).decode() for i in range(own("num_paths"))]
        assert paths == ["reference", *build.own_paths()]
        own.close()
    sources = [f"llamath/{x.relative_to(ROOT).as_posix()}" for x in build.sources()]
    package = [x.removeprefix("src/") for x in package.split()]
    assert "llamath/native/kernels/path.cpp" in sources
    assert sorted(names) == sorted([*library, *sources, *package])
    assert ("-any" in first.name) == (not library)

    model = ROOT / "src" / "llamath" / "embedded" / "model.safetensors"
    bill = dist.bill_of_materials(first, 1_700_000_000, model)
    assert all(bill == dist.bill_of_materials(x, 1_700_000_000, model) for x in others)
    scopes = {x["name"]: x.get("scope") for x in bill["components"]}
    assert (
        scopes["click"] == "required" and scopes["torch"] == scopes["huggingface-hub"] == "optional"
    )
    locked = json.loads((ROOT / "web" / "package-lock.json").read_text())["packages"]
    scripts = {x["name"]: x for x in bill["components"] if x["bom-ref"].startswith("pkg:npm/")}
    assert {
        *json.loads((ROOT / "web" / "package.json").read_text())["dependencies"],
        "@dagrejs/graphlib",
    } <= set(scripts)
    for name, found in scripts.items():
        assert found["version"] == locked[f"node_modules/{name}"]["version"]
        assert found["licenses"] == [{"expression": locked[f"node_modules/{name}"]["license"]}]
    runtime = {x["name"] for x in bill["components"] if x["bom-ref"].startswith("pkg:generic/")}
    assert runtime == (
        {"libstdc++", "libgcc"} if find_compiler() and sys.platform != "darwin" else set()
    )
    assert scopes["ziglang"] == "required"
    assert {x["bom-ref"] for x in bill["components"]} | {
        bill["metadata"]["component"]["bom-ref"]
    } == {x["ref"] for x in bill["dependencies"]}
    assert all(x["hashes"] and x["licenses"] for x in bill["components"])
    validation = pytest.importorskip("cyclonedx.validation.json")
    from cyclonedx.schema import SchemaVersion

    assert validation.JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bill)) is None
