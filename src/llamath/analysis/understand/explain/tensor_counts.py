"""How many tensors the files of a model hold: numbers that are too small for parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import log2
from typing import NamedTuple

from ....checkpoint.gguf_metadata.gguf_rope import rotary_factors
from ....checkpoint.naming.scheme import Scheme, UnnamedWeight, fused_scheme
from ....core.blocks import AttentionBase, Decoder
from ....core.positions import Rope
from ....core.tree import Folded, Stack, fold
from ....model import FamilyModel
from .explain_base import BaseModel
from .known_numbers import KnownNumber

MOST_TENSORS = 200_000
"""A larger number is one of parameters."""
_FILE_BITS, _MEMORY_BITS, _OLD_BITS = 1.0, 2.0, 2.0
_KEPT_FREQUENCIES, _KEPT_UNTIL = "llama", "2024"
"""The family whose files of 2023 have the rotary frequencies of each layer."""


class TensorCount(NamedTuple):
    """The number of tensors of a model in one form."""

    form: str
    number: int
    formula: str
    bits: float


def tensor_counts(model: FamilyModel) -> Iterator[TensorCount]:
    """Yield how many tensors a model has in Hugging Face's files, in GGUF files, and in the memory
    of transformers 5, where the experts of a layer are two tensors.
    """
    hf, gguf, tree = model.family.hf, model.family.gguf, model.tree
    has_experts = any(x.num_experts for x in fold(tree))
    for form, scheme, bits in (
        ("Hugging Face's files", hf, _FILE_BITS),
        ("a GGUF file", gguf, _FILE_BITS),
        ("the memory of transformers 5", fused_scheme(hf) if has_experts else None, _MEMORY_BITS),
    ):
        if scheme is None:
            continue
        try:
            terms = list(_terms(tree, scheme))
        except UnnamedWeight:
            continue
        number, formula = sum(n * times for n, times in terms), _formula(terms)
        if scheme is gguf and (names := rotary_factors(_rope(tree))):
            number, formula = number + len(names), f"{formula} + {len(names)}"
            form += f", with {' and '.join(names)}"
        yield TensorCount(form, number, formula, bits)
        rope = _rope(tree)
        if scheme is hf and _keeps_frequencies(model) and rope and not rope.scaling:
            old = f"{form} of 2023, with rotary_emb.inv_freq in each layer"
            layers = len(tree.layers)
            yield TensorCount(old, number + layers, f"{formula} + {layers}", _OLD_BITS)
        if tree.mtp is not None and scheme is hf:
            more = sum(1 for _ in scheme.mtp_tensors(tree))
            mtp = f"{form}, with the multi-token-prediction layers"
            yield TensorCount(mtp, number + more, f"{formula} + {more}", bits)


def _keeps_frequencies(model: FamilyModel) -> bool:
    """Whether files of the model may have the rotary frequencies of each layer: not those of a
    later model.
    """
    released = model.preset.released if model.preset is not None else None
    return model.family.name == _KEPT_FREQUENCIES and (released or "") < _KEPT_UNTIL


def known_tensor_counts(
    number: int, models: Iterable[tuple[FamilyModel, BaseModel]], is_named: bool
) -> list[KnownNumber]:
    """Return the models that have this number of tensors."""
    found: dict[tuple[str, str], tuple[float, list[BaseModel]]] = {}
    every = list(models)
    for model, base in every:
        same = [x for x in tensor_counts(model) if x.number == number]
        if same:
            forms = " or in ".join(x.form for x in same)
            key = f"tensors in {forms}", same[0].formula
            found.setdefault(key, (min(x.bits for x in same), []))[1].append(base)
    result = []
    for (what, formula), (bits, bases) in found.items():
        more = 0.0 if is_named else log2(len(every) / len(bases))
        also = tuple(x.name for x in bases[1:])
        result.append(KnownNumber(bases[0], also, what, formula, bits + more))
    return sorted(result, key=lambda x: x.bits)


def _rope(tree: Decoder) -> Rope | None:
    """Return the rotary positions of the layers without a window, or else of the first ones."""
    mixers = [getattr(x, "attn", None) for x, _ in tree.layers.distinct()]
    attentions = [x for x in mixers if isinstance(x, AttentionBase)]
    full = [x for x in attentions if x.window.max_lookback is None]
    return next((x.rope for x in (*full, *attentions) if x.rope is not None), None)


def _terms(tree: Decoder, scheme: Scheme) -> Iterator[tuple[int, int]]:
    """Yield the tensors of each kind of layer and how many layers are of it, and those outside."""
    for block, layers in tree.layers.distinct():
        inside = [
            x._replace(pattern=f"layers.{{l}}.{x.pattern.replace('{l}', '{e}')}")
            for x in fold(block)
        ]
        yield _count(inside, scheme), int(layers)
    outside = (x for x in fold(tree.replace(layers=Stack())) if not x.pattern.startswith("mtp."))
    yield _count(outside, scheme), 1


def _count(leaves: Iterable[Folded], scheme: Scheme) -> int:
    """Return how many tensors hold these weights: fused ones are one, and so are experts whose
    stored name has no number.
    """
    copies: dict[str, dict[str, int]] = {}
    for x in leaves:
        if not x.weight.tied:
            stored = scheme.stored_name(x.pattern)
            is_stacked = "{e}" in x.pattern and "{e}" not in stored
            same = copies.setdefault(stored, {})
            same[x.pattern] = 1 if is_stacked else same.get(x.pattern, 0) + int(x.copies)
    return sum(max(x.values()) for x in copies.values())


def _formula(terms: Iterable[tuple[int, int]]) -> str:
    return " + ".join(f"{times}·{n}" if times > 1 else str(n) for n, times in terms)
