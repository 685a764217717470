"""AutoRound: integers as GPTQ or AWQ store them, floats as compressed-tensors does, with overrides
by name.
"""

from __future__ import annotations

from collections.abc import Mapping

from ....utils.dotted_names import DottedNames
from ..matrix_formats import MatrixFormat, parts
from ..recipes import (
    Choice,
    Matrix,
    Recipe,
    always,
    by_pattern,
    keep,
    keep_listed,
    linear_only,
)
from ..registry import Keys, Producer
from ..shared.fp4 import packed_mxfp_format, packed_nvfp4_format
from ..shared.name_patterns import NamePatterns, inside_name, whole_regex
from ..shared.recipe_keys import bits_of, group_of, integer, mapping, strings, unknown
from ..shared.scaled_bytes import fp8_rows_format, mxfp8_format
from .awq import awq_format
from .gptq import gptq_format


def _float_format(kind: str, bits: int, keys: Keys, dtype: str) -> MatrixFormat:
    if (kind, bits) == ("mx_fp", 4):
        return packed_mxfp_format(4)
    if (kind, bits) == ("mx_fp", 8):
        return mxfp8_format()
    is_activation = integer(keys, "act_bits", 16) <= 8
    if (kind, bits) == ("nv_fp", 4):
        return packed_nvfp4_format(16, is_activation)
    group = keys.get("group_size")
    if (kind, bits, group) == ("fp", 8, -1):
        is_static = is_activation and keys.get("act_dynamic") is False
        return fp8_rows_format(dtype, extra=parts(f".input_scale {dtype} 1" if is_static else ""))
    raise unknown(f"auto-round data_type {kind} with {bits} bits and group_size {group}")


def _format(keys: Keys, config: Keys, dtype: str) -> MatrixFormat | None:
    """Return the format of modules with these keys; None if they stay unquantized."""
    packing = str(config.get("packing_format", "auto_round:auto_gptq")).lower()
    bits = integer(keys, "bits", integer(config, "bits"))
    kind = str(keys.get("data_type", config.get("data_type", "int")))
    if bits >= 16:
        return None
    if kind != "int":
        return _float_format(kind, bits, {**config, **keys}, dtype)
    if any(x in packing for x in ("llm_compressor", "nvfp", "mxfp")):
        raise unknown(f"auto-round packing_format {packing} with data_type {kind}")
    is_awq = "awq" in packing
    bits = bits_of({"bits": bits}, (4,) if is_awq else (2, 3, 4, 8))
    group = group_of(keys, group_of(config, 128))
    return awq_format(group) if is_awq else gptq_format(bits, group, index=False)


def _read(config: Keys, dtype: str) -> Recipe:
    to = _format({}, config, dtype)
    if to is None:
        raise unknown("auto-round with 16 bits")
    overrides = {
        name: _format(keys, config, dtype)
        for name, keys in mapping(config.get("extra_config")).items()
        if isinstance(keys, Mapping)
    }
    blocks = strings(config, "block_name_to_quantize", "to_quant_block_names")
    inside = tuple(y.strip() for x in blocks or () for y in x.split(",") if y.strip())
    parents = DottedNames(inside)
    skipped = NamePatterns(strings(config, "modules_to_not_convert") or (), inside_name)

    def keep_outside(x: Matrix) -> Choice | None:
        if not inside or any(inside[i] != name for name in x.names for i in parents.along(name)):
            return None
        return Choice(None, "not in block_name_to_quantize")

    rules = (
        by_pattern(overrides, whole_regex, "16 bits in extra_config", "embedding"),
        linear_only,
        keep("output head", "head"),
        keep_outside,
        keep_listed(skipped, "in modules_to_not_convert"),
        always(to),
    )
    patterns = (*overrides, *skipped.patterns)
    return Recipe(method="auto-round", name=to.name, rules=rules, patterns=patterns)


PRODUCER = Producer(
    read=_read, recognized=("gptq", "awq", "nvfp4", "mxfp4", "fp8", "compressed-int")
)
