"""The adapters that `explain` tries: LoRA and DoRA on sets of matrices, IA³, prompt tuning and
prefix tuning.

The parameters of each are linear in one number that is solved for: the rank, or the number of
virtual tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ....checkpoint.naming.scheme import fused_scheme
from ....core.tree import fold
from ...size.training.lora_adapters import LinearMatrix, list_matrices
from .explain_base import BaseModel
from .vision_towers import VISION_TOWERS


class AdapterSet(NamedTuple):
    """A kind of adapters: their parameters per rank or token, fixed ones, and those of fully
    trained tables.
    """

    what: str
    bits: float
    per_rank: int
    per_rank_row: int = 0  # per rank and vocabulary entry
    whole_row: int = 0  # fully trained, per vocabulary entry
    matrices: tuple[LinearMatrix, ...] = ()
    kind: str = "LoRA"  # or DoRA, IA³, prompt, prefix
    fixed: int = 0  # whatever the rank is
    tower: int = 0  # of `per_rank`, on the linear layers of a vision tower
    is_narrow: bool = False  # on two projections or fewer


def adapter_sets(base: BaseModel) -> Iterator[AdapterSet]:
    """Yield sets of LoRA targets, alone, with adapters on head and embedding, or with those
    trained fully; and other adapters.
    """
    inside = [x for x in base.matrices if x.paths[0].startswith("layers.") and x.group != "router"]
    mlp = _matching(inside, "mlp", ("gate", "up", "down"))
    sets = (
        ("q and v", _matching(inside, "attn", ("q", "v")), 0.5),
        ("q, k, v and o", _matching(inside, "attn", ("q", "k", "v", "o")), 1.0),
        ("q, k and v", _matching(inside, "attn", ("q", "k", "v")), 2.5),
        ("the experts" if mlp and all(x.group == "experts" for x in mlp) else "the MLP", mlp, 2.5),
        ("all linear layers", tuple(inside), 0.5),
    )
    row, V = base.outside_layers, base.vocabulary
    head, embed = (
        [x for x in base.matrices if x.paths[0] == name and V in (x.out_features, x.in_features)]
        for name in ("head", "embed")
    )
    for what, targets, bits in sets:
        if not targets:
            continue
        per = _per_rank(targets)
        yield AdapterSet(what, bits, per, matrices=targets, is_narrow=what == "q and v")
        if head:
            widths = head[0].out_features + head[0].in_features - V
            yield AdapterSet(
                f"{what}, and the head", bits + 1.5, per + widths, 1, matrices=(*targets, *head)
            )
            if embed:
                both = widths + embed[0].out_features + embed[0].in_features - V
                yield AdapterSet(
                    f"{what}, embedding and head",
                    bits + 2.5,
                    per + both,
                    2,
                    matrices=(*targets, *embed, *head),
                )
            table_row = row["embed_row"] + row["head_row"]
            yield AdapterSet(
                f"{what}; embedding and head trained whole",
                bits + 2,
                per,
                whole_row=table_row,
                matrices=targets,
            )
    known = {_key(x) for _, x, _ in sets}
    for what, targets, bits in _further_targets(base, inside):
        if targets and (key := _key(targets)) not in known:
            known.add(key)
            yield AdapterSet(what, bits, _per_rank(targets), matrices=targets)
    for what, targets, bits in (sets[0], sets[1], sets[4]):
        if targets:
            magnitudes = sum(x.out_features * x.copies for x in targets)
            yield AdapterSet(
                what, bits + 3, _per_rank(targets), matrices=targets, kind="DoRA", fixed=magnitudes
            )
    yield from _vision_sets(base, inside)
    yield from _soft_prompts(base)
    yield from _ia3(inside)


def _further_targets(
    base: BaseModel, inside: Sequence[LinearMatrix]
) -> Iterator[tuple[str, tuple[LinearMatrix, ...], float]]:
    """Yield single projections, and the parts of mixtures of experts."""
    for word in ("q", "v", "k", "o"):
        yield word, _matching(inside, "attn", (word,)), 2.0 if word == "q" else 3.0
    for words in (("q", "k"), ("k", "v"), ("q", "v", "o"), ("q", "o")):
        yield f"{', '.join(words[:-1])} and {words[-1]}", _matching(inside, "attn", words), 3.5
    for word in ("gate", "up", "down"):
        yield word, _matching(inside, "mlp", (word,)), 4.0
    yield "gate and up", _matching(inside, "mlp", ("gate", "up")), 4.5
    usual = (
        *_matching(inside, "attn", ("q", "k", "v", "o")),
        *_matching(inside, "mlp", ("gate", "up", "down")),
    )
    # the names that most programs list
    yield "q, k, v, o and the MLP", tuple(x for x in inside if x in usual), 1.0
    yield (
        "q, v and the MLP",
        (*_matching(inside, "attn", ("q", "v")), *_matching(inside, "mlp", ("gate", "up", "down"))),
        4.5,
    )
    yield "q, k, v, o, up and down", tuple(x for x in inside if not _has(x, "mlp", ("gate",))), 3.5
    experts = tuple(x for x in inside if x.group == "experts")
    routers = tuple(x for x in base.matrices if x.group == "router")
    if not experts:
        return
    dense = tuple(x for x in inside if x.group != "experts")
    attention = _matching(inside, "attn", ("q", "k", "v", "o"))
    yield "the experts", experts, 2.5
    yield "the experts and routers", (*experts, *routers), 3.5
    yield "the routers", routers, 3.5
    yield "all linear layers and routers", (*inside, *routers), 1.5
    yield "q, k, v, o and the routers", (*attention, *routers), 3.0
    yield "all linear layers but the experts", dense, 3.0
    yield "all that is all-linear in peft", base.all_linear, 2.0
    fused = tuple(x for x in _fused_matrices(base) if x.group == "experts")
    if fused:
        where = "the fused experts (gate_up_proj and down_proj)"
        yield where, fused, 3.0
        yield f"q, k, v, o and {where}", (*attention, *fused), 3.5
        yield f"all linear layers and {where}", (*dense, *fused), 3.5


def _key(matrices: Sequence[LinearMatrix]) -> tuple[tuple[str, int, int, int], ...]:
    """Return what tells sets of a model's matrices apart, which hashes faster."""
    return tuple(sorted([(x.name, x.out_features, x.in_features, x.ranks) for x in matrices]))


