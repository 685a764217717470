"""The column `saved` of `RULES`: the tensors that an operation saves for the backward pass.

Every operation saves what its derivative needs: a matrix product its input, a norm its input,
attention its queries, keys and values, a product both factors. Two implementations are described.
*Eager* is transformers' code in torch: RMSNorm in float32, step by step, and SwiGLU as three
operations. *Fused* has one kernel each for norms, SwiGLU and softmax, as in Megatron: a layer with
dropout then saves s·b·d·(34 + 5·H·s/d) bytes (Korthikanti et al. 2022, arXiv:2205.05198).

Transformers composes three things differently from the blocks' `forward`: see `_repeated_heads`,
`_fused_qkv` and `_part_of_concat`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from ...core.expr import Expr, Variable, ceil_div, floor_div, maximum, minimum, product, total
from ...core.tree import LETTERS
from ...utils.record_type import Record
from .node import FLOAT32, INT64, Node

_ESTIMATED = frozenset(
    {"compress", "gated_delta_rule", "linear_attention", "selective_scan", "sinkhorn", "ssm_scan"}
)
"""Operations whose kernels save more, which is not known."""
_INT32 = 4
"""Bytes of an index."""
_FP8 = 1
_MASK = 1
"""Bytes of an element of a mask."""
_OUTPUT_ONLY_ACTIVATIONS = frozenset({"relu", "sigmoid", "tanh"})
"""Activation functions whose derivative needs only the output."""
_DECOMPOSED_ACTIVATIONS = {"gelu_new": 3, "quick_gelu": 1}
"""Activation functions that transformers composes of several operations, with the number of
tensors saved in between."""
_OWN_DTYPE = frozenset({"encoder_ids", "ids", "softplus", "decay"})
"""Operations whose results have a dtype of their own in fused kernels, too."""

SavedSharding = Literal["sequence", "tensor", "gathered"]


class Kernels(Record):
    """The implementation that runs, and its dtype."""

    # no materialized scores, only one log-sum-exp per query (Dao et al. 2022, arXiv:2205.14135)
    flash: bool = True
    fused: bool = True
    # on attention scores, attention output and MLP output, as in classic transformers
    dropout: bool = False
    width: int = 2  # bytes per activation
    context: int = 1  # keys per query
    fused_qkv: bool = False  # q, k and v are slices of one tensor: saving one slice saves all
    # matrices with adapters; if there are any, all other weights are frozen
    adapter_paths: frozenset[str] = frozenset()
    rank: int = 0  # of the adapters
    adapter_width: int = FLOAT32  # bytes per element of an adapter
    # False: estimates, since the class in transformers may compose its operations otherwise
    compared: bool = True
    # linear layers inside layers save an FP8 copy of their input: elements and bytes of a scale
    fp8_scales: tuple[int, int] | None = None

    @property
    def keys(self) -> Expr:
        """The keys per query as a variable, which stays one in the elements of a token."""
        return Expr.variable("context", self.context)


class SavedTensor(NamedTuple):
    """A saved tensor: its elements per token, and how they are sharded."""

    what: str
    elements: Expr
    bytes: int
    # gathered: on every rank that holds a shard of the same expert
    sharding: SavedSharding = "tensor"
    max_parts: int = 0  # the largest number of shards under tensor parallelism; 0: any
    is_score: bool = False  # attention scores, which selective recomputation does not save
    shared_by_batch: bool = False  # saved once for all sequences of a batch
    estimated: bool = False
    # needed only for the gradient of a weight, so not saved if that weight is frozen
    for_weight_gradient: bool = False


Saved = tuple[object, SavedTensor]
"""What the tensor is stored in: a node, whose result is saved once for all operations, or any
other object; and the tensor."""
SavedRule = Callable[[Node, Kernels], Iterator[Saved]]


def elements_per_token(size: Expr) -> Expr:
    """Return the elements of each token of B sequences of T tokens without earlier ones."""
    found: dict[tuple[object, ...], int] = {}
    for monomial, k in size.terms.items():
        of_pass = {x for x in monomial if isinstance(x, Variable) and x.symbol in ("B", "T")}
        if len(of_pass) == 2:
            found[tuple(x for x in monomial if x not in of_pass)] = k
    return Expr.of(found)  # type: ignore[arg-type]


def stored_tensor(x: Node, k: Kernels) -> Node:
    """Return the node whose result is stored when x is saved.

    A view is stored with its base. Training has no cache: keys and values are not stored a second
    time, and latent vectors are not concatenated with rotary keys and split again. A fused kernel
    casts what it reads.
    """
    while True:
        if x.op == "slice" and (part := _part_of_concat(x)) is not None:
            x = part
        elif (
            x.op in ("keep_encoded", "update_cache")
            or (x.op == "cast" and k.fused)
            or (x.is_view and x.op not in ("select_layer", "embeddings"))
        ):
            x = x.inputs[0]
        else:
            return x


def _part_of_concat(x: Node) -> Node | None:
    """Return the input of a concatenation that a slice takes out again."""
    base = x.inputs[0]
    while base.op in ("keep_encoded", "update_cache"):
        base = base.inputs[0]
    start = 0
    for part in base.inputs if base.op == "concat" else ():
        if (start, int(part.shape[-1])) == (x.attributes["start"], int(x.shape[-1])):
            return part
        start += int(part.shape[-1])
    return None


def saved_sharding(x: Node) -> SavedSharding:
    """Return how a saved tensor is sharded; outside sharded regions, by tokens."""
    return (
        "tensor" if x.sharding == "tensor" else "gathered" if x.sharding == "expert" else "sequence"
    )


def _within(x: Node, what: str) -> str:
    """Return the name of a tensor: experts have one for all of theirs."""
    places = x.path.split(".")
    return "experts" if LETTERS[1] in places else "shared expert" if "shared" in places else what


def _result(what: str, x: Node, k: Kernels, **flags: bool) -> Iterator[Saved]:
    """Yield an input or the result of an operation; keys and values of another layer are saved
    there.
    """
    x = stored_tensor(x, k)
    width = min(x.width, k.width) if k.fused and x.op not in _OWN_DTYPE else x.width
    if x.op != "read_cache":
        yield (
            x,
            SavedTensor(
                what, elements_per_token(x.size), width, saved_sharding(x), x.max_parts, **flags
            ),
        )


def _extra(what: str, x: Node, size: int, width: int, **flags: bool) -> Saved:
    """Return a tensor that only this operation has, sharded like the node x; `size` is its
    elements.
    """
    return object(), SavedTensor(
        what, elements_per_token(Expr.const(size)), width, saved_sharding(x), x.max_parts, **flags
    )


def save_linear(x: Node, k: Kernels) -> Iterator[Saved]:
    """Its input, or an FP8 copy of it with its scales."""
    what = _name_of_input(x, stored_tensor(x.inputs[0], k))
    if k.fp8_scales is None or not x.path.startswith("layers.") or x.path.endswith(".router"):
        yield from _result(what, x.inputs[0], k, for_weight_gradient=True)
        return
    block, width = k.fp8_scales
    for storage, tensor in _result(what, x.inputs[0], k, for_weight_gradient=True):
        yield ("fp8", storage), tensor._replace(bytes=_FP8)
        if block:
            yield (
                ("scales", storage),
                tensor._replace(
                    what="scales of FP8", elements=ceil_div(tensor.elements, block), bytes=width
                ),
            )


def _name_of_input(x: Node, stored: Node) -> str:
    """Return the name of a linear layer's input."""
    if stored.op == "cast" and x.path.endswith(".router"):
        return "router"
    if stored.op == "dispatch":
        return "inputs of experts"
    if x.path.endswith(".attn.out"):
        return "mixer states"
    if stored.op in ("act", "gated", "clamped_gated"):
        return _within(x, "input of down")
    if stored.op == "attention" or (
        stored.op == "multiply" and any(y.storage.op == "attention" for y in stored.inputs)
    ):
        return "output of attention"
    if x.path.endswith(("q_up", "k_up", "v_up")):
        return "latents"
    return "latents of experts" if stored.op == "combine" else "inputs of linear maps"


