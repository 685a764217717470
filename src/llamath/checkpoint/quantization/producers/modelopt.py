"""NVIDIA ModelOpt: an algorithm for the model, or for each layer of a table, also in a
`hf_quant_config.json`; INT4 AWQ with two rows in a byte is its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...formats.manifest import Tensor
from ...formats.number_arrays import require_numpy
from ..matrix_formats import MatrixFormat, group_title, parts
from ..packed_tensors import SCALE_DTYPES, Detection, Packing
from ..recipes import (
    NOT_LINEAR,
    CacheScales,
    Choice,
    Matrix,
    Recipe,
    Rule,
    cache_format,
    keep,
    keep_listed,
    without_prefix,
)
from ..registry import Keys, PackedLayout, Producer
from ..shared.fp4 import mxfp4_format, nvfp4_format
from ..shared.half_steps import WholeNumbers
from ..shared.name_patterns import NamePatterns, wildcard
from ..shared.recipe_keys import mapping, strings, unknown
from ..shared.scaled_bytes import fp8_format, fp8_rows_format, mxfp8_format
from ..shared.stored_matrix import Rows, StoredMatrix, per_value

# Formats


def _int4_format(group: int, dtype: str, second_scale: bool) -> MatrixFormat:
    """Return INT4 AWQ: two rows in a byte, a scale for each group, and a scale for each input."""
    return MatrixFormat(
        name="w4a8-awq" if second_scale else "w4a16-awq",
        title=group_title("ModelOpt AWQ", 4, group),
        parts=parts(
            ".weight U8 out/2 in",
            f".weight_scale F32 out in/{group}",
            f".pre_quant_scale {dtype} in",
            *((".weight_scale_2 F32", ".input_scale F32") if second_scale else ()),
        ),
    )


def _int8_format(name: str, *extra: str) -> MatrixFormat:
    return MatrixFormat(
        name=name,
        title="INT8, a scale for each row",
        parts=parts(".weight I8 out in", ".weight_scale F32 out", *extra),
        compute_rate="int8" if extra else "",
    )


def _format(algo: str, keys: Keys, dtype: str) -> MatrixFormat:
    """Return the format of an algorithm."""
    n = keys.get("group_size") or 0
    if type(n) is not int or n < 0:
        raise unknown(f"group_size {n} of {algo}")
    block = n or 128
    makers: dict[str, Callable[[], MatrixFormat]] = {
        "FP8": lambda: fp8_format(None, "weight_scale", "input_scale").replace(name="fp8"),
        "FP8_PER_CHANNEL_PER_TOKEN": fp8_rows_format,
        "FP8_PB_WO": lambda: fp8_format(
            (block, block), "weight_scale", axes=f"out/{block} 1 in/{block} 1"
        ),
        "NVFP4": lambda: nvfp4_format(True, n or 16),
        "W4A8_NVFP4_FP8": lambda: nvfp4_format(True, n or 32).replace(
            name="nvfp4-w4a8", compute_rate="fp8"
        ),
        "W4A16_NVFP4": lambda: nvfp4_format(False, n or 16),
        "NVFP4_AWQ": lambda: nvfp4_format(True, n or 16, dtype),
        "MXFP8": mxfp8_format,
        "MXFP4": mxfp4_format,
        "W4A8_MXFP4_FP8": lambda: mxfp4_format().replace(name="mxfp4-w4a8", compute_rate="fp8"),
        "W4A16_AWQ": lambda: _int4_format(block, dtype, False),
        "W4A8_AWQ": lambda: _int4_format(block, dtype, True),
        "W8A16": lambda: _int8_format("w8a16"),
        "W8A8_SQ_PER_CHANNEL": lambda: _int8_format(
            "w8a8", ".input_scale F32", f".pre_quant_scale {dtype} in"
        ),
    }
    maker = makers.get(algo.upper())
    if maker is None:
        raise unknown(f"quant_algo {algo} (known: {', '.join(makers)}, MIXED_PRECISION)")
    return maker()


_AFTER_NORM = frozenset(
    "q_proj k_proj v_proj qkv_proj query_key_value gate_proj up_proj gate_up_proj".split()
)
"""Modules whose inputs come from a norm, into which ModelOpt's AWQ moves their scales of inputs."""


