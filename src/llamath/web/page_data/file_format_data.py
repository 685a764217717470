"""The facts that the page needs to read dropped files: dtypes and limits, the same as in the readers."""

from __future__ import annotations

from typing import Any

from ...checkpoint.formats import safetensors_grammar
from ...checkpoint.formats.dtypes import DTYPES, GGML, PLAIN
from ...checkpoint.formats.gguf import MAX_ARRAY, MAX_DIMS, MAX_KEY, MAX_KEYS, MAX_NAME, MAX_STRINGS, MAX_TENSORS, REQUIRED_TYPES
from ...checkpoint.formats.gguf_values import KINDS
from ...checkpoint.formats.safetensors import LIMIT
from ...config_keys import NO_EFFECT
from ...families.classes import HEADED

NAMING = frozenset(("architectures", "model_type"))
"""Config keys that only identify the model."""

GROUPS = [
    ["norm", r"norm|(^|\.)ln_"],
    ["experts", r"exps|expert"],
    ["router", r"router|gate_inp|mlp\.gate\.weight"],
    ["embedding", r"embed|embd|wte|wpe"],
    ["attention", r"attn|attention|mixer|ssm|conv"],
    ["mlp", r"mlp|ffn|feed_forward"],
    ["head", r"lm_head|^output"],
]
"""The kind of a tensor by its name; the first match counts."""


def files() -> dict[str, Any]:
    """Return dtypes as (name, block elements, block bytes), metadata types as (name, bytes, DataView method), and limits."""
    return {
        "types": [[x.name, x.block, x.bytes] for x in DTYPES.values()],
        "plain": list(PLAIN),
        "ggml": [[number, x.name] for number, x in GGML.items()],
        "kinds": [[x.name, x.size, _getter(x.name)] for x in KINDS],
        "groups": GROUPS,
        "packed": ["U8", "I16", "I32", "I64", "U32"],
        "typed": [[key, x.name] for key, x in REQUIRED_TYPES.items()],
        "limits": {
            "safetensors": LIMIT,
            "tensors": safetensors_grammar.MAX_TENSORS,
            "strings": safetensors_grammar.MAX_STRINGS,
            "dimensions": safetensors_grammar.MAX_DIMENSIONS,
            "name": safetensors_grammar.MAX_NAME,
            "array": MAX_ARRAY,
            "dims": MAX_DIMS,
            "key": MAX_KEY,
            "keys": MAX_KEYS,
            "tensor": MAX_NAME,
            "listed": MAX_STRINGS,
            "many": MAX_TENSORS,
        },
        "headed": list(HEADED),
        "nothing": sorted(set(NO_EFFECT) - NAMING),
    }


def _getter(name: str) -> str:
    """Return the DataView method, such as getBigUint64 for UINT64."""
    return "getUint8" if name == "BOOL" else f"get{'Big' if 'INT64' in name else ''}{name.capitalize()}"
