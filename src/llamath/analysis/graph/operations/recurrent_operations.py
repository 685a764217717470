"""Convolutions and recurrences: rows of operations with a state of fixed size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import Any, Literal

from ....core.expr import Expr, as_number, product
from ..node import FLOAT32, Node
from .elementwise_operations import describe_operand
from .operation import CachedTensor, Operation, StepPart, num_parts
from .saved_tensors import Kernels, Saved, estimate_mixer_inputs, own_tensor, save_mixer_inputs

# Steps and decays


def _describe_softplus(node: Node) -> str:
    """Describe the step size of a recurrence."""
    return (
        f"softplus({describe_operand(node.inputs[0])} + {node.weights[0].path.rpartition('.')[2]})"
    )


def _save_softplus(x: Node, k: Kernels) -> Iterator[Saved]:  # noqa: ARG001
    """Its input with the bias, in float32; and its result, if it is clamped."""
    clamped = x.attributes["minimum"] > 0 or x.attributes["maximum"] < inf
    yield own_tensor("mixer states", x, x.size * (2 if clamped else 1), FLOAT32)


def _save_bounded_decay(x: Node, k: Kernels) -> Iterator[Saved]:  # noqa: ARG001
    """The input with the bias, in float32, and the sigmoid."""
    yield own_tensor("mixer states", x, x.size * 2, FLOAT32)


softplus = Operation(
    name="softplus",
    dtype="float32",
    keeps_dtype=True,
    kind="act",
    step="softplus",
    description=_describe_softplus,
    saved=_save_softplus,
)
decay = Operation(
    name="decay",
    dtype="float32",
    keeps_dtype=True,
    kind="act",
    step="decay",
    description="decay of the state: −exp(a_log) · x",
    saved=save_mixer_inputs,
)
bounded_decay = Operation(
    name="bounded_decay",
    shape=lambda x, head_dim: (*x.shape[:-1], x.shape[-1].exact_div(head_dim), head_dim),
    dtype="float32",
    kind="act",
    step="decay",
    description=lambda node: (
        f"decay of the state: {node.attributes['bound']:g} · sigmoid(exp(a_log) · (x + dt_bias))"
    ),
    saved=_save_bounded_decay,
)

# Convolutions, and what looks back


def _conv_flops(node: Node, masked: bool) -> Expr:  # noqa: ARG001
    return product((2, *node.shape, node.weights[0].shape[1]))


def _cached_inputs(node: Node) -> CachedTensor:
    (channels, taps), split = node.weights[0].shape, node.weights[0].split
    dilation = node.attributes["dilation"]
    size = product((channels, taps if dilation == 1 else (taps - 1) * dilation))
    # in float32, or in the dtype of the cache
    kind: Literal["state", "conv"] = "state" if node.inputs[0].op.is_cast else "conv"
    return CachedTensor(
        kind=kind,
        description="short convolution's inputs",
        size=size,
        parts=as_number(split.parts) if split else 1,
    )


def _describe_causal_conv(node: Node) -> str:
    apart = "" if node.attributes["dilation"] == 1 else f", {node.attributes['dilation']} apart"
    tokens = as_number(node.weights[0].shape[1])
    return f"causal convolution over {tokens} tokens{apart} per channel"


causal_conv = Operation(
    name="causal_conv",
    flops=_conv_flops,
    cached=_cached_inputs,
    fuses_activation=True,
    kind="conv",
    description=_describe_causal_conv,
    saved=save_mixer_inputs,
)


def _cached_ids(node: Node) -> CachedTensor:
    """Return the last ids, each as large as a number of a state."""
    return CachedTensor(
        kind="state",
        description="last token ids",
        size=Expr.const(node.attributes["ngram_size"] - 1),
    )


def _describe_hash_ngrams(node: Node) -> str:
    """Describe the rows of a table for n-grams."""
    return (
        f"{int(node.shape[2])} hashes of the "
        f"{' and '.join(str(n) for n in range(2, node.attributes['ngram_size'] + 1))}-grams"
    )


hash_ngrams = Operation(
    name="hash_ngrams",
    shape=lambda m, sizes: (m.batch, m.new_tokens, sizes.shape[0]),
    dtype="int64",
    facts=lambda mixer: {"ngram_size": mixer.ngram_size},
    cached=_cached_ids,
    kind="choice",
    step="rows",
    description=_describe_hash_ngrams,
)

# Recurrences


def _delta_flops(node: Node, masked: bool) -> Expr:  # noqa: ARG001
    """Return the FLOPs of Sᵀk, the outer product added to S, and Sᵀq, in each value head."""
    return product((6, *node.shape[:-1], node.inputs[1].shape[-1], node.shape[-1]))


def _delta_state(node: Node) -> CachedTensor:
    size = product((node.shape[2], node.inputs[1].shape[-1], node.shape[-1]))
    return CachedTensor(
        kind="state", description="delta rule's state", size=size, parts=num_parts(node)
    )


def _delta_steps(node: Node, masked: bool) -> Iterator[StepPart]:
    """Yield the states of a gated delta rule, and what is read from them."""
    shape = (node.shape[0], node.shape[2], node.inputs[1].shape[-1], node.shape[-1])
    words, flops = "one state matrix per head, updated token by token", _delta_flops(node, masked)
    yield StepPart(
        name="state",
        kind="state",
        description=words,
        shape=shape,
        inputs=node.inputs,
        flops=flops,
        cached=_delta_state(node),
    )
    yield StepPart(name="read", kind="mix", description="Sᵀ q for each token", shape=node.shape)


gated_delta_rule = Operation(
    name="gated_delta_rule",
    shape=lambda v: v.shape,
    dtype="float32",
    has_state=True,
    flops=_delta_flops,
    mixing=True,
    cached=_delta_state,
    steps=_delta_steps,
    saved=estimate_mixer_inputs,
)


def _scan_flops(node: Node, masked: bool) -> Expr:  # noqa: ARG001
    """Return the FLOPs of the outer product added to S, and of what is read from S, in each
    head; of a channel of Mamba, S is one row.
    """
    return product((4, *node.shape, node.inputs[1].shape[-1]))


def _scan(name: str, owner: str, state: str, read: str, shape: Callable[..., Any]) -> Operation:
    """Return the row of a recurrence whose state is a sum of outer products, and of a factor."""

    def cached(node: Node) -> CachedTensor:
        size = product((*node.shape[2:], node.inputs[1].shape[-1]))
        return CachedTensor(
            kind="state", description=f"{owner}'s state", size=size, parts=num_parts(node)
        )

    def steps(node: Node, masked: bool) -> Iterator[StepPart]:
        yield StepPart(
            name="state",
            kind="state",
            description=f"{state}, updated token by token",
            shape=(node.shape[0], *node.shape[2:], node.inputs[1].shape[-1]),
            inputs=node.inputs,
            weights=node.weights,
            flops=_scan_flops(node, masked),
            cached=cached(node),
        )
        words = f"{read} for each token"
        yield StepPart(name="read", kind="mix", description=words, shape=node.shape)

    return Operation(
        name=name,
        shape=shape,
        dtype="float32",
        has_state=True,
        flops=_scan_flops,
        mixing=True,
        cached=cached,
        steps=steps,
        saved=estimate_mixer_inputs,
    )


_MATRIX = "one state matrix per head"
linear_attention = _scan(
    "linear_attention", "linear attention", _MATRIX, "Sᵀ q", shape=lambda v: v.shape
)
ssm_scan = _scan("ssm_scan", "Mamba-2", _MATRIX, "S c", shape=lambda x: x.shape)
selective_scan = _scan(
    "selective_scan", "Mamba", "one state per channel", "S c", shape=lambda x: x.shape
)
