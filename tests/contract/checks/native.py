"""The native engine computes what the torch module computes."""

from __future__ import annotations

from copy import deepcopy
from math import isfinite, prod
from typing import Any

import pytest
import torch

from llamath.core.mixers import Mamba
from llamath.core.tree import fold_blocks
from llamath.families.zamba import MambaHead
from llamath.native.engine import NativeSession, Row
from llamath.native.live.program_bytes import program_bytes
from llamath.native.lowering import NotExpressible, lower
from llamath.torch import Decoder
from llamath.torch.module import local_tensors
from support.contract import Contract, check
from support.live_module import LiveModule
from support.native_models import native_logits, native_model, random_ids

ON_TORCH = frozenset(
    # attention to selected keys; a bias for each distance; fixed decays
    "axk2 deepseek_v32 deepseek_v4 glm5_next glm_moe_dsa hy_v4 minimax_m3 qwen4_exp inkling minimax".split()
)
"""Files of families that the native engine does not express."""
ON_TORCH_ALONE = {
    "falcon-1B: serial, multi-head, alibi",  # biases rounded to bfloat16
    *("gemma3-both ways", "gemma4-biased, untied, both ways"),  # attention to later tokens
}
LIMITS = {"gemma4-per-layer inputs, borrowed keys, wide": 5e-5, "zamba-plain": 2e-3}
"""Limits of models whose logits are ill-conditioned: in float64, changes of the weights by half a float32 ulp change these by 3e-5 and 4e-4.

Each operation rounds, and in another order on another processor.
"""

IN_WEBASSEMBLY = LIMITS | {"zamba2-two blocks, adapters of attention, rotary, biased": 2e-3}
"""Limits beside the native engine, if not 1e-4. In float64, changes by half an ulp change these logits by 2e-4; native paths are 2.4e-4 and
4.1e-4 from them.
"""


def has_float32_states(module: Decoder) -> bool:
    """Whether torch computes states in float32 in any dtype."""
    return any(isinstance(x.block, Mamba | MambaHead) for x in fold_blocks(module.spec))


def distance(x: torch.Tensor, y: torch.Tensor) -> float:
    """The largest difference, relative to the largest logit."""
    return float((x - y).abs().max() / y.abs().max())


@check("text", "unproven", computed=True)
def logits_equal_those_of_torch(case: Contract) -> None:
    name = case.name.removeprefix("unproven-")
    if name in ON_TORCH_ALONE or name.partition("-")[0] in ON_TORCH:
        with pytest.raises(NotExpressible):
            lower(case.tree)
        return
    module, model = case.random_module, case.native
    ids = random_ids(model.vocab)
    with torch.inference_mode():
        expected: Any = module(torch.tensor([ids]))[0]
        exact = expected
        if not has_float32_states(module):
            exact = deepcopy(module).double()(torch.tensor([ids]))[0]
    limit = (1e-5 if exact is not expected else 2e-5) + 5 * distance(
        expected, exact
    )  # rounding differs with the order of sums
    limit = LIMITS.get(name, limit)
    for chunk in (None, 4, 1):
        assert distance(native_logits(model, ids, chunk), exact) < limit, chunk


@check("text", "unproven", computed=True)
def kept_results_are_those_of_the_pass(case: Contract) -> None:
    name = case.name.removeprefix("unproven-")
    if not case.is_thorough or name in ON_TORCH_ALONE or name.partition("-")[0] in ON_TORCH:
        return
    model, ids = native_model(case.random_module, keep=True), random_ids(case.native.vocab)
    session = NativeSession(model, 1, len(ids))
    session.reserve(len(ids), 0)
    count = session.run([Row(0, ids, 0)], all_logits=True)
    logits = torch.tensor([session.logits(i) for i in range(count)])
    assert torch.equal(logits, native_logits(case.native, ids))
    names = [y for x in model.program.results for y in (x.name, x.weights) if y]
    assert len(names) == len(set(names)) > 5
    for x in model.program.results:
        values, shape = session.values(x.view)
        assert len(values) == prod(shape) and isfinite(sum(values)), x.name
        if x.weights:
            weights, shape = session.attention(x.op, len(ids))
            rows = torch.tensor(weights).reshape(shape)
            assert rows.min() >= 0 and rows.sum(-1).max() < 1 + 1e-5, x.weights
            assert not rows.transpose(0, 1).triu(1).any(), x.weights  # later tokens


@check("text", "unproven", computed=True)
def webassembly_computes_what_the_engine_computes(case: Contract) -> None:
    """The module is compiled of the engine's sources: for those with a new block."""
    name = case.name.removeprefix("unproven-")
    if not case.is_thorough or name in ON_TORCH_ALONE or name.partition("-")[0] in ON_TORCH:
        return
    module = LiveModule(program_bytes(case.native.program))
    values = {path: x.detach().numpy().tobytes() for path, x in local_tensors(case.random_module)}
    for i, paths in enumerate(module.described["weights"]):
        module.write_weight(i, b"".join(values[x] for x in paths))
    module.check(module.start())
    ids = random_ids(case.native.vocab)[: module.max_length()]
    expected = native_logits(case.native, ids)
    limit = max(1e-4, IN_WEBASSEMBLY.get(name, 0))
    assert distance(torch.tensor(module.read(ids)), expected) < limit
    module.check(module.truncate(0))
    parts = [module.read(ids[:4]), *(module.read([x]) for x in ids[4:])]
    assert distance(torch.tensor([x for rows in parts for x in rows]), expected) < limit
