"""`ACTIVATIONS`: one row for each activation function by its names in `config.json`."""

from __future__ import annotations

from typing import NamedTuple


class Activation(NamedTuple):
    """An activation function, and what the views know of it."""

    # that machines compute: several names of transformers have the same; empty: a block of its
    # family computes it
    function: str
    plain: str  # of an MLP without a gate
    gated: str  # of one with a gate (Shazeer 2020, arXiv:2002.05202)
    is_hidden_act: bool = True  # whether a config may name it for its MLPs
    needs_output_only: bool = False  # its derivative does not need the input
    # transformers composes it of several operations: tensors that these save in between
    composed: int = 0


_SILU = Activation("silu", "SiLU", "SwiGLU")
_GELU = Activation("gelu", "GELU", "GeGLU")
_TANH_GELU = Activation("gelu_tanh", "GELU", "GeGLU")
ACTIVATIONS: dict[str, Activation] = {
    "silu": _SILU,
    "swish": _SILU,
    "gelu": _GELU,
    "gelu_python": _GELU,
    "gelu_fast": _TANH_GELU,
    "gelu_pytorch_tanh": _TANH_GELU,
    "gelu_new": _TANH_GELU._replace(composed=3),
    "quick_gelu": Activation("quick_gelu", "GELU", "GeGLU", composed=1),
    "relu": Activation("relu", "ReLU", "ReGLU", needs_output_only=True),
    "relu2": Activation("relu2", "ReLU²", "gated ReLU²"),
    "sigmoid": Activation("sigmoid", "sigmoid", "GLU", False, needs_output_only=True),
    "softplus": Activation("softplus", "softplus", "softplus", False),
    "tanh": Activation("tanh", "tanh", "tanh", False, needs_output_only=True),
    "swigluoai": Activation("", "swigluoai", "swigluoai"),
    "xielu": Activation("", "xIELU", "xIELU", False),
}
HIDDEN_ACTS = frozenset({name for name, x in ACTIVATIONS.items() if x.is_hidden_act})
"""The names of `hidden_act` that are read; those of one family alone are read by its file."""
