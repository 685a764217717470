"""`apply_fsdp`: training on several ranks, each of which keeps a shard of every weight, gradient
and optimizer state (FSDP).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from ...core.blocks import MoE
from ...utils.errors import LlamathError
from ..module import Decoder, Module


def apply_fsdp(module: Decoder, mesh: DeviceMesh, dtype: torch.dtype | None = None) -> Decoder:
    """Shard every weight over the ranks of a mesh; a layer's weights are gathered while it computes
    (ZeRO-3, arXiv:1910.02054).

    Each rank processes its own batch, and gradients are averaged. Parameters become DTensors, so
    create the optimizer afterwards. With `dtype` the model computes in this dtype, and gradients
    are reduced in float32.
    """
    if module.mesh is not None or isinstance(module, FSDPModule):
        raise LlamathError(
            "the model is sharded already",
            hint="parallelize is for inference, apply_fsdp for training",
        )
    policy = (
        MixedPrecisionPolicy()
        if dtype is None
        else MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    )
    for child in module.modules():
        if isinstance(child, Module) and isinstance(child.spec, MoE):
            child.register_forward_hook(_touch_all_experts)
    for layer in module.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(module, mesh=mesh, mp_policy=policy)
    return module


def _touch_all_experts(module: Module, _args: object, y: Tensor) -> Tensor:
    """Give every expert a gradient, if of zeros: ranks route to different experts, but must
    reduce the same gradients.
    """
    if not torch.is_grad_enabled():
        return y
    return y + sum(x.flatten()[:1].sum() * 0 for x in module.experts.parameters())