def _fused_matrices(base: BaseModel) -> tuple[LinearMatrix, ...]:
    """Return the matrices as transformers 5 has them in memory, where peft adapts the gate and the
    up projection of an expert as one (`target_parameters`); none if the files have them so, too.
    """
    scheme = fused_scheme(base.scheme) if base.scheme else None
    return list_matrices(base.tree, scheme) if scheme else ()


def _vision_sets(base: BaseModel, inside: Sequence[LinearMatrix]) -> Iterator[AdapterSet]:
    """Yield LoRA on a text model and its vision tower, on parts of both, and on the tower alone.
    Where the model has no tower, it is one of the published ones, which are added whole.
    """
    tower_layers = [x for x in base.matrices if x.paths[0].startswith("vision.layers.")]
    if tower_layers:
        yield from _tower_sets(inside, tower_layers, _around_tower(base))
        return
    for tower in VISION_TOWERS:
        if base.family in tower.families and tower.linears:
            per = tower.adapter_parameters(base.width)
            name = tower.name.partition(" (")[0]
            yield AdapterSet(
                f"all linear layers, and {name}",
                3.0,
                _per_rank(inside) + per,
                matrices=tuple(inside),
                tower=per,
            )
            yield AdapterSet(name, 4.5, per, tower=per)


def _around_tower(base: BaseModel) -> list[LinearMatrix]:
    """Return the linear layers around those of the tower: of its patches and of its projector."""
    linear = (x for x in fold(base.tree) if x.weight.role == "matmul")
    paths = {x.pattern.removesuffix(".weight") for x in linear}
    return [
        x
        for x in base.matrices
        if x.paths[0].startswith(("vision.", "projector."))
        and not x.paths[0].startswith("vision.layers.")
        and x.paths[0] in paths
    ]


