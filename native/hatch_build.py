"""The build hook of the wheel: adds the C++ sources and the library that it compiles from them, and
tags the wheel for the platform.

LLAMATH_NATIVE=own compiles the instruction set of this processor alone, as tests of the wheel do.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import sysconfig
import tempfile
from pathlib import Path
from typing import Any, Literal

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeBuildHook(BuildHookInterface):  # type: ignore[type-arg, misc]
    """Adds the library and its sources to the wheel. What is installed as editable compiles them at
    first use.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or version == "editable":
            return
        build = load_build(Path(self.root))
        for source in build.sources():
            place = source.relative_to(build.SOURCES).as_posix()
            build_data["force_include"][str(source)] = f"llamath_native/{place}"
        self._folder = tempfile.TemporaryDirectory()
        paths = build.own_paths() if os.environ.get("LLAMATH_NATIVE") == "own" else ()
        try:
            library = build.build(Path(self._folder.name) / build.LIBRARY, paths=paths)
        except build.CompilerError as error:
            self.app.abort(f"llamath-native is not built: {error}")
        build_data["force_include"][str(library)] = f"llamath_native/{build.LIBRARY}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag(library.read_bytes())}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        if hasattr(self, "_folder"):
            self._folder.cleanup()


def load_build(root: Path) -> Any:
    """Return the module `llamath_native.build` of a folder of sources, whose package need not be
    installed.
    """
    spec = importlib.util.spec_from_file_location(
        "llamath_native_build", root / "llamath_native" / "build.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def platform_tag(library: bytes) -> str:
    """Return the tag of the platforms that can load a library: on Linux those of its machine with
    the newest version of glibc that it names.
    """
    order: Literal["big", "little"] = "big" if library[5:6] == b"\2" else "little"
    if library.startswith(b"\x7fELF") and (names := re.findall(rb"GLIBC_2\.(\d+)\b", library)):
        machine = _ELF_MACHINES.get(int.from_bytes(library[18:20], order), platform.machine())
        return f"manylinux_2_{max(17, *map(int, names))}_{machine}"
    return re.sub(r"[-.]", "_", sysconfig.get_platform())


_ELF_MACHINES = {62: "x86_64", 183: "aarch64"}
