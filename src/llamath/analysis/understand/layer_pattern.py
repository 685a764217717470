"""The kinds of layers of a model and their arrangement: `3 dense + 58 MoE`, `5 local : 1
global`, `3 DeltaNet : 1 attention`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from ...core.blocks import MLP, AttentionBase, MoE
from ...core.expr import as_number
from ...core.mixers import RecurrentMixer
from ...core.multimodal import CrossAttention
from ...core.tree import Block, Stack, fold_blocks
from ...utils.record_type import Record

_MAX_EXPANDED = 10_000
"""Of more layers, only the numbers of each kind are stated."""
_MAX_RUNS = 3
"""More runs of equal layers than this are not listed."""
_MAX_PERIOD = 24
WITHOUT_FFN = "without FFN"

Arrangement = Literal["alike", "runs", "cycle", "mixed"]


class LayerRun(Record):
    """Consecutive layers of one kind."""

    kind: str
    layers: int


class LayerPattern(Record):
    """How the kinds of layers are arranged: all `alike`, in `runs`, in a repeated `cycle`, or
    `mixed`, with their numbers.
    """

    arrangement: Arrangement
    # of a cycle, those of one period; of a mixed pattern, the number of each kind
    runs: tuple[LayerRun, ...]

    @property
    def text(self) -> str:
        """The pattern in words; empty if all layers are alike."""
        if self.arrangement == "alike":
            return ""
        separator = {"runs": " + ", "cycle": " : ", "mixed": ", "}[self.arrangement]
        return separator.join(f"{x.layers:,} {x.kind}" for x in self.runs)


def mixers_of(layer: Block) -> list[Block]:
    """Return the blocks of a layer that mix tokens, without those inside others (indexers,
    compressors).
    """
    return [x for _, x in _outermost(layer, (AttentionBase, RecurrentMixer, CrossAttention))]


def ffns_of(layer: Block) -> list[Block]:
    """Return the FFNs of a layer, dense ones and mixtures of experts; experts are part of their
    mixture.
    """
    inside_mixers = tuple(
        f"{pattern}."
        for pattern, _ in _outermost(layer, (AttentionBase, RecurrentMixer, CrossAttention))
    )
    return [
        x for pattern, x in _outermost(layer, (MLP, MoE)) if not pattern.startswith(inside_mixers)
    ]


def _outermost(layer: Block, types: tuple[type[Block], ...]) -> Iterator[tuple[str, Block]]:
    inside: tuple[str, ...] = ()
    for x in fold_blocks(layer):
        if isinstance(x.block, types) and not x.pattern.startswith(inside):
            inside = (*inside, f"{x.pattern}.")
            yield x.pattern, x.block


def mixer_name(mixer: Block) -> str:
    """Return the short name of a mixer's type: attention, MLA, DeltaNet, Mamba-2."""
    return mixer.short_name or type(mixer).__name__


def describe_layer(layer: Block) -> str:
    """Return the short names of what a layer is made of: `MLA + MoE`, `local attention + FFN`."""
    window = _window_name(layer)
    names = (
        f"{window} attention"
        if window != "global" and mixer_name(x) == "attention"
        else mixer_name(x)
        for x in mixers_of(layer)
    )
    return " + ".join(filter(None, (_joined(names), _ffn_name(layer, "FFN")))) or "empty"


def mixer_pattern(layers: Stack) -> LayerPattern:
    """Return the arrangement of the mixers; layers with neither or with an FFN alone are a kind
    of their own.
    """
    distinct = [x for x, _ in layers.distinct()]
    names = {id(x): _joined(map(mixer_name, mixers_of(x))) for x in distinct}
    if len(set(names.values())) == 1 and all(names.values()):
        names = {id(x): _window_name(x) for x in distinct}
        if len(set(names.values())) == 1:
            names = {id(x): _position_name(x) for x in distinct}
        if len(set(names.values())) == 1:
            names = {id(x): _joined(map(mixer_name, mixers_of(x))) for x in distinct}
    elif any(_window(x) is not None for x in distinct):
        names = {
            id(x): (_window_name(x) if names[id(x)] == "attention" else names[id(x)])
            for x in distinct
        }
    return _arrange(
        layers, {id(x): names[id(x)] or _ffn_name(x, "FFN") or "empty" for x in distinct}
    )


