"""The ways to split a model over equal GPUs for inference: tensor parallelism × pipeline stages
× replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import gcd
from typing import NamedTuple

from ....core.blocks import Decoder
from ....core.tree import fold
from ....questions.layout import Layout
from ....utils.errors import LlamathError
from ....utils.number_format import format_list
from ...storage.parallel_layout import UNIT_NAMES, layout_problems, pipeline_stages
from ..memory.gpu_shards import ShardedModel
from ..memory.inference_memory import MemoryCalculator

MAX_TP, MAX_PP = 256, 1024
"""The largest tensor and pipeline parallelism that is tried."""


class ServingLayout(NamedTuple):
    """The split of one copy of the model, and the number of copies."""

    layout: Layout
    replicas: int

    def sequences(self, batch: int) -> int:
        """Return the sequences of the replica that has the most."""
        return -(-batch // self.replicas)


def serving_layouts(tree: Decoder, count: int, node: int) -> list[ServingLayout]:
    """Return every split that uses all GPUs: those with the fewest replicas first, and of these
    the widest tensor parallelism first.
    """
    sizes = [n for n in range(1, min(count, MAX_TP * _max_pp(tree)) + 1) if count % n == 0]
    degrees = [n for n in reversed(tp_degrees(tree)) if n <= node]
    return [
        ServingLayout(layout, count // n)
        for n in reversed(sizes)
        for tp in degrees
        if n % tp == 0
        and n // tp <= _max_pp(tree)
        and not layout_problems(tree, layout := Layout(tp=tp, pp=n // tp))
    ]


class LayoutChooser:
    """Chooses among the splits of one model, each of which is sized once."""

    def __init__(self, calculator: MemoryCalculator, offload: int = 0) -> None:
        self.calculator, self.offload = calculator, offload
        self._layouts: dict[tuple[int, int], list[ServingLayout]] = {}
        self._shards: dict[Layout, ShardedModel] = {}

    def shards(self, layout: Layout) -> ShardedModel:
        """Return the model in this layout."""
        if layout not in self._shards:
            self._shards[layout] = ShardedModel(self.calculator, layout, offload=self.offload)
        return self._shards[layout]

    def layouts(self, count: int, node: int) -> list[ServingLayout]:
        """Return the splits over `count` GPUs in nodes of `node`."""
        key = count, min(count, node)
        if key not in self._layouts:
            self._layouts[key] = serving_layouts(self.calculator.tree, *key)
        return self._layouts[key]

    def first_fitting(
        self, count: int, node: int, fits: Callable[[ShardedModel, ServingLayout], bool]
    ) -> ServingLayout | None:
        """Return the first split that fits."""
        return next((x for x in self.layouts(count, node) if fits(self.shards(x.layout), x)), None)


def choose_layout(
    tree: Decoder, count: int, node: int, tp: int | None = None, pp: int | None = None
) -> Layout:
    """Return the requested layout, or the widest tensor parallelism in a node that divides the
    model, and a pipeline of the rest.
    """
    if tp is not None or pp is not None:
        return _requested_layout(tree, count, tp, pp)
    if found := [x.layout for x in serving_layouts(tree, count, node) if x.replicas == 1]:
        return found[0]
    raise LlamathError(
        f"one copy of the model cannot be split over {count:,} GPUs: {_allowed_tp(tree)}; a "
        f"pipeline has at most {_max_pp(tree):,} stages",
        hint="more GPUs serve additional replicas: size a single replica",
    )


def _requested_layout(tree: Decoder, count: int, tp: int | None, pp: int | None) -> Layout:
    ranks = tp if tp is not None else max(count // (pp or 1), 1)
    depth = pp if pp is not None else max(count // ranks, 1) if ranks > 0 else 1
    if ranks < 1 or depth < 1 or ranks * depth != count:
        raise LlamathError(
            f"TP {ranks} × PP {depth} is {ranks * depth:,} GPUs, not {count:,}",
            hint="their product is the number of GPUs",
        )
    layout = Layout(tp=ranks, pp=depth)
    if depth > _max_pp(tree):
        raise LlamathError(
            f"PP {depth:,}: the model has {int(tree.layers.n):,} layers",
            hint=f"at most {_max_pp(tree):,} stages",
        )
    if problems := layout_problems(tree, layout):
        pipeline = Layout(pp=count)
        even = (
            ""
            if layout_problems(tree, pipeline)
            else (f"; pp={count} is a pipeline of {_layers_per_stage(tree, pipeline)} layers")
        )
        raise LlamathError(
            f"the model cannot be split like this: {'; '.join(problems)}",
            hint=f"{_allowed_tp(tree)}{even}",
        )
    return layout


def tp_degrees(tree: Decoder) -> list[int]:
    """Return every degree of tensor parallelism that divides the model, up to `MAX_TP`."""
    common = gcd(*(x.split.parts for x in fold(tree) if x.split and not x.split.on_indivisible))
    return [
        n
        for n in range(1, MAX_TP + 1)
        if common % n == 0 and not layout_problems(tree, Layout(tp=n))
    ]


def _max_pp(tree: Decoder) -> int:
    """Return the most stages of a pipeline: one for each layer."""
    return min(int(tree.layers.n), MAX_PP)


def _allowed_tp(tree: Decoder) -> str:
    """Return the tensor parallelism that divides the heads, and the whole model, as text."""
    degrees = tp_degrees(tree)
    heads = {x.split.parts for x in fold(tree) if x.split and x.split.unit == "heads"}
    text = f"TP can be {format_list(degrees)}"
    if len(heads) == 1:
        (n,) = heads
        divisors = [i for i in range(1, min(n, MAX_TP) + 1) if n % i == 0]
        others = [
            x.split
            for x in fold(tree)
            if x.split and x.split.parts != n and not x.split.on_indivisible
        ]
        rest = sorted(
            {
                f"{x.parts:,} {UNIT_NAMES.get(x.unit, f'of {x.unit}')}"
                for x in others
                if any(x.parts % i for i in divisors)
            }
        )
        if set(divisors) - set(degrees):
            text += f" ({n} heads alone: {format_list(divisors)}; but {', '.join(rest)})"
    return text


def _layers_per_stage(tree: Decoder, layout: Layout) -> str:
    """Return the layers of each stage as text."""
    return " + ".join(str(x.layers) for x in pipeline_stages(tree, layout))


def layout_notes(
    shards: ShardedModel, replicas: int, context: int, cache_of_one_copy: int
) -> Iterator[str]:
    """Yield why a pipeline is used, whether ranks hold copies of the KV cache, and the number of
    replicas.
    """
    tree, layout = shards.tree, shards.layout
    if layout.pp > 1:
        pure_tp = Layout(tp=layout.tp * layout.pp)
        problems = [x for x in layout_problems(tree, pure_tp) if "heads" in x] or layout_problems(
            tree, pure_tp
        )
        why = (
            f"TP {pure_tp.tp} does not divide the model ({problems[0].partition(': ')[2]}): "
            if problems
            else ""
        )
        yield f"{why}a pipeline of {_layers_per_stage(tree, layout)} layers" + (
            f"; {_allowed_tp(tree)}" if problems else ""
        )
    all_ranks = layout.tp * sum(shards.kv_cache(i, context, 1) for i in range(len(shards.stages)))
    if cache_of_one_copy and all_ranks > 1.01 * cache_of_one_copy:
        yield (
            f"TP {layout.tp} keeps {all_ranks / cache_of_one_copy:.3g} copies of the KV cache, "
            "which cannot be split over as many ranks"
        )
    if replicas > 1:
        gpus = layout.tp * layout.pp
        yield (
            f"{replicas:,} replicas of the model, each on {gpus:,} of the GPUs: memory and "
            "speed limits are those of one replica"
        )
