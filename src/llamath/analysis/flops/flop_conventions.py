"""The formulas by which published figures count the FLOPs of training, beside the exact count: what an MFU means depends on them.

Each gives the FLOPs of one training step per token, forward and backward, as an expression. N is the parameters (a tied matrix once), Na
those that a token passes, Nb these without embeddings and head, Np without learned positions. Where a formula has H·Q·T, it is the heads
of the tree that are taken; the states of other mixers are in none of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from ...core.blocks import Decoder
from ...core.expr import Dim, product, total
from ...core.forward_pass import AttentionBase, ForwardPass
from ...core.record_type import Record
from ...core.tree import fold, fold_blocks
from .flop_count import forward_flops


class Convention(Record):
    """One way to count."""

    name: str
    title: str
    train: Dim  # FLOPs per token of a training step
    source: str
    says: str  # what it counts and what it leaves out
    hardware: bool = False  # what is worked out again counts too

    def ratio(self, exact: Fraction) -> Fraction:
        """What it gives over an exact count per token."""
        return Fraction(int(self.train)) / exact


def conventions(tree: Decoder, tokens: int) -> tuple[Convention, ...]:
    """All of them, for sequences of so many tokens."""
    return (*_by_parameters(tree, tokens), *_by_shapes(tree, tokens))


def _by_parameters(tree: Decoder, tokens: int) -> Iterator[Convention]:
    """Those that multiply a number of parameters, of which there are several."""
    N, active, inner, unplaced = _parameter_counts(tree)
    attention = _attention(tree, tokens)
    yield Convention(
        name="kaplan",
        title="6N, without embeddings and head",
        train=6 * inner,
        source="Kaplan et al. 2020, arXiv:2001.08361, §2.1",
        says="Nb: the parameters a token passes, without embeddings and head; 2N of it forward; attention's products left out",
    )
    yield Convention(
        name="kaplan-context",
        title="6N and attention over half the context",
        train=6 * inner + _halved(attention),
        source="Kaplan et al. 2020, arXiv:2001.08361, table 1: 2·L·T·Hh forward for attention's products",
        says="the same with attention's products over half of the context",
    )
    yield Convention(
        name="6n",
        title="6N, N all parameters",
        train=6 * N,
        source="Hoffmann et al. 2022, arXiv:2203.15556, §3.3; Llama 3, arXiv:2407.21783, §3.2: 3.8·10²⁵ for 405B and 15.6T tokens",
        says="N: every parameter, embeddings too; attention's products left out",
    )
    if int(active) != int(N):
        yield Convention(
            name="6n-active",
            title="6N, N those that a token passes",
            train=6 * active,
            source="usual for mixtures of experts",
            says="Na: the parameters that a token passes, embeddings too",
        )
    yield Convention(
        name="palm",
        title="PaLM, appendix B",
        train=6 * active + attention,
        source="Chowdhery et al. 2022, arXiv:2204.02311, appendix B",
        says="parameters that a token passes, embeddings too, and attention's products over the whole context",
    )
    yield Convention(
        name="nanogpt",
        title="nanoGPT",
        train=6 * unplaced + attention,
        source="nanoGPT, GPT.estimate_mfu",
        says="PaLM's, without learned positions",
    )


def _by_shapes(tree: Decoder, tokens: int) -> Iterator[Convention]:
    """Those that multiply sizes."""
    d, V, L, T = Dim("d", tree.width), Dim("V", tree.vocab), Dim("L", int(tree.layers.n)), Dim("T", tokens)
    yield Convention(
        name="megatron",
        title="Megatron (SC21), every layer recomputed",
        train=96 * L * d * d + 16 * L * d * T + 6 * d * V,
        source="Narayanan et al. 2021, arXiv:2104.04473, appendix: 96·B·s·l·h²·(1 + s/6h + V/16lh)",
        says="a classic transformer of this width (heads d wide, an MLP of 4d) that recomputes every layer, whatever the model is",
        hardware=True,
    )
    yield Convention(
        name="megatron-model",
        title="the same formula, nothing recomputed",
        train=72 * L * d * d + 12 * L * d * T + 6 * d * V,
        source="Korthikanti et al. 2022, arXiv:2205.05198, appendix A: 72·B·L·s·h²·(1 + s/6h + v/12hL)",
        says="the same without recomputation",
    )
    yield Convention(
        name="megatron-selective",
        title="the same formula, attention repeated",
        train=72 * L * d * d + 24 * L * d * T + 6 * d * V,
        source="Korthikanti et al. 2022, arXiv:2205.05198, appendix A: 72·B·L·s·h²·(1 + s/3h + v/12hL)",
        says="as printed: attention's products twice over, backward too; what repeating their forward pass adds is a third of that",
        hardware=True,
    )
    weights = forward_flops(tree, ForwardPass(tokens=1, context=1)).weights
    yield Convention(
        name="megatron-lm",
        title="what Megatron-LM logs today",
        train=total(3 * x for group, x in weights.items() if group != "router") + _halved(_attention(tree, tokens)),
        source="Megatron-LM, megatron/training/training.py, num_floating_point_operations",
        says="the matrices that a token meets, grouped queries, gated MLPs and chosen experts as they are, no router; half of the context",
    )


def _parameter_counts(tree: Decoder) -> tuple[Dim, Dim, Dim, Dim]:
    """All parameters; those that a token passes; of these, without embeddings and head; and without learned positions."""
    everything = active = inner = places = 0
    for x in fold(tree):
        live = int(x.weight.parameters) * int(x.active)
        everything += int(x.weight.parameters) * int(x.copies)
        active += live
        inner += 0 if x.group in ("embedding", "head") else live
        places += live if x.pattern.startswith("positions.") else 0
    same = active == everything
    return (
        Dim("N", everything),
        Dim("N" if same else "Na", active),
        Dim("Nb", inner),
        Dim("Np" if places else "N" if same else "Na", active - places),
    )


def _attention(tree: Decoder, tokens: int) -> Dim:
    """3 · 2 · (a score and its share of a value) for each of the context's tokens: PaLM's 12·L·H·Q·T, in the tree's letters."""
    pairs = [(x.active, sum(x.block.flops_per_pair(), Dim.const(0))) for x in fold_blocks(tree) if isinstance(x.block, AttentionBase)]
    return total(product((3, live, pair, Dim("T", tokens))) for live, pair in pairs)


def _halved(attention: Dim) -> Dim:
    return Dim.of({letters: k // 2 for letters, k in attention.terms.items()})
