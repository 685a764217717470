"""`storage_difference`: how two models store their weights: formats, bytes and bits per weight
by group, and the modules that differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

from ....utils.errors import LlamathError, UnknownQuantization
from ....utils.record_type import Record
from ...storage.choose_storage import weight_storage
from ...storage.weight_bytes import WeightStorage

if TYPE_CHECKING:
    from ....model import FamilyModel

_MAX_LAYERS = 10_000
"""Modules are compared layer by layer in models of at most this many layers."""
_GROUP_ORDER = ("embedding", "attention", "mlp", "experts", "router", "norm", "head")


class StoredSize(Record):
    """The weights of one model, or of one group of them."""

    formats: tuple[str, ...]  # the one with most bytes first
    parameters: int
    bytes: int

    json_fields: ClassVar[tuple[str, ...]] = ("formats", "parameters", "bytes", "bits_per_weight")

    @property
    def bits_per_weight(self) -> Fraction | None:
        """Bits per weight, scales included; None without weights."""
        return Fraction(8 * self.bytes, self.parameters) if self.parameters else None


class StoredGroup(Record):
    """A group of weights in both models."""

    group: str
    a: StoredSize
    b: StoredSize

    json_fields: ClassVar[tuple[str, ...]] = ("group", "a", "b", "delta")

    @property
    def delta(self) -> int:
        """The bytes that it adds."""
        return self.b.bytes - self.a.bytes


class ModuleFormats(Record):
    """Modules of both models that are stored differently; a reason tells why a recipe leaves
    them unquantized.
    """

    module: str
    # empty outside of layers, and if there are too many layers to compare one by one
    layers: tuple[int, ...]
    a: str
    b: str
    reason_a: str = ""
    reason_b: str = ""


class StorageDifference(Record):
    """How two models store their weights."""

    a: StoredSize
    b: StoredSize
    groups: tuple[StoredGroup, ...]
    modules: tuple[ModuleFormats, ...]

    json_fields: ClassVar[tuple[str, ...]] = ("a", "b", "delta", "groups", "modules")

    @property
    def delta(self) -> int:
        """The difference of the bytes."""
        return self.b.bytes - self.a.bytes


def storage_difference(a: FamilyModel, b: FamilyModel) -> tuple[StorageDifference | None, str]:
    """Return how two models store their weights, if one is quantized, and a note if a recipe is
    unknown or cannot be applied.
    """
    try:
        formats = [x.weight_format for x in (a, b)]
        if all(x.recipe is None for x in formats):
            return None, ""
        left, right = (
            weight_storage(x.tree, to, names=x.family.schemes.get("hf"))
            for x, to in zip((a, b), formats, strict=True)
        )
    except (UnknownQuantization, LlamathError) as error:
        return None, f"the stored sizes are not compared: {error}"
    ours, theirs = _sizes_by_group(left), _sizes_by_group(right)
    none = StoredSize(formats=(), parameters=0, bytes=0)
    names = sorted(
        ours.keys() | theirs.keys(),
        key=lambda x: (_GROUP_ORDER.index(x) if x in _GROUP_ORDER else len(_GROUP_ORDER), x),
    )
    return StorageDifference(
        a=_total(left),
        b=_total(right),
        groups=tuple(
            StoredGroup(group=x, a=ours.get(x, none), b=theirs.get(x, none)) for x in names
        ),
        modules=tuple(_modules(a, b, left, right)),
    ), ""


def _total(storage: WeightStorage) -> StoredSize:
    formats = tuple(x.codec for x in storage.sums())
    return StoredSize(formats=formats, parameters=storage.elements, bytes=storage.bytes)


def _sizes_by_group(storage: WeightStorage) -> dict[str, StoredSize]:
    bytes_by_format: dict[str, dict[str, int]] = {}
    parameters: dict[str, int] = {}
    for x in storage.weights:
        formats = bytes_by_format.setdefault(x.leaf.group, {})
        formats[x.codec] = formats.get(x.codec, 0) + x.total
        parameters[x.leaf.group] = parameters.get(x.leaf.group, 0) + int(
            x.leaf.weight.parameters
        ) * int(x.leaf.copies)
    if storage.cache_scale_bytes:
        bytes_by_format["cache scales"], parameters["cache scales"] = (
            {"cache scales": storage.cache_scale_bytes},
            0,
        )
    return {
        group: StoredSize(
            formats=tuple(sorted(formats, key=lambda x: -formats[x])),
            parameters=parameters[group],
            bytes=sum(formats.values()),
        )
        for group, formats in bytes_by_format.items()
    }


def _modules(
    a: FamilyModel, b: FamilyModel, left: WeightStorage, right: WeightStorage
) -> Iterator[ModuleFormats]:
    """Yield the modules with the same name that two recipes store differently, those that differ
    in the same way together.
    """
    if (
        left.packer.recipe is None
        or right.packer.recipe is None
        or max(int(x.tree.layers.n) for x in (a, b)) > _MAX_LAYERS
    ):
        return
    ours, theirs = _choices(left), _choices(right)
    found: dict[tuple[str, tuple[str, str], tuple[str, str]], list[int]] = {}
    for (name, layer), mine in ours.items():
        its = theirs.get((name, layer))
        if its is not None and mine[0] != its[0]:
            found.setdefault((name, mine, its), []).append(layer)
    for (name, mine, its), layers in found.items():
        inside = tuple(x for x in layers if x >= 0)
        yield ModuleFormats(
            module=name, layers=inside, a=mine[0], b=its[0], reason_a=mine[1], reason_b=its[1]
        )


def _choices(storage: WeightStorage) -> dict[tuple[str, int], tuple[str, str]]:
    """Return the formats of each matrix in each layer, and the reason if it is unquantized;
    experts may have several formats.
    """
    choices: dict[tuple[str, int], dict[str, str]] = {}
    for x in storage.matrices:
        to = x.choice.format
        for layer in x.layers or (-1,):
            choices.setdefault((x.name, layer), {})[
                to.name if to is not None else storage.packer.unpacked_dtype
            ] = x.choice.reason
    return {
        key: (join_formats(sorted(formats)), ", ".join(filter(None, formats.values())))
        for key, formats in choices.items()
    }


def format_layers(layers: Sequence[int]) -> str:
    """Return layer numbers as ranges: `0-3, 7`."""
    spans: list[list[int]] = []
    for i in layers:
        if spans and i == spans[-1][1] + 1:
            spans[-1][1] = i
        else:
            spans.append([i, i])
    return ", ".join(str(x) if x == y else f"{x}-{y}" for x, y in spans)


def join_formats(formats: Iterable[str]) -> str:
    """Return the names of formats as text."""
    return "+".join(formats) or "–"
