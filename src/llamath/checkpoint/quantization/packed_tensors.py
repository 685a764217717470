"""`Packing`, the role of a stored tensor in a quantized weight, and `Detection`, the state of a
search for packed tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple, Self

from ..formats.manifest import Tensor

Shape = tuple[int, ...]

_SUFFIX_ROLES = {
    "_scale_inv": "scale", "_scale": "scale", "_scale_2": "scale", "_global_scale": "scale",
    "_zero_point": "zero", "_zero_point_2": "zero", "_g_idx": "index", "_shape": "meta",
}  # fmt: skip
"""Suffixes of the companions of `X.weight` (or of a stack of experts, `X`), and their roles."""
_SIBLING_ROLES = {
    "scale": "scale", "scale_weight": "scale", "qscale_weight": "scale", "input_scale": "scale",
    "input_global_scale": "scale",
    "input_scale_ub": "scale", "activation_scale": "scale", "scale_input": "scale",
    "qscale_act": "scale", "k_scale": "scale",
    "v_scale": "scale", "pre_quant_scale": "scale", "input_zero_point": "zero",
    "weight_format": "meta", "input_scale_2": "scale",
    "output_scale": "scale", "output_zero_point": "zero",
}  # fmt: skip
"""Names of companions next to `X.weight`, as `X.scale`, and their roles."""
GROUP_ROLES = {
    "scales": "scale",
    "qzeros": "zero",
    "scaled_zeros": "zero",
    "g_idx": "index",
    "biases": "zero",
    "workspace": "meta",
}
"""Names of companions of weights that are quantized in groups, and their roles."""
_ROLES = _SUFFIX_ROLES | _SIBLING_ROLES
_OUTPUTS_FIRST = frozenset(("awq", "gptq", "mxfp4"))
"""Kinds that also store weights which some models define transposed (GPT-2's Conv1D, gpt-oss's
experts)."""


SCALE_DTYPES = ("F16", "BF16", "F32")
"""Float types of scales."""


class Packing(NamedTuple):
    """The role of a stored tensor in a quantized weight: its values, or what unpacks them."""

    kind: str
    weight: str  # the name that the weight would have if it were not quantized
    role: str  # values, scale, zero, index or meta
    shape: Shape | None = None  # of the weight, if the headers determine it
    elements: int = 0  # of the weight; 0 for companions
    # False: the number of values per stored number is not in the headers, and stored numbers are
    # counted
    known: bool = True

    @classmethod
    def of_values(cls, kind: str, weight: str, shape: Shape) -> Self:
        """Return the packing of the values of a weight of this shape."""
        return cls(kind, weight, "values", shape, prod(shape))

    @classmethod
    def of_unknown_length(cls, kind: str, weight: str, x: Tensor) -> Self:
        """Return the packing of values whose number is not in the headers."""
        return cls(kind, weight, "values", None, x.elements, known=False)

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether these values can be those of a weight of this shape."""
        if self.role != "values":
            return False
        if not self.known:
            return prod(shape) >= self.elements
        if self.shape is None:
            return prod(shape) in (self.elements, self.elements - 1)
        transposed = (*shape[:-2], *reversed(shape[-2:]))
        return self.shape == tuple(shape) or (
            self.kind in _OUTPUTS_FIRST and self.shape == transposed
        )


class PackedWeight(NamedTuple):
    """A packed weight, and the names of the tensors that are stored for it."""

    name: str  # that it would have if it were not quantized
    kind: str
    shape: Shape | None  # (…, out, in); None: it is in the tensors, or nowhere
    values: str
    companions: tuple[str, ...] = ()

    @property
    def is_outputs_first(self) -> bool:
        """Whether values are [out, in] also where the plain matrix is stored transposed."""
        return self.kind in _OUTPUTS_FIRST


