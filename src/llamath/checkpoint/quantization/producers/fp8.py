"""FP8 of transformers (`fp8`, `mxfp8`, `fbgemm_fp8`): DeepSeek's blocks, experts in FP4, and tables
of embeddings.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ....utils.errors import UnknownQuantization, safe
from ..matrix_formats import MatrixFormat, parts
from ..recipes import Choice, Matrix, Recipe, Rule, skipping_recipe
from ..registry import Keys, Producer
from ..shared.fp4 import mxfp4_experts_format
from ..shared.name_patterns import NamePatterns, like_transformers, pattern_list, suffix
from ..shared.recipe_keys import counted_or_given, mapping, strings, unknown, wrong
from ..shared.scaled_bytes import fp8_format, fp8_rows_format, is_block, mxfp8_format
from .modelopt import formats_of_table, layer_table

_LISTS = ("modules_to_not_convert", "ignored_layers")
_SHARD = re.compile(r"\.shard_[^.]*$")


def _read(config: Keys, dtype: str) -> Recipe:
    if str(config.get("quant_method")).lower() == "fbgemm_fp8":
        to = fp8_rows_format(axes="out 1")
        return skipping_recipe("fbgemm_fp8", config, to, "modules_to_not_convert")
    to, experts = _format(config)
    recipe, fp4 = skipping_recipe("fp8", config, to, *_LISTS), mxfp4_experts_format()
    layers = mapping(config.get("quantized_layers"))
    tables = strings(config, "modules_to_convert") or ()
    rules: list[Rule] = [_table_rule(config, tables)] if tables else []
    formats: tuple[str, ...] = ()
    if layers:
        by_layer = layer_table(layers, dtype)
        formats = formats_of_table(layers, by_layer)
        rules.append(lambda x: y if (y := by_layer(x)).format is not None else None)
    if experts == "fp4":
        others = recipe.choose
        rules.append(
            lambda x: Choice(fp4) if x.kind == "expert" and others(x).format is not None else None
        )
    return recipe.replace(
        name=f"{fp4.name}+{to.name}" if experts == "fp4" else to.name,
        rules=(*rules, *recipe.rules),
        patterns=(*recipe.patterns, *tables, *layers),
        table=formats,
    )


def _format(config: Keys) -> tuple[MatrixFormat, str]:
    """Return the format of matrices, and the type of experts, fp8 or fp4."""
    found = config.get("weight_block_size")
    if found is not None and not is_block(found):
        raise wrong("weight_block_size", "two positive integers", found)
    block = (found[0], found[1]) if isinstance(found, Sequence) else None
    scheme = str(config.get("activation_scheme", "dynamic"))
    if scheme not in ("dynamic", "static"):
        raise unknown(f"activation_scheme {scheme}")
    experts = str(config.get("expert_dtype") or "fp8")
    if experts not in ("fp8", "fp4"):
        raise unknown(f"expert_dtype {experts}")
    static = "activation_scale" if scheme == "static" else ""
    if str(config.get("quant_method")).lower() == "mxfp8":
        if block != (1, 32) or static or experts != "fp8":
            raise unknown(
                f"mxfp8 with weight_block_size {found}, {scheme} activations and {experts} experts"
            )
        return mxfp8_format("weight_scale_inv"), experts
    if "expert_dtype" in config and config.get("scale_fmt") == "ue8m0":  # V3.1's are in F32
        return fp8_format(block, "scale", static, "F8_E8M0"), experts
    return fp8_format(block, static=static), experts


def _table_rule(config: Keys, tables: Sequence[str]) -> Rule:
    """Quantize the embeddings that are listed, with a scale for the table."""
    ends = pattern_list(map(suffix, tables))
    kept = NamePatterns(strings(config, *_LISTS) or (), like_transformers)
    to = MatrixFormat(
        name="fp8-table",
        title="FP8, a scale for the table",
        parts=parts(".weight F8_E4M3 out in", ".weight_scale F32 1"),
        compute_rate="fp8",
    )

    def choose(x: Matrix) -> Choice | None:
        if x.kind != "embedding":
            return None
        if any(ends.first_match(name) is not None for name in x.names):
            is_kept = kept.find(x.names)
            return Choice(None, f"in {_LISTS[0]}") if is_kept else Choice(to)
        if any(ends.first_match(_SHARD.sub("", name)) is not None for name in x.names):
            listed = safe(", ".join(tables), 80)
            raise UnknownQuantization(
                f"quantization_config: modules_to_convert ({listed}) names a table in "
                "shards, whose scales are not described anywhere",
                hint=counted_or_given(),
            )
        return None

    return choose


PRODUCER = Producer(read=_read, recognized=("fp8", "mxfp4", "nvfp4"))
