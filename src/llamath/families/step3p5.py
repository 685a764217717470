"""Step 3.5 and 3.7: gated heads, more of them in windowed layers, experts chosen by sigmoid,
clamped MLPs in some layers.
"""

from __future__ import annotations

from typing import Any

from ..checkpoint.naming.hf_names import HF
from ..config_keys import any_name
from ..core.attention_facts import AttentionWindow, Heads, ScoreTransform
from ..core.blocks import MLP, Attention, Decoder, Layer, LimitedMLP, MoE
from ..core.config import Config
from ..core.constructors import decoder, gqa, linear, mixture, rms, swiglu
from ..core.expr import Expr
from ..core.positions import Rope
from .layers_shared import check_listed, layers_from, read_layer_types, settings_of_layers
from .registry import family
from .rope_shared import rope_from, rope_of_type

FULL, SLIDING = TYPES = ("full_attention", "sliding_attention")
NAMES = HF.with_changes(
    inside={
        "attn.gate": "self_attn.g_proj",
        "mlp.router": "moe.gate",
        "mlp.correction": "moe.router_bias",
        **{f"mlp.experts.{{e}}.{x}.weight": f"moe.{x}_proj.weight" for x in ("gate", "up", "down")},
        **{f"mlp.shared.{x}": f"share_expert.{x}_proj" for x in ("gate", "up", "down")},
    }
)


@family(hf=NAMES, gguf_arch="step35")
def step3p5(c: Config) -> Decoder:
    d, V, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("L", "num_hidden_layers")
    check_listed(c, L)
    c.require("use_bidirectional_attention", False, "every published model has it")
    norm = rms(d, c.get("rms_norm_eps", 1e-5), offset=1.0)
    types = [x or FULL for x in _by_layer(c, "layer_types", L)]
    types = read_layer_types(Config({"layer_types": types}, c.source), L, TYPES)
    limits, shared_limits = (
        [x or 0.0 for x in _by_layer(c, key, L)]
        for key in ("swiglu_limits", "swiglu_limits_shared")
    )
    attention = {kind: _attention(c, d, types, kind) for kind in dict.fromkeys(types)}

    def layer(kind: str, sparse: bool, limit: float, shared_limit: float) -> Layer:
        mlp = (
            _moe(c, d, limit, shared_limit)
            if sparse
            else _mlp(c, d, c.dim("F", "intermediate_size"), shared_limit)
        )
        return Layer(attn_norm=norm, attn=attention[kind], mlp_norm=norm, mlp=mlp)

    layers = layers_from(layer, types, _sparse(c, L), limits, shared_limits, count_dim=L)
    c.ignore(
        "intermediate_size",
        "num_nextn_predict_layers",
        "mtp_layer_types",
        "mtp_mlp_layer_types",
        "hidden_act",
    )
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )


def _by_layer(c: Config, key: str, n: int) -> list[Any]:
    """Read a list with one entry for each layer, which may be followed by those of multi-token
    prediction layers.
    """
    values: list[Any] = c.get(key, [None] * int(n))
    if len(values) not in (n, n + c.get("num_nextn_predict_layers", 0)):
        raise c.error(key, f"should list {n} layers, not {len(values)}")
    return values[:n]


def _sparse(c: Config, n: int) -> list[bool]:
    """Return whether each layer has experts: by `mlp_layer_types`, by the numbers in
    `moe_layers_enum`, or all but the first three.
    """
    if "mlp_layer_types" in c:
        types = {"mlp_layer_types": _by_layer(c, "mlp_layer_types", n)}
        c.ignore("moe_layers_enum")
        return [
            x == "sparse"
            for x in read_layer_types(
                Config(types, c.source), n, ("dense", "sparse"), "mlp_layer_types"
            )
        ]
    numbers = c.data.get("moe_layers_enum")
    listed = (
        numbers.split(",")
        if isinstance(numbers, str)
        else numbers
        if isinstance(numbers, list)
        else range(3, n)
    )
    if "moe_layers_enum" in c and not (
        isinstance(numbers, str | list) and all(str(x).strip().isdecimal() for x in listed)
    ):
        raise c.error("moe_layers_enum", "should list layers by number, like 3,4,5")
    sparse = {int(x) for x in listed}
    return [i in sparse for i in range(n)]


