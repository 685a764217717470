"""Each operation of `Machine` by itself on both machines: shapes, widths, views, FLOPs and saved bytes of the graph are those of tensors."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from llamath.analysis.graph.node import FLOAT32, INT64, Node
from llamath.analysis.graph.operations import operation_list
from llamath.analysis.graph.operations.operation import Operation as Row
from llamath.analysis.graph.operations.operation_list import OPERATIONS as ROWS
from llamath.analysis.graph.operations.saved_tensors import Kernels
from llamath.analysis.graph.recorder import GraphRecorder
from llamath.core.attention_facts import AttentionWindow, ScoreTransform
from llamath.core.blocks import AttentionBase, ClampedMLP, ExpertGroups, MoE, PerLayerInput
from llamath.core.constructors import embedding, layer_norm, linear, mlp, rms, swiglu, weight
from llamath.core.expr import Expr, floor_div
from llamath.core.extensions.compressed_attention import Compressor
from llamath.core.latent_attention import WindowKeys
from llamath.core.machine import Machine
from llamath.core.mixers import RecurrentMixer, StateLayer
from llamath.core.multimodal import CrossAttention
from llamath.core.positions import Alibi, LogNScaling, ProportionalRope, Rope, TemperatureTuning
from llamath.core.tree import Block, Stack, Weight, repeat
from llamath.torch.debug.operation_log import OperationLog
from llamath.torch.kv_cache import Cache, KVCache
from llamath.torch.linear_recurrence import CHUNK, SCAN_CHUNK
from llamath.torch.module import Module, TensorOptions
from llamath.torch.torch_machine import TorchMachine
from support.each_case import each

B, T, P, S = (Expr.variable(x, 1) for x in "BTPS")
"""Batch size, new tokens, earlier tokens and keys: the graph is recorded for one of each, and evaluated at other numbers."""
d, F, V, H, K, h, p = (
    Expr(*x) for x in (("d", 12), ("F", 10), ("V", 23), ("H", 4), ("K", 2), ("h", 6), ("p", 4))
)
E, k, L, r, n, m, c, G = (
    Expr(*x)
    for x in (("E", 6), ("k", 2), ("L", 3), ("r", 5), ("n", 8), ("m", 7), ("c", 4), ("G", 2))
)
PATCHES = Expr("N", 36)
METHODS = ("bilinear", "centers", "bicubic", "antialias", "zeros", "cropped", "transposed")
"""Of 4 × 4 patches of an image of 6 × 6, and of one of 6 × 10 whose two tiles overlap."""
CAPACITY = 64
"""Tokens in the cache, more than in any pass."""


class Pass(NamedTuple):
    """T new tokens after P others; without a cache if P is 0 and `cached` is False."""

    tokens: int = 5
    past: int = 0
    cached: bool = False
    last_only: bool = False

    @property
    def is_decode(self) -> bool:
        return self.tokens == 1


PROMPT, CACHED, CHUNK_OF_PROMPT, DECODE = Pass(), Pass(cached=True), Pass(5, 9), Pass(1, 9)
WITH_CACHE = (CACHED, CHUNK_OF_PROMPT, Pass(5, 2), DECODE, Pass(1, 2))
ALL_PASSES = (PROMPT, *WITH_CACHE)
WINDOWED = (PROMPT, CACHED, CHUNK_OF_PROMPT, DECODE)
TWO_CHUNKS = Pass(CHUNK + 3)


FIELDS = "abcdefg"
"""The arguments of an operation, by position."""


class Input(NamedTuple):
    """A tensor that an operation reads."""

    shape: tuple[Expr, ...]
    kind: str = "model"  # dtype: that of the model, float32 or ids


class Operation(Block):
    """A block whose forward pass is one operation, `m.name(a, b, …)`; an `Input` stands for an input of the block."""

    name: str
    options: dict[str, Any]
    a: Any = None
    b: Any = None
    c: Any = None
    d: Any = None
    e: Any = None
    f: Any = None
    g: Any = None
    count: int

    def forward(self, m: Any, *inputs: Any) -> Any:
        rest = iter(inputs)
        arguments = [getattr(self, x) for x in FIELDS[: self.count]]
        return getattr(m, self.name)(
            *(next(rest) if isinstance(x, Input) else x for x in arguments), **self.options
        )


class Case(NamedTuple):
    """One operation with one set of arguments, and the passes in which it is compared."""

    spec: Operation
    passes: tuple[Pass, ...]
    saves: tuple[torch.dtype, ...]  # the dtypes in which torch saves what the rule says

    @property
    def inputs(self) -> list[Input]:
        return [x for x in (getattr(self.spec, y) for y in FIELDS) if isinstance(x, Input)]


DTYPES = (torch.float32, torch.bfloat16)


def case(
    name: str,
    *arguments: Any,
    passes: tuple[Pass, ...] = (PROMPT,),
    saves: tuple[torch.dtype, ...] = DTYPES,
    **options: Any,
) -> Case:
    """A case of `m.name(*arguments, **options)`."""
    return Case(
        Operation(
            name=name,
            options=options,
            count=len(arguments),
            **dict(zip(FIELDS, arguments, strict=False)),
        ),
        passes,
        saves,
    )


def x(*shape: Expr) -> Input:
    return Input(shape)


def f32(*shape: Expr) -> Input:
    return Input(shape, "float32")


def ids(*shape: Expr) -> Input:
    return Input(shape, "ids")


def w(*shape: int) -> Weight:
    return Weight(shape=tuple(map(Expr.const, shape)), role="matmul")


class Softmax(AttentionBase):
    """The facts of attention that the operations read."""

    heads: int = H
    kv_heads: int = K
    head_dim: int = h

    @property
    def shared_rows(self) -> tuple[tuple[int, int], ...]:
        return ((self.kv_heads, self.head_dim),) * 2


class Selecting(Softmax):
    """The facts of an indexer, and of attention to the keys that it selects."""

    top_k: int = Expr("ki", 3)
    ratio: int = 1


class Blocks(Softmax):
    """The facts of an indexer of blocks."""

    block_size: int = 2
    top_blocks: int = 2
    local_blocks: int = 1


class Compressed(Softmax):
    """The facts of attention to windows."""

    ratio: int = 4
    top_k: int = 0


class Recurrence(RecurrentMixer):
    """A mixer with a state."""

    heads: int = H


class Hashes(RecurrentMixer):
    """The facts of hashes of n-grams."""

    ngram_size: int = 3
    heads_per_ngram: int = 2
    end_token: int = 1


FULL, WINDOW, CHUNKED, BIDIRECTIONAL = (
    Softmax(window=AttentionWindow(**how))
    for how in ({}, {"size": 4}, {"chunk": 4}, {"causal": False})
)
SINGLE = Compressor(
    kv=linear(h, d),
    weights=linear(h, d),
    bias=weight(4, h, role="bias"),
    norm=rms(h, 1e-5),
    head_dim=h,
    ratio=4,
    overlap=False,
)
COMPRESSOR = SINGLE.replace(overlap=True)
ENCODED = CrossAttention(
    q=linear(H * h, d),
    k=linear(K * h, d),
    v=linear(K * h, d),
    o=linear(d, H * h),
    heads=H,
    kv_heads=K,
    head_dim=h,
)
MEANS = WindowKeys(k=linear(h, d), head_dim=h, ratio=4)
COMPRESSED = Compressed(window=AttentionWindow(size=4))
NEW_WINDOWS, WINDOWS = floor_div(P + T, 4) - floor_div(P, 4), floor_div(P + T, 4)
INDEXER, SELECTED, MANY = Selecting(), Expr("ki", 3), Expr("ki", 40)
HALF, ALL, ADJACENT = (
    Rope(theta=1e4, dim=4),
    Rope(theta=1e4, dim=6),
    Rope(theta=1e4, dim=6, interleaved=True),
)
MOE = MoE(router=linear(E, d), experts=repeat(swiglu(d, F), E, active=k), top_k=k)
Q, KEYS, GROUPED, ONE = x(B, T, H, h), x(B, S, H, h), x(B, S, K, h), x(B, S, Expr.const(1), h)
DELTA = (x(B, T, G, n), x(B, T, G, n), x(B, T, H, m), x(B, T, H), x(B, T, H))

KIMI_DELTA = (x(B, T, H, n), x(B, T, H, n), x(B, T, H, m), x(B, T, H, n), x(B, T, H))


def float32(inputs: Iterable[Input]) -> list[Input]:
    return [y._replace(kind="float32") for y in inputs]


STATISTICS: dict[str, Any] = {"saves": (torch.float32,)}
"""Statistics of a norm, which torch keeps in float32 on GPUs, and in the dtype of the input on CPUs."""
OTHER_STEPS: dict[str, Any] = {"saves": ()}
"""What transformers computes in other steps, and what the rules only estimate: tests/analysis/test_activations.py compares with them."""

CASES = [
    # Each token alone
    case("token_positions"),
    case("lookup", ids(B, T), w(V, d)),
    case("lookup", ids(T), w(V, d), 2, saves=()),
    case(
        "lookup_in_parts",
        ids(B, T, k),
        Stack(((embedding(4, d),), 1), ((embedding(2, d),), 1)),
        saves=(),
    ),
    case("add_sinusoids", x(B, T, d), 2, 5, passes=(PROMPT, DECODE)),
    case("linear", x(B, T, d), w(F, d)),
    case("linear", x(B, T, d), w(F, d), w(F)),
    case("linear", f32(B, T, d), w(E, d)),
    case("per_head_linear", x(B, T, H, r), w(H * h, r), h, **OTHER_STEPS),
    case("per_head_linear", x(B, T, H, h), w(H * h, r), h, transposed=True, **OTHER_STEPS),
    case("rms_norm", x(B, T, d), w(d), 1e-5, **STATISTICS),
    case("rms_norm", x(B, T, d), None, 1e-5, **STATISTICS),
    case("rms_norm", x(B, T, d), w(d), 1e-5, 1.0, **OTHER_STEPS),
    case("rms_norm", x(B, T, H, h), w(h), 1e-5, **STATISTICS),
    case("rms_norm", x(B, T, G * r), w(G, r), 1e-5, grouped=True, **STATISTICS),
    case("rms_norm", x(B, T, G * r), w(G, r), 1e-5, 1.0, grouped=True, **OTHER_STEPS),
    case("layer_norm", x(B, T, d), w(d), w(d), 1e-5, **STATISTICS),
    case("layer_norm", x(B, T, d), w(d), None, 1e-5, **STATISTICS),
    case("layer_norm", x(B, T, d), None, None, 1e-5, **STATISTICS),
    case("layer_norm", x(B, T, d), w(d), w(d), 1e-5, 1.0, **STATISTICS),
    case("layer_norm", x(B, T, H, h), w(H, h), None, 1e-5, **OTHER_STEPS),
    case("norm_heads", rms(h, 1e-5), x(B, T, H, h), **STATISTICS),
    case("norm_heads", layer_norm(h, 1e-5), x(B, T, H, h), **STATISTICS),
    case("norm_heads", repeat(layer_norm(h, 1e-5, bias=False), H), x(B, T, H, h), **STATISTICS),
    case("l2_norm", f32(B, T, G, n), 1e-6),
    *(
        case("act", x(B, T, d), name)
        for name in (
            "silu",
            "gelu",
            "gelu_pytorch_tanh",
            "quick_gelu",
            "relu",
            "relu2",
            "sigmoid",
            "softplus",
            "tanh",
        )
    ),
    case("gated", x(B, T, F), x(B, T, F), "silu"),
    case("gated", x(B, T, F), x(B, T, F), "gelu_pytorch_tanh"),
    case("clamped_gated", x(B, T, F), x(B, T, F), 7.0, 1.702),
    case("add", x(B, T, d), x(B, T, d)),
    case("add", x(B, T, d), x(T, d)),
    case("multiply", x(B, T, d), x(B, T, d)),
    case("multiply", x(B, T, d), x(B, T, Expr.const(1))),
    case("multiply", x(B, T, H, h), x(B, T, H, Expr.const(1))),
    case("dot", x(B, T, G, d), x(B, T, G, d)),
    case("signed_root", x(B, T, G, Expr.const(1)), 1e-6, **OTHER_STEPS),
    case("scale", x(B, T, d), 0.5),
    case("scale", x(B, T, d), 1.0),
    case("scale_by_weight", x(B, T, d), w(1)),
    case("scale_by_weight", f32(B, T, H, m), w(H)),
    case("scale_by_weight", x(B, T, d), w(d)),
    case("scale_by_position", Q, None),
    case("scale_by_position", Q, TemperatureTuning(scale=0.1, floor=4, offset=1)),
    case("scale_by_position", Q, LogNScaling(original_context=4)),
    case("softcap", x(B, T, V), 30.0),
    case("softcap", x(B, T, V), None),
    case("offset", x(B, T, d), 0.5),
    case("sinkhorn", f32(B, T, n, n), 3, 1e-6, **OTHER_STEPS),
    case("mix_streams", x(B, T, G, d), x(B, T, H, G)),
    case("normalize_sum", f32(B, T, G), **OTHER_STEPS),
    case("softmax", f32(B, T, G), **STATISTICS),
    case("clamp", x(B, T, d), 8.0),
    case("softplus", x(B, T, H), w(H)),
    case("softplus", x(B, T, H), w(H), 0.01),
    case("softplus", x(B, T, H), w(H), 0.0, 0.5),
    case("decay", f32(B, T, H), w(H)),
    case("decay", f32(B, T, H, n), w(H, 1)),
    case("bounded_decay", x(B, T, H * n), w(H, 1), w(H * n), n, -5.0, **OTHER_STEPS),
    case("to_float32", x(B, T, d)),
    case("to_float32", f32(B, T, d)),
    case("to_model_dtype", x(B, T, d)),
    case("to_model_dtype", f32(B, T, d)),
    case("dropout", x(B, T, d)),
    # Shapes
    case("split_heads", x(B, T, H * h), h),
    case("merge_heads", x(B, T, H, h)),
    case("split", x(B, T, H, h + p), h, p),
    case("split", x(B, T, d), 3, 4, 5),
    case("concat", x(B, T, d), x(B, T, d)),
    case("concat", x(B, T, H, h), x(B, T, Expr.const(1), p)),
    case("concat", x(B, T, d), x(B, T, F), x(B, T, h)),
    case(
        "last_token",
        x(B, T, d),
        passes=(PROMPT, PROMPT._replace(last_only=True), DECODE._replace(last_only=True)),
    ),
    # Images and sound
    case("prepend", x(B, PATCHES, d), w(d)),
    case("prepend", x(B, PATCHES, d), w(r, d), w(1, 1, d)),
    case("drop_tokens", x(B, PATCHES, d), 1),
    case("add_positions", x(B, PATCHES, d), w(PATCHES, d)),
    case("add_positions", x(B, PATCHES, d), w(1, PATCHES, d)),
    *(case("add_positions", x(B, PATCHES, d), w(9, d), method) for method in METHODS),
    case("add_positions", x(B, PATCHES, d), w(2, 9, d), "axial"),
    case("add_positions", x(B, PATCHES, d), w(9, 2, d), "axial_last"),
    case("merge_patches", x(B, PATCHES, d), 2, saves=()),
    case("merge_patches", x(B, PATCHES, d), 3, True, saves=()),
    case("merge_patches", x(B, PATCHES, d), 4, padded=True, saves=()),
    case("pool_patches", x(B, PATCHES, d), 2),
    case("standardize", x(B, PATCHES, d), w(d), w(d), **OTHER_STEPS),
    case("clip", x(B, PATCHES, d), w(), w(), **OTHER_STEPS),
    case("encoder_attention", x(B, PATCHES, H, h), *(x(B, PATCHES, K, h),) * 2, 1.0, saves=()),
    case("encoder_attention", *(x(B, PATCHES, H, h),) * 3, saves=()),
    case("encoder_tokens"),
    case("keep_encoded", ENCODED, x(B, T, K, h), x(B, T, K, h)),
    case("read_encoded", ENCODED),
    case("layer_outputs", repeat(linear(d, d), L), x(B, PATCHES, d), (-1, 0, 2), **OTHER_STEPS),
    # Tokens meet
    case("rope", Q, None),
    *(case("rope", Q, rope, passes=(PROMPT, DECODE)) for rope in (HALF, ALL, ADJACENT)),
    case("rope", Q, ProportionalRope(theta=1e4, dim=2, head_dim=6)),
    *(
        case("update_cache", mixer, x(B, T, K, h), x(B, T, K, h), passes=WITH_CACHE)
        for mixer in (FULL, WINDOW, CHUNKED)
    ),
    case("update_cache", FULL, x(B, T, Expr.const(1), r + p), passes=WITH_CACHE),
    *(case("read_cache", mixer.replace(kv_layer=0), passes=WITH_CACHE) for mixer in (FULL, WINDOW)),
    *(
        case("attention", mixer, Q, KEYS, KEYS, h, passes=ALL_PASSES)
        for mixer in (FULL, WINDOW, CHUNKED)
    ),
    case("attention", BIDIRECTIONAL, Q, KEYS, KEYS, h),
    case("attention", FULL, Q, GROUPED, GROUPED, h, passes=ALL_PASSES),
    case("attention", FULL, Q, ONE, ONE, h, passes=ALL_PASSES),
    case("attention", WINDOW, Q, GROUPED, GROUPED, h, w(H), passes=ALL_PASSES, **OTHER_STEPS),
    case(
        "attention",
        FULL.replace(score_transform=ScoreTransform(scale=0.1, softcap=50.0)),
        Q,
        GROUPED,
        GROUPED,
        h,
        passes=ALL_PASSES,
        saves=(torch.float32,),
    ),
    case(
        "attention",
        FULL.replace(score_transform=ScoreTransform(alibi=Alibi())),
        Q,
        KEYS,
        KEYS,
        h,
        passes=ALL_PASSES,
        **OTHER_STEPS,
    ),
    case(
        "attention",
        FULL,
        x(B, T, H, h + p),
        x(B, S, H, h + p),
        x(B, S, H, r),
        h + p,
        passes=ALL_PASSES,
        **OTHER_STEPS,
    ),
    case(
        "attention",
        FULL,
        x(B, T, H, r + p),
        x(B, S, Expr.const(1), r + p),
        x(B, S, Expr.const(1), r),
        h + p,
        passes=(DECODE,),
    ),
    case(
        "attention",
        FULL,
        Q,
        GROUPED,
        GROUPED,
        h,
        None,
        None,
        x(B, T, H, G),
        passes=ALL_PASSES,
        **OTHER_STEPS,
    ),
    case(
        "select_blocks",
        Blocks(),
        x(B, T, K, h),
        x(B, S, Expr.const(1), h),
        passes=ALL_PASSES,
        **OTHER_STEPS,
    ),
    case(
        "select_keys",
        INDEXER,
        x(B, T, H, h),
        x(B, S, Expr.const(1), h),
        f32(B, T, H),
        passes=ALL_PASSES,
        **OTHER_STEPS,
    ),
    case(
        "select_keys",
        INDEXER.replace(top_k=MANY),
        x(B, T, H, h),
        x(B, S, Expr.const(1), h),
        f32(B, T, H),
        passes=ALL_PASSES,
        **OTHER_STEPS,
    ),
    case(
        "select_keys",
        INDEXER.replace(ratio=4),
        x(B, T, H, h),
        x(B, WINDOWS, Expr.const(1), h),
        f32(B, T, H),
        passes=WINDOWED,
        **OTHER_STEPS,
    ),
    case(
        "select_keys",
        INDEXER.replace(ratio=4),
        x(B, T, H, h),
        x(B, WINDOWS, Expr.const(1), h),
        None,
        passes=WINDOWED,
        **OTHER_STEPS,
    ),
    case("add_open_window", INDEXER.replace(ratio=4), ids(B, T, SELECTED), passes=WINDOWED),
    case(
        "compress",
        MEANS,
        x(B, T, h),
        None,
        None,
        passes=(PROMPT, CACHED, DECODE, Pass(1, 7)),
        **OTHER_STEPS,
    ),
    case(
        "rope_windows",
        MEANS,
        x(B, NEW_WINDOWS, Expr.const(1), h),
        None,
        passes=(PROMPT, Pass(1, 7)),
    ),
    *(
        case(
            "compress",
            COMPRESSOR,
            x(B, T, 2 * h),
            x(B, T, 2 * h),
            w(4, 2 * h),
            passes=(PROMPT, CACHED, DECODE),
            **OTHER_STEPS,
        ),
        case(
            "compress",
            SINGLE,
            x(B, T, h),
            x(B, T, h),
            w(4, h),
            passes=(PROMPT, CACHED, DECODE, Pass(1, 7)),
            **OTHER_STEPS,
        ),
        case(
            "rope_windows",
            SINGLE,
            x(B, NEW_WINDOWS, Expr.const(1), h),
            HALF,
            passes=(PROMPT, Pass(1, 7)),
            **OTHER_STEPS,
        ),
        case(
            "update_windows",
            SINGLE,
            x(B, NEW_WINDOWS, Expr.const(1), h),
            passes=(PROMPT, CACHED, Pass(1, 7)),
            **OTHER_STEPS,
        ),
    ),
    *(
        case(
            *(
                "compressed_attention",
                COMPRESSED.replace(**selecting),
                Q,
                ONE,
                x(B, WINDOWS, Expr.const(1), h),
                h,
                w(H),
                *chosen,
            ),
            passes=(PROMPT, CACHED, CHUNK_OF_PROMPT, DECODE),
            **OTHER_STEPS,
        )
        for selecting, chosen in (
            ({}, ()),
            ({"top_k": Expr("ki", 3)}, (Input((B, T, Expr("ki", 1)), "first"),)),
        )
    ),
    case("reuse_selection", INDEXER, passes=ALL_PASSES),
    case("reuse_selection", INDEXER.replace(ratio=4, block_size=4), passes=WINDOWED),
    case(
        *(
            "attention",
            INDEXER.replace(block_size=4),
            Q,
            KEYS,
            KEYS,
            h,
            None,
            Input((B, T, Expr.const(1), SELECTED), "first"),
        ),
        passes=ALL_PASSES,
        **OTHER_STEPS,
    ),
    case(
        "attention",
        INDEXER,
        Q,
        KEYS,
        KEYS,
        h,
        None,
        ids(B, T, SELECTED),
        passes=(CHUNK_OF_PROMPT, DECODE),
        **OTHER_STEPS,
    ),
    case(
        "attention",
        INDEXER,
        Q,
        ONE,
        ONE,
        h,
        w(H),
        ids(B, T, SELECTED),
        passes=(CHUNK_OF_PROMPT, DECODE),
        **OTHER_STEPS,
    ),
    *(
        case(
            "causal_conv",
            Recurrence(),
            x(B, T, d),
            w(d, c),
            bias,
            passes=(PROMPT, CHUNK_OF_PROMPT, DECODE),
            **OTHER_STEPS,
        )
        for bias in (None, w(d))
    ),
    case(
        "causal_conv",
        Recurrence(),
        x(B, T, d),
        w(d, c),
        None,
        3,
        passes=(PROMPT, CHUNK_OF_PROMPT, DECODE),
        **OTHER_STEPS,
    ),
    case(
        "hash_ngrams",
        Hashes(),
        *(w(n).replace(buffer=True, dtype="I64") for n in (3, 4, 4)),
        passes=(PROMPT, CHUNK_OF_PROMPT, DECODE),
    ),
    case(
        "gated_delta_rule",
        Recurrence(),
        *float32(DELTA),
        passes=(PROMPT, CHUNK_OF_PROMPT, DECODE, TWO_CHUNKS),
        **OTHER_STEPS,
    ),
    case(
        "gated_delta_rule",
        Recurrence(),
        *float32(KIMI_DELTA),
        passes=(PROMPT, CHUNK_OF_PROMPT, DECODE, TWO_CHUNKS),
        **OTHER_STEPS,
    ),
    case(
        *(
            "linear_attention",
            Recurrence(),
            *float32((x(B, T, H, n), x(B, T, H, n), x(B, T, H, m))),
            2,
        ),
        passes=(PROMPT, CHUNK_OF_PROMPT, DECODE, TWO_CHUNKS),
        **OTHER_STEPS,
    ),
    case(
        *("ssm_scan", Recurrence()),
        *float32((x(B, T, H, m), x(B, T, G, n), x(B, T, G, n), x(B, T, H))),
        w(H),
        passes=(PROMPT, CHUNK_OF_PROMPT, DECODE, TWO_CHUNKS),
        **OTHER_STEPS,
    ),
    case(
        *("selective_scan", Recurrence()),
        *(x(B, T, d), x(B, T, n), x(B, T, n), f32(B, T, d)),
        *(w(d, n), w(d)),
        passes=(PROMPT, CHUNK_OF_PROMPT, DECODE, Pass(SCAN_CHUNK + 3)),
        **OTHER_STEPS,
    ),
    # One of many
    case("route", f32(B, T, E), None, MOE, **OTHER_STEPS),
    case(
        "route",
        f32(B, T, E),
        w(E),
        MOE.replace(scoring="sigmoid", routed_scaling_factor=2.5),
        **OTHER_STEPS,
    ),
    case(
        "route", f32(B, T, E), w(E), MOE.replace(expert_groups=ExpertGroups(3, 2, 2)), **OTHER_STEPS
    ),
    case("route", f32(B, T, E), None, MOE.replace(norm_topk_prob=False), **OTHER_STEPS),
    case("route_by_token", f32(B, T, E), w(V, k), MOE, **OTHER_STEPS),
    case("scale_by_expert", f32(B, T, k), ids(B, T, k), w(E), **OTHER_STEPS),
    case(
        "experts",
        MOE,
        repeat(swiglu(d, F), E),
        x(B, T, d),
        ids(B, T, k),
        f32(B, T, k),
        **OTHER_STEPS,
    ),
    case(
        "experts",
        MOE,
        repeat(linear(F, d), E),
        x(B, T, d),
        ids(B, T, k),
        f32(B, T, k),
        **OTHER_STEPS,
    ),
    case(
        "experts",
        MOE.replace(routing="input"),
        repeat(mlp(d, F, "relu2"), E),
        x(B, T, d),
        ids(B, T, k),
        f32(B, T, k),
        **OTHER_STEPS,
    ),
    case(
        *("experts", MOE),
        repeat(swiglu(d, F, bias=True).extended(ClampedMLP, limit=7.0, alpha=1.702), E),
        *(x(B, T, d), ids(B, T, k), f32(B, T, k)),
        **OTHER_STEPS,
    ),
    case("layers", repeat(linear(d, d), L), x(B, T, d)),
    case(
        "layers",
        repeat(
            PerLayerInput(
                gate=linear(p, d), out=linear(d, p), norm=rms(d, 1e-5), activation="gelu"
            ),
            L,
        ),
        x(B, T, d),
        x(B, T, L, p),
        **STATISTICS,
    ),
    case("layers", Stack(((mlp(d, F, "relu"), swiglu(d, F)), 2)), x(B, T, d)),
    case(
        "layers",
        repeat(StateLayer(mlp_norm=rms(d, 1e-5), mlp=mlp(d, F, "relu")), L),
        x(B, T, d),
        x(B, T, d),
        **STATISTICS,
    ),
]
OPERATIONS = [name for name in vars(Machine) if not name.startswith("_") and name != "absorbs"]


class Run(NamedTuple):
    """An operation in one pass on both machines, and the sizes of that pass."""

    sizes: dict[str, int]
    recorder: GraphRecorder
    nodes: list[Node]
    input_nodes: list[Node]
    compute: Callable[[], Any]
    inputs: list[Tensor]
    module: Module

    def evaluate(self, value: int) -> int:
        return int(Expr.const(value).at(**self.sizes))

    @property
    def recorded(self) -> list[tuple[Node, int]]:
        """Every node with the number of times that it runs."""
        return [
            (node, self.evaluate(region.times))
            for region in self.recorder.regions
            for node in region.nodes
        ]


def run_both(case: Case, at: Pass, dtype: torch.dtype = torch.float32, batch: int = 2) -> Run:
    """Record an operation, and prepare its computation with tensors."""
    torch.manual_seed(0)
    module = Module(case.spec, TensorOptions(dtype, torch.device("cpu")), layer=0)
    for parameter in module.parameters():
        parameter.data.normal_()
    for buffer in module.buffers():
        buffer.fill_(1)
    has_cache = isinstance(case.spec.a, AttentionBase | RecurrentMixer)
    cache = Cache(
        [module.a.new_cache(CAPACITY if at.past or at.cached else 0)] if has_cache else [], CAPACITY
    )
    if at.past:
        prepare(case, module, cache, at._replace(tokens=at.past, past=0), dtype, batch)[1]()
        cache.length = at.past
    sizes, compute, inputs = prepare(case, module, cache, at, dtype, batch)

    new, keys = Expr.const(1) if at.is_decode else T, S if at.past else T
    recorder = GraphRecorder(
        B, new, P, decode=at.is_decode, last_only=at.last_only, activation_bytes=dtype.itemsize
    )
    recorder.patch_grid = (6, 6)
    widths = {"model": dtype.itemsize, "float32": FLOAT32, "ids": INT64, "first": INT64}
    result = recorder.record_block(
        case.spec,
        *((tuple(y.at(T=new, S=keys) for y in x.shape), widths[x.kind]) for x in case.inputs),
    )
    input_nodes = recorder.regions[0].nodes[: len(case.inputs)]
    return Run(sizes, recorder, as_list(result), input_nodes, compute, inputs, module)


def prepare(
    case: Case, module: Module, cache: Cache, at: Pass, dtype: torch.dtype, batch: int
) -> tuple[dict[str, int], Callable[[], Any], list[Tensor]]:
    """Return the sizes of a pass, its computation, and the inputs of the operation."""
    m = TorchMachine(torch.zeros(batch, at.tokens, dtype=torch.long), cache, last_only=at.last_only)
    m.dtype = dtype
    sizes = {"B": batch, "T": at.tokens, "P": at.past, "S": 0}
    if isinstance(case.spec.a, AttentionBase):
        kept = cache.layers[0]
        sizes["S"] = (
            len(m.cached_positions(kept.capacity))
            if isinstance(kept, KVCache)
            else at.past + at.tokens
        )
    kinds = {"model": dtype, "float32": torch.float32}
    shapes = [(tuple(int(y.at(**sizes)) for y in x.shape), x.kind) for x in case.inputs]
    most = {"ids": int(E), "first": 1}
    inputs = [
        torch.randint(most[kind], shape) if kind in most else torch.randn(shape, dtype=kinds[kind])
        for shape, kind in shapes
    ]
    if case.spec.name == "read_cache":
        module.a.shares_kv = True
        m.update_cache(module.a, *torch.randn(2, batch, at.tokens, int(K), int(h), dtype=dtype))
    if case.spec.name == "encoder_tokens":
        m.encoder_ids = torch.zeros(batch, at.tokens, dtype=torch.long)
    if case.spec.name == "read_encoded":
        cache.encoded[0] = tuple(torch.randn(2, batch, at.tokens, int(K), int(h), dtype=dtype))
    if case.spec.name == "reuse_selection":
        module.a.shares_selection, module.a.selecting_layer = True, 0
        keys = sizes["S"] // case.spec.a.ratio
        q, k, weights = (
            torch.randn(batch, at.tokens, 2, 4),
            torch.randn(batch, keys, 1, 4),
            torch.randn(batch, at.tokens, 2),
        )
        selected = m.select_keys(module.a, q, k, weights)
        if case.spec.a.ratio > 1:
            m.add_open_window(module.a, selected)
    return sizes, lambda: as_list(module(m, *inputs)), inputs


def as_list(result: Any) -> list[Any]:
    return [result] if isinstance(result, Node | Tensor) else list(result)


def storage(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


def params() -> list[Any]:
    """Every case with each of its passes."""
    counts: Counter[str] = Counter()
    found = []
    for one in CASES:
        counts[one.spec.name] += 1
        for at in one.passes:
            label = f"{one.spec.name}-{counts[one.spec.name]}-{at.tokens}after{at.past}{'-cached' * at.cached}{'-last' * at.last_only}"
            found.append(pytest.param(one, at, id=label))
    return found


def test_every_operation_is_covered() -> None:
    assert {x.spec.name for x in CASES} == set(OPERATIONS)


def test_every_row_is_covered() -> None:
    found = {
        node.op.name
        for x in CASES
        for at in x.passes
        for dtype in DTYPES
        for node, _ in run_both(x, at, dtype).recorded
    }
    # a TorchMachine has no dropout, and a pass that is unrolled has no regions of layers
    assert found == ROWS.keys() - {"dropout", "layer_end"}


def arguments(function: Any) -> list[tuple[str, Any, Any]]:
    """The name, kind and default of each argument after the machine."""
    return [(x.name, x.kind, x.default) for x in inspect.signature(function).parameters.values()][
        1:
    ]


@each("name", OPERATIONS)
def test_implementations_have_the_signature_of_the_method(name: str) -> None:
    expected = arguments(getattr(Machine, name))
    assert arguments(getattr(TorchMachine, name)) == expected
    for written in (vars(GraphRecorder)[name], vars(OperationLog)[name]):
        if written.__name__ == name:  # others are made from the row and the method
            assert arguments(written) == expected
    row = ROWS.get(name)
    if row is None:  # it runs blocks, and is not itself a node
        assert vars(GraphRecorder)[name].__name__ == name
        return
    if row.record is not None:
        assert arguments(row.record) == expected
    for rule in (row.shape, row.facts, row.is_identity):
        if rule is not None:
            assert {*inspect.signature(rule).parameters} <= {"m", *(x for x, _, _ in expected)}


def test_rows_have_the_names_of_their_variables() -> None:
    rows = [
        (variable, row)
        for module in vars(operation_list).values()
        if isinstance(module, ModuleType)
        for variable, row in vars(module).items()
        if isinstance(row, Row)
    ]
    assert len({id(row) for _, row in rows}) == len(ROWS)
    assert all(variable == row.name and ROWS[variable] is row for variable, row in rows)


@each("dtype", DTYPES)
@each(("case", "at"), params())
@torch.no_grad()
def test_graph_has_shapes_widths_and_views_of_tensors(
    case: Case, at: Pass, dtype: torch.dtype
) -> None:
    run = run_both(case, at, dtype)
    results = run.compute()
    assert [tuple(map(run.evaluate, x.shape)) for x in run.nodes] == [
        tuple(x.shape) for x in results
    ]
    assert [x.width for x in run.nodes] == [x.element_size() for x in results]
    for node, y in zip(run.nodes, results, strict=True):
        assert [node.storage is x for x in run.input_nodes] == [
            storage(y) == storage(x) for x in run.inputs
        ]
        assert [node is x for x in run.input_nodes] == [y is x for x in run.inputs]


@each(("case", "at"), params())
@torch.no_grad()
def test_flops_equal_torch(case: Case, at: Pass) -> None:
    run = run_both(case, at)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        run.compute()
    flops = sum(
        times * run.evaluate(rule(node, False))
        for node, times in run.recorded
        if (rule := node.op.flops) is not None
    )
    assert counter.get_total_flops() == flops + products_within_chunks(run) - elementwise_updates(
        run
    )


def elementwise_updates(run: Run) -> int:
    """The FLOPs of the states of Mamba, whose update is an outer product that torch's counter does not see."""
    return sum(
        run.evaluate(x.op.flops(x, False)) // 2
        for x, _ in run.recorded
        if x.op.name == "selective_scan"
    )  # type: ignore[misc]


