"""`build`: the module of a tree; and first numbers for one that is to be trained."""

from __future__ import annotations

from typing import Protocol

import torch

from ..core import blocks
from ..core.tree import walk
from .basic_layers import RMSNorm
from .layers import Decoder
from .module import TensorOptions, make_module, tie_weights
from .moe import MoE  # noqa: F401  this module and that of states register what they run
from .recurrent_mixers import RecurrentMixer  # noqa: F401


class HasTree(Protocol):
    """What `llamath.load` returns."""

    @property
    def tree(self) -> blocks.Decoder: ...


def build(model: blocks.Decoder | HasTree, dtype: torch.dtype = torch.float32, device: str | torch.device = "cpu") -> Decoder:
    """The module of a model's tree, its numbers not set; on the meta device it takes no memory."""
    tree = model if isinstance(model, blocks.Decoder) else model.tree
    made = make_module(tree, TensorOptions(dtype, torch.device(device)))
    assert isinstance(made, Decoder)
    tie_weights(made, tree)
    return made


@torch.no_grad()
def initialize(module: Decoder, seed: int = 0, std: float = 0.02) -> Decoder:
    """First numbers: matrices from a normal distribution, norms that change nothing, no biases."""
    random = torch.Generator(next(module.parameters()).device).manual_seed(seed)
    numbers = module.state_dict()
    for leaf in walk(module.spec):
        x = numbers[leaf.path]
        if leaf.weight.role == "bias":
            x.zero_()
        elif leaf.weight.role == "scale":
            x.fill_(1.0)
        else:
            x.normal_(0.0, std, generator=random)
    for part in module.modules():
        if isinstance(part, RMSNorm) and part.weight is not None:
            part.weight.fill_(1.0 - part.spec.offset)
    return module
