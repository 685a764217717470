"""The search of `explain`: every combination of a few moves that gives a number exactly.

All arithmetic is on integers. Vocabulary sizes and ranks are not enumerated but solved for: the
residue must be divisible by the parameters per vocabulary entry, or per rank.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....core.tree import fold
from ....questions.layout import Layout
from ....utils.number_format import format_count
from ...storage.parallel_layout import layout_problems, pipeline_stages, weight_shards
from .adapter_sets import AdapterSet
from .explain_base import BaseModel
from .hypotheses import (
    MAX_MOVES,
    Hypothesis,
    HypothesisSpace,
    LayerShape,
    Moves,
    elements_per_vocab_row,
)
from .moves import UNPACKED, Move
from .priors import (
    CHANGED_FILES_BITS,
    FOREIGN_FROM_BITS,
    FOREIGN_VOCAB_BITS,
    MAX_RANK,
    MAX_VOCAB,
    PARTIAL_COUNT_BITS,
    RANK_BITS,
    adapted_size_bits,
    narrow_bits,
    rank_prior,
    vocab_prior,
)

_TP_BITS = {1: 1.5, 2: 1.0, 4: 1.0, 8: 1.0, 16: 2.0}
"""Tensor-parallel degrees (1: a pipeline) and the bits of each."""


def shards(space: HypothesisSpace, number: int) -> Iterator[Hypothesis]:
    """Yield the parameters of single ranks, for the layouts that could give the number."""
    base = space.base
    for tp, bits in _TP_BITS.items():
        for pp in (1,) if tp > 1 else (2, 4, 8):
            layout = Layout(tp=tp, pp=pp)
            if (
                3 + bits > space.bits
                or not _could_match(base, number, layout)
                or layout_problems(base.tree, layout)
            ):
                continue
            if (tp, pp) not in base.memo:
                base.memo[tp, pp] = list(_shard_sizes(base, layout))
            for index, layers, size in base.memo[tp, pp]:
                move = Move(
                    "shard",
                    _shard_name(tp, pp, index),
                    size - base.total,
                    _shard_formula(tp, pp, layers),
                    3 + bits + (pp > 1),
                )
                yield Hypothesis(base, space.base_shape, moves=(move,), bits=move.bits, value=size)


def _shard_sizes(base: BaseModel, layout: Layout) -> Iterator[tuple[int, int, int]]:
    """Yield the number, the layers and the parameters of the first stages and of the last one."""
    for stage in pipeline_stages(base.tree, layout):
        if layout.pp == 1 or stage.index in (0, 1, layout.pp - 1):
            yield (
                stage.index,
                stage.layers,
                sum(x.elements for x in weight_shards(base.tree, stage, layout)),
            )


def _could_match(base: BaseModel, number: int, layout: Layout) -> bool:
    """Return whether a rank, or a stage with the embedding or the head, could have this number
    of parameters.
    """
    if layout.pp == 1:
        return base.total <= layout.tp * number * 1.01 and layout.tp * number <= base.total * 1.2
    layers, largest = sum(x.size * x.times for x in base.kinds), max(x.size for x in base.kinds)
    table_sizes = (
        0,
        *(base.vocabulary * base.outside_layers[x] for x in ("embed_row", "head_row")),
    )
    return any(abs(number - layers // layout.pp - x) <= 2 * largest for x in table_sizes)


def _shard_name(tp: int, pp: int, stage: int) -> str:
    return (
        f"one of {tp} tensor-parallel ranks"
        if pp == 1
        else (f"stage {stage + 1} of a pipeline of {pp}")
    )


def _shard_formula(tp: int, pp: int, layers: int) -> str:
    return (
        f"matrices / {tp}, norms whole"
        if pp == 1
        else (f"{layers} layers, with embedding or head where the stage has them")
    )


_MIN_MOVE_BITS = 3.5
"""The bits of the most likely move and rank."""
_MIN_VOCAB_BITS = 7.0
"""The bits of the most likely vocabulary size other than the model's own."""
_MOST_COMMON_RANK = max(RANK_BITS)


