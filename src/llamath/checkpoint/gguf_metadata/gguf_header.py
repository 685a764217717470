"""`GGUFHeader`: typed access to the metadata and tensor shapes of a GGUF file."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from math import isfinite
from typing import Any

from ...utils.errors import Call, Name, UnknownModel, safe
from ..formats.gguf import MAX_KEPT_VALUES, Array
from ..formats.manifest import Tensor

ReadTensor = Callable[[Tensor], bytes]
"""Reads the bytes of a small tensor."""
_MAX_VALUES_BYTES = 1 << 16
"""Tensors with more bytes are not read for their values."""


def count_hint() -> str:
    """Return the hint of errors about headers that cannot be translated to a configuration."""
    return f"{Call('ls', Name('path'))} still counts the tensors in its header"


class GGUFHeader:
    """The metadata of one architecture and the shapes of the tensors.

    Metadata keys are given without the architecture's prefix. `read` collects the keys that were
    read, so that the others can be reported.
    """

    def __init__(
        self,
        metadata: Mapping[str, Any],
        tensors: Iterable[Tensor],
        source: str,
        read_tensor: ReadTensor | None = None,
    ) -> None:
        self.metadata, self.source, self._read_tensor = metadata, source, read_tensor
        self.tensors = {x.name: x for x in tensors}
        self.read: set[str] = set()
        self.notes: list[str] = []
        arch = metadata.get("general.architecture")
        if not isinstance(arch, str) or not arch:
            raise UnknownModel(
                f"{source}: general.architecture is missing, so the model family is unknown",
                hint=count_hint(),
            )
        self.arch = arch

    # Metadata

    def get(self, key: str) -> Any:
        """Return a value as the GGUF reader gives it; None if the key is absent."""
        self.read.add(key)
        return self.metadata.get(f"{self.arch}.{key}")

    def integer(self, key: str) -> int | None:
        """Return a non-negative integer."""
        value = self.get(key)
        if value is not None and (type(value) is not int or not 0 <= value < 2**63):
            raise self.error(key, f"should be a count, not {safe(repr(value), 60)}")
        return value

    def uniform_integer(self, key: str) -> int | None:
        """Return a non-negative integer; an array is accepted if its value is the same in every
        layer.
        """
        if type(self.get(key)) is not Array:
            return self.integer(key)
        values = sorted(set(self.per_layer(key) or ()))
        if len(values) != 1:
            raise self.not_uniform(key, values)
        return values[0]

    def required(self, key: str) -> int:
        """Return a positive integer that every configuration needs."""
        if not (value := self.uniform_integer(key)):
            raise self.error(key, "is missing")
        return value

    def per_layer(self, key: str) -> list[int] | None:
        """Return one integer for each layer, from an array or from one value for all layers."""
        value = self.get(key)
        if type(value) is not Array:
            return None if (uniform := self.integer(key)) is None else [uniform] * self.layers
        values = self.array(key)[: self.layers]
        if len(values) < self.layers or any(
            type(x) is not int or not 0 <= x < 2**63 for x in values
        ):
            raise self.error(
                key,
                f"should be a count for each of the {self.layers} layers, not "
                f"{safe(repr(values), 60)}",
            )
        return values

    def array(self, key: str) -> list[Any]:
        """Return the elements of a short array."""
        value = self.get(key)
        if type(value) is not Array or len(value.head) != value.count:
            raise self.error(
                key,
                f"should be an array of at most {MAX_KEPT_VALUES} elements, "
                f"not {safe(repr(value), 60)}",
            )
        return list(value.head)

    def real(self, key: str) -> float | None:
        """Return a number with as few digits as single precision needs: 1e-05, not
        9.999999747378752e-06.
        """
        value = self.get(key)
        if value is None:
            return None
        if type(value) not in (int, float) or not isfinite(value):
            raise self.error(key, f"should be a number, not {safe(repr(value), 60)}")
        return shortest_float32(float(value))

    def boolean(self, key: str) -> bool | None:
        """Return a boolean."""
        value = self.get(key)
        if value is not None and type(value) is not bool:
            raise self.error(key, f"should be true or false, not {safe(repr(value), 60)}")
        return value

    def string(self, key: str) -> str:
        """Return a string; empty if the key is absent."""
        value = self.get(key)
        return value if isinstance(value, str) else ""

    @cached_property
    def layers(self) -> int:
        """The number of layers, without multi-token prediction layers."""
        blocks, mtp = self.integer("block_count") or 0, self.integer("nextn_predict_layers") or 0
        if not 0 < blocks - mtp <= len(self.tensors):
            raise self.error(
                "block_count",
                f"is {blocks:,}, {mtp:,} of them for multi-token prediction, in a "
                f"file of {len(self.tensors):,} tensors",
            )
        return blocks - mtp

    # Tensors

    def has_tensor(self, *names: str) -> bool:
        """Whether one of these tensors exists; a name that begins with a dot is looked for in
        every layer.
        """
        return any(
            name in self.tensors if name[0] != "." else name in self._names_in_blocks
            for name in names
        )

    def layers_with(self, name: str) -> list[bool]:
        """Return for each layer whether it has this tensor."""
        return [f"blk.{i}{name}" in self.tensors for i in range(self.layers)]

    def rows(self, name: str) -> int | None:
        """Return the outermost dimension of a tensor; of the first layer that has it if the name
        begins with a dot.
        """
        if name[0] == ".":
            name = next(
                (x for i in range(self.layers) if (x := f"blk.{i}{name}") in self.tensors), ""
            )
        tensor = self.tensors.get(name)
        return tensor.shape[0] if tensor and tensor.shape else None

    def tensor_values(self, name: str) -> list[float] | None:
        """Return the values of a small F32 tensor; None if there is none or it cannot be read."""
        tensor = self.tensors.get(name)
        if (
            self._read_tensor is None
            or tensor is None
            or tensor.dtype != "F32"
            or not 0 < tensor.bytes == 4 * tensor.elements <= _MAX_VALUES_BYTES
        ):
            return None
        order = next((x.order for x in self.metadata.values() if type(x) is Array), "<")
        return list(
            map(
                shortest_float32,
                struct.unpack(f"{order}{tensor.elements}f", self._read_tensor(tensor)),
            )
        )

    @cached_property
    def _names_in_blocks(self) -> set[str]:
        return {
            name[name.index(".", 4) :]
            for name in self.tensors
            if name.startswith("blk.") and "." in name[4:]
        }

    # Errors

    def error(self, key: str, problem: str) -> UnknownModel:
        """Make the error for a key with an invalid value."""
        return UnknownModel(f"{self.source}: {safe(self.arch)}.{key} {problem}", hint=count_hint())

    def not_uniform(self, key: str, values: list[int]) -> UnknownModel:
        """Make the error for a value that would have to be the same in every layer."""
        return self.unsupported(
            f"{key} differs from layer to layer "
            f"({', '.join(map(str, values[:4]))}{' …' if len(values) > 4 else ''})"
        )

    def unsupported(self, reason: str) -> UnknownModel:
        """Make the error for a valid header that no family's configuration can express."""
        return UnknownModel(
            f"{self.source}: architecture {safe(repr(self.arch), 60)}: {reason}, which no model "
            "family here supports",
            hint=count_hint(),
        )


def shortest_float32(value: float) -> float:
    """Return the decimal with the fewest digits that is the same number in single precision, or
    the value if it is not single precision.
    """
    try:
        single = struct.pack("<f", value)
    except OverflowError:
        return value
    if struct.unpack("<f", single)[0] != value:
        return value
    return next(
        x
        for digits in range(6, 10)
        if struct.pack("<f", x := float(f"{value:.{digits}g}")) == single
    )
