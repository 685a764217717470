"""The changes that can explain a count, each with its exact value, its formula and its bits (the
less likely, the more).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ....core.tree import fold
from ....utils.record_type import Record
from .explain_base import LINEAR_KINDS, BaseModel, LayerKind, layer_formula
from .priors import quantized_size_bits
from .vision_towers import VISION_TOWERS


class Term(Record):
    """One term of an explanation; the values of all terms sum to the number."""

    what: str
    value: int
    formula: str


class Move(NamedTuple):
    """A change of the count. At most one move of each group is applied."""

    group: str
    what: str
    value: int
    formula: str
    bits: float
    tables: int = -1  # which vocabulary tables are counted afterwards; -1: unchanged


class Packing(NamedTuple):
    """A packing of weights into stored elements."""

    what: str
    kinds: tuple[str, ...]  # the kinds of matrices that are packed
    divisor: int  # values per stored element; 1: unpacked
    bits: float
    head: bool = False
    scales: str = ""  # the layout of the scales that are stored as well


UNPACKED = Packing("", (), 1, 0)
PACKED_WORDS = {
    2: "4-bit, two to a byte",
    4: "4-bit, four to a 16-bit number",
    8: "4-bit, eight to a 32-bit number",
}
PACKED_WORDS_8BIT = {2: "; or 8-bit, two to 16 bits", 4: "; or 8-bit, four to 32 bits", 8: ""}


def table_moves(base: BaseModel) -> Iterator[Move]:
    """Yield the choices of which vocabulary tables are counted."""
    V, out = base.vocabulary, base.outside_layers
    embed, head = V * out["embed_row"], V * out["head_row"]
    symbol = "V·d"
    positions = out["positions"]
    more = " − positions" if positions else ""
    if positions:
        yield Move("tables", "without learned positions", -positions, f"−{positions:,}", 2.5)
    if base.tied:
        again = head - V * base.head_bias
        yield Move(
            "tables",
            "the tied head counted as well (or not tied)",
            again,
            f"{symbol} = {V:,}·{again // V:,}",
            2,
            2,
        )
        yield Move("tables", "without embeddings", -embed - positions, f"−{symbol}{more}", 2.5, 0)
    elif head:
        same = " (or tied to the embedding)" if head == embed else ""
        yield Move(
            "tables",
            f"without the head{same}",
            -head,
            f"−{symbol} = −{V:,}·{out['head_row']:,}",
            2,
            1,
        )
        if positions or head != embed:
            yield Move(
                "tables", "without embeddings", -embed - positions, f"−{symbol}{more}", 2.5, 3
            )
        yield Move(
            "tables",
            "without embeddings and head",
            -embed - head - positions,
            f"−2·{symbol}{more}",
            3,
            0,
        )
    elif embed:
        yield Move("tables", "without embeddings", -embed - positions, f"−{symbol}{more}", 2.5, 0)


def norm_moves(base: BaseModel, kinds: tuple[tuple[LayerKind, int], ...]) -> Iterator[Move]:
    """Yield the choices of which norms are counted."""
    out = base.outside_layers
    inside = sum(kind.elements("norm") * n for kind, n in kinds)
    if every := inside + out["norm"] + out["final_norm"]:
        yield Move(
            "norms", "without norms", -every, f"−({inside:,} in layers + {every - inside:,})", 2.5
        )
    is_whole = [n for _, n in kinds] == [x.times for x in base.kinds]
    for what, size in base.biases.items() if is_whole else ():
        if size:
            yield Move("norms", f"without {what}", -size, f"−{size:,}", 3)
    if final := out["final_norm"]:
        yield Move("norms", "without the final norm", -final, f"−{final:,}", 2.5)


def extra_moves(base: BaseModel) -> Iterator[Move]:
    """Yield buffers and layers that some programs count and others do not."""
    if each := sum(x.rotary * x.times for x in base.kinds):
        once = sum({x.rotary for x in base.kinds})
        layers = sum(x.times for x in base.kinds if x.rotary)
        yield Move(
            "rotary", "with a rotary buffer in each layer", each, f"Σ h/2 over {layers} layers", 3
        )
        yield Move("rotary", "with the rotary buffer", once, "h/2", 3.5)
        yield Move("rotary", "with the rotary buffer and its original", 2 * once, "2·h/2", 3.5)
    if buffers := base.buffers:
        what = (
            " (the router's bias)"
            if any(x.group == "router" and x.weight.buffer for x in fold(base.tree))
            else ""
        )
        yield Move("buffers", f"without buffers{what}", -buffers, f"−{buffers:,}", 2.5)
    if base.towers:
        what = "the text model alone, without towers and projectors"
        yield Move("vision", what, -base.towers, f"−{base.towers:,}", 2.5)
    for tower in VISION_TOWERS if not base.towers else ():
        if base.family in tower.families:
            size = tower.parameters(base.width)
            square = f" + {tower.per_square}·d²" if tower.per_square else ""
            formula = f"{tower.fixed:,} + {tower.per_width:,}·d{square}"
            yield Move("vision", f"with {tower.name} and its projector", size, formula, 3)
    if base.active != base.total:
        routed = any(x.num_experts for x in fold(base.tree))
        words = (
            "k of E experts in each layer"
            if routed
            else ("of tables beside the token embedding, the rows that a token reads")
        )
        yield Move("active", "the active parameters alone", base.active - base.total, words, 2.5)
    if mtp := base.mtp:
        own, again = mtp["own"], mtp["again"]
        yield Move(
            "mtp",
            "with the multi-token-prediction layer (MTP)",
            own,
            "its layer, two norms, join [d, 2·d], and a norm",
            2.5,
        )
        yield Move(
            "mtp", "with MTP, embedding and head stored again", own + again, f"{own:,} + 2·V·d", 2.5
        )


def packings(base: BaseModel) -> Iterator[Packing]:
    """Yield the possible packings of the matrices."""
    yield UNPACKED
    choices: list[tuple[str, tuple[str, ...], float]] = [("the linear layers", LINEAR_KINDS, 0)]
    if base.elements("router"):
        choices.append(("the linear layers and routers", (*LINEAR_KINDS, "router"), 1.5))
    if base.elements("experts"):
        choices.append(("the experts", ("experts",), 1))
    else:
        choices.append(("the MLP", ("mlp",), 2.5))
    for what, kinds, bits in choices:
        for divisor in (2, 4, 8):
            yield Packing(what, kinds, divisor, 3 + bits + (divisor == 8))
            if kinds == LINEAR_KINDS and not base.tied and base.outside_layers["head_row"]:
                yield Packing(
                    "the linear layers and the head",
                    kinds,
                    divisor,
                    5.5 + (divisor == 8),
                    head=True,
                )
    small = quantized_size_bits(base.total)
    for scales, bits in (("AWQ", 4.0), ("GPTQ", 4.5)):
        for group, more in ((128, 0), (32, 2.5), (64, 2.5)):
            yield Packing(
                "the linear layers",
                LINEAR_KINDS,
                8,
                bits + more + small,
                scales=f"{scales}, groups of {group}",
            )
    for scales, bits in (("blocks of 128×128", 3.0), ("rows", 4.0), ("matrices", 4.5)):
        yield Packing("", LINEAR_KINDS, 1, bits + small, scales=scales)
    what, kinds = (
        ("the experts", ("experts",))
        if base.elements("experts")
        else ("the linear layers", LINEAR_KINDS)
    )
    more = small + (0 if kinds == ("experts",) else 1.5)
    for scales, bits in (("MXFP4", 3.0 + more), ("NVFP4", 3.5 + more)):
        yield Packing(what, kinds, 1, bits, scales=scales)
        yield Packing(what, kinds, 2, bits, scales=scales)
        if kinds != LINEAR_KINDS:
            yield Packing("the linear layers", LINEAR_KINDS, 1, bits + 1, scales=scales)
            yield Packing("the linear layers", LINEAR_KINDS, 2, bits + 1, scales=scales)


def depth_moves(base: BaseModel) -> Iterator[tuple[Move | None, tuple[tuple[LayerKind, int], ...]]]:
    """Yield the model's depth, and a few layers more or less of one kind; only for models with
    at most three kinds of layers.
    """
    plain = tuple((kind, kind.times) for kind in base.kinds)
    yield None, plain
    kind_by_sums = {kind.sums: i for i, kind in enumerate(base.kinds)}
    for i in kind_by_sums.values() if len(kind_by_sums) <= 3 else ():
        kind = base.kinds[i]
        for change in (-1, 1, -2, 2):
            if kind.times + change < 1:
                continue
            bits = 3 + abs(change) / 2 + (len(kind_by_sums) - 1) / 2
            word = (
                f"{abs(change)} layer{'s' if abs(change) > 1 else ''} "
                f"{'more' if change > 0 else 'less'}"
            )
            changed = tuple((x, n + change * (j == i)) for j, (x, n) in enumerate(plain))
            yield (
                Move("depth", word, change * kind.size, f"{change:+d}·{kind.size:,}", bits),
                changed,
            )


def head_moves(kinds: tuple[tuple[LayerKind, int], ...]) -> Iterator[Move]:
    """Yield KV heads expanded to all heads, or copied for tensor-parallel ranks."""
    grouped = [(kind, n) for kind, n in kinds if kind.heads > kind.kv_heads]
    if not grouped:
        return
    own = sum(
        (kind.elements("kv") + kind.elements("kv_bias")) * (kind.heads // kind.kv_heads - 1) * n
        for kind, n in grouped
    )
    shares = {(kind.heads, kind.kv_heads) for kind, _ in grouped}
    if len(shares) > 1:
        yield Move("heads", "as multi-head attention", own, "Σ (H/K − 1)·(k + v)", 3)
        return
    ((H, K),) = shares
    once = sum((kind.elements("kv") + kind.elements("kv_bias")) * n for kind, n in grouped)
    yield Move(
        "heads", "as multi-head attention", own, f"(H/K − 1)·(k + v) = ({H}/{K} − 1)·{once:,}", 3
    )
    for ranks in (2, 4, 8, 16, 32, 64):
        if K < ranks < H and ranks % K == 0:
            what = f"key/value heads copied for {ranks} tensor-parallel ranks"
            yield Move(
                "heads",
                what,
                (ranks // K - 1) * once,
                f"({ranks}/{K} − 1)·(k + v) = ({ranks}/{K} − 1)·{once:,}",
                4.5,
            )


def layer_symbols(kind: LayerKind) -> str:
    """Return the parameters of one layer in letters."""
    return layer_formula(kind.block).symbol
