"""GGUF file types: llama.cpp's rules for the block type of each tensor, as file types like Q4_K_M
are mixtures.

The rules are those of `src/llama-quant.cpp` of ggml-org/llama.cpp at commit 007dbbf: the choice by
tensor and layer, and the fallback for rows that are not a whole number of blocks. Tensor names are
GGUF's, and tensors are visited in their order.

A matrix of q, k and v of softmax attention (GPT-2, Phi-3, Falcon) has one type in all layers, as in
published files: until 2026, the code chose it by a rule that is still there but not reached any
more, because such a matrix now counts as one of v.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from ..formats.dtypes import DTYPES
from .format_names import FILE_TYPES

_BELOW_3_BITS = frozenset("IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ2_M".split())
"""File types of less than about three bits, which have their own rules."""
NEEDS_IMATRIX = _BELOW_3_BITS | {"IQ3_XXS", "IQ3_XS", "Q2_K_S"}
"""File types that require an importance matrix, as one of their block types does."""
_FALLBACK = {
    **dict.fromkeys("IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S IQ4_XS".split(), "IQ4_NL"),
    **dict.fromkeys("Q2_0 Q2_K Q3_K TQ1_0 TQ2_0".split(), "Q4_0"),
    "Q4_K": "Q5_0",
    "Q5_K": "Q5_1",
    "Q6_K": "Q8_0",
}
"""Type → replacement where rows are not a whole number of its blocks."""
_NEVER_QUANTIZED = (
    *(
        "_norm.weight",
        "ffn_gate_inp.weight",
        "altup",
        "laurel",
        "per_layer_model_proj",
        "position_embd",
        "token_types",
    ),
    *("ssm_conv1d", "shortconv.conv.weight", "attn_rel_b.weight"),
)
"""Substrings of the names of matrices that are never quantized."""
_KEPT_F32 = ("ffn_gate_inp", "position_embd", "token_types", "ssm_conv1d", "shortconv.conv")
"""Substrings of the names of matrices that the converter keeps in F32."""
_ROLES = {
    "attn_qkv.weight": "value",
    "attn_kv_b.weight": "value",
    "attn_v.weight": "value",
    "attn_k.weight": "key",
    "attn_q.weight": "query",
    "attn_output.weight": "out",
    "ffn_up": "up",
    "ffn_gate": "gate",
    "ffn_down": "down",
}
"""Substring of a tensor's name → its role in the rules. A matrix of q, k and v, or of k and v,
counts as v."""
_FUSED = "attn_qkv.weight"

FALCON_ARCHS = ("falcon",)
"""Values of `general.architecture` with their own rules."""
ARCHS_70B, ARCHS_70B_WITH_GQA = ("qwen2",), ("llama",)
"""Architectures whose 80-layer models count as 70B, with more bits for v; the latter only with
grouped-query attention."""


class GGUFTensor:
    """A tensor with its shape, outermost dimension first, and its properties for the rules of all
    file types; `layer` is −1 outside the layers.
    """

    __slots__ = ("is_expert_stack", "is_quantized", "layer", "name", "ndim", "role", "shape")

    def __init__(self, name: str, shape: tuple[int, ...], layer: int = -1) -> None:
        self.name, self.shape, self.layer = name, shape, layer
        # in ggml: without outermost dimensions of length 1
        self.ndim = len(shape) - next((i for i, x in enumerate(shape) if x > 1), len(shape) - 1)
        self.role = _role(name)
        # the matrices of all experts of a layer
        self.is_expert_stack = self.ndim == 3 and name.endswith("_exps.weight")
        # whether llama.cpp quantizes it
        self.is_quantized = (
            self.ndim > 1
            and name.endswith("weight")
            and not any(x in name for x in _NEVER_QUANTIZED)
        )


def _role(name: str) -> str:
    """Return the role of a tensor in the rules; empty if it has none."""
    if name in ("output.weight", "token_embd.weight", "per_layer_token_embd.weight"):
        return "head" if name == "output.weight" else "embed"
    return next((part for piece, part in _ROLES.items() if piece in name), "")


class ModelTraits(NamedTuple):
    """Properties of a model that the rules depend on."""

    layers: int
    heads_per_kv_head: int  # query heads per key/value head, in the first layer
    experts: int = 0
    is_falcon: bool = False  # has its own rules
    is_70b: bool = False  # counts as a Llama 70B
    qkv_as_v: bool = True  # the rules of v apply to matrices of q, k and v
    expert_type: str = ""  # of experts that were released in blocks of it, and keep them


class _Position(NamedTuple):
    """A tensor's position: the file type and its default block type, its index `i` of the `n`
    tensors of its role, and the model.
    """

    file_type: str
    base: str
    i: int
    n: int
    model: ModelTraits
    imatrix: bool
    ordinal: int = 0  # index among the tensors of its role, where `i` is the layer

    @property
    def gets_more_bits(self) -> bool:
        """Whether a layer gets more bits: the first and the last eighth, and every third
        between.
        """
        eighth = self.n // 8
        return self.i < eighth or self.i >= 7 * self.n // 8 or (self.i - eighth) % 3 == 2

    @property
    def is_in_first_eighth(self) -> bool:
        """Whether a layer is in the first eighth."""
        return self.i < self.n // 8


_Rule = Callable[[_Position], str]


def assign_types(
    mix: str,
    tensors: Iterable[GGUFTensor],
    model: ModelTraits,
    imatrix: bool = False,
    pure: bool = False,
    *,
    fallback: bool = True,
) -> Iterator[tuple[GGUFTensor, str]]:
    """Yield each tensor with its type; the tensors are in the order of layers and names.

    `pure` gives all quantized tensors the same type. Without `fallback`, types are kept where rows
    are not a whole number of blocks.
    """
    all_tensors = list(tensors)
    base = FILE_TYPES.get(mix, mix)
    tied = not any(x.role == "head" for x in all_tensors)
    counts = {"value": sum(x.role == "value" for x in all_tensors)}
    indices: dict[str, int] = {}
    for x in all_tensors:
        if model.expert_type and x.is_expert_stack:
            yield x, model.expert_type
            continue
        if not x.is_quantized or DTYPES[base].block == 1:
            yield x, _unquantized_type(x, base)
            continue
        role = "head" if tied and x.role == "embed" else x.role
        if role == "value" and not model.qkv_as_v and _FUSED in x.name:
            role = "qkv"
        i = indices.get(role, 0)
        indices[role] = i + 1
        position = _Position(
            mix,
            base,
            x.layer if model.experts > 1 and role in ("down", "up", "gate") else i,
            counts.get(role, model.layers),
            model,
            imatrix,
            i,
        )
        block_type = base if pure else _type_of_role(role, position, x)
        yield x, type_for_rows(block_type, x.shape[-1]) if fallback else block_type


def type_for_rows(block_type: str, columns: int) -> str:
    """Return the type, or its replacement for rows of this length."""
    if columns % DTYPES[block_type].block:
        block_type = _FALLBACK.get(block_type, "F16")
    return "F16" if columns % DTYPES[block_type].block else block_type


def _unquantized_type(x: GGUFTensor, base: str) -> str:
    """Return F32 for vectors, norms, routers and small convolutions, and the source file's type
    for other matrices.
    """
    return "F32" if is_kept_f32(x) else base if DTYPES[base].block == 1 else "F16"


def is_kept_f32(x: GGUFTensor) -> bool:
    """Whether files store a tensor in F32 whatever the type of the matrices: vectors, norms,
    routers and small convolutions.
    """
    is_matrix = x.ndim > 1 and x.name.endswith(".weight") and not x.name.endswith("_norm.weight")
    return not is_matrix or any(piece in x.name for piece in _KEPT_F32)


def _type_of_role(role: str, at: _Position, x: GGUFTensor) -> str:
    if role == "head":
        return _head(at, x.shape[-1])
    if at.file_type == "MXFP4_MOE":
        return "MXFP4" if len(x.shape) > 2 and x.shape[-3] > 1 else "Q8_0"
    if role == "embed":
        return _embed(at)
    if at.file_type in _BELOW_3_BITS:
        return _below_3_bits(role, at)
    rule = _RULES.get(role)
    return rule(at) if rule else at.base


def _head(at: _Position, columns: int) -> str:
    if (
        at.file_type == "MXFP4_MOE"
        or at.model.is_falcon
        or columns % DTYPES[at.base].block
        or at.base == "Q8_0"
    ):
        return "Q8_0"
    return "Q5_K" if at.file_type in _BELOW_3_BITS | {"IQ3_XXS"} else "Q6_K"


def _embed(at: _Position) -> str:
    types = {
        **dict.fromkeys(("IQ2_XXS", "IQ2_XS", "IQ1_S", "IQ1_M"), "Q2_K"),
        **dict.fromkeys(("IQ2_S", "IQ2_M", "IQ3_XXS"), "IQ3_S"),
        **dict.fromkeys(("TQ1_0", "TQ2_0", "Q2_0"), "Q4_K"),
    }
    return types.get(at.file_type, at.base)


def _below_3_bits(role: str, at: _Position) -> str:
    """Return the type in file types of less than three bits."""
    wider = at.file_type in ("IQ2_S", "IQ2_M")
    next_up, has_8_experts = "IQ3_S" if wider else "Q2_K", at.model.experts == 8
    if role == "value":
        return "Q4_K" if at.model.heads_per_kv_head >= 4 or at.model.experts >= 4 else next_up
    if role == "key" and has_8_experts:
        return "Q4_K"
    if role == "down" and at.ordinal < at.n // 8:
        return next_up
    if role == "out":
        if has_8_experts:
            return "Q5_K"
        return "IQ3_S" if wider else "IQ2_XXS" if at.file_type in ("IQ1_S", "IQ1_M") else at.base
    return at.base


def _value(at: _Position) -> str:
    if at.model.experts == 8:
        return "Q8_0"
    block_type = _value_by_file(at)
    return "Q5_K" if at.model.is_70b and block_type in ("Q3_K", "Q4_K") else block_type


def _value_by_file(at: _Position) -> str:
    is_grouped = at.model.heads_per_kv_head >= 4
    if at.file_type == "IQ3_XXS":
        return "Q4_K" if is_grouped else "IQ3_XXS" if at.imatrix else "IQ3_S"
    if at.file_type in ("Q4_K_M", "Q5_K_M"):
        return "Q6_K" if at.gets_more_bits else at.base
    first = {"Q3_K_M": (2, "Q5_K", "Q4_K"), "Q4_K_S": (4, "Q5_K", at.base)}
    if at.file_type in first:
        n, early, late = first[at.file_type]
        return early if at.i < n else late
    always = {"Q2_K": "Q4_K" if is_grouped else "Q3_K", "IQ3_M": "Q4_K", "Q3_K_L": "Q5_K"}
    grouped = {
        "Q2_K_S": "Q4_K",
        "IQ3_XS": "Q4_K",
        "IQ3_S": "Q4_K",
        "IQ4_NL": "Q5_K",
        "IQ4_XS": "Q5_K",
    }
    return always.get(at.file_type) or (
        grouped.get(at.file_type, at.base) if is_grouped else at.base
    )


def _qkv(at: _Position) -> str:
    """Return the type of a matrix of q, k and v in published files."""
    types = {
        **dict.fromkeys(("Q3_K_M", "Q3_K_L", "IQ3_M"), "Q4_K"),
        "Q4_K_M": "Q5_K",
        "Q5_K_M": "Q6_K",
    }
    return types.get(at.file_type, at.base)


def _key(at: _Position) -> str:
    return "Q8_0" if at.model.experts == 8 else _query(at)


def _query(at: _Position) -> str:
    return {"IQ3_XS": "IQ3_XXS", "IQ3_XXS": "IQ2_S"}.get(at.file_type, at.base)


def _out(at: _Position) -> str:
    if at.model.is_falcon:
        return "Q4_K" if at.file_type == "Q3_K_L" else at.base
    if at.model.experts == 8:
        five = "Q2_K IQ3_XS IQ3_XXS Q3_K_S Q3_K_M IQ4_NL Q4_K_S Q4_K_M IQ3_S IQ3_M IQ4_XS"
        return "Q5_K" if at.file_type in five.split() else at.base
    return {
        "Q2_K": "Q3_K",
        "IQ3_XXS": "IQ3_S",
        "Q3_K_M": "Q4_K",
        "Q3_K_L": "Q5_K",
        "IQ3_M": "Q4_K",
    }.get(at.file_type, at.base)


def _down(at: _Position) -> str:
    if at.model.is_falcon and at.file_type in _DOWN_RULES_FALCON:
        return _DOWN_RULES_FALCON[at.file_type](at)
    return _DOWN_RULES[at.file_type](at) if at.file_type in _DOWN_RULES else at.base


def _up(at: _Position) -> str:
    """Return the type of gate and up matrices."""
    return "IQ3_XXS" if at.file_type == "IQ3_XS" and at.n // 8 <= at.i < 7 * at.n // 8 else at.base


def _sixteenth(at: _Position, early: str, late: str) -> str:
    return early if at.i < at.n // 16 else late


_DOWN_RULES: dict[str, _Rule] = {
    "Q2_K": lambda _: "Q3_K",
    "Q2_K_S": lambda at: "Q4_K" if at.is_in_first_eighth else at.base,
    "IQ3_XXS": lambda at: at.base if at.imatrix else "Q4_K" if at.is_in_first_eighth else "Q3_K",
    "Q3_K_M": lambda at: _sixteenth(at, "Q5_K", "Q4_K"),
    "IQ3_M": lambda at: (
        "Q4_K"
        if at.is_in_first_eighth or (at.model.experts == 8 and at.gets_more_bits)
        else at.base
    ),
    "Q3_K_L": lambda _: "Q5_K",
    "Q4_K_M": lambda at: "Q6_K" if at.gets_more_bits else at.base,
    "Q5_K_M": lambda at: "Q6_K" if at.gets_more_bits else at.base,
    "IQ4_NL": lambda at: "Q5_K" if at.is_in_first_eighth and not at.imatrix else at.base,
    "IQ4_XS": lambda at: "Q5_K" if at.is_in_first_eighth and not at.imatrix else at.base,
    "Q4_K_S": lambda at: "Q5_K" if at.is_in_first_eighth else at.base,
    "Q4_0": lambda at: "Q4_1" if at.is_in_first_eighth and at.imatrix else at.base,
    "Q5_0": lambda at: "Q5_1" if at.is_in_first_eighth and at.imatrix else at.base,
}
_DOWN_RULES_FALCON: dict[str, _Rule] = {
    "Q3_K_M": lambda at: _sixteenth(at, "Q5_K", "Q4_K" if at.gets_more_bits else "Q3_K"),
    "Q3_K_L": lambda _: "Q4_K",
    "Q4_K_M": lambda at: _sixteenth(at, "Q6_K", "Q5_K" if at.gets_more_bits else "Q4_K"),
    "Q4_K_S": lambda at: at.base,
}
_RULES: dict[str, _Rule] = {
    "value": _value,
    "qkv": _qkv,
    "key": _key,
    "query": _query,
    "out": _out,
    "down": _down,
    "up": _up,
    "gate": _up,
}
