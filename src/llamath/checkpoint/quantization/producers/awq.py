"""AWQ (AutoAWQ): 4 bits with a scale and a zero point for each group, in the layouts GEMM, GEMV and
GEMV-fast.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ....utils.errors import LlamathError, safe
from ...formats.manifest import Tensor
from ...formats.number_arrays import require_numpy
from ..matrix_formats import MatrixFormat, group_name, group_title, groups, parts
from ..packed_tensors import GROUP_ROLES, Detection, Packing
from ..recipes import Recipe, skipping_recipe
from ..registry import Keys, PackedLayout, Producer
from ..shared.half_steps import WholeNumbers
from ..shared.name_patterns import inside_name, like_transformers
from ..shared.packed_cut import Cuts, CutWeight, cut_groups
from ..shared.recipe_keys import bits_of, group_of, unknown
from ..shared.stored_matrix import Rows, StoredMatrix, group_rows, unpack, unpack_words
from ..weight_format import WeightFormat
from .gptq import group_tensors, grouped_format

if TYPE_CHECKING:
    from ..dequantizers import OpenedPacked


# Formats and recipe


def awq_format(group: int = 128, layout: str = "gemm") -> MatrixFormat:
    """Return AWQ in one of its layouts: GEMM; GEMV, whose zeros fill whole words; GEMV-fast,
    which packs four rows in 16 bits.
    """
    # AutoAWQ rounds the words of zeros up to a multiple of this many
    words = 128 // group if 0 < group < 128 else 1
    wide = f"in/{8 * group * words}*{words}" if group > 0 else "1"
    tall = f"in/{8 * group * words}*{8 * words}" if group > 0 else "8"
    if layout == "gemv":
        texts = f".qweight I32 out in/8;.qzeros I32 out {wide};.scales F16 out {tall}"
    elif layout == "gemv_fast":
        texts = f".qweight I16 out/4 in;.scales F16 {tall} out;.scaled_zeros F16 {tall} out"
    else:
        by_group = groups(group)
        texts = f".qweight I32 in out/8;.qzeros I32 {by_group} out/8;.scales F16 {by_group} out"
    return MatrixFormat(
        name=group_name("awq", 4, group),
        title=group_title("AWQ", 4, group),
        parts=parts(*texts.split(";")),
    )


def _named(word: str) -> WeightFormat | None:
    match = re.fullmatch(r"awq(?:-([2348])bit)?(?:-g(\d{1,6}))?", word)
    if match is None:
        return None
    bits, group = int(match[1] or 4), int(match[2] or 128)
    if bits != 4:
        raise LlamathError(f"AWQ has 4 bits, not {bits}", hint=f"gptq-{bits}bit")
    return grouped_format(word, "awq", group, awq_format(group))


def _like_awq(key: str) -> str:
    """Translate as transformers, and as AutoAWQ, which looks for it anywhere in the name."""
    return f"{like_transformers(key)}|{inside_name(key)}"


def _read(config: Keys, _: str) -> Recipe:
    bits_of(config, (4,), "bits" if "bits" in config else "w_bit", 4)
    key = "q_group_size" if config.get("group_size") is None else "group_size"
    group = group_of(config, 128, key)
    keys = ("version", "checkpoint_format", "format")
    version = next((str(x).lower() for key in keys if (x := config.get(key)) is not None), "gemm")
    version = "llm-awq" if config.get("backend") == "llm-awq" else version
    if version not in ("gemm", "gemv", "gemv_fast", "exllama", "ipex", "auto"):
        raise unknown(f"AWQ version {version}")
    return skipping_recipe(
        "awq",
        config,
        awq_format(group, version),
        "modules_to_not_convert",
        keeps_head=True,
        translate=_like_awq,
        default_dtype="F16",
    )


# Detection


def _detect(d: Detection, x: Tensor) -> None:
    """Detect AWQ's `X.qweight`: eight values in a word along the outputs (GEMM) or the inputs
    (GEMV), or four rows in 16-bit words (GEMV-fast).
    """
    found = group_tensors(d, x)
    if found is None:
        return
    scale, zero = found[0], found[2] if found[1] is None else found[1]
    if zero is None:
        return
    (rows, columns), scales, zeros = x.shape, scale.shape, zero.shape
    if x.dtype == "I16":
        shape = (4 * rows, columns)
        is_awq = scales == zeros and scales[1] == 4 * rows
    else:
        is_gemm = zeros[1:] == (columns,)
        shape = (8 * columns, rows) if is_gemm else (rows, 8 * columns)
        is_full = zero.dtype == "I32" and scales == (*zeros[:1], *(8 * n for n in zeros[1:]))
        is_awq = is_full and (is_gemm or scales[0] == rows)
    if is_awq:
        base = x.name.removesuffix("qweight")
        roles = {base + end: role for end, role in GROUP_ROLES.items()}
        d.record(x, Packing.of_values("awq", f"{base}weight", shape), roles)


# Values


def _open(m: StoredMatrix) -> Rows:
    """4 bits, times a scale for each group of inputs, less a zero point."""
    np = require_numpy()
    if m.find("scaled_zeros"):
        return _open_fast(m)
    words, scale, zero = m.raw("values"), m.floats("scales"), m.raw("qzeros")
    if words.shape == (m.into, m.out // 8):
        m.check("scales", scale.shape, (len(scale), m.out))
        m.check("zeros", zero.shape, (len(scale), m.out // 8))
        return group_rows(unpack_words, words, zero, scale, m.into)
    m.check("values", words.shape, (m.out, m.into // 8))
    group = _group_of_inputs(m, scale.shape[1], "GEMV")

    def rows(first: int, last: int) -> Any:
        q, z = (unpack(x[first:last], 4, 8 * x.shape[1]).astype(np.float32) for x in (words, zero))
        return (q - z[:, group]) * scale[first:last][:, group]

    return rows


def _group_of_inputs(m: StoredMatrix, count: int, layout: str, multiple: int = 1) -> Any:
    """Return the group of each input, by the size that the config says."""
    np = require_numpy()
    size = m.config.get("group_size", m.config.get("q_group_size"))
    if type(size) is not int or m.into % multiple or (size > 0 and -(-m.into // size) > count):
        raise m.error(
            f"expected the config's group_size, which AWQ's {layout} layout needs, found "
            f"{safe(repr(size), 40)}"
        )
    return np.arange(m.into) // (size if size > 0 else m.into)


def _open_fast(m: StoredMatrix) -> Rows:
    """Four rows in 16-bit words, in pieces of 64 inputs whose order suits the kernel; zeros are
    multiplied by the scales.
    """
    np = require_numpy()
    words, scale, zero = m.raw("values"), m.floats("scales"), m.floats("scaled_zeros")
    m.check("values", words.shape, (m.out // 4, m.into))
    group = _group_of_inputs(m, len(scale), "fast", 64)
    order = np.arange(32).reshape(4, 4, 2).transpose(1, 2, 0).reshape(32)

    def rows(first: int, last: int) -> Any:
        part = np.ascontiguousarray(words[first // 4 : -(-last // 4)]).view(np.uint16)
        halves = (part[..., None] >> np.arange(0, 16, 4, dtype=np.uint16)) & 15  # [rows / 4, in, 4]
        halves = (
            halves.reshape(len(part), m.into // 64, 4, 64)
            .transpose(0, 2, 1, 3)
            .reshape(-1, m.into // 32, 32)
        )
        q = np.empty_like(halves)
        q[..., order] = halves
        found = q.reshape(-1, m.into)[: last - first].astype(np.float32)
        return found * scale[group, first:last].T + zero[group, first:last].T

    return rows


def _cut(x: CutWeight) -> Cuts:
    shape, of_weight = x.tensors[x.values].shape, x.packings[x.values].shape
    if of_weight is None or x.find("scaled_zeros") or shape != (of_weight[-1], of_weight[-2] // 8):
        raise x.refuse("in the layout GEMV, which has no tensors with inputs first")
    if x.cut.is_output:
        return {name: x.scaled_cut(name, 1) for name in x.packings}
    return {x.values: x.scaled_cut(x.values, 0), **cut_groups(x)}


def _rounding(_: OpenedPacked, value: Any, last: Any, *_rest: Any) -> Any:
    """AutoAWQ divides by the scale in float16."""
    np = require_numpy()
    return np.float32(2**-9) * (np.abs(value) + last)


_STEPS = WholeNumbers(bits=lambda _: 4, rounding=_rounding, is_moved=True)
PRODUCER = Producer(
    read=_read,
    recognized=("awq",),
    detect=_detect,
    layouts={"awq": PackedLayout(open=_open, steps=_STEPS, cut=_cut)},
    named=_named,
)
