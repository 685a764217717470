"""A base of `explain`: one model's numbers summed by what could happen to them, so that thousands of hypotheses are plain arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from ...checkpoint.naming.scheme import Scheme
from ...core.blocks import Attention, Decoder, LatentAttention
from ...core.expr import Dim, product, total
from ...core.record_type import Record
from ...core.tree import Block, Folded, Stack, fold
from ..training.lora_adapters import Matrix, matrices

LINEAR = ("attention", "kv", "mlp", "experts")
"""The matrices that packing and FP8 take: all linear maps of the layers but routers."""
SORTS = (*LINEAR, "router", "kv_bias", "norm", "buffer", "rest")
"""Every number in a layer is of one of these sorts."""


class Kind(NamedTuple):
    """One kind of layer: how many there are, its numbers by sort, and its heads if it shares keys and values among them."""

    block: Block
    times: int
    sums: tuple[int, ...]
    heads: int
    kv_heads: int
    rotary: int  # numbers in one buffer of rotary frequencies
    idle: int  # numbers of the experts that a token does not pass

    @property
    def size(self) -> int:
        """What one layer weighs."""
        return sum(self.sums)

    def sort(self, name: str) -> int:
        """The numbers of one sort in one layer."""
        return self.sums[SORTS.index(name)]


class Base(Record):
    """A model to start from."""

    name: str
    tree: Decoder
    scheme: Scheme | None
    like: bool = False  # named by the user, and not one of many
    also: tuple[str, ...] = ()  # other names of the same shape

    @cached_property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of layers."""
        return tuple(_kind(block, int(n)) for block, n in self.tree.layers.distinct())

    @cached_property
    def outside(self) -> dict[str, int]:
        """What is not in a layer: numbers to a row of the vocabulary in the embedding and in the head, and the rest."""
        found = dict.fromkeys(("embed_row", "head_row", "positions", "final_norm", "norm", "rest"), 0)
        for x in _outside(self.tree):
            size = int(x.weight.size) * int(x.copies)
            if str(x.weight.shape[0].symbol) == "V":
                found["head_row" if x.pattern.startswith("head.") else "embed_row"] += size // int(self.tree.vocab)
            elif not x.weight.tied:
                found[_place(x)] += size
        return found

    @cached_property
    def vocabulary(self) -> int:
        """V."""
        return int(self.tree.vocab)

    @cached_property
    def tied(self) -> bool:
        """Whether the head is the embedding."""
        return self.tree.head is not None and bool(self.tree.head.weight.tied)

    @cached_property
    def row(self) -> int:
        """What one row of the vocabulary weighs in the total, head and embedding together."""
        return self.outside["embed_row"] + (self.head_bias if self.tied else self.outside["head_row"])

    @cached_property
    def head_bias(self) -> int:
        """1 where the head has a bias, which a tied head has for itself."""
        return int(self.tree.head is not None and self.tree.head.bias is not None)

    @cached_property
    def total(self) -> int:
        """The model's parameters."""
        out = self.outside
        around = out["positions"] + out["final_norm"] + out["norm"] + out["rest"]
        return self.row * self.vocabulary + around + sum(x.size * x.times for x in self.kinds)

    @cached_property
    def active(self) -> int:
        """What one token passes."""
        return self.total - sum(x.idle * x.times for x in self.kinds)

    @cached_property
    def matrices(self) -> tuple[Matrix, ...]:
        """The linear maps and tables as files hold them."""
        return matrices(self.tree, self.scheme)

    @cached_property
    def kinds_key(self) -> tuple[object, ...]:
        """All that the count depends on but the tables of the vocabulary."""
        around = tuple(self.outside[x] for x in ("final_norm", "norm", "rest", "positions"))
        return tuple((x.times, x.sums, x.heads, x.kv_heads) for x in self.kinds), around

    @cached_property
    def skeleton(self) -> tuple[object, ...]:
        """The same with what a row of them weighs."""
        return self.kinds_key, self.outside["embed_row"], self.outside["head_row"]

    def sort(self, *names: str) -> int:
        """The numbers of these sorts in all layers."""
        return sum(x.sort(name) * x.times for x in self.kinds for name in names)

    @cached_property
    def further(self) -> dict[str, int]:
        """Layers for further tokens: their own numbers, those that files store again, and the scales that FP8 would add."""
        if self.tree.mtp is None:
            return {}
        leaves = [(x, int(x.copies) * int(n)) for block, n in self.tree.mtp.distinct() for x in fold(block)]
        linear = [(x, n) for x, n in leaves if _sort(x) in LINEAR and not x.weight.tied and x.pattern.split(".")[0] in ("attn", "mlp")]
        return {
            "own": sum(int(x.weight.parameters) * n for x, n in leaves),
            "again": sum(int(x.weight.size) * n for x, n in leaves if x.weight.tied),
            "scales": sum(blocks(*map(int, x.weight.shape)) * n for x, n in linear),
        }


def blocks(rows: int, columns: int, size: int = 128) -> int:
    """How many squares of this size cover a matrix."""
    return -(-rows // size) * -(-columns // size)


def layer_formula(block: Block) -> Dim:
    """What one layer weighs, in letters."""
    return total(product((x.copies, x.weight.parameters)) for x in fold(block))


def _outside(tree: Decoder) -> Iterator[Folded]:
    return (x for x in fold(tree.replace(layers=Stack())))


def _place(x: Folded) -> str:
    if x.group == "embedding":
        return "positions"
    if x.group == "norm":
        return "final_norm" if x.pattern.startswith("norm.") else "norm"
    return "rest"


def _kind(block: Block, times: int) -> Kind:
    sums, idle = dict.fromkeys(SORTS, 0), 0
    for x in fold(block):
        size = int(x.weight.parameters)
        sums[_sort(x)] += size * int(x.copies)
        idle += size * (int(x.copies) - int(x.active))
    attn = getattr(block, "attn", None)
    heads, kv_heads = (int(attn.heads), int(attn.kv_heads)) if isinstance(attn, Attention) and attn.k is not None else (0, 0)
    rope = attn.rope if isinstance(attn, (Attention, LatentAttention)) else None
    return Kind(block, times, tuple(sums.values()), heads, kv_heads, int(rope.dim) // 2 if rope is not None else 0, idle)


def _sort(x: Folded) -> str:
    if x.weight.buffer:
        return "buffer"
    if x.group == "norm":
        return "norm"
    key = x.pattern.startswith(("attn.k.", "attn.v."))
    if x.weight.role != "matmul" or len(x.weight.shape) != 2 or x.pattern.endswith(".conv.weight"):
        return "kv_bias" if key else "rest"
    if key:
        return "kv"
    return {"mixer": "attention", "mtp": "attention"}.get(x.group, x.group if x.group in SORTS else "rest")
