"""`GGUFFacts`: a model's tree, as the metadata of its GGUF file are written from it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from ...core.blocks import MLP, AttentionBase, Decoder, MoE
from ...core.config import Config
from ...core.positions import Rope
from ...core.tree import Block
from ...utils.errors import ConvertError, safe

if TYPE_CHECKING:
    from ...core.latent_attention import LatentAttention

Keys = dict[str, Any]
B = TypeVar("B", bound=Block)


class GGUFFacts:
    """The facts of a model from which the metadata of its GGUF file are written."""

    def __init__(
        self, tree: Decoder, config: Config, name: str, arch: str = "", words: str = ""
    ) -> None:
        self.tree, self.config, self.name, self.arch = tree, config, name, arch
        self.words = words  # the config keys that the architecture expresses
        self.notes: list[str] = []
        self.layers: list[Any] = list(tree.layers)

    @cached_property
    def attentions(self) -> list[AttentionBase | None]:
        """The attention of each layer; None where it has another mixer."""
        return [x.attn if isinstance(x.attn, AttentionBase) else None for x in self.layers]

    @cached_property
    def mlps(self) -> list[Any]:
        """The feed-forward block of each layer."""
        return [x.mlp for x in self.layers]

    @cached_property
    def first_attention(self) -> AttentionBase | None:
        """The first attention without a window, or the first of all; None if there is none."""
        found = [x for x in self.attentions if x is not None]
        return next(
            (x for x in found if x.window.max_lookback is None), found[0] if found else None
        )

    @cached_property
    def first(self) -> Any:
        """The same attention; the architecture has one."""
        if self.first_attention is None:
            raise self.other_layers()
        return self.first_attention

    @cached_property
    def latent(self) -> LatentAttention:
        """The first attention, which is latent in this architecture."""
        from ...core.latent_attention import LatentAttention

        if not isinstance(self.first, LatentAttention):
            raise self.other_layers()
        return self.first

    def other_layers(self) -> ConvertError:
        """Return the error for a block of another kind than the architecture's."""
        return ConvertError(
            f"{safe(self.name)}: llama.cpp's {self.arch} architecture has other kinds "
            "of layers than this model",
            hint="convert to hf",
        )

    @cached_property
    def sliding(self) -> Any:
        """The first attention with a window."""
        return next(
            (x for x in self.attentions if x is not None and x.window.size is not None), None
        )

    @cached_property
    def rope(self) -> Rope | None:
        """The rotary positions of the layers with full attention, or of others if these have
        none.
        """
        attentions = (self.first_attention, *self.attentions)
        ropes = [x.rope for x in attentions if x is not None and x.rope is not None]
        return ropes[0] if ropes else None

    @cached_property
    def sliding_rope(self) -> Rope | None:
        """The rotary positions of the layers with a window."""
        return self.sliding.rope if self.sliding is not None else None

    @cached_property
    def moe(self) -> Any:
        """The first mixture of experts."""
        return next((x for x in self.mlps if isinstance(x, MoE)), None)

    def mixer(self, kind: type[B]) -> B:
        """The first mixer of a kind, which the architecture has."""
        for x in self.layers:
            if isinstance(x.attn, kind):
                return x.attn
        raise self.other_layers()

    @cached_property
    def eps(self) -> float:
        """The epsilon of the norms."""
        layer = self.layers[0]
        names = ("attn_norm", "mlp_norm", "attn_out_norm", "attn_branch_norm")
        for norm in (*(getattr(layer, x, None) for x in names), self.tree.norm):
            if norm is not None:
                return float(norm.eps)
        raise self.other_layers()

    def resolved(self, *names: str) -> Any:
        """Return the value of the first of these config keys that is present, or its default."""
        found = [self.config.data[x] for x in names if self.config.data.get(x) is not None]
        return next(
            iter(
                found
                or [self.config.defaults_used[x] for x in names if x in self.config.defaults_used]
            ),
            None,
        )


def uniform(values: Iterable[Any]) -> Any:
    """Return the value that all have, or the list."""
    found = list(values)
    return found[0] if len(set(found)) == 1 else found


def mlp_width(mlp: object) -> int:
    """Return the feed-forward width; llama.cpp computes the activation of the architecture."""
    return int(mlp.up.weight.shape[0]) if isinstance(mlp, MLP) else 0


def expert_width(f: GGUFFacts) -> int | None:
    """Return the width of an expert; None without experts."""
    return mlp_width(f.moe.experts[0]) if f.moe is not None else None


def rotary_dim_keys(f: GGUFFacts) -> Keys:
    """Return the number of channels of a head that rotate."""
    return {"rope.dimension_count": int(f.rope.dim)} if f.rope is not None else {}


def expert_width_keys(f: GGUFFacts) -> Keys:
    """Return the width of the experts under its own key."""
    return {"expert_feed_forward_length": expert_width(f)}


def feed_forward_length(f: GGUFFacts) -> Any:
    """Return the width of the layers without experts; of the experts, if all layers have them
    and no key has their width.
    """
    dense = [mlp_width(x) for x in f.mlps]
    if any(dense):
        return widths_of_layers(dense)
    stated = f.resolved("intermediate_size_mlp", "intermediate_size")
    has_own_key = "moe_intermediate_size" in f.words
    return stated if has_own_key and type(stated) is int else expert_width(f)


def widths_of_layers(widths: list[int]) -> Any:
    """Return the width of the layers that have one, or the list if they have several."""
    return uniform(x for x in widths if x) if len(set(widths) - {0}) == 1 else widths
