"""Compile the native engine: the interpreter, and the kernels once for each instruction set. Only the standard library is needed.

Called by the build hook of the package, by `make`, and at first use in a checkout of the sources.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
LIBRARY = "libllamath.so"
"""File name of the library, in this folder where the package was built with it."""
_FLAGS = ("-std=c++17", "-O3", "-fPIC", "-fvisibility=default", "-pthread", "-ffp-contract=fast", "-Wall")
_STATIC = ("-static-libstdc++", "-static-libgcc", "-Wl,--build-id=none", "-s")
_LINK_FLAGS = ("-shared", "-pthread", *(() if sys.platform == "darwin" else _STATIC))
_AVX2 = ("-mavx2", "-mfma", "-mf16c", "-mbmi2")
_AVX512 = (*_AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni", "-mprefer-vector-width=512")
PATHS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {"generic": ("-O1",), "avx2": _AVX2, "avx512": _AVX512, "avx512_bf16": (*_AVX512, "-mavx512bf16")},
    "aarch64": {"neon": (), "neon_dot": ("-march=armv8.2-a+dotprod+fp16",), "neon_bf16": ("-march=armv8.6-a+dotprod+fp16+bf16",)},
}
"""Instruction sets by machine: the flags that `kernels/path.cpp` is compiled with for each."""


class CompilerError(Exception):
    """No compiler was found, or it failed."""


def find_compiler() -> str | None:
    """Return the C++ compiler: that of $CXX, or the first one of usual names."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    return next((path for x in names if (path := shutil.which(x))), None)


def machine() -> str:
    """Return the name of the machine's instruction set."""
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())


def sources() -> list[Path]:
    """Return the files that the library is compiled from."""
    return sorted([*FOLDER.glob("*.cpp"), *FOLDER.glob("*.h"), *FOLDER.glob("kernels/*.cpp"), *FOLDER.glob("kernels/*.h")])


def source_hash(compiler: str = "") -> str:
    """Return a hash of the sources and of how they are compiled."""
    digest = hashlib.sha256(repr((compiler, _FLAGS, PATHS, machine())).encode())
    for path in sources():
        digest.update(path.read_bytes())
    return digest.hexdigest()[:20]


def commands(compiler: str, objects: Path, extra: Sequence[str] = ()) -> list[tuple[str, ...]]:
    """Return the command that compiles each object file."""
    paths = PATHS.get(machine(), {"generic": ()})
    result = []
    for source in (x for x in sources() if x.suffix == ".cpp"):
        variants: dict[str, tuple[str, ...]] = paths if source.name == "path.cpp" else {"": ()}
        for name, flags in variants.items():
            own = (f"-DLLAMATH_PATH={name}",) if name else ()
            target = objects / f"{source.stem}{name and '_' + name}.o"
            # paths of the build machine do not get into the file, so that two builds are equal
            same = (f"-ffile-prefix-map={FOLDER}=native",)
            result.append((compiler, *_FLAGS, *same, *extra, *flags, *own, "-c", str(source), "-o", str(target)))
    return result


def build(target: Path, extra: Sequence[str] = ()) -> Path:
    """Compile the library into this file."""
    compiler = find_compiler()
    if compiler is None:
        raise CompilerError("no C++ compiler was found (c++, g++, clang++, or $CXX)")
    with tempfile.TemporaryDirectory() as folder:
        work = commands(compiler, Path(folder), extra)
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            list(pool.map(_run, work))
        library = Path(folder) / LIBRARY
        objects = [x[-1] for x in work]
        _run(
            (
                compiler,
                "-shared",
                "-pthread",
                "-static-libstdc++",
                "-static-libgcc",
                *extra,
                *objects,
                "-o",
                str(library),
                "-Wl,--build-id=none",
            )
        )
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(f".{os.getpid()}")
        shutil.copyfile(library, partial)
        os.replace(partial, target)
    return target


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompilerError(f"{command[0]} failed for {Path(command[-1]).name}: {done.stderr.strip()[-2000:]}")


def cached_library() -> Path:
    """Return where a checkout of the sources keeps its library."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "llamath" / f"native-{source_hash(find_compiler() or '')}" / LIBRARY


def main(arguments: Sequence[str]) -> None:
    """Compile into a file, or with --cached to where a checkout keeps its library."""
    target = cached_library() if "--cached" in arguments else Path(arguments[0]) if arguments else FOLDER / LIBRARY
    if "--cached" in arguments and target.exists():
        return
    try:
        build(target)
    except CompilerError as error:
        raise SystemExit(f"{error}") from None


if __name__ == "__main__":
    main(sys.argv[1:])
