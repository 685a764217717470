"""Pin what the demo, the tests and the wheel are built with: versions and sha256 sums in
requirements/, for Python 3.11 on Linux, x86-64.

    python tools/lock.py           write the files anew (asks the package index)
    python tools/lock.py --check   fail if the files do not cover pyproject.toml and
                                   constraints.txt (asks nobody)

pip chooses the files that a new installation would get, with the pins of constraints.txt; `pip
install --require-hashes` then accepts no other file. The sums are those of the files for this
platform; other platforms are installed by constraints.txt, without sums.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "requirements"
BUILT = ("pyproject.toml", "native/pyproject.toml")
"""What has a [build-system]: llamath and llamath-native."""
BUILD = ("pip>=25.1", "hatchling", "editables")
"""What installs the package and builds its wheel."""
_LINE = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+) "
    r"(?P<sums>(?:--hash=sha256:[0-9a-f]{64} ?)+) *# ?(?P<license>.*)"
)


class Pin(NamedTuple):
    """One package in a lock file."""

    name: str
    version: str
    sums: tuple[str, ...]
    license: str

    @property
    def line(self) -> str:
        sums = " ".join(f"--hash=sha256:{x}" for x in self.sums)
        return f"{self.name}=={self.version} {sums}  # {self.license}".rstrip()


def normalize(name: str) -> str:
    """Return a package's name as the index spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def project(file: str = BUILT[0]) -> dict[str, Any]:
    return tomllib.loads((ROOT / file).read_text())


def wanted() -> dict[str, list[str]]:
    """Return the requirements of each lock file."""
    settings = project()
    groups, extras = settings["dependency-groups"], settings["project"]["optional-dependencies"]
    package = [*BUILD, *settings["project"]["dependencies"]]
    return {
        "package": package,
        "demo": [*package, *extras["run"]],
        "test": [
            *package,
            *extras["run"],
            *extras["torch"],
            *groups["dev"],
            *groups["oracles"],
            *groups["site"],
        ],
        "site": [*package, *groups["site"]],
        "wasm": groups["wasm"],
        "extras": [
            *settings["project"]["dependencies"],
            *(x for names in extras.values() for x in names),
        ],
    }


def read_lock(name: str) -> dict[str, Pin]:
    """Return the pins of a lock file by name."""
    lines = [
        x for x in (FOLDER / f"{name}.txt").read_text().splitlines() if x and not x.startswith("#")
    ]
    matches = [_LINE.fullmatch(x) for x in lines]
    pins = [
        Pin(x["name"], x["version"], tuple(re.findall("[0-9a-f]{64}", x["sums"])), x["license"])
        for x in matches
        if x
    ]
    assert len(pins) == len(lines), (
        f"requirements/{name}.txt has a line that tools/lock.py did not write"
    )
    return {x.name: x for x in pins}


def pinned() -> dict[str, str]:
    """Return the versions in constraints.txt."""
    lines = (
        x.partition("#")[0].strip() for x in (ROOT / "constraints.txt").read_text().splitlines()
    )
    return {
        normalize(name): version for name, _, version in (x.partition("==") for x in lines if x)
    }


def resolve(requirements: Iterable[str], constraints: Iterable[str]) -> list[Pin]:
    """Return the files that pip would install into an empty environment."""
    limits = FOLDER / ".constraints"
    limits.write_text("\n".join(constraints) + "\n")
    try:
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--dry-run",
            "--ignore-installed",
            "--quiet",
            "--report",
            "-",
            "-c",
            str(limits),
        ]
        done = subprocess.run([*command, *requirements], capture_output=True, text=True)
    finally:
        limits.unlink()
    if done.returncode:
        sys.exit(done.stderr)
    return sorted(_pin(x) for x in json.loads(done.stdout)["install"])


def _pin(item: dict[str, Any]) -> Pin:
    metadata = item["metadata"]
    classes = [
        x.rpartition(" :: ")[2]
        for x in metadata.get("classifier", [])
        if x.startswith("License ::")
    ]
    text = (
        metadata.get("license_expression")
        or ", ".join(classes)
        or (metadata.get("license") or "").strip().partition("\n")[0][:60]
    )
    # a local version, such as torch's +cpu, is matched by the public one
    version = metadata["version"].partition("+")[0]
    return Pin(
        normalize(metadata["name"]),
        version,
        (item["download_info"]["archive_info"]["hashes"]["sha256"],),
        text or "no license given",
    )


def problems() -> list[str]:
    """Return what the lock files lack."""
    found = []
    for name, requirements in wanted().items():
        pins = read_lock(name)
        names = {normalize(re.split(r"[\s<>=!~\[;]", x, maxsplit=1)[0]) for x in requirements}
        found += [f"requirements/{name}.txt lacks {x}" for x in sorted(names - set(pins))]
        for package, version in pinned().items():
            if package in pins and pins[package].version != version:
                found.append(
                    f"requirements/{name}.txt has {package} {pins[package].version}, "
                    f"constraints.txt {version}"
                )
    for file in BUILT:
        for written, right in pinned_build(file).items():
            if written != right:
                found.append(
                    f"[build-system] of {file} requires {written}, "
                    f"requirements/package.txt has {right or 'no such package'}"
                )
    return found


def pinned_build(file: str = BUILT[0]) -> dict[str, str]:
    """Return each requirement of [build-system], which builds in isolation resolve without a
    lock file, as it should be pinned."""
    pins = read_lock("package")
    written = project(file)["build-system"]["requires"]
    names = {x: normalize(re.split(r"[\s<>=!~\[;]", x, maxsplit=1)[0]) for x in written}
    return {x: f"{name}=={pins[name].version}" if name in pins else "" for x, name in names.items()}


def pin_build() -> None:
    """Write the versions of requirements/package.txt into [build-system]."""
    for file in BUILT:
        text = (ROOT / file).read_text()
        for written, right in pinned_build(file).items():
            text = text.replace(f'"{written}"', f'"{right}"', 1) if right else text
        (ROOT / file).write_text(text)


def main() -> None:
    if "--check" in sys.argv:
        sys.exit("\n".join([*lacking, "run `make lock`"]) if (lacking := problems()) else 0)
    here = (sys.implementation.name, sys.version_info[:2], platform.system(), platform.machine())
    if here != ("cpython", (3, 11), "Linux", "x86_64"):
        sys.exit(f"the lock files are for CPython 3.11 on Linux, x86-64, found {here}")
    FOLDER.mkdir(exist_ok=True)
    files = wanted()
    everything = [
        f"{x.name}=={x.version}"
        for x in resolve(
            {x for names in files.values() for x in names},
            [f"{k}=={v}" for k, v in pinned().items()],
        )
    ]
    for name, requirements in files.items():
        pins = resolve(requirements, everything)
        head = (
            "# Written by tools/lock.py for CPython 3.11 on Linux, x86-64: pip install "
            f"--require-hashes -r requirements/{name}.txt"
        )
        (FOLDER / f"{name}.txt").write_text("\n".join([head, *(x.line for x in pins)]) + "\n")
        print(f"requirements/{name}.txt: {len(pins)} packages")
    pin_build()


if __name__ == "__main__":
    main()
