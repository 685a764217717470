"""The C++ library under the address and undefined-behavior sanitizers, interpreter included: `make
sanitize`.

Kernels of every instruction set are called on random shapes (sanitize.cpp); then the
whole library runs mutated configs of the tiny models, mutated programs and mutated passes
(engine_mutations.py). A report of a sanitizer, a crash or a hang fails. A run that was
cut off goes on with `--configs-from N` or `--programs-from N`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from llamath.native.library_cache import cached_library, find_cached
from llamath_native.build import LIBRARY, commands, find_compiler, source_hash

TESTS = Path(__file__).parent
FLAGS = ("-O1", "-g1", "-w", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=1024:"
    "hard_rss_limit_mb=4096",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "LLAMATH_NO_BUILD": "1",
}
"""An allocation of more than a gigabyte fails, as on a small machine."""
_MOST_REPORTS = 20
"""Cases that end the process, after which the others are not run."""


class CaseReport(NamedTuple):
    """A case that ended the process, and what it printed."""

    kind: str
    case: int
    text: str


def main(arguments: Sequence[str]) -> int:
    """Return 0 if no sanitizer and no comparison found anything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rounds", type=int, nargs="?", default=300, help="rounds of each kernel")
    for kind, count in (("configs", 5000), ("programs", 20000)):
        parser.add_argument(f"--{kind}", type=int, default=count, metavar="N")
        parser.add_argument(f"--{kind}-from", type=int, default=0, metavar="N")
    parser.add_argument("--seed", default="1")
    given = vars(parser.parse_args(arguments))
    with tempfile.TemporaryDirectory() as folder:
        library, objects = compile_sanitized(Path(folder))
        kernels = [x for x in objects if x.stem not in ("interpreter", "operations", "validation")]
        driver = f"{folder}/sanitize"
        compiler = (_compiler(), *FLAGS, "-pthread")
        subprocess.run(
            (
                *compiler,
                "-std=c++17",
                str(TESTS / "sanitize.cpp"),
                *map(str, kernels),
                "-o",
                driver,
            ),
            check=True,
        )
        status = subprocess.run((driver, str(given["rounds"])), check=False).returncode
        for kind in ("configs", "programs"):
            first = given[f"{kind}_from"]
            outcomes, reports = run_cases(library, kind, given["seed"], first, first + given[kind])
            print(f"{sum(outcomes.values()):,} mutated {kind}, {len(reports)} ended the process")
            for outcome, count in outcomes.most_common():
                print(f"{count:8,} {outcome}")
            for report in reports:
                print(f"{report.kind} {report.case}:\n{report.text}", file=sys.stderr)
            status = status or int(bool(reports))
    return status


def compile_sanitized(folder: Path, paths: Sequence[str] = ()) -> tuple[Path, list[Path]]:
    """Compile the library with sanitizers, for these instruction sets or for all; return it and
    its object files."""
    work = commands(_compiler(), folder, FLAGS, paths)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for done in pool.map(lambda x: subprocess.run(x, check=False), work):
            if done.returncode:
                sys.exit(done.returncode)
    objects = [Path(x[-1]) for x in work]
    library = folder / LIBRARY
    subprocess.run(
        (_compiler(), "-shared", "-pthread", *FLAGS, *map(str, objects), "-o", str(library)),
        check=True,
    )
    return library, objects


def cached_sanitized(paths: Sequence[str]) -> Path:
    """Return the sanitized library of these sources; it is compiled unless an earlier run did
    so."""
    name = f"sanitized-{source_hash(' '.join((_compiler(), *FLAGS)), paths)}"
    beside, problem = cached_library(), find_cached()[1]
    folder_of_all = Path(tempfile.mkdtemp()) if beside is None or problem else beside.parent.parent
    target = folder_of_all / name / LIBRARY
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            os.replace(compile_sanitized(Path(folder), paths)[0], target)
    return target


def run_cases(
    library: Path, kind: str, seed: str, first: int, last: int
) -> tuple[Counter[str], list[CaseReport]]:
    """Run these cases in processes that load the sanitizer; return how many had which outcome,
    and those that ended their process."""
    runtime = subprocess.run(
        (_compiler(), "-print-file-name=libasan.so"), capture_output=True, text=True, check=True
    ).stdout.strip()
    outcomes, reports = Counter[str](), list[CaseReport]()
    with tempfile.TemporaryDirectory() as folder:
        progress, counts = Path(folder) / "progress", Path(folder) / "counts"
        while first < last and len(reports) < _MOST_REPORTS:
            progress.write_text(str(first))
            command = (
                sys.executable,
                TESTS / "engine_mutations.py",
                library,
                kind,
                seed,
                str(first),
                str(last),
                progress,
                counts,
            )
            environment = os.environ | OPTIONS | {"LD_PRELOAD": runtime}
            done = subprocess.run(
                command,
                env=environment,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
            at = int(progress.read_text())
            if counts.exists():
                outcomes.update(json.loads(counts.read_text()))
                counts.unlink()
            if done.returncode == 0:
                break
            reports.append(CaseReport(kind, at, f"status {done.returncode}\n{done.stderr[-4000:]}"))
            outcomes["ended the process"] += 1
            first = at + 1
    return outcomes, reports


def _compiler() -> str:
    compiler = find_compiler()
    if compiler is None:
        sys.exit("no C++ compiler was found (c++, g++, clang++, or $CXX)")
    return compiler


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
