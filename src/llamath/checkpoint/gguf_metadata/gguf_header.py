"""`Header`: GGUF metadata as one architecture has it: typed, checked, and with every key that was read remembered."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from math import isfinite
from typing import Any

from ...core.errors import UnknownModel, safe
from ..formats.gguf import HEAD, Array
from ..formats.manifest import Tensor

Read = Callable[[Tensor], bytes]
"""How the values of a small tensor are had, where they can be had."""
SMALL = 1 << 16
"""No tensor of more bytes is read for its values."""
INSTEAD = "its tensors can be counted all the same: llamath count FILE reads them from the header"
"""The hint of every refusal here."""


class Header:
    """The keys of `general.architecture` and the shapes of the tensors; keys are given without the architecture's name."""

    def __init__(self, metadata: Mapping[str, Any], tensors: Iterable[Tensor], source: str, read: Read | None = None) -> None:
        self.metadata, self.source, self._bytes = metadata, source, read
        self.tensors = {x.name: x for x in tensors}
        self.shapes = {x.name: x.shape for x in self.tensors.values()}
        self.read: set[str] = set()
        self.notes: list[str] = []
        arch = metadata.get("general.architecture")
        if not isinstance(arch, str) or not arch:
            raise UnknownModel(f"{source}: general.architecture is missing, so nothing says which family it is", hint=INSTEAD)
        self.arch = arch

    def raw(self, key: str) -> Any:
        """A value as the reader gives it; None where the header is silent."""
        self.read.add(key)
        return self.metadata.get(f"{self.arch}.{key}")

    def whole(self, key: str) -> int | None:
        """A count."""
        value = self.raw(key)
        if value is not None and (type(value) is not int or not 0 <= value < 2**63):
            raise self.error(key, f"should be a count, not {safe(repr(value), 60)}")
        return value

    def number(self, key: str) -> int | None:
        """A count, the same in every layer if it is an array."""
        if type(self.raw(key)) is not Array:
            return self.whole(key)
        values = sorted(set(self.each(key) or ()))
        if len(values) != 1:
            raise self.uneven(key, values)
        return values[0]

    def needed(self, key: str) -> int:
        """A count that nothing can be built without."""
        if not (value := self.number(key)):
            raise self.error(key, "is missing")
        return value

    def each(self, key: str) -> list[int] | None:
        """A count for every layer: an array of them, or one for all."""
        value = self.raw(key)
        if type(value) is not Array:
            return None if (one := self.whole(key)) is None else [one] * self.layers
        values = self.listed(key)[: self.layers]
        if len(values) < self.layers or any(type(x) is not int or not 0 <= x < 2**63 for x in values):
            raise self.error(key, f"should be a count for each of the {self.layers} layers, not {safe(repr(values), 60)}")
        return values

    def listed(self, key: str) -> list[Any]:
        """The elements of an array that the reader has kept whole."""
        value = self.raw(key)
        if type(value) is not Array or len(value.head) != value.count:
            raise self.error(key, f"should be an array of at most {HEAD}, not {safe(repr(value), 60)}")
        return list(value.head)

    def real(self, key: str) -> float | None:
        """A number that need not be whole, as short as single precision allows: 1e-05, not 9.999999747378752e-06."""
        value = self.raw(key)
        if value is None:
            return None
        if type(value) not in (int, float) or not isfinite(value):
            raise self.error(key, f"should be a number, not {safe(repr(value), 60)}")
        return short(float(value))

    def flag(self, key: str) -> bool | None:
        """A boolean."""
        value = self.raw(key)
        if value is not None and type(value) is not bool:
            raise self.error(key, f"should be true or false, not {safe(repr(value), 60)}")
        return value

    def text(self, key: str) -> str:
        """A word; empty where the header is silent."""
        value = self.raw(key)
        return value if isinstance(value, str) else ""

    @cached_property
    def layers(self) -> int:
        """How many layers the model has, without those that predict further tokens."""
        blocks, further = self.whole("block_count") or 0, self.whole("nextn_predict_layers") or 0
        if not 0 < blocks - further <= len(self.shapes):
            raise self.error(
                "block_count", f"is {blocks:,}, {further:,} of them for further tokens, in a file of {len(self.shapes):,} tensors"
            )
        return blocks - further

    def has(self, *names: str) -> bool:
        """Whether one of these tensors is there, in whatever layer if the name begins with a dot."""
        return any(name in self.shapes if name[0] != "." else name in self._inside for name in names)

    def where(self, *names: str) -> list[bool]:
        """For each layer, whether it has one of these tensors."""
        return [any(f"blk.{i}{name}" in self.shapes for name in names) for i in range(self.layers)]

    def rows(self, name: str) -> int | None:
        """The outermost dimension of a tensor, if it is there; of the first layer that has it, if the name begins with a dot."""
        found = name if name[0] != "." else next((f"blk.{i}{name}" for i in range(self.layers) if f"blk.{i}{name}" in self.shapes), "")
        shape = self.shapes.get(found)
        return shape[0] if shape else None

    def floats(self, name: str) -> list[float] | None:
        """The values of a small tensor in single precision; None if there is none or nobody reads it."""
        found = self.tensors.get(name)
        if self._bytes is None or found is None or found.dtype != "F32" or not 0 < found.bytes == 4 * found.elements <= SMALL:
            return None
        order = next((x.order for x in self.metadata.values() if type(x) is Array), "<")
        return list(map(short, struct.unpack(f"{order}{found.elements}f", self._bytes(found))))

    @cached_property
    def _inside(self) -> set[str]:
        return {name[name.index(".", 4) :] for name in self.shapes if name.startswith("blk.") and "." in name[4:]}

    def error(self, key: str, problem: str) -> UnknownModel:
        """What is wrong with one key."""
        return UnknownModel(f"{self.source}: {safe(self.arch)}.{key} {problem}", hint=INSTEAD)

    def uneven(self, key: str, values: list[int]) -> UnknownModel:
        """The refusal of a count that is not the same in every layer."""
        return self.refusal(f"{key} differs from layer to layer ({', '.join(map(str, values[:4]))}{' …' if len(values) > 4 else ''})")

    def refusal(self, reason: str) -> UnknownModel:
        """Why no configuration can say what this header says."""
        return UnknownModel(f"{self.source}: architecture {safe(repr(self.arch), 60)}: {reason}, which no family here has", hint=INSTEAD)


def short(value: float) -> float:
    """The decimal with the fewest digits that is the same number in single precision; the value itself if it is not of that precision."""
    try:
        single = struct.pack("<f", value)
    except OverflowError:
        return value
    if struct.unpack("<f", single)[0] != value:
        return value
    return next(x for digits in range(6, 10) if struct.pack("<f", x := float(f"{value:.{digits}g}")) == single)
