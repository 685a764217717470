"""Compile the C++ kernels with the address and undefined-behavior sanitizers, and call them on random shapes: `make sanitize`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from llamath.native.build import commands, find_compiler

DRIVER = Path(__file__).parents[1] / "tests" / "native" / "sanitize.cpp"
FLAGS = ("-O1", "-g1", "-w", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def main(rounds: str = "300") -> int:
    """Return the exit status of the driver: 0 if no sanitizer and no comparison found anything."""
    compiler = find_compiler()
    if compiler is None:
        sys.exit("no C++ compiler was found (c++, g++, clang++, or $CXX)")
    with tempfile.TemporaryDirectory() as folder:
        kernels = [x for x in commands(compiler, Path(folder), FLAGS) if Path(x[x.index("-c") + 1]).parent.name == "kernels"]
        driver = (compiler, "-std=c++17", *FLAGS, "-c", str(DRIVER), "-o", f"{folder}/sanitize.o")
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            for done in pool.map(lambda x: subprocess.run(x, check=False), [*kernels, driver]):
                if done.returncode:
                    return done.returncode
        objects = [x[-1] for x in (*kernels, driver)]
        subprocess.run((compiler, *FLAGS, "-pthread", *objects, "-o", f"{folder}/sanitize"), check=True)
        return subprocess.run((f"{folder}/sanitize", rounds), check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
