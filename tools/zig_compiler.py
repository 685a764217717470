"""Compile the native engine for another machine by zig, which brings the headers of every glibc."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

GLIBC = "2.17"
"""The glibc of manylinux2014."""
MACHINES = ("x86_64", "aarch64")
_RENAMED = {
    "-march=armv8.2-a+dotprod+fp16": "-mcpu=generic+v8_2a+dotprod+fullfp16",
    "-march=armv8.6-a+dotprod+fp16+bf16": "-mcpu=generic+v8_6a+dotprod+fullfp16+bf16",
}
"""GCC's and Clang's flags for instruction sets → zig's."""


def is_installed() -> bool:
    """Whether the package ziglang is there."""
    return importlib.util.find_spec("ziglang") is not None


def environment(machine: str, folder: Path) -> Mapping[str, str]:
    """Return the variables by which the engine is compiled for a machine; the compiler is a script
    in this folder.
    """
    command = [sys.executable, "-m", "ziglang", "c++", "-target", f"{machine}-linux-gnu.{GLIBC}"]
    cases = [f"{old}) word={new};;" for old, new in _RENAMED.items()]
    script = folder / f"zig-{machine}"
    script.write_text(
        "\n".join(
            (
                "#!/bin/sh",
                'for word in "$@"; do',
                "shift",
                f'case "$word" in {" ".join(cases)} esac',
                'set -- "$@" "$word"',
                "done",
                f'exec {shlex.join(command)} "$@"',
                "",
            )
        )
    )
    script.chmod(0o755)
    return {"CXX": str(script), "LLAMATH_MACHINE": machine}
