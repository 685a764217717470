"""The conventions by which publications count training FLOPs, next to the exact count; an MFU
depends on the convention.

Each gives the FLOPs per token of one training step, forward and backward, as a formula. N is all
parameters (a tied matrix once), Na the active ones, Nb the active ones without embeddings and head,
Np the active ones without learned positions. H·Q·T uses the model's actual heads; the states of
recurrent mixers are in none of the conventions.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from ...core.blocks import Decoder
from ...core.expr import Expr, product, total
from ...core.extensions.encoder_decoder import ENCODER, EncoderDecoder
from ...core.tree import fold
from ...utils.record_type import Record
from .flop_count import forward_flops
from .recorder import Graph, record


class Convention(Record):
    """One convention."""

    name: str
    title: str
    train: Expr  # FLOPs per token of a training step
    source: str
    says: str  # the terms that are counted and left out
    hardware: bool = False  # recomputation is counted (HFU)

    def ratio(self, exact: Fraction) -> Fraction:
        """Return the convention's count relative to an exact count per token."""
        return Fraction(int(self.train)) / exact


def conventions(tree: Decoder, tokens: int) -> tuple[Convention, ...]:
    """Return all conventions for sequences of `tokens` tokens."""
    one_token = record(
        tree, batch=Expr.const(1), new_tokens=Expr.const(1), past_tokens=Expr.const(0)
    )
    attention = _attention(one_token, tokens)
    return (*_by_parameters(tree, attention), *_by_shapes(one_token, attention, tokens))


def _by_parameters(tree: Decoder, attention: Expr) -> Iterator[Convention]:
    """The conventions that multiply a number of parameters."""
    N, active, blocks, without_positions = _parameter_counts(tree)
    yield Convention(
        name="kaplan",
        title="6N, without embeddings and head",
        train=6 * blocks,
        source="Kaplan et al. 2020, arXiv:2001.08361, §2.1",
        says="Nb: active parameters without embeddings and head, 2N of them forward; no "
        "attention products",
    )
    yield Convention(
        name="kaplan-context",
        title="6N and attention over half the context",
        train=6 * blocks + _halved(attention),
        source="Kaplan et al. 2020, arXiv:2001.08361, table 1: 2·L·T·Hh forward for attention's "
        "products",
        says="as kaplan, with attention products over half of the context",
    )
    yield Convention(
        name="6n",
        title="6N, N all parameters",
        train=6 * N,
        source="Hoffmann et al. 2022, arXiv:2203.15556, §3.3; Llama 3, arXiv:2407.21783, §3.2: "
        "3.8·10²⁵ for 405B and 15.6T tokens",
        says="N: all parameters including embeddings; no attention products",
    )
    if int(active) != int(N):
        yield Convention(
            name="6n-active",
            title="6N, N active parameters",
            train=6 * active,
            source="common for MoE models",
            says="Na: active parameters including embeddings",
        )
    yield Convention(
        name="palm",
        title="PaLM, appendix B",
        train=6 * active + attention,
        source="Chowdhery et al. 2022, arXiv:2204.02311, appendix B",
        says="active parameters including embeddings, and attention products over the whole "
        "context",
    )
    yield Convention(
        name="nanogpt",
        title="nanoGPT",
        train=6 * without_positions + attention,
        source="nanoGPT, GPT.estimate_mfu",
        says="as palm, without learned positions",
    )


def _by_shapes(one_token: Graph, attention: Expr, tokens: int) -> Iterator[Convention]:
    """The conventions that multiply dimensions."""
    tree = one_token.tree
    d, V, L, T = (
        Expr("d", tree.width),
        Expr("V", tree.vocab),
        Expr("L", int(tree.layers.n)),
        Expr("T", tokens),
    )
    weights = forward_flops(one_token).weights
    log = Convention(
        name="megatron-lm",
        title="Megatron-LM's log",
        train=total(3 * x for group, x in weights.items() if group != "router")
        + _halved(attention),
        source="Megatron-LM, megatron/training/training.py, num_floating_point_operations",
        says="active matrices with actual GQA, gated MLPs and experts, without routers; "
        "attention over half of the context",
    )
    if isinstance(tree, EncoderDecoder):  # the other formulas are of one stack of layers
        yield log
        return
    yield Convention(
        name="megatron",
        title="Megatron (SC21), every layer recomputed",
        train=96 * L * d * d + 16 * L * d * T + 6 * d * V,
        source="Narayanan et al. 2021, arXiv:2104.04473, appendix: 96·B·s·l·h²·(1 + s/6h + V/16lh)",
        says="a classic transformer of this width (heads × head_dim = d, MLP of 4d) with full "
        "recomputation, whatever the model is",
        hardware=True,
    )
    yield Convention(
        name="megatron-model",
        title="Megatron, no recomputation",
        train=72 * L * d * d + 12 * L * d * T + 6 * d * V,
        source="Korthikanti et al. 2022, arXiv:2205.05198, appendix A: 72·B·L·s·h²·(1 + s/6h + "
        "v/12hL)",
        says="as megatron, without recomputation",
    )
    yield Convention(
        name="megatron-selective",
        title="Megatron, selective recomputation",
        train=72 * L * d * d + 24 * L * d * T + 6 * d * V,
        source="Korthikanti et al. 2022, arXiv:2205.05198, appendix A: 72·B·L·s·h²·(1 + s/3h + "
        "v/12hL)",
        says="as printed: attention products twice, forward and backward; recomputing only their "
        "forward pass adds a third of that",
        hardware=True,
    )
    yield log


def _parameter_counts(tree: Decoder) -> tuple[Expr, Expr, Expr, Expr]:
    """Return all parameters, active ones, active without embeddings and head, and active without
    learned positions.
    """
    everything = active = inner = position_elements = 0
    for x in fold(tree):
        active_elements = int(x.weight.active_parameters) * int(x.active)
        everything += int(x.weight.parameters) * int(x.copies)
        active += active_elements
        inner += 0 if x.group in ("embedding", "head") else active_elements
        position_elements += (
            active_elements if x.pattern.startswith(("positions.", f"{ENCODER}.positions.")) else 0
        )
    same = active == everything
    return (
        Expr("N", everything),
        Expr("N" if same else "Na", active),
        Expr("Nb", inner),
        Expr("Np" if position_elements else "N" if same else "Na", active - position_elements),
    )


def _attention(one_token: Graph, tokens: int) -> Expr:
    """Return PaLM's 12·L·H·Q·T in the tree's letters: three times the FLOPs of one query over
    the whole context.
    """
    pairs = forward_flops(one_token, masked=False).mixing.get("attention", Expr.const(0))
    return product((3, pairs, Expr("T", tokens)))


def _halved(attention: Expr) -> Expr:
    return Expr.of({letters: k // 2 for letters, k in attention.terms.items()})