def save_norm(x: Node, k: Kernels) -> Iterator[Saved]:
    """Its input, in float32 where the steps of the norm are kernels of their own; the
    statistics; and the result before the scale.
    """
    layer_norm, weight = x.op == "layer_norm", x.weights[:1]
    read, rows = (
        x.inputs[0],
        product((*x.shape[:-1], weight[0].shape[0] if x.attributes.get("grouped") else 1)),
    )
    eager = not (k.fused or (layer_norm and weight))
    if eager and read.width != FLOAT32:
        yield _extra("inputs of norms", read, x.size, FLOAT32)
    else:
        yield from _result("inputs of norms", read, k)
    yield _extra("statistics of norms", read, rows * 2 if layer_norm else rows, FLOAT32)
    if eager and weight:
        width = FLOAT32 if x.attributes.get("offset") else k.width
        yield _extra("normalized, before the scale", read, x.size, width, for_weight_gradient=True)


def save_l2_norm(x: Node, k: Kernels) -> Iterator[Saved]:
    """Its input and one number for each head."""
    yield from _result("mixer states", x.inputs[0], k)
    yield _extra("mixer states", x, product(x.shape[:-1]), FLOAT32)


def save_act(x: Node, k: Kernels) -> Iterator[Saved]:
    """Its input, or its result where that is enough."""
    name, what = x.attributes["name"], _name_of_activation(x)
    if k.fused and x.inputs[0].op == "causal_conv":
        return  # one kernel with the convolution
    yield from _result(what, x if name in _OUTPUT_ONLY_ACTIVATIONS else x.inputs[0], k)
    if not k.fused and name in _DECOMPOSED_ACTIVATIONS:
        yield _extra(what, x, x.size * _DECOMPOSED_ACTIVATIONS[name], x.width)


