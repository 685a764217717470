"""`Packing`, what a stored tensor is to a weight, and `Found`, the tensors by name together with what is known of them so far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple, Self

from ..formats.manifest import Tensor

AFTER = {
    "_scale_inv": "scale", "_scale": "scale", "_scale_2": "scale", "_global_scale": "scale",
    "_zero_point": "zero", "_g_idx": "index", "_shape": "meta",
}  # fmt: skip
"""How the companions of `X.weight` (or of a stack of experts, `X`) end, and what they are."""
BESIDE = {
    "scale": "scale", "scale_weight": "scale", "qscale_weight": "scale", "input_scale": "scale", "input_global_scale": "scale",
    "input_scale_ub": "scale", "activation_scale": "scale", "scale_input": "scale", "qscale_act": "scale", "k_scale": "scale",
    "v_scale": "scale", "input_zero_point": "zero", "weight_format": "meta",
}  # fmt: skip
"""The companions of `X.weight` that stand beside it, in `X`."""
GROUPED = {"scales": "scale", "qzeros": "zero", "scaled_zeros": "zero", "g_idx": "index", "biases": "zero", "workspace": "meta"}
"""Likewise, of values in groups."""
ROLES = AFTER | BESIDE
TURNED = frozenset(("awq", "gptq", "mxfp4"))
"""Kinds whose tensors also stand for weights that a model keeps the other way round (GPT-2's Conv1D, the experts of gpt-oss)."""

Shape = tuple[int, ...]


class Packing(NamedTuple):
    """What a stored tensor is to a weight: its values, or something that is needed to read them."""

    kind: str
    weight: str  # the name that the weight would have if it were stored plainly
    role: str  # values, scale, zero, index or meta
    shape: Shape | None = None  # of the weight, where the headers give it
    elements: int = 0  # of the weight; 0 for companions
    known: bool = True  # False: the headers leave open how many values a stored number holds, and stored numbers are counted

    @classmethod
    def of_values(cls, kind: str, weight: str, shape: Shape) -> Self:
        """The values of a weight of this shape."""
        return cls(kind, weight, "values", shape, prod(shape))

    @classmethod
    def of_unknown_length(cls, kind: str, weight: str, x: Tensor) -> Self:
        """The values of a weight, nobody knows how many."""
        return cls(kind, weight, "values", None, x.elements, known=False)

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether these values can stand for a weight of that shape."""
        if self.role != "values":
            return False
        if not self.known:
            return prod(shape) >= self.elements
        if self.shape is None:
            return prod(shape) in (self.elements, self.elements - 1)
        turned = (*shape[:-2], *reversed(shape[-2:]))
        return self.shape == tuple(shape) or (self.kind in TURNED and self.shape == turned)


class Found:
    """The tensors by name, what they have turned out to be, and what the configuration declares."""

    def __init__(self, tensors: Sequence[Tensor], quantization: Mapping[str, Any]) -> None:
        self.named = {x.name: x for x in tensors}
        self.quantization = quantization
        self.made: dict[str, Packing] = {}
        ends = {name.rpartition(".")[2] for name in self.named}
        self.after = {x: role for x, role in AFTER.items() if any(end.endswith(x) for end in ends)}
        self.beside = {x: role for x, role in BESIDE.items() if x in ends}

    def get(self, name: str, *dtypes: str) -> Tensor | None:
        """The tensor of that name, if it is of one of these dtypes."""
        x = self.named.get(name)
        return x if x is not None and (not dtypes or x.dtype in dtypes) else None

    def companions(self, weight: str) -> list[tuple[str, str]]:
        """What stands beside a weight: names, each with the end by which it was found."""
        named = self.named
        found = [(name, end) for end in self.after if (name := weight + end) in named]
        if self.beside and weight.endswith(".weight"):
            base = weight[:-6]
            found += [(name, end) for end in self.beside if (name := base + end) in named]
        return found

    def add(self, x: Tensor, values: Packing, companions: Mapping[str, str]) -> None:
        """Note a weight's values, and its companions by name and role, those that are there."""
        self.made[x.name] = values
        for name, role in companions.items():
            if name in self.named:
                self.made[name] = Packing(values.kind, values.weight, role)

    def pack(self, x: Tensor, values: Packing, beside: Sequence[tuple[str, str]] | None = None) -> None:
        """The same with the companions that stand beside it."""
        self.made[x.name] = values
        for name, end in self.companions(values.weight) if beside is None else beside:
            self.made[name] = Packing(values.kind, values.weight, ROLES[end])

    def declared(self) -> Iterator[tuple[int, int | None]]:
        """Bits and group size of each scheme that the configuration declares."""
        schemes = self.quantization.get("config_groups")
        for scheme in schemes.values() if isinstance(schemes, Mapping) else [{"weights": self.quantization}]:
            yield from scheme_bits(scheme.get("weights") if isinstance(scheme, Mapping) else None)


def scheme_bits(said: object) -> Iterator[tuple[int, int | None]]:
    """Bits and group size, if this is a scheme that has them."""
    if isinstance(said, Mapping):
        bits = next((said[key] for key in ("num_bits", "bits", "w_bit") if key in said), None)
        group = said.get("group_size")
        if type(bits) is int and 0 < bits <= 8:
            yield bits, group if type(group) is int and group > 0 else None


def ratio(x: Tensor, scale: Tensor) -> int:
    """How many stored numbers of a row share a scale; 0 if that is no whole number or the rows are others."""
    same = x.shape and scale.shape and x.shape[:-1] == scale.shape[:-1] and scale.shape[-1] and x.shape[-1] % scale.shape[-1] == 0
    return x.shape[-1] // scale.shape[-1] if same else 0