def products_within_chunks(run: Run) -> int:
    """The FLOPs that a recurrence in chunks has beyond those of one token at a time: products between the tokens of a chunk."""
    result = 0
    for node, _ in run.recorded:
        if node.op.name in ("gated_delta_rule", "linear_attention", "ssm_scan"):
            chunks = [
                min(CHUNK, run.sizes["T"] - first) for first in range(0, run.sizes["T"], CHUNK)
            ]
            pairs = run.sizes["B"] * sum(x * x for x in chunks)
            by_group = (2 if node.op.name == "gated_delta_rule" else 1) * int(
                G * n
            )  # q kᵀ, and k kᵀ of the delta rule
            if node.op.name == "linear_attention":
                by_group = int(H * n)
            elif (
                len(node.inputs[3].shape) == 4
            ):  # with a decay for each channel they are no matrix products
                by_group = 0
            result += 2 * pairs * (by_group + int(H * m))
    return result


def saved_by_torch(run: Run) -> int:
    """The bytes that autograd saves, each storage once, without weights."""
    weights, found = {storage(x) for x in run.module.parameters()}, {}

    def pack(x: Tensor) -> Tensor:
        found[storage(x)] = x  # kept, so that its address is not used again
        return x

    for x in run.inputs:
        x.requires_grad_(x.is_floating_point())
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        results = run.compute()
    assert results
    return sum(
        x.untyped_storage().nbytes() for address, x in found.items() if address not in weights
    )


