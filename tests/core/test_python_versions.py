"""Other versions of Python count every preset as the conformance set does, where they are installed; 3.14 is Pyodide's, too."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

ROOT = Path(__file__).parents[2]
VERSIONS = ("3.12", "3.13", "3.14")
COUNT = """
import json, sys
import llamath
with open(sys.argv[1], encoding="utf-8") as file:
    rows = [json.loads(x) for x in file]
wrong = [x["preset"] for x in rows if llamath.load(x["preset"]).parameters.total != x["parameters"]["total"]]
print(sys.version.split()[0], len(rows), wrong)
"""


def interpreter(version: str) -> str | None:
    """A Python of this version that starts: on the path, or of pyenv."""
    folders = sorted(Path.home().glob(f".pyenv/versions/{version}*/bin"))
    for found in (*(x / "python3" for x in folders), shutil.which(f"python{version}")):
        if found is None or not Path(found).exists():
            continue
        done = subprocess.run(
            [found, "-c", "import sys; print(sys.version)"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.stdout.startswith(f"{version}."):
            return str(found)
    return None


@pytest.mark.slow
@pytest.mark.parametrize("version", [x for x in VERSIONS if not sys.version.startswith(x)])
def test_other_python_counts_every_preset(version: str, tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"Python {version} is not installed")
    # click alone: nothing else of this version's packages
    (tmp_path / "click").symlink_to(Path(click.__file__).parent)
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{tmp_path}", "PYTHONDONTWRITEBYTECODE": "1"}
    models = ROOT / "conformance" / "models.jsonl"
    done = subprocess.run(
        [python, "-W", "error", "-c", COUNT, models],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found, number, wrong = done.stdout.split(maxsplit=2)
    assert found.startswith(version) and int(number) > 450 and wrong.strip() == "[]"
    command = [python, "-W", "error", "-m", "llamath", "count", "llama-3-8b", "--brief"]
    answer = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert "8,030,261,248" in answer.stdout


PYODIDE = """
import { loadPyodide } from "pyodide";
const python = await loadPyodide();
for (const [place, root] of [["/src", process.argv[2]], ["/models", process.argv[3]]]) {
  python.FS.mkdir(place);
  python.FS.mount(python.FS.filesystems.NODEFS, { root }, place);
}
python.runPython(`import sys; sys.path.insert(0, "/src"); sys.argv = ["", "/models/models.jsonl"]`);
python.runPython(process.argv[4]);
"""


@pytest.mark.slow
def test_pyodide_counts_every_preset(tmp_path: Path) -> None:
    packages = ROOT / "web" / "node_modules"
    if shutil.which("node") is None or not (packages / "pyodide").is_dir():
        pytest.skip("node and the packages of web/ are not installed")
    script = tmp_path / "count.mjs"
    script.write_text(PYODIDE)
    (tmp_path / "node_modules").symlink_to(packages)
    done = subprocess.run(
        ["node", script, ROOT / "src", ROOT / "conformance", COUNT],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found, number, wrong = done.stdout.split(maxsplit=2)
    assert found.startswith("3.14") and int(number) > 450 and wrong.strip() == "[]"
