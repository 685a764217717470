"""The native engine computes what the torch machine computes, for the tiny models of every family."""

from __future__ import annotations

import pytest
import torch

from support.native_models import native_logits, native_model, random_ids, random_module
from support.reference_data import tiny_configs, unproven_configs

CONFIGS = [*tiny_configs(), *unproven_configs()]


def distance(x: torch.Tensor, y: torch.Tensor) -> float:
    """The largest difference, relative to the largest logit."""
    return float((x - y).abs().max() / y.abs().max())


@pytest.mark.parametrize(
    "family",
    ["llama", "gemma2", "qwen3_moe", "deepseek_v3", "qwen3_next", "mamba2", "gpt_oss", "phi3"],
)
def test_bfloat16_logits_are_within_rounding(family: str) -> None:
    config = next(x for x in CONFIGS if str(x.id).startswith(f"{family}-")).values[0]
    module = random_module(config, torch.bfloat16)
    model = native_model(module)
    ids = random_ids(model.vocab)
    got = native_logits(model, ids)
    with torch.inference_mode():
        rounded = module(torch.tensor([ids]))[0].float()
        exact = module.float()(torch.tensor([ids]))[0]
    assert distance(got, exact) < max(0.02, 1.5 * distance(rounded, exact))


def test_every_path_computes_the_same_logits() -> None:
    config = next(x for x in CONFIGS if str(x.id).startswith("llama-")).values[0]
    module = random_module(config)
    model = native_model(module)
    ids = random_ids(model.vocab)
    with torch.inference_mode():
        expected = module(torch.tensor([ids]))[0]
    library, before = model.library, model.path
    paths = [library.path_name(i) for i in range(library.num_paths()) if library.path_supported(i)]
    assert before.encode() in paths
    try:
        for path in paths:
            assert library.set_path(path) == 0
            assert distance(native_logits(model, ids), expected) < 1e-5, path
    finally:
        library.set_path(before.encode())


def test_threads_do_not_change_the_result() -> None:
    config = next(x for x in CONFIGS if str(x.id).startswith("qwen3_moe-")).values[0]
    module = random_module(config)
    one, two = native_model(module), native_model(module, threads=2)
    ids = random_ids(one.vocab)
    assert distance(native_logits(two, ids), native_logits(one, ids)) < 1e-6
