"""`Study`: what lessons read from a model: its layers, heads, cache and FLOPs, each as an `Account`
whose sum is the number of the tree or of its graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeVar

from ...core.attention_facts import AttentionWindow
from ...core.blocks import MLP, Attention, Decoder, MoE
from ...core.expr import Expr, as_number, product
from ...core.latent_attention import LatentAttention
from ...core.mixers import RecurrentMixer
from ...core.parameter_count import Section, WeightRow, sections_of
from ...core.tree import Block, CountedOnly, Stack, fold_blocks
from ...model import FamilyModel
from ...utils.errors import LlamathError
from ...utils.record_type import Record
from ..graph.flop_count import forward_flops
from ..graph.recorder import Graph, record
from ..size.memory.cache_bytes import CacheSpec, cache_specs
from .account import Account, Product

B = TypeVar("B", bound=Block)
BF16_BYTES = 2
_COUNTS, _MORE = frozenset({"V", "C", "L", "E", "k", "S"}), 101


class Study(Record):
    """A decoder as a lesson reads it."""

    name: str
    tree: Decoder

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """The sections of its count."""
        return tuple(sections_of(self.tree))

    @cached_property
    def letters(self) -> Mapping[str, int]:
        """The letters of its dimensions, with their values."""
        found: dict[str, int] = {}
        for section in self.sections:
            found |= Expr.const(section.times).letters
            for row in section.rows:
                for dim in (*row.weight.shape, Expr.const(row.copies)):
                    found |= dim.letters
        for x in (self.heads, self.kv_heads, self.head_dim, self.top_k):
            found |= x.letters if x is not None else {}
        return found

    @cached_property
    def other_values(self) -> Mapping[str, int]:
        """Other values of the numbers of tokens, layers and experts. At these, a formula that is
        right by chance gives another number: L·h·d for H·h·d where L = H. Widths keep their
        values, as one may be written for another: d for H·h.
        """
        others = [x for x in self.letters if x in _COUNTS]
        return {x: self.letters[x] + _MORE + 2 * i for i, x in enumerate(others)}

    @cached_property
    def layer(self) -> Section | None:
        """The kind of layer that lessons look at: the first one with queries, keys and values,
        else the first.
        """
        kinds = [x for x in self.sections if x.name == "layers"]
        return next((x for x in kinds if _has(x, "attn.q.weight")), kinds[0] if kinds else None)

    def _blocks(self) -> Iterator[tuple[str, Block]]:
        """Yield each distinct block with its path, in tree order, as far as they are asked for."""
        for name, child in self.tree.children:
            if isinstance(child, Block):
                yield from ((f"{name}.{x.pattern}", x.block) for x in fold_blocks(child))
            elif isinstance(child, Stack):
                for part, _ in child.distinct():
                    yield from ((f"{name}.{x.pattern}", x.block) for x in fold_blocks(part, 1))

    def _first(self, kind: type[B], end: str = "") -> B | None:
        """Return the first block of a kind, or the first one whose path ends so."""
        found = (x for path, x in self._blocks() if isinstance(x, kind) and path.endswith(end))
        return next(found, None)

    @cached_property
    def attention(self) -> Attention | None:
        """The first block with query heads and key/value heads of its own."""
        found = (x for path, x in self._blocks() if path.startswith("layers"))
        attentions = (x for x in found if isinstance(x, Attention))
        return next((x for x in attentions if x.k is not None and x.v is not None), None)

    @cached_property
    def latent(self) -> LatentAttention | None:
        """The first latent attention."""
        return self._first(LatentAttention)

    @cached_property
    def moe(self) -> MoE | None:
        """The first mixture of experts."""
        return self._first(MoE)

    @cached_property
    def mlp(self) -> MLP | None:
        """The first dense MLP."""
        return self._first(MLP, ".mlp")

    @cached_property
    def recurrence(self) -> RecurrentMixer | None:
        """The first recurrent mixer."""
        return self._first(RecurrentMixer)

    @property
    def window(self) -> AttentionWindow | None:
        """The first window of attention that is shorter than the context."""
        windows = (x.window for _, x in self._blocks() if isinstance(x, Attention))
        return next((x for x in windows if x.max_lookback), None)

    @property
    def heads(self) -> Expr | None:
        """The number of query heads."""
        block = self.attention or self.latent
        return None if block is None else Expr.const(block.heads)

    @property
    def kv_heads(self) -> Expr | None:
        """The number of key/value heads."""
        return None if self.attention is None else Expr.const(self.attention.kv_heads)

    @property
    def head_dim(self) -> Expr | None:
        """The size of a head."""
        return None if self.attention is None else Expr.const(self.attention.head_dim)

    @property
    def top_k(self) -> Expr | None:
        """The number of experts that a token uses."""
        return None if self.moe is None else Expr.const(self.moe.top_k)

    @property
    def width(self) -> Expr:
        """The width of the residual stream."""
        return Expr.const(self.tree.width)

    @property
    def mlp_width(self) -> Expr | None:
        """The width of the dense MLP."""
        if self.mlp is None:
            return None
        return self.mlp.up.weight.shape[0]

    @property
    def context(self) -> int:
        """The model's own context, or 4,096 tokens where it states none."""
        return int(self.tree.context or 4096)

    # accounts

    def weights(self, chosen: Callable[[Section, WeightRow], bool] | None = None) -> Account:
        """Return the weights of the whole model, or those chosen."""
        if chosen is None:
            return self._all_weights
        return Account(
            products=tuple(
                x
                for x, (section, row) in zip(self._all_weights.products, self._rows, strict=True)
                if chosen(section, row)
            )
        )

    @cached_property
    def _rows(self) -> Sequence[tuple[Section, WeightRow]]:
        return [(section, row) for section in self.sections for row in section.rows]

    @cached_property
    def _all_weights(self) -> Account:
        return Account(products=tuple([_weight(*x) for x in self._rows]))

    def layer_weights(
        self, chosen: Callable[[str], bool] | None = None, section: Section | None = None
    ) -> Account:
        """Return the weights of one layer, or those whose paths are chosen."""
        section = section or self.layer
        assert section is not None
        found = self.weights(
            lambda s, row: s is section and (chosen is None or chosen(row.pattern))
        )
        return found.each(lambda x: x.without("layers"))

    @cached_property
    def graph(self) -> Graph | None:
        """The graph of decoding one token; None if the model is counted only."""
        try:
            return record(self.tree, decode=True, last_only=True)
        except (CountedOnly, LlamathError):
            return None

    @cached_property
    def caches(self) -> tuple[CacheSpec, ...]:
        """The kinds of tensors that its layers cache; empty if that is not known."""
        return () if self.graph is None else cache_specs(self.graph)

    @property
    def _caches_of_token(self) -> Iterator[CacheSpec]:
        """Yield what layers cache of one token: those that keep the same vectors together, whatever
        their windows, as L where these are all layers.
        """
        layers: dict[tuple[tuple[Expr, ...], int], Expr] = {}
        specs = {(x.rows, x.every): x for x in reversed(self.caches)}
        for x in self.caches:
            layers[x.rows, x.every] = layers.get((x.rows, x.every), Expr.const(0)) + x.layers
        every = Expr.const(self.tree.layers.n)
        for key, n in layers.items():
            all_layers = every if n == every and every.atoms else n
            yield specs[key].replace(layers=all_layers, window=None)

    def cache(self, tokens: int, batch: int = 1, size: int = BF16_BYTES) -> Account:
        """Return the bytes of the KV cache, without states that do not grow."""
        found = []
        for spec in self._caches_of_token if tokens == 1 else self.caches:
            names = ("keys", "values") if len(spec.rows) == 2 else tuple(map(str, spec.rows))
            for name, row in zip(names, spec.rows, strict=True):
                kept = as_number(spec.tokens(tokens))
                factors = (
                    ("layers", spec.layer_count),
                    ("width", row),
                    ("tokens", Expr("T", kept) if kept == tokens > 1 else Expr.factor(kept)),
                    ("batch", Expr("B", batch) if batch > 1 else Expr.const(1)),
                    ("bytes", Expr.factor(size)),
                )
                found.append(Product(name, "cache", factors, "window" if spec.window else ""))
        return Account(products=tuple(found))

    @cached_property
    def flops(self) -> Mapping[str, Expr] | None:
        """The FLOPs of the products with weights for one token, by group."""
        if self.graph is None:
            return None
        found = forward_flops(self.graph).weights
        one = {"B": Expr.const(1), "T": Expr.const(1), "P": Expr.const(0)}
        return {name: x.at(**one) for name, x in found.items()}