def _name_of_activation(x: Node) -> str:
    """Return the name of what an activation function outside a gated MLP saves."""
    if x.path.endswith(".attn"):
        return "gate of attention" if x.inputs[0].path.endswith(".attn.gate") else "mixer states"
    return "shared expert" if x.inputs[0].path.endswith(".shared_gate") else _within(x, "MLP")


def save_gated(x: Node, k: Kernels) -> Iterator[Saved]:
    """Gate, up and, with one kernel for each step, the tensors in between."""
    for y in x.inputs:
        yield from _result(_within(x, "MLP"), y, k)
    if not k.fused:
        steps = (
            4
            if x.op == "clamped_gated"
            else 1 + _DECOMPOSED_ACTIVATIONS.get(x.attributes["name"], 0)
        )
        yield _extra(_within(x, "MLP"), x, x.size * steps, x.width)


def save_multiply(x: Node, k: Kernels) -> Iterator[Saved]:
    """Both factors."""
    gated = any(y.storage.op == "attention" for y in x.inputs)
    what = (
        "gate of attention"
        if gated
        else "mixer states"
        if x.path.endswith(".attn")
        else "shared expert"
    )
    for y in x.inputs:
        activation = stored_tensor(y, k)
        fused = (
            k.fused
            and activation.op == "act"
            and activation.attributes["name"] not in _OUTPUT_ONLY_ACTIVATIONS
        )
        yield from _result(what, activation.inputs[0] if fused else y, k)


def save_scale_by_weight(x: Node, k: Kernels) -> Iterator[Saved]:
    """Its input, unless the weight is a buffer."""
    if not x.weights[0].weight.buffer:
        yield from _result("mixer states", x.inputs[0], k, for_weight_gradient=True)


def save_softcap(x: Node, k: Kernels) -> Iterator[Saved]:  # noqa: ARG001
    """The result of tanh."""
    yield _extra("tanh of logits", x, x.size, x.width)


def save_normalize_sum(x: Node, k: Kernels) -> Iterator[Saved]:
    """Its input and the sum of each vector."""
    yield from _result("router", x.inputs[0], k)
    yield _extra("router", x, product(x.shape[:-1]), x.width)


