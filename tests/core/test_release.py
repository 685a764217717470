"""What is installed for the demo and the tests is pinned with sha256 sums; the wheel is reproducible and its parts are listed."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

import dist
import llamath
import lock
import package_files
import zig_compiler
from kernel_library import Library
from llamath.cli.command_group import COMMANDS
from llamath_native import build
from llamath_native.build import find_compiler

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
    monkeypatch.setattr(lock, "project", lambda _="": settings)
    assert [x for x in lock.problems() if "hatchling, requirements" in x] and [
        x for x in lock.problems() if "pluggy==1.0" in x
    ]


def test_man_page_and_completions_are_those_of_the_commands() -> None:
    stale = [x.name for x, text in package_files.files().items() if x.read_text("utf-8") != text]
    assert not stale, "run `python tools/package_files.py`"
    page = (ROOT / "packaging" / "llamath.1").read_text("utf-8")
    assert all(f".SS {name}\n" in page for name in COMMANDS)
    hostile = package_files.roff(".so /etc/passwd\n\\fB'x\n'y")
    assert not re.search(r"(?m)^[.']|\\f", hostile)
    if shutil.which("groff"):
        command = [
            "groff",
            "-man",
            "-Tutf8",
            "-Kutf8",
            "-ww",
            "-z",
            ROOT / "packaging" / "llamath.1",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert not done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("shell", sorted(package_files.SHELLS))
def test_completion_is_a_script_of_its_shell(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    path = ROOT / "packaging" / package_files.SHELLS[shell]
    subprocess.run([shell, "-n", path], check=True)


def test_formula_names_the_wheel_and_its_sum() -> None:
    formula = package_files.formula("llamath-1.0-py3-none-any.whl", "0" * 64)
    assert formula.count("llamath-1.0-py3-none-any.whl") == 2 and f'sha256 "{"0" * 64}"' in formula
    if shutil.which("ruby"):
        subprocess.run(["ruby", "-c"], input=formula, text=True, check=True, capture_output=True)


@pytest.mark.slow
def test_sums_are_signed_and_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed")
    key, sums = tmp_path / "key", tmp_path / "SHA256SUMS"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    sums.write_text("0  llamath.whl\n")
    monkeypatch.setenv("LLAMATH_SIGNING_KEY", str(key))
    dist.sign(sums)
    allowed = tmp_path / "allowed"
    allowed.write_text(f"owner {key.with_suffix('.pub').read_text()}")
    verify = ["ssh-keygen", "-Y", "verify", "-n", "file", "-f", allowed, "-I", "owner"]
    for text, code in ((sums.read_text(), 0), ("1  llamath.whl\n", 255)):
        done = subprocess.run(
            [*verify, "-s", f"{sums}.sig"], input=text, text=True, capture_output=True, check=False
        )
        assert done.returncode == code


def test_tighter_wheel_has_the_same_files(tmp_path: Path) -> None:
    pytest.importorskip("zopfli")
    wheel = tmp_path / "x-1-py3-none-any.whl"
    texts = {"a.py": b"x = 1\n" * 500, "empty": b"", "random": bytes(range(256)), "b/c.py": b"1"}
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in texts.items():
            file.writestr(zipfile.ZipInfo(name, (2023, 1, 1, 0, 0, 0)), text)
    before = wheel.stat().st_size
    dist.pack_tightly(wheel)
    with zipfile.ZipFile(wheel) as file:
        assert {x: file.read(x) for x in file.namelist()} == texts and file.testzip() is None
        assert {x.date_time for x in file.infolist()} == {(2023, 1, 1, 0, 0, 0)}
    assert wheel.stat().st_size < before
    first = wheel.read_bytes()
    dist.pack_tightly(wheel)
    assert wheel.read_bytes() == first


def test_describe_writes_notes_formula_and_sums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LLAMATH_SIGNING_KEY", raising=False)
    wheel = tmp_path / "llamath-9.9-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    dist.describe(tmp_path)
    sums = dict(x.split("  ")[::-1] for x in (tmp_path / "SHA256SUMS").read_text().splitlines())
    assert sums.keys() == {"NOTES.md", "llamath.rb", wheel.name}
    assert sums[wheel.name] == hashlib.sha256(b"a wheel").hexdigest()
    assert sums[wheel.name] in (tmp_path / "llamath.rb").read_text()
    assert (tmp_path / "NOTES.md").read_text() == dist.release_notes(llamath.__version__)


def test_notes_of_a_release_are_the_changelog() -> None:
    notes = dist.release_notes(llamath.__version__)
    assert notes.startswith(f"## {llamath.__version__}") and notes.count("\n## ") == 0


def test_engine_of_another_machine_has_its_tag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of zig's script the words are those of GCC, but for two instruction sets."""
    variables = zig_compiler.environment("aarch64", tmp_path)
    script = Path(variables["CXX"])
    script.write_text(script.read_text().replace("exec ", "echo "))
    flags = [x for group in build.PATHS["aarch64"].values() for x in group]
    done = subprocess.run([script, "a b", *flags], capture_output=True, text=True, check=True)
    assert "aarch64-linux-gnu.2.17 a b" in done.stdout and "-march" not in done.stdout
    assert done.stdout.count("-mcpu=generic+v8_") == len(flags)
    monkeypatch.setenv("LLAMATH_MACHINE", variables["LLAMATH_MACHINE"])
    assert build.all_paths() == tuple(build.PATHS["aarch64"])
    elf = bytearray(b"\x7fELF".ljust(64, b"\0") + b"\0GLIBC_2.4\0GLIBC_2.29\0")
    elf[18] = 183
    assert hatch_build().platform_tag(bytes(elf)) == "manylinux_2_29_aarch64"


