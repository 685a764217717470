"""How long an installation takes, from an index of this machine to the first answer:
`python bench/install.py`.

The wheel of the last commit and that of click are served on loopback as a package index, so that
no network is measured. Each tool starts with an empty cache and an empty home, is also timed with
a package of one module, and leaves files of a size that is recorded.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from harness import keep

ROOT = Path(__file__).parents[1]
EXPECTED = "8,030,261,248"
TOOLS = ("uv", "pipx")


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def index(wheels: list[Path], folder: Path) -> Iterator[str]:
    """Serve these wheels as a package index; the context is its address."""
    for wheel in wheels:
        place = folder / "simple" / wheel.name.split("-")[0].replace("_", "-").lower()
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(wheel, place)
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        link = f'<a href="{wheel.name}#sha256={digest}">{wheel.name}</a>'
        (place / "index.html").write_text(f"<!doctype html><body>{link}</body>")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/simple/"
    finally:
        server.shutdown()
        server.server_close()


def one_module(folder: Path) -> Path:
    """Return the wheel of a package that prints the same number, and has nothing else."""
    wheel = folder / "onemodule-1.0-py3-none-any.whl"
    info = "onemodule-1.0.dist-info"
    files = {
        "onemodule.py": f'def main():\n    print("{EXPECTED}")\n',
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: onemodule\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\nonemodule = onemodule:main\n",
    }
    record_name = f"{info}/RECORD"
    rows = "".join(f"{name},,\n" for name in (*files, record_name))
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in (files | {record_name: rows}).items():
            archive.writestr(name, text)
    return wheel


def commands(tool: Path, address: str, package: str, home: Path) -> list[list[str]]:
    """Return the commands from nothing to the first answer."""
    question = ["count", "llama-3-8b"]
    if tool.name in TOOLS:
        run = ["tool", "run"] if tool.name == "uv" else ["run"]
        where = ["--python", sys.executable, "--index-url", address]
        return [[str(tool), *run, *where, package, *question]]
    python = home / "venv" / "bin" / "python"
    return [
        [sys.executable, "-m", "venv", str(home / "venv")],
        [str(python), "-m", "pip", "install", "--quiet", "--index-url", address, package],
        [str(python.with_name(package)), *question],
    ]


def measure(tool: Path, address: str, package: str) -> dict[str, float]:
    """Return the seconds of the first and of the second answer, and the megabytes on the disk."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        environment = _environment(home, tool)
        times = []
        for first in (True, False):
            steps = commands(tool, address, package, home)
            start = time.perf_counter()
            for step in steps if first else steps[-1:]:
                done = subprocess.run(
                    step, env=environment, capture_output=True, text=True, check=False
                )
                if done.returncode:
                    sys.exit(f"{' '.join(step)}: {done.stderr}")
            times.append(time.perf_counter() - start)
            assert EXPECTED in done.stdout
        size = sum(x.stat().st_size for x in home.rglob("*") if x.is_file() and not x.is_symlink())
    return {
        "first": round(times[0], 2),
        "again": round(times[1], 2),
        "megabytes": round(size / 1e6, 1),
    }


def _environment(home: Path, tool: Path) -> Mapping[str, str]:
    return {
        "HOME": str(home),
        "PATH": f"{tool.parent}:{os.environ['PATH']}",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_NO_CONFIG": "1",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "NO_COLOR": "1",
        "LC_ALL": "C.UTF-8",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", type=Path, help="instead of building the last commit")
    wheel = parser.parse_args().wheel
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        if wheel is None:
            subprocess.run([*pip, "wheel", "--no-deps", "-w", work, ROOT], check=True)
            (wheel,) = work.glob("llamath-*.whl")
        subprocess.run([*pip, "download", "--no-deps", "-d", work, "click"], check=True)
        (click,) = work.glob("click-*.whl")
        subprocess.run([sys.executable, "-m", "venv", work / "tools"], check=True)
        tools = work / "tools" / "bin"
        subprocess.run([tools / "python", *pip[1:], "install", *TOOLS], check=True)
        rows: dict[str, Any] = {}
        with index([wheel, click, one_module(work)], work / "index") as address:
            for tool in (tools / "uv", tools / "pipx", Path("pip")):
                for package in ("llamath", "onemodule"):
                    rows[f"{tool.name} {package}"] = measure(tool, address, package)
        found = {"title": "first answer", "wheel_bytes": wheel.stat().st_size, "rows": rows}
        keep("install", [found])
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
