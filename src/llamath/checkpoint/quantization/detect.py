"""Detection of packed weights by scheme: the stored tensors of each weight, and its shape, inferred
from names, dtypes and shapes.

The layouts are those of AutoAWQ (GEMM, GEMV, GEMV-fast), AutoGPTQ and GPTQModel, Marlin,
bitsandbytes, transformers' FP8 and MXFP4, NVIDIA ModelOpt, compressed-tensors, MLX, BitNet and
ggml's block types. A name alone proves nothing: shapes and dtypes must agree. Shapes that the
headers do not determine stay unknown. Each function records a packing if the tensor holds the
values of its scheme.
"""

from __future__ import annotations

from ..formats.dtypes import PLAIN
from ..formats.manifest import Tensor
from .packed_tensors import GROUP_ROLES, Detection, Packing, Shape, bits_of_config, values_per_scale

_SCALE_NAMES = ("_scale_inv", "_scale", "scale", "qscale_weight", "scale_weight")
"""Companions without which FP8 and INT8 are plain types."""
_HALVES = ("F16", "BF16", "F32")
_QUANT_STATE = ".quant_state.bitsandbytes__"


def detect_fp8(d: Detection, x: Tensor) -> None:
    """Detect FP8 with scales of the tensor, of channels or of blocks."""
    _detect_8_bits(d, x, "fp8")


def detect_int8(d: Detection, x: Tensor) -> None:
    """Detect INT8 with scales of the tensor, of channels or of blocks."""
    if not x.name.endswith(".qweight"):
        _detect_8_bits(d, x, "int8")


def _detect_8_bits(d: Detection, x: Tensor, kind: str) -> None:
    companions = d.companions(x.name)
    if (scale := _scale_of(d, x, companions)) is not None:
        if kind == "int8" and scale.dtype in ("U8", "F8_E8M0") and values_per_scale(x, scale) == 16:
            d.record_with_companions(
                x, Packing.of_values("mxfp4", x.name, (*x.shape[:-1], 2 * x.shape[-1])), companions
            )
        else:
            d.record_with_companions(x, Packing.of_values(kind, x.name, x.shape), companions)


def _scale_of(d: Detection, x: Tensor, companions: list[tuple[str, str]]) -> Tensor | None:
    scale = (
        next((d.tensors[name] for name, end in companions if end in _SCALE_NAMES), None)
        if companions
        else None
    )
    return scale if scale is not None and scale.elements <= x.elements else None


def detect_bnb_int8(d: Detection, x: Tensor) -> None:
    """Detect bitsandbytes LLM.int8(): a scale for each row."""
    base = x.name.removesuffix("weight")
    scale = d.get(f"{base}SCB", "F32", "F16", "BF16")
    if scale is not None and len(x.shape) == 2 and scale.elements == x.shape[0]:
        d.record(
            x,
            Packing.of_values("bnb-int8", x.name, x.shape),
            {scale.name: "scale", f"{base}weight_format": "meta"},
        )


def detect_bnb_4bit(d: Detection, state: Tensor) -> None:
    """Detect bitsandbytes NF4 and FP4: one column of any dtype; the shape is in the quantization
    state, which is not in the header.
    """
    name, marker, quant = state.name.partition(_QUANT_STATE)
    if not marker or quant not in ("nf4", "fp4"):
        return
    x, scale = d.get(name), d.get(f"{name}.absmax", "F32", "F16", "BF16", "U8")
    if (
        x is not None
        and scale is not None
        and len(x.shape) == 2
        and 1 in x.shape
        and x.dtype in PLAIN
    ):
        values = Packing(
            f"bnb-{quant}", name, "values", None, 2 * x.elements * PLAIN[x.dtype].bytes
        )
        roles = {
            "absmax": "scale",
            "nested_absmax": "scale",
            "quant_map": "meta",
            "nested_quant_map": "meta",
        }
        d.record(
            x, values, {state.name: "meta"} | {f"{name}.{end}": role for end, role in roles.items()}
        )


