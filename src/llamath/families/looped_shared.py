"""Layers that run several times, each time with a cache of its own, which Nanbeige 4.2 and Ouro
share.
"""

from __future__ import annotations

from ..core.blocks import Layer, Norm
from ..core.config import Config
from ..core.machine import Machine, X
from ..core.tree import LOOPED, Stack, tie


class NextPassLayer(Layer):
    """The first layer of a later pass over the layers, which reads the normalized result of the
    pass before.
    """

    pass_norm: Norm

    def forward(self, m: Machine[X], x: X) -> X:
        return Layer.forward(self, m, self.pass_norm(m, x))


_MAX_PASSES = 64


def looped_layers(c: Config, layer: Layer, key: str, norm: Norm | None) -> Stack:
    """Return L equal layers that run in as many passes as this key says, with the model's norm
    between two passes if it is given; layers of later passes have the weights of the first one.
    """
    L, passes = c.dim("L", "num_hidden_layers"), c.dim("R", key)
    if passes > _MAX_PASSES:
        raise c.error(key, f"is {passes}; at most {_MAX_PASSES} passes can be counted")
    later = tie(layer, f"layers.{LOOPED}{int(L)}}}")
    if norm is None:
        return Stack(((layer,), L), ((later,), L * (passes - 1)), count_dim=L * passes)
    first = later.extended(NextPassLayer, pass_norm=tie(norm, "norm"))
    again = (((first,), 1), ((later,), L - 1)) * (int(passes) - 1)
    return Stack(((layer,), L), *again, count_dim=L * passes)
