"""A model's parameters summed by kind of matrix, so that testing a hypothesis is plain
arithmetic.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from ....checkpoint.naming.scheme import Scheme
from ....core.blocks import Attention, Decoder
from ....core.expr import Expr, product, total
from ....core.latent_attention import LatentAttention
from ....core.tree import Block, Folded, Stack, fold, runs_again
from ....utils.record_type import Record
from ...size.training.lora_adapters import LinearMatrix, ModuleNames, all_linear, list_matrices
from .scale_layouts import SCALE_LAYOUTS

LINEAR_KINDS = ("attention", "kv", "mlp", "experts")
"""The kinds of matrices that quantization packs: all linear layers except routers."""
_MATRIX_KINDS = (*LINEAR_KINDS, "router", "kv_bias", "norm", "buffer", "rest")
"""Every parameter of a layer belongs to one of these kinds."""
_PLACES = {name: i for i, name in enumerate(_MATRIX_KINDS)}
_TOWERS = ("vision.", "projector.", "audio.", "audio_projector.")


class LayerKind(NamedTuple):
    """One kind of layer: how many there are, its elements by kind of matrix, and its heads if it
    has grouped KV heads.
    """

    block: Block
    times: int
    sums: tuple[int, ...]
    heads: int
    kv_heads: int
    rotary: int  # elements of one buffer of rotary frequencies
    inactive: int  # elements of the experts that a token does not use
    kv_width: int = 0  # outputs of the key projection

    @property
    def size(self) -> int:
        """The parameters of one layer."""
        return sum(self.sums)

    def elements(self, name: str) -> int:
        """The elements of one kind in one layer."""
        return self.sums[_PLACES[name]]


class BaseModel(Record):
    """A model to start from."""

    name: str
    tree: Decoder
    scheme: Scheme | None
    named: bool = False  # named by the user, not one of the catalog
    aliases: tuple[str, ...] = ()  # other models of the same shape
    family: str = ""
    modules: ModuleNames | None = None  # by which peft chooses matrices

    @cached_property
    def memo(self) -> dict[Hashable, Any]:
        """What a search finds out about the model whatever the number is, for the next search."""
        return {}

    @cached_property
    def kinds(self) -> tuple[LayerKind, ...]:
        """The kinds of layers."""
        return tuple(
            _layer_kind(x, int(n)) for x, n in self.tree.layers.distinct() if not runs_again(x)
        )

    @cached_property
    def _outside(self) -> Sequence[Folded]:
        """The weights outside the layers."""
        return fold(self.tree.replace(layers=Stack()))

    @cached_property
    def outside_layers(self) -> dict[str, int]:
        """The parameters outside the layers: elements per vocabulary row of the embedding and of
        the head, and the others.
        """
        sums = dict.fromkeys(
            ("embed_row", "head_row", "positions", "final_norm", "norm", "rest"), 0
        )
        for x in self._outside:
            size = int(x.weight.size) * int(x.copies)
            if x.weight.shape and str(x.weight.shape[0].symbol) == "V":
                sums["head_row" if x.pattern.startswith("head.") else "embed_row"] += size // int(
                    self.tree.vocab
                )
            elif not x.weight.tied:
                sums[_outside_kind(x)] += size
        return sums

    @cached_property
    def vocabulary(self) -> int:
        """The vocabulary size."""
        return int(self.tree.vocab)

    @cached_property
    def tied(self) -> bool:
        """Return whether the head is the embedding."""
        return self.tree.head is not None and bool(self.tree.head.weight.tied)

    @cached_property
    def vocab_row(self) -> int:
        """The parameters per vocabulary entry, in embedding and head together."""
        return self.outside_layers["embed_row"] + (
            self.head_bias if self.tied else self.outside_layers["head_row"]
        )

    @cached_property
    def head_bias(self) -> int:
        """1 if the head has a bias (which is never tied), else 0."""
        return int(self.tree.head is not None and self.tree.head.bias is not None)

    @cached_property
    def total(self) -> int:
        """The model's parameters."""
        out = self.outside_layers
        around = out["positions"] + out["final_norm"] + out["norm"] + out["rest"]
        return self.vocab_row * self.vocabulary + around + sum(x.size * x.times for x in self.kinds)

    @cached_property
    def active(self) -> int:
        """The active parameters."""
        idle = sum(
            int(x.weight.parameters) - int(x.weight.active_parameters) for x in self._outside
        )
        return self.total - idle - sum(x.inactive * x.times for x in self.kinds)

    @cached_property
    def matrices(self) -> tuple[LinearMatrix, ...]:
        """The linear maps and tables as files hold them."""
        return list_matrices(self.tree, self.scheme)

    @cached_property
    def all_linear(self) -> tuple[LinearMatrix, ...]:
        """The matrices that peft adapts as `all-linear`."""
        return all_linear(self.tree, self.modules) if self.modules else ()

    @cached_property
    def kinds_key(self) -> tuple[object, ...]:
        """Everything that the count depends on except the vocabulary tables."""
        around = tuple(self.outside_layers[x] for x in ("final_norm", "norm", "rest", "positions"))
        return tuple((x.times, x.sums, x.heads, x.kv_heads) for x in self.kinds), around

    @cached_property
    def shape_key(self) -> tuple[object, ...]:
        """`kinds_key` with the parameters per vocabulary row."""
        return self.kinds_key, self.outside_layers["embed_row"], self.outside_layers["head_row"]

    def elements(self, *names: str) -> int:
        """The elements of these kinds in all layers."""
        return sum(x.elements(name) * x.times for x in self.kinds for name in names)

    @cached_property
    def buffers(self) -> int:
        """The elements that files store and the reference implementation does not count as
        parameters.
        """
        return sum(
            int(x.weight.parameters) * int(x.copies) for x in fold(self.tree) if x.weight.buffer
        )

    @cached_property
    def towers(self) -> int:
        """The parameters of the towers for images and sound, with their projectors."""
        return sum(
            int(x.weight.parameters) * int(x.copies)
            for x in self._outside
            if x.pattern.startswith(_TOWERS)
        )

    @cached_property
    def width(self) -> int:
        """The width of the residual stream."""
        return int(self.tree.embed.weight.shape[-1])

    @cached_property
    def kv_width(self) -> int:
        """The width of the keys of a layer; 0 if the layers differ."""
        widths = {x.kv_width for x in self.kinds}
        return widths.pop() if len(widths) == 1 else 0

    @cached_property
    def biases(self) -> dict[str, int]:
        """The biases by the choices of programs that leave some out."""
        sums = dict.fromkeys(("biases of linear layers", "biases of norms", "biases"), 0)
        for x in fold(self.tree):
            if x.weight.role == "bias" and not x.weight.tied and not x.weight.buffer:
                size = int(x.weight.parameters) * int(x.copies)
                sums["biases of norms" if x.group == "norm" else "biases of linear layers"] += size
                sums["biases"] += size
        return sums if all(sums.values()) else {"biases": sums["biases"]}

    @cached_property
    def mtp(self) -> dict[str, int]:
        """The multi-token-prediction layers: their own elements, the tied ones that files store
        again, and the FP8 scales.
        """
        if self.tree.mtp is None:
            return {}
        leaves = [
            (x, int(x.copies) * int(n))
            for block, n in self.tree.mtp.distinct()
            for x in fold(block)
        ]
        linear = [
            (x, n)
            for x, n in leaves
            if _matrix_kind(x) in LINEAR_KINDS
            and not x.weight.tied
            and x.pattern.split(".")[0] in ("attn", "mlp")
        ]
        return {
            "own": sum(int(x.weight.parameters) * n for x, n in leaves),
            "again": sum(int(x.weight.size) * n for x, n in leaves if x.weight.tied),
            "scales": sum(
                SCALE_LAYOUTS["blocks of 128×128"].elements(*map(int, x.weight.shape)) * n
                for x, n in linear
            ),
        }


