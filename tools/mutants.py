"""Show which test finds each of the faults in `planted_faults.py`: `python tools/mutants.py`.

    python tools/mutants.py --map            run the suite once and keep which tests call what
    python tools/mutants.py [NAME ...]       plant the faults, those whose names contain a word
    python tools/mutants.py --whole [NAME]   run the whole suite where chosen tests found nothing
    python tools/mutants.py --table          print the results as Markdown

A fault is planted in a checkout of its own. First run the tests that call the changed function (in
a module of tables: any function of the module), the cheapest first, then the files that name the
module, then those of its folder, until one fails. Results are kept in a file, so that a run that
was interrupted goes on where it ended.
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
from typing import Any, NamedTuple

from planted_faults import FAULTS, Fault

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "build" / "mutants"
RESULTS = ROOT / "bench" / "results" / "mutants.json"
SECONDS = 120
"""The processor time of the tests that are chosen for one fault, at most."""
AREAS = {
    "web/": ["tests/page"],
    "native/": ["native/tests", "tests/native", "tests/contract", "--check", "native"],
    "src/llamath/native/": ["tests/native", "tests/contract", "--check", "native"],
    "src/llamath/families/": ["tests/contract", "-k"],  # and the family's name
    "src/llamath/core/": ["tests/core"],
    "src/llamath/catalog/": ["tests/core/test_catalog.py", "tests/core"],
    "src/llamath/analysis/": ["tests/analysis"],
    "src/llamath/checkpoint/": ["tests/checkpoint", "tests/contract", "--check", "layouts"],
    "src/llamath/conversion/": ["tests/checkpoint", "tests/contract", "--check", "conversion"],
    "src/llamath/torch/": ["tests/run", "tests/contract", "--check", "logits"],
    "src/llamath/generation/": ["tests/run", "tests/native"],
    "src/llamath/tokenizers/": ["tests/tokenizers"],
    "src/llamath/web/": ["tests/page"],
    "src/llamath/cli/": ["tests/cli", "tests/page"],
}
"""What runs next for sources of a folder."""


@contextmanager
def planted(fault: Fault) -> Iterator[Path]:
    """Give a checkout of the last commit that has the fault."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        folder = Path(name) / "checkout"
        git("worktree", "add", "--quiet", "--detach", str(folder), "HEAD")
        try:
            target = folder / fault.path
            text = target.read_text(encoding="utf-8")
            if (found := text.count(fault.before)) != 1:
                sys.exit(f"{fault.path}: expected {fault.before!r} once, found {found} times")
            target.write_text(text.replace(fault.before, fault.after), encoding="utf-8")
            if fault.path.startswith("web/"):
                build_page(folder / "web")
            yield folder
        finally:
            git("worktree", "remove", "--force", str(folder))


def git(*words: str) -> None:
    subprocess.run(["git", *words], cwd=ROOT, check=True)


def build_page(folder: Path) -> None:
    """Build the page of a checkout with the packages of this one."""
    (folder / "node_modules").symlink_to(ROOT / "web" / "node_modules")
    subprocess.run(["node", "build.mjs"], cwd=folder, check=True, capture_output=True)


def is_engine(fault: Fault) -> bool:
    return fault.path.endswith((".cpp", ".h"))


def functions_at(fault: Fault) -> list[str]:
    """Return the places of the changed function as the map names them, the innermost first; none
    for a change outside of functions.
    """
    text = (ROOT / fault.path).read_text(encoding="utf-8")
    line = text[: text.index(fault.before)].count("\n") + 1
    rows = zip(fault.before.split("\n"), fault.after.split("\n"), strict=False)
    line += next((i for i, (a, b) in enumerate(rows) if a != b), 0)
    inside = [
        x
        for x in ast.walk(ast.parse(text))
        if isinstance(x, ast.FunctionDef) and x.lineno <= line <= (x.end_lineno or 0)
    ]
    path = fault.path.removeprefix("src/llamath/")
    starts = (min([x.lineno, *(y.lineno for y in x.decorator_list)]) for x in reversed(inside))
    return [f"{path}:{start}" for start in starts]


def chosen_tests(fault: Fault) -> list[str]:
    """Return the tests that call the changed function, the cheapest first."""
    if not fault.path.endswith(".py"):
        return []
    found: dict[str, float] = {}
    places = functions_at(fault)[:1]
    module = fault.path.removeprefix("src/llamath/") + ":"
    for path in KEPT.glob("*.json"):
        for place, tests in json.loads(path.read_text(encoding="utf-8")).items():
            if place in places or (not places and place.startswith(module)):
                found |= {x: cost for rows in tests.values() for cost, x in rows if "\n" not in x}
    result, left = [], float(SECONDS)
    for test, cost in sorted(found.items(), key=lambda x: x[1]):
        if (left := left - cost) < 0:
            break
        result.append(test)
    return result


