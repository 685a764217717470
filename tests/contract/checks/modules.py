"""The torch module of a configuration: parameters, caches, traces, hooks and gradients."""

from __future__ import annotations

import itertools
import re
from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from llamath.analysis.size.memory.cache_bytes import kv_cache_size
from llamath.core.tree import walk
from llamath.families.mllama import CrossAttentionLayer
from llamath.families.zamba2 import AdaptedLinear, AdaptedMLP
from llamath.torch import Decoder, build, initialize
from llamath.torch.debug.trace_run import TracedPass, trace
from llamath.torch.module import Module
from llamath.torch.torch_machine import TorchMachine
from support.contract import Contract, check
from support.transformers_pair import is_bidirectional

TOKENS = 40
IDS = torch.randint(0, 20, (2, 9), generator=torch.Generator().manual_seed(0))


@check("text", "unproven", computed=True)
def parameters_match_the_tree(case: Contract) -> None:
    leaves = list(walk(case.tree))
    assert {name: x.shape for name, x in case.module.state_dict().items()} == {
        x.path: x.shape for x in leaves
    }
    assert sum(x.numel() for x in case.module.parameters()) == sum(
        x.parameters for x in leaves if not x.weight.buffer
    )
    assert sum(x.numel() for x in case.module.buffers()) == sum(
        x.parameters for x in leaves if x.weight.buffer
    )


@check("text", "unproven", computed=True)
@torch.no_grad()
def cache_has_the_predicted_size(case: Contract) -> None:
    if is_bidirectional(case.config):
        return
    cache = case.module.new_cache(TOKENS)
    case.module(torch.zeros(3, TOKENS, dtype=torch.long), cache)
    assert cache.nbytes == kv_cache_size(case.tree, TOKENS, batch=3, dtype="fp32").bytes


@check("text", "unproven", computed=True)
@torch.no_grad()
def model_runs_without_values(case: Contract) -> None:
    """On the meta device."""
    if not case.is_new:
        return
    module = build(case.tree, torch.bfloat16, "meta")
    logits = module(torch.zeros(2, 9, dtype=torch.long, device="meta"))
    out = case.config["vocab_size"] if module.head is None else module.head.weight.shape[0]
    assert logits.shape == (2, 9, module.kept_logits or out)


@check("unproven", computed=True)
@torch.no_grad()
def passes_agree_with_their_cache(case: Contract) -> None:
    module = case.module
    ids, pads, cache = (
        torch.randint(0, 9, (2, 30), generator=torch.Generator().manual_seed(0)),
        torch.tensor([0, 7]),
        module.new_cache(30),
    )
    whole = module(ids)
    assert torch.isfinite(whole).all()
    first = 29 if case.model_type == "qwen" else 11  # whose angles are those of the prompt's length
    cuts = [0, first, *range(first + 1, 20), 30]
    result = torch.cat([module(ids[:, a:b], cache) for a, b in itertools.pairwise(cuts)], 1)
    assert torch.allclose(result, whole, atol=1e-5 * float(whole.abs().max()))
    padded = module(ids, None, pads)
    assert torch.allclose(padded[1:, 7:], module(ids[1:, 7:]), atol=1e-5 * float(whole.abs().max()))


def shapes_are_those_of_tensors(seen: TracedPass | None) -> None:
    if seen is None:
        return
    assert not seen.mismatches
    for stage, shapes in zip(seen.walk.stages, seen.shapes, strict=True):
        assert {x.name for x in stage.steps} == shapes.keys()
        for x in stage.steps:
            assert shapes[x.name] == tuple(map(int, x.shape)), x.name


@check("text", "unproven", computed=True)
def traced_shapes_are_those_of_tensors(case: Contract) -> None:
    if not case.is_new:
        return
    report = trace(case.model, [3, 1, 4, 1, 5, 9, 2], case.module)
    assert report.has_values
    shapes_are_those_of_tensors(report.first)
    shapes_are_those_of_tensors(report.following)
    if report.following is not None:
        assert (
            report.cache.elements
            == report.following.walk.cached
            == kv_cache_size(case.tree, 8).elements
        )


def not_passed(module: torch.nn.Module) -> list[str]:
    """The layers that a pass over text alone skips, and Ouro's gate, which ends passes that all tokens make."""
    return [
        name
        for name, x in module.named_modules()
        if name == "exit_gate"
        or (isinstance(x, Module) and isinstance(x.spec, CrossAttentionLayer))
    ]


def adapters_of_other_layers(module: torch.nn.Module) -> list[str]:
    """The adapters of shared blocks that another layer uses."""
    return [
        f"{name}.adapters.{i}"
        for name, x in module.named_modules()
        if isinstance(x, Module) and isinstance(x.spec, AdaptedLinear | AdaptedMLP)
        for i in range(int(x.spec.adapters.n))
        if i != x.spec.adapter
    ]


def new_module(case: Contract) -> Decoder:
    """A module that a check may change."""
    return initialize(build(case.tree), std=0.2)


@check("text", "unproven", computed=True)
@torch.no_grad()
def forward_hook_of_every_block_fires(case: Contract) -> None:
    if not case.is_new:
        return
    module, fired = new_module(case), {}
    for name, block in module.named_modules():
        if name and isinstance(block, Module):
            block.register_forward_hook(
                lambda _, args, y, name=name: fired.update({name: (args, y)})
            )
    module(IDS)
    expected = {
        name
        for name, block in module.named_modules()
        if name and isinstance(block, Module) and ".experts." not in name
    }
    expected -= {
        name for name in expected if name.endswith(("_hc", ".o_down"))
    }  # their weights are used by other blocks
    unused = not_passed(module), adapters_of_other_layers(module)
    expected -= {
        name
        for name in expected
        if name in (*unused[1], "exit_gate")
        or any(name.startswith(f"{x}.") for x in (*unused[0], *unused[1]))
    }
    assert {x for x in fired if ".experts." not in x} == expected
    for (m, *inputs), y in fired.values():
        assert isinstance(m, TorchMachine) and all(isinstance(x, Tensor) for x in (*inputs, y))


def gradients(module: Decoder) -> dict[str, Tensor | None]:
    module.zero_grad()
    module(IDS).square().sum().backward()
    return {name: x.grad for name, x in module.named_parameters()}


@check("text", "unproven", computed=True)
def gradients_reach_every_weight_checkpointed_or_not(case: Contract) -> None:
    if not case.is_new:
        return
    module = new_module(case)
    found = gradients(module)
    skipped = tuple(f"{x}." for x in not_passed(module))
    unreached = [
        name
        for name, x in found.items()
        if x is None and not re.search(r"\.(experts|indexer)\.", name)
    ]
    assert [name for name in unreached if not name.startswith(skipped or "-")] == []
    assert all(x is None or bool(torch.isfinite(x).all()) for x in found.values())
    for layer in module.layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)  # type: ignore[method-assign]
    for name, x in gradients(module).items():
        assert (x is None) == (found[name] is None)
        torch.testing.assert_close(x, found[name], msg=name)
