"""What the page needs to read dropped files: dtypes, limits, and patterns of files that stand in
the place of others.
"""

from __future__ import annotations

from typing import Any

from ...checkpoint.formats import safetensors
from ...checkpoint.formats.dtypes import DTYPES, GGML, PLAIN
from ...checkpoint.formats.gguf import (
    KINDS,
    MAX_ARRAY,
    MAX_DIMS,
    MAX_KEY,
    MAX_KEYS,
    MAX_NAME,
    MAX_STRINGS,
    MAX_TENSORS,
    REQUIRED_TYPES,
)
from ...checkpoint.meta_args import params_rule
from ...config_keys import NO_EFFECT
from ...families.model_class import HEADED
from ...utils.file_diagnosis import page_objects, page_patterns

_IDENTITY_KEYS = frozenset(("architectures", "model_type"))
"""Config keys that only identify the model."""

_GROUP_PATTERNS = [
    ["norm", r"norm|(^|\.)ln_"],
    ["experts", r"exps|expert"],
    ["router", r"router|gate_inp|mlp\.gate\.weight"],
    ["embedding", r"embed|embd|wte|wpe"],
    ["attention", r"attn|attention|mixer|ssm|conv"],
    ["mlp", r"mlp|ffn|feed_forward"],
    ["head", r"lm_head|^output"],
]
"""The group of a tensor by its name; the first match applies."""

_ELSEWHERE = [
    ["a ZIP archive, such as a PyTorch or NumPy file", r"^PK\x03\x04"],
    ["a pickle, such as an old PyTorch file", r"^\x80[\x02-\x05]"],
]
"""Files that the command line reads, and the page does not, with patterns of their first bytes."""


def file_formats() -> dict[str, Any]:
    """Return the dtypes, metadata types and limits by which the page reads the headers of dropped
    files.

    A dtype is (name, elements per block, bytes per block), a metadata type is (name, bytes,
    DataView method).
    """
    return {
        "types": [[x.name, x.block, x.bytes] for x in DTYPES.values()],
        "plain": list(PLAIN),
        "ggml": [[number, x.name] for number, x in GGML.items()],
        "kinds": [[x.name, x.size, _getter(x.name)] for x in KINDS],
        "groups": _GROUP_PATTERNS,
        "others": page_patterns(),
        "elsewhere": _ELSEWHERE,
        "objects": page_objects(),
        "packed": ["U8", "I16", "I32", "I64", "U32"],
        "typed": [[key, x.name] for key, x in REQUIRED_TYPES.items()],
        "limits": {
            "safetensors": safetensors.MAX_HEADER,
            "tensors": safetensors.MAX_TENSORS,
            "strings": safetensors.MAX_STRINGS,
            "dimensions": safetensors.MAX_DIMENSIONS,
            "name": safetensors.MAX_NAME,
            "array": MAX_ARRAY,
            "dims": MAX_DIMS,
            "key": MAX_KEY,
            "keys": MAX_KEYS,
            "tensor": MAX_NAME,
            "listed": MAX_STRINGS,
            "many": MAX_TENSORS,
        },
        "headed": list(HEADED),
        "params": params_rule(),
        "nothing": sorted(set(NO_EFFECT) - _IDENTITY_KEYS),
    }


def _getter(name: str) -> str:
    """Return the DataView method, such as getBigUint64 for UINT64."""
    return (
        "getUint8"
        if name == "BOOL"
        else f"get{'Big' if 'INT64' in name else ''}{name.capitalize()}"
    )
