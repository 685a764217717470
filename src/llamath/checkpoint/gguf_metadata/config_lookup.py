"""Which tensors of a GGUF file are no weights of the model."""

from __future__ import annotations

import re

ROTARY_TENSORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")


def is_auxiliary_tensor(name: str, layers: int) -> bool:
    """Whether a tensor is no weight of a model with this many layers: rotary factors, scales, multi-token prediction layers."""
    block = re.match(r"blk\.([0-9]{1,9})\.(.*)", name, re.DOTALL)
    own = block[2] if block else name
    if own in ROTARY_TENSORS or own.endswith((".scale", ".input_scale")):
        return True
    return block is not None and (int(block[1]) >= layers or own.startswith("nextn."))