def _tower_sets(
    inside: Sequence[LinearMatrix], tower: Sequence[LinearMatrix], around: Sequence[LinearMatrix]
) -> Iterator[AdapterSet]:
    """Yield the sets that libraries offer as switches: text and vision or vision alone, attention
    and MLP or one of them; experts are mostly left out.
    """
    dense = [x for x in inside if x.group != "experts"]
    parts = {
        "attention and MLP": ("attn", "mlp"),
        "attention": ("attn",),
        "MLP": ("mlp",),
    }
    but = "" if len(dense) == len(inside) else ", without the experts"
    choices = {}
    for (what, words), bits in zip(parts.items(), (0.5, 1.0, 1.5), strict=True):
        text, vision = (
            [x for x in matrices if any(f".{word}." in x.paths[0] for word in words)]
            for matrices in (dense, tower)
        )
        choices[f"the {what} of text and vision{but}"] = (*text, *vision), 1.0 + bits
        choices[f"the {what} of the vision tower"] = tuple(vision), 3.0 + bits
    whole = (*tower, *around)
    choices["all linear layers of text and vision"] = (*inside, *whole), 1.5
    choices["all linear layers of the vision tower and its projector"] = whole, 3.5
    if but:
        choices[f"all linear layers of text and vision{but}"] = (*dense, *whole), 2.0
    known = {tuple(inside), tuple(dense)}
    for what, (targets, bits) in choices.items():
        if targets and targets not in known:
            known.add(targets)
            yield AdapterSet(what, bits, _per_rank(targets), matrices=targets)


def _soft_prompts(base: BaseModel) -> Iterator[AdapterSet]:
    """Yield prompt tuning (Lester et al. 2021), and prefix tuning (Li and Liang 2021), which learns
    keys and values of each layer.

    p-tuning (Liu et al. 2021) has an encoder of three linear layers besides, as in peft.
    """
    yield AdapterSet("prompt tuning", 2.0, base.width, kind="prompt")
    for hidden in dict.fromkeys((128, base.width)):
        encoder = 2 * base.width * hidden + hidden * hidden + 2 * hidden + base.width
        yield AdapterSet(f"{hidden:,}", 4.0, base.width, kind="p-tuning", fixed=encoder)
    layers = sum(x.times for x in base.kinds)
    widths = {base.kv_width: 2.5, base.width: 4.0}
    for width, bits in widths.items():
        if width:
            yield AdapterSet("prefix tuning", bits, 2 * layers * width, kind="prefix")


def _ia3(inside: Sequence[LinearMatrix]) -> Iterator[AdapterSet]:
    """Yield IA³ (Liu et al. 2022) on keys, values and the second layer of the MLP, as peft's
    defaults are for most families.
    """
    scaled = _matching(inside, "attn", ("k", "v"))
    down = _matching(inside, "mlp", ("down",))
    if scaled and down and not any(x.group == "experts" for x in down):
        size = sum(x.out_features * x.copies for x in scaled) + sum(
            x.in_features * x.copies for x in down
        )
        yield AdapterSet("k, v and down", 4.0, size, matrices=(*scaled, *down), kind="IA³")


def _per_rank(matrices: Sequence[LinearMatrix]) -> int:
    return sum(x.adapter_parameters(1) for x in matrices)


def _matching(
    matrices: Sequence[LinearMatrix], part: str, words: tuple[str, ...]
) -> tuple[LinearMatrix, ...]:
    return tuple(x for x in matrices if _has(x, part, words))


def _has(x: LinearMatrix, part: str, words: tuple[str, ...]) -> bool:
    return any(f".{part}." in path and path.rpartition(".")[2] in words for path in x.paths)
