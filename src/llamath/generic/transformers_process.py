"""`build_in_transformers`: the tensors of a configuration's class in transformers, built in a
process of its own, with limits.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import IO, Any, NamedTuple

from ..utils.errors import Argument, LlamathError, safe
from .module_tree import StateTensor

SECONDS = 600
"""The time that building a class may take, imports included."""
_MAX_ANSWER = 512 << 20
"""The most bytes that are read of the answer."""
_SCRIPT = os.path.join(os.path.dirname(__file__), "transformers_script.py")
_KEPT_VARIABLES = (
    "PATH",
    "LANG",
    "LC_ALL",
    "SYSTEMROOT",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "VIRTUAL_ENV",
    "OMP_NUM_THREADS",
)
"""The environment variables that the process gets: no token, no proxy, no PYTHONPATH."""
_DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "bool": "BOOL",
    "uint8": "U8", "int8": "I8",
    "int16": "I16", "int32": "I32", "int64": "I64", "uint16": "U16", "uint32": "U32",
    "uint64": "U64", "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0",
    "float4_e2m1fn_x2": "F4",
    "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ",
}  # fmt: skip
"""torch's name of a dtype → safetensors' name."""


class BuiltModule(NamedTuple):
    """What transformers built of a configuration."""

    version: str
    class_name: str
    tensors: tuple[StateTensor, ...]
    notes: tuple[str, ...]

    @property
    def claim(self) -> str:
        """Whose tensors they are."""
        return f"as transformers {self.version} builds {self.class_name}"


def has_transformers() -> bool:
    """Return whether transformers and torch are installed; neither is imported."""
    return all(find_spec(x) is not None for x in ("transformers", "torch"))


def dtype_name(text: str) -> str:
    """Return safetensors' name of a dtype, given torch's: `torch.bfloat16`."""
    name = text.removeprefix("torch.")
    if name not in _DTYPES:
        raise LlamathError(
            f"unknown dtype {safe(text, 60)} of a tensor", hint="only plain tensors are counted"
        )
    return _DTYPES[name]


def build_in_transformers(
    keys: Mapping[str, Any], source: str, changed: Iterable[str] = ()
) -> BuiltModule:
    """Build the class of a configuration on the meta device, in a process of its own, and return
    its tensors.

    `changed` are keys that a user has set, which the class must have.
    """
    for module in ("transformers", "torch"):
        if find_spec(module) is None:
            raise LlamathError(
                f"{Argument('via', 'transformers')} needs {module}, which is not installed",
                hint="pip install transformers torch",
            )
    answer = json.loads(
        _run(json.dumps({"config": keys, "changed": list(changed)}).encode(), source)
    )
    if (problem := answer.get("error")) is not None:
        raise LlamathError(
            f"{source}: {safe(str(problem), 700)}",
            hint="a checkpoint's header is exact for any model: count its files",
        )
    rows = answer["tensors"]
    tensors = tuple(
        StateTensor(name, dtype_name(dtype), tuple(shape), kind == "buffer", tied)
        for name, dtype, shape, kind, tied in rows
    )
    notes = tuple(safe(x, 400) for x in answer["notes"])
    return BuiltModule(safe(answer["version"], 40), safe(answer["class"], 80), tensors, notes)


def _run(question: bytes, source: str) -> bytes:
    """Run the script in an empty folder, without site hooks of the user, and return what it
    prints.
    """
    with (
        tempfile.TemporaryDirectory(prefix="llamath-") as folder,
        tempfile.TemporaryFile(dir=folder) as errors,
    ):
        process = subprocess.Popen(
            [sys.executable, "-I", _SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=folder,
            env=_environment(folder),
            start_new_session=True,
        )
        try:
            answer, _ = process.communicate(question, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            raise LlamathError(
                f"{source}: transformers took more than {SECONDS} seconds to build the class"
            ) from None
        finally:
            _end(process)
        if process.returncode or not answer or len(answer) > _MAX_ANSWER:
            raise LlamathError(
                f"{source}: transformers could not build the class: "
                f"{_reason(process.returncode, errors)}"
            )
        return answer


def _environment(folder: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    offline = {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    return {
        **kept,
        **offline,
        "HOME": folder,
        "HF_HOME": folder,
        "TMPDIR": folder,
        "USE_TF": "0",
        "USE_FLAX": "0",
    }


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and what it started, if they still run."""
    if process.poll() is None:
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
        process.communicate()


def _reason(code: int, errors: IO[bytes]) -> str:
    """Return the last line that the process wrote, and how it ended."""
    errors.seek(0, os.SEEK_END)
    errors.seek(max(0, errors.tell() - 4000))
    lines: Sequence[str] = errors.read().decode(errors="replace").strip().splitlines()
    if code < 0 and -code in (signal.SIGKILL, getattr(signal, "SIGXCPU", 0)):
        return "it was stopped, because it needed too much time or memory"
    return safe(lines[-1], 300) if lines else f"exit code {code}"
