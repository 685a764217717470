"""`fixed_letters`: the dimensions that an edit of a page may not change, as some of its data are
computed from them without a formula.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...analysis.graph.operations.attention_operations import rope
from ...analysis.graph.recorder import record
from ...analysis.storage.choose_storage import released_format
from ...core.blocks import MoE
from ...core.expr import Expr, Power
from ...core.latent_attention import LatentAttention
from ...core.tree import Block, Weight, fold_blocks
from ...model import FamilyModel

_EXTENSIONS, _FAMILIES = "llamath.core.extensions.", "llamath.families."
_CHOSEN = ("key_heads", "state_groups", "top_k")
"""Fields of blocks: the groups that tensor parallelism splits a state by, and the chosen keys."""


def fixed_letters(model: FamilyModel) -> list[str]:
    """Return the letters that not all data follow: those of numbers and choices of experts that a
    format names, of partly rotated heads, of scores and latent vectors with a factor of their own,
    of the groups of a state, of a table of positions, and of blocks of few families.
    """
    nodes = [x for _, x in record(model.tree).nodes()]
    blocks = list(fold_blocks(model.tree))
    moes = [x.block for x in blocks if isinstance(x.block, MoE)]
    transforms = (y for x in nodes if (y := x.attributes.get("transform")) is not None)
    numbers = [
        model.tree.context or 0,
        *(
            x.shape[-1]
            for x in nodes
            if x.op is rope and not Expr.const(x.attributes["rope"].dim).symbols
        ),
        *(y for x in moes for y in (x.experts.n, x.top_k) if _names_experts(model)),
        *(x.scale.base for x in transforms if isinstance(x.scale, Power)),
        *(n for x in blocks for n in _ranks_with_factors(x.block)),
        *(n for x in blocks for n in _numbers_of_extension(x.block)),
        *(
            getattr(x.block, name)
            for x in blocks
            for name in _CHOSEN
            if hasattr(x.block, name) and not isinstance(x.block, MoE)
        ),
    ]
    if any(type(x.block).__module__.startswith(_EXTENSIONS) for x in blocks):
        return sorted({*model.count.formula.letters, *model.config.key_by_symbol})
    return sorted({y for x in numbers for y in Expr.const(x).symbols})


def _names_experts(model: FamilyModel) -> bool:
    """Whether the format of the weights is chosen for each expert by its name."""
    released = released_format(model)
    recipe = None if released is None else released.recipe
    return recipe is not None and recipe.names_experts


def _numbers_of_extension(block: Block) -> Iterator[int]:
    """Yield the numbers of a block that few families have."""
    if type(block).__module__.startswith(_FAMILIES):
        for x in vars(block).values():
            yield from [x] if isinstance(x, Expr) else x.shape if isinstance(x, Weight) else ()


def _ranks_with_factors(block: Block) -> tuple[int, ...]:
    if not isinstance(block, LatentAttention) or block.q_factor == block.latent_factor == 1:
        return ()
    downs = (x for x in (block.q_down, block.kv_down) if x is not None)
    return tuple(n for x in downs for n in x.weight.shape)
