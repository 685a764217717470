"""Generation on the native engine: the same text as torch, for batches, chunks, resumed conversations and random samples."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from llamath.generation.generation import GenerationLimits
from llamath.generation.sampling_parameters import Sampling
from llamath.native.native_generation import NativeGeneration
from llamath.torch import Decoder, Generation
from llamath.utils.errors import LlamathError
from support.native_models import native_model, random_module
from support.reference_data import tiny_configs

PROMPTS = [[5, 6, 7], list(range(5, 45)), [8], [9, 10, 11, 12]]


def module_of(family: str) -> Decoder:
    """A random module of a family."""
    return random_module(
        next(x for x in tiny_configs() if str(x.id).startswith(f"{family}-")).values[0]
    )


def tokens(generation: Any) -> list[list[int]]:
    """The generated tokens of each prompt."""
    assert all(piece.row >= 0 for piece in generation)
    return [row.ids for row in generation.rows]


FAMILIES = [
    "llama",
    "gemma2",
    "ministral",
    "qwen3_next",
    "mamba2",
    "gpt2",
    "deepseek_v3",
    "phi3",
    "gpt_oss",
]
"""Full attention, windows, states, learned positions, latent attention, rotary angles by length, sinks."""


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "how",
    [Sampling(), Sampling(temperature=0.8, top_k=20, top_p=0.9, seed=3, repetition_penalty=1.2)],
    ids=["greedy", "sampled"],
)
def test_batch_generates_the_tokens_of_torch(family: str, how: Sampling) -> None:
    module = module_of(family)
    model = native_model(module)
    limits = GenerationLimits(max_tokens=8, stop_ids=frozenset({3}))
    assert tokens(NativeGeneration(model, PROMPTS, how, limits)) == tokens(
        Generation(module, PROMPTS, how, limits)
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_chunks_and_growing_caches_change_nothing(family: str) -> None:
    model = native_model(module_of(family))
    limits = GenerationLimits(context=48)
    whole = tokens(NativeGeneration(model, PROMPTS, Sampling(), limits))
    assert (
        tokens(
            NativeGeneration(model, PROMPTS, Sampling(), limits, prefill_chunk=7, initial_margin=2)
        )
        == whole
    )
    for i, prompt in enumerate(PROMPTS):
        assert tokens(NativeGeneration(model, [prompt], Sampling(), limits)) == [whole[i]]


@pytest.mark.parametrize("family", FAMILIES)
def test_resumed_conversation_reads_only_new_tokens(family: str) -> None:
    model = native_model(module_of(family))
    limits = GenerationLimits(max_tokens=6)
    first = NativeGeneration(model, [[5, 6, 7, 8]], Sampling(), limits)
    answer = tokens(first)[0]
    longer = [5, 6, 7, 8, *answer, 9, 10]
    again = NativeGeneration(model, [longer], Sampling(), limits).resume(first.prefix_cache)
    assert tokens(again) == tokens(NativeGeneration(model, [longer], Sampling(), limits))
    shorter = [5, 6, 11]
    resumed = NativeGeneration(model, [shorter], Sampling(), limits).resume(again.prefix_cache)
    assert tokens(resumed) == tokens(NativeGeneration(model, [shorter], Sampling(), limits))


def test_log_probabilities_equal_those_of_torch() -> None:
    module = module_of("llama")
    model, limits = native_model(module), GenerationLimits(max_tokens=8, logprobs=3)
    ours, theirs = (
        list(x)
        for x in (
            NativeGeneration(model, [[5, 6, 7]], Sampling(), limits),
            Generation(module, [[5, 6, 7]], Sampling(), limits),
        )
    )
    for a, b in zip(ours, theirs, strict=True):
        assert a.token == b.token
        assert a.logprob == pytest.approx(b.logprob, abs=1e-4)
        assert [i for i, _ in a.top] == [i for i, _ in b.top]
        assert [x for _, x in a.top] == pytest.approx([x for _, x in b.top], abs=1e-4)


def test_prompt_longer_than_the_context_is_refused() -> None:
    model = native_model(module_of("llama"))
    with pytest.raises(
        LlamathError, match="the prompt of 9 tokens is longer than the context of 8"
    ):
        NativeGeneration(model, [list(range(9))], Sampling(), GenerationLimits(context=8))
    generation = NativeGeneration(model, [[1, 2, 3, 4, 5]], Sampling(), GenerationLimits(context=8))
    assert len(tokens(generation)[0]) == 3
    assert generation.rows[0].finish == "length"


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize(
    "path",
    [
        "layers.0.mlp.up.weight",
        "layers.1.attn.k.weight",
        "layers.1.attn_norm.weight",
        "head.weight",
    ],
)
def test_nonfinite_weight_is_named(path: str, bad: float) -> None:
    module = module_of("llama")
    with torch.no_grad():
        module.get_parameter(path).view(-1)[3] = bad
    model = native_model(module)
    with pytest.raises(LlamathError, match=f"the weight {path} is (NaN|infinite) in 1 of its"):
        tokens(NativeGeneration(model, [[5, 6, 7]], Sampling(), GenerationLimits(max_tokens=4)))


def test_memory_does_not_grow() -> None:
    model = native_model(module_of("llama"))

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    def generate(count: int) -> None:
        for _ in range(count):
            tokens(NativeGeneration(model, [[5, 6, 7]], Sampling(), GenerationLimits(max_tokens=2)))

    generate(1000)
    before = resident()
    generate(9000)
    assert resident() - before < 4 << 20


def test_interrupt_after_a_pass_does_not_cancel_the_next() -> None:
    """A signal that arrives when the last piece is computed, before the handler is restored."""
    model = native_model(module_of("llama"))
    whole = tokens(NativeGeneration(model, PROMPTS, Sampling(), GenerationLimits(max_tokens=4)))
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's background processes ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            model.library.interrupts(model.pool)
            try:
                signal.raise_signal(signal.SIGINT)
            finally:
                model.library.interrupts(None)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (
        tokens(NativeGeneration(model, PROMPTS, Sampling(), GenerationLimits(max_tokens=4)))
        == whole
    )
