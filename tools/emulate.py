"""Run the wheels of a release on an emulated aarch64: `python tools/emulate.py dist`.

Root installs qemu and takes Debian's Python for that machine into a folder, while dpkg's list has
the architecture; pip takes the packages that `llamath run` needs. What the bundled model writes
must be what it writes here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MACHINE, DEBIAN, EMULATOR = "aarch64", "arm64", "qemu-aarch64-static"
PYTHON = (
    "python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libc6 zlib1g libexpat1 libssl3 "
    "libffi8 libbz2-1.0 liblzma5 libuuid1 libgcc-s1 libstdc++6"
).split()
PACKAGES = ("tokenizers", "jinja2", "numpy", "click")
PROMPT = "Ben was in the park. He had a red ball. Ben went to the barn. Where is the ball?"


def run(*command: str | Path, folder: Path | None = None, **environment: str) -> str:
    """Run a command and return what it prints."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{command[0]}: {done.stderr.strip()[-2000:]}")
    return done.stdout


@contextmanager
def foreign_packages() -> Iterator[None]:
    """Let apt know the machine's packages."""
    known = DEBIAN in run("dpkg", "--print-foreign-architectures").split()
    run("dpkg", "--add-architecture", DEBIAN)
    try:
        run("apt-get", "update", "-qq")
        yield
    finally:
        if not known:
            run("dpkg", "--remove-architecture", DEBIAN)


def python_of_debian(folder: Path) -> Path:
    """Return the root of a tree with Debian's Python for the machine."""
    if shutil.which(EMULATOR) is None:
        run("apt-get", "install", "-y", "-qq", "qemu-user-static")
    with foreign_packages():
        run("apt-get", "download", "-qq", *(f"{x}:{DEBIAN}" for x in PYTHON), folder=folder)
    root = folder / "root"
    for package in folder.glob("*.deb"):
        run("dpkg", "-x", package, root)
    return root


def install(wheels: list[Path], target: Path) -> None:
    """Install wheels, and what they need on the machine, into a folder."""
    platforms = [f"--platform={x}_{MACHINE}" for x in ("manylinux2014", "manylinux_2_28")]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(target)]
    version = ["--python-version=3.11", "--implementation=cp", "--abi=cp311", "--abi=abi3"]
    pins = ("-c", str(Path(__file__).parents[1] / "constraints.txt"))
    run(*pip, *pins, *platforms, *version, "--abi=none", "--only-binary=:all:", *PACKAGES)
    for wheel in wheels:
        shutil.unpack_archive(wheel, target, "zip")


def main() -> None:
    folder = Path(sys.argv[1])
    wheels = [*folder.glob("llamath-*.whl"), *folder.glob(f"llamath_native-*_{MACHINE}.whl")]
    if len(wheels) != 2:
        sys.exit(f"{folder} should have a wheel of llamath and one of llamath-native for {MACHINE}")
    release = Path("/etc/os-release")
    if os.geteuid() or not release.is_file() or "bookworm" not in release.read_text():
        print(f"not run on {MACHINE}: that needs Debian 12 and root", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as place:
        work = Path(place)
        root = python_of_debian(work)
        install(wheels, work / "packages")
        question = ("-m", "llamath", "run", "embedded", PROMPT)
        emulated = (EMULATOR, "-L", root, root / "usr" / "bin" / "python3.11", *question)
        found = run(*emulated, PYTHONPATH=str(work / "packages"))
        expected = run(sys.executable, *question)
    if found != expected:
        sys.exit(f"on {MACHINE} it writes {found!r}, here {expected!r}")
    print(f"on {MACHINE}, too: {found.strip()}")


if __name__ == "__main__":
    main()