def _has(section: Section, path: str) -> bool:
    return any(x.pattern == path for x in section.rows)


def _weight(section: Section, row: WeightRow) -> Product:
    out, *rest = row.weight.shape or (Expr.const(1),)  # a scalar has no dimension
    factors: list[tuple[str, Expr]] = []
    if section.indices or section.name == "layers":
        factors.append(("layers", Expr.const(section.times)))
    if int(row.copies) != 1:
        factors.append(("copies", Expr.const(row.copies)))
    factors.append(("out", out))
    if rest:
        factors.append(("in", product(rest)))
    return Product(row.pattern, row.group, tuple(factors), row.weight.role, bool(row.weight.tied))


class ModelStudy(Study):
    """A model as a lesson reads it; of a multimodal one, its text model."""

    model: FamilyModel

    @classmethod
    def of(cls, model: FamilyModel) -> ModelStudy:
        """Return what a lesson reads from a model."""
        return cls(name=model.name, tree=model.text.tree, model=model)


def kind_with(study: Study, chosen: Callable[[WeightRow], bool]) -> Section | None:
    """Return the first kind of layers with such a weight."""
    return next((x for x in iter_kinds(study) if any(map(chosen, x.rows))), None)


def iter_kinds(study: Study) -> Iterator[Section]:
    """Yield the kinds of layers."""
    yield from (x for x in study.sections if x.name == "layers")