def detect_mxfp4(d: Detection, x: Tensor) -> None:
    """Detect MXFP4: an 8-bit exponent for each 32 values, in blocks of 16 bytes (gpt-oss) or in
    rows.
    """
    if _is_gpt_oss_blocks(x):
        scales = d.get(f"{x.name[:-6]}scales", "U8")
        if (
            scales is not None
            and len(x.shape) > 1
            and scales.shape == x.shape[:-1]
            and x.shape[-1] == 16
        ):
            d.record(
                x,
                Packing.of_values("mxfp4", x.name[:-7], (*x.shape[:-2], 32 * x.shape[-2])),
                {scales.name: "scale"},
            )
    else:
        _detect_fp4(d, x, "mxfp4", 32, ("U8", "F8_E8M0"))


def detect_nvfp4(d: Detection, x: Tensor) -> None:
    """Detect NVFP4: an FP8 scale for each 16 values of a row."""
    if not _is_gpt_oss_blocks(x):
        _detect_fp4(d, x, "nvfp4", 16, ("F8_E4M3",))


def _is_gpt_oss_blocks(x: Tensor) -> bool:
    return x.dtype == "U8" and x.name.endswith(("_blocks", ".blocks"))


def _detect_fp4(
    d: Detection, x: Tensor, kind: str, group: int, scale_dtypes: tuple[str, ...]
) -> None:
    weight = x.name.removesuffix("_packed")
    scale = d.get(f"{weight}_scale", *scale_dtypes)
    values_per_number = 1 if x.dtype == "F4" else 2
    if (
        scale is not None
        and _QUANT_STATE not in x.name
        and values_per_number * values_per_scale(x, scale) == group
    ):
        d.record_with_companions(
            x, Packing.of_values(kind, weight, (*x.shape[:-1], values_per_number * x.shape[-1]))
        )


def detect_int4_awq(d: Detection, x: Tensor) -> None:
    """Detect ModelOpt's INT4: two rows in a byte, with a scale for each group of at least 64
    inputs of every row.
    """
    scale = d.get(f"{x.name}_scale", *_HALVES)
    if (
        scale is None
        or len(x.shape) != 2
        or len(scale.shape) != 2
        or not x.name.endswith(".weight")
        or not scale.shape[1]
    ):
        return
    groups = scale.shape[1]
    if scale.shape[0] == 2 * x.shape[0] and x.shape[1] % groups == 0 and x.shape[1] // groups >= 32:
        d.record_with_companions(
            x, Packing.of_values("int4-awq", x.name, (2 * x.shape[0], x.shape[1]))
        )


