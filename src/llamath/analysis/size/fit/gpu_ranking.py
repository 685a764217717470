"""`rank_gpus`: the GPUs of the catalog that can run a model, in the smallest number that fits,
smallest first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ....hardware import Device, devices
from ....questions.layout import Layout
from ....render.report import Report
from ....render.tables import Cell, Column, Part, Table, Text
from ....utils.number_format import format_count, format_list
from ....utils.record_type import Record
from ..memory.gpu_shards import ShardedModel
from ..memory.inference_memory import MemoryCalculator, largest_fitting
from ..memory.speed_limits import decode_limit, find_roof
from .fit_rules import by_size, headroom_of, left_of, recommended
from .fit_words import format_sequences, gpus_option, split_text
from .format_support import dequantizing_notes, is_supported
from .serving_layouts import LayoutChooser

if TYPE_CHECKING:
    from ....model import FamilyModel

NODE_COUNTS = (1, 2, 4, 8)
"""Numbers of GPUs that are tried, within one node."""


class RankedGPU(Record):
    """A device in the smallest number that fits the model."""

    device: Device
    count: int
    layout: Layout
    total: int  # bytes on the most loaded of them
    max_context: int  # at most the ranking's `limit`
    whole_context: bool  # whether the limit fits
    decode_ceiling: float  # tokens a second at the ranking's context

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "gpu=device.name",
            "count",
            "layout=layout.tp_and_pp",
            "memory=device.memory",
            "total",
            "max_context",
            "whole_context",
        ),
        "decode_ceiling",
    )

    @property
    def nominal(self) -> int:
        """The memory of all of them, as sold."""
        return self.count * self.device.nominal

    @property
    def has_headroom(self) -> bool:
        """Return whether more is left than the model needs at least."""
        return headroom_of(self.device.memory, self.total) >= 0


class GPURanking(Report):
    """The GPUs that can run a model, smallest first, and those that cannot even in the largest
    number tried.
    """

    model: FamilyModel
    dtype: str  # of the weights
    kv_dtype: str
    context: int  # tokens that each has to fit
    limit: int  # the longest context that is tried
    batch: int
    gpus: tuple[RankedGPU, ...]
    with_headroom: tuple[RankedGPU, ...]  # each in the smallest number that has some
    too_small: tuple[str, ...]
    notes: tuple[str, ...] = ()
    # those of the notes that tell how the files differ from the model
    checkpoint_notes: tuple[str, ...] = ()

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "model=model.name",
            "source=model.source",
            "context",
            "batch",
            "fits",
            "cards=gpus",
            "too_small",
            "notes",
        ),
    )

    @property
    def fits(self) -> bool:
        """Return whether any GPU can run the model."""
        return bool(self.gpus)

    @property
    def summary(self) -> str:
        """The smallest GPUs that fit."""
        if not self.gpus:
            return (
                f"{self.model.name}: fits no GPU of the catalog, not even {NODE_COUNTS[-1]} "
                "in a node"
            )
        names = format_list((gpus_option(x.count, x.device) for x in self.gpus), 3)
        return (
            f"{self.model.name}: fits {names}, {format_count(self.batch, 'sequence')} of "
            f"{format_count(self.context, 'token')} each"
        )

    @property
    def headline(self) -> str:
        """The question."""
        return f"{self.model.name}: GPUs that can run it, smallest first"

    @property
    def setting(self) -> str:
        """The weights, the cache and the sequences."""
        dtype = f"weights in {self.dtype}" if self.dtype else "weights as stored"
        sequences = format_sequences(self.batch, self.context)
        return f"{dtype}, cache in {self.kv_dtype}; {sequences} each; from {self.model.source}"

    @property
    def smallest(self) -> RankedGPU | None:
        """The smallest hardware with headroom in the order of `by_size`, on which the format is
        supported; without any, the smallest that fits.
        """
        roomy, fitting = (
            [x for x in among if is_supported(x.device, self.dtype)]
            for among in (self.with_headroom, self.gpus)
        )
        return min(
            roomy or fitting,
            key=lambda x: (not x.device.common, x.count, x.nominal, -x.decode_ceiling),
            default=None,
        )

    @property
    def entries(self) -> Sequence[RankedGPU]:
        """The GPUs, smallest first."""
        return self.gpus

    def tables(self) -> Iterable[Part]:
        """A row for each GPU, and those that are too small."""
        most = NODE_COUNTS[-1]
        tokens = format_count(self.context, "token")
        if self.gpus:
            yield Table(columns=_COLUMNS, rows=tuple(map(_cells, self.gpus)))
        else:
            yield Text(f"none, not even {most} of one kind in a node", apart=True)
        if (found := self.smallest) and found.device.common:
            option = gpus_option(found.count, found.device)
            room = " with a tenth of the memory left" if found.has_headroom else ""
            text = f"the smallest of common GPUs{room}: {option}, {found.device.common}"
            yield Text(text, apart=True)
        if self.too_small:
            names = format_list(self.too_small, _MAX_TOO_SMALL)
            text = f"too small, even {most} of them or as many as a node has: {names}"
            yield Text(text, apart=True)
        yield Text(
            f"on: the smallest of 1, 2, 4 and 8 in a node that fits; GiB: at {tokens}; context: "
            f"the longest that fits, = if all {self.limit:,} that were tried do; decode: a bound "
            f"in tokens/s at {tokens}, bytes over bandwidth, not a prediction",
            "dim",
            apart=True,
        )

    def __bool__(self) -> bool:
        return self.fits


_COLUMNS = (
    Column("on"),
    Column("gpu", shown=False),
    Column("count", shown=False),
    Column("split", drop=1),
    Column("GiB each", "GiB", "total"),
    Column("of", "GiB", "memory"),
    Column("context", "count", "max_context"),
    Column("", key="whole_context"),
    Column("decode ≤", "rate", "decode_ceiling"),
)
_MAX_TOO_SMALL = 12
"""Names of GPUs that are too small."""


def _cells(x: RankedGPU) -> tuple[Any, ...]:
    return (
        *(gpus_option(x.count, x.device), x.device.name, x.count),
        *(split_text(x.layout) if x.count > 1 else "", x.total, x.device.memory),
        *(x.max_context, Cell(x.whole_context, text="=" if x.whole_context else "")),
        x.decode_ceiling,
    )


def rank_gpus(
    calculator: MemoryCalculator,
    context: int | None = None,
    limit: int | None = None,
    among: Sequence[Device] | None = None,
) -> GPURanking:
    """Return each device in the smallest of 1, 2, 4 or 8 that fits the model with `context` tokens.

    The default context is that of the calculator; contexts up to `limit`, the model's own, are
    tried.
    """
    context = context or calculator.context
    limit, among = (
        limit or max(int(calculator.tree.context or 0), context),
        devices() if among is None else among,
    )
    chooser = LayoutChooser(calculator)
    by_device = {x.name: tuple(_numbers(x, chooser, context, limit)) for x in among}
    ranked = sorted(
        (x[0] for x in by_device.values() if x),
        key=lambda x: (x.nominal, x.count, -x.decode_ceiling),
    )
    return GPURanking(
        model=calculator.model,
        dtype="" if calculator.stored else calculator.packer.name,
        kv_dtype=calculator.kv_dtype,
        context=context,
        limit=limit,
        batch=calculator.request.batch,
        gpus=tuple(ranked),
        with_headroom=tuple(x[-1] for x in by_device.values() if x and x[-1].has_headroom),
        too_small=tuple(x.name for x in among if not by_device[x.name]),
        notes=(
            *dequantizing_notes(calculator.packer, (x.device for x in ranked)),
            *calculator.notes,
        ),
        checkpoint_notes=calculator.checkpoint_notes,
    )


def smallest_gpus(calculator: MemoryCalculator, among: Sequence[Device]) -> RankedGPU | None:
    """Return the smallest hardware with headroom in the order of `by_size`, else the smallest that
    fits; None if not even 8 in a node do.

    It is the `smallest` of what `rank_gpus` returns, found without ranking the others.
    """
    chooser, context = LayoutChooser(calculator), calculator.context
    limit, weights = (
        max(int(calculator.tree.context or 0), context),
        sum(x.bytes for x in calculator.weights),
    )
    ranked = (
        [
            (x, x.has_headroom)
            for device in group
            if device.memory * count >= weights
            and (x := _rank(device, count, chooser, context, limit)) is not None
        ]
        for count, groups in by_size(among, NODE_COUNTS)
        for group in groups
    )
    return recommended(ranked, lambda x: x.decode_ceiling)


def _numbers(
    device: Device, chooser: LayoutChooser, context: int, limit: int
) -> Iterator[RankedGPU]:
    """Yield the numbers of a device that fit, up to the first one with headroom."""
    for count in NODE_COUNTS:
        if count <= device.node:
            found = _rank(device, count, chooser, context, limit)
            if found is not None:
                yield found
                if found.has_headroom:
                    return


def _rank(
    device: Device, count: int, chooser: LayoutChooser, context: int, limit: int
) -> RankedGPU | None:
    """Return a number of GPUs if the model fits them."""
    batch, packer = chooser.calculator.request.batch, chooser.calculator.packer
    found = chooser.first_fitting(
        count,
        device.node,
        lambda x, _: left_of(device.memory, x.max_memory(context, batch)) >= 0,
    )
    if found is None:
        return None
    shards = chooser.shards(found.layout)
    longest = (
        limit
        if _fits(shards, device, batch)(limit)
        else largest_fitting(_fits(shards, device, batch)) or limit
    )
    return RankedGPU(
        device=device,
        count=count,
        layout=shards.layout,
        total=shards.max_memory(context, batch),
        max_context=longest,
        whole_context=longest >= limit,
        decode_ceiling=decode_limit(
            shards, find_roof(device, packer.name, packer.compute_dtype), context, batch
        ).tokens_per_second,
    )


def _fits(shards: ShardedModel, device: Device, batch: int) -> Callable[[int], bool]:
    return lambda n: left_of(device.memory, shards.max_memory(n, batch)) >= 0
