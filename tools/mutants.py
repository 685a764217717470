"""Show which test finds each of the faults in `planted_faults.py`: `python tools/mutants.py`.

    python tools/mutants.py --map            run the suite once and keep which tests call what
    python tools/mutants.py [NAME ...]       plant the faults, those whose names contain a word
    python tools/mutants.py --whole [NAME]   run the whole suite where chosen tests found nothing
    python tools/mutants.py --table          print the results as Markdown

A fault is planted in a copy of the checkout. First run the tests that call the changed function (in
a module of tables: any function of the module), the cheapest first, until one fails. Results are
kept in a file, so that a run that was interrupted goes on where it ended.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from planted_faults import FAULTS, Fault

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "build" / "mutants"
RESULTS = ROOT / "bench" / "results" / "mutants.json"
SECONDS = 120
"""The processor time of the tests that are chosen for one fault, at most."""
TEXT_TESTS = {".cpp": ["tests/native", "tests/contract"], ".h": ["tests/native", "tests/contract"]}
"""What runs for sources that the map does not know, by their suffix."""
PAGE_TESTS = ["tests/page", "--deselect", "tests/page/test_web_bundle.py"]


@contextmanager
def planted(fault: Fault) -> Iterator[Path]:
    """Give a copy of the checkout that has the fault."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        folder = Path(name)
        for path in filter(None, listed.stdout.decode().split("\0")):
            if (ROOT / path).is_file():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / path, folder / path)
        target = folder / fault.path
        text = target.read_text(encoding="utf-8")
        if text.count(fault.before) != 1:
            sys.exit(
                f"{fault.path}: expected {fault.before!r} once, found {text.count(fault.before)}"
            )
        target.write_text(text.replace(fault.before, fault.after), encoding="utf-8")
        if fault.path.startswith("web/"):
            (folder / "web" / "node_modules").symlink_to(ROOT / "web" / "node_modules")
            subprocess.run(
                ["node", "build.mjs"], cwd=folder / "web", check=True, capture_output=True
            )
        yield folder


def functions_at(fault: Fault) -> list[str]:
    """Return the places of the changed function as the map names them, the innermost first; none
    for a change outside of functions.
    """
    text = (ROOT / fault.path).read_text(encoding="utf-8")
    line = text[: text.index(fault.before)].count("\n") + 1
    changed = next(
        (
            i
            for i, (a, b) in enumerate(
                zip(fault.before.split("\n"), fault.after.split("\n"), strict=False)
            )
            if a != b
        ),
        0,
    )
    line += changed
    inside = [
        x
        for x in ast.walk(ast.parse(text))
        if isinstance(x, ast.FunctionDef) and x.lineno <= line <= (x.end_lineno or 0)
    ]
    path = fault.path.removeprefix("src/llamath/")
    starts = (min([x.lineno, *(y.lineno for y in x.decorator_list)]) for x in reversed(inside))
    return [f"{path}:{start}" for start in starts]


def chosen_tests(fault: Fault) -> list[str]:
    """Return the tests that call the changed function, the cheapest first; or what runs for its
    kind of source.
    """
    if fault.path.startswith("web/"):
        return PAGE_TESTS
    if (suffix := Path(fault.path).suffix) in TEXT_TESTS:
        return TEXT_TESTS[suffix]
    if suffix != ".py":
        return ["tests/core/test_catalog.py", "tests/core", "tests/api"]
    found: dict[str, float] = {}
    places = functions_at(fault)[:1]
    module = fault.path.removeprefix("src/llamath/") + ":"
    for path in KEPT.glob("*.json"):
        for place, tests in json.loads(path.read_text(encoding="utf-8")).items():
            if place in places or (not places and place.startswith(module)):
                found |= {test: cost for rows in tests.values() for cost, test in rows}
    result, left = [], float(SECONDS)
    for test, cost in sorted(found.items(), key=lambda x: x[1]):
        if (left := left - cost) < 0:
            break
        result.append(test)
    return result


def first_failure(folder: Path, tests: list[str], options: list[str]) -> tuple[str, float, int]:
    """Run tests in the copy until one fails; return its name, the seconds of processor time, and
    pytest's exit code.
    """
    listed = folder / ".tests"
    listed.write_text("\n".join(tests), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": f"{folder / 'src'}", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-p",
        "no:cacheprovider",
        "--tb=line",
        *options,
    ]
    before = os.times()
    done = subprocess.run(
        [*command, f"@{listed}"], cwd=folder, env=environment, capture_output=True, text=True
    )
    after = os.times()
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    spent = (
        after.children_user + after.children_system - before.children_user - before.children_system
    )
    return failed[1] if failed else "", spent, done.returncode


def check_of(output: str) -> str:
    """Return a test's name as the table shows it."""
    return output.removeprefix("tests/").replace("|", "\\|")


def run_fault(fault: Fault, whole: bool) -> dict[str, Any]:
    """Plant a fault and return what found it."""
    tests = ["tests"] if whole else chosen_tests(fault)
    start = time.monotonic()
    failed, spent, code = "", 0.0, 0
    if tests:
        with planted(fault) as folder:
            options = ["-n", "2", "--dist", "worksteal"] if whole else []
            failed, spent, code = first_failure(folder, tests, options)
    return {
        "path": fault.path,
        "found_by": failed or ("the run itself" if code not in (0, 1, 5) else ""),
        "tests": len(tests),
        "whole": whole,
        "cpu_s": round(spent, 1),
        "seconds": round(time.monotonic() - start, 1),
    }


def read_results() -> dict[str, dict[str, Any]]:
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def make_map() -> None:
    """Run the suite with the plugin that keeps which tests call which functions."""
    shutil.rmtree(KEPT, ignore_errors=True)
    KEPT.mkdir(parents=True)
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-n",
            "2",
            "--dist",
            "worksteal",
            "-p",
            "support.touched_functions",
        ],
        cwd=ROOT,
        env=os.environ | {"LLAMATH_TEST_MAP": str(KEPT)},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for option in ("--map", "--whole", "--table"):
        parser.add_argument(option, action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    results = read_results()
    if options.map:
        return make_map()
    if options.table:
        print("| Fault | File | Found by |\n| --- | --- | --- |")
        for fault in FAULTS:
            found = results.get(fault.name, {})
            by = f"`{check_of(found['found_by'])}`" if found.get("found_by") else "nothing"
            print(f"| {fault.name} | `{Path(fault.path).name}` | {by} |")
        return None
    for fault in FAULTS:
        known = results.get(fault.name)
        named = any(x in fault.name for x in options.names)
        if options.names and not named:
            continue
        if known and not named and (known["found_by"] or known["whole"] or not options.whole):
            continue
        results[fault.name] = result = run_fault(fault, options.whole)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        print(f"{fault.name}: {result['found_by'] or 'nothing'} ({result['cpu_s']} s)", flush=True)
    return None


if __name__ == "__main__":
    main()