def _with_adapters(
    space: HypothesisSpace, hypothesis: Hypothesis, residue: int, moves: Moves, max_moves: int
) -> Iterator[Hypothesis]:
    """Yield model plus adapters: solve for the rank, with at most one more move; or take a
    common rank and another vocabulary size.
    """
    before = hypothesis.bits + 3 + adapted_size_bits(space.base.total)
    before += _changed_files_bits(hypothesis)
    room = space.bits - before
    for x, per, whole in space.adapters:
        if x.bits > room:
            continue
        start, rest = before + x.bits, residue - whole
        if (
            not x.tower
            and 0 < rest <= MAX_RANK * per
            and rest % per == 0
            and (prior := rank_prior(rest // per, x.kind))
        ):
            yield hypothesis._replace(
                adapters=x,
                rank=rest // per,
                bits=start + prior.bits + narrow_bits(rest // per, x.is_narrow),
            )
        if max_moves < 1 or start + _MIN_MOVE_BITS > space.bits:
            continue
        is_plain = not (x.whole_row or x.per_rank_row)
        is_near = moves.least < rest <= moves.most + MAX_RANK * per
        for move in moves.every if is_near else ():
            r = rest - move.value
            if r % per or r <= 0 or (x.tower and move.group != "vision"):
                continue  # or adapters on a tower that is not counted
            if (is_plain or move.tables < 0) and (prior := rank_prior(r // per, x.kind)):
                bits = (
                    start
                    + prior.bits
                    + move.bits
                    + PARTIAL_COUNT_BITS * (move.value < 0 and move.group in ("tables", "norms"))
                )
                yield hypothesis._replace(moves=(move,), adapters=x, rank=r // per, bits=bits)
        if start + _MIN_VOCAB_BITS < space.bits and x.kind == "LoRA" and not x.tower:
            yield from _with_vocab(space, hypothesis, x, start, rest, space.base.vocab_row)


def _changed_files_bits(hypothesis: Hypothesis) -> float:
    """Return the bits of a change to a model whose scales are counted."""
    return CHANGED_FILES_BITS if hypothesis.packing.scales else 0.0


def _with_vocab(
    space: HypothesisSpace,
    hypothesis: Hypothesis,
    x: AdapterSet,
    start: float,
    rest: int,
    row: int,
) -> Iterator[Hypothesis]:
    """Yield common ranks with the vocabulary size that each implies, of adapters that make it
    `start` bits long; `row` is the model's own parameters per vocabulary entry.
    """
    V = space.base.vocabulary
    per = x.per_rank + x.per_rank_row * V
    per_entry = row + _MOST_COMMON_RANK * x.per_rank_row + x.whole_row
    if not -V * per_entry < rest < MAX_VOCAB * per_entry + _MOST_COMMON_RANK * per:
        return
    for r, bits in RANK_BITS.items():
        each = row + r * x.per_rank_row + x.whole_row
        if start + bits + _MIN_VOCAB_BITS > space.bits or not each:
            continue
        difference = rest - r * per
        if difference % each == 0 and (
            prior := vocab_prior(V + difference // each, V, space.known_vocab_sizes)
        ):
            more = bits + 3 + prior.bits + FOREIGN_VOCAB_BITS * (prior.bits >= FOREIGN_FROM_BITS)
            yield hypothesis._replace(
                adapters=x, rank=r, vocabulary=V + difference // each, bits=start + more
            )


def _adapters_alone(space: HypothesisSpace, number: int) -> Iterator[Hypothesis]:
    """Yield the adapters alone, as a count of trainable parameters."""
    if number > MAX_RANK * space.base.total:
        return
    hypothesis = Hypothesis(space.base, space.base_shape, alone=True, value=number)
    for x, per, whole in space.adapters:
        r, rest = divmod(number - whole, per)
        bits = 4 + x.bits + adapted_size_bits(space.base.total)
        if rest == 0 and (prior := rank_prior(r, x.kind)):
            narrow = narrow_bits(r, x.is_narrow)
            yield hypothesis._replace(adapters=x, rank=r, bits=bits + prior.bits + narrow)
        if x.kind == "LoRA" and bits + _MIN_VOCAB_BITS < space.bits:
            yield from _with_vocab(space, hypothesis, x, bits, number - whole, 0)


def hypotheses_for(space: HypothesisSpace, number: int) -> Iterator[Hypothesis]:
    """Yield every hypothesis that gives exactly this number."""
    (near_least, near_most), (least, most) = space.reach
    adapted_bits = space.bits - adapted_size_bits(space.base.total)
    for shape, packing, value, bits in space.stored_counts(number - most, number - least):
        num_moves, residue = len(shape.moves) + (packing is not UNPACKED), number - value
        is_near = near_least <= residue <= near_most
        has_room = num_moves < MAX_MOVES and bits + _MIN_VOCAB_BITS <= space.bits
        has_adapters = not shape.moves and num_moves < MAX_MOVES and bits + 3 <= adapted_bits
        if not (is_near or has_room or has_adapters):
            continue
        hypothesis = Hypothesis(space.base, shape, packing, bits=bits, value=number)
        moves = space.compatible_moves(shape, packing)
        if is_near:
            yield from _with_moves(hypothesis, residue, moves, MAX_MOVES - num_moves)
        if has_room:
            yield from _with_other_vocab(
                space, hypothesis, residue, moves, MAX_MOVES - num_moves - 1
            )
        if has_adapters:
            yield from _with_adapters(space, hypothesis, residue, moves, MAX_MOVES - num_moves - 1)
    yield from _with_other_depth(space, number)
    yield from _adapters_alone(space, number)
    yield from (x for x in shards(space, number) if x.value == number)


def _with_moves(
    hypothesis: Hypothesis, residue: int, moves: Moves, max_moves: int
) -> Iterator[Hypothesis]:
    """Yield combinations of moves without free parameters."""
    if residue == 0:
        yield hypothesis
    if max_moves < 1:
        return
    if not 2 * moves.least <= residue <= 2 * moves.most:
        return
    for move in moves.by_value.get(residue, ()):
        yield _add_moves(hypothesis, move)
    for first in moves.every if max_moves > 1 else ():
        for second in moves.by_value.get(residue - first.value, ()):
            if first.group < second.group:
                yield _add_moves(hypothesis, first, second)


def _add_moves(hypothesis: Hypothesis, *moves: Move) -> Hypothesis:
    return hypothesis._replace(moves=moves, bits=hypothesis.bits + sum(x.bits for x in moves))


def _with_other_vocab(
    space: HypothesisSpace,
    hypothesis: Hypothesis,
    residue: int,
    candidates: Moves,
    max_moves: int,
) -> Iterator[Hypothesis]:
    """Yield another vocabulary size with at most one more move."""
    base = space.base
    for move, row in candidates.rows if max_moves > 0 else candidates.rows[:1]:
        change, rest = divmod(residue - (move.value if move else 0), row)
        if rest:
            continue
        prior = vocab_prior(base.vocabulary + change, base.vocabulary, space.known_vocab_sizes)
        if prior is not None:
            moves = (_move_at_vocab(base, move, base.vocabulary + change),) if move else ()
            bits = (
                hypothesis.bits
                + 3
                + prior.bits
                + (move.bits if move else 0)
                + _changed_files_bits(hypothesis)
            )
            yield hypothesis._replace(moves=moves, vocabulary=base.vocabulary + change, bits=bits)


_MIN_DEPTH_BITS, _DEPTH_BITS = 4.0, 8.0
"""The bits of half or twice as many layers, and of any other number of them."""
_BIASES_BITS = 3.5
"""The bits of norms with biases, as LayerNorm has them."""
_PLAIN_VOCAB_BITS = 8.0
"""The most bits of a vocabulary with another number of layers: with two free numbers most counts
of a model of these widths fit, so the vocabulary must be one that models have.
"""


def _with_other_depth(space: HypothesisSpace, number: int) -> Iterator[Hypothesis]:
    """Yield another number of layers, with the vocabulary size that it implies: a config of the
    same widths. Only for models whose layers have one size; a layer or two more or less are among
    the shapes.
    """
    base = space.base
    if space.bits < _MIN_DEPTH_BITS or len({x.sums for x in base.kinds}) != 1:
        return
    kind, depth = base.kinds[0], sum(x.times for x in base.kinds)
    around = base.total - depth * kind.size - base.vocabulary * base.vocab_row
    norm = kind.elements("norm")
    has_biases = any(x.group == "norm" and x.weight.role == "bias" for x in fold(kind.block))
    for biases in (0, norm) if norm and not has_biases else (0,):
        size = kind.size + biases
        rest = number - around - (base.outside_layers["final_norm"] if biases else 0)
        least = (rest - MAX_VOCAB * base.vocab_row) // size
        for layers in range(max(1, least), min(rest // size, 2 * depth) + 1):
            if abs(layers - depth) > 2:
                yield from _of_depth(space, number, layers, rest - layers * size, bool(biases))


def _of_depth(
    space: HypothesisSpace, number: int, layers: int, tables: int, has_biases: bool
) -> Iterator[Hypothesis]:
    """Yield the model with this number of layers, if its vocabulary explains `tables`."""
    base, V = space.base, space.base.vocabulary
    kind, depth = base.kinds[0], sum(x.times for x in base.kinds)
    vocabulary, left = divmod(tables, base.vocab_row) if base.vocab_row else (V, tables)
    prior = vocab_prior(vocabulary, V, space.known_vocab_sizes)
    if left or (vocabulary != V and (prior is None or prior.bits > _PLAIN_VOCAB_BITS)):
        return
    bits = _MIN_DEPTH_BITS if layers in (depth // 2, 2 * depth) else _DEPTH_BITS
    change = (layers - depth) * kind.size
    what = f"{format_count(layers, 'layer')} instead of {depth}"
    deeper = Move("depth", what, change, f"{layers - depth:+d}·{kind.size:,}", bits)
    shape = LayerShape((deeper,), ((kind, layers),), base.total + change, bits)
    moves: tuple[Move, ...] = ()
    if has_biases:
        inside, final = layers * kind.elements("norm"), base.outside_layers["final_norm"]
        formula = f"{inside:,} in layers + {final:,}"
        moves = (Move("norms", "norms with biases", inside + final, formula, _BIASES_BITS),)
    bits += sum(x.bits for x in moves) + (3 + prior.bits if prior else 0)
    if bits <= space.bits:
        new = vocabulary if prior else None
        yield Hypothesis(base, shape, moves=moves, vocabulary=new, bits=bits, value=number)


def _move_at_vocab(base: BaseModel, move: Move, vocabulary: int) -> Move:
    """Recompute a move on the vocabulary tables for another vocabulary size."""
    if move.tables < 0 or not move.value:
        return move
    per_row = elements_per_vocab_row(base, move, UNPACKED) - base.vocab_row
    value = move.value + per_row * (vocabulary - base.vocabulary)
    return move._replace(
        value=value, formula=f"{'−' if value < 0 else ''}{vocabulary:,}·{abs(per_row):,}"
    )


def all_hypotheses(space: HypothesisSpace, max_moves: int) -> Iterator[Hypothesis]:
    """Yield every hypothesis without free parameters: a packing and up to `most` moves."""
    for shape, packing, value, bits in space.stored_counts():
        num_moves = len(shape.moves) + (packing is not UNPACKED)
        if num_moves > max_moves:
            continue
        hypothesis = Hypothesis(space.base, shape, packing, bits=bits, value=value)
        yield hypothesis
        room = space.bits - bits
        moves = [x for x in space.compatible_moves(shape, packing).every if x.bits <= room]
        for i, first in enumerate(moves if num_moves < max_moves else ()):
            yield _add_moves(hypothesis, first)._replace(value=value + first.value)
            for second in moves[i + 1 :] if num_moves + 1 < max_moves else ():
                if first.group != second.group:
                    yield _add_moves(hypothesis, first, second)._replace(
                        value=value + first.value + second.value
                    )