def saved_by_rules(run: Run, kernels: Kernels) -> int:
    """The bytes that the rules yield for one sequence, each storage once."""
    found: dict[object, int] = {}
    for node, times in run.recorded:
        for key, x in rule(node, kernels) if (rule := node.op.saved) else ():
            if not x.shared_by_batch:
                found.setdefault(key, times * int(x.elements) * x.bytes)
    return run.sizes["T"] * sum(found.values())


def saving() -> list[Any]:
    """The cases in a prompt, by dtype."""
    prompts = [x for x in params() if x.values[1] == PROMPT]
    return [
        pytest.param(x.values[0], dtype, id=f"{x.id}-{dtype}")
        for x in prompts
        for dtype in x.values[0].saves
    ]


@each(("case", "dtype"), saving())
def test_saved_bytes_of_a_sequence_equal_torch(case: Case, dtype: torch.dtype) -> None:
    """Compare batches of 2 and of 4: what all sequences share does not count."""
    two, four = (run_both(case, PROMPT, dtype, batch) for batch in (2, 4))
    flash = case.spec.name == "attention" and case.spec.a.score_transform.softcap is None
    kernels = Kernels(flash=flash, fused=False, width=dtype.itemsize, context=PROMPT.tokens)
    assert saved_by_torch(four) - saved_by_torch(two) == 2 * saved_by_rules(two, kernels)
