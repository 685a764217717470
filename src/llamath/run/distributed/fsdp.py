"""`shard`: a model in training over several processes, each of which keeps a part of every weight, gradient and optimiser state (FSDP)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from ...core.errors import LlamathError
from ..layers import Decoder
from ..moe import MoE


def apply_fsdp(module: Decoder, mesh: DeviceMesh, dtype: torch.dtype | None = None) -> Decoder:
    """Let each process of a mesh keep its rows of every weight; a layer's are gathered while it computes (ZeRO-3, arXiv:1910.02054).

    Every process reads a batch of its own, and gradients are the mean of all; parameters become DTensors, so make the optimiser afterwards.
    With `dtype` it computes in this type, and sums up gradients in float32.
    """
    if module.mesh is not None or isinstance(module, FSDPModule):
        raise LlamathError("the model is spread over processes already", hint="parallelize is for running, shard for training")
    policy = MixedPrecisionPolicy() if dtype is None else MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    for part in module.modules():
        if isinstance(part, MoE):
            part.register_forward_hook(_touch_all_experts)
    for layer in module.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(module, mesh=mesh, mp_policy=policy)
    return module


def _touch_all_experts(part: MoE, _given: object, y: Tensor) -> Tensor:
    """Give every expert a gradient, if of zeros: processes choose different ones, and exchange the same."""
    if not torch.is_grad_enabled():
        return y
    return y + sum(x.flatten()[:1].sum() * 0 for x in part.experts.parameters())