def _with_input_scales(to: MatrixFormat, algo: str) -> Callable[[Matrix], MatrixFormat]:
    """Return the format of each module: scales of inputs are stored only where ModelOpt cannot
    move them into the norm before.
    """
    plain = to.replace(parts=tuple(x for x in to.parts if x.suffix != ".pre_quant_scale"))
    if plain.parts == to.parts:
        return lambda _: to
    if algo.upper() == "W8A8_SQ_PER_CHANNEL":
        return lambda x: plain if x.kind == "expert" else to
    return lambda x: plain if x.names[0].rpartition(".")[2] in _AFTER_NORM else to


# Recipe


_KEPT = (
    *("*lm_head*", "*router*", "*block_sparse_moe.gate*", "*mlp.gate", "*mlp.shared_expert_gate"),
    *("*conv1d*", "*output_layer*", "*linear_attn.in_proj_a", "*linear_attn.in_proj_b"),
    *("*proj_out*", "mtp.*", "*visual*", "*vision_tower*", "*multi_modal_projector*"),
)
"""Modules that ModelOpt's own presets leave unquantized."""
_NOTES = {
    "W8A8_SQ_PER_CHANNEL": "scales of inputs are counted for linear layers, as SmoothQuant stores "
    "them; ModelOpt's plain INT8 has none",
    "NVFP4_AWQ": "scales of inputs are counted for down and output projections; since 0.40, "
    "ModelOpt moves those of Llama's and Qwen3's down projections into the up projection, and of "
    "their output projections where all heads have keys of their own",
    "": "the recipe lists no exclude_modules; ModelOpt's own exceptions are assumed: head, routers "
    "and convolutions",
}


def _read(config: Keys, dtype: str) -> Recipe:
    inner = config.get("quantization")
    keys: Keys = inner if isinstance(inner, Mapping) else config
    listed = strings(keys, "exclude_modules", "ignore")
    excluded = NamePatterns(_KEPT if listed is None else listed, wildcard)
    algo, layers = keys.get("quant_algo"), mapping(keys.get("quantized_layers"))
    is_excluded = keep_listed(excluded, "in exclude_modules")
    rules: tuple[Rule, ...]
    table: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    if layers:
        by_layer = layer_table(layers, dtype)
        table = formats_of_table(layers, by_layer)
        name, rules = "+".join(table), (is_excluded, by_layer)
    elif isinstance(algo, str) and algo != "MIXED_PRECISION":
        to = _format(algo, keys, dtype)
        format_of = _with_input_scales(to, algo)
        words = (algo.upper(), *([""] if listed is None else []))
        notes = tuple(_NOTES[x] for x in words if x in _NOTES)
        name = to.name
        kept = keep("router", "router"), keep(NOT_LINEAR, "embedding", "other")
        rules = (*kept, is_excluded, lambda x: Choice(format_of(x)))
    elif isinstance(config.get("config_groups"), Mapping):
        rest = {k: v for k, v in config.items() if k != "config_groups"}
        return _read({**rest, "quantized_layers": _layers_of_groups(config)}, dtype)
    else:
        raise unknown(f"quant_algo {algo}")
    kv_cache = cache_format(keys.get("kv_cache_quant_algo") or config.get("kv_cache_scheme"))
    return Recipe(
        method="modelopt",
        name=name,
        rules=rules,
        patterns=(*excluded.patterns, *layers),
        kv_cache=kv_cache,
        cache_scales=CacheScales("F32", in_projections=True) if kv_cache else None,
        notes=notes,
        table=table,
    )


