"""Torch's own tools work on the modules of blocks: hooks, autograd, activation checkpointing and `torch.compile`."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import llamath
from llamath import run
from llamath.core.blocks import AdaptedLinear, AdaptedMLP
from llamath.core.multimodal import CrossAttentionLayer
from llamath.run.module import Module
from llamath.run.torch_machine import TorchMachine
from support.reference_data import TINY, tiny_configs, unproven_configs

IDS = torch.randint(0, 20, (2, 9), generator=torch.Generator().manual_seed(0))


def families() -> list[Any]:
    """One config of each family."""
    return list({x.values[0]["model_type"]: x for x in reversed(tiny_configs(computed=True) + unproven_configs(computed=True))}.values())


def built(config: dict[str, Any]) -> run.Decoder:
    return run.initialize(run.build(llamath.load(config)), std=0.2)


def gradients(module: run.Decoder) -> dict[str, Tensor | None]:
    module.zero_grad()
    module(IDS).square().sum().backward()
    return {name: x.grad for name, x in module.named_parameters()}


def without_images(module: torch.nn.Module) -> list[str]:
    """The layers that a pass over text alone skips."""
    return [name for name, x in module.named_modules() if isinstance(x, Module) and isinstance(x.spec, CrossAttentionLayer)]


def adapters_of_other_layers(module: torch.nn.Module) -> list[str]:
    """The adapters of shared blocks that another layer uses."""
    return [
        f"{name}.adapters.{i}"
        for name, x in module.named_modules()
        if isinstance(x, Module) and isinstance(x.spec, AdaptedLinear | AdaptedMLP)
        for i in range(int(x.spec.adapters.n))
        if i != x.spec.adapter
    ]


@pytest.mark.parametrize("config", families())
@torch.no_grad()
def test_forward_hook_of_every_block_fires(config: dict[str, Any]) -> None:
    module, fired = built(config), {}
    for name, block in module.named_modules():
        if name and isinstance(block, Module):
            block.register_forward_hook(lambda _, args, y, name=name: fired.update({name: (args, y)}))
    module(IDS)
    expected = {name for name, block in module.named_modules() if name and isinstance(block, Module) and ".experts." not in name}
    expected -= {name for name in expected if name.endswith(("_hc", ".o_down"))}  # their weights are used by other blocks
    unused = without_images(module), adapters_of_other_layers(module)
    expected -= {name for name in expected if name in unused[1] or any(name.startswith(f"{x}.") for x in (*unused[0], *unused[1]))}
    assert {x for x in fired if ".experts." not in x} == expected
    for (m, *inputs), y in fired.values():
        assert isinstance(m, TorchMachine) and all(isinstance(x, Tensor) for x in (*inputs, y))


@pytest.mark.parametrize("config", families())
def test_gradients_reach_every_weight(config: dict[str, Any]) -> None:
    found = gradients(built(config))
    skipped = tuple(f"{x}." for x in without_images(built(config)))
    unreached = [name for name, x in found.items() if x is None and not re.search(r"\.(experts|indexer)\.", name)]
    assert [name for name in unreached if not name.startswith(skipped or "-")] == []
    assert all(x is None or bool(torch.isfinite(x).all()) for x in found.values())


@pytest.mark.parametrize("config", families())
def test_checkpointed_layers_have_the_same_gradients(config: dict[str, Any]) -> None:
    module = built(config)
    expected = gradients(module)
    for layer in module.layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)  # type: ignore[method-assign]
    for name, x in gradients(module).items():
        assert (x is None) == (expected[name] is None)
        torch.testing.assert_close(x, expected[name], msg=name)


@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`")
@pytest.mark.parametrize("family", ["llama", "deepseek_v3"])
@torch.no_grad()
def test_a_layer_compiles(family: str) -> None:
    config = next(iter(json.loads((TINY / f"{family}.json").read_text()).values()))
    module = built(config)
    expected = module(IDS)
    layer = module.layers[0]
    layer.forward = torch.compile(layer.forward, backend="aot_eager")
    torch.testing.assert_close(module(IDS), expected)
