"""The tree of an edited model, made from the tree of the original: what the new config has to describe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from ...core.blocks import Attention, Decoder, HashMoE, MoE, PerLayerEmbedding
from ...core.expr import Expr
from ...core.multimodal import CrossAttentionLayer
from ...core.tree import Block, Stack, Weight, fold_field, repeat, sequence
from ...utils.errors import ConvertError
from ...utils.record_type import Record

_B = TypeVar("_B", bound=Block)


class TreeEdit(Record):
    """The edits of one command, with numbers instead of ranges."""

    layers: tuple[int, ...] | None = None  # kept layers, ascending; None: all
    experts: tuple[int, ...] | None = None  # kept experts
    vocab: int | None = None  # rows of embedding and head
    untie: bool = False


class KeptGroups(NamedTuple):
    """The groups of experts after an edit: their number and how many of them are eligible."""

    groups: int
    kept: int


def edit_tree(tree: Decoder, edit: TreeEdit) -> Decoder:
    """Return the tree after the edits: layers, then experts, then the vocabulary, then the head."""
    if edit.layers is not None:
        tree = _keep_layers(tree, edit.layers)
    if edit.experts is not None:
        tree = _keep_experts(tree, edit.experts)
    if edit.vocab is not None:
        tree = _resize_vocab(tree, edit.vocab)
    return _untie(tree) if edit.untie else tree


def equal_trees(a: Decoder, b: Decoder) -> bool:
    """Whether two trees are the same model, however their layers are grouped into runs."""
    return _expanded(a) == _expanded(b)


def count_experts(tree: Decoder) -> int:
    """Return the number of experts of every mixture; raise if there are none, or if layers differ."""
    counts = sorted({int(x.experts.n) for x in mixtures(tree)})
    if not counts:
        raise ConvertError("--keep-experts: the model has no experts")
    if len(counts) > 1:
        raise ConvertError(f"--keep-experts: expected as many experts in each layer, found {' and '.join(map(str, counts))}")
    return counts[0]


def mixtures(tree: Decoder) -> list[MoE]:
    """Return the distinct mixtures of experts."""
    found: dict[int, MoE] = {}

    def visit(block: Block) -> Block:
        if isinstance(block, MoE):
            found[id(block)] = block
        return block

    _map_blocks(tree, visit)
    return list(found.values())


def keep_groups(moe: MoE, experts: Sequence[int]) -> KeptGroups | None:
    """Return the groups of the kept experts; None without groups. Groups are kept whole, or lose as many experts each."""
    if moe.expert_groups is None:
        return None
    groups, kept, top_scores, _ = moe.expert_groups
    each = int(moe.experts.n) // groups
    left = [n for group in range(groups) if (n := sum(x // each == group for x in experts))]
    if len(set(left)) > 1:
        raise ConvertError(
            f"--keep-experts: expected as many experts in each group that remains, found {min(left)} to {max(left)}",
            hint=f"the router has {groups} groups of {each} experts: 0–{each - 1}, {each}–{2 * each - 1}, …",
        )
    kept = min(kept, len(left))
    if left[0] < top_scores:
        raise ConvertError(f"--keep-experts: groups are ranked by their {top_scores} best experts, and {left[0]} would remain in each")
    if left[0] * kept < moe.top_k:
        raise ConvertError(
            f"--keep-experts: a token passes through {moe.top_k} experts of {kept} groups, and {left[0]} would remain in each group"
        )
    return KeptGroups(len(left), kept)


def _keep_layers(tree: Decoder, layers: Sequence[int]) -> Decoder:
    if any(x.weight.tied.startswith("layers.") for x in fold_field(tree, "layers")):
        raise ConvertError("--drop-layers: layers of this model share blocks, which a config without some of them cannot describe")
    number = {old: new for new, old in enumerate(layers)}
    old_layers = list(tree.layers)
    renumbered: dict[tuple[int, int], Block] = {}

    def renumber(block: Block) -> Block:
        attn = getattr(block, "attn", None)
        if not isinstance(attn, Attention) or attn.kv_layer is None:
            return block
        if attn.kv_layer not in number:
            raise ConvertError(
                f"--drop-layers: layer {attn.kv_layer} has the keys and values that later layers use", hint="drop these layers as well"
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


def _keep_experts(tree: Decoder, experts: Sequence[int]) -> Decoder:
    def keep(block: Block) -> Block:
        if not isinstance(block, MoE):
            return block
        if isinstance(block, HashMoE):
            raise ConvertError(f"--keep-experts: {_TABLE}")
        if len(experts) < block.top_k:
            raise ConvertError(f"--keep-experts: a token passes through {block.top_k} experts, and {len(experts)} would remain")
        if (outputs := int(block.router.weight.shape[0])) != int(block.experts.n):
            raise ConvertError(f"--keep-experts: the router has {outputs} outputs for {block.experts.n} experts")
        if len(block.experts.distinct()) != 1:
            raise ConvertError("--keep-experts: the experts of a layer have different shapes")
        kept, old = keep_groups(block, experts), block.expert_groups
        groups = None if kept is None or old is None or kept.groups == 1 else old._replace(groups=kept.groups, kept=kept.kept)
        changes: dict[str, object] = {
            "experts": repeat(block.experts[0], len(experts), active=block.experts.active),
            "router": _map_weights(block.router, lambda x: _with_size(x, 0, len(experts))),
            "expert_groups": groups,
        }
        for name in ("correction", "expert_scale"):
            if isinstance(weight := getattr(block, name, None), Weight):
                changes[name] = _with_size(weight, 0, len(experts))
        return block.replace(**changes)

    return _map_blocks(tree, keep)


_TABLE = "the first layers have a table of the experts of each token"


def _resize_vocab(tree: Decoder, vocab: int) -> Decoder:
    old = int(tree.vocab)
    if int(tree.embed.weight.shape[0]) > old and any(isinstance(x, CrossAttentionLayer) for x, _ in tree.layers.distinct()):
        raise ConvertError(f"--resize-vocab {vocab}: the embedding has rows for images after those of the vocabulary")
    if any(isinstance(x, HashMoE) for x in mixtures(tree)):
        raise ConvertError(f"--resize-vocab {vocab}: {_TABLE}")
    embed = tree.embed.replace(weight=_with_size(tree.embed.weight, 0, vocab))
    head = tree.head
    if head is not None and int(head.weight.shape[0]) == old:
        head = _map_rows(head, vocab)
    mtp = tree.mtp
    if mtp is not None:
        mtp = _map_stack(mtp, lambda x: x.replace(embed=_map_rows(x.embed, vocab), head=_map_rows(x.head, vocab)))  # type: ignore[attr-defined]
    if tree.per_layer is not None and vocab > (rows := int(tree.per_layer.embed.weight.shape[0])):
        raise ConvertError(f"--resize-vocab {vocab}: the per-layer embedding has {rows:,} rows, one for each token")
    return tree.replace(embed=embed, head=head, mtp=mtp, vocab=Expr.const(vocab))


def _map_rows(block: _B, rows: int) -> _B:
    """Return a head or an embedding with another number of rows; what is inside it stays."""
    changes = {x: _with_size(w, 0, rows) for x in ("weight", "bias") if isinstance(w := getattr(block, x, None), Weight)}
    return block.replace(**changes)


def _untie(tree: Decoder) -> Decoder:
    head = tree.head
    if head is None:
        raise ConvertError("--untie: the model has no head")
    if not head.weight.tied:
        raise ConvertError("--untie: embedding and head are not tied")
    return tree.replace(head=head.replace(weight=head.weight.replace(tied="")))


def _with_size(weight: Weight, axis: int, size: int) -> Weight:
    shape = list(weight.shape)
    shape[axis] = Expr.const(size)
    return weight.replace(shape=tuple(shape))


def _map_weights(block: _B, change: Callable[[Weight], Weight]) -> _B:
    """Return a block with its own weights changed."""
    return block.replace(**{name: change(x) for name in block.fields if isinstance(x := getattr(block, name), Weight)})


def _map_blocks(tree: Decoder, change: Callable[[Block], Block]) -> Decoder:
    """Return the tree with every block changed, the inner ones first; shared blocks stay shared."""
    memo: dict[int, Block] = {}

    def visit(block: Block) -> Block:
        if id(block) not in memo:
            changes: dict[str, object] = {}
            for name in block.fields:
                child = getattr(block, name)
                if isinstance(child, Block) and (new := visit(child)) is not child:
                    changes[name] = new
                elif isinstance(child, Stack) and (stack := _map_stack(child, visit)) is not child:
                    changes[name] = stack
            memo[id(block)] = change(block.replace(**changes) if changes else block)
        return memo[id(block)]

    changed = visit(tree)
    assert isinstance(changed, Decoder)
    return changed


def _map_stack(stack: Stack, change: Callable[[Block], Block]) -> Stack:
    new = {id(x): change(x) for x, _ in stack.distinct()}
    if all(new[id(x)] is x for x, _ in stack.distinct()):
        return stack
    runs = (((*(new[id(x)] for x in pattern),), times) for pattern, times in stack.runs)
    return Stack(*runs, active=stack.active, count_dim=stack.count_dim, first=stack.first)


def _expanded(tree: Decoder) -> tuple[object, ...]:
    """Return the fields of a tree with its layers one by one, and their residual multipliers without errors of rounding."""
    values = {name: getattr(tree, name) for name in tree.fields}
    for name in ("layers", "mtp"):
        if (stack := values[name]) is not None:
            rounded = {id(x): _with_rounded_multiplier(x) for x, _ in stack.distinct()}
            values[name] = [rounded[id(x)] for x in stack]
    return (type(tree), *values.items())


def _with_rounded_multiplier(layer: Block) -> Block:
    factor = getattr(layer, "residual_multiplier", 1.0)
    return layer if factor == 1.0 else layer.replace(residual_multiplier=float(f"{factor:.12g}"))