def _layers_of_groups(config: Keys) -> dict[str, Any]:
    """Return a table of layers from groups as compressed-tensors has them."""
    names = {
        "float 8 with activations": "FP8",
        "float 4 with activations": "NVFP4",
        "float 4": "W4A16_NVFP4",
    }
    found = {}
    for group in config["config_groups"].values():
        weights = mapping(group).get("weights")
        if not isinstance(weights, Mapping):
            raise unknown("ModelOpt group without weights")
        activations = " with activations" if group.get("input_activations") else ""
        kind = f"{weights.get('type')} {weights.get('num_bits')}{activations}"
        for target in strings(group, "targets") or ("Linear",):
            found[target] = {
                "quant_algo": names.get(kind, f"of {kind}"),
                "group_size": weights.get("group_size"),
            }
    return found


def layer_table(layers: Keys, dtype: str) -> Callable[[Matrix], Choice]:
    """Return the rule of a table of layers, each with its algorithm; an entry counts for
    everything inside it.
    """
    by_name: dict[str, Callable[[Matrix], MatrixFormat] | None] = {}
    by_keys: dict[str, Callable[[Matrix], MatrixFormat]] = {}
    for name, found in layers.items():
        keys = found if isinstance(found, Mapping) else {"quant_algo": found}
        algo = keys.get("quant_algo")
        if algo in (None, "NONE", "none"):
            by_name[name] = None
            continue
        key = repr(sorted(map(repr, keys.items())))
        if key not in by_keys:
            by_keys[key] = _with_input_scales(_format(str(algo), keys, dtype), str(algo))
        by_name[name] = by_keys[key]
    names = NamePatterns(by_name, wildcard)

    def choose(x: Matrix) -> Choice:
        # DeepSeek-V4's own names have no prefix
        found = names.find((*x.names, without_prefix(x.names[0])))
        to = by_name[found] if found else None
        return Choice(None, "not in quantized_layers") if to is None else Choice(to(x))

    return choose


def formats_of_table(layers: Iterable[str], choose: Callable[[Matrix], Choice]) -> tuple[str, ...]:
    """Return the names of the formats in a table of layers."""
    found = (choose(Matrix((name,), "linear")).format for name in layers)
    return tuple(sorted({x.name for x in found if x is not None}))


# Detection and values


def _detect(d: Detection, x: Tensor) -> None:
    """Detect INT4: two rows in a byte, a scale for each group of 32 inputs or more."""
    scale = d.get(f"{x.name}_scale", *SCALE_DTYPES)
    if scale is None or not x.name.endswith(".weight"):
        return
    if len(x.shape) != 2 or len(scale.shape) != 2 or not scale.shape[1]:
        return
    (rows, inputs), (outputs, groups) = x.shape, scale.shape
    if outputs == 2 * rows and inputs % groups == 0 and inputs // groups >= 32:
        d.record_with_companions(x, Packing.of_values("int4-awq", x.name, (outputs, inputs)))


def _open(m: StoredMatrix) -> Rows:
    """Two outputs in a byte, the even one low; scales of groups, and one for each input."""
    np = require_numpy()
    octets, scale = m.raw("values"), m.floats("weight_scale")
    m.check("values", octets.shape, (-(-m.out // 2), m.into))
    m.check("scales", scale.shape, (m.out, scale.shape[-1]))
    if m.find("weight_scale_2"):
        scale = scale * m.floats("weight_scale_2").reshape(-1)[0]
    inputs = m.floats("pre_quant_scale") if m.find("pre_quant_scale") else np.float32(1)

    def rows(first: int, last: int) -> Any:
        part = octets[first // 2 : -(-last // 2)]
        halves = (
            np.stack((part & 15, part >> 4), 1).reshape(-1, m.into)[: last - first].astype(np.int8)
        )
        signed = np.where(halves > 7, halves - 16, halves).astype(np.float32)
        return signed * per_value(scale[first:last], m.into) * inputs

    return rows


_STEPS = WholeNumbers(bits=lambda _: 4, codes=lambda *_: (-8, 7))
PRODUCER = Producer(
    read=_read,
    recognized=("fp8", "nvfp4", "mxfp4", "int8", "int4-awq"),
    detect=_detect,
    layouts={"int4-awq": PackedLayout(open=_open, steps=_STEPS)},
)
