"""What the loss holds: logits, what cross-entropy saves, and gradients, of all tokens at once or of
one chunk of them at a time.

- `whole`: transformers and Megatron. The model returns all logits, which stay referenced until the
  end of the step.
- `chunked:N`: torchtitan's `ChunkedCELoss` (N is 8 by default). Head, loss and their backward pass
  run for one of N parts of every sequence before the next; the gradients of the hidden states are
  gathered in float32.
- `summed:N`: torchtune's `LinearCrossEntropyLoss` (N is 8 by default). The losses of the chunks are
  summed before one backward pass, so that the log-probabilities of every chunk stay until then; a
  fused kernel, such as torch.compile's, keeps the logits instead.
- `fused`: one kernel for cross-entropy, as in FlashAttention's and Apex's libraries. It saves the
  logits as they are and one number for each token, and writes the gradients of the logits in their
  dtype.
- `liger`: Liger Kernel's fused linear cross-entropy (Hsu et al. 2024, arXiv:2410.10989). A kernel
  overwrites the logits of a chunk with their gradients during the forward pass, which keeps the
  gradients of the hidden states and of the head. A chunk has 2^⌈log₂⌈tokens / ⌈vocabulary /
  width⌉⌉⌉ tokens. The gradient of a trained head is copied to float32 for each chunk, as in its
  releases; its newest source adds it without a copy on GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from ....core.expr import Expr, ceil_div, maximum, minimum, product
from ....questions.layout import Layout
from ....utils.errors import ArgumentError, safe
from ...graph.node import FLOAT32
from ...graph.operations.saved_tensors import SavedTensor
from .pipeline_schedule import StageActivations, saved_bytes, saved_elements

DEFAULT_CHUNKS, MAX_CHUNKS = 8, 2**20
FLOAT32_BYTES = FLOAT32
LOSSES = ("whole", "fused", "chunked", "chunked:16", "summed", "summed:16", "liger")
"""Ways to write a loss."""


class Loss(NamedTuple):
    """How the loss is computed; `chunks` is the number of parts of each sequence."""

    kind: Literal["whole", "fused", "chunked", "summed", "liger"] = "whole"
    chunks: int = 1


_WITHOUT_CHUNKS = {"whole": Loss("whole"), "fused": Loss("fused"), "liger": Loss("liger")}


class HeadSizes(NamedTuple):
    """The head of a model in a training step."""

    width: int  # of the hidden states
    bytes: int  # per weight and activation
    is_trained: bool  # its weight has a gradient
    gradient_bytes: int  # per logit, of the gradients that exist at once outside of Liger's kernel


class LossPart(NamedTuple):
    """One kind of tensor, as a line of the report."""

    what: str
    bytes: int
    note: str = ""
    exact: bool = True
    freed: bool = True  # before the first layer's backward pass


def parse_loss(text: str, argument: str = "loss") -> Loss:
    """Read `whole`, `fused`, `chunked`, `chunked:16`, `summed`, `summed:16` or `liger`."""
    if text in _WITHOUT_CHUNKS:
        return _WITHOUT_CHUNKS[text]
    if match := re.fullmatch(r"(chunked|summed)(?::([1-9]\d{0,7}))?", text, re.ASCII):
        chunks = int(match[2] or DEFAULT_CHUNKS)
        if chunks <= MAX_CHUNKS:
            return Loss("chunked" if match[1] == "chunked" else "summed", chunks)
    raise ArgumentError(
        argument, f": unknown loss {safe(repr(text), 40)}", hint=f"it is one of {', '.join(LOSSES)}"
    )


def loss_text(name: str) -> str:
    """Return how the loss is computed: `, loss in 8 chunks`; nothing for the whole at once."""
    loss = parse_loss(name)
    chunks = f"{loss.chunks:,} chunks"
    names = {
        "whole": "",
        "fused": ", fused cross-entropy",
        "chunked": f", loss in {chunks}",
        "summed": f", loss summed over {chunks}",
        "liger": ", Liger's fused loss",
    }
    return names[loss.kind]


def loss_parts(
    loss: Loss, flow: StageActivations, head: HeadSizes, layout: Layout, context: int
) -> Iterator[LossPart]:
    """Yield what the loss of a microbatch holds on a GPU of the last stage; expressions if the
    context is one.
    """
    if not flow.loss:
        return
    if loss.kind in ("liger", "summed"):
        yield from (_liger_parts if loss.kind == "liger" else _summed_parts)(
            loss, flow, head, layout, context
        )
        return
    if loss.kind == "fused":
        logits = saved_elements(flow.loss[0].saved, layout, context)
        yield LossPart(
            "logits", _times(logits, head.bytes), "which cross-entropy saves", freed=False
        )
        for x in flow.loss[1:]:
            yield LossPart(
                x.saved.what,
                x.times * saved_bytes(x.saved, layout, context),
                exact=not x.saved.estimated,
            )
        yield LossPart(
            "sums of softmax",
            _times(layout.microbatch * ceil_div(context, layout.cp), FLOAT32),
            freed=False,
        )
        yield LossPart(
            "gradients of the logits", _times(logits, head.bytes), "by one kernel", exact=False
        )
        return
    tokens = (
        context if loss.kind == "whole" else ceil_div(ceil_div(context, layout.cp), loss.chunks)
    )
    spread = layout if loss.kind == "whole" else layout.replace(cp=1)
    sizes = [x.times * saved_bytes(x.saved, spread, tokens) for x in flow.loss]
    yield from (
        LossPart(x.saved.what, n, exact=not x.saved.estimated)
        for x, n in zip(flow.loss, sizes, strict=True)
    )
    logits = saved_elements(flow.loss[0].saved, spread, tokens)
    gradients = _times(logits, head.gradient_bytes)
    in_place = "in place" if head.gradient_bytes == FLOAT32 else "of loss and softmax, both in fp32"
    if loss.kind == "whole":
        yield LossPart(
            "logits",
            _times(logits, head.bytes),
            "while the model's output is referenced",
            freed=False,
        )
        yield LossPart("gradients of the logits", gradients, in_place, exact=False)
        return
    yield LossPart("logits", _times(logits, head.bytes), "of one chunk")
    yield LossPart("gradients of the logits", gradients, f"of one chunk, {in_place}", exact=False)
    hidden = _times(layout.microbatch * ceil_div(context, layout.cp), head.width)
    yield LossPart("gradients of hidden states", _times(hidden, FLOAT32), "of all chunks, in fp32")
    if head.is_trained:  # computed when the loss and the gradients in fp32 of its chunk are gone
        needed = Expr.const(_head_gradient(flow, head, layout)) + Expr.const(
            _times(logits, head.bytes)
        )
        extra = maximum(needed - Expr.const(sum(sizes[1:], sizes[0])) - Expr.const(gradients), 0)
        yield LossPart(
            "gradient of the head",
            int(extra),
            "of one chunk, beyond the memory that its loss has freed",
        )


def _summed_parts(
    loss: Loss, flow: StageActivations, head: HeadSizes, layout: Layout, context: int
) -> Iterator[LossPart]:
    fused, spread = head.gradient_bytes == FLOAT32, layout.replace(cp=1)
    part = ceil_div(ceil_div(context, layout.cp), loss.chunks)
    every, logits = (
        saved_elements(flow.loss[0].saved, at, n) for at, n in ((layout, context), (spread, part))
    )
    if fused:
        yield LossPart(
            "logits", _times(every, head.bytes), "of all chunks, which a fused kernel keeps"
        )
        kept, gradients = _times(logits, head.bytes), _times(logits, head.bytes)
    else:
        for x in flow.loss:
            yield LossPart(
                x.saved.what,
                x.times * saved_bytes(x.saved, layout, context),
                "of all chunks",
                exact=not x.saved.estimated,
            )
        sizes = [x.times * saved_bytes(x.saved, spread, part) for x in flow.loss]
        kept, gradients = sum(sizes[1:], sizes[0]), _times(logits, head.gradient_bytes)
    yield LossPart("gradients of the logits", gradients, "of one chunk", exact=False)
    if head.is_trained:
        gradient = _head_gradient(flow, head, layout)
        # autograd adds the gradients of two chunks to a third tensor, when what the chunks saved is
        # gone
        if loss.chunks > 1:
            needed, gone = Expr.const(_times(gradient, 3)), Expr.const(_times(kept, 2))
        else:
            needed, gone = (
                Expr.const(gradient) + Expr.const(_times(logits, head.bytes)),
                Expr.const(kept),
            )
        extra = maximum(needed - gone - Expr.const(gradients), 0)
        yield LossPart(
            "gradient of the head",
            int(extra),
            "of two chunks and their sum, beyond the memory that their loss has freed",
        )


def _liger_parts(
    loss: Loss,  # noqa: ARG001
    flow: StageActivations,
    head: HeadSizes,
    layout: Layout,
    context: int,
) -> Iterator[LossPart]:
    tokens = layout.microbatch * ceil_div(context, layout.cp)
    vocabulary = flow.loss[0].saved.elements
    chunk = minimum(liger_chunk(int(tokens), int(vocabulary), head.width), int(tokens))
    yield LossPart(
        "logits",
        _times(product((Expr("chunk", chunk), vocabulary)), head.bytes),
        "of one chunk; they become their gradients",
    )
    yield LossPart("gradients of hidden states", _times(_times(tokens, head.width), head.bytes))
    yield LossPart("losses", _times(tokens, FLOAT32))
    if head.is_trained:
        gradient = _head_gradient(flow, head, layout)
        yield LossPart("gradient of the head", gradient, "until it is added to the others")
        copied = (
            gradient
            if head.bytes == FLOAT32
            else gradient + _times(_head_elements(flow, head, layout), FLOAT32)
        )
        yield LossPart(
            "gradient of the head, of a chunk",
            copied,
            "before it is added, which Liger does in fp32",
        )


def liger_chunk(tokens: int, vocabulary: int, width: int) -> int:
    """Return the tokens of a chunk by Liger's rule: the logits of a chunk are about as large as
    the hidden states of all tokens.
    """
    needed = -(-tokens // -(-vocabulary // width))
    return min(1 << (needed - 1).bit_length(), tokens)


def head_chunks(
    loss: Loss, saved: Sequence[SavedTensor], width: int, layout: Layout, context: int
) -> int:
    """Return the number of products that the head is computed in."""
    if loss.kind != "liger" or not saved:
        return loss.chunks
    tokens = layout.microbatch * -(-context // layout.cp)
    return -(-tokens // liger_chunk(tokens, int(saved[0].elements), width))


def _head_elements(flow: StageActivations, head: HeadSizes, layout: Layout) -> int:
    return _times(ceil_div(flow.loss[0].saved.elements, layout.tp), head.width)


def _head_gradient(flow: StageActivations, head: HeadSizes, layout: Layout) -> int:
    return _times(_head_elements(flow, head, layout), head.bytes)


def _times(a: int, b: int) -> int:
    return product((a, Expr.factor(b))) if isinstance(a, Expr) else a * b