def hatch_build() -> Any:
    """The build hook of the engine, which is no package."""
    pytest.importorskip("hatchling")
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "native" / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_engine_has_the_version_of_the_project() -> None:
    both = [lock.project(x)["project"] for x in lock.BUILT]
    assert [x["name"] for x in both] == ["llamath", "llamath-native"]
    assert both[0]["version"] == both[1]["version"]
    extras = both[0]["optional-dependencies"].values()
    assert not [x for names in extras for x in names if "native" in x], "nobody owns its name"


def built(
    tmp_path: Path, request: pytest.FixtureRequest, project: str
) -> tuple[Path, dict[str, Any]]:
    """The wheel of a project and its bill: built once, and before a release twice, as by `make release`."""
    pytest.importorskip("hatchling")
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone of the repository")
    source = dist.git("archive", "--format=tar", "HEAD")
    every = dist.CIRCUMSTANCES if request.config.getoption("all") else dist.CIRCUMSTANCES[:1]
    first, *others = (
        dist.build(source, 1_700_000_000, tmp_path / x["TZ"].partition("/")[0], x, project)
        for x in every
    )
    bill = dist.bill_of_materials(first, 1_700_000_000, project)
    for x in others:
        assert first.name == x.name and first.read_bytes() == x.read_bytes()
        assert bill == dist.bill_of_materials(x, 1_700_000_000, project)
    return first, bill


def files_of(folder: str) -> list[str]:
    """The files of a folder in the last commit."""
    return dist.git("ls-tree", "-r", "--name-only", "HEAD", folder).decode().split()


def check_bill(bill: dict[str, Any]) -> None:
    """A bill names every component, with its sums and licenses, in the form of its standard."""
    assert {x["bom-ref"] for x in bill["components"]} | {
        bill["metadata"]["component"]["bom-ref"]
    } == {x["ref"] for x in bill["dependencies"]}
    assert all(x["hashes"] and x["licenses"] for x in bill["components"])
    validation = pytest.importorskip("cyclonedx.validation.json")
    from cyclonedx.schema import SchemaVersion

    assert validation.JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bill)) is None


@pytest.mark.release
def test_engine_is_built_for_this_platform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """For `make test` it is compiled already; `make release` compiles every instruction set."""
    if find_compiler() is None:
        pytest.skip("no C++ compiler")
    monkeypatch.setenv("LLAMATH_NATIVE", "own")
    wheel, bill = built(tmp_path, request, "native")
    assert "-none-" in wheel.name and "-any" not in wheel.name
    library = f"llamath_native/{build.LIBRARY}"
    with zipfile.ZipFile(wheel) as file:
        names = [x for x in file.namelist() if ".dist-info/" not in x]
        own = Library(Path(file.extract(library, tmp_path)))
        assert any(x.endswith("/licenses/LICENSE") for x in file.namelist())
    paths = [own("path_name", i).decode() for i in range(own("num_paths"))]
    assert paths == ["reference", *build.own_paths()]
    own.close()
    sources = [f"llamath_native/{x.relative_to(build.SOURCES).as_posix()}" for x in build.sources()]
    package = [x.removeprefix("native/") for x in files_of("native/llamath_native")]
    assert "llamath_native/kernels/path.cpp" in sources
    assert sorted(names) == sorted([library, *sources, *package])
    runtime = {x["name"] for x in bill["components"]}
    assert runtime == ({"libstdc++", "libgcc"} if sys.platform != "darwin" else set())
    check_bill(bill)


@pytest.mark.slow
def test_wheel_is_pure_and_its_parts_are_listed(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    wheel, bill = built(tmp_path, request, ".")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as file:
        names = [x for x in file.namelist() if ".dist-info/" not in x]
        assert {x.date_time[0] for x in file.infolist()} == {2023}
    # `make release` packs it tighter, to less than 4 MB
    assert wheel.stat().st_size <= 4_200_000
    of_prefix = [x for x in names if ".data/data/share/" in x]
    assert len(of_prefix) == 4 and any(x.endswith("man1/llamath.1") for x in of_prefix)
    package = [x for x in names if x not in of_prefix]
    assert sorted(package) == sorted(x.removeprefix("src/") for x in files_of("src"))
    scopes = {x["name"]: x.get("scope") for x in bill["components"]}
    assert (
        scopes["click"] == "required" and scopes["torch"] == scopes["huggingface-hub"] == "optional"
    )
    locked = json.loads((ROOT / "web" / "package-lock.json").read_text())["packages"]
    scripts = {x["name"]: x for x in bill["components"] if x["bom-ref"].startswith("pkg:npm/")}
    needed = json.loads((ROOT / "web" / "package.json").read_text())["dependencies"]
    assert set(needed) <= set(scripts)
    for name, found in scripts.items():
        assert found["version"] == locked[f"node_modules/{name}"]["version"]
        assert found["licenses"] == [{"expression": locked[f"node_modules/{name}"]["license"]}]
    assert scopes["ziglang"] == "required" and "libstdc++" not in scopes
    check_bill(bill)
