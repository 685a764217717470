"""`compare_natively`: the logits of two checkpoints on the same tokens, and the hidden states
after each layer, without torch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..analysis.check.verify.divergence import Divergence, divergence_statistics
from ..analysis.check.verify.logits_agreement import (
    ComparedCheckpoint,
    FirstDifference,
    LogitsComparison,
    tree_differences,
)
from ..analysis.check.verify.verified_checkpoint import VerifiedCheckpoint
from ..checkpoint.formats.dtypes import parse_dtype
from ..generation.stored_dtypes import count_dtypes
from .engine import NativeSession, Row
from .native_operations import LayerEnd
from .native_session import load_native

_CHUNK = 64
"""Tokens of a pass."""


class NativeOutputs(NamedTuple):
    """What a checkpoint computes for some tokens."""

    side: ComparedCheckpoint
    checkpoint: VerifiedCheckpoint
    dtype: str
    logits: Any  # numpy, (T, V)
    layers: Any  # numpy, (L, T, d): the hidden states after each layer


def compute_outputs(
    checkpoint: VerifiedCheckpoint, tokens: Sequence[int], dtype: str
) -> NativeOutputs:
    """Run a checkpoint on these tokens; its weights are released."""
    import numpy as np

    model, _files, _store = load_native(
        checkpoint,
        parse_dtype(dtype, ("F32", "F16", "BF16"), "computation").short_name,
        stored_pairs=False,
    )
    count = len(tokens) if model.has_length_dependent_rope else min(_CHUNK, len(tokens))
    session = NativeSession(model, 1, count)
    session.reserve(len(tokens), 0)
    width = next((op.x.size for op in model.program.ops if isinstance(op, LayerEnd)), 0)
    logits, layers = [], []
    for first in range(0, len(tokens), count):
        part = list(tokens[first : first + count])
        states = np.empty((len(model.tree.layers), len(part), width), np.float32)
        rows = session.run(
            [Row(0, part, first)], all_logits=True, layers=(int(states.ctypes.data), states.size)
        )
        found: Any = (ctypes.c_float * (rows * model.kept_logits)).from_address(
            session.logits_address(0)
        )
        logits.append(np.frombuffer(found, np.float32).reshape(rows, -1).copy())
        layers.append(states)
    stored = count_dtypes(checkpoint).most_common(1)[0][0]
    side = ComparedCheckpoint(
        name=checkpoint.path,
        model=checkpoint.model.name,
        family=checkpoint.model.family.name,
        parameters=checkpoint.model.parameters.total,
        format=checkpoint.manifest.format,
        names=checkpoint.scheme.name,
        dtype=stored,
        notes=checkpoint.notes,
    )
    return NativeOutputs(
        side, checkpoint, model.dtype, np.concatenate(logits), np.concatenate(layers, 1)
    )


def compare_natively(
    a: NativeOutputs, b: NativeOutputs, tokens: Sequence[int], text: str, tolerance: float
) -> LogitsComparison:
    """Compare two checkpoints; `text` is the text of the tokens, or empty for token ids."""
    import numpy as np

    width = min(a.logits.shape[1], b.logits.shape[1])
    ours, theirs = (_log_softmax(x.logits[:, :width]) for x in (a, b))
    difference = np.abs(a.logits[:, :width].astype(np.float64) - b.logits[:, :width])
    divergence = (np.exp(ours) * (ours - theirs)).sum(1)
    gaps = _layer_gaps(a, b)
    first = next((i for i, x in enumerate(gaps) if x > tolerance), None)
    result = LogitsComparison(
        a=a.side,
        b=b.side,
        tokens=tuple(tokens),
        text=text,
        dtype={"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}[a.dtype],
        tolerance=tolerance,
        largest_logit=float(np.abs(a.logits[:, :width]).max()),
        max_difference=float(difference.max()),
        mean_difference=float(difference.mean()),
        kl_mean=max(0.0, float(divergence.mean())),
        kl_max=max(0.0, float(divergence.max())),
        same_top1=int((ours.argmax(1) == theirs.argmax(1)).sum()),
        losses=(_loss(ours, tokens), _loss(theirs, tokens)) if text else None,
        layers=tuple(gaps),
        first=None
        if first is None
        else FirstDifference(module=f"layers.{first}", difference=gaps[first], layer=first),
        divergence=_divergence(ours, theirs, tokens) if len(tokens) > 1 else None,
    )
    if result.same:
        return result
    facts = tree_differences(a.checkpoint.model.tree, b.checkpoint.model.tree)
    return result.replace(
        facts=facts, hints=("the configs differ, as listed above",) if facts else ()
    )


def _log_softmax(x: Any) -> Any:
    import numpy as np

    x = x.astype(np.float64)
    x -= x.max(1, keepdims=True)
    return x - np.log(np.exp(x).sum(1, keepdims=True))


def _layer_gaps(a: NativeOutputs, b: NativeOutputs) -> list[float]:
    """Return the largest difference of the hidden state after each layer that both have,
    relative to the largest value.
    """
    import numpy as np

    gaps = []
    for x, y in zip(a.layers, b.layers, strict=False):
        if x.shape == y.shape:
            largest, gap = float(np.abs(x).max()), float(np.abs(x - y).max())
            gaps.append(gap / largest if largest else float(gap > 0))
    return gaps


def _loss(logprobs: Any, tokens: Sequence[int]) -> float:
    """Mean cross-entropy of the next tokens, in nats."""
    import numpy as np

    return (
        -float(logprobs[np.arange(len(tokens) - 1), tokens[1:]].mean()) if len(tokens) > 1 else 0.0
    )


def _divergence(ours: Any, theirs: Any, tokens: Sequence[int]) -> Divergence:
    """Measure how far the next-token probabilities are apart, at each token that another one
    follows.
    """
    import numpy as np

    x, y, rows = ours[:-1], theirs[:-1], np.arange(len(tokens) - 1)
    of_a, of_b = x[rows, tokens[1:]], y[rows, tokens[1:]]
    kld = (np.exp(x) * (x - y)).sum(1)
    same_top = int((x.argmax(1) == y.argmax(1)).sum())
    kld, p_a, p_b, nll_a, nll_b = (
        c.tolist() for c in (kld, np.exp(of_a), np.exp(of_b), -of_a, -of_b)
    )
    return divergence_statistics(kld, p_a, p_b, nll_a, nll_b, same_top)