def importing_tests(fault: Fault) -> list[str]:
    """Return the test files that name the changed module."""
    stem = re.compile(rf"\b{Path(fault.path).stem}\b")
    found = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(x.relative_to(ROOT)) for x in found if stem.search(x.read_text(encoding="utf-8"))]


def python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a checkout with its own packages."""
    places = (str(folder / "src"), str(folder / "native"))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(places)}
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


class Failure(NamedTuple):
    """The first test that fails, if any; its check of a configuration; processor time."""

    test: str
    check: str
    seconds: float


def first_failure(folder: Path, tests: list[str]) -> Failure:
    """Run tests in a checkout until one fails."""
    listed = folder / ".tests"
    listed.write_text("\n".join(tests), encoding="utf-8")
    before = os.times()
    done = python(folder, "-m", "pytest", "-x", "--tb=short", f"@{listed}")
    after = os.times()
    failed = re.search(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", done.stdout, re.MULTILINE)
    if done.returncode and not failed:  # a test that is not there any more, or none at all
        sys.exit(f"{done.stdout}{done.stderr}\nno test failed; is the map old? --map makes it anew")
    check = re.search(r": (\w+\.\w+).* \(\d+ of \d+ checks fail\)$", done.stdout, re.MULTILINE)
    spent = sum(after[2:4]) - sum(before[2:4])
    return Failure(failed[1] if failed else "", check[1] if check else "", spent)


def check_of(output: str) -> str:
    """Return a test's name as the table shows it."""
    return output.removeprefix("tests/").replace("|", "\\|")


def run_fault(fault: Fault, whole: bool) -> dict[str, Any]:
    """Plant a fault and return what found it: a chosen test, one of its folder, or with `whole`
    one of the suite.
    """
    folder_tests = next((x for area, x in AREAS.items() if fault.path.startswith(area)), [])
    if folder_tests[-1:] == ["-k"]:
        folder_tests = [*folder_tests, Path(fault.path).stem.removesuffix("_shared")]
    stages = {
        "map": chosen_tests(fault),
        "importers": importing_tests(fault),
        "folder": folder_tests,
    }
    if whole:
        stages = {"whole": ["-n", "2", "--dist", "worksteal", "tests"]}
    start, cpu, found, stage = time.monotonic(), 0.0, Failure("", "", 0), ""
    with planted(fault) as folder:
        if is_engine(fault):
            python(folder, "-m", "llamath.native.library_cache")
        for stage in filter(stages.get, stages):
            found = first_failure(folder, stages[stage])
            cpu += found.seconds
            if found.test:
                git("-C", str(folder), "checkout", "--quiet", ".")
                if first_failure(folder, [found.test]).test:
                    sys.exit(f"{found.test} fails without a fault, too")
                break
    return {
        "path": fault.path,
        "found_by": f"{found.test} {found.check}".strip(),
        "stage": stage,
        "cpu_s": round(cpu, 1),
        "seconds": round(time.monotonic() - start, 1),
    }


def read_results() -> dict[str, dict[str, Any]]:
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def make_map() -> None:
    """Run the suite with the plugin that keeps which tests call which functions."""
    shutil.rmtree(KEPT, ignore_errors=True)
    KEPT.mkdir(parents=True)
    options = "-m pytest -n 2 --dist worksteal -p support.touched_functions".split()
    environment = os.environ | {"LLAMATH_TEST_MAP": str(KEPT)}
    subprocess.run([sys.executable, *options], cwd=ROOT, env=environment)


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
            found = results.get(fault.name, {"found_by": "not run yet"})["found_by"] or "nothing"
            by = f"`{check_of(found)}`" if "::" in found else found
            print(f"| {fault.name} | `{Path(fault.path).name}` | {by} |")
        return None
    for fault in FAULTS:
        known = results.get(fault.name)
        named = any(x in fault.name for x in options.names)
        if options.names and not named:
            continue
        if (
            known
            and not named
            and (known["found_by"] or known["stage"] == "whole" or not options.whole)
        ):
            continue
        result = run_fault(fault, options.whole)
        results = read_results() | {fault.name: result}  # another process may have written
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        print(f"{fault.name}: {result['found_by'] or 'nothing'} ({result['cpu_s']} s)", flush=True)
    return None


if __name__ == "__main__":
    main()
