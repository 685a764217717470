"""Compile the engine to WebAssembly for pages, with a sum of the sources beside it: `make wasm`
writes src/llamath/web/static/engine.wasm.

    python tools/wasm.py           compile it; needs the packages of requirements/wasm.txt
    python tools/wasm.py --check   compile it again and compare the bytes, where the compiler is
                                   installed; elsewhere compare the sum of the sources alone

The module imports nothing and exports what native/wasm/live.cpp marks. zig is a compiler with
clang, a C library and a C++ library for WebAssembly in one package, so that every machine makes the
same bytes.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from llamath_native.build import SOURCES

ROOT = Path(__file__).parents[1]
MODULE = ROOT / "src" / "llamath" / "web" / "static" / "engine.wasm"
SUM = MODULE.with_suffix(".sha256")
UNITS = {
    "kernels/path.cpp": ("-O3", "-DLLAMATH_PATH=wasm"),
    **dict.fromkeys(
        (
            "kernels/api.cpp",
            "kernels/choices.cpp",
            "interpreter.cpp",
            "operations.cpp",
            "validation.cpp",
            "wasm/live.cpp",
            "wasm/pool_single.cpp",
        ),
        ("-Os",),
    ),
}
"""What is compiled, with the flags of each: kernels for speed, the rest for size."""
TARGET = ("-target", "wasm32-wasi")
FLAGS = (
    "-std=c++17",
    "-g0",
    "-msimd128",
    "-fno-exceptions",
    "-fno-rtti",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-ffunction-sections",
    "-fdata-sections",
    "-DLLAMATH_SMALL",
    "-DLLAMATH_PATHS(EACH)=EACH(wasm)",
)
LINK_FLAGS = (
    "-mexec-model=reactor",
    "-Wl,--gc-sections",
    "-Wl,--strip-all",
    "-Wl,-z,stack-size=262144",
)


NOTICES = """This module contains code of these libraries.

musl in wasi-libc (MIT): Copyright (c) 2005-2020 Rich Felker, et al.
compiler_rt of Zig (MIT): Copyright (c) Zig contributors
libc++ of LLVM (Apache-2.0 WITH LLVM-exception)

"""
"""What the licenses of these libraries ask for, before the text of the MIT license."""


def sources() -> list[Path]:
    """Return the files that determine the module."""
    folders = (SOURCES, SOURCES / "kernels", SOURCES / "wasm")
    return sorted(x for folder in folders for x in folder.iterdir() if x.suffix in (".cpp", ".h"))


def sum_of_sources() -> str:
    """Return the sum of the sources, of the flags and of the compiler's version."""
    digest = hashlib.sha256(repr((UNITS, TARGET, FLAGS, LINK_FLAGS, NOTICES)).encode())
    for path in sources():
        name = path.relative_to(SOURCES).as_posix()
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    digest.update((ROOT / "requirements" / "wasm.txt").read_bytes())
    return digest.hexdigest()


def has_compiler() -> bool:
    return importlib.util.find_spec("ziglang") is not None


def compile_module() -> bytes:
    """Return the module, with a section of the notices of its libraries."""
    compiler = (sys.executable, "-m", "ziglang", "c++", *TARGET)
    with tempfile.TemporaryDirectory() as folder:
        objects = {x: f"{folder}/{Path(x).stem}.o" for x in UNITS}
        commands = [
            (*compiler, *FLAGS, *flags, "-c", name, "-o", objects[name])
            for name, flags in UNITS.items()
        ]
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            list(pool.map(_run, commands))
        module = f"{folder}/engine.wasm"
        _run((*compiler, *LINK_FLAGS, *objects.values(), "-o", module))
        return Path(module).read_bytes() + notices()


def notices() -> bytes:
    """Return a custom section of a module with the notices."""
    spec = importlib.util.find_spec("ziglang")
    assert spec is not None and spec.origin is not None
    text = Path(spec.origin).with_name("LICENSE").read_text()
    name, permission = b"notices", text[text.index("Permission is hereby granted") :]
    content = bytes((len(name),)) + name + (NOTICES + permission).encode()
    return b"\0" + _leb128(len(content)) + content


def _leb128(number: int) -> bytes:
    """Return a number as WebAssembly writes it: seven bits a byte, the last without the eighth."""
    low = number & 127
    return bytes((low,)) if number < 128 else bytes((low | 128,)) + _leb128(number >> 7)


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr[-4000:]}")


def is_current() -> bool:
    """Return whether the module and its sum belong to these sources."""
    digest = hashlib.sha256(MODULE.read_bytes()).hexdigest()
    return SUM.is_file() and SUM.read_text().split() == [sum_of_sources(), digest]


def check() -> str:
    """Return what is wrong with the module, or an empty text."""
    name = MODULE.relative_to(ROOT)
    if not is_current():
        return f"{name} is not compiled from these sources: run `make wasm`"
    if has_compiler() and compile_module() != MODULE.read_bytes():
        return f"{name} differs from what the compiler makes: run `make wasm`"
    return ""


def main() -> None:
    if "--check" in sys.argv:
        sys.exit(check() or 0)
    if not has_compiler():
        sys.exit("zig is not installed: pip install --require-hashes -r requirements/wasm.txt")
    module = compile_module()
    MODULE.parent.mkdir(parents=True, exist_ok=True)
    MODULE.write_bytes(module)
    SUM.write_text(f"{sum_of_sources()}\n{hashlib.sha256(module).hexdigest()}\n")
    print(f"{MODULE.relative_to(ROOT)}: {len(module):,} bytes")


if __name__ == "__main__":
    main()
