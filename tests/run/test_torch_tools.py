"""Torch's own tools work on the modules of blocks: hooks, autograd, activation checkpointing and `torch.compile`."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

import llamath
from llamath.torch import Decoder, build, initialize
from support.reference_data import TINY
from support.release import usual

IDS = torch.randint(0, 20, (2, 9), generator=torch.Generator().manual_seed(0))


def built(config: dict[str, Any]) -> Decoder:
    return initialize(build(llamath.load(config)), std=0.2)


@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`")
@pytest.mark.parametrize("family", usual("llama", release=["deepseek_v3"]))
@torch.no_grad()
def test_a_layer_compiles(family: str) -> None:
    config = next(iter(json.loads((TINY / f"{family}.json").read_text()).values()))
    module = built(config)
    expected = module(IDS)
    layer = module.layers[0]
    layer.forward = torch.compile(layer.forward, backend="aot_eager")
    torch.testing.assert_close(module(IDS), expected)
