"""GPTQ (AutoGPTQ, GPTQModel): words packed along the inputs, with a scale and a zero point for each
group; also in Marlin's tiles.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ....utils.dotted_names import DottedNames
from ....utils.errors import LlamathError
from ...formats.dtypes import PLAIN
from ...formats.manifest import Tensor
from ...formats.number_arrays import require_numpy
from ..matrix_formats import MatrixFormat, group_name, group_title, groups, parts
from ..packed_tensors import GROUP_ROLES, SCALE_DTYPES, Detection, PackedWeight, Packing
from ..recipes import Choice, Matrix, Recipe, Rule, always, keep, keep_listed, linear_only
from ..registry import Keys, PackedLayout, Producer
from ..shared.half_steps import WholeNumbers, constant_codes
from ..shared.name_patterns import NamePatterns, inside_name, pattern_list
from ..shared.packed_cut import Cuts, CutWeight, cut_groups, group_size
from ..shared.recipe_keys import bits_of, group_of, mapping, strings, unknown, wrong
from ..shared.stored_matrix import Rows, StoredMatrix, unpack
from ..weight_format import WeightFormat

if TYPE_CHECKING:
    from ..dequantizers import OpenedPacked

_BITS = (2, 3, 4, 5, 6, 7, 8)


# Formats and recipe


def gptq_format(bits: int = 4, group: int = 128, index: bool = True) -> MatrixFormat:
    """Return GPTQ, also as AutoRound stores it; `index` is the group of each input."""
    return MatrixFormat(
        name=group_name("gptq", bits, group),
        title=group_title("GPTQ", bits, group),
        parts=parts(
            f".qweight I32 in*{bits}/32 out",
            f".qzeros I32 {groups(group)} out*{bits}/32",
            f".scales F16 {groups(group)} out",
            ".g_idx I32 in" if index else "",
        ),
    )


def _marlin_format(bits: int = 4, group: int = 128) -> MatrixFormat:
    """Return GPTQ in Marlin's tiles of 16 inputs."""
    return MatrixFormat(
        name=group_name("marlin", bits, group),
        title=group_title("Marlin", bits, group),
        parts=parts(
            f".B I32 in/16 out*{bits // 2}",
            f".s F16 {groups(group)} out",
            ".workspace I32 out/128*16",
        ),
    )


def grouped_format(word: str, method: str, group: int, matrix: MatrixFormat) -> WeightFormat:
    """Return a named format with scales of groups, whose size has to be possible."""
    if not group or group % 32:
        raise LlamathError(
            f"expected a group size that is a multiple of 32 for {method}, found {group}",
            hint="-g32, -g64, -g128",
        )
    return WeightFormat(name=word, unpacked_dtype="F16", packing=method, matrix=matrix)


def _named(word: str) -> WeightFormat | None:
    match = re.fullmatch(r"gptq(?:-([2348])bit)?(?:-g(\d{1,6}))?", word)
    if match is None:
        return None
    bits, group = int(match[1] or 4), int(match[2] or 128)
    return grouped_format(word, "gptq", group, gptq_format(bits, group))


