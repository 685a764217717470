"""`Operation`: one row, all that the views know of an operation of the `Machine`.

A multiply-add counts as two FLOPs. Only matrix products, convolutions and state updates are
counted: no norms, activation functions, softmax, rotary embeddings, elementwise gates and decays,
routing decisions or lookups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from ....core.attention_facts import AttentionWindow
from ....core.expr import Expr, as_number, larger, minimum, product
from ....utils.record_type import Record
from ..node import Node, UsedWeight

if TYPE_CHECKING:
    from .saved_tensors import SavedRule

HIDDEN_STATES, PER_LAYER_INPUTS, EMBEDDINGS, ENCODER_STATES = (
    "x",
    "per_layer_inputs",
    "embeddings",
    "encoder_states",
)
"""The inputs of a layer: the output of the previous one, its slice of the per-layer embeddings, the
embeddings of the tokens, and the output of the encoder.
"""


class CachedTensor(Record):
    """A tensor that an operation caches for later passes, for one sequence."""

    # a vector for each token; a state in float32; the last inputs of a convolution
    kind: Literal["row", "state", "conv"]
    description: str
    size: Expr  # elements, of one token for a row
    window: AttentionWindow = AttentionWindow()  # the tokens whose rows are kept
    every: int = 1  # tokens for each row
    parts: int = 1  # heads, groups or channels that tensor parallelism distributes
    of_encoder: bool = False  # a row for each token of the encoder

    def on_rank(self, tp: int) -> Expr:
        """Return the elements on one rank of tensor parallelism; there are copies if there are
        more ranks than parts.
        """
        return (
            self.size
            if min(tp, self.parts) == 1
            else product(
                (self.size.exact_div(self.parts), larger(as_number(self.parts) // int(tp), 1))
            )
        )


def cached_tokens(context: int, max_lookback: int | None) -> int:
    """Return the number of tokens whose rows are in the cache after `context` tokens."""
    return context if max_lookback is None else minimum(context, max_lookback)


def num_parts(node: Node) -> int:
    """Return the number of heads that tensor parallelism distributes; 1 if every rank has all of
    them.
    """
    return node.shape[2] if node.sharding == "tensor" else 1


class StepPart(Record):
    """One of the steps in which the trace shows an operation; each reads the one before it, and
    `inputs`.
    """

    name: str
    kind: str
    description: str
    shape: tuple[Expr, ...]
    inputs: tuple[Node, ...] = ()
    weights: tuple[UsedWeight, ...] = ()
    flops: Expr = Expr.const(0)
    cached: CachedTensor | None = None


Shape = Iterable[int]
FlopRule = Callable[[Node, bool], Expr]
"""The FLOPs of a node; those of attention only for the pairs inside the mask, if the second
argument is True."""


class Operation(Record):
    """One operation: its shape, FLOPs, cached and saved tensors, and words in the trace.

    The recorder binds the arguments of that method: what it computes with becomes the inputs of the
    node, weights its weights, and everything else its attributes. `shape`, `facts` and
    `is_identity` get the arguments that they name; `m` is the recorder, which knows the pass.
    """

    name: str  # of the machine's method, if there is one

    # The node

    shape: Callable[..., Shape] | None = None  # of the result; None: that of the first input
    # of the result: "" is that of the first input, without inputs the model's
    dtype: Literal["", "float32", "int64", "model"] = ""
    view: bool = False  # the result shares the storage of the first input
    facts: Callable[..., dict[str, Any]] | None = None  # further attributes
    is_identity: Callable[..., bool] | None = None  # when it returns its input, and has no node
    # instead, of an operation with several results or none: it adds the nodes and returns them
    record: Callable[..., Any] | None = None
    second_result: Operation | None = None  # the row of its second result, if not its own
    whole: bool = False  # every rank of tensor parallelism has all of the result
    experts: Literal["", "enter", "leave"] = ""  # the rows are those of experts from here, until

    # What is counted

    flops: FlopRule | None = None
    mixing: bool = False  # whether its FLOPs combine activations with activations, without a weight
    score_flops: FlopRule | None = None  # of attention: those of q kᵀ
    cached: Callable[[Node], CachedTensor] | None = None
    saved: SavedRule | None = None  # for the backward pass

    # Its step in the trace

    # without one it has no step, and its readers are shown with its inputs
    kind: str = ""
    # the name, with {source} for the block whose result it reads, and attributes of the node;
    # without one that of its block or weight
    step: str = ""
    description: str | Callable[[Node], str] = ""
    # instead, of an operation that is shown as several steps
    steps: Callable[[Node, bool], Iterator[StepPart]] | None = None
    stands_for: str = ""  # an input of the layer, which its readers are shown with

    # What others ask

    is_cast: bool = False
    is_attention: bool = False  # a softmax of scores, and a weighted sum
    has_state: bool = False  # a recurrence
    fuses_activation: bool = False  # a fused kernel computes the activation function after it
    keeps_dtype: bool = False  # fused kernels have its dtype, too
    # the result is in the KV cache: an input that is kept, what earlier passes or layers have
    # kept, or the windows of all passes
    cache: Literal["", "kept", "read", "windows"] = ""

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            raise TypeError(f"an operation is not equal to {other!r}: compare its name")
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"Operation({self.name})"
