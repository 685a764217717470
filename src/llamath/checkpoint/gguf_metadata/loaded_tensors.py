"""`loading_problems`: why llama.cpp would not load a file with these tensors.

Its loader asks for the tensors of an architecture by name, and refuses a file that lacks one or has
another. The table is made from its source by `tools/llama_cpp_tensors.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from .gguf_rope import ROTARY_TENSORS

LOADED_TENSORS = Path(__file__).with_name("llama_cpp_tensors.json")
_SCALES = (".scale", ".input_scale")
"""Ends of scales, which the loader takes beside any matrix."""


@cache
def _table() -> Mapping[str, Any]:
    table: Mapping[str, Any] = json.loads(LOADED_TENSORS.read_text())
    return table


def loader_version() -> str:
    """Return the version of llama.cpp that the table was made from."""
    return str(_table()["version"])


def loading_problems(arch: str, tensors: Iterable[str]) -> list[str]:
    """Return what llama.cpp lacks for an architecture, or misses in these tensors, in words;
    tensors of all layers are one.
    """
    known = _table()["architectures"].get(arch)
    if known is None:
        return [f"llama.cpp has a name for the architecture {arch} and cannot load it"]
    names = {re.sub(r"\Ablk\.\d+", "blk.#", x) for x in tensors}
    required, optional = (set(known[x].split()) for x in ("required", "optional"))
    extra = sorted(x for x in names - required - optional if not x.endswith(_SCALES))
    missing = sorted(required - names)
    problems = [
        f"llama.cpp has no {_words(x)} for architecture {arch}"
        for x in _without_weights_of_biases(extra)
    ]
    return problems + [f"llama.cpp needs {_words(x)} for architecture {arch}" for x in missing]


def loads_mtp_layers(arch: str) -> bool:
    """Return whether llama.cpp asks for tensors of multi-token prediction in an architecture."""
    known = _table()["architectures"].get(arch, {})
    return any(".nextn." in names for names in known.values())


def is_auxiliary_tensor(name: str, layers: int) -> bool:
    """Whether a tensor is no weight of a model with this many layers: rotary factors, scales,
    multi-token prediction layers.
    """
    block = re.match(r"blk\.([0-9]{1,9})\.(.*)", name, re.DOTALL)
    name_in_block = block[2] if block else name
    if name_in_block in ROTARY_TENSORS or name_in_block.endswith((".scale", ".input_scale")):
        return True
    return block is not None and (int(block[1]) >= layers or name_in_block.startswith("nextn."))


def _words(name: str) -> str:
    return f"{name.removeprefix('blk.#.')}{' in its layers' if name.startswith('blk.#.') else ''}"


def _without_weights_of_biases(names: list[str]) -> list[str]:
    """Leave out biases of matrices that are listed themselves."""
    return [
        x for x in names if not (x.endswith(".bias") and x.removesuffix("bias") + "weight" in names)
    ]