def save_softmax(x: Node, k: Kernels) -> Iterator[Saved]:  # noqa: ARG001
    """Its result."""
    yield _extra("residual streams", x, x.size, x.width)


def save_mix_streams(x: Node, k: Kernels) -> Iterator[Saved]:
    """Both factors."""
    for y in x.inputs:
        yield from _result("residual streams", y, k)


def save_clamp(x: Node, k: Kernels) -> Iterator[Saved]:
    """Its input."""
    yield from _result("inputs of clamps", x.inputs[0], k)


def save_softplus(x: Node, k: Kernels) -> Iterator[Saved]:  # noqa: ARG001
    """Its input with the bias, in float32; and its result, if it is clamped."""
    yield _extra("mixer states", x, x.size * (2 if x.attributes["clamped"] else 1), FLOAT32)


def save_bounded_decay(x: Node, k: Kernels) -> Iterator[Saved]:  # noqa: ARG001
    """The input with the bias, in float32, and the sigmoid."""
    yield _extra("mixer states", x, x.size * 2, FLOAT32)


def save_mixer_inputs(x: Node, k: Kernels) -> Iterator[Saved]:
    """All inputs; what the kernel of a recurrence saves of its states is not known."""
    for y in x.inputs:
        yield from _result("mixer states", y, k, estimated=x.op in _ESTIMATED)


def save_ids(x: Node, k: Kernels) -> Iterator[Saved]:  # noqa: ARG001
    """The token ids, or the positions, which all sequences share."""
    positions = x.inputs[0].op == "positions"
    one = SavedTensor(
        "token ids",
        Expr.const(1),
        INT64,
        "sequence",
        shared_by_batch=positions,
        for_weight_gradient=True,
    )
    yield x.inputs[0], one


def save_expert_outputs(x: Node, k: Kernels) -> Iterator[Saved]:
    """The outputs of the experts; their weights count with the router."""
    yield from _result("outputs of experts", x.inputs[0], k)


def save_rope(x: Node, k: Kernels) -> Iterator[Saved]:
    """The tables of cosines and sines, unless a fused kernel computes them on the fly; all
    layers share them.
    """
    rope = x.attributes["rope"]
    if not k.fused:
        yield (
            rope,
            SavedTensor(
                "rotary tables", Expr.const(2 * rope.dim), k.width, "sequence", shared_by_batch=True
            ),
        )


def save_attention(x: Node, k: Kernels) -> Iterator[Saved]:
    """Queries, keys and values; and either the scores, or the result and one number for each
    query.
    """
    q, key, value, *others = x.inputs
    for what, y in zip(("keys", "values"), (key, value), strict=True):
        yield from (
            _repeated_heads(what, x, y, k) if not (k.fused or k.flash) else _result(what, y, k)
        )
    yield from _fused_qkv(x, k)
    yield from _result("queries", q, k)
    if k.flash:
        yield _extra("sums of softmax", x, product(x.shape[:-1]), FLOAT32)
        yield from _result("output of attention", x, k)
        for y in others:
            if y.op not in ("select_blocks", "select_keys", "add_open_window", "reuse_selection"):
                yield from _result("biases of scores", y, k)
                continue
            if y.op == "select_blocks":
                size, kept = x.attributes["blocks"]
                blocks = product((*y.shape[:3], minimum(ceil_div(k.keys, size), kept)))
                yield (
                    y,
                    SavedTensor("selected blocks", elements_per_token(blocks), _INT32, "sequence"),
                )
                continue
            if windows := x.attributes["windows"]:
                ratio, most = windows
                chosen = product((*y.shape[:2], minimum(floor_div(k.keys, ratio), most) + 1))
                yield (
                    y,
                    SavedTensor("selected windows", elements_per_token(chosen), _INT32, "sequence"),
                )
                continue
            keys = minimum(k.keys, x.attributes["top_k"])
            yield (
                y,
                SavedTensor(
                    "selected keys",
                    elements_per_token(product((*y.shape[:2], keys))),
                    _INT32,
                    "sequence",
                ),
            )
    else:
        yield from _scores(x, k)