def _attention(c: Config, d: Expr, types: list[str], kind: str) -> Attention:
    H, K, h = c.heads(d, any_name("num_key_value_heads"), num_kv_heads=8, head_dim=128)
    heads = _sliding_heads(c, types, Heads(H, K, h)) if kind == SLIDING else Heads(H, K, h)
    norm, scalar = (
        rms(h, c.get("rms_norm_eps", 1e-5), offset=1.0),
        c.number("query_pre_attn_scalar") or float(h),
    )
    return gqa(
        d,
        heads,
        c.get("attention_bias", False),
        rope=_rope(c, types, kind, h),
        window=AttentionWindow(size=c.positive_int("sliding_window") if kind == SLIDING else None),
        q_norm=norm,
        k_norm=norm,
        gate=linear(heads.num_heads, d),
        gate_per_head=True,
        score_transform=ScoreTransform(scale=scalar**-0.5),
    )


def _sliding_heads(c: Config, types: list[str], heads: Heads) -> Heads:
    """Return the heads of windowed layers, from StepFun's keys or from those that transformers
    saves for each layer.
    """
    other = c.sub("attention_other_setting")
    for key, value in (
        ("num_attention_groups", heads.num_kv_heads),
        ("head_dim", heads.head_dim),
        ("attention_type", SLIDING),
    ):
        if other.data.get(key, value) != value:
            raise other.error(key, f"should be {value}, as in the other layers")
    other.ignore("attention_type", "num_attention_groups", "head_dim", "true_head_dim")
    default = other.dim("Hs", "num_attention_heads") if other.data else heads.num_heads
    H, settings = (
        c.dim("Hs", "num_sliding_attention_heads", default=default),
        settings_of_layers(c, types, SLIDING),
    )
    if settings is not None:
        H = settings.dim("Hs", "num_attention_heads")
        if unknown := settings.data.keys() - {"num_attention_heads"}:
            raise settings.error(min(unknown), "differs between layers, which is not known")
    if H % heads.num_kv_heads:
        raise c.error(
            "num_sliding_attention_heads",
            f"is {H}, which the {heads.num_kv_heads} key/value heads do not divide",
        )
    return Heads(H, heads.num_kv_heads, heads.head_dim)


def _rope(c: Config, types: list[str], kind: str, h: int) -> Rope:
    """Read the rotary embedding of one type of layer: by type, or from lists with an entry for
    each layer.
    """
    if kind in c.sub("rope_parameters"):
        return rope_of_type(c, kind, h)
    first = types.index(kind)
    theta = (
        _by_layer(c, "rope_theta", len(types))[first]
        if isinstance(c.data.get("rope_theta"), list)
        else c.get("rope_theta", 1e4)
    )
    partial = _by_layer(c, "partial_rotary_factors", len(types))[first] or 1.0
    if any(type(x) not in (int, float) for x in (theta, partial)):
        raise c.error("rope_theta", "should be a number, or a list with a number for each layer")
    scaling = c.sub("rope_scaling") if kind == FULL else Config({})
    return rope_from(c, scaling, theta=float(theta), dim=Expr.const(h).scaled(partial))


def _mlp(c: Config, d: Expr, F: Expr, limit: float) -> MLP:
    return _limited(swiglu(d, F, bias=c.get("mlp_bias", False)), limit)


def _limited(mlp: MLP, limit: float) -> MLP:
    return mlp.extended(LimitedMLP, limit=float(limit)) if limit else mlp


def _moe(c: Config, d: Expr, limit: float, shared_limit: float) -> MoE:
    E, k = (
        c.dim("E", any_name("n_routed_experts") + "|moe_num_experts", default=288),
        c.dim("k", any_name("num_experts_per_tok"), default=8),
    )
    expert = _limited(swiglu(d, c.dim("Fe", "moe_intermediate_size", default=1280)), limit)
    shared = _mlp(c, d, c.dim("Fs", any_name("share_expert_dim"), default=1280), shared_limit)
    factor = c.get("moe_router_scaling_factor", 1.0)
    return mixture(
        d,
        E,
        k,
        expert,
        corrected=True,
        shared=shared,
        scoring="sigmoid",
        routed_scaling_factor=factor,
    )