def _read(config: Keys, _: str) -> Recipe:
    bits, group = bits_of(config, _BITS), group_of(config, 128)
    layout = str(config.get("checkpoint_format") or config.get("format") or "gptq").lower()
    if layout not in ("gptq", "gptq_v2", "marlin"):
        raise unknown(f"GPTQ checkpoint_format {layout}")
    word = config.get("pack_dtype")
    if word is not None and str(word).removeprefix("torch.") != "int32":
        raise unknown(f"GPTQ pack_dtype {word}")
    is_marlin = layout == "marlin" or config.get("is_marlin_format") is True
    make = _marlin_format if is_marlin else gptq_format
    dynamic = config.get("dynamic") or {}
    if not isinstance(dynamic, Mapping):
        raise wrong("dynamic", "an object", dynamic)
    changes: list[Choice] = []
    for pattern, keys in dynamic.items():
        own = mapping(keys)
        changed = make(bits_of(own, _BITS, default=bits), group_of(own, group))
        is_left = pattern.startswith("-:")
        changes.append(Choice(None, "excluded in dynamic") if is_left else Choice(changed))
    regexes = pattern_list(x.removeprefix("+:").removeprefix("-:") for x in dynamic)
    skipped = NamePatterns(strings(config, "modules_to_not_convert") or (), inside_name)

    def change(x: Matrix) -> Choice | None:
        found = [i for name in x.names if (i := regexes.first_match(name)) is not None]
        return changes[min(found)] if found else None

    to = make(bits, group)
    rules = (
        linear_only,
        *(() if config.get("lm_head") is True else (keep("output head", "head"),)),
        change,
        _inside_blocks(config),
        keep_listed(skipped, "in modules_to_not_convert"),
        always(to),
    )
    return Recipe(
        method="gptq",
        name=to.name,
        rules=rules,
        patterns=(*map(str, dynamic), *skipped.patterns),
        default_dtype="F16",
    )


def _inside_blocks(config: Keys) -> Rule:
    """Keep what is in none of the modules that are to be quantized, if a config lists them."""
    key = "modules_in_block_to_quantize"
    inside = config.get(key)
    lists = inside if isinstance(inside, list) else [] if inside is None else [inside]
    names = [x for part in lists for x in strings({key: part}, key) or ()]
    ends = DottedNames(names, from_end=True)

    def choose(x: Matrix) -> Choice | None:
        is_inside = inside is None or any(
            names[i] != name for name in x.names for i in ends.along(name)
        )
        return None if is_inside else Choice(None, f"not in {key}")

    return choose


# Detection


def group_tensors(d: Detection, x: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None] | None:
    """Return the scales, zeros and scaled zeros next to `X.qweight`, as GPTQ and AWQ name them;
    None if they cannot be those of a matrix.
    """
    base = x.name.removesuffix("qweight")
    scale, zero = d.get(f"{base}scales", *SCALE_DTYPES), d.get(f"{base}qzeros")
    if not x.name.endswith(".qweight") or scale is None:
        return None
    if any(len(y.shape) != 2 or not y.elements for y in (x, scale, zero) if y is not None):
        return None
    return scale, zero, d.get(f"{base}scaled_zeros")


def _detect(d: Detection, x: Tensor) -> None:
    """Detect GPTQ: `X.qweight` with a scale for each group of inputs; and Marlin: `X.B`, with
    scales `X.s` in as many columns as there are outputs.
    """
    if x.name.endswith(".B"):
        base = x.name[:-1]
        scale = d.get(f"{base}s", "F16", "BF16")
        if scale is None or len(x.shape) != 2 or len(scale.shape) != 2:
            return
        if x.shape[1] in (2 * scale.shape[1], 4 * scale.shape[1]):
            values = Packing.of_values("gptq", f"{base}weight", (scale.shape[1], 16 * x.shape[0]))
            d.record(x, values, {scale.name: "scale", f"{base}workspace": "meta"})
        return
    found = group_tensors(d, x)
    if found is None or x.shape[1] != found[0].shape[1] or found[2] is not None:
        return
    base = x.name.removesuffix("qweight")
    roles = {base + end: role for end, role in GROUP_ROLES.items()}
    d.record(x, _values(d, x, *found[:2]), roles)


def _values(d: Detection, x: Tensor, scale: Tensor, zero: Tensor | None) -> Packing:
    """The packed zeros, the group index and the configuration determine the number of bits."""
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
    inputs = rows * word // bits[0] if index is None else index.elements
    return Packing.of_values("gptq", f"{base}weight", (outputs, inputs))


# Values