def save_compressed_attention(x: Node, k: Kernels) -> Iterator[Saved]:
    """Queries, keys and windows; and either the softmax of the scores, or the result and one
    number for each query.
    """
    q, key, windows, *selected = x.inputs
    ratio = int(x.attributes["ratio"])
    yield from _result("queries", q, k)
    yield from _result("keys", key, k)
    entries = -(-int(windows.shape[-1]) // ratio)
    yield (
        windows,
        SavedTensor(
            "windows",
            elements_per_token(product((*x.shape[:2], entries))),
            k.width,
            "sequence",
            estimated=True,
        ),
    )
    if not k.flash:
        size = product((*x.shape[:3], k.keys + floor_div(k.keys, ratio)))
        yield _extra(
            "softmax of scores",
            x,
            size,
            k.width if k.fused else FLOAT32,
            is_score=True,
            estimated=True,
        )
        return
    yield _extra("sums of softmax", x, product(x.shape[:-1]), FLOAT32)
    yield from _result("output of attention", x, k)
    for y in selected:
        keys = minimum(maximum(floor_div(k.keys, ratio), 1), x.attributes["top_k"])
        yield (
            y,
            SavedTensor(
                "selected keys",
                elements_per_token(product((*y.shape[:2], keys))),
                _INT32,
                "sequence",
            ),
        )


def _repeated_heads(what: str, x: Node, y: Node, k: Kernels) -> Iterator[Saved]:
    """Keys or values: transformers' `repeat_kv` copies them for every query head."""
    if int(y.shape[2]) == int(x.shape[2]):
        yield from _result(what, y, k)
    else:
        yield _extra(what, x, product((*x.shape[:3], y.shape[-1])), y.width)


def _fused_qkv(x: Node, k: Kernels) -> Iterator[Saved]:
    """The queries and keys before the rotation, which share the storage of the values where
    transformers has one matrix for all three.
    """
    q, key, *_ = x.inputs
    rotated = stored_tensor(key, k)
    if (
        k.fused_qkv
        and k.flash
        and not k.fused
        and rotated.op == "rope"
        and stored_tensor(rotated.inputs[0], k).op in ("linear", "clamp")
    ):
        size = product((*x.shape[:2], total((q.shape[2], key.shape[2])), x.shape[3]))
        yield _extra("values, as part of q, k and v", q, size, k.width)


def _scores(x: Node, k: Kernels) -> Iterator[Saved]:
    """What attention saves between its two products."""
    size = product((*x.shape[:3], k.keys))
    yield _extra("softmax of scores", x, size, k.width if k.fused else FLOAT32, is_score=True)
    if not k.fused and k.width != FLOAT32:
        yield _extra("softmax of scores, rounded", x, size, k.width, is_score=True)
    if x.attributes["transform"].softcap:
        yield _extra("tanh of scores", x, size, k.width, is_score=True)
    if k.dropout:
        yield _extra("dropout mask of scores", x, size, _MASK, is_score=True)
        yield _extra("softmax after dropout", x, size, k.width, is_score=True)


def save_route(x: Node, k: Kernels) -> Iterator[Saved]:  # noqa: ARG001
    """Probabilities, the chosen ones before and after normalization, their sum; and indices of
    tokens and experts.
    """
    each = product(x.shape[:-1])
    yield _extra("router", x, each * total((x.inputs[0].shape[-1], 2 * x.shape[-1], 1)), FLOAT32)
    yield _extra("router", x, 4 * x.size, INT64)


def save_scale_by_expert(x: Node, k: Kernels) -> Iterator[Saved]:  # noqa: ARG001
    """The factors of the chosen experts."""
    yield _extra("router", x, x.size, FLOAT32)


def save_dropout(x: Node, k: Kernels) -> Iterator[Saved]:  # noqa: ARG001
    """The mask."""
    yield _extra("dropout masks", x, x.size, _MASK)
