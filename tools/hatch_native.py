"""The build hook of the wheel: adds the sources of the native engine, compiles it where there is a
C++ compiler, and tags the wheel for the platform.

LLAMATH_NATIVE=require fails without a compiler, LLAMATH_NATIVE=skip builds a wheel without the
engine, which runs models on torch, and LLAMATH_NATIVE=own compiles the instruction set of this
processor alone, as tests of the wheel do.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NO_ENGINE = (
    "llamath is installed without its native engine: {}. It runs models on torch instead; "
    "install g++ or clang++, then install again."
)


class NativeBuildHook(BuildHookInterface):  # type: ignore[type-arg, misc]
    """Adds the library and its sources to the wheel. A checkout that is installed as editable
    compiles them at first use."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or version == "editable":
            return
        native = load_build(Path(self.root))
        for source in native.sources():
            place = source.relative_to(native.SOURCES).as_posix()
            build_data["force_include"][str(source)] = f"llamath/native/{place}"
        wish = os.environ.get("LLAMATH_NATIVE", "")
        if wish == "skip":
            return
        self._folder = tempfile.TemporaryDirectory()
        try:
            paths = native.own_paths() if wish == "own" else ()
            library = native.build(Path(self._folder.name) / native.LIBRARY, paths=paths)
        except (native.CompilerError, OSError) as error:
            if wish == "require":
                raise
            self.app.display_warning(NO_ENGINE.format(str(error).partition("\n")[0]))
            return
        build_data["force_include"][str(library)] = f"llamath/native/{native.LIBRARY}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag(library.read_bytes())}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        if hasattr(self, "_folder"):
            self._folder.cleanup()


def load_build(root: Path) -> Any:
    """Return the module `llamath.native.build` of a folder of sources, whose package need not be
    installed."""
    spec = importlib.util.spec_from_file_location(
        "llamath_native_build", root / "src" / "llamath" / "native" / "build.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def platform_tag(library: bytes) -> str:
    """Return the tag of the platforms that can load a library: on Linux those with the newest
    version of glibc that it names."""
    if platform.libc_ver()[0] == "glibc":
        minor = max(int(x) for x in re.findall(rb"GLIBC_2\.(\d+)\b", library))
        return f"manylinux_2_{max(minor, 17)}_{platform.machine()}"
    return re.sub(r"[-.]", "_", sysconfig.get_platform())