def ffn_pattern(layers: Stack) -> LayerPattern:
    """Return the arrangement of dense FFNs and mixtures of experts."""
    return _arrange(
        layers, {id(x): _ffn_name(x, "dense") or WITHOUT_FFN for x, _ in layers.distinct()}
    )


def _ffn_name(layer: Block, dense: str) -> str:
    return _joined("MoE" if isinstance(x, MoE) else dense for x in ffns_of(layer))


def _window(layer: Block) -> int | None:
    return next(
        (
            n
            for x in mixers_of(layer)
            if isinstance(x, AttentionBase) and (n := x.window.max_lookback) is not None
        ),
        None,
    )


def _window_name(layer: Block) -> str:
    windows = [x.window for x in mixers_of(layer) if isinstance(x, AttentionBase)]
    if not any(x.max_lookback is not None for x in windows):
        return "global"
    return "chunked" if any(x.chunk is not None for x in windows) else "local"


def _position_name(layer: Block) -> str:
    return (
        "RoPE"
        if any(isinstance(x, AttentionBase) and x.rope is not None for x in mixers_of(layer))
        else "NoPE"
    )


def _joined(names: Iterable[str]) -> str:
    """Join names; equal ones are counted."""
    found = list(names)
    counted = ((name, found.count(name)) for name in dict.fromkeys(found))
    return " and ".join(name if n == 1 else f"{n} × {name}" for name, n in counted)


def _arrange(layers: Stack, names: dict[int, str]) -> LayerPattern:
    if len(set(names.values())) < 2:
        kind = next(iter(names.values()), "empty")
        return LayerPattern(arrangement="alike", runs=(LayerRun(kind=kind, layers=len(layers)),))
    if len(layers) <= _MAX_EXPANDED:
        sequence = [names[id(x)] for x in layers]
        runs = _run_lengths(sequence)
        if len(runs) <= _MAX_RUNS:
            return LayerPattern(arrangement="runs", runs=_following(runs, layers))
        if (period := _period(sequence)) is not None:
            return LayerPattern(arrangement="cycle", runs=_count(sequence[:period]))
    counts = dict.fromkeys(names.values(), 0)
    for x, n in layers.distinct():
        counts[names[id(x)]] += as_number(n)
    return LayerPattern(
        arrangement="mixed", runs=tuple(LayerRun(kind=kind, layers=n) for kind, n in counts.items())
    )


def _run_lengths(sequence: Sequence[str]) -> tuple[LayerRun, ...]:
    runs: list[LayerRun] = []
    for kind in sequence:
        if runs and runs[-1].kind == kind:
            runs[-1] = LayerRun(kind=kind, layers=runs[-1].layers + 1)
        else:
            runs.append(LayerRun(kind=kind, layers=1))
    return tuple(runs)


def _following(runs: tuple[LayerRun, ...], layers: Stack) -> tuple[LayerRun, ...]:
    """Return runs of which the one with the repeated layers follows the number of all."""
    if (order := layers.arrangement) is None:
        return runs
    place, before = 0, runs[0].layers
    while before <= len(order.first):
        place += 1
        before += runs[place].layers
    others = sum(x.layers for i, x in enumerate(runs) if i != place)
    repeated = LayerRun(kind=runs[place].kind, layers=as_number(layers.n) - others)
    return (*runs[:place], repeated, *runs[place + 1 :])


def _count(sequence: Sequence[str]) -> tuple[LayerRun, ...]:
    return tuple(
        LayerRun(kind=kind, layers=sequence.count(kind)) for kind in dict.fromkeys(sequence)
    )


def _period(sequence: Sequence[str]) -> int | None:
    """Return the shortest period that occurs at least twice; the last may be cut off."""
    most = min(len(sequence) // 2, _MAX_PERIOD)
    return next(
        (
            p
            for p in range(2, most + 1)
            if all(x == y for x, y in zip(sequence, sequence[p:], strict=False))
        ),
        None,
    )
