"""Tensors saved for the backward pass, and functions that several rows of operations share.

Every operation saves what its derivative needs: a matrix product its input, a norm its input,
attention its queries, keys and values, a product both factors. Two implementations are described.
*Eager* is transformers' code in torch: RMSNorm in float32, step by step, and SwiGLU as three
operations. *Fused* has one kernel each for norms, SwiGLU and softmax, as in Megatron: a layer with
dropout then saves s·b·d·(34 + 5·H·s/d) bytes (Korthikanti et al. 2022, arXiv:2205.05198).

Transformers composes three things differently from the blocks' `forward`: it copies keys and values
for every query head, it has one matrix for q, k and v, and it does not join what it splits again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from ....core.expr import Expr, Variable
from ....core.tree import LETTERS
from ....utils.named_tuple import NamedTuple
from ....utils.record_type import Record
from ..node import FLOAT32, Node
from .shape_operations import concat, split

INT32 = 4
"""Bytes of an index."""
MASK = 1
"""Bytes of an element of a mask."""

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
"""Storage and tensor. The storage is a node, whose result is saved once for all operations, or any
other object."""
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
        if x.op is split and (part := _part_of_concat(x)) is not None:
            x = part
        elif (
            x.op.cache == "kept"
            or (x.op.is_cast and k.fused)
            or (x.is_view and not x.op.stands_for)
        ):
            x = x.inputs[0]
        else:
            return x


def _part_of_concat(x: Node) -> Node | None:
    """Return the input of a concatenation that a slice takes out again."""
    base = x.inputs[0]
    while base.op.cache == "kept":
        base = base.inputs[0]
    start = 0
    for part in base.inputs if base.op is concat else ():
        if (start, int(part.shape[-1])) == (x.attributes["start"], int(x.shape[-1])):
            return part
        start += int(part.shape[-1])
    return None


def saved_sharding(x: Node) -> SavedSharding:
    """Return how a saved tensor is sharded; outside sharded regions, by tokens."""
    return (
        "tensor" if x.sharding == "tensor" else "gathered" if x.sharding == "expert" else "sequence"
    )


def within(x: Node, what: str) -> str:
    """Return the name of a tensor: experts have one for all of theirs."""
    places = x.path.split(".")
    return "experts" if LETTERS[1] in places else "shared expert" if "shared" in places else what


def save_tensor(what: str, x: Node, k: Kernels, **flags: bool) -> Iterator[Saved]:
    """Yield an input or the result of an operation; keys and values of another layer are saved
    there.
    """
    x = stored_tensor(x, k)
    width = min(x.width, k.width) if k.fused and not x.op.keeps_dtype else x.width
    if x.op.cache != "read":
        yield (
            x,
            SavedTensor(
                what, elements_per_token(x.size), width, saved_sharding(x), x.max_parts, **flags
            ),
        )


def own_tensor(what: str, x: Node, size: int, width: int, **flags: bool) -> Saved:
    """Return a tensor that only this operation has, sharded like the node x; `size` is its
    elements.
    """
    return object(), SavedTensor(
        what, elements_per_token(Expr.const(size)), width, saved_sharding(x), x.max_parts, **flags
    )


def save_mixer_inputs(x: Node, k: Kernels) -> Iterator[Saved]:
    """All inputs."""
    for y in x.inputs:
        yield from save_tensor("mixer states", y, k)


def estimate_mixer_inputs(x: Node, k: Kernels) -> Iterator[Saved]:
    """All inputs; states or steps that the kernel saves in addition are not known."""
    for y in x.inputs:
        yield from save_tensor("mixer states", y, k, estimated=True)