def packed_weights(packings: Mapping[str, Packing]) -> dict[str, PackedWeight]:
    """Return the packed weights of a checkpoint by name."""
    companions: dict[str, list[str]] = {}
    for name, x in packings.items():
        if x.role != "values":
            companions.setdefault(x.weight, []).append(name)
    return {
        x.weight: PackedWeight(
            x.weight,
            x.kind,
            x.shape if x.known else None,
            name,
            tuple(companions.get(x.weight, ())),
        )
        for name, x in packings.items()
        if x.role == "values"
    }


class Detection:
    """The tensors by name, the packings found so far, and the `quantization_config`."""

    def __init__(self, tensors: Sequence[Tensor], config: Mapping[str, Any]) -> None:
        self.tensors = {x.name: x for x in tensors}
        self.config = config
        self.packings: dict[str, Packing] = {}
        last_parts = {name.rpartition(".")[2] for name in self.tensors}
        self._suffixes = [x for x in _SUFFIX_ROLES if any(part.endswith(x) for part in last_parts)]
        self._siblings = [x for x in _SIBLING_ROLES if x in last_parts]

    @property
    def has_cache_scales(self) -> bool:
        """Whether there may be scales of a KV cache."""
        return "k_scale" in self._siblings or "v_scale" in self._siblings

    def get(self, name: str, *dtypes: str) -> Tensor | None:
        """Return the tensor with this name if it has one of these dtypes."""
        x = self.tensors.get(name)
        return x if x is not None and (not dtypes or x.dtype in dtypes) else None

    def companions(self, weight: str) -> list[tuple[str, str]]:
        """Return the names of a weight's companions, each with the suffix or sibling name that
        it was found by.
        """
        tensors = self.tensors
        companions = [
            (name, suffix) for suffix in self._suffixes if (name := weight + suffix) in tensors
        ]
        if self._siblings and weight.endswith(".weight"):
            base = weight[:-6]
            companions += [
                (name, sibling) for sibling in self._siblings if (name := base + sibling) in tensors
            ]
        return companions

    def record(self, x: Tensor, values: Packing, roles: Mapping[str, str]) -> None:
        """Record the values of a weight, and its companions, name → role, that exist."""
        self.packings[x.name] = values
        for name, role in roles.items():
            if name in self.tensors:
                self.packings[name] = Packing(values.kind, values.weight, role)

    def record_with_companions(
        self, x: Tensor, values: Packing, companions: Sequence[tuple[str, str]] | None = None
    ) -> None:
        """Record the values of a weight and its companions."""
        self.packings[x.name] = values
        for name, end in self.companions(values.weight) if companions is None else companions:
            self.packings[name] = Packing(values.kind, values.weight, _ROLES[end])

    def declared_bits(self) -> Iterator[tuple[int, int | None]]:
        """Yield the bits and the group size of each scheme in the `quantization_config`."""
        groups = self.config.get("config_groups")
        for group in groups.values() if isinstance(groups, Mapping) else [{"weights": self.config}]:
            yield from bits_of_config(group.get("weights") if isinstance(group, Mapping) else None)


def bits_of_config(config: object) -> Iterator[tuple[int, int | None]]:
    """Yield the bits and the group size that a configuration declares, if it does."""
    if isinstance(config, Mapping):
        bits = next((config[key] for key in ("num_bits", "bits", "w_bit") if key in config), None)
        group = config.get("group_size")
        if type(bits) is int and 0 < bits <= 8:
            yield bits, group if type(group) is int and group > 0 else None


def values_per_scale(x: Tensor, scale: Tensor) -> int:
    """Return the number of stored numbers of a row that share a scale; 0 if that is not a whole
    number or the rows differ.
    """
    same = (
        x.shape
        and scale.shape
        and x.shape[:-1] == scale.shape[:-1]
        and scale.shape[-1]
        and x.shape[-1] % scale.shape[-1] == 0
    )
    return x.shape[-1] // scale.shape[-1] if same else 0
