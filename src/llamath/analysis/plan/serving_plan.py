"""`serving`: how to lay a model that serves over so many GPUs: TP × PP × replicas, by what fits and by the ceilings of decoding.

Each replica takes as many sequences of the context as its GPUs hold, or as many as answer within a latency; with a pipeline they go round
in as many groups as there are stages, so that none waits. Speeds are ceilings (`ceilings`), not predictions: nothing is spent on talking.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...core.errors import LlamathError
from ...core.record_type import Record
from ...hardware import Device
from ..inference.fit_report import tp_degrees
from ..inference.gpu_shards import ShardedModel
from ..inference.inference_memory import MemoryCalculator, largest_fitting
from ..inference.speed_limits import Bound, decode_limit, find_roof
from ..parallel_layout import Layout, layout_problems, pipeline_stages
from .layout_space import WIDEST, Rejected, divisors

if TYPE_CHECKING:
    from ...model import Model

FEW = 8
"""So many stages are told apart."""
MOST = 2**20
"""No replica takes more sequences at once."""


class ServePlan(Record):
    """One way to split a replica."""

    layout: Layout
    replicas: int
    batch: int  # sequences at once in each replica
    memory: int  # of the fullest GPU
    seconds: float  # between two tokens of a sequence, at the least
    rate: float  # tokens a second of one GPU, at the most
    bound: Bound


class ServeReport(Record):
    """The ranking."""

    device: Device
    gpus: int
    context: int
    latency: float | None
    dtype: str
    kv_dtype: str
    plans: tuple[ServePlan, ...]
    rejected: tuple[Rejected, ...]
    short: tuple[Rejected, ...]  # splits that hold not one sequence
    notes: tuple[str, ...]


def serving(model: Model, sizes: MemoryCalculator, on: tuple[int, Device], latency: float | None = None) -> ServeReport:
    """Rank the splits of a model that serves over so many devices."""
    gpus, device = on
    if latency is not None and not 0 < latency < 10**6:
        raise LlamathError("a latency is some time above zero", hint="--latency 50ms")
    rejected: list[Rejected] = []
    short: list[Rejected] = []
    found: list[ServePlan] = []
    for layout in _splits(model, gpus, device, rejected):
        one = _one(ShardedModel(sizes, layout), on, latency)
        if isinstance(one, ServePlan):
            found.append(one)
        else:
            short.append(one)
    return ServeReport(
        device=device,
        gpus=gpus,
        context=sizes.context,
        latency=latency,
        dtype="as stored" if sizes.storage is None else sizes.packer.name,
        kv_dtype=sizes.kv_dtype,
        plans=tuple(sorted(found, key=lambda x: (-x.rate, x.seconds))),
        rejected=tuple(rejected),
        short=tuple(short),
        notes=tuple(_notes(model, found, rejected)),
    )


def _notes(model: Model, found: list[ServePlan], rejected: list[Rejected]) -> Iterator[str]:
    """How pipelines cut the layers, and which tensor parallelism goes, where one does not."""
    best = max(found, key=lambda x: x.rate, default=None)
    if best is not None and 1 < best.layout.pp <= FEW:
        yield f"PP {best.layout.pp}: {' + '.join(str(x.layers) for x in pipeline_stages(model.tree, best.layout))} layers"
    if any(x.what.startswith("TP") and "node" not in x.why for x in rejected):
        yield f"TP can be {', '.join(map(str, tp_degrees(model.tree)))}"


def _splits(model: Model, gpus: int, device: Device, rejected: list[Rejected]) -> Iterator[Layout]:
    """TP × PP that the model admits and that divide the number of GPUs."""
    tensor, pipeline = [], []
    for n in divisors(gpus):
        if n > min(device.node, WIDEST):
            rejected.append(
                Rejected(what=f"TP {n:,}", why=f"a node has {device.node:,} GPUs" if n > device.node else f"more than {WIDEST}")
            )
        elif why := layout_problems(model.tree, Layout(tp=n)):
            rejected.append(Rejected(what=f"TP {n:,}", why=", ".join(x.partition(": ")[2] for x in why)))
        else:
            tensor.append(n)
    layers = int(model.tree.layers.n)
    for n in divisors(gpus):
        if n > layers:
            rejected.append(Rejected(what=f"PP {n:,}", why=f"{layers:,} layers"))
        else:
            pipeline.append(n)
    yield from (Layout(tp=tp, pp=pp) for tp in tensor for pp in pipeline if gpus % (tp * pp) == 0)


def _one(shards: ShardedModel, on: tuple[int, Device], latency: float | None) -> ServePlan | Rejected:
    """The most sequences that a split holds in time, or why not one."""
    (gpus, device), layout, context = on, shards.layout, shards.calculator.context
    over = find_roof(device, shards.calculator.packer.name, shards.calculator.packer.compute_dtype)
    name = f"TP {layout.tp} × PP {layout.pp}"

    def fits(n: int) -> bool:
        return n <= MOST and shards.max_memory(context, n * layout.pp) <= device.memory

    def soon(n: int) -> bool:
        return latency is None or decode_limit(shards, over, context, n).seconds <= latency

    if not fits(1):
        return Rejected(
            what=name, why=f"{shards.max_memory(context, layout.pp) / 2**30:,.1f} GiB a GPU for {layout.pp} of {context:,} tokens"
        )
    if not soon(1):
        return Rejected(what=name, why=f"{decode_limit(shards, over, context, 1).seconds * 1000:.3g} ms a token at the least")
    each = largest_fitting(lambda n: fits(n) and soon(n), MOST) or MOST
    speed = decode_limit(shards, over, context, each)
    return ServePlan(
        layout=layout,
        replicas=gpus // (layout.tp * layout.pp),
        batch=each * layout.pp,
        memory=shards.max_memory(context, each * layout.pp),
        seconds=speed.seconds,
        rate=each * layout.pp / speed.seconds / (layout.tp * layout.pp),
        bound=speed.bound,
    )
