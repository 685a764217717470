"""The tree of an edited model, made from the tree of the original: what the new config has to
describe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ...core.blocks import Attention, Decoder, MoE, PerLayerEmbedding
from ...core.expr import Expr
from ...core.tree import Block, Stack, Weight, fold_blocks, fold_field, sequence
from ...utils.errors import ArgumentError
from ...utils.record_type import Record

_B = TypeVar("_B", bound=Block)


class TreeEdit(Record):
    """The edits of one command, with numbers instead of ranges."""

    layers: tuple[int, ...] | None = None  # kept layers, ascending; None: all
    vocab: int | None = None  # rows of embedding and head


def edit_tree(tree: Decoder, edit: TreeEdit) -> Decoder:
    """Return the tree after the edits: layers, then the vocabulary."""
    if edit.layers is not None:
        tree = _keep_layers(tree, edit.layers)
    return tree if edit.vocab is None else _resize_vocab(tree, edit.vocab)


def equal_trees(a: Decoder, b: Decoder) -> bool:
    """Whether two trees are the same model, however their layers are grouped into runs."""
    return _expanded(a) == _expanded(b)


def _keep_layers(tree: Decoder, layers: Sequence[int]) -> Decoder:
    if any(x.weight.tied.startswith("layers.") for x in fold_field(tree, "layers")):
        raise ArgumentError(
            "layers",
            ": layers of this model share blocks, which a config without some of them cannot "
            "describe",
        )
    number = {old: new for new, old in enumerate(layers)}
    old_layers = list(tree.layers)
    renumbered: dict[tuple[int, int], Block] = {}

    def renumber(block: Block) -> Block:
        attn = getattr(block, "attn", None)
        if not isinstance(attn, Attention) or attn.kv_layer is None:
            return block
        if attn.kv_layer not in number:
            raise ArgumentError(
                "layers",
                f": layer {attn.kv_layer} has the keys and values that later layers use",
                hint="keep it, or leave out these layers as well",
            )
        key = (id(block), attn.kv_layer)
        if key not in renumbered:
            renumbered[key] = block.replace(attn=attn.replace(kv_layer=number[attn.kv_layer]))
        return renumbered[key]

    tree = tree.replace(layers=sequence(renumber(old_layers[i]) for i in layers))
    if tree.per_layer is None:
        return tree
    return tree.replace(per_layer=_resize_per_layer(tree.per_layer, len(layers)))


def _resize_per_layer(block: PerLayerEmbedding, layers: int) -> PerLayerEmbedding:
    embed, projection, size = block.embed, block.projection, layers * block.size
    return block.replace(
        embed=embed.replace(weight=_with_size(embed.weight, 1, size)),
        projection=projection.replace(weight=_with_size(projection.weight, 0, size)),
    )


def _resize_vocab(tree: Decoder, vocab: int) -> Decoder:
    old = int(tree.vocab)
    if int(tree.embed.weight.shape[0]) > old and any(
        x.reads_only_images for x, _ in tree.layers.distinct()
    ):
        raise ArgumentError(
            "vocab_size",
            f" {vocab}: the embedding has rows for images after those of the vocabulary",
        )
    if any(isinstance(x.block, MoE) and x.block.routes_by_token for x in fold_blocks(tree)):
        raise ArgumentError(
            "vocab_size", f" {vocab}: the first layers have a table of the experts of each token"
        )
    embed = tree.embed.replace(weight=_with_size(tree.embed.weight, 0, vocab))
    head = tree.head
    if head is not None and int(head.weight.shape[0]) == old:
        head = _map_rows(head, vocab)
    mtp = tree.mtp
    if mtp is not None:
        mtp = _map_stack(
            mtp,
            lambda x: x.replace(
                embed=_map_rows(x.embed, vocab),  # type: ignore[attr-defined]
                head=_map_rows(x.head, vocab),  # type: ignore[attr-defined]
            ),
        )
    if tree.per_layer is not None and vocab > (rows := int(tree.per_layer.embed.weight.shape[0])):
        raise ArgumentError(
            "vocab_size", f" {vocab}: the per-layer embedding has {rows:,} rows, one for each token"
        )
    return tree.replace(embed=embed, head=head, mtp=mtp, vocab=Expr.const(vocab))


def _map_rows(block: _B, rows: int) -> _B:
    """Return a head or an embedding with another number of rows; what is inside it stays."""
    changes = {
        x: _with_size(w, 0, rows)
        for x in ("weight", "bias")
        if isinstance(w := getattr(block, x, None), Weight)
    }
    return block.replace(**changes)


def _with_size(weight: Weight, axis: int, size: int) -> Weight:
    shape = list(weight.shape)
    shape[axis] = Expr.const(size)
    return weight.replace(shape=tuple(shape))


def _map_stack(stack: Stack, change: Callable[[Block], Block]) -> Stack:
    changed = stack.with_blocks(change)
    pairs = zip(changed.distinct(), stack.distinct(), strict=True)
    return stack if all(x is y for (x, _), (y, _) in pairs) else changed


def _expanded(tree: Decoder) -> tuple[object, ...]:
    """Return the fields of a tree with its layers one by one, and their residual multipliers
    without errors of rounding.
    """
    values = {name: getattr(tree, name) for name in tree.fields}
    for name in ("layers", "mtp"):
        if (stack := values[name]) is not None:
            rounded = {id(x): _with_rounded_multiplier(x) for x, _ in stack.distinct()}
            values[name] = [rounded[id(x)] for x in stack]
    return (type(tree), *values.items())


def _with_rounded_multiplier(layer: Block) -> Block:
    factor = getattr(layer, "residual_multiplier", 1.0)
    return layer if factor == 1.0 else layer.replace(residual_multiplier=float(f"{factor:.12g}"))