def layer_formula(block: Block) -> Expr:
    """Return the parameters of one layer as a formula."""
    return total(product((x.copies, x.weight.parameters)) for x in fold(block))


def _outside_kind(x: Folded) -> str:
    if x.group == "embedding":
        return "positions"
    if x.group == "norm":
        return "final_norm" if x.pattern.startswith("norm.") else "norm"
    return "rest"


def _layer_kind(block: Block, times: int) -> LayerKind:
    sums, inactive = dict.fromkeys(_MATRIX_KINDS, 0), 0
    for x in fold(block):
        size = int(x.weight.parameters)
        sums[_matrix_kind(x)] += size * int(x.copies)
        inactive += size * int(x.copies) - int(x.weight.active_parameters) * int(x.active)
    attn = getattr(block, "attn", None)
    heads, kv_heads = (
        (int(attn.heads), int(attn.kv_heads))
        if isinstance(attn, Attention) and attn.k is not None
        else (0, 0)
    )
    rope = attn.rope if isinstance(attn, (Attention, LatentAttention)) else None
    kv_width = (
        int(attn.kv_heads) * int(attn.head_dim)
        if isinstance(attn, Attention) and attn.k is not None
        else 0
    )
    rotary = int(rope.dim) // 2 if rope is not None else 0
    return LayerKind(
        block, times, tuple(sums.values()), heads, kv_heads, rotary, inactive, kv_width
    )


def _matrix_kind(x: Folded) -> str:
    if x.weight.buffer:
        return "buffer"
    if x.group == "norm":
        return "norm"
    key = x.pattern.startswith(("attn.k.", "attn.v."))
    if x.weight.role != "matmul" or len(x.weight.shape) != 2 or x.pattern.endswith("conv.weight"):
        return "kv_bias" if key else "rest"
    if key:
        return "kv"
    return {"mixer": "attention", "mtp": "attention"}.get(
        x.group, x.group if x.group in _MATRIX_KINDS else "rest"
    )
