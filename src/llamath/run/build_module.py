"""`build` makes the module of a model; `initialize` sets random weights for training."""

from __future__ import annotations

from typing import Protocol

import torch

from ..core import blocks
from ..core.tree import walk
from .basic_layers import RMSNorm
from .layers import Decoder
from .module import TensorOptions, make_module, tie_weights
from .moe import MoE  # noqa: F401  registers its module types
from .recurrent_mixers import RecurrentMixer  # noqa: F401


class _HasTree(Protocol):
    """A model, as `llamath.load` returns it."""

    @property
    def tree(self) -> blocks.Decoder: ...


def build(model: blocks.Decoder | _HasTree, dtype: torch.dtype = torch.float32, device: str | torch.device = "cpu") -> Decoder:
    """Return the module of a model with uninitialized weights; on the meta device it takes no memory."""
    tree = model if isinstance(model, blocks.Decoder) else model.tree
    module = make_module(tree, TensorOptions(dtype, torch.device(device)))
    assert isinstance(module, Decoder)
    tie_weights(module, tree)
    return module


@torch.no_grad()
def initialize(module: Decoder, seed: int = 0, std: float = 0.02) -> Decoder:
    """Set matrices from a normal distribution, norms to the identity and biases to zero."""
    generator = torch.Generator(next(module.parameters()).device).manual_seed(seed)
    weights = module.state_dict()
    for leaf in walk(module.spec):
        x = weights[leaf.path]
        if leaf.weight.role == "bias":
            x.zero_()
        elif leaf.weight.role == "scale":
            x.fill_(1.0)
        else:
            x.normal_(0.0, std, generator=generator)
    for child in module.modules():
        if isinstance(child, RMSNorm) and child.weight is not None:
            child.weight.fill_(1.0 - child.spec.offset)
    return module