def detect_quark_int4(d: Detection, x: Tensor) -> None:
    """Detect Quark's INT4 in words: inputs first with scales of groups; or rows with a scale for
    each, also with one for FP8.
    """
    scale, zero = d.get(f"{x.name}_scale", *_HALVES), d.get(f"{x.name}_zero_point", "I32")
    if zero is None:
        scale, zero = d.get(f"{x.name}_scale_2", *_HALVES), d.get(f"{x.name}_zero_point_2", "I32")
    if scale is None or zero is None or len(x.shape) != 2 or not x.name.endswith(".weight"):
        return
    first, words = x.shape
    if (
        len(scale.shape) == 2
        and -(-scale.shape[1] // 8) == words == zero.shape[-1]
        and scale.shape[0]
        and not first % scale.shape[0]
    ):
        shape = (scale.shape[1], first)
    elif scale.shape == (first,) and zero.shape == (-(-first // 8),):
        shape = (first, 8 * words)
    else:
        return
    d.record_with_companions(x, Packing.of_values("quark-int4", x.name, shape))


def detect_mxfp6(d: Detection, x: Tensor) -> None:
    """Detect MXFP6: 32 values in 24 bytes, with an 8-bit exponent."""
    scale = d.get(f"{x.name}_scale", "U8")
    if (
        scale is not None
        and x.name.endswith(".weight")
        and len(x.shape) == 2
        and values_per_scale(x, scale) == 24
    ):
        d.record_with_companions(
            x, Packing.of_values("mxfp6", x.name, (x.shape[0], 32 * scale.shape[1]))
        )


def detect_bitnet(d: Detection, x: Tensor) -> None:
    """Detect BitNet: four rows of ternary values in one, if the configuration declares it."""
    weight = x.name.removesuffix("_packed")
    scale = d.get(f"{weight}_scale")
    if _is_gpt_oss_blocks(x) or d.config.get("quant_method") != "bitnet":
        return
    if scale is not None and scale.elements == 1 and len(x.shape) == 2:
        d.record_with_companions(
            x, Packing.of_values("bitnet", weight, (4 * x.shape[0], x.shape[1]))
        )


def detect_eetq(d: Detection, x: Tensor) -> None:
    """Detect EETQ: INT8 with inputs first, and a scale for each output."""
    scale = d.get(f"{x.name}_scales", *_HALVES)
    if scale is not None and len(x.shape) == 2 and scale.shape == x.shape[1:]:
        d.record(
            x, Packing.of_values("eetq", x.name, (x.shape[1], x.shape[0])), {scale.name: "scale"}
        )


_HQQ_META = (
    *(
        "shape",
        "nbits",
        "group_size",
        "axis",
        "packing",
        "unpack_view_dtype",
        "compute_dtype",
        "view_as_float",
        "quant_scale",
        "quant_zero",
    ),
    *("encoded_state_dict", "stores_quant_config", "channel_wise", "optimize", "round_zero"),
)


def detect_hqq(d: Detection, x: Tensor) -> None:
    """Detect HQQ: `X.W_q`, whose shape is in a tensor of its own; the number of bits follows
    from the scales.
    """
    base = x.name.removesuffix("W_q")
    scale, shape = d.get(f"{base}scale", *_HALVES), d.get(f"{base}shape", "I64")
    if (
        base == x.name
        or scale is None
        or shape is None
        or len(x.shape) != 2
        or len(scale.shape) != 2
        or not scale.elements
    ):
        return
    groups, (packed, group) = scale.shape[0], x.shape
    if (
        scale.shape[1] == 1
        and x.dtype == "U8"
        and packed
        and groups % packed == 0
        and groups // packed in (1, 2, 4, 8)
    ):
        values = Packing("hqq", f"{base}weight", "values", None, groups * group)
    else:
        values = Packing.of_unknown_length("hqq", f"{base}weight", x)
    roles = {f"{base}{name}": "meta" for name in _HQQ_META}
    d.record(x, values, roles | {scale.name: "scale", f"{base}zero": "zero"})


def detect_torchao(d: Detection, x: Tensor) -> None:
    """Detect torchao's INT8 and FP8 as its safetensors support names them: `X._weight_qdata` and
    a scale for each row, or one.
    """
    base = x.name.removesuffix("_weight_qdata")
    scale = d.get(f"{base}_weight_scale", "F32", "BF16", "F16")
    if (
        base != x.name
        and scale is not None
        and len(x.shape) == 2
        and scale.shape in ((x.shape[0], 1), (1, 1), (1,), ())
    ):
        values = Packing.of_values("torchao", f"{base}weight", x.shape)
        d.record(x, values, {scale.name: "scale", f"{base}_weight_zero_point": "zero"})


def detect_ggml(d: Detection, x: Tensor) -> None:
    """Detect ggml's block types: blocks contain their scales; some files store one more scale
    next to them.
    """
    base = x.name.removesuffix("weight")
    roles = {
        y.name: "scale"
        for end in ("scale", "input_scale")
        if (y := d.get(base + end)) is not None and len(y.shape) < 2
    }
    d.record(x, Packing.of_values("ggml", x.name, x.shape), roles)


def detect_awq_or_gptq(d: Detection, x: Tensor) -> None:
    """Detect AWQ and GPTQ: `X.qweight` with a scale for each group of inputs."""
    if not x.name.endswith(".qweight"):
        return
    base = x.name.removesuffix("qweight")
    scale, zero, scaled_zero = (
        d.get(f"{base}scales", *_HALVES),
        d.get(f"{base}qzeros"),
        d.get(f"{base}scaled_zeros"),
    )
    if scale is None or any(
        len(y.shape) != 2 or not y.elements for y in (x, scale, zero) if y is not None
    ):
        return
    if x.shape[1] == scale.shape[1] and scaled_zero is None:
        values = _gptq_values(d, x, scale, zero)
    elif shape := _awq_shape(x, scale, scaled_zero if zero is None else zero):
        values = Packing.of_values("awq", f"{base}weight", shape)
    else:
        return
    d.record(x, values, {base + end: role for end, role in GROUP_ROLES.items()})


def _awq_shape(x: Tensor, scale: Tensor, zero: Tensor | None) -> Shape | None:
    """AWQ packs eight values in a word along the outputs (GEMM) or the inputs (GEMV), or four
    rows in 16-bit words (GEMV-fast).
    """
    if zero is None:
        return None
    (rows, columns), scales, zeros = x.shape, scale.shape, zero.shape
    if x.dtype == "I16":
        return (4 * rows, columns) if scales == zeros and scales[1] == 4 * rows else None
    if x.dtype != "I32" or zero.dtype != "I32" or scales != (zeros[0], 8 * zeros[1]):
        return None
    if zeros[1] == columns:
        return 8 * columns, rows
    return (rows, 8 * columns) if scales[0] == rows else None


def _gptq_values(d: Detection, x: Tensor, scale: Tensor, zero: Tensor | None) -> Packing:
    """GPTQ packs along the inputs; the packed zeros, the group index and the configuration
    determine the number of bits.
    """
    base, word, (rows, outputs) = x.name.removesuffix("qweight"), 8 * PLAIN[x.dtype].bytes, x.shape
    index = d.get(f"{base}g_idx", "I32", "I64")
    bits = list(range(1, 9))
    if zero is not None:
        bits = [b for b in bits if zero.shape == (scale.shape[0], -(-outputs * b // word))]
    if index is not None:
        bits = [b for b in bits if -(-index.elements * b // word) == rows]
    if len(bits) > 1:
        declared = {b for b, _ in d.declared_bits()}
        bits = [b for b in bits if {b} == declared]
    if len(bits) != 1 or (index is None and rows * word % bits[0]):
        return Packing.of_unknown_length("gptq", f"{base}weight", x)
    return Packing.of_values(
        "gptq",
        f"{base}weight",
        (outputs, rows * word // bits[0] if index is None else index.elements),
    )


def detect_marlin(d: Detection, x: Tensor) -> None:
    """Detect Marlin: GPTQ in tiles of 16 inputs, `X.B`, with scales `X.s` in as many columns as
    there are outputs.
    """
    if not x.name.endswith(".B"):
        return
    base = x.name[:-1]
    scale = d.get(f"{base}s", "F16", "BF16")
    if scale is None or len(x.shape) != 2 or len(scale.shape) != 2:
        return
    if x.shape[1] in (2 * scale.shape[1], 4 * scale.shape[1]):
        values = Packing.of_values("gptq", f"{base}weight", (scale.shape[1], 16 * x.shape[0]))
        d.record(x, values, {scale.name: "scale", f"{base}workspace": "meta"})


def detect_compressed_tensors(d: Detection, x: Tensor) -> None:
    """Detect compressed-tensors: rows packed densely; group index, packed zeros or configuration
    determine the number of bits.
    """
    if not x.name.endswith(".weight_packed"):
        return
    weight = x.name.removesuffix("_packed")
    scale = d.get(f"{weight}_scale", *_HALVES)
    if scale is None or len(x.shape) < 2 or scale.shape[:-1] != x.shape[:-1]:
        return
    lengths = _row_lengths(d, x, weight)
    if lengths is None:
        lengths = {
            y
            for bits, group in d.declared_bits()
            if (y := _row_length(x.shape[-1], scale.shape[-1], bits, group))
        }
    values = Packing.of_unknown_length("compressed-int", weight, x)
    if len(lengths) == 1 and (length := lengths.pop()):
        values = Packing.of_values(
            f"compressed-int{32 * x.shape[-1] // length}", weight, (*x.shape[:-1], length)
        )
    d.record_with_companions(x, values)


def _row_lengths(d: Detection, x: Tensor, weight: str) -> set[int] | None:
    """Return the row lengths that agree with the group index or the packed zeros; None if there
    are neither.
    """
    if (index := d.get(f"{weight}_g_idx", "I32", "I64")) is not None:
        return (
            {index.elements}
            if any(-(-index.elements * b // 32) == x.shape[-1] for b in range(1, 9))
            else set()
        )
    zero = d.get(f"{weight}_zero_point", "I32")
    if zero is not None and len(zero.shape) == len(x.shape):
        bits = [b for b in range(1, 9) if -(-x.shape[-2] * b // 32) == zero.shape[-2]]
        return {x.shape[-1] * 32 // bits[0]} if len(bits) == 1 and 8 % bits[0] == 0 else None
    return None


def _row_length(packed: int, scales: int, bits: int, group: int | None) -> int:
    """Return the length of a row with this many words and scales; 0 if these bits and this group
    size do not produce one.
    """
    if group is not None and packed in (
        -(-scales * group * bits // 32),
        -(-scales * group // (32 // bits)),
    ):
        return scales * group
    return packed * 32 // bits if group is None and scales == 1 and 8 % bits == 0 else 0


def detect_mlx(d: Detection, x: Tensor) -> None:
    """Detect MLX: rows packed densely; without biases (FP4, FP8) the scales determine the number
    of bits, else the configuration does.
    """
    base = x.name.removesuffix("weight")
    scale, bias = d.get(f"{base}scales"), d.get(f"{base}biases")
    if (
        scale is None
        or base == x.name
        or (bias is not None and bias.shape != scale.shape)
        or not (per_scale := values_per_scale(x, scale))
    ):
        return
    if bias is not None:
        layer_config = d.config.get(base.rstrip("."))
        declared = bits_of_config(layer_config if isinstance(layer_config, dict) else d.config)
        group = next((g for b, g in declared if g and b * g == 32 * per_scale), 0)
    else:
        group = {2: 16, 4: 32, 8: 32}.get(per_scale, 0) if scale.dtype == "U8" else 0
    if group:
        values = Packing.of_values("mlx", x.name, (*x.shape[:-1], scale.shape[-1] * group))
    else:
        values = Packing.of_unknown_length("mlx", x.name, x)
    d.record(x, values, {base + end: role for end, role in GROUP_ROLES.items()})


def detect_sparse_24(d: Detection, bits: Tensor) -> None:
    """Detect 2:4 sparsity of compressed-tensors: half of the values of each row, and a bit for
    each value.
    """
    base = bits.name.removesuffix("bitmask")
    x, shape = d.get(f"{base}compressed"), d.get(f"{base}shape", "I64")
    if (
        base == bits.name
        or x is None
        or shape is None
        or len(x.shape) != 2
        or bits.shape != (x.shape[0], -(-x.shape[1] // 4))
    ):
        return
    roles = {
        bits.name: "index",
        shape.name: "meta",
        f"{base}weight_scale": "scale",
        f"{base}input_scale": "scale",
    }
    d.record(
        x, Packing.of_values("sparse-24", f"{base}weight", (x.shape[0], 2 * x.shape[1])), roles
    )


def detect_sparse_bitmask(d: Detection, bits: Tensor) -> None:
    """Detect compressed-tensors' bitmasks: all values but zeros, one after the other, and a bit
    for each value; the shape is a tensor.
    """
    base = bits.name.removesuffix("bitmask")
    x, shape, rows = (
        d.get(f"{base}compressed"),
        d.get(f"{base}shape", "I64"),
        d.get(f"{base}row_offsets", "I64"),
    )
    if (
        base == bits.name
        or x is None
        or shape is None
        or rows is None
        or len(x.shape) != 1
        or len(bits.shape) != 2
    ):
        return
    roles = {
        bits.name: "index",
        shape.name: "meta",
        rows.name: "index",
        f"{base}weight_scale": "scale",
        f"{base}input_scale": "scale",
    }
    d.record(x, Packing.of_unknown_length("sparse-bitmask", f"{base}weight", x), roles)


def detect_marlin_24(d: Detection, x: Tensor) -> None:
    """Detect compressed-tensors' 2:4 sparsity in Marlin's tiles, with scales in as many columns
    as there are outputs.
    """
    base = x.name.removesuffix("weight_packed")
    scale, meta = d.get(f"{base}scale_packed", *_HALVES), d.get(f"{base}meta", "I16")
    if (
        base == x.name
        or scale is None
        or meta is None
        or len(x.shape) != 2
        or len(scale.shape) != 2
    ):
        return
    if x.shape[1] in (2 * scale.shape[1], 4 * scale.shape[1]):
        values = Packing.of_values("marlin-24", f"{base}weight", (scale.shape[1], 32 * x.shape[0]))
        d.record(x, values, {scale.name: "scale", meta.name: "index"})


def record_cache_scales(d: Detection) -> None:
    """Record the scales of a KV cache that are stored in attention blocks next to packed
    weights.
    """
    for name, x in d.tensors.items():
        if name.endswith((".k_scale", ".v_scale")) and x.elements == 1 and name not in d.packings:
            d.packings[name] = Packing("fp8-cache", name.rpartition(".")[0], "scale")
