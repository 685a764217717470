"""`EXPRESSIONS`, `FUNCTIONS` and `USES`: each operation of the `Machine` in PyTorch.

An expression is in the names of the operation's own parameters. A function returns a tree where the
text depends on the arguments. A use calls a function of `support/`; it says which fields of its
block it reads, and any other that is not at its default is refused.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from math import inf
from operator import is_
from typing import TYPE_CHECKING, Any

from ...core.blocks import MoE
from ...core.config import ACTIVATIONS
from ...core.expr import Expr, Power
from ...core.positions import (
    DynamicRope,
    LinearRope,
    Llama3Rope,
    LogNScaling,
    LogTuning,
    LongRope,
    ProportionalRope,
    QwenDynamicRope,
    Rope,
    TemperatureTuning,
    YarnRope,
)
from ...utils.named_tuple import NamedTuple
from ..graph.node import FLOAT32
from .refusal import NotWritten, check_fields
from .syntax.trees import parse

if TYPE_CHECKING:
    from ...core.tree import Block
    from .forward_code import ForwardWriter
    from .model_code import ModelWriter

Arguments = Mapping[str, Any]

_ACTIVATIONS: Mapping[str, str] = {
    "silu": "F.silu(x)",
    "gelu": "F.gelu(x)",
    "gelu_tanh": 'F.gelu(x, approximate="tanh")',
    "quick_gelu": "x * torch.sigmoid(1.702 * x)",
    "relu": "F.relu(x)",
    "relu2": "F.relu(x).square()",
    "sigmoid": "torch.sigmoid(x)",
    "softplus": "F.softplus(x)",
    "tanh": "torch.tanh(x)",
}
"""Name of an activation function of the machine -> its expression."""

EXPRESSIONS: Mapping[str, str] = {
    "token_positions": "pos",
    "lookup": "F.embedding(ids, weight)",
    "l2_norm": "x * torch.rsqrt(x.square().sum(-1, keepdim=True) + eps)",
    "add": "x + y",
    "multiply": "x * y",
    "dot": "(x * y).sum(-1, keepdim=True)",
    "signed_root": "x.sign() * x.abs().clamp(min=least).sqrt()",
    "scale": "x * factor",
    "softcap": "cap * torch.tanh(x / cap)",
    "mix_streams": "weights @ x",
    "offset": "x + amount",
    "softmax": "x.softmax(-1)",
    "normalize_sum": "x / x.sum(-1, keepdim=True)",
    "clamp": "x.clamp(-limit, limit)",
    "decay": "-a_log.float().exp() * dt",
    "to_float32": "x.float()",
    "dropout": "x",
    "merge_heads": "x.flatten(-2)",
    "last_token": "x",
    "reuse_selection": "cache.chosen",
    "scale_by_expert": "weights * scale[chosen]",
}


def _linear(e: ForwardWriter, a: Arguments) -> ast.expr:
    weight = "weight.float()" if a["x"].width == FLOAT32 else "weight"
    return e.text(f"F.linear(x, {weight}, bias)", **a)


def _per_head_linear(e: ForwardWriter, a: Arguments) -> ast.expr:
    turned = "" if a["transposed"] else ".mT"
    return e.text(
        f"(x.transpose(1, 2) @ weight.unflatten(0, (-1, size)){turned}).transpose(1, 2)", **a
    )


def _act(e: ForwardWriter, a: Arguments) -> ast.expr:
    return e.text(_activation(a["activation"]), x=a["x"])


def _gated(e: ForwardWriter, a: Arguments) -> ast.expr:
    return e.text(f"{_activation(a['activation'])} * up", x=a["gate"], up=a["up"])


def _activation(name: str) -> str:
    function = ACTIVATIONS[name].function
    if function not in _ACTIVATIONS:
        raise NotWritten(f"the activation function {name}")
    return _ACTIVATIONS[function]


def _rms_norm(e: ForwardWriter, a: Arguments) -> ast.expr:
    weight, offset = a["weight"], float(a["offset"])
    x, end = ("x.float()", ".type_as(x)") if offset else ("x", "")
    if a["grouped"]:
        groups, size = weight.shape
        scale = f"({offset:g} + weight.float())" if offset else "weight"
        form = f"(F.rms_norm({x}.unflatten(-1, (groups, size)), (size,), eps=eps) * {scale})"
        values = {"x": a["x"], "weight": weight, "eps": a["eps"], "groups": groups, "size": size}
        return e.text(f"{form}.flatten(-2){end}", **values)
    if weight is None:
        return e.text("F.rms_norm(x, x.shape[-1:], eps=eps)", x=a["x"], eps=a["eps"])
    scale = f"{offset:g} + weight.float()" if offset else "weight"
    return e.text(
        f"F.rms_norm({x}, x.shape[-1:], {scale}, eps){end}",
        x=a["x"],
        weight=weight,
        eps=a["eps"],
    )


def _layer_norm(e: ForwardWriter, a: Arguments) -> ast.expr:
    weight, offset = a["weight"], float(a["offset"])
    scale = f"({offset:g} + weight)" if offset else "weight"
    if weight is not None and len(weight.shape) > 1:
        return e.text(f"F.layer_norm(x, x.shape[-1:], eps=eps) * {scale}", **_without(a, "offset"))
    if weight is None:
        return e.text("F.layer_norm(x, x.shape[-1:], eps=eps)", x=a["x"], eps=a["eps"])
    return e.text(f"F.layer_norm(x, x.shape[-1:], {scale}, bias, eps)", **_without(a, "offset"))


def _without(a: Arguments, name: str) -> dict[str, Any]:
    return {k: v for k, v in a.items() if k != name}


def _scale(e: ForwardWriter, a: Arguments) -> ast.expr:
    factor = a["factor"]
    if isinstance(factor, float) and not isinstance(factor, Power) and not hasattr(factor, "tag"):
        factor = e.model.symbols.number(float(factor), "")
    return e.text("x * factor", x=a["x"], factor=factor)


def _scale_by_weight(e: ForwardWriter, a: Arguments) -> ast.expr:
    per_head = int(a["weight"].weight.size) > 1 and len(a["x"].shape) == 4
    return e.text(f"x * weight{'[:, None]' if per_head else ''}.type_as(x)", **a)


def _scale_by_position(e: ForwardWriter, a: Arguments) -> ast.expr:
    t = a["temperature"]
    if isinstance(t, LogTuning):
        check_fields(t, ("scale", "floor"))
        factor = "1 + scale * torch.log(((pos.float() + 1) / floor).clamp(min=1))"
    elif isinstance(t, TemperatureTuning):
        check_fields(t, ("scale", "floor", "offset"))
        at = "(pos.float() + offset)" if t.offset else "pos.float()"
        factor = f"1 + scale * torch.log(1 + {at} // floor)"
    else:
        assert isinstance(t, LogNScaling)
        factor = "(torch.log(pos.float() + 1) / math.log(original_context)).clamp(min=1)"
    numbers = {
        x: e.model.symbols.number(getattr(t, x), f"position_{x}")
        for x in t.fields
        if x != "offset" or t.offset
    }
    return e.text(f"x * ({factor})[:, None, None].type_as(x)", x=a["x"], **numbers)


def _softplus(e: ForwardWriter, a: Arguments) -> ast.expr:
    low, high = float(a["minimum"]), float(a["maximum"])
    limits = [f"min={low!r}"] * (low > 0) + [f"max={high!r}"] * (high < inf)
    end = f".clamp({', '.join(limits)})" if limits else ""
    return e.text(f"F.softplus(x.float() + bias.float()){end}", x=a["x"], bias=a["bias"])


def _bounded_decay(e: ForwardWriter, a: Arguments) -> ast.expr:
    heads = e.call.results[0].shape[-2]
    padded = int(a["a_log"].weight.size) != int(heads)
    shifted = e.text(
        "(x.float() + bias.float()).unflatten(-1, (-1, head_dim))",
        **{k: a[k] for k in ("x", "bias", "head_dim")},
    )
    kept = "[:heads]" if padded else ""
    return e.text(
        f"bound * torch.sigmoid(a_log.float().flatten(){kept}.exp()[:, None] * shifted)",
        bound=a["bound"],
        a_log=a["a_log"],
        shifted=shifted,
        heads=heads,
    )


def _to_model_dtype(e: ForwardWriter, a: Arguments) -> ast.expr:
    return e.text("x.type_as(first)", x=a["x"], first=e.body.inputs[0])


def _split_heads(e: ForwardWriter, a: Arguments) -> ast.expr:
    heads = e.call.results[0].shape[-2]
    return e.text(
        "x.unflatten(-1, (heads, head_dim))", x=a["x"], heads=heads, head_dim=a["head_dim"]
    )


def _split(e: ForwardWriter, a: Arguments) -> ast.expr:
    return e.text("x.split(sizes, -1)", x=a["x"], sizes=tuple(a["sizes"]))


def _concat(e: ForwardWriter, a: Arguments) -> ast.expr:
    first, *_ = parts = a["parts"]
    heads = first.shape[-2]
    same = [
        x if _is_like(x, first) else e.text("x.expand(-1, -1, n, -1)", x=x, n=heads) for x in parts
    ]
    return e.text("torch.cat(parts, -1)", parts=tuple(same))


def _is_like(x: Any, y: Any) -> bool:
    own, other = x.shape[:-1], y.shape[:-1]
    if len(own) != len(other):
        return False
    same = all(map(is_, own, other))
    return same or all(a.symbol == b.symbol for a, b in zip(own, other, strict=True))


def _read_cache(e: ForwardWriter, a: Arguments) -> ast.expr:
    number = e.model.cached_before(int(a["mixer"].kv_layer))
    return e.text("cache.rows(n)", n=e.model.symbols.number(number, "kv_layer"))


FUNCTIONS: Mapping[str, Callable[[ForwardWriter, Arguments], ast.expr]] = {
    "linear": _linear,
    "per_head_linear": _per_head_linear,
    "rms_norm": _rms_norm,
    "layer_norm": _layer_norm,
    "act": _act,
    "gated": _gated,
    "scale": _scale,
    "scale_by_weight": _scale_by_weight,
    "scale_by_position": _scale_by_position,
    "softplus": _softplus,
    "bounded_decay": _bounded_decay,
    "to_model_dtype": _to_model_dtype,
    "split_heads": _split_heads,
    "split": _split,
    "concat": _concat,
    "read_cache": _read_cache,
}


class Use(NamedTuple):
    """A call of a function of `support/`.

    `given` are the first arguments as a template with its values; `options` have a value or None,
    and `structure` decides which copy of the function it is.
    """

    function: str
    template: str
    values: Mapping[str, Any]
    options: Mapping[str, tuple[str, Any]] = {}  # by parameter: tag and value
    structure: Mapping[str, Any] = {}
    copy_name: str = ""  # of a copy that is not the first


def _use_rope(model: ModelWriter, a: Arguments, block: Block) -> Use:
    r: Rope = a["rope"]
    scaling, numbers = _scaling(r)
    if int(r.dim) % 2:
        raise NotWritten("rope of an odd number of channels")
    whole = int(r.dim) == int(a["x"].shape[-1])
    options = {x: (_ROPE_TAGS.get(x, x), y) for x, y in numbers.items()}
    options["dim"] = ("rotary_dim", None if whole else r.dim)
    options["prompt"] = ("", parse("cache.prompt") if scaling == "qwen_dynamic" else None)
    structure: dict[str, Any] = {"scaling": scaling} if scaling else {}
    structure |= {x: True for x in ("interleaved", "reverse") if getattr(r, x)}
    if isinstance(r, YarnRope) and not r.truncate:
        structure["truncate"] = False
    local = getattr(getattr(block, "window", None), "max_lookback", None) is not None
    local = local and model.has_local_theta
    theta = ("local_theta" if local else "theta", float(r.theta))
    return Use(
        "rope",
        "(x, pos, theta)",
        {"x": a["x"], "theta": theta},
        options,
        structure,
        f"{scaling or 'plain'}_rope",
    )


_ROPE_TAGS = {"factor": "rope_factor"}
_BASE = ("theta", "dim", "interleaved", "reverse")


_Scaling = tuple[str, dict[str, Any]]


def _scaling(r: Rope) -> _Scaling:
    """Return the name of a scaling of rotary embeddings, and its numbers."""
    kind = type(r)
    if kind is Rope:
        return "", {}
    if kind is LinearRope:
        return _fields("linear", r, ("factor",))
    if kind is DynamicRope:
        return _fields("dynamic", r, ("factor", "original_context"))
    if kind is QwenDynamicRope:
        return _fields("qwen_dynamic", r, ("original_context",))
    if kind is Llama3Rope:
        names = ("factor", "original_context", "low_freq_factor", "high_freq_factor")
        return _fields("llama3", r, names)
    if isinstance(r, ProportionalRope):
        check_fields(r, (*_BASE, "head_dim", "factor"))
        return "proportional", {"factor": None if r.factor == 1 else r.factor}
    if isinstance(r, YarnRope):
        read = ("mscale", "mscale_all_dim", "attention_factor", "truncate")
        names = ("factor", "original_context", "beta_fast", "beta_slow")
        return _with_factor(_fields("yarn", r, names, *read), r.angle_factor)
    if isinstance(r, LongRope):
        lists = ("short_factor", "long_factor", "original_context")
        found = _fields("long", r, lists, "context", "factor", "attention_factor")
        factor = r.default_angle_factor if r.attention_factor is None else r.attention_factor
        return _with_factor(found, factor)
    raise NotWritten(f"rope by {kind.__name__}")


def _fields(scaling: str, r: Rope, names: tuple[str, ...], *read: str) -> _Scaling:
    check_fields(r, (*_BASE, *names, *read))
    return scaling, {x: getattr(r, x) for x in names}


def _with_factor(found: _Scaling, factor: float) -> _Scaling:
    """Add the factor of cosines and sines, if it is not 1."""
    return found[0], {**found[1], "attention_factor": None if factor == 1 else factor}


def _use_attention(model: ModelWriter, a: Arguments, _block: Block) -> Use:
    mixer = a["mixer"]
    scores, window = mixer.score_transform, mixer.window
    if a["bias"] is not None:
        raise NotWritten("attention with a bias by distance")
    if a["selected"] is not None and len(a["selected"].shape) > 3:
        raise NotWritten("attention to selected blocks or windows")
    check_fields(window, ("size", "chunk"))
    check_fields(scores, ("scale", "softcap", "alibi", "temperature"))
    scale = scores.scale
    if scale is None and int(a["head_dim"]) != int(a["k"].shape[-1]):
        scale = a["head_dim"] ** -0.5
    if scale is not None and _is_default(scale, a["k"].shape[-1]):
        scale = None
    slopes: Any = None
    if scores.alibi is not None:
        check_fields(scores.alibi, ("max_bias", "scale"))
        slopes = ("alibi_slopes", a["q"].shape[2], scores.alibi)
    return Use(
        "attention",
        "(q, k, v, pos)",
        {x: a[x] for x in "qkv"},
        {
            "scale": ("attention_scale", scale),
            "window": ("window", window.size),
            "chunk": ("chunk", window.chunk),
            "softcap": ("attention_softcap", scores.softcap),
            "slopes": ("", slopes),
            "sinks": ("", a["sinks"]),
            "selected": ("", a["selected"]),
        },
        {} if model.groups_heads else {"grouped": False},
    )


def _is_default(scale: float, size: Expr) -> bool:
    """Whether the scale is 1 / √h of the keys' own size h, as that of torch's kernel is."""
    if not isinstance(scale, Power) or scale.exponent != -0.5 or scale.factor != 1:
        return False
    return scale.base.symbol == size.symbol


def _use_route(_model: ModelWriter, a: Arguments, _block: Block) -> Use:
    moe: MoE = a["moe"]
    if moe.routing not in ("", "input"):
        raise NotWritten(f"the routing {moe.routing}")
    groups, factor = moe.expert_groups, moe.routed_scaling_factor
    structure: dict[str, Any] = {"scoring": moe.scoring} if moe.scoring != "softmax" else {}
    if moe.choice_by_logits:
        structure["by_logits"] = True
    if not moe.norm_topk_prob or moe.routing == "input":
        structure["normalize"] = False
    options: dict[str, tuple[str, Any]] = {
        "correction": ("", a["correction"]),
        "groups": ("", None),
        "kept_groups": ("", None),
        "factor": ("routed_scaling_factor", None if float(factor) == 1 else factor),
    }
    if groups is not None:
        structure |= {"grouped": True, "top_scores": groups.top_scores}
        if groups.other_score != -inf:
            structure["other_score"] = float(groups.other_score)
        options["groups"] = ("groups", int(groups.groups))
        options["kept_groups"] = ("kept_groups", int(groups.kept))
    values = {"logits": a["logits"], "top_k": ("top_k", moe.top_k)}
    return Use("route", "(logits, top_k)", values, options, structure, "route_otherwise")


def _use_experts(_model: ModelWriter, a: Arguments, _block: Block) -> Use:
    moe: MoE = a["moe"]
    structure = {"weigh_inputs": True} if moe.routing == "input" else {}
    if moe.zero_experts:
        structure["zero_experts"] = True
    names = ("experts", "x", "chosen", "weights")
    values = {x: a[x] for x in names}
    return Use("run_experts", f"({', '.join(names)})", values, {}, structure, "run_other_experts")


def _use_select_keys(model: ModelWriter, a: Arguments, _block: Block) -> Use:
    indexer = a["indexer"]
    if int(indexer.ratio) > 1 or a["weights"] is None:
        raise NotWritten("select_keys of windows")
    check_fields(indexer.window, ())
    values = {x: a[x] for x in ("q", "k", "weights")}
    kept = parse("cache") if model.reuses_selection else None
    return Use(
        "select_keys",
        "(q, k, weights, pos, top_k)",
        {**values, "top_k": indexer.top_k},
        {"cache": ("", kept)},
    )


def _use_conv(_model: ModelWriter, a: Arguments, _block: Block) -> Use:
    dilation = None if int(a["dilation"]) == 1 else a["dilation"]
    options = {"bias": ("", a["bias"]), "dilation": ("dilation", dilation)}
    values = {"x": a["x"], "weight": a["weight"]}
    return Use("causal_conv", "(x, cache, self, weight)", values, options)


def _use_clamped_gated(_model: ModelWriter, a: Arguments, _block: Block) -> Use:
    numbers = {x: (f"gate_{x}", float(a[x])) for x in ("limit", "alpha")}
    values = {"gate": a["gate"], "up": a["up"], **numbers}
    return Use("clamped_gated", "(gate, up, limit, alpha)", values)


def _recurrence(function: str, names: str) -> Callable[..., Use]:
    def use(_model: ModelWriter, a: Arguments, _block: Block) -> Use:
        values = {x: a[x] for x in names.split(", ")}
        return Use(function, f"({names}, cache, self)", values)

    return use


def _use_sinusoids(_model: ModelWriter, a: Arguments, _block: Block) -> Use:
    at = f"pos + {int(a['offset'])}" if int(a["offset"]) else "pos"
    return Use("add_sinusoids", f"(x, {at}, steps)", {"x": a["x"], "steps": ("steps", a["steps"])})


USES: Mapping[str, Callable[..., Use]] = {
    "rope": _use_rope,
    "attention": _use_attention,
    "route": _use_route,
    "experts": _use_experts,
    "select_keys": _use_select_keys,
    "causal_conv": _use_conv,
    "selective_scan": _recurrence("selective_scan", "x, b, c, dt, a_log, skip"),
    "ssm_scan": _recurrence("ssm_scan", "x, b, c, dt, a_log"),
    "gated_delta_rule": _recurrence("gated_delta_rule", "q, k, v, g, beta"),
    "add_sinusoids": _use_sinusoids,
    "clamped_gated": _use_clamped_gated,
}
FIELDS_READ: Mapping[str, tuple[str, ...]] = {
    "attention": ("window", "score_transform", "rope"),
    "rope": ("rope",),
    "route": (
        "fp32_router",
        "router_softcap",
        "output_factor",
        "routing",
        "expert_groups",
        "routed_scaling_factor",
        "scoring",
        "choice_by_logits",
        "norm_topk_prob",
        "top_k",
    ),
    "experts": ("routing", "zero_experts"),
    "read_cache": ("kv_layer",),
    "select_keys": ("ratio", "top_k", "window", "score_transform"),
}
"""Operation -> the fields of its block that its template reads, beside those of `forward`."""
READS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("token_positions", "scale_by_position", "add_sinusoids", "rope"), ("pos",)),
    **dict.fromkeys(("attention", "select_keys"), ("pos",)),
    **dict.fromkeys(("update_cache", "read_cache", "reuse_selection", "causal_conv"), ("cache",)),
    **dict.fromkeys(("selective_scan", "ssm_scan", "gated_delta_rule"), ("cache",)),
}
"""Operation -> what it reads of the pass: the positions of its tokens, or the cache."""
MENTIONED_TWICE: Mapping[str, tuple[str, ...]] = {
    "rms_norm": ("x",),
    "layer_norm": ("x",),
    "quick_gelu": ("x",),
}
"""Operation -> its arguments that a template mentions more than once, beside those that its
expression does."""