def _open(m: StoredMatrix) -> Rows:
    """Values packed along the inputs, with a scale and a zero point for each group; `g_idx` is
    the group of each input.
    """
    np = require_numpy()
    words, scale = m.raw("values"), m.floats("scales")
    bits = len(words) * words.dtype.itemsize * 8 // m.into
    if bits not in (2, 3, 4, 8) or words.shape[1] != m.out or words.dtype.itemsize != 4:
        raise m.error(f"expected 2, 3, 4 or 8 bits in 32-bit words, found {bits} bits")
    count = len(scale)
    m.check("scales", scale.shape, (count, m.out))
    group = (
        m.raw("g_idx").reshape(-1) if m.find("g_idx") else np.arange(m.into) // -(-m.into // count)
    )
    if len(group) != m.into or group.min() < 0 or group.max() >= count:
        raise m.error(f"expected the groups of {m.into:,} inputs, below {count:,}, in g_idx")
    if m.find("qzeros"):
        zero = unpack(m.raw("qzeros"), bits, m.out).astype(np.float32)
        if m.config.get("checkpoint_format") != "gptq_v2":
            zero = (zero + 1) % (1 << bits)  # the first format stores them less 1
    else:
        zero = np.full((count, m.out), 1 << bits - 1, np.float32)

    def rows(first: int, last: int) -> Any:
        q = unpack(np.ascontiguousarray(words[:, first:last].T), bits, m.into)
        return (q.astype(np.float32) - zero[group, first:last].T) * scale[group, first:last].T

    return rows


def _cut(x: CutWeight) -> Cuts:
    """Cut tensors with inputs first; with `desc_act`, inputs of one group are on several ranks,
    which all have its scales.
    """
    index = x.find(".g_idx")
    if not x.values.endswith(".qweight") or x.config.get("checkpoint_format") == "marlin":
        raise x.refuse("in Marlin's tiles, whose rows and columns are interleaved")
    if x.cut.is_output:
        return {name: x.scaled_cut(name, 1) for name in x.packings if name != index}
    values = {x.values: x.scaled_cut(x.values, 0)}
    if not index:
        return {**values, **cut_groups(x)}
    if _is_shuffled(x, index):
        return {**values, index: x.scaled_cut(index, 0)}
    count = x.cut.size if x.is_rank else sum(b - a for a, b in x.cut.ranges)
    group = group_size(x) or count
    data = array("i", [i // group for i in range(count)]).tobytes()
    return {**values, **cut_groups(x), index: data}


def _is_shuffled(x: CutWeight, index: str) -> bool:
    """Whether the groups of the inputs are in another order than the inputs, as with `desc_act`."""
    groups, size = (x.tensors[x.require(".scales")].shape or (1,))[0], group_size(x)
    if x.tensors[index].dtype != "I32":
        raise x.refuse(f"and its g_idx has the dtype {x.tensors[index].dtype}, not I32")
    if groups == 1:
        return False
    if x.is_rank:
        return groups * size != x.length
    numbers = array("i")
    numbers.frombytes(x.read(x.tensors[index]))
    if len(numbers) != x.length:
        raise x.refuse(f"and its g_idx has {len(numbers):,} numbers for {x.length:,} inputs")
    return any(n != i // size for i, n in enumerate(numbers)) if size else True


def _why_not(x: PackedWeight, config: Keys) -> str:
    is_marlin = x.values.endswith(".B") or config.get("checkpoint_format") == "marlin"
    return "Marlin's tiles have no dequantization" if x.kind == "gptq" and is_marlin else ""


def _stored_bits(x: OpenedPacked) -> int:
    return int(x.values.shape[-2] * x.values.dtype.itemsize * 8 // x.shape[-1])


def _rounding(_: OpenedPacked, value: Any, *_rest: Any) -> Any:
    """GPTQ stores the scale in float16 after it chose the codes."""
    np = require_numpy()
    return np.float32(2**-11) * np.abs(value)


_STEPS = WholeNumbers(
    bits=_stored_bits,
    constant=lambda words, bits, step: constant_codes(words.T, bits, step).T,
    rounding=_rounding,
    is_moved=True,
)
PRODUCER = Producer(
    read=_read,
    recognized=("gptq", "awq"),
    detect=_detect,
    layouts={"gptq": PackedLayout(open=_open, steps=_STEPS, cut=_cut)},
    why_not=_why_not,
    named=_named,
)
