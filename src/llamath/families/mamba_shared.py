"""Readers that families with Mamba and Mamba-2 share: names, sizes and the range of time steps."""

from __future__ import annotations

from math import inf
from typing import Any

from ..config_keys import any_name
from ..core.config import Config
from ..core.constructors import rms
from ..core.expr import Expr
from ..core.mixers import Mamba, Mamba2, MambaSizes
from ..core.mixers import mamba as mamba_mixer
from ..core.mixers import mamba2 as mamba2_mixer
from ..utils.errors import safe


def mamba_names(module: str) -> dict[str, str]:
    """Return the HF names of Mamba's weights, which are in this module of a layer."""
    return {
        **dict.fromkeys(("attn.x", "attn.z"), f"{module}.in_proj"),
        **dict.fromkeys(("attn.dt_down", "attn.b", "attn.c"), f"{module}.x_proj"),
        "attn.conv": f"{module}.conv1d",
        "attn.dt_norm": f"{module}.dt_layernorm",
        "attn.b_norm": f"{module}.b_layernorm",
        "attn.c_norm": f"{module}.c_layernorm",
        "attn.dt_up": f"{module}.dt_proj",
        "attn.dt_bias": f"{module}.dt_proj.bias",
        "attn.a_log": f"{module}.A_log",
        "attn.skip": f"{module}.D",
        "attn.out": f"{module}.out_proj",
    }


def mamba2_names(module: str, path: str = "attn") -> dict[str, str]:
    """Return the HF names of Mamba-2's weights, which are in this module of a layer."""
    fused = {f"{path}.{x}": f"{module}.in_proj" for x in ("z", "x", "b", "c", "dt")}
    leaves = {
        "dt_bias": "dt_bias",
        "a_log": "A_log",
        "skip": "D",
        "conv": "conv1d",
        "norm": "norm",
        "out": "out_proj",
    }
    return fused | {f"{path}.{ours}": f"{module}.{theirs}" for ours, theirs in leaves.items()}


MAMBA_LAYOUTS = {"attn.conv.weight": "unit"}
MAMBA2_LAYOUTS = MAMBA_LAYOUTS | {"attn.norm": "flat"}

MAMBA_GGUF = {
    **dict.fromkeys(("attn.x", "attn.z"), "ssm_in"),
    **dict.fromkeys(("attn.dt_down", "attn.b", "attn.c"), "ssm_x"),
    "attn.conv": "ssm_conv1d",
    "attn.dt_norm": "ssm_dt_norm",
    "attn.b_norm": "ssm_b_norm",
    "attn.c_norm": "ssm_c_norm",
    "attn.dt_up": "ssm_dt",
    "attn.dt_bias": "ssm_dt.bias",
    "attn.a_log": "ssm_a",
    "attn.skip": "ssm_d",
    "attn.out": "ssm_out",
}
MAMBA_LAYOUTS_GGUF = {"attn.a_log": "decay"}
MAMBA2_GGUF = {
    **dict.fromkeys((f"attn.{x}" for x in ("z", "x", "b", "c", "dt")), "ssm_in"),
    "attn.dt_bias": "ssm_dt.bias",
    "attn.a_log": "ssm_a",
    "attn.skip": "ssm_d",
    "attn.conv": "ssm_conv1d",
    "attn.norm": "ssm_norm",
    "attn.out": "ssm_out",
}
MAMBA2_LAYOUTS_GGUF = {"attn.a_log": "decay unit", "attn.skip": "unit"}


def auto_dim(c: Config, symbol: str, keys: str, derived: int) -> Expr:
    """Read a dimension that follows from others where it is absent or the word "auto"."""
    if c.get(keys, "auto" if keys not in c else None) == "auto":
        return Expr(symbol, derived)
    return c.dim(symbol, keys)


def time_step_limit(c: Config) -> tuple[float, float]:
    """Read the range that time steps are clamped to; transformers 5 writes an infinite end as an
    object.
    """
    limits: list[Any] = c.get("time_step_limit", [0.0, inf])
    ends = [
        float(x["__float__"]) if x in ({"__float__": "Infinity"}, {"__float__": inf}) else x
        for x in limits
    ]
    if (
        len(ends) != 2
        or not all(type(x) in (int, float) for x in ends)
        or not 0 <= ends[0] < ends[1]
    ):
        raise c.error(
            "time_step_limit", f"should be two rising numbers, not {safe(repr(limits), 60)}"
        )
    return float(ends[0]), float(ends[1])


def selective_mixer(c: Config, d: Expr) -> Mamba:
    """Read Mamba as hybrids name its sizes, with norms of time steps, b and c."""
    eps = c.get("rms_norm_eps", 1e-6)
    i = Expr("i", c.get("mamba_expand", 2) * d)
    N, R = c.dim("N", "mamba_d_state", default=16), auto_dim(c, "R", "mamba_dt_rank", -(-d // 16))
    kernel, conv_bias = c.dim("c", "mamba_d_conv", default=4), c.get("mamba_conv_bias", True)
    bias, activation = c.get("mamba_proj_bias", False), c.activation("hidden_act")
    mixer = mamba_mixer(d, i, N, R, kernel, bias=bias, conv_bias=conv_bias, activation=activation)
    return mixer.replace(dt_norm=rms(R, eps), b_norm=rms(N, eps), c_norm=rms(N, eps))


def mamba2_sizes(c: Config, d: Expr, inner: int | None = None) -> MambaSizes:
    """Read the sizes of Mamba-2 as hybrids name them; its heads are `mamba_expand` times as wide
    as the model, or `inner` wide.
    """
    Hm, G, N = (
        c.dim("Hm", "mamba_n_heads", default=128),
        c.dim("G", "mamba_n_groups", default=1),
        c.dim("N", "mamba_d_state", default=256),
    )
    if inner is None:
        inner = d.scaled(c.get("mamba_expand", 2))
    if inner % Hm:
        raise c.error(
            "mamba_n_heads", f"is {Hm}, which does not divide the {inner} channels of Mamba"
        )
    m = auto_dim(c, "m", "mamba_d_head", inner // Hm)
    return checked_sizes(c, MambaSizes(Hm, m, G, N), inner, "mamba_d_head", "mamba_n_groups")


def checked_sizes(
    c: Config, sizes: MambaSizes, inner: int, head_key: str, group_key: str
) -> MambaSizes:
    """Return the sizes of Mamba-2, whose heads are together `inner` wide and divided among
    groups.
    """
    Hm, m, G, _ = sizes
    if Hm * m != inner:
        raise c.error(
            head_key, f"is {m}: the {Hm} heads are {Hm * m} wide together instead of {inner}"
        )
    if Hm % G:
        raise c.error(group_key, f"is {G}, which does not divide the {Hm} heads of Mamba")
    return sizes


def mamba2_layer(c: Config, d: Expr, eps: float, inner: int | None = None) -> Mamba2:
    """Read Mamba-2 as hybrids name its sizes."""
    return mamba2_mixer(
        d,
        mamba2_sizes(c, d, inner),
        c.dim("c", "mamba_d_conv", default=4),
        eps,
        bias=c.get("mamba_proj_bias", False),
        conv_bias=c.get(any_name("mamba_conv_bias"), True),
        activation=c.activation("hidden_act"),
        dt_limits=time_step_limit(c),
    )
