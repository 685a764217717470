"""Compile the library: the interpreter, and the kernels once for each instruction set.

Called by the build hook of the package, by `make`, and at first use in a checkout of the sources.
Only the standard library is needed.
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
SOURCES = FOLDER if (FOLDER / "program.h").is_file() else FOLDER.parent
"""The C++ sources: in the package, or in a checkout around it."""
LIBRARY = "libllamath.so"
"""File name of the library, in the package's folder where it was built with it."""
_FLAGS = (
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-fvisibility=default",
    "-pthread",
    "-ffp-contract=fast",
    "-Wall",
)
_STATIC = ("-static-libstdc++", "-static-libgcc", "-Wl,--build-id=none", "-s")
LINK_FLAGS = ("-shared", "-pthread", *(() if sys.platform == "darwin" else _STATIC))
_AVX2 = ("-mavx2", "-mfma", "-mf16c", "-mbmi2")
_AVX512 = (
    *_AVX2,
    "-mavx512f",
    "-mavx512bw",
    "-mavx512dq",
    "-mavx512vl",
    "-mavx512vnni",
    "-mprefer-vector-width=512",
)
PATHS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {
        "generic": ("-O1",),
        "avx2": _AVX2,
        "avx512": _AVX512,
        "avx512_bf16": (*_AVX512, "-mavx512bf16"),
    },
    "aarch64": {
        "neon": (),
        "neon_dot": ("-march=armv8.2-a+dotprod+fp16",),
        "neon_bf16": ("-march=armv8.6-a+dotprod+fp16+bf16",),
    },
}
"""Instruction sets by machine, from the slowest to the fastest: the flags that kernels are
compiled with for each."""
REFERENCE = "reference"
"""The instruction set of plain loops, which is always compiled."""
_CPUINFO = "/proc/cpuinfo"
_FOR_EACH_PATH = ("path.cpp", "packed.cpp")
_VNNI = {"avx512bw", "avx512dq", "avx512vl", "avx512_vnni"}
_FEATURES: dict[str, set[str]] = {
    "avx2": {"avx2", "fma", "bmi2", "f16c"},
    "avx512": _VNNI,
    "avx512_bf16": {*_VNNI, "avx512_bf16"},
    "neon_dot": {"asimddp"},
    "neon_bf16": {"asimddp", "bf16"},
}
"""What Linux calls the features that an instruction set needs."""


class CompilerError(Exception):
    """No compiler was found, or it failed."""


def find_compiler() -> str | None:
    """Return the C++ compiler: that of $CXX, or the first one of usual names."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    return next((path for x in names if (path := shutil.which(x))), None)


def machine() -> str:
    """Return the name of the instruction set of $LLAMATH_MACHINE, which $CXX compiles for, or of
    this machine.
    """
    name = (os.environ.get("LLAMATH_MACHINE") or platform.machine()).lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def sources() -> list[Path]:
    """Return the files that the library is compiled from."""
    return sorted(
        [
            *SOURCES.glob("*.cpp"),
            *SOURCES.glob("*.h"),
            *SOURCES.glob("kernels/*.cpp"),
            *SOURCES.glob("kernels/*.h"),
        ]
    )


def all_paths() -> tuple[str, ...]:
    """Return every instruction set of this kind of machine."""
    return tuple(PATHS.get(machine(), {"generic": ()}))


def own_paths() -> tuple[str, ...]:
    """Return the fastest instruction set that this processor has, which compiles soonest; all
    where it is not known.
    """
    try:
        with open(_CPUINFO, encoding="utf-8", errors="replace") as file:
            lines = file.read(2**14).splitlines()
    except OSError:
        return all_paths()
    features = next(
        (set(x.partition(":")[2].split()) for x in lines if x.startswith(("flags", "Features"))),
        None,
    )
    if features is None:
        return all_paths()
    return tuple(x for x in all_paths() if _FEATURES.get(x, set()) <= features)[-1:]


def source_hash(compiler: str = "", paths: Sequence[str] = ()) -> str:
    """Return a hash of the sources and of how they are compiled, for these instruction sets or
    for all.
    """
    digest = hashlib.sha256(
        repr((compiler, _FLAGS, LINK_FLAGS, PATHS, machine(), tuple(paths) or all_paths())).encode()
    )
    for path in sources():
        digest.update(path.read_bytes())
    return digest.hexdigest()[:20]


def commands(
    compiler: str, objects: Path, extra: Sequence[str] = (), paths: Sequence[str] = ()
) -> list[tuple[str, ...]]:
    """Return the command that compiles each object file, for these instruction sets or for all;
    those that take longest come first.
    """
    flags_of = PATHS.get(machine(), {"generic": ()})
    chosen = [x for x in paths or flags_of if x != REFERENCE]
    listed = f"-DLLAMATH_PATHS(EACH)={' '.join(f'EACH({x})' for x in (REFERENCE, *chosen))}"
    result = []
    for source in sorted(
        (x for x in sources() if x.suffix == ".cpp"), key=lambda x: x.name not in _FOR_EACH_PATH
    ):
        variants: dict[str, tuple[str, ...]] = {"": ()}
        if source.name in _FOR_EACH_PATH:
            variants = {x: flags_of[x] for x in chosen}
        for name, flags in variants.items():
            own = (f"-DLLAMATH_PATH={name}",) if name else ()
            target = objects / f"{source.stem}{name and '_' + name}.o"
            # paths of the build machine do not get into the file, so that two builds are equal
            same = (f"-ffile-prefix-map={SOURCES}=native",)
            result.append(
                (
                    compiler,
                    *_FLAGS,
                    *same,
                    *extra,
                    *flags,
                    *own,
                    listed,
                    "-c",
                    str(source),
                    "-o",
                    str(target),
                )
            )
    return result


def build(target: Path, extra: Sequence[str] = (), paths: Sequence[str] = ()) -> Path:
    """Compile the library into this file, for these instruction sets or for all."""
    compiler = find_compiler()
    if compiler is None:
        raise CompilerError("no C++ compiler was found (c++, g++, clang++, or $CXX)")
    with tempfile.TemporaryDirectory() as folder:
        work = commands(compiler, Path(folder), extra, paths)
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            list(pool.map(_run, work))
        library = Path(folder) / LIBRARY
        _run((compiler, *LINK_FLAGS, *extra, *[x[-1] for x in work], "-o", str(library)))
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(f".{os.getpid()}")
        shutil.copyfile(library, partial)
        # whatever the umask is: a library that others can write is not loaded
        os.chmod(partial, 0o644)
        os.replace(partial, target)
    return target


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompilerError(
            f"{command[0]} failed for {Path(command[-1]).name}: {done.stderr.strip()[-2000:]}"
        )
